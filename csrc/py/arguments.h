/* SPDX-License-Identifier: Apache-2.0 */
/* Reading arguments the same way in every group. GIL held. */
#ifndef SN_PY_ARGUMENTS_H
#define SN_PY_ARGUMENTS_H

#include <Python.h>
#include <stdbool.h>

/* False with TypeError set unless a function called `name` got `wanted` positional arguments. */
bool sn_check_count(const char *name, Py_ssize_t got, Py_ssize_t wanted);

/* Reads a cap: a Python int of any size, at least 1, clamped to what sums of sizes allow
 * (PY_SSIZE_T_MAX / 2). False with TypeError, or ValueError that names `name`, set. */
bool sn_read_cap(PyObject *object, const char *name, size_t *out);

/* Reads a Python int of any size, clamped to 0 from below and to PY_SSIZE_T_MAX / 2 from above.
 * *clamped (may be NULL) says that it was larger. False with TypeError set. */
bool sn_read_clamped(PyObject *object, const char *name, size_t *out, bool *clamped);

/* For "O&": a Python int of any size to a uint64_t. One that is larger is taken as the largest, a
 * negative one is a ValueError. */
int sn_convert_uint64(PyObject *object, void *out);

/* The descriptor that `object` names; -1 with TypeError or ValueError set for what is none. */
int sn_read_descriptor(PyObject *object);

#endif
