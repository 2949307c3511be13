/* SPDX-License-Identifier: Apache-2.0 */
/* Text group: bounded output for the model. The arguments are positional here; python/output.py
 * gives them names and defaults. */
#include "py/state.h"

#include <string.h>

#include "core/alloc.h"
#include "core/text.h"
#include "core/utf8.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/gil.h"
#include "py/text_chars.h"

#define CUT_MARKER "[... earlier output truncated]\n"
#define MARKER_SIZE (sizeof CUT_MARKER - 1)

/* The text as bytes where that costs nothing: only ASCII keeps its UTF-8 form in the object. NULL
 * with no exception set when it is not ASCII, with one on failure. Borrowed from `text`. */
static const uint8_t *ascii_of(PyObject *module, PyObject *text, Py_ssize_t *len)
{
    PyObject *answer = PyObject_CallFunctionObjArgs(sn_state_of(module)->str_isascii, text, NULL);
    const char *data = NULL;

    if (answer == NULL) {
        return NULL;
    }
    if (answer == Py_True) {
        data = PyUnicode_AsUTF8AndSize(text, len);
    }
    Py_DECREF(answer);
    return (const uint8_t *)data;
}

/* The part of `text` that is shown, as it is. */
static PyObject *plain_part(PyObject *text, Py_ssize_t len, const struct sn_shown *shown)
{
    if (shown->begin == 0 && shown->end == (size_t)len) {
        return PyUnicode_FromObject(text);
    }
    return PyUnicode_Substring(text, (Py_ssize_t)shown->begin, (Py_ssize_t)shown->end);
}

/* The same with its line ends made '\n' and surrogates replaced, after the marker if `marked`. */
static PyObject *normal_part(PyObject *text, const uint8_t *ascii, const struct sn_shown *shown,
                             bool marked)
{
    size_t before = marked ? MARKER_SIZE : 0;
    /* sn_chars_write wants 4 bytes more. */
    uint8_t *buffer = sn_malloc(before + shown->bytes + 4);
    size_t written = 0;
    PyObject *result = NULL;

    if (buffer == NULL) {
        return PyErr_NoMemory();
    }
    memcpy(buffer, CUT_MARKER, before);
    if (ascii != NULL) {
        PyThreadState *gil = sn_gil_release_over(shown->bytes);
        written = sn_text_write(ascii + shown->begin, shown->end - shown->begin, buffer + before,
                                shown->bytes);
        sn_gil_take(gil);
    } else if (sn_chars_write(text, shown->begin, shown->end, buffer + before, &written) < 0) {
        goto done;
    }
    result = PyUnicode_DecodeUTF8((const char *)buffer, (Py_ssize_t)(before + written), NULL);
done:
    sn_free(buffer);
    return result;
}

/* The width of a str with such code points, as CPython chooses it (PEP 393). */
static int width_of(uint32_t high)
{
    return high < 0x80 ? 0 : high < 0x100 ? 1 : high < 0x10000 ? 2 : 3;
}

/* The marker before the part that is shown. Most often in one allocation: the part is taken out
 * together with as much of what is cut off before it, and the marker is written over that. The new
 * str is nobody else's yet, so it may be written to; but its width must be that of what it holds in
 * the end, or it would not equal another str with the same text. */
static PyObject *marked_part(PyObject *text, bool ascii, const struct sn_shown *shown)
{
    size_t begin = shown->begin - MARKER_SIZE;
    uint32_t cut = 0;
    PyObject *part;
    PyObject *marker;
    PyObject *result;

    /* More than as much: of a whole str the part would be the str itself. */
    if (shown->begin > MARKER_SIZE) {
        if (!ascii && sn_chars_or(text, begin, shown->begin, &cut) < 0) {
            return NULL;
        }
        if (width_of(cut | shown->high) == width_of(shown->high)) {
            result = PyUnicode_Substring(text, (Py_ssize_t)begin, (Py_ssize_t)shown->end);
            for (size_t i = 0; result != NULL && i < MARKER_SIZE; i++) {
                if (PyUnicode_WriteChar(result, (Py_ssize_t)i, (Py_UCS4)CUT_MARKER[i]) < 0) {
                    Py_CLEAR(result);
                }
            }
            return result;
        }
    }
    part = PyUnicode_Substring(text, (Py_ssize_t)shown->begin, (Py_ssize_t)shown->end);
    marker = PyUnicode_FromString(CUT_MARKER);
    result = part != NULL && marker != NULL ? PyUnicode_Concat(marker, part) : NULL;
    Py_XDECREF(marker);
    Py_XDECREF(part);
    return result;
}

static PyObject *truncate_output(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    struct sn_shown shown;
    PyObject *text;
    const uint8_t *ascii;
    Py_ssize_t len;
    size_t max_lines;
    size_t max_bytes;
    int marked;

    if (!sn_check_count("truncate_output", nargs, 4)) {
        return NULL;
    }
    text = args[0];
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "text must be a str");
        return NULL;
    }
    if (!sn_read_cap(args[1], "max_lines", &max_lines) ||
        !sn_read_cap(args[2], "max_bytes", &max_bytes)) {
        return NULL;
    }
    marked = PyObject_IsTrue(args[3]);
    len = PyUnicode_GetLength(text);
    if (marked < 0 || len < 0) {
        return NULL;
    }
    if (len == 0) {
        return Py_NewRef(text);
    }
    ascii = ascii_of(module, text, &len);
    if (ascii == NULL && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (ascii == NULL) {
        if (sn_chars_show_tail(text, (size_t)len, max_lines, max_bytes, &shown) < 0) {
            return NULL;
        }
    } else {
        /* `text` is the caller's reference and immutable, so its bytes stay. */
        PyThreadState *gil = sn_gil_release_over((size_t)len < max_bytes ? (size_t)len : max_bytes);
        sn_show_tail_ascii(ascii, (size_t)len, max_lines, max_bytes, &shown);
        sn_gil_take(gil);
    }

    marked = marked || shown.cut;
    if (!shown.plain) {
        return normal_part(text, ascii, &shown, marked);
    }
    return marked ? marked_part(text, ascii != NULL, &shown) : plain_part(text, len, &shown);
}

/* The lines of the window. */
static PyObject *window_lines(const uint8_t *data, const struct sn_shown *shown)
{
    const uint8_t *begin = data + shown->begin;
    size_t len = shown->end - shown->begin;
    PyThreadState *gil;
    uint8_t *buffer;
    size_t written;
    PyObject *result;

    if (shown->plain) {
        /* Found valid; only bytes that changed since would be replaced. */
        return PyUnicode_DecodeUTF8((const char *)begin, (Py_ssize_t)len, "replace");
    }
    buffer = sn_malloc(shown->bytes);
    if (buffer == NULL) {
        return PyErr_NoMemory();
    }
    gil = sn_gil_release_over(shown->bytes);
    written = sn_text_write(begin, len, buffer, shown->bytes);
    sn_gil_take(gil);
    /* Valid, unless the data changed while it was rewritten. */
    result = PyUnicode_DecodeUTF8((const char *)buffer, (Py_ssize_t)written, "replace");
    sn_free(buffer);
    return result;
}

/* The lines, and the note that leads on where some are left. */
static PyObject *window_text(const uint8_t *data, const struct sn_window *window, size_t first)
{
    size_t next = first + window->shown.lines;
    PyObject *lines = window_lines(data, &window->shown);
    PyObject *note;
    PyObject *result = NULL;

    if (lines == NULL || next > window->total) {
        return lines;
    }
    note = PyUnicode_FromFormat("\n[... %zu more line%s; read on with offset=%zu]",
                                window->total - next + 1, next != window->total ? "s" : "", next);
    if (note != NULL) {
        result = PyUnicode_Concat(lines, note);
        Py_DECREF(note);
    }
    Py_DECREF(lines);
    return result;
}

static PyObject *long_line_text(const struct sn_window *window, size_t first, size_t max_bytes,
                                PyObject *hint, int lead_on)
{
    char size[SN_SIZE_TEXT];

    (void)sn_format_size(max_bytes, size);
    if (lead_on && first < window->total) {
        return PyUnicode_FromFormat(
            "Line %zu is longer than the %s output limit. %U The next line is at offset=%zu.",
            first, size, hint, first + 1);
    }
    return PyUnicode_FromFormat("Line %zu is longer than the %s output limit. %U", first, size,
                                hint);
}

static PyObject *render_file_window(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    struct sn_window window;
    PyThreadState *gil;
    PyObject *result = NULL;
    Py_buffer data;
    const void *bytes; /* never NULL, also where the buffer is empty */
    size_t first = 1;
    size_t limit = 0;
    size_t max_lines;
    size_t max_bytes;
    bool beyond = false;
    int lead_on;

    (void)module;
    if (!sn_check_count("render_file_window", nargs, 7)) {
        return NULL;
    }
    if ((args[1] != Py_None && !sn_read_clamped(args[1], "offset", &first, &beyond)) ||
        (args[2] != Py_None && !sn_read_clamped(args[2], "limit", &limit, NULL)) ||
        !sn_read_cap(args[3], "max_lines", &max_lines) ||
        !sn_read_cap(args[4], "max_bytes", &max_bytes)) {
        return NULL;
    }
    if (!PyUnicode_Check(args[5])) {
        PyErr_SetString(PyExc_TypeError, "long_line_hint must be a str");
        return NULL;
    }
    lead_on = PyObject_IsTrue(args[6]);
    if (lead_on < 0 || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    first = first != 0 ? first : 1;
    limit = limit != 0 ? limit : SIZE_MAX;

    bytes = data.len > 0 ? data.buf : "";
    gil = sn_gil_release_over((size_t)data.len);
    sn_show_window(bytes, (size_t)data.len, first, limit, max_lines, max_bytes, &window);
    sn_gil_take(gil);
    if (first > window.total) {
        const char *plural = window.total != 1 ? "s" : "";

        result = beyond ? PyUnicode_FromFormat("(no lines at offset %S; file has %zu line%s)",
                                               args[1], window.total, plural)
                        : PyUnicode_FromFormat("(no lines at offset %zu; file has %zu line%s)",
                                               first, window.total, plural);
    } else if (window.shown.lines == 0) {
        result = long_line_text(&window, first, max_bytes, args[5], lead_on);
    } else {
        result = window_text(bytes, &window, first);
    }
    PyBuffer_Release(&data);
    return result;
}

static PyObject *keep_head(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    struct sn_head head;
    struct sn_shown shown;
    const uint8_t *ascii;
    PyObject *part;
    PyObject *text;
    Py_ssize_t len;
    size_t max_lines;
    size_t max_bytes;

    if (!sn_check_count("keep_head", nargs, 3)) {
        return NULL;
    }
    text = args[0];
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "names_text must be a str");
        return NULL;
    }
    if (!sn_read_cap(args[1], "max_lines", &max_lines) ||
        !sn_read_cap(args[2], "max_bytes", &max_bytes)) {
        return NULL;
    }
    ascii = ascii_of(module, text, &len);
    if (ascii == NULL && PyErr_Occurred() != NULL) {
        return NULL;
    }
    if (ascii != NULL) {
        PyThreadState *gil = sn_gil_release_over((size_t)len < max_bytes ? (size_t)len : max_bytes);
        sn_show_head(ascii, 1, (size_t)len, max_lines, max_bytes, &head);
        sn_gil_take(gil);
    } else if (sn_chars_show_head(text, max_lines, max_bytes, &head) < 0) {
        return NULL;
    }
    shown = (struct sn_shown){.end = head.end};
    part = head.changed ? sn_chars_repaired(text, head.end) : plain_part(text, -1, &shown);
    if (part == NULL) {
        return NULL;
    }
    return Py_BuildValue("(Nn)", part, (Py_ssize_t)head.next);
}

static PyObject *format_size(PyObject *module, PyObject *number)
{
    PyObject *index;
    PyObject *result = NULL;
    PyObject *quotient;
    PyObject *mebibyte;
    char text[SN_SIZE_TEXT];
    char *digits;
    size_t size;
    bool beyond;

    (void)module;
    if (!sn_read_clamped(number, "num_bytes", &size, &beyond)) {
        return NULL;
    }
    if (!beyond && size >= 1024) {
        return PyUnicode_FromStringAndSize(text, (Py_ssize_t)sn_format_size(size, text));
    }
    index = PyNumber_Index(number);
    if (index == NULL) {
        return NULL;
    }
    if (!beyond) {
        result = PyUnicode_FromFormat("%SB", index);
        Py_DECREF(index);
        return result;
    }
    /* More than a size_t takes: Python divides. */
    mebibyte = PyLong_FromLong(1024 * 1024);
    quotient = mebibyte != NULL ? PyNumber_TrueDivide(index, mebibyte) : NULL;
    Py_XDECREF(mebibyte);
    Py_DECREF(index);
    if (quotient == NULL) {
        return NULL;
    }
    digits = PyOS_double_to_string(PyFloat_AsDouble(quotient), 'f', 1, 0, NULL);
    Py_DECREF(quotient);
    if (digits != NULL) {
        result = PyUnicode_FromFormat("%sMB", digits);
        PyMem_Free(digits);
    }
    return result;
}

static PyObject *allocated_bytes(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromSize_t(sn_allocated());
}

static PyMethodDef text_methods[] = {
    {"truncate_output", (PyCFunction)(void (*)(void))truncate_output, METH_FASTCALL,
     "truncate_output(text, max_lines, max_bytes, already_truncated, /)\n--\n\n"
     "See sandbox_native.output.truncate_output."},
    {"render_file_window", (PyCFunction)(void (*)(void))render_file_window, METH_FASTCALL,
     "render_file_window(data, offset, limit, max_lines, max_bytes, long_line_hint, "
     "next_offset_hint, /)\n--\n\n"
     "See sandbox_native.output.render_file_window."},
    {"keep_head", (PyCFunction)(void (*)(void))keep_head, METH_FASTCALL,
     "keep_head(text, max_lines, max_bytes, /)\n--\n\n"
     "The first lines of text that fit, and the index of the first line that is left out."},
    {"format_size", format_size, METH_O,
     "format_size(num_bytes, /)\n--\n\nSee sandbox_native.output.format_size."},
    {"allocated_bytes", allocated_bytes, METH_NOARGS,
     "allocated_bytes()\n--\n\n"
     "Bytes that the C core holds now, outside of Python's own objects."},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_text(PyObject *module)
{
    struct sn_state *state = sn_state_of(module);

    state->str_isascii = PyObject_GetAttrString((PyObject *)&PyUnicode_Type, "isascii");
    if (state->str_isascii == NULL) {
        return -1;
    }
    return PyModule_AddFunctions(module, text_methods);
}
