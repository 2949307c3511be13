/* SPDX-License-Identifier: Apache-2.0 */
/* Files group: the bytes of descriptors that a sandbox handed over. */
#include "py/state.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/filecopy.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/wait.h"

PyDoc_STRVAR(read_doc,
             "read_up_to(fd, most)\n--\n\n"
             "The content a regular file has now, from the position on; `most` bytes at most.");

static PyObject *read_up_to(PyObject *module, PyObject *args)
{
    int fd;
    Py_ssize_t most;
    struct stat info;

    (void)module;
    if (!PyArg_ParseTuple(args, "in", &fd, &most)) {
        return NULL;
    }
    if (fstat(fd, &info) < 0) {
        return sn_raise(SN_SYSTEM, "look at a file");
    }
    Py_ssize_t room = info.st_size < most ? (Py_ssize_t)info.st_size : most;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, room);
    if (bytes == NULL) {
        return NULL;
    }
    char *data = PyBytes_AsString(bytes);
    size_t got;
    enum sn_status status;
    Py_BEGIN_ALLOW_THREADS status = sn_file_read(fd, data, (size_t)room, &got);
    Py_END_ALLOW_THREADS if (status != SN_OK)
    {
        (void)sn_raise(status, "read a file");
    }
    PyObject *result = NULL;
    if (status == SN_OK) {
        /* Shorter only when the file shrank meanwhile. */
        result = got == (size_t)room ? Py_NewRef(bytes)
                                     : PyBytes_FromStringAndSize(data, (Py_ssize_t)got);
    }
    Py_DECREF(bytes);
    return result;
}

PyDoc_STRVAR(
    replace_doc,
    "replace_content(fd, content)\n--\n\nMake `content` the whole content of a regular file.");

static PyObject *replace_content(PyObject *module, PyObject *args)
{
    int fd;
    Py_buffer content;
    enum sn_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "iy*", &fd, &content)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status = sn_file_replace(fd, content.buf, (size_t)content.len);
    Py_END_ALLOW_THREADS if (status != SN_OK)
    {
        (void)sn_raise(status, "write a file");
    }
    PyBuffer_Release(&content);
    return status == SN_OK ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(
    stamp_doc,
    "file_stamp(fd, settled)\n--\n\n"
    "(size, mtime in ns) of a file; with `settled` once it has not been changed for a moment,\n"
    "TimeoutError when it does not come to rest within a second.");

static PyObject *file_stamp(PyObject *module, PyObject *args)
{
    int fd, settled;
    struct sn_file_stamp stamp;
    enum sn_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "ip", &fd, &settled)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS status =
        settled ? sn_file_settled(fd, &stamp) : sn_file_stamp(fd, &stamp);
    Py_END_ALLOW_THREADS if (status != SN_OK)
    {
        return sn_raise(status, "look at a file");
    }
    return Py_BuildValue("(LL)", (long long)stamp.size, (long long)stamp.mtime_ns);
}

PyDoc_STRVAR(copy_doc,
             "copy_file(source, target, most, *, timeout, cancel_fd=-1)\n--\n\n"
             "Copy up to `most` bytes from one descriptor's position to the other's; the count.\n"
             "TimeoutError, InterruptedError when cancelled, OSError.");

static PyObject *copy_file(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"source", "target", "most", "timeout", "cancel_fd", NULL};
    int from, to, cancel = -1;
    uint64_t most;
    double timeout = 0;
    struct sn_py_wait wait;
    struct sn_watch watch;
    uint64_t copied;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiO&|$di", names, &from, &to, sn_convert_uint64,
                                     &most, &timeout, &cancel) ||
        sn_py_deadline(timeout, "timeout", &watch.deadline) < 0) {
        return NULL;
    }
    sn_py_wait_init(&wait);
    watch.cancel = cancel;
    watch.tick = wait.tick;
    sn_py_wait_begin(&wait);
    enum sn_status status = sn_file_copy(from, to, most, &watch, &copied);
    sn_py_wait_end(&wait);
    if (wait.raised) {
        return NULL;
    }
    return status == SN_OK ? PyLong_FromUnsignedLongLong(copied) : sn_raise(status, "copy a file");
}

/* Adds one record to `list`; -1 with an exception. */
static int add_record(PyObject *list, const char *record, size_t len)
{
    PyObject *name = PyUnicode_DecodeUTF8(record + 1, (Py_ssize_t)len - 1, "surrogateescape");
    PyObject *pair =
        name == NULL ? NULL : Py_BuildValue("(NO)", name, record[0] == 'd' ? Py_True : Py_False);
    int result = pair == NULL ? -1 : PyList_Append(list, pair);

    Py_XDECREF(pair);
    return result;
}

/* Everything the listing's socket says, up to `most` bytes. */
static enum sn_status read_listing(int fd, char *data, size_t most, const struct sn_watch *watch,
                                   size_t *used)
{
    *used = 0;
    for (;;) {
        enum sn_status status = sn_watch_for(watch, fd, POLLIN, -1);
        if (status != SN_OK) {
            return status;
        }
        if (*used == most) {
            return SN_TOO_LARGE;
        }
        ssize_t got = read(fd, data + *used, most - *used);
        if (got == 0) {
            return SN_OK;
        }
        if (got < 0 && errno != EINTR && errno != EAGAIN) {
            return SN_SYSTEM;
        }
        *used += got > 0 ? (size_t)got : 0;
    }
}

PyDoc_STRVAR(
    listing_doc,
    "read_listing(fd, most, *, timeout, cancel_fd=-1)\n--\n\n"
    "The [(name, is_dir)] that come on the descriptor of Box.open_list. OverflowError when the\n"
    "names take more than `most` bytes, ConnectionError when the end is missing.");

static PyObject *listing(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fd", "most", "timeout", "cancel_fd", NULL};
    int fd;
    Py_ssize_t most;
    double timeout = 0;
    struct sn_py_wait wait;
    struct sn_watch watch = {.cancel = -1};
    size_t used;
    enum sn_status status;
    PyObject *list = NULL;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "in|$di", names, &fd, &most, &timeout,
                                     &watch.cancel) ||
        sn_py_deadline(timeout, "timeout", &watch.deadline) < 0) {
        return NULL;
    }
    char *data = sn_malloc((size_t)most);
    if (data == NULL) {
        return PyErr_NoMemory();
    }
    sn_py_wait_init(&wait);
    watch.tick = wait.tick;
    sn_py_wait_begin(&wait);
    status = read_listing(fd, data, (size_t)most, &watch, &used);
    sn_py_wait_end(&wait);
    if (wait.raised) {
        goto done;
    }
    if (status == SN_OK &&
        (used == 0 || data[used - 1] != '\0' || (used > 1 && data[used - 2] != '\0'))) {
        status = SN_CLOSED; /* the empty record is missing: the listing was cut */
    }
    if (status != SN_OK) {
        (void)sn_raise(status, "list a sandbox directory");
        goto done;
    }
    list = PyList_New(0);
    for (size_t at = 0; list != NULL && at + 1 < used;) {
        size_t len = 0;
        while (data[at + len] != '\0') {
            len++;
        }
        if (len < 2 || add_record(list, data + at, len) < 0) {
            Py_CLEAR(list);
            if (!PyErr_Occurred()) {
                (void)sn_raise(SN_CLOSED, "list a sandbox directory");
            }
        }
        at += len + 1;
    }
done:
    sn_free(data);
    return list;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef files_methods[] = {
    {"read_up_to", read_up_to, METH_VARARGS, read_doc},
    {"replace_content", replace_content, METH_VARARGS, replace_doc},
    {"file_stamp", file_stamp, METH_VARARGS, stamp_doc},
    {"copy_file", KEYWORDS(copy_file), copy_doc},
    {"read_listing", KEYWORDS(listing), listing_doc},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_files(PyObject *module)
{
    return PyModule_AddFunctions(module, files_methods);
}
