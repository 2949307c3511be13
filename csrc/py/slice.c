/* SPDX-License-Identifier: Apache-2.0 */
/* Slice group: parts of a file that came through a channel of text. */
#include "py/state.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "core/slice.h"
#include "py/errors.h"
#include "py/gil.h"

/* Where the bytes go: to a descriptor or into memory of which `left` bytes are free. */
struct target {
    int fd; /* -1: memory */
    uint8_t *at;
    size_t left;
    uint64_t taken;
};

static enum sn_status take(void *context, const uint8_t *data, size_t len)
{
    struct target *self = context;

    if (self->fd < 0) {
        if (len > self->left) {
            return SN_TOO_LARGE;
        }
        memcpy(self->at, data, len);
        self->at += len;
        self->left -= len;
        self->taken += len;
        return SN_OK;
    }
    while (len > 0) {
        ssize_t put = write(self->fd, data, len);
        if (put < 0 && errno != EINTR) {
            return SN_SYSTEM;
        }
        size_t done = put > 0 ? (size_t)put : 0;
        data += done;
        len -= done;
        self->taken += done;
    }
    return SN_OK;
}

/* The characters of a str that is ASCII, where they are, or of a buffer. *view is released by the
 * caller when it has an owner. */
static int characters(PyObject *module, PyObject *object, Py_buffer *view, const char **text,
                      Py_ssize_t *len)
{
    *view = (Py_buffer){0};
    if (PyUnicode_Check(object)) {
        PyObject *ascii =
            PyObject_CallFunctionObjArgs(sn_state_of(module)->str_isascii, object, NULL);
        if (ascii == NULL) {
            return -1;
        }
        bool is_ascii = ascii == Py_True;
        Py_DECREF(ascii);
        if (!is_ascii) {
            PyErr_SetString(PyExc_ValueError, "the text is not ASCII");
            return -1;
        }
        *text = PyUnicode_AsUTF8AndSize(object, len);
        return *text == NULL ? -1 : 0;
    }
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0) {
        return -1;
    }
    *text = view->buf;
    *len = view->len;
    return 0;
}

static PyObject *raise_status(enum sn_status status, const char *problem)
{
    if (status == SN_INVALID) {
        return PyErr_Format(PyExc_ValueError, "the data %s", problem);
    }
    if (status == SN_CLOSED) {
        PyErr_SetString(PyExc_ImportError, "libz.so.1 was not found; install the package zlib1g");
        return NULL;
    }
    return sn_raise(status, "take the data");
}

PyDoc_STRVAR(
    decode_doc,
    "decode_slice(text, begin, end, compressed, most, fd, /)\n--\n\n"
    "Decode the base64 in text[begin:end], an ASCII str or bytes, and decompress the gzip in it "
    "if\n"
    "it is that. The bytes, at most `most`, go to the descriptor: then how many is returned; or "
    "with\n"
    "-1 they are returned. ValueError for what is damaged or not complete, OverflowError for more\n"
    "than `most`, OSError of the descriptor.");

static PyObject *decode_slice(PyObject *module, PyObject *args)
{
    PyObject *object, *bytes = NULL, *result = NULL;
    Py_ssize_t begin, end, most, len;
    int compressed;
    struct target target = {.fd = -1};
    Py_buffer view;
    const char *text, *problem;
    enum sn_status status;

    if (!PyArg_ParseTuple(args, "Onnpni", &object, &begin, &end, &compressed, &most, &target.fd)) {
        return NULL;
    }
    if (characters(module, object, &view, &text, &len) < 0) {
        return NULL;
    }
    if (begin < 0 || begin > end || end > len || most < 0) {
        PyErr_SetString(PyExc_ValueError, "begin, end or most is out of its range");
        goto done;
    }
    if (target.fd < 0) {
        bytes = PyBytes_FromStringAndSize(NULL, most);
        if (bytes == NULL) {
            goto done;
        }
        target.at = (uint8_t *)PyBytes_AsString(bytes);
        target.left = (size_t)most;
    }
    PyThreadState *gil = sn_gil_release_over((size_t)(most > end - begin ? most : end - begin));
    status = sn_slice_decode((const uint8_t *)text + begin, (size_t)(end - begin), compressed != 0,
                             (struct sn_sink_bytes){take, &target}, (uint64_t)most, &problem);
    int saved = errno;
    sn_gil_take(gil);
    errno = saved;
    if (status != SN_OK) {
        (void)raise_status(status, problem);
    } else if (target.fd >= 0) {
        result = PyLong_FromUnsignedLongLong(target.taken);
    } else if (target.left == 0) {
        result = Py_NewRef(bytes);
    } else {
        /* The Limited API cannot shrink bytes. */
        result = PyBytes_FromStringAndSize(PyBytes_AsString(bytes), most - (Py_ssize_t)target.left);
    }
done:
    Py_XDECREF(bytes);
    if (view.obj != NULL) {
        PyBuffer_Release(&view);
    }
    return result;
}

static PyMethodDef slice_methods[] = {
    {"decode_slice", decode_slice, METH_VARARGS, decode_doc},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_slice(PyObject *module)
{
    return PyModule_AddFunctions(module, slice_methods);
}
