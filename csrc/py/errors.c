/* SPDX-License-Identifier: Apache-2.0 */
#include "py/errors.h"

#include <errno.h>
#include <string.h>

PyObject *sn_raise(enum sn_status status, const char *what)
{
    int saved = errno;
    PyObject *kind = NULL;

    switch (status) {
    case SN_NO_MEMORY:
        return PyErr_NoMemory();
    case SN_INVALID:
        kind = PyExc_ValueError;
        break;
    case SN_TOO_LARGE:
        kind = PyExc_OverflowError;
        break;
    case SN_TIMED_OUT:
        kind = PyExc_TimeoutError;
        break;
    case SN_CANCELLED:
        kind = PyExc_InterruptedError;
        break;
    case SN_CLOSED:
        kind = PyExc_ConnectionError;
        break;
    case SN_SYSTEM: {
        PyObject *args = Py_BuildValue(
            "(iN)", saved, PyUnicode_FromFormat("could not %s: %s", what, strerror(saved)));
        if (args != NULL) {
            PyErr_SetObject(PyExc_OSError, args);
            Py_DECREF(args);
        }
        return NULL;
    }
    case SN_OK:
        break;
    }
    if (kind == NULL) {
        PyErr_Format(PyExc_SystemError, "could not %s: no failure to report", what);
        return NULL;
    }
    PyErr_Format(kind, "could not %s", what);
    return NULL;
}
