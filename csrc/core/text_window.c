/* SPDX-License-Identifier: Apache-2.0 */
#include "core/text.h"

#include "core/scan.h"
#include "core/utf8.h"

/* Lines before the window are counted in parts of this size; only the part that holds its beginning
 * is gone through line by line. */
#define PART 8192

/* Where line number `first` begins; `len` when there are fewer. *before is how many lines end
 * before that place. */
static size_t find_line(const struct sn_scan_width *scan, const uint8_t *p, size_t len,
                        size_t first, size_t *before)
{
    size_t at = 0;

    *before = 0;
    while (at < len && *before < first - 1) {
        size_t part = len - at < PART ? len - at : PART;
        size_t ends = scan->count_line_ends(p + at, part, len - at);

        if (*before + ends < first - 1) {
            *before += ends;
            at += part;
            continue;
        }
        while (*before < first - 1) {
            size_t end_len;

            at += sn_next_line_end(scan, p + at, len - at, &end_len);
            at += end_len;
            *before += 1;
            if (end_len == 0) {
                break; /* only when the bytes change under us */
            }
        }
    }
    return at;
}

static bool ends_with_line_end(const uint8_t *p, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        if (sn_line_end_length(p + len - back, back) == back) {
            return true;
        }
    }
    return false;
}

/* Takes lines from `at` on. With `repair` off the bytes are taken to be valid, which makes every
 * line at its shortest. *next is where the first line not taken begins, *ends how many line ends
 * lie before that. */
static struct sn_shown take_lines(const struct sn_scan_width *scan, const uint8_t *p, size_t len,
                                  size_t at, size_t max_lines, size_t max_bytes, bool repair,
                                  size_t *next, size_t *ends)
{
    struct sn_shown shown = {.begin = at, .end = at, .plain = !repair};
    bool joins_plain = true; /* the line end after the last line taken is a '\n' */

    *ends = 0;
    while (at < len && shown.lines < max_lines) {
        size_t join = shown.lines > 0;
        size_t budget;
        size_t room;
        size_t line;
        size_t end_len;
        size_t size;

        if (shown.bytes + join > max_bytes) {
            break;
        }
        budget = max_bytes - shown.bytes - join;
        /* Repair never makes a line shorter, so only so far can its end be: the longest is 3 bytes.
         */
        room = len - at < budget + 3 ? len - at : budget + 3;
        size = line = sn_next_line_end(scan, p + at, room, &end_len);
        if (repair && line <= budget) {
            size = sn_utf8_repaired_size(p + at, line, budget);
        }
        if (size > budget) {
            shown.cut = shown.lines == 0;
            break;
        }
        shown.plain = shown.plain && joins_plain;
        joins_plain = end_len == 1 && p[at + line] == '\n';
        shown.bytes += size + join;
        shown.lines++;
        shown.end = at + line;
        at += line + end_len;
        *ends += end_len != 0;
    }
    *next = at;
    return shown;
}

void sn_show_window(const uint8_t *p, size_t len, size_t first, size_t limit, size_t max_lines,
                    size_t max_bytes, struct sn_window *window)
{
    const struct sn_scan_width *scan = sn_scan();
    size_t before;
    size_t begin = find_line(scan, p, len, first, &before);
    size_t ends = 0;
    size_t next = begin;

    max_lines = limit < max_lines ? limit : max_lines;
    window->shown = (struct sn_shown){.begin = begin, .end = begin, .plain = true};
    if (before == first - 1) {
        window->shown = take_lines(scan, p, len, begin, max_lines, max_bytes, false, &next, &ends);
        if (!scan->valid_utf8(p + begin, window->shown.end - begin)) {
            window->shown =
                take_lines(scan, p, len, begin, max_lines, max_bytes, true, &next, &ends);
        }
    }
    window->total = before + ends + scan->count_line_ends(p + next, len - next, len - next) +
                    (len > 0 && !ends_with_line_end(p, len));
}
