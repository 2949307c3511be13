/* SPDX-License-Identifier: Apache-2.0 */
/* The body of one vector width, included by the file that defines the operations below for it:
 *   WIDTH  bytes in a register      VEC  its type         NAME  the table to define
 *   LOAD FILL ZERO EQUAL ADD SUBTRACT OR  on bytes        SUM_BYTES  sum of all bytes, a size_t */
#define WIDTH sizeof(VEC)

static size_t count_byte(const uint8_t *p, size_t len, uint8_t byte)
{
    const VEC wanted = FILL(byte);
    size_t count = 0;

    while (len >= WIDTH) {
        /* A hit is -1 in its lane; a lane of the sum holds 255 of them. */
        size_t rounds = len / WIDTH < 255 ? len / WIDTH : 255;
        VEC sum = ZERO();

        len -= rounds * WIDTH;
        for (; rounds >= 4; rounds -= 4, p += 4 * WIDTH) {
            VEC a = ADD(EQUAL(LOAD(p), wanted), EQUAL(LOAD(p + WIDTH), wanted));
            VEC b = ADD(EQUAL(LOAD(p + 2 * WIDTH), wanted), EQUAL(LOAD(p + 3 * WIDTH), wanted));
            sum = SUBTRACT(sum, ADD(a, b));
        }
        for (; rounds > 0; rounds--, p += WIDTH) {
            sum = SUBTRACT(sum, EQUAL(LOAD(p), wanted));
        }
        count += SUM_BYTES(sum);
    }
    return count + sn_scan_scalar.count_byte(p, len, byte);
}

const struct sn_scan_width NAME = {
    .name = NAME_TEXT,
    .count_byte = count_byte,
};
