/* SPDX-License-Identifier: Apache-2.0 */
#include "core/utf8.h"

static bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t sn_utf8_step(const uint8_t *p, size_t len, bool *valid)
{
    uint8_t lead = p[0];
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    size_t want;

    *valid = false;
    if (lead < 0x80) {
        *valid = true;
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 1;
    }
    if (lead < 0xE0) {
        want = 2;
    } else if (lead < 0xF0) {
        want = 3;
        low = lead == 0xE0 ? 0xA0 : 0x80;  /* below: an overlong form */
        high = lead == 0xED ? 0x9F : 0xBF; /* above: a surrogate */
    } else {
        want = 4;
        low = lead == 0xF0 ? 0x90 : 0x80;
        high = lead == 0xF4 ? 0x8F : 0xBF; /* above: beyond U+10FFFF */
    }
    if (len < 2 || p[1] < low || p[1] > high) {
        return 1;
    }
    for (size_t i = 2; i < want; i++) {
        if (i == len || !continues(p[i])) {
            return i;
        }
    }
    *valid = true;
    return want;
}

size_t sn_utf8_straddle(const uint8_t *p, size_t cut, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= cut; back++) {
        size_t begin = cut - back;

        if (!continues(p[begin])) {
            bool valid;
            size_t end = begin + sn_utf8_step(p + begin, len - begin, &valid);

            return end > cut ? end - cut : 0;
        }
    }
    return 0;
}
