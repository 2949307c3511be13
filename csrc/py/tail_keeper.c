/* SPDX-License-Identifier: Apache-2.0 */
/* TailKeeper: the last whole lines of a stream of any length.
 *
 * The keeper owns its struct sn_tail. Large pieces are taken in without the GIL, so a lock of its
 * own keeps two threads that feed one keeper apart; it is held for one method at a time and never
 * while Python code runs. */
#include "py/state.h"

#include "core/tail.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/gil.h"

struct keeper {
    PyObject_HEAD struct sn_tail *tail;
    PyThread_type_lock lock;
};

static void lock(struct keeper *self)
{
    if (PyThread_acquire_lock(self->lock, NOWAIT_LOCK) != PY_LOCK_ACQUIRED) {
        /* The holder may need the GIL to finish. */
        PyThreadState *gil = PyEval_SaveThread();
        (void)PyThread_acquire_lock(self->lock, WAIT_LOCK);
        PyEval_RestoreThread(gil);
    }
}

static void unlock(struct keeper *self)
{
    PyThread_release_lock(self->lock);
}

static PyObject *keeper_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"max_bytes", NULL};
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct keeper *self;
    PyObject *cap;
    size_t max_bytes;
    enum sn_status status;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:TailKeeper", names, &cap) ||
        !sn_read_cap(cap, "max_bytes", &max_bytes)) {
        return NULL;
    }
    self = (struct keeper *)allocate(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->lock = PyThread_allocate_lock();
    status = self->lock != NULL ? sn_tail_new(max_bytes, &self->tail) : SN_NO_MEMORY;
    if (status != SN_OK) {
        Py_DECREF(self);
        return sn_raise(status, "make a tail keeper");
    }
    return (PyObject *)self;
}

static void keeper_dealloc(struct keeper *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    sn_tail_free(self->tail);
    if (self->lock != NULL) {
        PyThread_free_lock(self->lock);
    }
    release(self);
    Py_DECREF(type);
}

static PyObject *keeper_feed(struct keeper *self, PyObject *object)
{
    PyThreadState *gil;
    Py_buffer data;
    enum sn_status status;

    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    lock(self);
    gil = sn_gil_release_over((size_t)data.len);
    status = sn_tail_feed(self->tail, data.buf, (size_t)data.len);
    sn_gil_take(gil);
    unlock(self);
    PyBuffer_Release(&data);
    if (status != SN_OK) {
        return sn_raise(status, "keep the tail");
    }
    Py_RETURN_NONE;
}

/* How many of the kept bytes result() gives. The lock is held. */
static size_t shown_bytes(struct keeper *self)
{
    PyThreadState *gil = sn_gil_release_over(sn_tail_kept(self->tail));
    size_t shown = sn_tail_kept(self->tail) - sn_tail_cut_line(self->tail);

    sn_gil_take(gil);
    return shown;
}

static PyObject *keeper_result(struct keeper *self, PyObject *unused)
{
    PyThreadState *gil;
    PyObject *result;
    size_t shown;

    (void)unused;
    lock(self);
    shown = shown_bytes(self);
    /* Runs no Python code, so the lock may be held over it. */
    result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)shown);
    if (result != NULL) {
        char *out = PyBytes_AsString(result);

        gil = sn_gil_release_over(shown);
        sn_tail_copy_last(self->tail, shown, out);
        sn_gil_take(gil);
    }
    unlock(self);
    return result;
}

enum count { TOTAL_BYTES, TOTAL_LINES, DROPPED_BYTES, DROPPED_LINES };

static PyObject *keeper_count(struct keeper *self, void *closure)
{
    enum count wanted = (enum count)(intptr_t)closure;
    unsigned long long answer = 0;
    PyThreadState *gil;
    size_t shown;

    lock(self);
    switch (wanted) {
    case TOTAL_BYTES:
        answer = sn_tail_total_bytes(self->tail);
        break;
    case TOTAL_LINES:
        answer = sn_tail_total_lines(self->tail);
        break;
    case DROPPED_BYTES:
        answer = sn_tail_total_bytes(self->tail) - shown_bytes(self);
        break;
    case DROPPED_LINES:
        shown = shown_bytes(self);
        gil = sn_gil_release_over(shown);
        answer = sn_tail_total_lines(self->tail) - sn_tail_lines_in_last(self->tail, shown);
        sn_gil_take(gil);
        break;
    }
    unlock(self);
    return PyLong_FromUnsignedLongLong(answer);
}

static PyMethodDef keeper_methods[] = {
    {"feed", (PyCFunction)(void (*)(void))keeper_feed, METH_O,
     "feed($self, data, /)\n--\n\n"
     "Take in the next bytes of the stream: any object with a contiguous buffer."},
    {"result", (PyCFunction)(void (*)(void))keeper_result, METH_NOARGS,
     "result($self, /)\n--\n\n"
     "The last whole lines of what was fed so far, at most max_bytes bytes.\n\n"
     "When not even the last line fits, its end is given, from the beginning of a UTF-8 "
     "character."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef keeper_properties[] = {
    {"total_bytes", (getter)keeper_count, NULL, "Bytes fed so far.", (void *)TOTAL_BYTES},
    {"total_lines", (getter)keeper_count, NULL, "Line ends (LF) fed so far.", (void *)TOTAL_LINES},
    {"dropped_bytes", (getter)keeper_count, NULL, "Bytes fed that result() leaves out.",
     (void *)DROPPED_BYTES},
    {"dropped_lines", (getter)keeper_count, NULL, "Line ends (LF) fed that result() leaves out.",
     (void *)DROPPED_LINES},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot keeper_slots[] = {
    {Py_tp_doc, "TailKeeper(max_bytes)\n--\n\n"
                "Keep the last bytes of a stream of any length in memory bounded by max_bytes.\n\n"
                "max_bytes is an int of any size, at least 1 (ValueError). Several threads may "
                "feed one keeper."},
    {Py_tp_new, (void *)keeper_new},
    {Py_tp_dealloc, (void *)keeper_dealloc},
    {Py_tp_methods, keeper_methods},
    {Py_tp_getset, keeper_properties},
    {0, NULL},
};

static PyType_Spec keeper_spec = {
    .name = "sandbox_native._sandbox_native.TailKeeper",
    .basicsize = sizeof(struct keeper),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = keeper_slots,
};

int sn_py_add_tail_keeper(PyObject *module)
{
    return sn_py_add_type(module, &keeper_spec);
}
