/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base64.h"

#include "core/base64_internal.h"
#include "core/scan.h"

/* What a character is, beside a sextet: none of these is below 64. */
enum { SPACE = 0x40, PAD = 0x41, BAD = 0xFF };

static const uint8_t alphabet[64] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The alphabet the other way round. */
/* clang-format off */
#define X BAD
static const uint8_t meaning[256] = {
    X, X, X, X, X, X, X, X, X, SPACE, SPACE, SPACE, SPACE, SPACE, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    SPACE, X, X, X, X, X, X, X, X, X, X, 62, X, X, X, 63,
    52, 53, 54, 55, 56, 57, 58, 59, 60, 61, X, X, X, PAD, X, X,
    X, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
    15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, X, X, X, X, X,
    X, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
    41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
    X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X, X,
};
#undef X
/* clang-format on */

size_t sn_b64_decoded_bound(size_t len)
{
    /* Up to 3 sextets are waiting in the decoder. */
    return len / 4 * 3 + 5;
}

size_t sn_b64_decoded_size(const struct sn_b64_decoder *decoder, const uint8_t *in, size_t len)
{
    const struct sn_scan_width *scan = sn_scan();
    /* What is neither white space nor padding is a sextet, or an error that ends the count. */
    size_t padding = scan->count_byte(in, len, '=');
    size_t sextets = len - scan->count_at_most(in, len, ' ') - padding;
    size_t groups = sextets / 4 + (sextets % 4 + decoder->sextets) / 4;
    size_t rest = (sextets % 4 + decoder->sextets) % 4;

    return groups * 3 + (padding > 0 && decoder->padding == 0 && rest > 1 ? rest - 1 : 0);
}

static size_t run_scalar(const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
    size_t taken = 0;

    for (; len - taken >= 4 && room >= 3; taken += 4, out += 3, room -= 3) {
        uint32_t a = meaning[in[taken]];
        uint32_t b = meaning[in[taken + 1]];
        uint32_t c = meaning[in[taken + 2]];
        uint32_t d = meaning[in[taken + 3]];
        uint32_t group = a << 18 | b << 12 | c << 6 | d;

        if ((a | b | c | d) > 63) {
            break;
        }
        out[0] = (uint8_t)(group >> 16);
        out[1] = (uint8_t)(group >> 8);
        out[2] = (uint8_t)group;
    }
    return taken;
}

size_t sn_b64_widths(sn_b64_run *out[SN_B64_WIDTHS])
{
    size_t count = 0;

#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        out[count++] = sn_b64_run_avx2;
    }
#endif
    out[count++] = run_scalar;
    return count;
}

/* Takes one character that is not part of a run. */
static enum sn_status take(struct sn_b64_decoder *decoder, uint8_t what, uint8_t *out, size_t room,
                           size_t *written)
{
    if (what == SPACE) {
        return SN_OK;
    }
    if (what == PAD) {
        /* "xx==" leaves 4 bits over, "xxx=" leaves 2. */
        uint32_t left = decoder->sextets == 2 ? 0xF : 0x3;
        unsigned bytes = decoder->sextets - 1;

        if (decoder->sextets < 2 || decoder->sextets + decoder->padding == 4 ||
            (decoder->bits & left) != 0) {
            return SN_INVALID;
        }
        decoder->padding++;
        if (decoder->padding > 1) {
            return SN_OK;
        }
        if (room < bytes) {
            return SN_TOO_LARGE;
        }
        out[0] = (uint8_t)(bytes == 1 ? decoder->bits >> 4 : decoder->bits >> 10);
        if (bytes == 2) {
            out[1] = (uint8_t)(decoder->bits >> 2);
        }
        *written += bytes;
        return SN_OK;
    }
    if (what > 63 || decoder->padding > 0) {
        return SN_INVALID;
    }
    decoder->bits = decoder->bits << 6 | what;
    if (++decoder->sextets < 4) {
        return SN_OK;
    }
    if (room < 3) {
        return SN_TOO_LARGE;
    }
    out[0] = (uint8_t)(decoder->bits >> 16);
    out[1] = (uint8_t)(decoder->bits >> 8);
    out[2] = (uint8_t)decoder->bits;
    decoder->bits = 0;
    decoder->sextets = 0;
    *written += 3;
    return SN_OK;
}

enum sn_status sn_b64_decode(struct sn_b64_decoder *decoder, const uint8_t *in, size_t len,
                             uint8_t *out, size_t room, size_t *written)
{
    sn_b64_run *widths[SN_B64_WIDTHS];
    size_t count = sn_b64_widths(widths);
    size_t at = 0;

    *written = 0;
    while (at < len) {
        enum sn_status status;

        if (decoder->sextets == 0) {
            for (size_t i = 0; i < count; i++) {
                size_t taken = widths[i](in + at, len - at, out + *written, room - *written);

                at += taken;
                *written += taken / 4 * 3;
            }
            if (at == len) {
                break;
            }
        }
        status = take(decoder, meaning[in[at]], out + *written, room - *written, written);
        if (status != SN_OK) {
            decoder->position += at;
            return status;
        }
        at++;
    }
    decoder->position += len;
    return SN_OK;
}

enum sn_status sn_b64_finish(const struct sn_b64_decoder *decoder)
{
    unsigned group = decoder->sextets + decoder->padding;

    return group == 0 || group == 4 ? SN_OK : SN_INVALID;
}

enum sn_status sn_b64_encoded_size(size_t len, size_t *size)
{
    size_t groups = len / 3 + (len % 3 != 0);

    if (groups > SIZE_MAX / 4) {
        return SN_TOO_LARGE;
    }
    *size = groups * 4;
    return SN_OK;
}

void sn_b64_encode(const uint8_t *in, size_t len, uint8_t *out)
{
    for (; len >= 3; len -= 3, in += 3, out += 4) {
        uint32_t group = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

        out[0] = alphabet[group >> 18];
        out[1] = alphabet[(group >> 12) & 63];
        out[2] = alphabet[(group >> 6) & 63];
        out[3] = alphabet[group & 63];
    }
    if (len > 0) {
        uint32_t group = (uint32_t)in[0] << 16 | (len == 2 ? (uint32_t)in[1] << 8 : 0);

        out[0] = alphabet[group >> 18];
        out[1] = alphabet[(group >> 12) & 63];
        out[2] = len == 2 ? alphabet[(group >> 6) & 63] : '=';
        out[3] = '=';
    }
}
