/* SPDX-License-Identifier: Apache-2.0 */
#include "py/arguments.h"

#include <limits.h>
#include <stdint.h>

bool sn_check_count(const char *name, Py_ssize_t got, Py_ssize_t wanted)
{
    if (got == wanted) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, got %zd", name, wanted, got);
    return false;
}

bool sn_read_clamped(PyObject *object, const char *name, size_t *out, bool *clamped)
{
    PyObject *index = PyNumber_Index(object);
    long long value;
    int overflow;

    if (index == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Format(PyExc_TypeError, "%s must be an int", name);
        }
        return false;
    }
    value = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (value == -1 && overflow == 0 && PyErr_Occurred() != NULL) {
        return false;
    }
    if (overflow > 0 || (overflow == 0 && value > PY_SSIZE_T_MAX / 2)) {
        *out = PY_SSIZE_T_MAX / 2;
        overflow = 1;
    } else {
        *out = overflow < 0 || value < 0 ? 0 : (size_t)value;
        overflow = 0;
    }
    if (clamped != NULL) {
        *clamped = overflow != 0;
    }
    return true;
}

bool sn_read_cap(PyObject *object, const char *name, size_t *out)
{
    if (!sn_read_clamped(object, name, out, NULL)) {
        return false;
    }
    if (*out < 1) {
        PyErr_Format(PyExc_ValueError, "%s must be at least 1, got %R", name, object);
        return false;
    }
    return true;
}

int sn_convert_uint64(PyObject *object, void *out)
{
    PyObject *index = PyNumber_Index(object);
    unsigned long long value;
    long long small;
    int overflow;

    if (index == NULL) {
        return 0;
    }
    small = PyLong_AsLongLongAndOverflow(index, &overflow);
    if (overflow < 0 || (overflow == 0 && small < 0)) {
        Py_DECREF(index);
        if (PyErr_Occurred() == NULL) {
            PyErr_SetString(PyExc_ValueError, "a number must not be negative");
        }
        return 0;
    }
    value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() != NULL) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError)) {
            return 0;
        }
        PyErr_Clear();
        value = UINT64_MAX;
    }
    *(uint64_t *)out = value;
    return 1;
}

int sn_read_descriptor(PyObject *object)
{
    long number = PyLong_AsLong(object);

    if (PyErr_Occurred() != NULL && !PyErr_ExceptionMatches(PyExc_OverflowError)) {
        return -1;
    }
    if (PyErr_Occurred() != NULL || number < 0 || number > INT_MAX) {
        PyErr_Clear();
        PyErr_SetString(PyExc_ValueError, "invalid descriptor");
        return -1;
    }
    return (int)number;
}
