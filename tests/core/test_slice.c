/* SPDX-License-Identifier: Apache-2.0 */
/* gzip and slices: whole, in pieces of any size, cut anywhere, damaged anywhere, too large. */
#include "core/slice.h"

#include <zlib.h>

#include "core/base64.h"
#include "core/gunzip.h"
#include "harness.h"

struct memory {
    uint8_t bytes[300000];
    size_t len;
    enum sn_status refuse;
};

static struct memory memory;

static enum sn_status keep(void *context, const uint8_t *data, size_t len)
{
    struct memory *self = context;

    if (self->refuse != SN_OK) {
        return self->refuse;
    }
    if (len > sizeof self->bytes - self->len) {
        return SN_SYSTEM;
    }
    memcpy(self->bytes + self->len, data, len);
    self->len += len;
    return SN_OK;
}

static struct sn_sink_bytes sink(void)
{
    memory.len = 0;
    memory.refuse = SN_OK;
    return (struct sn_sink_bytes){keep, &memory};
}

static uint8_t plain[200000], packed[400000];

/* Compresses plain[from, from + len) as one member at `at`; its size. */
static size_t member(size_t from, size_t len, uint8_t *at, size_t room)
{
    z_stream stream = {0};

    if (deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        abort();
    }
    stream.next_in = plain + from;
    stream.avail_in = (unsigned)len;
    stream.next_out = at;
    stream.avail_out = (unsigned)room;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
        abort();
    }
    size_t size = (size_t)stream.total_out;
    (void)deflateEnd(&stream);
    return size;
}

static void fill(size_t len)
{
    for (size_t i = 0; i < len; i++) {
        plain[i] = (uint8_t)(harness_below(4) == 0 ? harness_random() : 'a' + i % 7);
    }
}

/* All at once or in pieces of up to `piece` bytes. */
static enum sn_status unpack(const uint8_t *data, size_t len, size_t piece, uint64_t most)
{
    struct sn_gunzip *gunzip;
    enum sn_status status = sn_gunzip_new(sink(), most, &gunzip);

    while (status == SN_OK && len > 0) {
        size_t part = 1 + harness_below(piece);
        part = part < len ? part : len;
        status = sn_gunzip_feed(gunzip, data, part);
        data += part;
        len -= part;
    }
    if (status == SN_OK) {
        status = sn_gunzip_finish(gunzip);
    }
    if (status == SN_INVALID && sn_gunzip_problem(gunzip)[0] == '\0') {
        status = SN_SYSTEM;
    }
    sn_gunzip_free(gunzip);
    return status;
}

TEST(gzip_comes_out_as_it_went_in_whatever_the_pieces_and_members)
{
    const size_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 200000};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t half = sizes[i] / 2;
        fill(sizes[i]);
        size_t one = member(0, sizes[i], packed, sizeof packed);
        CHECK(unpack(packed, one, 1 << 20, sizes[i]) == SN_OK && memory.len == sizes[i]);
        CHECK(memcmp(memory.bytes, plain, sizes[i]) == 0);
        CHECK(unpack(packed, one, 9, sizes[i]) == SN_OK && memory.len == sizes[i]);
        CHECK(memcmp(memory.bytes, plain, sizes[i]) == 0);
        size_t two = member(0, half, packed, sizeof packed);
        two += member(half, sizes[i] - half, packed + two, sizeof packed - two);
        CHECK(unpack(packed, two, 5000, sizes[i]) == SN_OK && memory.len == sizes[i]);
        CHECK(memcmp(memory.bytes, plain, sizes[i]) == 0);
    }
}

TEST(gzip_that_is_cut_or_followed_by_junk_is_named)
{
    fill(5000);
    size_t one = member(0, 5000, packed, sizeof packed);

    for (size_t cut = 0; cut < one; cut++) {
        CHECK(unpack(packed, cut, 1 << 20, 5000) == SN_INVALID);
    }
    for (int junk = 0; junk < 256; junk++) {
        packed[one] = (uint8_t)junk;
        CHECK(unpack(packed, one + 1, 1 << 20, 5000) == SN_INVALID);
        packed[one + 1] = 0x8b;
        memset(packed + one + 2, 0xff, 20);
        CHECK(unpack(packed, one + 22, 1 << 20, 5000) == SN_INVALID);
    }
}

TEST(gzip_that_is_damaged_anywhere_never_passes_for_something_else)
{
    fill(3000);
    size_t one = member(0, 3000, packed, sizeof packed);

    for (size_t i = 0; i < one; i++) {
        uint8_t old = packed[i];
        packed[i] ^= (uint8_t)(1U << harness_below(8));
        enum sn_status status = unpack(packed, one, 1 << 20, 3000);
        /* Some of the header's fields mean nothing to the content. */
        CHECK(status != SN_OK || (memory.len == 3000 && memcmp(memory.bytes, plain, 3000) == 0));
        packed[i] = old;
    }
}

TEST(gzip_that_expands_beyond_the_cap_stops_there)
{
    memset(plain, 0, sizeof plain);
    size_t one = member(0, sizeof plain, packed, sizeof packed);

    for (uint64_t most = 0; most < sizeof plain; most += 1 + harness_below(9000)) {
        CHECK(unpack(packed, one, 100, most) == SN_TOO_LARGE && memory.len == most);
    }
    CHECK(unpack(packed, one, 100, sizeof plain) == SN_OK);
}

static uint8_t text[600000];

static size_t encode(const uint8_t *data, size_t len)
{
    size_t size = 0;

    if (sn_b64_encoded_size(len, &size) != SN_OK || size > sizeof text) {
        abort();
    }
    sn_b64_encode(data, len, text);
    return size;
}

TEST(slices_are_decoded_whole_or_not_at_all)
{
    const char *problem;

    for (size_t len = 0; len < 200000; len = len * 3 + 1) {
        fill(len);
        size_t size = encode(plain, len);
        CHECK(sn_slice_decode(text, size, false, sink(), len, &problem) == SN_OK);
        CHECK(memory.len == len && memcmp(memory.bytes, plain, len) == 0);
        if (len > 0) {
            CHECK(sn_slice_decode(text, size, false, sink(), len - 1, &problem) == SN_TOO_LARGE);
            CHECK(sn_slice_decode(text, size - 1, false, sink(), len, &problem) == SN_INVALID &&
                  problem != NULL);
            CHECK(sn_slice_decode(text, size, true, sink(), len, &problem) == SN_INVALID &&
                  problem != NULL);
        }
        size = encode(packed, member(0, len, packed, sizeof packed));
        CHECK(sn_slice_decode(text, size, true, sink(), len, &problem) == SN_OK);
        CHECK(memory.len == len && memcmp(memory.bytes, plain, len) == 0);
        CHECK(sn_slice_decode(text, size - 4, true, sink(), len, &problem) == SN_INVALID);
        CHECK(problem != NULL);
    }
    CHECK(sn_slice_decode((const uint8_t *)"QQ==!", 5, false, sink(), 9, &problem) == SN_INVALID);
}

TEST(slices_end_with_what_the_sink_says)
{
    const char *problem;

    fill(100000);
    size_t size = encode(plain, 100000);
    struct sn_sink_bytes full = sink();
    memory.refuse = SN_SYSTEM;
    CHECK(sn_slice_decode(text, size, false, full, 100000, &problem) == SN_SYSTEM);
    size = encode(packed, member(0, 100000, packed, sizeof packed));
    CHECK(sn_slice_decode(text, size, true, full, 100000, &problem) == SN_SYSTEM);
}

TEST(slices_without_memory)
{
    const char *problem;
    enum sn_status status;

    fill(1000);
    size_t size = encode(packed, member(0, 1000, packed, sizeof packed));
    WITH_EACH_ALLOCATION_FAILING(
        status, { status = sn_slice_decode(text, size, true, sink(), 1000, &problem); });
}
