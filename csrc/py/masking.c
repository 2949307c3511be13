/* SPDX-License-Identifier: Apache-2.0 */
/* Masking group: replace_all. */
#include "py/state.h"

#include <string.h>

#include "core/alloc.h"
#include "core/multifind.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/gil.h"

/* Bytes of the result; SIZE_MAX when it would be larger than memory, `len` with *found 0 when
 * there is nothing to replace. No GIL needed. */
static size_t measure(const struct sn_multifind *find, const uint8_t *data, size_t len, size_t mask,
                      int *found)
{
    size_t total = 0, done = 0, begin, end;

    *found = 0;
    while (sn_multifind_next(find, data, len, done, &begin, &end)) {
        *found = 1;
        if (total > (size_t)PY_SSIZE_T_MAX / 2 - (begin - done) - mask) {
            return SIZE_MAX;
        }
        total += begin - done + mask;
        done = end;
    }
    return total > (size_t)PY_SSIZE_T_MAX / 2 - (len - done) ? SIZE_MAX : total + (len - done);
}

/* Writes what fits in `room`, which is all of it unless the data changed since it was measured;
 * returns how much. No GIL needed. */
static size_t fill(const struct sn_multifind *find, const uint8_t *data, size_t len,
                   const Py_buffer *mask, uint8_t *out, size_t room)
{
    size_t used = 0, done = 0, begin, end;

    while (sn_multifind_next(find, data, len, done, &begin, &end)) {
        if (begin - done > room - used || (size_t)mask->len > room - used - (begin - done)) {
            return used;
        }
        memcpy(out + used, data + done, begin - done);
        used += begin - done;
        memcpy(out + used, mask->buf, (size_t)mask->len);
        used += (size_t)mask->len;
        done = end;
    }
    size_t rest = len - done < room - used ? len - done : room - used;
    memcpy(out + used, data + done, rest);
    return used + rest;
}

/* None, or the new bytes. GIL held, released over large data. The caller keeps the buffers. */
static PyObject *replace(const struct sn_multifind *find, const Py_buffer *data,
                         const Py_buffer *mask)
{
    size_t len = (size_t)data->len;
    int found;
    PyThreadState *gil = sn_gil_release_over(len);
    size_t size = measure(find, data->buf, len, (size_t)mask->len, &found);

    sn_gil_take(gil);
    if (!found) {
        Py_RETURN_NONE;
    }
    if (size == SIZE_MAX) {
        return sn_raise(SN_TOO_LARGE, "mask: the result would be larger than memory");
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (result == NULL) {
        return NULL;
    }
    gil = sn_gil_release_over(len);
    size_t used = fill(find, data->buf, len, mask, (uint8_t *)PyBytes_AsString(result), size);
    sn_gil_take(gil);
    if (used < size) {
        Py_DECREF(result);
        PyErr_SetString(PyExc_RuntimeError, "the data changed while it was masked");
        return NULL;
    }
    return result;
}

/* Points `needles` into the bytes objects of `tuple`, which stays alive meanwhile. */
static int read_needles(PyObject *tuple, Py_ssize_t count, struct sn_needle *needles)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(tuple, i);
        char *bytes;
        Py_ssize_t len;
        if (item == NULL || PyBytes_AsStringAndSize(item, &bytes, &len) < 0) {
            return -1;
        }
        needles[i] = (struct sn_needle){(const uint8_t *)bytes, (size_t)len};
    }
    return 0;
}

PyDoc_STRVAR(
    replace_all_doc,
    "replace_all($module, data, needles, mask, /)\n--\n\n"
    "Replace every occurrence of any of some strings, in one pass.\n\n"
    ":param data: bytes-like. :param needles: tuple of bytes, none empty.\n"
    ":param mask: bytes-like, put in the place of each; occurrences that overlap count as\n"
    "    one.\n"
    ":return: new bytes, or None when there is no occurrence.\n"
    ":raises ValueError: a needle is empty.");

static PyObject *replace_all(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer data = {0}, mask = {0};
    struct sn_needle *needles = NULL;
    struct sn_multifind *find = NULL;
    PyObject *result = NULL;
    Py_ssize_t count;
    enum sn_status status;

    (void)module;
    if (!sn_check_count("replace_all", nargs, 3)) {
        return NULL;
    }
    count = PyTuple_Size(args[1]);
    if (count < 0) {
        PyErr_SetString(PyExc_TypeError, "needles must be a tuple of bytes");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(args[2], &mask, PyBUF_SIMPLE) < 0) {
        goto done;
    }
    needles = sn_calloc((size_t)count, sizeof *needles);
    if (needles == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (read_needles(args[1], count, needles) < 0) {
        goto done;
    }
    status = sn_multifind_new(needles, (size_t)count, &find);
    if (status != SN_OK) {
        sn_raise(status, "look for an empty string");
        goto done;
    }
    result = replace(find, &data, &mask);
done:
    sn_multifind_free(find);
    sn_free(needles);
    if (data.obj != NULL) {
        PyBuffer_Release(&data);
    }
    if (mask.obj != NULL) {
        PyBuffer_Release(&mask);
    }
    return result;
}

static PyMethodDef masking_methods[] = {
    {"replace_all", (PyCFunction)(void (*)(void))replace_all, METH_FASTCALL, replace_all_doc},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_masking(PyObject *module)
{
    return PyModule_AddFunctions(module, masking_methods);
}
