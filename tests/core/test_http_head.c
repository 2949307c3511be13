/* SPDX-License-Identifier: Apache-2.0 */
#include "core/http_head.h"
#include "harness.h"

#define OK(check, text) check(text, sizeof(text) - 1)

TEST(http_what_may_be_put_into_a_request)
{
    CHECK(OK(sn_http_method_ok, "GET") && !OK(sn_http_method_ok, "") &&
          !OK(sn_http_method_ok, "get"));
    CHECK(!OK(sn_http_method_ok, "GET /") && !OK(sn_http_method_ok, "GET\r"));
    CHECK(OK(sn_http_name_ok, "X-Key_1") && !OK(sn_http_name_ok, "") &&
          !OK(sn_http_name_ok, "a b"));
    CHECK(!OK(sn_http_name_ok, "a:") && !OK(sn_http_name_ok, "a\r\n") &&
          !OK(sn_http_name_ok, "a\0b"));
    CHECK(!OK(sn_http_name_ok, "\xc3\xa9"));
    CHECK(OK(sn_http_value_ok, "") && OK(sn_http_value_ok, "Bearer a\tb c~"));
    CHECK(!OK(sn_http_value_ok, "a\rb") && !OK(sn_http_value_ok, "a\nb") &&
          !OK(sn_http_value_ok, "a\0b"));
    CHECK(!OK(sn_http_value_ok, "\x7f") && !OK(sn_http_value_ok, "\xc3\xa9"));
}

TEST(http_which_urls_may_be_asked)
{
    CHECK(OK(sn_http_url_ok, "http://h") && OK(sn_http_url_ok, "HTTPS://h:1/a?b=c%20d@e"));
    CHECK(OK(sn_http_url_ok, "http://[::1]:80/") && OK(sn_http_url_ok, "http://h/a@b"));
    CHECK(!OK(sn_http_url_ok, "") && !OK(sn_http_url_ok, "http://") &&
          !OK(sn_http_url_ok, "http:///a"));
    CHECK(!OK(sn_http_url_ok, "ftp://h/") && !OK(sn_http_url_ok, "file:///etc/passwd"));
    CHECK(!OK(sn_http_url_ok, "h/a") && !OK(sn_http_url_ok, "//h/a") &&
          !OK(sn_http_url_ok, "http:/h"));
    CHECK(!OK(sn_http_url_ok, "http://u@h/") && !OK(sn_http_url_ok, "http://u:p@h"));
    CHECK(!OK(sn_http_url_ok, "http://h/a b") && !OK(sn_http_url_ok, "http://h/a#b"));
    CHECK(!OK(sn_http_url_ok, "http://h/a\rb") && !OK(sn_http_url_ok, "http://h/a\nb"));
    CHECK(!OK(sn_http_url_ok, "http://h/a\0b") && !OK(sn_http_url_ok, "http://h/\xc3\xa9"));
    CHECK(!OK(sn_http_url_ok, "http://h\\@x/"));
}

static enum sn_status feed(struct sn_http_head *head, const char *text)
{
    enum sn_status status = SN_OK;

    while (status == SN_OK && *text != '\0') {
        size_t len = (size_t)(strchr(text, '\n') + 1 - text);

        status = sn_http_head_line(head, text, len);
        text += len;
    }
    return status;
}

TEST(http_head_keeps_the_final_answer)
{
    struct sn_http_head head;
    const char *value;
    size_t len;

    sn_http_head_init(&head, 1000);
    CHECK(feed(&head, "HTTP/1.1 100 Continue\r\nA: interim\r\n\r\n") == SN_OK && !head.complete);
    CHECK(feed(&head, "HTTP/1.1 206 Partial\r\nA:1\r\na:  two words \r\nAB: 3\r\nEmpty:\r\n\r\n") ==
          SN_OK);
    CHECK(head.complete && head.status == 206);
    CHECK(feed(&head, "A: trailer\r\n") == SN_OK);
    CHECK(sn_http_head_find(&head, "a", &value, &len) == 2 && len == 1 && *value == '1');
    CHECK(sn_http_head_find(&head, "ab", &value, &len) == 1 && len == 1 && *value == '3');
    CHECK(sn_http_head_find(&head, "empty", &value, &len) == 1 && len == 0);
    CHECK(sn_http_head_find(&head, "b", &value, &len) == 0 && value == NULL);
    sn_http_head_clear(&head);
    CHECK(sn_http_head_find(&head, "a", &value, &len) == 0);
}

TEST(http_head_is_capped_over_all_its_parts)
{
    struct sn_http_head head;

    sn_http_head_init(&head, 60);
    CHECK(feed(&head, "HTTP/1.1 100 C\r\n\r\n") == SN_OK);
    CHECK(feed(&head, "HTTP/1.1 200 OK\r\n\r\n") == SN_OK && head.seen == 37);
    CHECK(feed(&head, "Trailer: 1234567890\r\n") == SN_OK && head.seen == 58);
    CHECK(feed(&head, "T: 1\r\n") == SN_TOO_LARGE);
    sn_http_head_clear(&head);
    sn_http_head_init(&head, 20);
    CHECK(feed(&head, "HTTP/1.1 200 OK\r\n") == SN_OK);
    CHECK(feed(&head, "A: 1\r\n") == SN_TOO_LARGE);
    sn_http_head_clear(&head);
}

TEST(http_head_without_memory)
{
    enum sn_status status = SN_OK;

    WITH_EACH_ALLOCATION_FAILING(status, {
        struct sn_http_head head;

        sn_http_head_init(&head, 5000);
        status = feed(&head, "HTTP/1.1 200 OK\r\n");
        for (int i = 0; status == SN_OK && i < 100; i++) {
            status = feed(&head, "Another-Header: with a value\r\n");
        }
        sn_http_head_clear(&head);
    });
}

TEST(http_numbers)
{
    int64_t n;

    CHECK(sn_http_parse_number("0", 1, &n) == SN_OK && n == 0);
    CHECK(sn_http_parse_number("9223372036854775807", 19, &n) == SN_OK && n == INT64_MAX);
    CHECK(sn_http_parse_number("9223372036854775808", 19, &n) == SN_TOO_LARGE && n == INT64_MAX);
    CHECK(sn_http_parse_number("99999999999999999999999", 23, &n) == SN_TOO_LARGE);
    CHECK(sn_http_parse_number("", 0, &n) == SN_INVALID);
    CHECK(sn_http_parse_number("-1", 2, &n) == SN_INVALID &&
          sn_http_parse_number("+1", 2, &n) == SN_INVALID);
    CHECK(sn_http_parse_number("1 ", 2, &n) == SN_INVALID &&
          sn_http_parse_number("0x1", 3, &n) == SN_INVALID);
    CHECK(sn_http_parse_number("1, 1", 4, &n) == SN_INVALID);
    CHECK(sn_http_parse_number("99999999999999999999x", 21, &n) == SN_INVALID);
}

static enum sn_status range(const char *text, int64_t *first, int64_t *last, int64_t *total)
{
    return sn_http_parse_content_range(text, strlen(text), first, last, total);
}

TEST(http_content_ranges)
{
    int64_t first, last, total;

    CHECK(range("bytes 0-9/10", &first, &last, &total) == SN_OK && first == 0 && last == 9 &&
          total == 10);
    CHECK(range("Bytes 5-5/*", &first, &last, &total) == SN_OK && first == 5 && last == 5 &&
          total == -1);
    CHECK(range("bytes 0-9/9", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 3-2/9", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes */9", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 0-9", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes=0-9/10", &first, &last, &total) == SN_INVALID);
    CHECK(range("items 0-9/10", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 0-9/", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes -9/10", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 0-/10", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 0/1-2", &first, &last, &total) == SN_INVALID);
    CHECK(range("", &first, &last, &total) == SN_INVALID);
    CHECK(range("bytes 0-9223372036854775806/9223372036854775807", &first, &last, &total) ==
              SN_OK &&
          total == INT64_MAX);
    CHECK(range("bytes 0-9/9223372036854775808", &first, &last, &total) == SN_TOO_LARGE);
}
