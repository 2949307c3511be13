/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static _Atomic size_t allocated;

#ifdef SN_TEST_ALLOC
static size_t asked;
static size_t fail_from;

size_t sn_alloc_fail_from(size_t n)
{
    size_t before = asked;
    asked = 0;
    fail_from = n;
    return before;
}

static bool refused(void)
{
    asked++;
    return fail_from != 0 && asked >= fail_from;
}
#else
static bool refused(void)
{
    return false;
}
#endif

static void *counted(void *block)
{
    if (block != NULL) {
        atomic_fetch_add_explicit(&allocated, malloc_usable_size(block), memory_order_relaxed);
    }
    return block;
}

void *sn_malloc(size_t size)
{
    if (refused()) {
        return NULL;
    }
    return counted(malloc(size != 0 ? size : 1));
}

void *sn_calloc(size_t count, size_t size)
{
    if (refused()) {
        return NULL;
    }
    if (count == 0 || size == 0) {
        count = size = 1;
    }
    return counted(calloc(count, size));
}

void *sn_realloc(void *block, size_t size)
{
    size_t before = block != NULL ? malloc_usable_size(block) : 0;
    void *grown;

    if (refused()) {
        return NULL;
    }
    grown = realloc(block, size != 0 ? size : 1);
    if (grown != NULL) {
        atomic_fetch_sub_explicit(&allocated, before, memory_order_relaxed);
        (void)counted(grown);
    }
    return grown;
}

void sn_free(void *block)
{
    int saved = errno;

    if (block != NULL) {
        atomic_fetch_sub_explicit(&allocated, malloc_usable_size(block), memory_order_relaxed);
        free(block);
        errno = saved;
    }
}

size_t sn_allocated(void)
{
    return atomic_load_explicit(&allocated, memory_order_relaxed);
}
