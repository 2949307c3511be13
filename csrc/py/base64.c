/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 group: b64encode, b64decode, and Base64Decoder for text that comes in pieces. */
#include "py/state.h"

#include <stdbool.h>

#include "core/base64.h"
#include "py/errors.h"
#include "py/gil.h"

/* Always sets an exception and returns NULL. */
static PyObject *raise_bad(const struct sn_b64_decoder *decoder)
{
    return PyErr_Format(PyExc_ValueError, "not base64 at index %llu",
                        (unsigned long long)decoder->position);
}

static PyObject *raise_unfinished(const struct sn_b64_decoder *decoder)
{
    return PyErr_Format(PyExc_ValueError,
                        "base64 ends inside of a group of four, after %llu characters",
                        (unsigned long long)decoder->position);
}

/* Decodes one buffer into new bytes. GIL held, released over large input. The caller keeps `data`.
 */
static PyObject *decode_buffer(struct sn_b64_decoder *decoder, const Py_buffer *data)
{
    PyThreadState *gil;
    PyObject *result;
    PyObject *whole;
    enum sn_status status;
    size_t written;
    size_t room;
    uint8_t *out;

    /* The Limited API cannot shrink bytes, so the size is counted first. */
    gil = sn_gil_release_over((size_t)data->len);
    room = sn_b64_decoded_size(decoder, data->buf, (size_t)data->len);
    sn_gil_take(gil);
    result = whole = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
    if (result == NULL) {
        return NULL;
    }
    out = (uint8_t *)PyBytes_AsString(result);
    gil = sn_gil_release_over((size_t)data->len);
    status = sn_b64_decode(decoder, data->buf, (size_t)data->len, out, room, &written);
    sn_gil_take(gil);
    if (status != SN_OK) {
        Py_DECREF(result);
        return status == SN_INVALID ? raise_bad(decoder) : sn_raise(status, "decode base64");
    }
    if (written < room) {
        /* The text is not complete, or changed since. */
        result = PyBytes_FromStringAndSize((const char *)out, (Py_ssize_t)written);
        Py_DECREF(whole);
    }
    return result;
}

static PyObject *b64decode(PyObject *module, PyObject *object)
{
    struct sn_b64_decoder decoder = {0};
    Py_buffer data;
    PyObject *result;

    (void)module;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    result = decode_buffer(&decoder, &data);
    PyBuffer_Release(&data);
    if (result != NULL && sn_b64_finish(&decoder) != SN_OK) {
        Py_DECREF(result);
        return raise_unfinished(&decoder);
    }
    return result;
}

static PyObject *b64encode(PyObject *module, PyObject *object)
{
    PyThreadState *gil;
    Py_buffer data;
    PyObject *result = NULL;
    uint8_t *out;
    size_t size;

    (void)module;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (sn_b64_encoded_size((size_t)data.len, &size) != SN_OK || size > PY_SSIZE_T_MAX) {
        (void)sn_raise(SN_TOO_LARGE, "encode base64");
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (result == NULL) {
        goto done;
    }
    out = (uint8_t *)PyBytes_AsString(result);
    gil = sn_gil_release_over((size_t)data.len);
    sn_b64_encode(data.buf, (size_t)data.len, out);
    sn_gil_take(gil);
done:
    PyBuffer_Release(&data);
    return result;
}

/* The decoder is taken out for each call and put back after it, so a second thread that comes in
 * while a large piece is decoded without the GIL is refused and nothing is shared. */
struct decoder {
    PyObject_HEAD struct sn_b64_decoder core;
    bool busy;
    bool failed;
};

static bool decoder_ready(struct decoder *self)
{
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the decoder is in use by another thread");
        return false;
    }
    if (self->failed) {
        PyErr_SetString(PyExc_ValueError, "the decoder failed before");
        return false;
    }
    return true;
}

static PyObject *decoder_feed(struct decoder *self, PyObject *object)
{
    Py_buffer data;
    PyObject *result;

    if (!decoder_ready(self) || PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    self->busy = true;
    result = decode_buffer(&self->core, &data);
    self->busy = false;
    self->failed = result == NULL;
    PyBuffer_Release(&data);
    return result;
}

static PyObject *decoder_finish(struct decoder *self, PyObject *unused)
{
    (void)unused;
    if (!decoder_ready(self)) {
        return NULL;
    }
    if (sn_b64_finish(&self->core) != SN_OK) {
        return raise_unfinished(&self->core);
    }
    Py_RETURN_NONE;
}

static void decoder_dealloc(struct decoder *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(self);
    Py_DECREF(type);
}

static PyMethodDef decoder_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))decoder_feed, METH_O,
     "feed($self, data, /)\n--\n\n"
     "The bytes that the next piece of the text completes. ValueError for what is not base64."},
    {"finish", (PyCFunction)(void (*)(void))decoder_finish, METH_NOARGS,
     "finish($self, /)\n--\n\nValueError if the text is not complete."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_doc, "Base64Decoder()\n--\n\n"
                "Decode base64 that comes in pieces cut anywhere. White space is skipped; all else "
                "as b64decode."},
    {Py_tp_dealloc, (void *)decoder_dealloc},
    {Py_tp_methods, decoder_methods},
    {0, NULL},
};

static PyType_Spec decoder_spec = {
    .name = "sandbox_native._sandbox_native.Base64Decoder",
    .basicsize = sizeof(struct decoder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = decoder_slots,
};

static PyMethodDef base64_methods[] = {
    {"b64decode", b64decode, METH_O,
     "b64decode(data, /)\n--\n\n"
     "Decode base64 (RFC 4648, standard alphabet, padded) in a bytes-like object. ASCII white "
     "space is\n"
     "skipped; anything else that is not base64, also bits left over that are not zero, is a "
     "ValueError."},
    {"b64encode", b64encode, METH_O,
     "b64encode(data, /)\n--\n\nThe bytes-like object as base64, padded, without line ends."},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_base64(PyObject *module)
{
    if (sn_py_add_type(module, &decoder_spec) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, base64_methods);
}
