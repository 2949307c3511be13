/* SPDX-License-Identifier: Apache-2.0 */
/* The text core over a str that is not ASCII. The Limited API shows no code points in place and the
 * UTF-8 form of a whole str stays with it for life, so the needed part is taken out block by block.
 * GIL held on call and return; released inside while a large block is looked at. Each returns -1
 * with an exception set on failure. `text` is borrowed. */
#ifndef SN_PY_TEXT_CHARS_H
#define SN_PY_TEXT_CHARS_H

#include <Python.h>

#include "core/text.h"

/* What sn_show_tail_ascii does, in code points. `len` is the length of `text`. */
int sn_chars_show_tail(PyObject *text, size_t len, size_t max_lines, size_t max_bytes,
                       struct sn_shown *shown);

/* What sn_show_head does. */
int sn_chars_show_head(PyObject *text, size_t max_lines, size_t max_bytes, struct sn_head *head);

/* Writes the code points from `begin` to `end` as they are shown (sn_text_write_block), as UTF-8.
 * `out` has room for what they take and 4 bytes more. */
int sn_chars_write(PyObject *text, size_t begin, size_t end, uint8_t *out, size_t *written);

/* The code points from `begin` to `end`, 64 at most, or'ed. */
int sn_chars_or(PyObject *text, size_t begin, size_t end, uint32_t *bits);

/* The first `end` code points with U+FFFD for each lone surrogate. New reference, NULL on failure.
 */
PyObject *sn_chars_repaired(PyObject *text, size_t end);

#endif
