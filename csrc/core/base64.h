/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 with the standard alphabet and padding (RFC 4648 section 4). Nothing here allocates or
 * keeps pointers; all may be called without the GIL. `in` and `out` do not overlap. */
#ifndef SN_CORE_BASE64_H
#define SN_CORE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Decodes a text that comes in pieces, cut anywhere. Make it all zero to begin. */
struct sn_b64_decoder {
    uint64_t position; /* characters taken; after SN_INVALID the index of the bad one */
    uint32_t bits;     /* the sextets of an unfinished group */
    unsigned sextets;  /* how many; 0 to 3 */
    unsigned
        padding; /* how many '=' were seen; the text is over after the first group that has one */
};

/* The most bytes that `len` more characters can give. */
size_t sn_b64_decoded_bound(size_t len);

/* How many bytes the `len` characters at `in` give if they are base64, and never less than can be
 * decoded of them if they are not. */
size_t sn_b64_decoded_size(const struct sn_b64_decoder *decoder, const uint8_t *in, size_t len);

/* Decodes `len` characters to `out`. ASCII white space (space, \t \n \v \f \r) is skipped wherever
 * it is. SN_INVALID: any other character outside of the alphabet, padding in the wrong place,
 * anything after it, or bits that padding leaves over and that are not zero. SN_TOO_LARGE: `room`
 * is less than what came out; a room of sn_b64_decoded_bound(len) is always enough. After a failure
 * the decoder is not to be used on. *written says what is in `out`, also then. */
SN_WARN_UNUSED enum sn_status sn_b64_decode(struct sn_b64_decoder *decoder, const uint8_t *in,
                                            size_t len, uint8_t *out, size_t room, size_t *written);

/* SN_INVALID when the text ended inside of a group of four. */
SN_WARN_UNUSED enum sn_status sn_b64_finish(const struct sn_b64_decoder *decoder);

/* Characters that `len` bytes take. SN_TOO_LARGE when that is no size_t. */
SN_WARN_UNUSED enum sn_status sn_b64_encoded_size(size_t len, size_t *size);

/* Encodes to `out`, which has room for sn_b64_encoded_size(len). No line ends, no '\0'. */
void sn_b64_encode(const uint8_t *in, size_t len, uint8_t *out);

/* One width of the part of decoding that is worth it: whole groups of plain characters from the
 * start of `in`, as long as `room` allows and nothing but the alphabet comes. Returns how many
 * characters were taken (a multiple of 4; 3 bytes in `out` for each 4, and up to 8 bytes of `out`
 * beyond them, still within `room`, may be overwritten). */
typedef size_t sn_b64_run(const uint8_t *in, size_t len, uint8_t *out, size_t room);

/* The runs this CPU has, widest first; the last is the scalar one. Fills `out`, returns how many.
 */
#define SN_B64_WIDTHS 2
size_t sn_b64_widths(sn_b64_run *out[SN_B64_WIDTHS]);

#endif
