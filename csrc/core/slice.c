/* SPDX-License-Identifier: Apache-2.0 */
#include "core/slice.h"

#include "core/alloc.h"
#include "core/base64.h"

/* Small enough to stay in a near cache. */
#define PIECE ((size_t)64 * 1024)

/* A sink with a cap, for what is not compressed. */
struct capped {
    struct sn_sink_bytes sink;
    uint64_t left;
};

static enum sn_status capped_write(void *context, const uint8_t *data, size_t len)
{
    struct capped *self = context;

    if (len > self->left) {
        return SN_TOO_LARGE;
    }
    self->left -= len;
    return self->sink.write(self->sink.context, data, len);
}

static enum sn_status gunzip_write(void *context, const uint8_t *data, size_t len)
{
    return sn_gunzip_feed(context, data, len);
}

static enum sn_status decode(const uint8_t *text, size_t len, struct sn_sink_bytes sink,
                             const char **problem)
{
    struct sn_b64_decoder decoder = {0};
    size_t room = sn_b64_decoded_bound(PIECE);
    uint8_t *bytes = sn_malloc(room);
    enum sn_status status = bytes == NULL ? SN_NO_MEMORY : SN_OK;

    while (status == SN_OK && len > 0) {
        size_t part = len < PIECE ? len : PIECE, written = 0;

        status = sn_b64_decode(&decoder, text, part, bytes, room, &written);
        if (status != SN_OK) {
            *problem = "is not base64";
        } else if (written > 0) {
            status = sink.write(sink.context, bytes, written);
        }
        text += part;
        len -= part;
    }
    if (status == SN_OK && sn_b64_finish(&decoder) != SN_OK) {
        *problem = "ends inside of a group of four characters of base64";
        status = SN_INVALID;
    }
    sn_free(bytes);
    return status;
}

enum sn_status sn_slice_decode(const uint8_t *text, size_t len, bool compressed,
                               struct sn_sink_bytes sink, uint64_t most, const char **problem)
{
    struct capped capped = {sink, most};
    struct sn_gunzip *gunzip = NULL;
    enum sn_status status;

    *problem = NULL;
    if (!compressed) {
        return decode(text, len, (struct sn_sink_bytes){capped_write, &capped}, problem);
    }
    status = sn_gunzip_new(sink, most, &gunzip);
    if (status != SN_OK) {
        return status;
    }
    status = decode(text, len, (struct sn_sink_bytes){gunzip_write, gunzip}, problem);
    if (status == SN_OK) {
        status = sn_gunzip_finish(gunzip);
    }
    if (status == SN_INVALID && *problem == NULL) {
        *problem = sn_gunzip_problem(gunzip);
    }
    sn_gunzip_free(gunzip);
    return status;
}
