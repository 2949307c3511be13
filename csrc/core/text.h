/* SPDX-License-Identifier: Apache-2.0 */
/* What part of a text is shown: whole lines under a cap on their number and a cap on their UTF-8
 * bytes, whichever bites first. A line costs its bytes, and every line but the first one kept one
 * more for the
 * '\n' that joins them. Line ends are those of core/scan.h; the shown text has '\n' for each.
 *
 * Nothing here allocates or keeps pointers. All may be called without the GIL, from any thread, as
 * long as the bytes stay where they are. Both caps are at least 1. */
#ifndef SN_CORE_TEXT_H
#define SN_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Caps are clamped to this by the callers, which keeps every sum here in range. */
#define SN_CAP_LIMIT (SIZE_MAX / 4)

/* A part of a text that is shown: from `begin` up to `end`, in the units of the text (bytes, or
 * code points), the line end of its last line not included. */
struct sn_shown {
    size_t begin;
    size_t end;
    size_t lines; /* how many lines it has */
    size_t bytes; /* what it takes in UTF-8 when shown */
    uint32_t
        high;   /* every code point that is shown, or'ed: how wide they are; 0 where it is ASCII */
    bool cut;   /* something of the text is left out */
    bool plain; /* it can be shown as it is: valid, and every line end in it is '\n' */
};

/* --- The end of a text ------------------------------------------------------------------------
 * The last lines that fit. When not even the last line fits, the end of it, whole characters only.
 */

/* Of ASCII: `len` bytes at `p`. Looks at no more than about max_bytes of them. */
void sn_show_tail_ascii(const uint8_t *p, size_t len, size_t max_lines, size_t max_bytes,
                        struct sn_shown *shown);

/* The same for code points that come in blocks, the last block first. */
struct sn_tail_walk {
    struct sn_shown shown;
    size_t len; /* code points of the whole text */
    size_t max_lines;
    size_t max_bytes;
    size_t at;     /* code points not walked over yet */
    size_t line;   /* bytes of the line that is walked over */
    uint32_t high; /* its code points, or'ed */
    bool after_lf; /* the code point after `at` is a '\n', so a '\r' before it belongs to it */
    bool done;
};

void sn_tail_walk_begin(struct sn_tail_walk *walk, size_t len, size_t max_lines, size_t max_bytes);

/* Walks over the `count` code points before walk->at. walk->done says that no more are needed, and
 * walk->shown is the answer then; it is always so once the first of the text was walked over. */
void sn_tail_walk_block(struct sn_tail_walk *walk, const uint32_t *block, size_t count);

/* --- The beginning of a text ------------------------------------------------------------------
 * The first lines that fit, with '\n' as the only line end: what names may contain stays in them.
 */

struct sn_head {
    size_t end;   /* of the lines shown, without the last '\n' */
    size_t next;  /* where the first line that is left out begins; the length when there is none */
    bool changed; /* a lone surrogate is among what is shown */
};

/* `size` is 1 for ASCII and 4 for code points in the machine's byte order. */
void sn_show_head(const void *text, size_t size, size_t len, size_t max_lines, size_t max_bytes,
                  struct sn_head *head);

/* --- A window of a file -----------------------------------------------------------------------
 * The lines from number `first` (1 is the first one) on, `limit` of them at most, that fit. One
 * pass. */

struct sn_window {
    struct sn_shown shown; /* in bytes of the file; no lines when the first one is over max_bytes or
                              beyond the last line of the file. `cut` only says the former. */
    size_t total;          /* lines in the whole file */
};

void sn_show_window(const uint8_t *p, size_t len, size_t first, size_t limit, size_t max_lines,
                    size_t max_bytes, struct sn_window *window);

/* --- Showing ---------------------------------------------------------------------------------- */

/* Writes `len` bytes of UTF-8 that may be broken to `out` as they are shown: line ends as '\n', bad
 * parts as U+FFFD. Stops where `room` is used up (which happens only when the bytes changed since
 * they were measured). Returns how many bytes were written, always valid UTF-8. */
size_t sn_text_write(const uint8_t *p, size_t len, uint8_t *out, size_t room);

/* The same for a block of code points, whose lone surrogates become U+FFFD. *after_cr carries a
 * '\r' at the end of one block to the next; false at first. `out` has room for 4 bytes for each. */
size_t sn_text_write_block(const uint32_t *block, size_t count, bool *after_cr, uint8_t *out);

/* A byte count as notes show it: "512B", "1.5KB", "5.0MB", one decimal, rounded to the nearest and
 * to even halfway, as if `size` were first made a double. Written with its '\0'; the length is
 * returned. */
#define SN_SIZE_TEXT 32
size_t sn_format_size(uint64_t size, char out[SN_SIZE_TEXT]);

#endif
