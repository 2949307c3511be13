/* SPDX-License-Identifier: Apache-2.0 */
/* Process group: CommandOutcome, and programs on the host. */
#include "py/state.h"

#include <fcntl.h>
#include <unistd.h>

#include "core/process.h"
#include "py/errors.h"
#include "py/wait.h"

PyDoc_STRVAR(
    run_process_doc,
    "run_process(program, argv, env, cwd, *, timeout, max_output_bytes, cancel_fd=-1)\n--\n\n"
    "Run a program on the host under the guest program at path `program`; argv and env are blocks\n"
    "of NUL-ended strings. Returns a CommandOutcome.");

static PyObject *run_process(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"program",          "argv",      "env", "cwd", "timeout",
                            "max_output_bytes", "cancel_fd", NULL};
    PyObject *program = NULL, *cwd = NULL;
    const char *argv, *env;
    Py_ssize_t argv_len, env_len, max_output = 0;
    double timeout = 0;
    int cancel = -1;
    struct sn_py_wait wait;
    struct sn_drain drain;
    struct sn_outcome outcome;
    int64_t deadline;
    PyObject *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&y#y#O&|$dni", names, PyUnicode_FSConverter,
                                     &program, &argv, &argv_len, &env, &env_len,
                                     PyUnicode_FSConverter, &cwd, &timeout, &max_output, &cancel)) {
        return NULL;
    }
    sn_py_wait_init(&wait);
    if (sn_py_deadline(timeout, "timeout", &deadline) < 0 ||
        sn_py_drain_init(&drain, max_output, deadline, cancel, &wait) < 0) {
        Py_XDECREF(cwd);
        Py_XDECREF(program);
        return NULL;
    }
    struct sn_request request = {.flags = SN_REQUEST_ARGV,
                                 .env = env,
                                 .env_bytes = (size_t)env_len,
                                 .cwd = PyBytes_AsString(cwd),
                                 .text = argv,
                                 .text_bytes = (size_t)argv_len};
    enum sn_status status = SN_SYSTEM;
    int program_fd = open(PyBytes_AsString(program), O_RDONLY | O_CLOEXEC);
    if (program_fd >= 0) {
        sn_py_wait_begin(&wait);
        status = sn_process_run(program_fd, &request, &drain, &outcome);
        sn_py_wait_end(&wait);
        close(program_fd);
    }
    if (status != SN_OK) {
        (void)sn_raise(status, "run a program");
    } else if (!wait.raised) {
        result = sn_py_outcome(module, &drain, &outcome);
    }
    sn_py_drain_release(&drain);
    Py_XDECREF(cwd);
    Py_XDECREF(program);
    return result;
}

static PyStructSequence_Field outcome_fields[] = {
    {"ending",
     "'exit', 'timeout', 'cancel', 'failed' (never started) or 'lost' (the handler vanished)"},
    {"value", "exit status (128+N for signal N) after 'exit', errno after 'failed'"},
    {"stdout", "the last bytes of standard output, without the rest of a cut character"},
    {"stderr", "the last bytes of standard error"},
    {"stdout_dropped", "bytes of standard output that were not kept"},
    {"stderr_dropped", "bytes of standard error that were not kept"},
    {"stage", "after 'failed': what failed, enum sn_guest_stage"},
    {"killed", "False when it could not be confirmed that all of the tree is gone"},
    {NULL, NULL},
};

static PyStructSequence_Desc outcome_desc = {
    .name = "sandbox_native._sandbox_native.CommandOutcome",
    .doc = "How a command ended and the end of what it printed.",
    .fields = outcome_fields,
    .n_in_sequence = 8,
};

static PyMethodDef process_methods[] = {
    {"run_process", (PyCFunction)(void (*)(void))run_process, METH_VARARGS | METH_KEYWORDS,
     run_process_doc},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_process(PyObject *module)
{
    struct sn_state *state = sn_state_of(module);

    state->command_outcome_type = (PyObject *)PyStructSequence_NewType(&outcome_desc);
    if (state->command_outcome_type == NULL ||
        PyModule_AddObjectRef(module, "CommandOutcome", state->command_outcome_type) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, process_methods);
}
