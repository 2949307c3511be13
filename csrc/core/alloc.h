/* SPDX-License-Identifier: Apache-2.0 */
/* Counted allocation: every byte that csrc/core and csrc/net own comes from here, so that a test
 * can say "nothing is left" and can make the n-th allocation fail. May be called from any thread,
 * with or without the GIL. What sn_malloc and friends return is released by sn_free alone. */
#ifndef SN_CORE_ALLOC_H
#define SN_CORE_ALLOC_H

#include <stddef.h>

/* Like malloc, calloc and realloc: NULL when there is no memory, and the old block of sn_realloc is
 * then untouched. A size of 0 is taken as 1. sn_calloc checks the product. */
void *sn_malloc(size_t size) __attribute__((malloc, warn_unused_result));
void *sn_calloc(size_t count, size_t size) __attribute__((malloc, warn_unused_result));
void *sn_realloc(void *block, size_t size) __attribute__((warn_unused_result));

/* NULL is allowed. errno is kept. */
void sn_free(void *block);

/* Bytes held now: the sum of the usable sizes of all live blocks. */
size_t sn_allocated(void);

#ifdef SN_TEST_ALLOC
/* Only in test builds: the n-th allocation from now (1 is the next one) fails, and every one after
 * it until this is called again; 0 ends that. Returns how many allocations were asked for since the
 * last call. One thread only. */
size_t sn_alloc_fail_from(size_t n);
#endif

#endif
