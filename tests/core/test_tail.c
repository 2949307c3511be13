/* SPDX-License-Identifier: Apache-2.0 */
#include "core/tail.h"
#include "core/utf8.h"
#include "harness.h"

/* What the keeper must answer, from the whole stream at once. */
struct expected {
    size_t kept;
    size_t cut_char;
    size_t cut_line;
    uint64_t lines;
};

static struct expected of_whole(const uint8_t *data, size_t len, size_t cap)
{
    struct expected want = {.kept = len < cap ? len : cap};
    size_t begin = len - want.kept;

    for (size_t i = 0; i < len; i++) {
        want.lines += data[i] == '\n';
    }
    if (begin == 0) {
        return want;
    }
    for (size_t i = 0; i < len;) {
        bool valid;
        size_t end = i + sn_utf8_step(data + i, len - i, &valid);

        if (i < begin && end > begin) {
            want.cut_char = end - begin;
        }
        i = end;
    }
    if (data[begin - 1] != '\n') {
        const uint8_t *found = memchr(data + begin, '\n', want.kept);

        want.cut_line = found != NULL ? (size_t)(found + 1 - (data + begin)) : want.kept;
        if (want.cut_line == want.kept) {
            want.cut_line = want.cut_char;
        }
    }
    return want;
}

static bool answers(const struct sn_tail *tail, const uint8_t *data, size_t len, size_t cap)
{
    struct expected want = of_whole(data, len, cap);
    char *out = malloc(want.kept + 1);
    bool good;

    if (out == NULL || sn_tail_kept(tail) != want.kept) {
        free(out);
        return false;
    }
    sn_tail_copy(tail, out);
    good = memcmp(out, data + len - want.kept, want.kept) == 0 &&
           sn_tail_total_bytes(tail) == len && sn_tail_total_lines(tail) == want.lines &&
           sn_tail_cut_char(tail) == want.cut_char && sn_tail_cut_line(tail) == want.cut_line;
    free(out);
    return good;
}

TEST(tail_is_the_end_of_the_stream_however_it_is_fed)
{
    static const char *const pieces[] = {
        "\n",       "a",    "bc",   "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\x80",
        "\xF0\x9F", "\xE2", "\r\n", "",         "\xED\xA0\x80"};
    uint8_t data[600];

    for (int round = 0; round < 3000; round++) {
        size_t cap = 1 + harness_below(40);
        size_t len = 0;
        size_t wanted = harness_below(500);
        struct sn_tail *tail;

        while (len < wanted) {
            const char *piece = pieces[harness_below(sizeof pieces / sizeof pieces[0])];

            memcpy(data + len, piece, strlen(piece));
            len += strlen(piece);
        }
        CHECK(sn_tail_new(cap, &tail) == SN_OK);
        for (size_t done = 0; done < len;) {
            size_t part = 1 + harness_below(round % 2 != 0 ? 3 : 100);

            part = part < len - done ? part : len - done;
            CHECK(sn_tail_feed(tail, (const char *)data + done, part) == SN_OK);
            done += part;
            CHECK(answers(tail, data, done, cap));
        }
        CHECK(answers(tail, data, len, cap));
        sn_tail_free(tail);
    }
}

TEST(tail_memory_follows_what_was_fed_and_stops_near_the_cap)
{
    static char block[100000];
    struct sn_tail *tail;
    size_t before = sn_allocated();

    memset(block, 'x', sizeof block);
    CHECK(sn_tail_new(50000, &tail) == SN_OK);
    CHECK(sn_tail_feed(tail, block, 10) == SN_OK);
    CHECK(sn_allocated() - before < 5000);
    for (int i = 0; i < 100; i++) {
        CHECK(sn_tail_feed(tail, block, sizeof block) == SN_OK);
        CHECK(sn_tail_feed(tail, block, 777) == SN_OK);
    }
    CHECK(sn_allocated() - before < 51000);
    CHECK(sn_tail_kept(tail) == 50000);
    CHECK(sn_tail_total_bytes(tail) == 10 + 100 * (sizeof block + 777));
    sn_tail_free(tail);
}

TEST(tail_takes_any_cap_from_one)
{
    struct sn_tail *tail;

    CHECK(sn_tail_new(0, &tail) == SN_INVALID && tail == NULL);
    CHECK(sn_tail_new(SIZE_MAX, &tail) == SN_OK);
    CHECK(sn_tail_feed(tail, "ab", 2) == SN_OK);
    CHECK(answers(tail, (const uint8_t *)"ab", 2, SIZE_MAX));
    sn_tail_free(tail);
    sn_tail_free(NULL);
}

TEST(tail_without_memory_fails_and_keeps_what_it_had)
{
    enum sn_status status = SN_OK;
    static char block[10000];

    memset(block, 'y', sizeof block);
    WITH_EACH_ALLOCATION_FAILING(status, {
        struct sn_tail *tail;

        status = sn_tail_new(9000, &tail);
        if (status == SN_OK) {
            status = sn_tail_feed(tail, "abc\n", 4);
        }
        if (status == SN_OK) {
            status = sn_tail_feed(tail, block, sizeof block);
            if (status != SN_OK) {
                CHECK(answers(tail, (const uint8_t *)"abc\n", 4, 9000));
            }
        }
        sn_tail_free(tail);
    });
}
