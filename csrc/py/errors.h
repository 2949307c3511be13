/* SPDX-License-Identifier: Apache-2.0 */
/* The one place where a core status becomes a Python exception. */
#ifndef SN_PY_ERRORS_H
#define SN_PY_ERRORS_H

#include <Python.h>

#include "core/status.h"

/* Sets the exception for `status` (never SN_OK) and returns NULL. `what` completes the sentence
 * "could not <what>" and is copied. SN_SYSTEM reads errno, so call it right after the failure.
 * GIL held.
 *   SN_NO_MEMORY MemoryError | SN_INVALID ValueError | SN_TOO_LARGE OverflowError
 *   SN_SYSTEM OSError | SN_TIMED_OUT TimeoutError | SN_CANCELLED InterruptedError
 *   SN_CLOSED ConnectionError */
PyObject *sn_raise(enum sn_status status, const char *what);

#endif
