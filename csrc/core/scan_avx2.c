/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan_internal.h"

#include <stdbool.h>
#include <string.h>

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
#define XOR(a, b) _mm256_xor_si256(a, b)
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

#define OWN_COUNT_LINE_ENDS
static size_t count_line_ends(const uint8_t *p, size_t len, size_t avail);

#include "core/scan_wide.h"

/* Kinds of bytes that matter to line ends. A byte is of a kind when the tables of both its halves
 * say so; the seven ASCII ends need two kinds for that. */
enum kind {
    LOW_END = 1,  /* 0A to 0D */
    HIGH_END = 2, /* 1C to 1E */
    RETURN = 4,   /* 0D */
    LEAD_C2 = 8,  /* C2 85 is a line end */
    LEAD_E2 = 16, /* E2 80 A8 and E2 80 A9 are line ends */
};

#define TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)

static inline VEC kinds(VEC v)
{
    const VEC of_low = TWICE(0, 0, LEAD_C2 | LEAD_E2, 0, 0, 0, 0, 0, 0, 0, LOW_END, LOW_END,
                             LOW_END | HIGH_END, LOW_END | HIGH_END | RETURN, HIGH_END, 0);
    const VEC of_high =
        TWICE(LOW_END | RETURN, HIGH_END, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, LEAD_C2, 0, LEAD_E2, 0);
    VEC low = AND(v, FILL(0x0F));
    VEC high = AND(_mm256_srli_epi16(v, 4), FILL(0x0F));

    return AND(_mm256_shuffle_epi8(of_low, low), _mm256_shuffle_epi8(of_high, high));
}

static inline bool has(VEC kinds, enum kind kind)
{
    return !_mm256_testz_si256(kinds, FILL(kind));
}

static inline VEC crlf_at(const uint8_t *p)
{
    return AND(EQUAL(LOAD(p), FILL('\r')), EQUAL(LOAD(p + 1), FILL('\n')));
}

static inline VEC next_line_at(const uint8_t *p)
{
    return AND(EQUAL(LOAD(p), FILL(0xC2)), EQUAL(LOAD(p + 1), FILL(0x85)));
}

static inline VEC separator_at(const uint8_t *p)
{
    return AND(AND(EQUAL(LOAD(p), FILL(0xE2)), EQUAL(LOAD(p + 1), FILL(0x80))),
               EQUAL(OR(LOAD(p + 2), FILL(1)), FILL(0xA9)));
}

/* Dashes, quotes and the like begin with E2 80 too, so a look at the last byte sorts out more. */
static inline VEC maybe_separator_at(const uint8_t *p)
{
    return AND(EQUAL(LOAD(p), FILL(0xE2)), EQUAL(OR(LOAD(p + 2), FILL(1)), FILL(0xA9)));
}

/* The sum, in each lane, over the four registers at `p`. */
#define OVER_FOUR(at, p) ADD(ADD(at(p), at(p + WIDTH)), ADD(at(p + 2 * WIDTH), at(p + 3 * WIDTH)))

static inline VEC ends_of(VEC kinds)
{
    return GREATER(AND(kinds, FILL(LOW_END | HIGH_END)), ZERO());
}

/* Four registers at a time. Neighbours are only looked at where a longer line end may begin. */
static size_t count_line_ends(const uint8_t *p, size_t len, size_t avail)
{
    size_t whole = avail < 2 ? 0 : len < avail - 2 ? len : avail - 2;
    size_t count = 0;

    while (whole >= 4 * WIDTH) {
        size_t rounds = whole / (4 * WIDTH) < LANE_LIMIT / 4 ? whole / (4 * WIDTH) : LANE_LIMIT / 4;
        VEC sum = ZERO();

        len -= rounds * 4 * WIDTH;
        avail -= rounds * 4 * WIDTH;
        whole -= rounds * 4 * WIDTH;
        for (; rounds > 0; rounds--, p += 4 * WIDTH) {
            VEC a = kinds(LOAD(p));
            VEC b = kinds(LOAD(p + WIDTH));
            VEC c = kinds(LOAD(p + 2 * WIDTH));
            VEC d = kinds(LOAD(p + 3 * WIDTH));
            VEC any = OR(OR(a, b), OR(c, d));

            sum = SUBTRACT(sum, ADD(ADD(ends_of(a), ends_of(b)), ADD(ends_of(c), ends_of(d))));
            if (!has(any, (enum kind)(RETURN | LEAD_C2 | LEAD_E2))) {
                continue;
            }
            if (has(any, RETURN)) {
                /* The same lane counted the \r as one just now. */
                sum = ADD(sum, OVER_FOUR(crlf_at, p));
            }
            if (has(any, LEAD_C2)) {
                sum = SUBTRACT(sum, OVER_FOUR(next_line_at, p));
            }
            if (has(any, LEAD_E2) && MASK(OVER_FOUR(maybe_separator_at, p)) != 0) {
                sum = SUBTRACT(sum, OVER_FOUR(separator_at, p));
            }
        }
        count += SUM(sum);
    }
    return count + sn_scan_scalar.count_line_ends(p, len, avail);
}
#endif
