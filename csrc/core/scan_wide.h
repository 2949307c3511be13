/* SPDX-License-Identifier: Apache-2.0 */
/* The body of one vector width, included by the file that defines for it:
 * - VEC, a register of bytes, with LOAD FILL ZERO;
 * - EQUAL GREATER (signed; -1 in a lane that is so), ADD SUBTRACT AND AND_NOT (a without b) OR,
 *   XOR SMALLER_OF (unsigned), lane by lane;
 * - MASK(v), the top bit of each lane as an unsigned number, lowest lane lowest;
 * - SUM(v), the sum of all lanes, a size_t;
 * - NAME and NAME_TEXT, the table to define and its name;
 * - OWN_COUNT_LINE_ENDS, if it has a better count_line_ends of its own. */
#define WIDTH sizeof(VEC)
/* -1 in each lane that is at least `limit`, unsigned. */
#define AT_LEAST(v, limit) EQUAL(SMALLER_OF(v, FILL(limit)), FILL(limit))
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

#ifndef OWN_COUNT_LINE_ENDS
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
#endif

/* Something other than 0 in each lane that shows that UTF-8 with the three bytes before it is not
 * valid (table 3-7 of the Unicode standard). */
static inline VEC utf8_errors(const uint8_t *p)
{
    VEC v = LOAD(p);
    VEC before = LOAD(p - 1);
    /* Bytes 80 to BF are the lowest signed numbers. */
    VEC continues = GREATER(FILL(0xC0), v);
    VEC expected =
        OR(AT_LEAST(before, 0xC0), OR(AT_LEAST(LOAD(p - 2), 0xE0), AT_LEAST(LOAD(p - 3), 0xF0)));
    VEC never = OR(EQUAL(AND(v, FILL(0xFE)), FILL(0xC0)), AT_LEAST(v, 0xF5));
    VEC overlong = OR(AND_NOT(EQUAL(before, FILL(0xE0)), AT_LEAST(v, 0xA0)),
                      AND_NOT(EQUAL(before, FILL(0xF0)), AT_LEAST(v, 0x90)));
    VEC beyond = OR(AND(EQUAL(before, FILL(0xED)), AT_LEAST(v, 0xA0)),
                    AND(EQUAL(before, FILL(0xF4)), AT_LEAST(v, 0x90)));

    return OR(OR(XOR(continues, expected), never), OR(overlong, beyond));
}

static bool valid_utf8(const uint8_t *p, size_t len)
{
    /* Both ends are looked at in a copy, with zeros outside of the text: before it nothing is open,
     * and after it whatever is still open is an error. */
    uint8_t edge[3 + WIDTH] = {0};
    VEC errors = ZERO();
    bool open = true; /* the last register may have left a character open */
    size_t at = 0;

    if (len >= WIDTH) {
        memcpy(edge + 3, p, WIDTH);
        errors = utf8_errors(edge + 3);
        for (at = WIDTH; len - at >= WIDTH; at += WIDTH) {
            bool ascii = MASK(LOAD(p + at)) == 0;

            if (open || !ascii) {
                errors = OR(errors, utf8_errors(p + at));
            }
            open = !ascii;
        }
        memset(edge, 0, sizeof edge);
        memcpy(edge, p + at - 3, 3);
    }
    memcpy(edge + 3, p + at, len - at);
    errors = OR(errors, utf8_errors(edge + 3));
    return MASK(EQUAL(errors, ZERO())) == MASK(EQUAL(ZERO(), ZERO()));
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
    .valid_utf8 = valid_utf8,
};
