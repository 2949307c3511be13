/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_head.h"

#include <string.h>
#include <strings.h>

#include "core/alloc.h"

bool sn_http_method_ok(const char *method, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (method[i] < 'A' || method[i] > 'Z') {
            return false;
        }
    }
    return len > 0 && len < 16;
}

bool sn_http_name_ok(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL))) {
            return false;
        }
    }
    return len > 0;
}

bool sn_http_value_ok(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (value[i] != '\t' && (value[i] < 0x20 || value[i] > 0x7e)) {
            return false;
        }
    }
    return true;
}

bool sn_http_url_ok(const char *url, size_t len)
{
    size_t at;

    if (len > 7 && strncasecmp(url, "http://", 7) == 0) {
        at = 7;
    } else if (len > 8 && strncasecmp(url, "https://", 8) == 0) {
        at = 8;
    } else {
        return false;
    }
    if (url[at] == '/' || url[at] == '?') {
        return false; /* no host */
    }
    for (bool in_authority = true; at < len; at++) {
        if (url[at] <= 0x20 || url[at] > 0x7e || url[at] == '#' || url[at] == '\\') {
            return false;
        }
        if (url[at] == '/' || url[at] == '?') {
            in_authority = false;
        } else if (url[at] == '@' && in_authority) {
            return false;
        }
    }
    return true;
}

void sn_http_head_init(struct sn_http_head *head, size_t max)
{
    memset(head, 0, sizeof *head);
    head->max = max;
}

void sn_http_head_clear(struct sn_http_head *head)
{
    sn_free(head->text);
    sn_http_head_init(head, head->max);
}

static enum sn_status reserve(struct sn_http_head *head, size_t more)
{
    size_t capacity = head->capacity > 0 ? head->capacity : 1024;
    char *grown;

    if (more <= head->capacity - head->len) {
        return SN_OK;
    }
    while (capacity - head->len < more) { /* len + more is at most max, checked by the caller */
        capacity = capacity > head->max / 2 ? head->max : capacity * 2;
    }
    grown = sn_realloc(head->text, capacity);
    if (grown == NULL) {
        return SN_NO_MEMORY;
    }
    head->text = grown;
    head->capacity = capacity;
    return SN_OK;
}

/* The three digits of "HTTP/x.y NNN ..."; 0 if they are not there. */
static int parse_status(const char *line, size_t len)
{
    const char *space = memchr(line, ' ', len);
    int status = 0;

    if (space == NULL || (size_t)(line + len - space) < 4) {
        return 0;
    }
    for (int i = 1; i <= 3; i++) {
        if (space[i] < '0' || space[i] > '9') {
            return 0;
        }
        status = status * 10 + (space[i] - '0');
    }
    return status;
}

enum sn_status sn_http_head_line(struct sn_http_head *head, const char *line, size_t len)
{
    enum sn_status status;

    if (len > head->max - head->seen) {
        return SN_TOO_LARGE;
    }
    head->seen += len;
    if (head->complete) {
        return SN_OK;
    }
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        head->len = 0;
        head->status = parse_status(line, len);
    }
    status = reserve(head, len);
    if (status != SN_OK) {
        return status;
    }
    memcpy(head->text + head->len, line, len);
    head->len += len;
    if (len > 0 && len <= 2 && (line[0] == '\r' || line[0] == '\n')) {
        head->complete = head->status >= 200;
    }
    return SN_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

unsigned sn_http_head_find(const struct sn_http_head *head, const char *name, const char **value,
                           size_t *len)
{
    size_t name_len = strlen(name);
    const char *at = head->text, *end = head->text != NULL ? head->text + head->len : NULL;
    unsigned found = 0;

    *value = NULL;
    *len = 0;
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        const char *stop = lf != NULL ? lf : end;

        if ((size_t)(stop - at) > name_len && at[name_len] == ':' &&
            strncasecmp(at, name, name_len) == 0 && found++ == 0) {
            const char *first = at + name_len + 1, *last = stop;

            while (first < last && is_blank(*first)) {
                first++;
            }
            while (last > first && is_blank(last[-1])) {
                last--;
            }
            *value = first;
            *len = (size_t)(last - first);
        }
        at = lf != NULL ? lf + 1 : end;
    }
    return found;
}

enum sn_status sn_http_parse_number(const char *text, size_t len, int64_t *out)
{
    int64_t number = 0;
    bool over = false;

    *out = 0;
    if (len == 0) {
        return SN_INVALID;
    }
    for (size_t i = 0; i < len; i++) {
        int digit = text[i] - '0';

        if (digit < 0 || digit > 9) {
            return SN_INVALID;
        }
        if (over || number > (INT64_MAX - digit) / 10) {
            over = true;
        } else {
            number = number * 10 + digit;
        }
    }
    *out = over ? INT64_MAX : number;
    return over ? SN_TOO_LARGE : SN_OK;
}

enum sn_status sn_http_parse_content_range(const char *text, size_t len, int64_t *first,
                                           int64_t *last, int64_t *total)
{
    const char *dash, *slash, *end = text + len;
    enum sn_status status;

    *first = *last = *total = -1;
    if (len < 6 || strncasecmp(text, "bytes ", 6) != 0) {
        return SN_INVALID;
    }
    text += 6;
    dash = memchr(text, '-', (size_t)(end - text));
    slash = memchr(text, '/', (size_t)(end - text));
    if (dash == NULL || slash == NULL || slash < dash) {
        return SN_INVALID;
    }
    status = sn_http_parse_number(text, (size_t)(dash - text), first);
    if (status == SN_OK) {
        status = sn_http_parse_number(dash + 1, (size_t)(slash - dash - 1), last);
    }
    if (status == SN_OK && !(end - slash == 2 && slash[1] == '*')) {
        status = sn_http_parse_number(slash + 1, (size_t)(end - slash - 1), total);
    }
    if (status == SN_OK && (*first > *last || (*total >= 0 && *last >= *total))) {
        status = SN_INVALID;
    }
    return status;
}
