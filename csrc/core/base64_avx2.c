/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base64_internal.h"

#if defined(__x86_64__)
#pragma GCC target("avx2")
#include <immintrin.h>

/* -1 in each lane whose byte is from `low` to `high` (both below 128; a byte above is never in). */
static inline __m256i within(__m256i v, char low, char high)
{
    return _mm256_and_si256(_mm256_cmpgt_epi8(v, _mm256_set1_epi8((char)(low - 1))),
                            _mm256_cmpgt_epi8(_mm256_set1_epi8((char)(high + 1)), v));
}

static inline __m256i either(__m256i a, __m256i b)
{
    return _mm256_or_si256(a, b);
}

/* `distance` in the lanes of `mask`. */
static inline __m256i moved(__m256i mask, int distance)
{
    return _mm256_and_si256(mask, _mm256_set1_epi8((char)distance));
}

/* 32 characters to 24 bytes at a time. Each of the five parts of the alphabet lies at a fixed
 * distance from its sextets; a byte in none of them ends the run. */
size_t sn_b64_run_avx2(const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
    /* After the sums below each 32-bit lane holds a group as 00000000 aaaaaaaa bbbbbbbb cccccccc.
     */
    const __m256i order = _mm256_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1,
                                           2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
    const __m256i close_up = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 7, 7);
    size_t taken = 0;

    for (; len - taken >= 32 && room >= 32; taken += 32, out += 24, room -= 24) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(in + taken));
        __m256i upper = within(v, 'A', 'Z');
        __m256i lower = within(v, 'a', 'z');
        __m256i digit = within(v, '0', '9');
        __m256i plus = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('+'));
        __m256i slash = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('/'));
        __m256i known = either(either(either(upper, lower), either(digit, plus)), slash);
        __m256i distance = either(either(either(moved(upper, 0 - 'A'), moved(lower, 26 - 'a')),
                                         either(moved(digit, 52 - '0'), moved(plus, 62 - '+'))),
                                  moved(slash, 63 - '/'));

        if (_mm256_movemask_epi8(known) != -1) {
            break;
        }
        v = _mm256_add_epi8(v, distance);
        v = _mm256_maddubs_epi16(v, _mm256_set1_epi16(0x0140));  /* pairs: first * 64 + second */
        v = _mm256_madd_epi16(v, _mm256_set1_epi32(0x00011000)); /* first pair * 4096 + second */
        v = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(v, order), close_up);
        _mm256_storeu_si256((__m256i *)(void *)out, v);
    }
    return taken;
}
#endif
