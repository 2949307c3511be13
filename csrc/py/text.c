/* SPDX-License-Identifier: Apache-2.0 */
/* Text group: bounded output for the model. */
#include "py/state.h"

#include "py/errors.h"

static PyMethodDef text_methods[] = {
    {NULL, NULL, 0, NULL},
};

int sn_py_add_text(PyObject *module)
{
    return PyModule_AddFunctions(module, text_methods);
}
