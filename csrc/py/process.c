/* SPDX-License-Identifier: Apache-2.0 */
/* Process group: CommandOutcome, and programs on the host. */
#include "py/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "core/process.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/wait.h"

/* What both functions are told of a program. */
struct program {
    PyObject *path, *cwd; /* bytes, owned */
    const char *argv, *env;
    Py_ssize_t argv_len, env_len;
    double timeout;
    Py_ssize_t max_output;
    int cancel, input;
};

static void release(struct program *self)
{
    Py_CLEAR(self->path);
    Py_CLEAR(self->cwd);
}

/* Runs it without the GIL. A failure of this side sets an exception: then NULL. *target_failed is
 * read after the run: what is to take the output failed, not the run. */
static PyObject *run(PyObject *module, const struct program *self, struct sn_drain *drain,
                     struct sn_py_wait *wait, const bool *target_failed)
{
    struct sn_outcome outcome;
    struct sn_request request = {.flags = SN_REQUEST_ARGV,
                                 .env = self->env,
                                 .env_bytes = (size_t)self->env_len,
                                 .cwd = PyBytes_AsString(self->cwd),
                                 .text = self->argv,
                                 .text_bytes = (size_t)self->argv_len};
    enum sn_status status = SN_SYSTEM;
    int program = open(PyBytes_AsString(self->path), O_RDONLY | O_CLOEXEC);

    if (program >= 0) {
        sn_py_wait_begin(wait);
        status = sn_process_run(program, self->input, &request, drain, &outcome);
        int saved = errno;
        sn_py_wait_end(wait);
        close(program);
        errno = saved;
    }
    if (wait->raised) {
        return NULL; /* the exception is set */
    }
    if (status == SN_OK) {
        return sn_py_outcome(module, drain, &outcome);
    }
    return sn_raise(status, *target_failed ? "write what the program printed" : "run a program");
}

struct descriptor {
    int fd;
    bool failed; /* the failure was its */
};

PyDoc_STRVAR(
    run_process_doc,
    "run_process(program, argv, env, cwd, *, timeout, max_output_bytes, cancel_fd=-1,\n"
    "            stdin_fd=-1, stdout_fd=-1, stderr_fd=-1)\n--\n\n"
    "Run a program on the host under the guest program at path `program`; argv and env are blocks\n"
    "of NUL-ended strings. What it prints goes to the two descriptors, too, as it comes.\n"
    "Returns a CommandOutcome.");

static PyObject *run_process(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "program",   "argv",     "env",       "cwd",       "timeout", "max_output_bytes",
        "cancel_fd", "stdin_fd", "stdout_fd", "stderr_fd", NULL};
    struct program program = {.cancel = -1, .input = -1};
    struct sn_py_wait wait;
    struct sn_drain drain;
    int64_t deadline;
    const bool no_target = false;
    int out_to = -1, err_to = -1;
    PyObject *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&y#y#O&|$dniiii", names, PyUnicode_FSConverter,
                                     &program.path, &program.argv, &program.argv_len, &program.env,
                                     &program.env_len, PyUnicode_FSConverter, &program.cwd,
                                     &program.timeout, &program.max_output, &program.cancel,
                                     &program.input, &out_to, &err_to)) {
        return NULL;
    }
    sn_py_wait_init(&wait);
    if (sn_py_deadline(program.timeout, "timeout", &deadline) == 0 &&
        sn_py_drain_init(&drain, program.max_output, deadline, program.cancel, &wait) == 0) {
        drain.out_to = out_to;
        drain.err_to = err_to;
        result = run(module, &program, &drain, &wait, &no_target);
        sn_py_drain_release(&drain);
    }
    release(&program);
    return result;
}

/* -- standard output whole ---------------------------------------------------------------- */

static enum sn_status to_descriptor(void *context, const char *data, size_t len)
{
    struct descriptor *self = context;

    while (len > 0) {
        ssize_t put = write(self->fd, data, len);
        if (put < 0 && errno != EINTR) {
            self->failed = true;
            return SN_SYSTEM;
        }
        data += put > 0 ? put : 0;
        len -= put > 0 ? (size_t)put : 0;
    }
    return SN_OK;
}

struct callback {
    PyObject *write; /* borrowed */
    struct sn_py_wait *wait;
};

static enum sn_status to_callback(void *context, const char *data, size_t len)
{
    struct callback *self = context;
    PyObject *bytes, *answer = NULL;

    sn_py_wait_end(self->wait);
    bytes = PyBytes_FromStringAndSize(data, (Py_ssize_t)len);
    if (bytes != NULL) {
        answer = PyObject_CallFunctionObjArgs(self->write, bytes, NULL);
    }
    self->wait->raised = answer == NULL;
    Py_XDECREF(answer);
    Py_XDECREF(bytes);
    sn_py_wait_begin(self->wait);
    return self->wait->raised || getpid() != self->wait->pid ? SN_CANCELLED : SN_OK;
}

PyDoc_STRVAR(
    stream_process_doc,
    "stream_process(program, argv, env, cwd, to, most, *, timeout, stall, max_output_bytes,\n"
    "               cancel_fd=-1)\n--\n\n"
    "Run a program as run_process does and give its standard output whole to `to`: the descriptor "
    "of\n"
    "a regular file, or a callable that takes bytes, in this thread. OverflowError when there is\n"
    "more than `most` bytes; an ending of 'timeout' also when none come for `stall` seconds.\n"
    "Returns (CommandOutcome, bytes given).");

static PyObject *stream_process(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "program",          "argv",      "env", "cwd", "to", "most", "timeout", "stall",
        "max_output_bytes", "cancel_fd", NULL};
    struct program program = {.cancel = -1, .input = -1};
    struct sn_py_wait wait;
    struct sn_drain drain;
    struct callback callback = {.wait = &wait};
    struct sn_drain_sink sink = {.write = to_callback, .context = &callback};
    uint64_t most;
    double stall = 0;
    int64_t deadline, stall_at;
    struct descriptor target = {.fd = -1};
    PyObject *result = NULL;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O&y#y#O&OO&|$ddni", names, PyUnicode_FSConverter, &program.path,
            &program.argv, &program.argv_len, &program.env, &program.env_len, PyUnicode_FSConverter,
            &program.cwd, &callback.write, sn_convert_uint64, &most, &program.timeout, &stall,
            &program.max_output, &program.cancel)) {
        return NULL;
    }
    if (PyLong_Check(callback.write)) {
        target.fd = sn_read_descriptor(callback.write);
        sink.write = to_descriptor;
        sink.context = &target;
    }
    sn_py_wait_init(&wait);
    if (!PyErr_Occurred() && sn_py_deadline(stall, "stall", &stall_at) == 0 &&
        sn_py_deadline(program.timeout, "timeout", &deadline) == 0 &&
        sn_py_drain_init(&drain, program.max_output, deadline, program.cancel, &wait) == 0) {
        sink.room = most;
        sink.stall_ns = stall_at - sn_clock_now();
        drain.sink = &sink;
        PyObject *outcome = run(module, &program, &drain, &wait, &target.failed);
        if (outcome != NULL) {
            result = Py_BuildValue("(NK)", outcome, (unsigned long long)sink.taken);
        }
        sn_py_drain_release(&drain);
    }
    release(&program);
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
    {"stream_process", (PyCFunction)(void (*)(void))stream_process, METH_VARARGS | METH_KEYWORDS,
     stream_process_doc},
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
