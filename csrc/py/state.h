/* SPDX-License-Identifier: Apache-2.0 */
/* State of one module instance, and the entry point of each group of exported names. */
#ifndef SN_PY_STATE_H
#define SN_PY_STATE_H

#include <Python.h>

/* Owned references; released by the module's traverse/clear in module.c. New types and cached
 * objects are added here and in SN_STATE_FIELDS, which keeps traverse and clear complete. */
struct sn_state {
    PyObject *str_isascii; /* str.isascii, the one cheap way to learn it under the Limited API */
    PyObject *command_outcome_type; /* process.c */
    PyObject *box_type;             /* box.c */
};
#define SN_STATE_FIELDS(X)                                                                         \
    X(str_isascii)                                                                                 \
    X(command_outcome_type)                                                                        \
    X(box_type)

/* The state of the module `module`. Borrowed; valid as long as the module is. GIL held. */
struct sn_state *sn_state_of(PyObject *module);

/* Makes the type of `spec` and adds it to `module`, which then owns it. GIL held. -1 with an
 * exception set on failure. */
int sn_py_add_type(PyObject *module, PyType_Spec *spec);

/* Each adds the names of one group to `module`. GIL held. -1 with an exception set on failure. */
int sn_py_add_text(PyObject *module);
int sn_py_add_process(PyObject *module);
int sn_py_add_box(PyObject *module);
int sn_py_add_files(PyObject *module);
int sn_py_add_http(PyObject *module);
int sn_py_add_tail_keeper(PyObject *module);
int sn_py_add_base64(PyObject *module);
int sn_py_add_masking(PyObject *module);
int sn_py_add_slice(PyObject *module);

#endif
