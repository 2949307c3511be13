/* SPDX-License-Identifier: Apache-2.0 */
/* The text parts of HTTP that are checked here and not left to the HTTP library: what may be put
 * into a request, and the head of an answer. One owner at a time; nothing blocks; no GIL needed. */
#ifndef SN_CORE_HTTP_HEAD_H
#define SN_CORE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* A request's method: upper-case letters only. */
bool sn_http_method_ok(const char *method, size_t len);

/* A header's name: an RFC 9110 token. */
bool sn_http_name_ok(const char *name, size_t len);

/* A header's value: printable ASCII, space and tab; so no CR, LF or NUL. */
bool sn_http_value_ok(const char *value, size_t len);

/* A request's URL: http:// or https://, printable ASCII without space, no fragment, no user
 * information. */
bool sn_http_url_ok(const char *url, size_t len);

/* The head of an answer: its lines as they came, "\r\n" or "\n" included, up to a cap. */
struct sn_http_head {
    char *text;
    size_t len, capacity, max;
    size_t seen;   /* bytes of all heads that came, interim answers and trailers included */
    int status;    /* of the status line; 0 before it */
    bool complete; /* the blank line of a final (not 1xx) answer was seen */
};

/* An empty head that takes at most `max` bytes in all. */
void sn_http_head_init(struct sn_http_head *head, size_t max);
void sn_http_head_clear(struct sn_http_head *head);

/* Takes one line with its end. An interim (1xx) head is dropped when the next status line comes;
 * lines after the blank line (trailers) are counted but not kept. SN_TOO_LARGE over the cap. */
SN_WARN_UNUSED enum sn_status sn_http_head_line(struct sn_http_head *head, const char *line,
                                                size_t len);

/* Finds the header `name` (any case). Returns how many times it is there; *value and *len are those
 * of the first, blanks around it removed. */
unsigned sn_http_head_find(const struct sn_http_head *head, const char *name, const char **value,
                           size_t *len);

/* A non-negative decimal number and nothing else. One over INT64_MAX is SN_TOO_LARGE. */
SN_WARN_UNUSED enum sn_status sn_http_parse_number(const char *text, size_t len, int64_t *out);

/* "bytes FIRST-LAST/TOTAL" of RFC 9110 section 14.4; *total is -1 for "*". SN_INVALID unless
 * FIRST <= LAST < TOTAL. */
SN_WARN_UNUSED enum sn_status sn_http_parse_content_range(const char *text, size_t len,
                                                          int64_t *first, int64_t *last,
                                                          int64_t *total);

#endif
