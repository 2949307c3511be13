/* SPDX-License-Identifier: Apache-2.0 */
/* What every call that waits shares: times from Python numbers, Python's signal handlers while the
 * GIL is released, and the drain of a command's output. */
#ifndef SN_PY_WAIT_H
#define SN_PY_WAIT_H

#include <Python.h>

#include "core/call.h"
#include "core/drain.h"

/* Python's signal handlers run only in the main thread, so only there the wait wakes for them. */
struct sn_py_wait {
    PyThreadState *thread;
    struct sn_tick tick;
    pid_t pid;  /* that the call was made in */
    int raised; /* Python code raised meanwhile: that exception is set once the GIL is back */
};

/* Prepares `self`. GIL held. */
void sn_py_wait_init(struct sn_py_wait *self);

/* Release and take back the GIL around a wait that uses self->tick. The end sets `raised`, and a
 * RuntimeError, in a child that a handler forked and returned to: the call is its parent's. */
void sn_py_wait_begin(struct sn_py_wait *self);
void sn_py_wait_end(struct sn_py_wait *self);

/* The deadline `seconds` from now. -1 with ValueError that names `name` unless 0 < seconds;
 * infinity is refused, too. GIL held. */
int sn_py_deadline(double seconds, const char *name, int64_t *deadline);

/* Makes tails of `max_output_bytes` and the buffer. -1 with an exception. GIL held. */
int sn_py_drain_init(struct sn_drain *drain, Py_ssize_t max_output_bytes, int64_t deadline,
                     int cancel, const struct sn_py_wait *wait);
void sn_py_drain_release(struct sn_drain *drain);

/* The CommandOutcome of a run. New reference, NULL with an exception. GIL held. */
PyObject *sn_py_outcome(PyObject *module, const struct sn_drain *drain,
                        const struct sn_outcome *outcome);

#endif
