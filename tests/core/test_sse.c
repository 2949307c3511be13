/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sse.h"
#include "harness.h"

/* Frames as text: "<event>|<data>|<total>" each, ended by \x1e. */
struct seen {
    char text[4096];
    size_t len;
    size_t frames;
    size_t stop_at; /* refuse this frame; 0 for none */
};

static void put(struct seen *seen, const char *data, size_t len)
{
    if (len <= sizeof seen->text - seen->len) {
        memcpy(seen->text + seen->len, data, len);
        seen->len += len;
    }
}

static enum sn_status take(void *ctx, const struct sn_sse_frame *frame)
{
    struct seen *seen = ctx;
    char number[32];

    if (++seen->frames == seen->stop_at) {
        return SN_CANCELLED;
    }
    put(seen, frame->event, frame->event_len);
    put(seen, "|", 1);
    put(seen, frame->data, frame->data_len);
    (void)snprintf(number, sizeof number, "|%llu\x1e", (unsigned long long)frame->total);
    put(seen, number, strlen(number));
    return SN_OK;
}

/* Feeds `stream` in pieces that end at `first` and `second`. */
static enum sn_status parse(const char *stream, size_t len, size_t first, size_t second, size_t cap,
                            struct seen *seen)
{
    struct sn_sse *sse;
    enum sn_status status = sn_sse_new(cap, &sse);

    memset(seen, 0, sizeof *seen);
    if (status == SN_OK) {
        status = sn_sse_feed(sse, stream, first, take, seen);
    }
    if (status == SN_OK) {
        status = sn_sse_feed(sse, stream + first, second - first, take, seen);
    }
    if (status == SN_OK) {
        status = sn_sse_feed(sse, stream + second, len - second, take, seen);
    }
    if (status == SN_OK) {
        status = sn_sse_end(sse, take, seen);
    }
    sn_sse_free(sse);
    return status;
}

static bool gives(const struct seen *seen, const char *want)
{
    if (seen->len == strlen(want) && memcmp(seen->text, want, seen->len) == 0) {
        return true;
    }
    fprintf(stderr, "want %s\n got %.*s\n", want, (int)seen->len, seen->text);
    return false;
}

#define ONE(event, data, total) event "|" data "|" total "\x1e"

static const struct {
    const char *stream, *want;
    size_t cap;
} cases[] = {
    {"data: a\n\ndata: b\n\n", ONE("", "a", "1") ONE("", "b", "1"), 100},
    {"data: a\r\n\r\ndata: b\r\n\r\n", ONE("", "a", "1") ONE("", "b", "1"), 100},
    {"data: a\r\rdata: b\r\r", ONE("", "a", "1") ONE("", "b", "1"), 100},
    {"data: a\r\n\rdata: b\n\r\n", ONE("", "a", "1") ONE("", "b", "1"), 100},
    /* fields */
    {"data:a\ndata:  b\ndata\ndata:\n\n", ONE("", "a\n b\n\n", "6"), 100},
    {"event: stdout\ndata: x\n\ndata: y\n\n", ONE("stdout", "x", "1") ONE("", "y", "1"), 100},
    {"event: a\nevent: b\ndata: x\n\n", ONE("b", "x", "1"), 100},
    {"event: a\nevent\ndata: x\n\n", ONE("", "x", "1"), 100},
    {"event: only\n\ndata: x\n\n", ONE("", "x", "1"), 100},
    {"id: 7\nretry: 10\ndatum: no\ndat: no\neventual: no\nDATA: no\ndata: x\n\n", ONE("", "x", "1"),
     100},
    {"data: 1\nid\ndata: 2\n\n", ONE("", "1\n2", "3"), 100},
    {"data: a:b: c\n\n", ONE("", "a:b: c", "6"), 100},
    {"data\n\n", ONE("", "", "0"), 100},
    /* comments, pings and empty lines */
    {": ping\n\n:\n\n\n\ndata: x\n: between\ndata: y\n\n", ONE("", "x\ny", "3"), 100},
    {"", "", 100},
    {"\n\r\n\r", "", 100},
    {": only a comment", "", 100},
    /* the end of the stream */
    {"data: a\n\ndata: b", ONE("", "a", "1") ONE("", "b", "1"), 100},
    {"data: a\n\ndata: b\n", ONE("", "a", "1") ONE("", "b", "1"), 100},
    {"data", ONE("", "", "0"), 100},
    {"{\"a\":1}", ONE("", "{\"a\":1}", "7"), 100},
    /* bare JSON */
    {"{\"a\":1}\n\n{\"b\":2}\n\n", ONE("", "{\"a\":1}", "7") ONE("", "{\"b\":2}", "7"), 100},
    {"{\"a\":1}\r\n\r\n: ping\r\n\r\n{\"b\":2}\r\n\r\n",
     ONE("", "{\"a\":1}", "7") ONE("", "{\"b\":2}", "7"), 100},
    {"{\"a\":1}\n{\"b\":2}\n\n", ONE("", "{\"a\":1}", "7") ONE("", "{\"b\":2}", "7"), 100},
    {"{\n \"data: x\": [\n{\"y\":1},\n{\"z\":2}\n]\n}\n\n",
     ONE("", "{\n \"data: x\": [\n{\"y\":1},\n{\"z\":2}\n]\n}", "36"), 100},
    {"data: {\"a\":1}\n\n{\"b\":2}\n\n", ONE("", "{\"a\":1}", "7") ONE("", "{\"b\":2}", "7"), 100},
    {"event: e\n{\"a\":1}\n\n", ONE("e", "{\"a\":1}", "7"), 100},
    {"data: x\n{\"a\":1}\n\n", ONE("", "x", "1"), 100}, /* an unknown field of a frame with data */
    /* byte order mark */
    {"\xef\xbb\xbf"
     "data: a\n\n",
     ONE("", "a", "1"), 100},
    {"\xef\xbb\xbf{\"a\":1}\n\n", ONE("", "{\"a\":1}", "7"), 100},
    {"\xef\xbb"
     "data: a\n\ndata: b\n\n",
     ONE("", "b", "1"), 100},
    {"data: \xef\xbb\xbf\n\n", ONE("", "\xef\xbb\xbf", "3"), 100},
    /* what is no line end */
    {"data: a\xe2\x80\xa8"
     "b\xc2\x85"
     "c\x0b\x0c\x1c\xff\n\n",
     ONE("",
         "a\xe2\x80\xa8"
         "b\xc2\x85"
         "c\x0b\x0c\x1c\xff",
         "12"),
     100},
    /* over the cap */
    {"data: 12345\n\ndata: 123\n\n", ONE("", "123", "5") ONE("", "123", "3"), 3},
    {"data: 12\ndata: 34\n\n", ONE("", "12\n", "5"), 3},
    {"{\"a\":1}\n{\"b\":2}\n\n", ONE("", "{\"a", "7") ONE("", "{\"b", "7"), 3},
    {"data: 1234\n\n", ONE("", "1", "4"), 1},
};

TEST(sse_frames_are_the_same_wherever_the_stream_is_cut)
{
    struct seen seen;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t len = strlen(cases[i].stream);

        for (size_t first = 0; first <= len; first++) {
            for (size_t second = first; second <= len; second++) {
                CHECK(parse(cases[i].stream, len, first, second, cases[i].cap, &seen) == SN_OK);
                CHECK(gives(&seen, cases[i].want));
            }
        }
    }
}

TEST(sse_one_byte_at_a_time_delivers_a_frame_with_its_last_byte)
{
    static const char stream[] = "data: a\r\rdata: b\n\n{\"c\":1}\r\n\r\n";
    struct seen seen = {0};
    struct sn_sse *sse;

    CHECK(sn_sse_new(10, &sse) == SN_OK);
    for (size_t i = 0; i < sizeof stream - 1; i++) {
        CHECK(sn_sse_feed(sse, stream + i, 1, take, &seen) == SN_OK);
        CHECK(seen.frames == (size_t)(i >= 8) + (i >= 17) + (i >= 27));
    }
    CHECK(sn_sse_end(sse, take, &seen) == SN_OK);
    CHECK(gives(&seen, ONE("", "a", "1") ONE("", "b", "1") ONE("", "{\"c\":1}", "7")));
    sn_sse_free(sse);
}

TEST(sse_nul_bytes_and_long_event_names)
{
    static const char stream[] =
        "event: 0123456789012345678901234567890123456789012345678901234567890123456789\n"
        "data: a\0b\n\n";
    struct seen seen;
    size_t len = sizeof stream - 1;

    for (size_t cut = 0; cut <= len; cut++) {
        CHECK(parse(stream, len, cut, cut, 100, &seen) == SN_OK);
        CHECK(seen.frames == 1);
        CHECK(seen.len == SN_SSE_MAX_EVENT + strlen("|a?b|3\x1e"));
        CHECK(memcmp(seen.text + SN_SSE_MAX_EVENT, "|a\0b|3\x1e", 7) == 0);
    }
}

TEST(sse_a_sink_that_refuses_ends_the_feeding)
{
    struct seen seen = {.stop_at = 2};
    struct sn_sse *sse;

    CHECK(sn_sse_new(10, &sse) == SN_OK);
    CHECK(sn_sse_feed(sse, "data: a\n\ndata: b\n\ndata: c\n\n", 27, take, &seen) == SN_CANCELLED);
    CHECK(seen.frames == 2);
    sn_sse_free(sse);
    CHECK(sn_sse_new(0, &sse) == SN_INVALID && sse == NULL);
    sn_sse_free(NULL);
}

/* A frame of any size, in pieces of any size, costs no more than its cap. */
TEST(sse_memory_is_bounded_by_the_cap)
{
    static char block[1 << 16];
    struct seen seen = {0};
    struct sn_sse *sse;
    size_t before = sn_allocated();

    memset(block, 'x', sizeof block);
    CHECK(sn_sse_new(100000, &sse) == SN_OK);
    CHECK(sn_sse_feed(sse, "data: ", 6, take, &seen) == SN_OK);
    for (int i = 0; i < 1000; i++) {
        CHECK(sn_sse_feed(sse, block, sizeof block, take, &seen) == SN_OK);
        CHECK(sn_allocated() - before < 101000);
    }
    CHECK(seen.frames == 0);
    CHECK(sn_sse_feed(sse, "\n\n", 2, take, &seen) == SN_OK);
    CHECK(seen.frames == 1);
    CHECK(sn_allocated() - before < 1000); /* given back between frames */
    for (int i = 0; i < 1000; i++) {       /* no line end: a field name without end */
        CHECK(sn_sse_feed(sse, block, sizeof block, take, &seen) == SN_OK);
    }
    CHECK(sn_allocated() - before < 1000);
    sn_sse_free(sse);
}

/* Many line ends of one kind and none of the other: the scan must not look at the rest again each
 * time. It takes minutes if it does, which the harness's reader would notice. */
TEST(sse_scan_is_linear)
{
    static char block[4 << 20];
    struct seen seen = {0};
    struct sn_sse *sse;

    for (int round = 0; round < 2; round++) {
        memset(block, round == 0 ? '\r' : '\n', sizeof block);
        CHECK(sn_sse_new(10, &sse) == SN_OK);
        CHECK(sn_sse_feed(sse, block, sizeof block, take, &seen) == SN_OK);
        CHECK(seen.frames == 0);
        sn_sse_free(sse);
    }
}

TEST(sse_without_memory_fails_clean)
{
    enum sn_status status = SN_OK;
    struct seen seen;

    WITH_EACH_ALLOCATION_FAILING(status, {
        static char block[2000];

        memset(block, 'x', sizeof block);
        memcpy(block, "data: ", 6);
        status = parse(block, sizeof block, 10, 1000, 5000, &seen);
    });
}

TEST(sse_random_bytes_do_no_harm_and_cutting_changes_nothing)
{
    static const char *const pieces[] = {"data:", "data: ", "event:", "\n", "\r", "\r\n",
                                         "{",     "}",      ":",      " ",  "x",  "id",
                                         "\xef",  "\xbb",   "\xbf",   "dat"};
    char stream[300];

    for (int round = 0; round < 5000; round++) {
        size_t len = 0, cap = 1 + harness_below(20);
        struct seen whole, cut;

        while (len < 200) {
            const char *piece = pieces[harness_below(sizeof pieces / sizeof pieces[0])];

            memcpy(stream + len, piece, strlen(piece));
            len += strlen(piece);
        }
        CHECK(parse(stream, len, len, len, cap, &whole) == SN_OK);
        for (int i = 0; i < 5; i++) {
            size_t first = harness_below(len + 1), second = first + harness_below(len - first + 1);

            CHECK(parse(stream, len, first, second, cap, &cut) == SN_OK);
            CHECK(cut.len == whole.len && memcmp(cut.text, whole.text, whole.len) == 0);
        }
    }
}
