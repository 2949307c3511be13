/* SPDX-License-Identifier: Apache-2.0 */
#include "py/wait.h"

#include <math.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "py/errors.h"
#include "py/state.h"

#define TICK_MS 200
/* Longer than any machine runs; keeps the sum below INT64_MAX. */
#define LONGEST_SECONDS 1e9

static int check_signals(void *context)
{
    struct sn_py_wait *self = context;

    PyEval_RestoreThread(self->thread);
    self->raised = PyErr_CheckSignals() != 0;
    self->thread = PyEval_SaveThread();
    return self->raised || getpid() != self->pid;
}

void sn_py_wait_init(struct sn_py_wait *self)
{
    *self = (struct sn_py_wait){.tick = {.call = check_signals, .context = self}, .pid = getpid()};
    /* The main thread is the one whose id is the process's, after a fork as well. */
    if (syscall(SYS_gettid) == self->pid) {
        self->tick.every_ms = TICK_MS;
    }
}

void sn_py_wait_begin(struct sn_py_wait *self)
{
    self->thread = PyEval_SaveThread();
}

void sn_py_wait_end(struct sn_py_wait *self)
{
    PyEval_RestoreThread(self->thread);
    if (!self->raised && getpid() != self->pid) {
        PyErr_SetString(PyExc_RuntimeError, "forked in the middle of a call");
        self->raised = 1;
    }
}

int sn_py_deadline(double seconds, const char *name, int64_t *deadline)
{
    if (!isfinite(seconds) || seconds <= 0) {
        PyObject *given = PyFloat_FromDouble(seconds);
        if (given != NULL) {
            PyErr_Format(PyExc_ValueError, "%s must be a positive finite number, got %R", name,
                         given);
            Py_DECREF(given);
        }
        return -1;
    }
    if (seconds > LONGEST_SECONDS) {
        seconds = LONGEST_SECONDS;
    }
    *deadline = sn_clock_now() + (int64_t)(seconds * 1e9);
    return 0;
}

int sn_py_drain_init(struct sn_drain *drain, Py_ssize_t max_output_bytes, int64_t deadline,
                     int cancel, const struct sn_py_wait *wait)
{
    *drain = (struct sn_drain){.out = -1,
                               .err = -1,
                               .call = -1,
                               .cancel = cancel,
                               .deadline = deadline,
                               .out_to = -1,
                               .err_to = -1,
                               .tick = wait->tick};
    if (max_output_bytes < 1) {
        PyErr_Format(PyExc_ValueError, "max_output_bytes must be at least 1, got %zd",
                     max_output_bytes);
        return -1;
    }
    drain->buffer = sn_malloc(SN_DRAIN_BUFFER);
    if (drain->buffer == NULL || sn_tail_new((size_t)max_output_bytes, &drain->out_tail) != SN_OK ||
        sn_tail_new((size_t)max_output_bytes, &drain->err_tail) != SN_OK) {
        sn_py_drain_release(drain);
        (void)PyErr_NoMemory();
        return -1;
    }
    return 0;
}

void sn_py_drain_release(struct sn_drain *drain)
{
    sn_tail_free(drain->out_tail);
    sn_tail_free(drain->err_tail);
    sn_free(drain->buffer);
    drain->out_tail = drain->err_tail = NULL;
    drain->buffer = NULL;
}

/* The kept bytes without the rest of a character that lost its beginning. */
static PyObject *tail_bytes(const struct sn_tail *tail)
{
    size_t kept = sn_tail_kept(tail), cut = sn_tail_cut_char(tail);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)kept);

    if (bytes == NULL) {
        return NULL;
    }
    char *data = PyBytes_AsString(bytes);
    sn_tail_copy(tail, data);
    if (cut > 0) {
        PyObject *shorter = PyBytes_FromStringAndSize(data + cut, (Py_ssize_t)(kept - cut));
        Py_DECREF(bytes);
        bytes = shorter;
    }
    return bytes;
}

static PyObject *dropped(const struct sn_tail *tail)
{
    return PyLong_FromUnsignedLongLong(sn_tail_total_bytes(tail) - sn_tail_kept(tail));
}

PyObject *sn_py_outcome(PyObject *module, const struct sn_drain *drain,
                        const struct sn_outcome *outcome)
{
    static const char *const endings[] = {[SN_ENDED_EXIT] = "exit",
                                          [SN_ENDED_TIMEOUT] = "timeout",
                                          [SN_ENDED_CANCEL] = "cancel",
                                          [SN_ENDED_FAILED] = "failed",
                                          [SN_ENDED_LOST] = "lost"};
    PyObject *result =
        PyStructSequence_New((PyTypeObject *)sn_state_of(module)->command_outcome_type);
    PyObject *fields[8] = {PyUnicode_FromString(endings[outcome->ending]),
                           PyLong_FromLong(outcome->value),
                           tail_bytes(drain->out_tail),
                           tail_bytes(drain->err_tail),
                           dropped(drain->out_tail),
                           dropped(drain->err_tail),
                           PyLong_FromUnsignedLong(outcome->stage),
                           PyBool_FromLong(!outcome->unkilled)};
    int complete = result != NULL;

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        complete = complete && fields[i] != NULL;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (complete) {
            PyStructSequence_SetItem(result, (Py_ssize_t)i, fields[i]);
        } else {
            Py_XDECREF(fields[i]);
        }
    }
    if (!complete) {
        Py_CLEAR(result);
    }
    return result;
}
