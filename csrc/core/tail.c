/* SPDX-License-Identifier: Apache-2.0 */
#include "core/tail.h"

#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"
#include "core/scan.h"
#include "core/utf8.h"

/* The longest part of a UTF-8 character that can lie before a cut. That many bytes are kept beyond
 * the cap, out of sight, so that the cut can be told from bytes that were bad before it. */
#define HISTORY 3
#define FIRST_CAPACITY 4096
/* No cap needs to be larger than memory can be; it leaves room for the sums below. */
#define CAP_LIMIT (SIZE_MAX / 4)

struct sn_tail {
    unsigned char *ring;
    size_t cap;      /* bytes that are shown at most */
    size_t limit;    /* cap + HISTORY: where the ring stops growing and starts going round */
    size_t capacity; /* bytes allocated */
    size_t held;     /* bytes in the ring, history included */
    size_t next; /* where the next byte goes; the oldest byte is there too once the ring is full */
    uint64_t bytes;
    uint64_t lines;
};

enum sn_status sn_tail_new(size_t max_bytes, struct sn_tail **out)
{
    struct sn_tail *tail;

    *out = NULL;
    if (max_bytes < 1) {
        return SN_INVALID;
    }
    tail = sn_calloc(1, sizeof *tail);
    if (tail == NULL) {
        return SN_NO_MEMORY;
    }
    tail->cap = max_bytes < CAP_LIMIT ? max_bytes : CAP_LIMIT;
    tail->limit = tail->cap + HISTORY;
    *out = tail;
    return SN_OK;
}

void sn_tail_free(struct sn_tail *tail)
{
    if (tail != NULL) {
        sn_free(tail->ring);
        sn_free(tail);
    }
}

/* Room for `wanted` bytes or the limit. The ring only grows while it has not gone round, so its
 * bytes are in order from 0 and a plain realloc keeps them. */
static enum sn_status reserve(struct sn_tail *tail, size_t wanted)
{
    size_t capacity = tail->capacity != 0 ? tail->capacity : FIRST_CAPACITY;
    unsigned char *ring;

    if (wanted > tail->limit) {
        wanted = tail->limit;
    }
    if (wanted <= tail->capacity) {
        return SN_OK;
    }
    while (capacity < wanted) {
        capacity *= 2;
    }
    if (capacity > tail->limit) {
        capacity = tail->limit;
    }
    ring = sn_realloc(tail->ring, capacity);
    if (ring == NULL) {
        return SN_NO_MEMORY;
    }
    tail->ring = ring;
    tail->capacity = capacity;
    return SN_OK;
}

enum sn_status sn_tail_feed(struct sn_tail *tail, const char *data, size_t len)
{
    const unsigned char *from = (const unsigned char *)data;
    size_t fresh = len;
    enum sn_status status;

    if (len == 0) {
        return SN_OK;
    }
    status = reserve(tail, len > tail->limit - tail->held ? tail->limit : tail->held + len);
    if (status != SN_OK) {
        return status;
    }
    tail->bytes += len;
    tail->lines += sn_scan()->count_byte(from, len, '\n');

    if (fresh > tail->limit) {
        from += fresh - tail->limit;
        fresh = tail->limit;
    }
    while (fresh > 0) {
        size_t room = tail->capacity - tail->next;
        size_t part = fresh < room ? fresh : room;

        memcpy(tail->ring + tail->next, from, part);
        from += part;
        fresh -= part;
        tail->next += part;
        if (tail->next == tail->limit) {
            tail->next = 0;
        }
        tail->held = tail->limit - tail->held > part ? tail->held + part : tail->limit;
    }
    return SN_OK;
}

uint64_t sn_tail_total_bytes(const struct sn_tail *tail)
{
    return tail->bytes;
}

uint64_t sn_tail_total_lines(const struct sn_tail *tail)
{
    return tail->lines;
}

size_t sn_tail_kept(const struct sn_tail *tail)
{
    return tail->held < tail->cap ? tail->held : tail->cap;
}

/* The longest piece in one place of the `len` bytes that begin `back` bytes before the end. */
static size_t piece_at(const struct sn_tail *tail, size_t back, size_t len,
                       const unsigned char **piece)
{
    size_t begin = tail->next >= back ? tail->next - back : tail->next + tail->limit - back;

    *piece = tail->ring + begin;
    return tail->limit - begin < len ? tail->limit - begin : len;
}

/* Copies `len` bytes that begin `back` bytes before the end of the stream. */
static void copy_from_end(const struct sn_tail *tail, size_t back, size_t len, unsigned char *out)
{
    while (len > 0) {
        const unsigned char *piece;
        size_t part = piece_at(tail, back, len, &piece);

        memcpy(out, piece, part);
        out += part;
        back -= part;
        len -= part;
    }
}

void sn_tail_copy(const struct sn_tail *tail, char *out)
{
    sn_tail_copy_last(tail, sn_tail_kept(tail), out);
}

void sn_tail_copy_last(const struct sn_tail *tail, size_t len, char *out)
{
    copy_from_end(tail, len, len, (unsigned char *)out);
}

uint64_t sn_tail_lines_in_last(const struct sn_tail *tail, size_t len)
{
    uint64_t lines = 0;

    while (len > 0) {
        const unsigned char *piece;
        size_t part = piece_at(tail, len, len, &piece);

        lines += sn_scan()->count_byte(piece, part, '\n');
        len -= part;
    }
    return lines;
}

size_t sn_tail_cut_char(const struct sn_tail *tail)
{
    size_t kept = sn_tail_kept(tail);
    size_t before = tail->held - kept;
    size_t after = kept < HISTORY ? kept : HISTORY;
    unsigned char around[2 * HISTORY];

    if (before == 0) {
        return 0;
    }
    copy_from_end(tail, kept + before, before + after, around);
    return sn_utf8_straddle(around, before, before + after);
}

size_t sn_tail_cut_line(const struct sn_tail *tail)
{
    size_t kept = sn_tail_kept(tail);
    size_t done = 0;
    unsigned char before;

    if (tail->held == kept || kept == 0) {
        return 0;
    }
    copy_from_end(tail, kept + 1, 1, &before);
    if (before == '\n') {
        return 0;
    }
    while (done < kept) {
        const unsigned char *piece;
        size_t part = piece_at(tail, kept - done, kept - done, &piece);
        const unsigned char *found = memchr(piece, '\n', part);

        if (found != NULL) {
            done += (size_t)(found - piece) + 1;
            return done < kept ? done : sn_tail_cut_char(tail);
        }
        done += part;
    }
    return sn_tail_cut_char(tail);
}
