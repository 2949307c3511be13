/* SPDX-License-Identifier: Apache-2.0 */
#include "core/gunzip.h"

#include <limits.h>
#include <stdbool.h>

#include "core/alloc.h"
#include "core/zlib_table.h"

#define OUT_BYTES (64U * 1024U)
/* The largest window, and only with gzip's header and trailer around it. */
#define GZIP_WINDOW (15 + 16)

struct sn_gunzip {
    const struct sn_zlib *zlib;
    z_stream stream;
    struct sn_sink_bytes sink;
    uint64_t left;    /* bytes that may still come out */
    bool inside;      /* of a member, its header and trailer included */
    uint64_t members; /* that are complete */
    const char *problem;
    uint8_t out[OUT_BYTES];
};

static void *allocate(void *unused, unsigned count, unsigned size)
{
    (void)unused;
    return sn_calloc(count, size);
}

static void release(void *unused, void *block)
{
    (void)unused;
    sn_free(block);
}

enum sn_status sn_gunzip_new(struct sn_sink_bytes sink, uint64_t most, struct sn_gunzip **out)
{
    const struct sn_zlib *zlib = sn_zlib_load();
    struct sn_gunzip *self;
    int code;

    *out = NULL;
    if (zlib == NULL) {
        return SN_CLOSED;
    }
    self = sn_malloc(sizeof *self);
    if (self == NULL) {
        return SN_NO_MEMORY;
    }
    self->zlib = zlib;
    self->stream = (z_stream){.zalloc = allocate, .zfree = release};
    self->sink = sink;
    self->left = most;
    self->inside = false;
    self->members = 0;
    self->problem = NULL;
    code = zlib->inflateInit2_(&self->stream, GZIP_WINDOW, ZLIB_VERSION, (int)sizeof self->stream);
    if (code != Z_OK) {
        sn_free(self);
        return code == Z_MEM_ERROR ? SN_NO_MEMORY : SN_CLOSED;
    }
    *out = self;
    return SN_OK;
}

void sn_gunzip_free(struct sn_gunzip *self)
{
    if (self != NULL) {
        (void)self->zlib->inflateEnd(&self->stream);
        sn_free(self);
    }
}

static enum sn_status invalid(struct sn_gunzip *self, const char *problem)
{
    self->problem = problem;
    return SN_INVALID;
}

/* Hands out what zlib made. Room for one byte over the cap tells a full cap from one that is
 * passed. */
static enum sn_status hand_out(struct sn_gunzip *self, size_t len)
{
    size_t within = len <= self->left ? len : (size_t)self->left;
    enum sn_status status =
        within == 0 ? SN_OK : self->sink.write(self->sink.context, self->out, within);

    self->left -= within;
    return status == SN_OK && within < len ? SN_TOO_LARGE : status;
}

/* One step with the input that is in the stream. */
static enum sn_status step(struct sn_gunzip *self)
{
    z_stream *stream = &self->stream;
    size_t room = self->left < OUT_BYTES ? (size_t)self->left + 1 : OUT_BYTES;
    enum sn_status status;
    int code;

    if (!self->inside && self->members > 0) {
        if (self->zlib->inflateReset(stream) != Z_OK) {
            return invalid(self, "cannot be read");
        }
        /* Told here, because zlib would only say that the header is wrong. */
        if (*stream->next_in != 0x1f) {
            return invalid(self, "has something else after its end");
        }
    }
    self->inside = true;
    stream->next_out = self->out;
    stream->avail_out = (unsigned)(room > OUT_BYTES ? OUT_BYTES : room);
    code = self->zlib->inflate(stream, Z_NO_FLUSH);
    if (code == Z_MEM_ERROR) {
        return SN_NO_MEMORY;
    }
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
        return invalid(self, self->members > 0 && stream->total_out == 0
                                 ? "has something else after its end"
                                 : "is damaged, or no gzip");
    }
    status = hand_out(self, (size_t)(stream->next_out - self->out));
    if (code == Z_STREAM_END) {
        self->inside = false;
        self->members++;
    }
    return status;
}

enum sn_status sn_gunzip_feed(struct sn_gunzip *self, const uint8_t *data, size_t len)
{
    while (len > 0) {
        unsigned part = len < UINT_MAX ? (unsigned)len : UINT_MAX;

        self->stream.next_in = (Bytef *)(size_t)data;
        self->stream.avail_in = part;
        do {
            enum sn_status status = step(self);
            if (status != SN_OK) {
                return status;
            }
            /* A full output buffer may have left some behind, also without any input left. */
        } while (self->stream.avail_in > 0 || (self->inside && self->stream.avail_out == 0));
        data += part;
        len -= part;
    }
    return SN_OK;
}

enum sn_status sn_gunzip_finish(const struct sn_gunzip *self)
{
    return self->inside || self->members == 0 ? SN_INVALID : SN_OK;
}

const char *sn_gunzip_problem(const struct sn_gunzip *self)
{
    if (self->problem != NULL) {
        return self->problem;
    }
    return self->members == 0 && !self->inside ? "is empty" : "ends in its middle";
}
