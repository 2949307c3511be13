/* SPDX-License-Identifier: Apache-2.0 */
#include "core/text.h"

#include "core/scan.h"
#include "core/utf8.h"

/* Bytes that one more line may have; false when not even an empty one fits. */
static bool budget_of(const struct sn_shown *shown, size_t max_lines, size_t max_bytes,
                      size_t *budget)
{
    size_t join = shown->lines > 0;

    if (shown->lines == max_lines || shown->bytes + join > max_bytes) {
        return false;
    }
    *budget = max_bytes - shown->bytes - join;
    return true;
}

static void take_line(struct sn_shown *shown, size_t begin, size_t bytes)
{
    shown->bytes += bytes + (shown->lines > 0);
    shown->lines++;
    shown->begin = begin;
}

void sn_show_tail_ascii(const uint8_t *p, size_t len, size_t max_lines, size_t max_bytes,
                        struct sn_shown *shown)
{
    const struct sn_scan_width *scan = sn_scan();
    size_t line_end = len; /* of the line that is looked for the beginning of */
    size_t budget;

    *shown = (struct sn_shown){.plain = true};
    if (len == 0) {
        return;
    }
    if (scan->after_last_ascii_end(p + len - 1, 1) != 0) {
        line_end -= len > 1 && p[len - 1] == '\n' && p[len - 2] == '\r' ? 2 : 1;
    }
    shown->begin = shown->end = line_end;

    while (budget_of(shown, max_lines, max_bytes, &budget)) {
        /* The beginning lies among these, or the line is too long. */
        size_t from = line_end > budget ? line_end - budget - 1 : 0;
        size_t begin = from + scan->after_last_ascii_end(p + from, line_end - from);

        if (line_end - begin > budget) {
            break;
        }
        take_line(shown, begin, line_end - begin);
        if (begin == 0) {
            return;
        }
        line_end = begin - 1;
        if (p[line_end] == '\n' && line_end > 0 && p[line_end - 1] == '\r') {
            line_end--;
            shown->plain = false;
        }
        shown->plain = shown->plain && p[line_end] == '\n';
    }
    shown->cut = true;
    if (shown->lines == 0) {
        take_line(shown, line_end - max_bytes, max_bytes);
    }
}

static bool ends_line(uint32_t c)
{
    if (c >= ' ' && c < 0x85) {
        return false;
    }
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

void sn_tail_walk_begin(struct sn_tail_walk *walk, size_t len, size_t max_lines, size_t max_bytes)
{
    *walk = (struct sn_tail_walk){
        .shown = {.begin = len, .end = len, .plain = true},
        .len = len,
        .max_lines = max_lines,
        .max_bytes = max_bytes,
        .at = len,
        .done = len == 0,
    };
}

/* The line that begins at walk->at is complete and known to fit. */
static void finish_line(struct sn_tail_walk *walk)
{
    take_line(&walk->shown, walk->at, walk->line);
    walk->shown.high |= walk->high;
    walk->line = 0;
    walk->high = 0;
}

/* Goes over the line end `c` before walk->at. */
static void walk_line_end(struct sn_tail_walk *walk, uint32_t c)
{
    if (walk->after_lf && c == '\r') {
        /* The other half of the line end just seen, which may be the one that ends the text. */
        walk->shown.plain = false;
        if (walk->shown.lines == 0) {
            walk->shown.end--;
        }
    } else if (walk->at == walk->len) {
        walk->shown.end--;
    } else {
        size_t budget;

        finish_line(walk);
        walk->shown.plain = walk->shown.plain && c == '\n';
        if (!budget_of(&walk->shown, walk->max_lines, walk->max_bytes, &budget)) {
            walk->shown.cut = walk->done = true;
            return;
        }
    }
    walk->after_lf = c == '\n';
    walk->at--;
}

/* Goes over code points that end no line, down to `*left` of the block. */
static void walk_run(struct sn_tail_walk *walk, const uint32_t *block, size_t *left)
{
    size_t budget = 0;
    size_t line = walk->line;
    size_t i = *left;
    uint32_t high = walk->high;
    bool surrogates = false;

    (void)budget_of(&walk->shown, walk->max_lines, walk->max_bytes, &budget);
    while (i > 0 && !ends_line(block[i - 1])) {
        size_t size = sn_utf8_size(block[i - 1]);

        if (size > budget - line) {
            walk->shown.cut = walk->done = true;
            break;
        }
        surrogates = surrogates || sn_is_surrogate(block[i - 1]);
        high |= block[i - 1];
        line += size;
        i--;
    }
    walk->at -= *left - i;
    walk->line = line;
    walk->high = high;
    walk->shown.plain = walk->shown.plain && !surrogates;
    walk->after_lf = false;
    *left = i;
    if (walk->done && walk->shown.lines == 0) {
        finish_line(walk);
    }
}

void sn_tail_walk_block(struct sn_tail_walk *walk, const uint32_t *block, size_t count)
{
    while (count > 0 && !walk->done) {
        if (ends_line(block[count - 1])) {
            walk_line_end(walk, block[--count]);
        } else {
            walk_run(walk, block, &count);
        }
    }
    if (walk->at == 0 && !walk->done) {
        finish_line(walk);
        walk->done = true;
    }
}
