/* SPDX-License-Identifier: Apache-2.0 */
/* The body of one vector width, included by the file that defines for it:
 * - VEC, a register of bytes, with LOAD FILL ZERO;
 * - EQUAL GREATER (signed; -1 in a lane that is so), ADD SUBTRACT AND AND_NOT (a without b) OR,
 *   SMALLER_OF (unsigned), lane by lane;
 * - MASK(v), the top bit of each lane as an unsigned number, lowest lane lowest;
 * - SUM(v), the sum of all lanes, a size_t;
 * - NAME and NAME_TEXT, the table to define and its name. */
#define WIDTH sizeof(VEC)
/* A hit is counted by subtracting its -1; a lane overflows after 255 of them. */
#define LANE_LIMIT 255

static size_t count_byte(const uint8_t *p, size_t len, uint8_t byte)
{
    const VEC wanted = FILL(byte);
    size_t count = 0;

    while (len >= WIDTH) {
        size_t rounds = len / WIDTH < LANE_LIMIT ? len / WIDTH : LANE_LIMIT;
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
        count += SUM(sum);
    }
    return count + sn_scan_scalar.count_byte(p, len, byte);
}

static size_t count_at_most(const uint8_t *p, size_t len, uint8_t limit)
{
    const VEC wanted = FILL(limit);
    size_t count = 0;

    while (len >= WIDTH) {
        size_t rounds = len / WIDTH < LANE_LIMIT ? len / WIDTH : LANE_LIMIT;
        VEC sum = ZERO();

        len -= rounds * WIDTH;
        for (; rounds > 0; rounds--, p += WIDTH) {
            VEC v = LOAD(p);
            sum = SUBTRACT(sum, EQUAL(SMALLER_OF(v, wanted), v));
        }
        count += SUM(sum);
    }
    return count + sn_scan_scalar.count_at_most(p, len, limit);
}

/* The seven ASCII line ends are two ranges; added up to the top of the signed range, each is one
 * comparison. */
static inline VEC ascii_ends(VEC v)
{
    VEC low = GREATER(ADD(v, FILL(0x7F - '\r')), FILL(0x7F - ('\r' - '\n') - 1));
    VEC high = GREATER(ADD(v, FILL(0x7F - 0x1E)), FILL(0x7F - (0x1E - 0x1C) - 1));

    return OR(low, high);
}

/* C2 and E2 differ in one bit. */
static inline VEC leads(VEC v)
{
    return EQUAL(AND(v, FILL(0xDF)), FILL(0xC2));
}

/* The ASCII hits of one register at `p`, with one byte more to look at: the \r of \r\n is none. */
static inline VEC ascii_hits(const uint8_t *p)
{
    VEC v = LOAD(p);
    VEC crlf = AND(EQUAL(v, FILL('\r')), EQUAL(LOAD(p + 1), FILL('\n')));

    return AND_NOT(ascii_ends(v), crlf);
}

/* All hits of one register at `p`, with two bytes more to look at. */
static inline VEC hits_with_context(const uint8_t *p)
{
    VEC v = LOAD(p);
    VEC second = LOAD(p + 1);
    VEC third = LOAD(p + 2);
    VEC next_line = AND(EQUAL(v, FILL(0xC2)), EQUAL(second, FILL(0x85)));
    VEC separator = AND(AND(EQUAL(v, FILL(0xE2)), EQUAL(second, FILL(0x80))),
                        EQUAL(OR(third, FILL(1)), FILL(0xA9)));

    return OR(ascii_hits(p), OR(next_line, separator));
}

static size_t count_line_ends(const uint8_t *p, size_t len, size_t avail)
{
    size_t count = 0;
    size_t whole = avail >= 2 && len > avail - 2 ? avail - 2 : len;

    /* Four registers at a time. Most need no neighbours: only where a \r, C2 or E2 is among them.
     */
    while (avail >= 2 && whole >= 4 * WIDTH) {
        size_t rounds = whole / (4 * WIDTH);
        VEC sum = ZERO();

        if (rounds > LANE_LIMIT / 4) {
            rounds = LANE_LIMIT / 4;
        }
        len -= rounds * 4 * WIDTH;
        avail -= rounds * 4 * WIDTH;
        whole -= rounds * 4 * WIDTH;
        for (; rounds > 0; rounds--, p += 4 * WIDTH) {
            VEC a = LOAD(p);
            VEC b = LOAD(p + WIDTH);
            VEC c = LOAD(p + 2 * WIDTH);
            VEC d = LOAD(p + 3 * WIDTH);
            const VEC cr = FILL('\r');
            VEC returns = OR(OR(EQUAL(a, cr), EQUAL(b, cr)), OR(EQUAL(c, cr), EQUAL(d, cr)));
            VEC high = OR(OR(a, b), OR(c, d)); /* the top bit says "not ASCII" */

            VEC hits;

            if (MASK(high) != 0 && MASK(OR(OR(leads(a), leads(b)), OR(leads(c), leads(d)))) != 0) {
                hits = ADD(ADD(hits_with_context(p), hits_with_context(p + WIDTH)),
                           ADD(hits_with_context(p + 2 * WIDTH), hits_with_context(p + 3 * WIDTH)));
            } else if (MASK(returns) != 0) {
                hits = ADD(ADD(ascii_hits(p), ascii_hits(p + WIDTH)),
                           ADD(ascii_hits(p + 2 * WIDTH), ascii_hits(p + 3 * WIDTH)));
            } else {
                hits = ADD(ADD(ascii_ends(a), ascii_ends(b)), ADD(ascii_ends(c), ascii_ends(d)));
            }
            sum = SUBTRACT(sum, hits);
        }
        count += SUM(sum);
    }
    return count + sn_scan_scalar.count_line_ends(p, len, avail);
}

static size_t next_candidate(const uint8_t *p, size_t len)
{
    size_t i = 0;

    for (; len - i >= WIDTH; i += WIDTH) {
        VEC v = LOAD(p + i);
        unsigned mask = MASK(OR(ascii_ends(v), leads(v)));

        if (mask != 0) {
            return i + (size_t)__builtin_ctz(mask);
        }
    }
    return i + sn_scan_scalar.next_candidate(p + i, len - i);
}

static size_t after_last_ascii_end(const uint8_t *p, size_t len)
{
    for (; len >= WIDTH; len -= WIDTH) {
        unsigned mask = MASK(ascii_ends(LOAD(p + len - WIDTH)));

        if (mask != 0) {
            return len - WIDTH + 32U - (size_t)__builtin_clz(mask);
        }
    }
    return sn_scan_scalar.after_last_ascii_end(p, len);
}

const struct sn_scan_width NAME = {
    .name = NAME_TEXT,
    .count_byte = count_byte,
    .count_at_most = count_at_most,
    .count_line_ends = count_line_ends,
    .next_candidate = next_candidate,
    .after_last_ascii_end = after_last_ascii_end,
};
