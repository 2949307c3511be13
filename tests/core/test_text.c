/* SPDX-License-Identifier: Apache-2.0 */
#include "core/text.h"
#include "core/scan.h"
#include "core/utf8.h"
#include "harness.h"

/* Code points of `len` bytes; a bad part is U+FFFD. */
static size_t to_code_points(const uint8_t *p, size_t len, uint32_t *out)
{
    size_t count = 0;

    for (size_t i = 0; i < len;) {
        bool valid;
        size_t step = sn_utf8_step(p + i, len - i, &valid);
        uint32_t c = 0xFFFD;

        if (valid) {
            c = step == 1 ? p[i] : p[i] & (0xFFU >> (step + 1));
            for (size_t k = 1; k < step; k++) {
                c = c << 6 | (p[i + k] & 0x3F);
            }
        }
        out[count++] = c;
        i += step;
    }
    return count;
}

static size_t random_text(uint8_t *out, size_t limit, bool ascii)
{
    static const char *const pieces[] = {"\n",
                                         "\r",
                                         "\r\n",
                                         "\v",
                                         "\x1c",
                                         "\x1f",
                                         "abc",
                                         "longer text without an end",
                                         "x",
                                         "",
                                         "\xC2\x85",
                                         "\xE2\x80\xA8",
                                         "\xC3\xA9",
                                         "\xE4\xB8\xAD",
                                         "\xF0\x9F\x98\x80"};
    size_t len = 0;
    size_t wanted = harness_below(limit - 30);

    while (len < wanted) {
        const char *piece = pieces[harness_below(ascii ? 10 : 15)];

        memcpy(out + len, piece, strlen(piece));
        len += strlen(piece);
    }
    return len;
}

/* Walks over all of `text` in blocks of at most `most`. */
static struct sn_shown walked(const uint32_t *text, size_t len, size_t lines, size_t bytes,
                              size_t most)
{
    struct sn_tail_walk walk;

    sn_tail_walk_begin(&walk, len, lines, bytes);
    while (!walk.done) {
        size_t count = 1 + harness_below(most);

        count = count < walk.at ? count : walk.at;
        sn_tail_walk_block(&walk, text + walk.at - count, count);
    }
    return walk.shown;
}

static bool same(struct sn_shown a, struct sn_shown b)
{
    return a.begin == b.begin && a.end == b.end && a.lines == b.lines && a.bytes == b.bytes &&
           a.cut == b.cut;
}

/* What `plain` promises. */
static bool shows_as_it_is(const uint32_t *text, const struct sn_shown *shown)
{
    for (size_t i = shown->begin; i < shown->end; i++) {
        uint8_t out[4];
        bool after_cr = false;
        size_t size = sn_text_write_block(text + i, 1, &after_cr, out);
        uint32_t back[4];

        if (to_code_points(out, size, back) != 1 || back[0] != text[i]) {
            return false;
        }
    }
    return true;
}

TEST(the_tail_is_the_same_in_bytes_and_in_blocks_of_any_size)
{
    static uint8_t text[400];
    static uint32_t points[400];
    static uint8_t out[2][1700];

    for (int round = 0; round < 20000; round++) {
        bool ascii = round % 2 == 0;
        size_t len = random_text(text, sizeof text, ascii);
        size_t count = to_code_points(text, len, points);
        size_t lines = 1 + harness_below(6);
        size_t bytes = 1 + harness_below(60);
        struct sn_shown whole = walked(points, count, lines, bytes, 1000);
        bool after_cr = false;
        size_t written = 0;

        CHECK(same(walked(points, count, lines, bytes, 1 + harness_below(5)), whole));
        if (ascii) {
            struct sn_shown of_bytes;

            sn_show_tail_ascii(text, len, lines, bytes, &of_bytes);
            CHECK(same(of_bytes, whole));
            CHECK(!of_bytes.plain || shows_as_it_is(points, &of_bytes));
            CHECK(sn_text_write(text + whole.begin, whole.end - whole.begin, out[1], whole.bytes) ==
                  whole.bytes);
        }
        CHECK(!whole.plain || shows_as_it_is(points, &whole));
        /* Both caps hold, and what is written takes what was promised. */
        CHECK(whole.lines <= lines && whole.bytes <= bytes);
        for (size_t at = whole.begin; at < whole.end;) {
            size_t part = 1 + harness_below(7);

            part = part < whole.end - at ? part : whole.end - at;
            written += sn_text_write_block(points + at, part, &after_cr, out[0] + written);
            at += part;
        }
        CHECK(written == whole.bytes);
        CHECK(!ascii || memcmp(out[0], out[1], written) == 0);
        CHECK(whole.cut || whole.begin == 0);
    }
}

TEST(a_window_holds_both_caps_and_pages_once_over_every_line)
{
    static uint8_t text[600];

    for (int round = 0; round < 3000; round++) {
        size_t len = random_text(text, sizeof text, false);
        size_t bytes = 30 + harness_below(60);
        size_t first = 1;
        size_t total = SIZE_MAX;

        for (size_t i = 0; i < len; i++) {
            /* Broken here and there. */
            if (harness_below(40) == 0) {
                text[i] = (uint8_t)(0x80 + harness_below(128));
            }
        }
        for (;;) {
            struct sn_window window;
            static uint8_t out[200];
            size_t written;

            sn_show_window(text, len, first, SIZE_MAX, 3, bytes, &window);
            CHECK(total == SIZE_MAX || window.total == total);
            total = window.total;
            if (first > total) {
                CHECK(window.shown.lines == 0);
                break;
            }
            CHECK(window.shown.lines <= 3 && window.shown.bytes <= bytes);
            CHECK(window.shown.cut == (window.shown.lines == 0));
            written = sn_text_write(text + window.shown.begin,
                                    window.shown.end - window.shown.begin, out, window.shown.bytes);
            CHECK(written == window.shown.bytes);
            if (window.shown.plain) {
                CHECK(memcmp(out, text + window.shown.begin, written) == 0);
            }
            first += window.shown.lines != 0 ? window.shown.lines : 1;
        }
        CHECK(first == total + 1);
    }
}

TEST(a_head_holds_both_caps)
{
    static const uint32_t text[] = {'a', '\n', 0xE9, 0x4E2D, '\n', 0xD800, '\r', '\n', 'b'};
    size_t len = sizeof text / sizeof text[0];
    struct sn_head head;

    sn_show_head(text, 4, len, 2, 7, &head);
    CHECK(head.end == 4 && head.next == 5 && !head.changed);
    sn_show_head(text, 4, len, 2, 6, &head);
    CHECK(head.end == 1 && head.next == 2);
    sn_show_head(text, 4, len, 9, 12, &head);
    CHECK(head.end == 7 && head.next == 8 && head.changed);
    sn_show_head(text, 4, len, 9, 14, &head);
    CHECK(head.end == len && head.next == len);
    sn_show_head("abc", 1, 3, 9, 2, &head);
    CHECK(head.end == 0 && head.next == 0);
}

TEST(bad_utf8_is_replaced_by_its_maximal_parts)
{
    static const struct {
        const char *bytes;
        const char *shown;
    } cases[] = {
        {"a\x80z", "a\xEF\xBF\xBDz"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xE2\x82", "\xEF\xBF\xBD"},
        {"\xE2\x82z", "\xEF\xBF\xBDz"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
        {"\xF0\x9F\xF0\x9F\x98\x80", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF5\xFF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        size_t len = strlen(cases[i].bytes);
        size_t size = strlen(cases[i].shown);
        uint8_t out[32];

        CHECK(sn_utf8_repaired_size(bytes, len, 100) == size);
        CHECK(sn_scan()->valid_utf8(bytes, len) == (strcmp(cases[i].bytes, cases[i].shown) == 0));
        for (size_t room = 0; room <= size + 1; room++) {
            size_t written = sn_utf8_repair(bytes, len, out, room);

            CHECK(written <= room && memcmp(out, cases[i].shown, written) == 0);
            CHECK(room < size || written == size);
        }
    }
}

TEST(sizes_read_as_they_should)
{
    static const struct {
        uint64_t size;
        const char *text;
    } cases[] = {{0, "0B"},
                 {1023, "1023B"},
                 {1024, "1.0KB"},
                 {1024 + 51, "1.0KB"},
                 {1024 + 52, "1.1KB"},
                 {1280, "1.2KB"}, /* 1.25: halfway, to even */
                 {1792, "1.8KB"}, /* 1.75 */
                 {1024 * 1024 - 1, "1024.0KB"},
                 {1024 * 1024, "1.0MB"},
                 {UINT64_MAX, "17592186044416.0MB"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[SN_SIZE_TEXT];

        CHECK(sn_format_size(cases[i].size, text) == strlen(cases[i].text));
        CHECK(strcmp(text, cases[i].text) == 0);
    }
}
