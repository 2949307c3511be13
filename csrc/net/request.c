/* SPDX-License-Identifier: Apache-2.0 */
/* What a request puts on the wire: checked once, then handed to libcurl. */
#include "net/transfer.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "net/lane.h"

/* Headers that decide framing or the connection are the HTTP library's alone. */
static const char *const own_headers[] = {
    "accept-encoding",   "connection", "content-length",   "expect", "keep-alive", "te", "trailer",
    "transfer-encoding", "upgrade",    "proxy-connection",
};

static bool is_own_header(const struct sn_header *header)
{
    for (size_t i = 0; i < sizeof own_headers / sizeof own_headers[0]; i++) {
        if (strlen(own_headers[i]) == header->name_len &&
            strncasecmp(own_headers[i], header->name, header->name_len) == 0) {
            return true;
        }
    }
    return false;
}

enum sn_status sn_net_check(const struct sn_net_request *request, const char **what)
{
    int64_t total;
    enum sn_status status;

    *what = "method";
    if (!sn_http_method_ok(request->method, strlen(request->method))) {
        return SN_INVALID;
    }
    *what =
        "URL: it must be http:// or https://, ASCII without blanks or control characters, with no "
        "user information and no fragment";
    if (!sn_http_url_ok(request->url, request->url_len)) {
        return SN_INVALID;
    }
    for (size_t i = 0; i < request->header_count; i++) {
        const struct sn_header *header = &request->headers[i];

        *what = "header name";
        if (!sn_http_name_ok(header->name, header->name_len)) {
            return SN_INVALID;
        }
        *what = "header: framing and connection headers are set by the client";
        if (is_own_header(header)) {
            return SN_INVALID;
        }
        *what = "header value: only printable ASCII, blanks and tabs are allowed";
        if (!sn_http_value_ok(header->value, header->value_len)) {
            return SN_INVALID;
        }
    }
    *what = "cap on the answer's head: it must be at least 1";
    if (request->max_head < 1) {
        return SN_INVALID;
    }
    *what = "cancel descriptor";
    if (request->cancel_fd >= 0) {
        struct pollfd wait = {.fd = request->cancel_fd, .events = POLLIN};

        if (poll(&wait, 1, 0) > 0 && (wait.revents & POLLNVAL) != 0) {
            return SN_INVALID;
        }
    }
    *what = "body: lengths must add up and descriptors be of regular files";
    status = sn_body_check(&request->body, &total);
    if (status == SN_OK) {
        *what = NULL;
    }
    return status;
}

/* Adds "name: value" to the list; libcurl copies it. */
static enum sn_status add_header(struct sn_lane *lane, const char *name, size_t name_len,
                                 const char *value, size_t value_len)
{
    size_t size = name_len + value_len + 3;
    struct curl_slist *longer;
    char *line = sn_malloc(size);

    if (line == NULL) {
        return SN_NO_MEMORY;
    }
    /* For libcurl, "Name;" is a header with an empty value, and "Name:" one not to be sent. */
    if (value_len == 0) {
        (void)snprintf(line, size, "%.*s;", (int)name_len, name);
    } else {
        (void)snprintf(line, size, "%.*s: %.*s", (int)name_len, name, (int)value_len, value);
    }
    longer = lane->curl->slist_append(lane->headers, line);
    sn_free(line);
    if (longer == NULL) {
        return SN_NO_MEMORY;
    }
    lane->headers = longer;
    return SN_OK;
}

enum sn_status sn_lane_make_headers(struct sn_lane *lane, const struct sn_net_request *request)
{
    struct curl_slist *first = lane->curl->slist_append(NULL, "Expect:");
    enum sn_status status;

    if (first == NULL) {
        return SN_NO_MEMORY;
    }
    lane->headers = first;
    if (!request->compressed) {
        status = add_header(lane, "Accept-Encoding", 15, "identity", 8);
        if (status != SN_OK) {
            return status;
        }
    }
    for (size_t i = 0; i < request->header_count; i++) {
        const struct sn_header *header = &request->headers[i];

        status = add_header(lane, header->name, header->name_len, header->value, header->value_len);
        if (status != SN_OK) {
            return status;
        }
    }
    return SN_OK;
}
