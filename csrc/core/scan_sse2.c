/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan_internal.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>

typedef __m128i VEC;
#define LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define FILL(byte) _mm_set1_epi8((char)(byte))
#define ZERO() _mm_setzero_si128()
#define EQUAL(a, b) _mm_cmpeq_epi8(a, b)
#define ADD(a, b) _mm_add_epi8(a, b)
#define SUBTRACT(a, b) _mm_sub_epi8(a, b)
#define GREATER(a, b) _mm_cmpgt_epi8(a, b)
#define AND(a, b) _mm_and_si128(a, b)
#define AND_NOT(a, b) _mm_andnot_si128(b, a)
#define OR(a, b) _mm_or_si128(a, b)
#define XOR(a, b) _mm_xor_si128(a, b)
#define SMALLER_OF(a, b) _mm_min_epu8(a, b)
#define MASK(v) ((unsigned)_mm_movemask_epi8(v))
#define SUM(v) sum_bytes(v)
#define NAME sn_scan_sse2
#define NAME_TEXT "sse2"

static inline size_t sum_bytes(VEC v)
{
    VEC sums = _mm_sad_epu8(v, _mm_setzero_si128());

    return (size_t)(_mm_cvtsi128_si64(sums) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums)));
}

#include "core/scan_wide.h"
#endif
