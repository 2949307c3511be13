/* SPDX-License-Identifier: Apache-2.0 */
/* A test is  TEST(what_holds) { ... CHECK(a == b); ... }  in any test_*.c of this folder. Each runs
 * with the allocation counter watched: a byte that is left after it is a failure. */
#ifndef SN_TESTS_HARNESS_H
#define SN_TESTS_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/status.h"

void harness_register(const char *file, const char *name, void (*run)(void));
void harness_fail(const char *file, int line, const char *what);

/* Numbers that look random and are the same in each run. */
uint32_t harness_random(void);
/* Uniform enough below `bound` (at least 1). */
size_t harness_below(size_t bound);

#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        harness_register(__FILE__, #name, name);                                                   \
    }                                                                                              \
    static void name(void)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            harness_fail(__FILE__, __LINE__, #condition);                                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Runs `body` again and again, failing the first, second, ... allocation in it and all later ones,
 * until it gets through. `body` sets `status`, frees what it made and may not leave a byte behind
 * (the harness checks). */
#define WITH_EACH_ALLOCATION_FAILING(status, body)                                                 \
    for (size_t nth_ = 1;; nth_++) {                                                               \
        size_t held_ = sn_allocated();                                                             \
        (void)sn_alloc_fail_from(nth_);                                                            \
        body;                                                                                      \
        (void)sn_alloc_fail_from(0);                                                               \
        CHECK(sn_allocated() == held_);                                                            \
        if ((status) == SN_OK) {                                                                   \
            CHECK(nth_ > 1);                                                                       \
            break;                                                                                 \
        }                                                                                          \
        CHECK((status) == SN_NO_MEMORY);                                                           \
    }

#endif
