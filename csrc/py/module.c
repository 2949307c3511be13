/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-phase initialisation of sandbox_native._sandbox_native. */
#include "py/state.h"

static int module_exec(PyObject *module)
{
    static int (*const groups[])(PyObject *) = {
        sn_py_add_text,   sn_py_add_process, sn_py_add_box,
        sn_py_add_files,  sn_py_add_http,    sn_py_add_tail_keeper,
        sn_py_add_base64, sn_py_add_masking, sn_py_add_slice,
    };

    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if (groups[i](module) < 0) {
            return -1;
        }
    }
    return 0;
}

struct sn_state *sn_state_of(PyObject *module)
{
    return (struct sn_state *)PyModule_GetState(module);
}

int sn_py_add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int result;

    if (type == NULL) {
        return -1;
    }
    result = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return result;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct sn_state *state = sn_state_of(module);
#define SN_VISIT(field) Py_VISIT(state->field);
    SN_STATE_FIELDS(SN_VISIT)
#undef SN_VISIT
    return 0;
}

static int module_clear(PyObject *module)
{
    struct sn_state *state = sn_state_of(module);
#define SN_CLEAR(field) Py_CLEAR(state->field);
    SN_STATE_FIELDS(SN_CLEAR)
#undef SN_CLEAR
    return 0;
}

static void module_free(void *module)
{
    (void)module_clear((PyObject *)module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sandbox_native._sandbox_native",
    .m_doc = "C core of sandbox_native; the Python modules of the package present it.",
    .m_size = sizeof(struct sn_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__sandbox_native(void);

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__sandbox_native(void)
{
    return PyModuleDef_Init(&module_def);
}
