/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sse.h"

#include <stdbool.h>
#include <string.h>

#include "core/alloc.h"

/* Between frames a buffer larger than this is given back. */
#define KEEP_CAPACITY ((size_t)64 * 1024)
#define FIRST_CAPACITY ((size_t)512)

/* Longest field name that matters ("event"), and one more byte to see that a name is longer. */
#define MAX_NAME 6

enum line_kind {
    LINE_START,   /* nothing of the line was seen */
    LINE_NAME,    /* in a field name that may still be one of ours */
    LINE_COLON,   /* just after the colon: one space is skipped */
    LINE_DATA,    /* the rest is data */
    LINE_EVENT,   /* the rest is the event's name */
    LINE_IGNORED, /* a comment, or a field that does not matter */
};

struct sn_sse {
    size_t max_frame;
    char *data;
    size_t len, capacity;
    uint64_t total;
    char event[SN_SSE_MAX_EVENT];
    size_t event_len;
    bool has_data;     /* the frame has at least one data line */
    bool is_bare;      /* the frame is bare data */
    bool skip_lf;      /* the last byte was CR, whose LF belongs to it */
    char last_byte;    /* of the frame's data, kept or not */
    unsigned bom_seen; /* bytes of a byte order mark seen at the start; 3 when that is settled */
    enum line_kind line;
    enum line_kind field; /* what LINE_COLON leads to */
    char name[MAX_NAME];
    size_t name_len;
};

static const char BOM[] = {'\xef', '\xbb', '\xbf'};

enum sn_status sn_sse_new(size_t max_frame, struct sn_sse **out)
{
    struct sn_sse *sse;

    *out = NULL;
    if (max_frame < 1) {
        return SN_INVALID;
    }
    sse = sn_calloc(1, sizeof *sse);
    if (sse == NULL) {
        return SN_NO_MEMORY;
    }
    sse->max_frame = max_frame;
    *out = sse;
    return SN_OK;
}

void sn_sse_free(struct sn_sse *sse)
{
    if (sse != NULL) {
        sn_free(sse->data);
        sn_free(sse);
    }
}

static enum sn_status append(struct sn_sse *sse, const char *data, size_t len)
{
    size_t room = sse->max_frame - sse->len;
    size_t kept = len < room ? len : room;

    if (len == 0) {
        return SN_OK;
    }
    sse->total += len;
    sse->last_byte = data[len - 1];
    if (kept > sse->capacity - sse->len) {
        size_t wanted = sse->len + kept; /* at most max_frame */
        size_t capacity = sse->capacity > 0 ? sse->capacity : FIRST_CAPACITY;
        char *grown;

        while (capacity < wanted) {
            capacity = capacity > sse->max_frame / 2 ? sse->max_frame : capacity * 2;
        }
        if (capacity > sse->max_frame) {
            capacity = sse->max_frame;
        }
        grown = sn_realloc(sse->data, capacity);
        if (grown == NULL) {
            return SN_NO_MEMORY;
        }
        sse->data = grown;
        sse->capacity = capacity;
    }
    if (kept > 0) {
        memcpy(sse->data + sse->len, data, kept);
        sse->len += kept;
    }
    return SN_OK;
}

static void reset_frame(struct sn_sse *sse)
{
    if (sse->capacity > KEEP_CAPACITY) {
        sn_free(sse->data);
        sse->data = NULL;
        sse->capacity = 0;
    }
    sse->len = 0;
    sse->total = 0;
    sse->event_len = 0;
    sse->has_data = false;
    sse->is_bare = false;
    sse->last_byte = '\0';
}

/* Hands the frame over if it has data, and starts the next. */
static enum sn_status dispatch(struct sn_sse *sse, sn_sse_sink sink, void *ctx)
{
    enum sn_status status = SN_OK;

    if (sse->has_data) {
        struct sn_sse_frame frame = {
            .event = sse->event,
            .event_len = sse->event_len,
            .data = sse->data != NULL ? sse->data : "",
            .data_len = sse->len,
            .total = sse->total,
        };
        status = sink(ctx, &frame);
    }
    reset_frame(sse);
    return status;
}

static enum sn_status start_data_line(struct sn_sse *sse)
{
    enum sn_status status = SN_OK;

    if (sse->has_data) {
        status = append(sse, "\n", 1);
    }
    sse->has_data = true;
    return status;
}

/* What the field named so leads to. */
static enum line_kind field_kind(const struct sn_sse *sse)
{
    if (sse->name_len == 4 && memcmp(sse->name, "data", 4) == 0) {
        return LINE_DATA;
    }
    if (sse->name_len == 5 && memcmp(sse->name, "event", 5) == 0) {
        return LINE_EVENT;
    }
    return LINE_IGNORED;
}

static enum sn_status start_field(struct sn_sse *sse)
{
    sse->field = field_kind(sse);
    if (sse->field == LINE_EVENT) {
        sse->event_len = 0;
    }
    return sse->field == LINE_DATA ? start_data_line(sse) : SN_OK;
}

/* The first byte of a line decides what the line is. */
static enum sn_status start_line(struct sn_sse *sse, char first, sn_sse_sink sink, void *ctx)
{
    if (first == '{' && sse->is_bare && sse->last_byte == '}') {
        enum sn_status status = dispatch(sse, sink, ctx);

        if (status != SN_OK) {
            return status;
        }
    }
    if (sse->is_bare || (first == '{' && !sse->has_data)) {
        sse->is_bare = true;
        sse->line = LINE_DATA;
        return start_data_line(sse);
    }
    sse->name_len = 0;
    sse->line = first == ':' ? LINE_IGNORED : LINE_NAME;
    return SN_OK;
}

/* Takes a piece of one line, without its end. */
static enum sn_status feed_line(struct sn_sse *sse, const char *data, size_t len, sn_sse_sink sink,
                                void *ctx)
{
    enum sn_status status = SN_OK;

    if (len == 0) {
        return SN_OK;
    }
    if (sse->line == LINE_START) {
        status = start_line(sse, data[0], sink, ctx);
    }
    while (status == SN_OK && len > 0 && sse->line == LINE_NAME) {
        if (*data == ':') {
            status = start_field(sse);
            sse->line = LINE_COLON;
        } else if (sse->name_len < MAX_NAME) {
            sse->name[sse->name_len++] = *data;
        } else {
            sse->line = LINE_IGNORED;
        }
        data++;
        len--;
    }
    if (status == SN_OK && len > 0 && sse->line == LINE_COLON) {
        sse->line = sse->field;
        if (*data == ' ') {
            data++;
            len--;
        }
    }
    if (status != SN_OK || len == 0) {
        return status;
    }
    if (sse->line == LINE_DATA) {
        return append(sse, data, len);
    }
    if (sse->line == LINE_EVENT) {
        size_t room = SN_SSE_MAX_EVENT - sse->event_len;
        size_t kept = len < room ? len : room;

        memcpy(sse->event + sse->event_len, data, kept);
        sse->event_len += kept;
    }
    return SN_OK;
}

static enum sn_status end_line(struct sn_sse *sse, sn_sse_sink sink, void *ctx)
{
    enum line_kind line = sse->line;

    sse->line = LINE_START;
    if (line == LINE_START) {
        return dispatch(sse, sink, ctx);
    }
    /* A line that is a field's name alone is that field with an empty value. */
    return line == LINE_NAME ? start_field(sse) : SN_OK;
}

/* Skips a byte order mark at the very start, however it is cut. A start that only resembles one is
 * fed as it was. */
static enum sn_status skip_bom(struct sn_sse *sse, const char **data, size_t *len, sn_sse_sink sink,
                               void *ctx)
{
    while (*len > 0 && sse->bom_seen < sizeof BOM) {
        if (**data != BOM[sse->bom_seen]) {
            unsigned seen = sse->bom_seen;

            sse->bom_seen = sizeof BOM;
            return feed_line(sse, BOM, seen, sink, ctx);
        }
        sse->bom_seen++;
        (*data)++;
        (*len)--;
    }
    return SN_OK;
}

enum sn_status sn_sse_feed(struct sn_sse *sse, const char *data, size_t len, sn_sse_sink sink,
                           void *ctx)
{
    const char *end = data + len;
    const char *lf = data, *cr = data; /* the next of each, found once: the scan stays linear */
    enum sn_status status;
    bool lf_known = false, cr_known = false;

    if (len == 0) {
        return SN_OK;
    }
    status = skip_bom(sse, &data, &len, sink, ctx);
    while (status == SN_OK && data < end) {
        const char *stop;

        if (sse->skip_lf) {
            sse->skip_lf = false;
            if (*data == '\n') {
                data++;
                continue;
            }
        }
        if (!lf_known || lf < data) {
            lf = memchr(data, '\n', (size_t)(end - data));
            lf = lf != NULL ? lf : end;
            lf_known = true;
        }
        if (!cr_known || cr < data) {
            cr = memchr(data, '\r', (size_t)(end - data));
            cr = cr != NULL ? cr : end;
            cr_known = true;
        }
        stop = lf < cr ? lf : cr;
        status = feed_line(sse, data, (size_t)(stop - data), sink, ctx);
        data = stop;
        if (status == SN_OK && data < end) {
            sse->skip_lf = *data == '\r';
            data++;
            status = end_line(sse, sink, ctx);
        }
    }
    return status;
}

enum sn_status sn_sse_end(struct sn_sse *sse, sn_sse_sink sink, void *ctx)
{
    enum sn_status status = SN_OK;

    if (sse->bom_seen > 0 && sse->bom_seen < sizeof BOM) {
        unsigned seen = sse->bom_seen;

        sse->bom_seen = sizeof BOM;
        status = feed_line(sse, BOM, seen, sink, ctx);
    }
    if (status == SN_OK && sse->line != LINE_START) {
        status = end_line(sse, sink, ctx);
    }
    return status == SN_OK ? dispatch(sse, sink, ctx) : status;
}
