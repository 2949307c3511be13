/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan_internal.h"

#if defined(__x86_64__)
#pragma GCC target("avx2")
#include <immintrin.h>

typedef __m256i VEC;
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define FILL(byte) _mm256_set1_epi8((char)(byte))
#define ZERO() _mm256_setzero_si256()
#define EQUAL(a, b) _mm256_cmpeq_epi8(a, b)
#define ADD(a, b) _mm256_add_epi8(a, b)
#define SUBTRACT(a, b) _mm256_sub_epi8(a, b)
#define GREATER(a, b) _mm256_cmpgt_epi8(a, b)
#define AND(a, b) _mm256_and_si256(a, b)
#define AND_NOT(a, b) _mm256_andnot_si256(b, a)
#define OR(a, b) _mm256_or_si256(a, b)
#define SMALLER_OF(a, b) _mm256_min_epu8(a, b)
#define MASK(v) ((unsigned)_mm256_movemask_epi8(v))
#define SUM(v) sum_bytes(v)
#define NAME sn_scan_avx2
#define NAME_TEXT "avx2"

static inline size_t sum_bytes(VEC v)
{
    VEC sums = _mm256_sad_epu8(v, _mm256_setzero_si256());

    return (size_t)(_mm256_extract_epi64(sums, 0) + _mm256_extract_epi64(sums, 1) +
                    _mm256_extract_epi64(sums, 2) + _mm256_extract_epi64(sums, 3));
}

#include "core/scan_wide.h"
#endif
