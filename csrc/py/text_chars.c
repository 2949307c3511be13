/* SPDX-License-Identifier: Apache-2.0 */
#include "py/text_chars.h"

#include "core/alloc.h"
#include "core/utf8.h"
#include "py/gil.h"

/* Code points in a block: few where little is needed, and enough to be worth the lock otherwise. */
#define SMALL_BLOCK 4096
#define LARGE_BLOCK 65536

/* How many blocks' worth of code points a cap can ask for decides the size of one. */
static size_t block_for(size_t wanted)
{
    if (wanted > 4 * LARGE_BLOCK) {
        return LARGE_BLOCK;
    }
    return wanted < SMALL_BLOCK ? wanted : SMALL_BLOCK;
}

static uint32_t *new_block(size_t count)
{
    uint32_t *block = sn_malloc(count * sizeof *block);

    if (block == NULL) {
        (void)PyErr_NoMemory();
    }
    return block;
}

static int take(PyObject *text, size_t begin, size_t end, uint32_t *block, size_t room)
{
    PyObject *part = PyUnicode_Substring(text, (Py_ssize_t)begin, (Py_ssize_t)end);
    Py_UCS4 *taken;

    if (part == NULL) {
        return -1;
    }
    taken = PyUnicode_AsUCS4(part, block, (Py_ssize_t)room, 0);
    Py_DECREF(part);
    return taken != NULL ? 0 : -1;
}

int sn_chars_show_tail(PyObject *text, size_t len, size_t max_lines, size_t max_bytes,
                       struct sn_shown *shown)
{
    /* A code point costs a byte, a line end too, and the longest line end is two code points. */
    size_t needed = 2 * max_bytes + 3 < len ? 2 * max_bytes + 3 : len;
    size_t size = block_for(needed);
    struct sn_tail_walk walk;
    uint32_t *block = new_block(size);
    int result = 0;

    if (block == NULL) {
        return -1;
    }
    sn_tail_walk_begin(&walk, len, max_lines, max_bytes);
    while (!walk.done) {
        size_t count = walk.at < size ? walk.at : size;
        PyThreadState *gil;

        result = take(text, walk.at - count, walk.at, block, size);
        if (result < 0) {
            break;
        }
        gil = sn_gil_release_over(count * sizeof *block);
        sn_tail_walk_block(&walk, block, count);
        sn_gil_take(gil);
    }
    *shown = walk.shown;
    sn_free(block);
    return result;
}

int sn_chars_show_head(PyObject *text, size_t max_lines, size_t max_bytes, struct sn_head *head)
{
    Py_ssize_t length = PyUnicode_GetLength(text);
    size_t needed;
    uint32_t *block;
    int result;

    if (length < 0) {
        return -1;
    }
    /* Two more than the cap: one that cannot fit, and the '\n' after what does. */
    needed = max_bytes + 2 < (size_t)length ? max_bytes + 2 : (size_t)length;
    block = new_block(needed);
    if (block == NULL) {
        return -1;
    }
    result = take(text, 0, needed, block, needed);
    if (result == 0) {
        PyThreadState *gil = sn_gil_release_over(needed * sizeof *block);
        sn_show_head(block, sizeof *block, needed, max_lines, max_bytes, head);
        sn_gil_take(gil);
    }
    sn_free(block);
    return result;
}

int sn_chars_write(PyObject *text, size_t begin, size_t end, uint8_t *out, size_t *written)
{
    size_t size = block_for(end - begin);
    uint32_t *block = new_block(size);
    bool after_cr = false;
    int result = 0;

    if (block == NULL) {
        return -1;
    }
    *written = 0;
    while (begin < end) {
        size_t count = end - begin < size ? end - begin : size;
        PyThreadState *gil;

        result = take(text, begin, begin + count, block, size);
        if (result < 0) {
            break;
        }
        begin += count;
        gil = sn_gil_release_over(count * sizeof *block);
        *written += sn_text_write_block(block, count, &after_cr, out + *written);
        sn_gil_take(gil);
    }
    sn_free(block);
    return result;
}

int sn_chars_or(PyObject *text, size_t begin, size_t end, uint32_t *bits)
{
    uint32_t block[64];

    if (end - begin > sizeof block / sizeof block[0] ||
        take(text, begin, end, block, sizeof block / sizeof block[0]) < 0) {
        return -1;
    }
    *bits = 0;
    for (size_t i = 0; i < end - begin; i++) {
        *bits |= block[i];
    }
    return 0;
}

PyObject *sn_chars_repaired(PyObject *text, size_t end)
{
    uint32_t *block = new_block(end);
    PyObject *result = NULL;
    int byte_order = 1;

    if (block == NULL) {
        return NULL;
    }
    if (take(text, 0, end, block, end) == 0) {
        for (size_t i = 0; i < end; i++) {
            block[i] = sn_is_surrogate(block[i]) ? 0xFFFD : block[i];
        }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        byte_order = -1;
#endif
        result = PyUnicode_DecodeUTF32((const char *)block, (Py_ssize_t)(end * sizeof *block), NULL,
                                       &byte_order);
    }
    sn_free(block);
    return result;
}
