/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan.h"
#include "harness.h"

#define LONGEST 1500

/* The scalar answers, spelled out anew from the definition: walk from line end to line end. */
static size_t lines_ended(const uint8_t *p, size_t from, size_t to, size_t avail)
{
    size_t count = 0;

    for (size_t i = 0; i < avail;) {
        size_t len = sn_line_end_length(p + i, avail - i);
        size_t begins = i + (len == 2 && p[i] == '\r');

        count += len != 0 && begins >= from && begins < to;
        i += len != 0 ? len : 1;
    }
    return count;
}

static size_t fill(uint8_t *data, int kind)
{
    static const char *const mixed[] = {
        "\n",   "\v",   "\f",           "\r",           "\x1c",     "\x1d",     "\x1e",
        "\x1b", "\x1f", "\r\n",         "\xC2",         "\xC2\x85", "\xE2\x80", "\xE2\x80\xA8",
        "\x85", "\xA9", "\xE2\x80\xA9", "\xE2\x80\xAA", "a",        "\x0e",     "\x09",
        "\xE2", "\x8a", "\x9c",         "\xC3\x85",     "\xA8",     "\xFF"};
    size_t wanted = harness_below(LONGEST - 400);
    size_t len = 0;

    while (len < wanted) {
        size_t run = kind == 0 ? 0 : harness_below(kind == 1 ? 10 : 300);
        const char *piece = mixed[harness_below(sizeof mixed / sizeof mixed[0])];

        memset(data + len, kind == 2 ? 'x' : 0xD0, run);
        len += run;
        memcpy(data + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

TEST(every_width_counts_and_finds_the_same)
{
    const struct sn_scan_width *widths[SN_SCAN_WIDTHS];
    size_t count = sn_scan_widths(widths);

    CHECK(count >= 1 && widths[count - 1]->next_candidate != NULL);
    for (int round = 0; round < 4000; round++) {
        uint8_t *data = malloc(LONGEST);
        size_t len = fill(data, round % 4);
        size_t from = harness_below(len + 1);
        size_t part = harness_below(len - from + 1);
        uint8_t *exact = malloc(len + 1);
        bool good = true;

        /* An exact block, so that AddressSanitizer sees a look beyond the end. */
        memcpy(exact, data, len);
        exact = realloc(exact, len != 0 ? len : 1);
        for (size_t w = 0; w < count; w++) {
            const struct sn_scan_width *scan = widths[w];
            const struct sn_scan_width *plain = widths[count - 1];
            size_t candidate = scan->next_candidate(exact + from, len - from);

            good &= scan->count_line_ends(exact + from, part, len - from) ==
                    lines_ended(exact, from, from + part, len);
            good &= scan->count_byte(exact + from, part, '\n') ==
                    plain->count_byte(exact + from, part, '\n');
            good &= scan->count_at_most(exact + from, part, 0x85) ==
                    plain->count_at_most(exact + from, part, 0x85);
            good &= scan->valid_utf8(exact + from, part) == plain->valid_utf8(exact + from, part);
            good &= candidate == plain->next_candidate(exact + from, len - from);
            good &=
                scan->after_last_ascii_end(exact, from) == plain->after_last_ascii_end(exact, from);
        }
        free(exact);
        free(data);
        CHECK(good);
    }
}

TEST(counting_holds_where_every_lane_is_full)
{
    const struct sn_scan_width *widths[SN_SCAN_WIDTHS];
    size_t count = sn_scan_widths(widths);
    static const char *const units[] = {"\n", "\r\n", "\xC2\x85", "\xE2\x80\xA8"};

    for (size_t u = 0; u < 4; u++) {
        size_t size = strlen(units[u]);
        size_t times = 100000;
        uint8_t *data = malloc(size * times);

        for (size_t i = 0; i < times; i++) {
            memcpy(data + i * size, units[u], size);
        }
        for (size_t w = 0; w < count; w++) {
            size_t lines = widths[w]->count_line_ends(data, size * times, size * times);
            size_t bytes = widths[w]->count_byte(data, size * times, (uint8_t)units[u][0]);

            if (lines != times || bytes != times) {
                free(data);
                CHECK(!"a lane overflowed");
            }
        }
        free(data);
    }
}

TEST(line_ends_are_those_of_splitlines)
{
    static const struct {
        const char *text;
        size_t len;
    } cases[] = {{"\n", 1},
                 {"\v", 1},
                 {"\f", 1},
                 {"\r", 1},
                 {"\r\n", 2},
                 {"\r\r", 1},
                 {"\x1c", 1},
                 {"\x1d", 1},
                 {"\x1e", 1},
                 {"\x1f", 0},
                 {"\x1b", 0},
                 {"\t", 0},
                 {"\x0e", 0},
                 {"\xC2\x85", 2},
                 {"\xC2\x84", 0},
                 {"\xC2", 0},
                 {"\xE2\x80\xA8", 3},
                 {"\xE2\x80\xA9", 3},
                 {"\xE2\x80\xAA", 0},
                 {"\xE2\x80", 0},
                 {"\x85", 0},
                 {"\xE2\x81\xA8", 0},
                 {"", 0}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(sn_line_end_length((const uint8_t *)cases[i].text, strlen(cases[i].text)) ==
              cases[i].len);
    }
}

TEST(the_next_line_end_is_found_past_look_alikes)
{
    static const char text[] = "ab\xC2\x84\xE2\x80\xAA"
                               "c\xE2\x80\xA9"
                               "d";
    size_t len = 9;

    CHECK(sn_next_line_end(sn_scan(), (const uint8_t *)text, strlen(text), &len) == 8 && len == 3);
    CHECK(sn_next_line_end(sn_scan(), (const uint8_t *)text, 8, &len) == 8 && len == 0);
    CHECK(sn_next_line_end(sn_scan(), (const uint8_t *)text, 0, &len) == 0 && len == 0);
}
