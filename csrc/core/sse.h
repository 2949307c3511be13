/* SPDX-License-Identifier: Apache-2.0 */
/* Framing of a server-sent event stream: bytes in, whole events out, in memory bounded by a cap.
 *
 * Follows the event-stream grammar of the WHATWG HTML standard (section 9.2), with these additions:
 *   - a frame whose first line starts with '{' is taken as bare data: the lines up to the blank
 * line, joined by '\n'. Some servers announce text/event-stream and send JSON objects with no
 * `data:`. A line that starts with '{' after one that ended in '}' starts the next frame, since no
 * JSON value reads so;
 *   - the last frame counts even if the stream ends without its blank line (sn_sse_end);
 *   - a frame over the cap is delivered as its first bytes, with its true size.
 * Only `data` and `event` fields are kept. Lines end at CR, LF or CR LF and nothing else, so U+0085
 * and U+2028 pass through. Bytes are not required to be UTF-8.
 *
 * One owner at a time; nothing blocks; all may be called without the GIL. */
#ifndef SN_CORE_SSE_H
#define SN_CORE_SSE_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Bytes kept of an event's name; names that peers use are a word long. */
#define SN_SSE_MAX_EVENT 64

struct sn_sse;

/* One event. The pointers are valid during the sink call only. */
struct sn_sse_frame {
    const char *event; /* empty when the stream named none */
    size_t event_len;
    const char *data;
    size_t data_len;
    uint64_t total; /* bytes of data the frame had; more than data_len when it was over the cap */
};

/* Takes one frame. A status other than SN_OK ends the feeding at once and is handed to its caller.
 */
typedef enum sn_status (*sn_sse_sink)(void *ctx, const struct sn_sse_frame *frame);

/* Makes a parser that keeps at most `max_frame` bytes (at least 1) of one frame's data. The caller
 * owns *out and ends it with sn_sse_free. */
SN_WARN_UNUSED enum sn_status sn_sse_new(size_t max_frame, struct sn_sse **out);

/* NULL is allowed. */
void sn_sse_free(struct sn_sse *sse);

/* Takes the next `len` bytes of the stream; calls `sink` for each frame they complete. After a
 * failure the parser may only be freed. */
SN_WARN_UNUSED enum sn_status sn_sse_feed(struct sn_sse *sse, const char *data, size_t len,
                                          sn_sse_sink sink, void *ctx);

/* The stream ended well: delivers a last frame that had no blank line after it. */
SN_WARN_UNUSED enum sn_status sn_sse_end(struct sn_sse *sse, sn_sse_sink sink, void *ctx);

#endif
