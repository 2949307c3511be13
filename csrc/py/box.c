/* SPDX-License-Identifier: Apache-2.0 */
/* The type Box: one standing local sandbox. The Box owns the sn_box; a method keeps the Box alive
 * while it runs, so the box is freed only when nobody uses it. */
#include "py/state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/box.h"
#include "core/filecopy.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/wait.h"

struct box {
    PyObject_HEAD struct sn_box *box;
    PyObject *module;
};

/* The one check every method opens with. */
static struct sn_box *mine(PyObject *self)
{
    struct box *object = (struct box *)self;

    if (object->box == NULL || !sn_box_is_mine(object->box)) {
        PyErr_SetString(PyExc_ConnectionError, "the sandbox was not started by this process");
        return NULL;
    }
    return object->box;
}

/* -- starting ------------------------------------------------------------------------------ */

struct start_args {
    char *argv[512];
    struct sn_box_data data[SN_BOX_MAX_DATA];
    int groups[SN_BOX_MAX_GROUPS];
};

static int take_bytes(PyObject *sequence, Py_ssize_t index, char **bytes, Py_ssize_t *len)
{
    PyObject *item =
        PyTuple_GetItem(sequence, index); /* borrowed; the tuple is held by the caller */

    return item == NULL ? -1 : PyBytes_AsStringAndSize(item, bytes, len);
}

static int take_sequences(PyObject *argv, PyObject *data, PyObject *groups, struct start_args *out)
{
    Py_ssize_t argc = PyTuple_Size(argv), ndata = PyTuple_Size(data),
               ngroups = PyTuple_Size(groups);

    if (argc < 0 || ndata < 0 || ngroups < 0) {
        return -1;
    }
    if (argc >= (Py_ssize_t)(sizeof out->argv / sizeof out->argv[0]) || ndata > SN_BOX_MAX_DATA ||
        ngroups > SN_BOX_MAX_GROUPS) {
        PyErr_SetString(PyExc_ValueError, "too many arguments, files or groups for one sandbox");
        return -1;
    }
    for (Py_ssize_t i = 0; i < argc; i++) {
        if (take_bytes(argv, i, &out->argv[i], NULL) < 0) {
            return -1;
        }
    }
    out->argv[argc] = NULL;
    for (Py_ssize_t i = 0; i < ndata; i++) {
        char *bytes;
        Py_ssize_t len;
        if (take_bytes(data, i, &bytes, &len) < 0) {
            return -1;
        }
        out->data[i] = (struct sn_box_data){.bytes = bytes, .len = (size_t)len};
    }
    for (Py_ssize_t i = 0; i < ngroups; i++) {
        out->groups[i] = sn_read_descriptor(PyTuple_GetItem(groups, i));
        if (out->groups[i] < 0) {
            return -1;
        }
    }
    return 0;
}

PyDoc_STRVAR(
    start_box_doc,
    "start_box(program_fd, argv, data, groups, *, two_uids, command_uid, memory_bytes, "
    "file_bytes,\n"
    "          cpu_seconds, processes, open_files, refuse_sysv_ipc, timeout, cancel_fd=-1)\n--\n\n"
    "Start a sandbox with the guest program open at program_fd. argv (bytes) are the launcher's\n"
    "arguments, data the files bubblewrap makes, groups open cgroup.procs files. ConnectionError\n"
    "with what the start printed when it failed, TimeoutError, InterruptedError when cancelled.");

static PyObject *start_box(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "program_fd",   "argv",       "data",        "groups",    "two_uids",   "command_uid",
        "memory_bytes", "file_bytes", "cpu_seconds", "processes", "open_files", "refuse_sysv_ipc",
        "timeout",      "cancel_fd",  NULL};
    struct sn_box_options options = {.cancel = -1};
    struct sn_guest_limits *limits = &options.config.limits;
    struct start_args start;
    PyObject *argv, *data, *groups, *type = sn_state_of(module)->box_type;
    long command_uid = -1;
    int two_uids = 0;
    double timeout = 0;
    struct sn_py_wait wait;
    char error[SN_BOX_ERROR_MAX];

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "iO!O!O!|$plO&O&O&O&O&pdi", names, &options.program_fd, &PyTuple_Type,
            &argv, &PyTuple_Type, &data, &PyTuple_Type, &groups, &two_uids, &command_uid,
            sn_convert_uint64, &limits->memory_bytes, sn_convert_uint64, &limits->file_bytes,
            sn_convert_uint64, &limits->cpu_seconds, sn_convert_uint64, &limits->processes,
            sn_convert_uint64, &limits->open_files, &options.refuse_sysv_ipc, &timeout,
            &options.cancel)) {
        return NULL;
    }
    if (take_sequences(argv, data, groups, &start) < 0 ||
        sn_py_deadline(timeout, "timeout", &options.deadline) < 0) {
        return NULL;
    }
    sn_py_wait_init(&wait);
    options.argv = start.argv;
    options.data = start.data;
    options.ndata = (size_t)PyTuple_Size(data);
    options.groups = start.groups;
    options.ngroups = (size_t)PyTuple_Size(groups);
    options.config.version = SN_GUEST_VERSION;
    options.config.two_uids = (uint32_t)two_uids;
    options.config.uid = options.config.gid = 1000;
    options.command_uid = (unsigned)command_uid;
    options.tick = wait.tick;

    struct box *self = (struct box *)PyType_GenericAlloc((PyTypeObject *)type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->module = Py_NewRef(module);
    sn_py_wait_begin(&wait);
    enum sn_status status = sn_box_create(&options, &self->box, error);
    sn_py_wait_end(&wait);
    if (status == SN_OK) {
        return (PyObject *)self;
    }
    if (!wait.raised) {
        if (status == SN_CLOSED) {
            PyObject *text = PyUnicode_DecodeUTF8(error, (Py_ssize_t)strlen(error), "replace");
            if (text != NULL) {
                PyErr_SetObject(PyExc_ConnectionError, text);
                Py_DECREF(text);
            }
        } else {
            (void)sn_raise(status, "start a sandbox");
        }
    }
    Py_DECREF(self);
    return NULL;
}

/* -- calls --------------------------------------------------------------------------------- */

PyDoc_STRVAR(
    run_doc,
    "run(command, env, cwd, *, timeout, max_output_bytes, cancel_fd=-1, stdout_fd=-1, "
    "stderr_fd=-1)\n--\n\n"
    "Run a shell command; env is a block of NUL-ended NAME=VALUE. Returns a CommandOutcome. The\n"
    "two descriptors get the output as it comes. ConnectionError when the sandbox takes no more\n"
    "calls, BrokenPipeError when nobody reads from one of the two.");

static PyObject *box_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"command",   "env",       "cwd",       "timeout", "max_output_bytes",
                            "cancel_fd", "stdout_fd", "stderr_fd", NULL};
    struct sn_request request = {0};
    struct sn_box *box = mine(self);
    Py_ssize_t text_len, env_len, max_output = 0;
    double timeout = 0;
    int cancel = -1, out_to = -1, err_to = -1;
    struct sn_py_wait wait;
    struct sn_drain drain;
    struct sn_outcome outcome;
    int64_t deadline;
    PyObject *result = NULL;

    if (box == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "y#y#y|$dniii", names, &request.text, &text_len,
                                     &request.env, &env_len, &request.cwd, &timeout, &max_output,
                                     &cancel, &out_to, &err_to)) {
        return NULL;
    }
    request.text_bytes = (size_t)text_len;
    request.env_bytes = (size_t)env_len;
    sn_py_wait_init(&wait);
    if (sn_py_deadline(timeout, "timeout", &deadline) < 0 ||
        sn_py_drain_init(&drain, max_output, deadline, cancel, &wait) < 0) {
        return NULL;
    }
    drain.out_to = out_to;
    drain.err_to = err_to;
    sn_py_wait_begin(&wait);
    enum sn_status status = sn_box_run(box, &request, &drain, &outcome);
    sn_py_wait_end(&wait);
    if (wait.raised) {
        /* The handler's exception is set. */
    } else if (status != SN_OK) {
        (void)sn_raise(status, "run a command in the sandbox");
    } else {
        result = sn_py_outcome(((struct box *)self)->module, &drain, &outcome);
    }
    sn_py_drain_release(&drain);
    return result;
}

static PyObject *os_error(int error)
{
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *checked(int fd, int for_writing)
{
    enum sn_file_kind kind;
    struct sn_file_stamp stamp;
    enum sn_status status = sn_file_check(fd, for_writing, &kind, &stamp);

    if (status == SN_OK && kind == SN_FILE_REGULAR) {
        PyObject *result = Py_BuildValue("(iL)", fd, (long long)stamp.size);
        if (result == NULL) {
            close(fd);
        }
        return result;
    }
    int saved = errno;
    close(fd);
    errno = saved;
    if (status != SN_OK) {
        return sn_raise(status, "look at a sandbox file");
    }
    switch (kind) {
    case SN_FILE_DIRECTORY:
        return os_error(EISDIR);
    case SN_FILE_KERNEL:
        return os_error(EOPNOTSUPP);
    case SN_FILE_FORGED:
        PyErr_SetString(PyExc_ConnectionError,
                        "the sandbox answered with another kind of descriptor");
        return NULL;
    default:
        return os_error(ENXIO);
    }
}

/* Sends a call on a path and waits for its reply. *fd is -1 with an exception set. */
static int ask(PyObject *self, enum sn_guest_op op, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "cwd", "timeout", "cancel_fd", NULL};
    struct sn_request request = {0};
    struct sn_box *box = mine(self);
    struct sn_guest_reply reply = {0};
    Py_ssize_t path_len;
    double timeout = 0;
    struct sn_py_wait wait;
    struct sn_watch watch = {.cancel = -1};
    int fd = -1;

    if (box == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "y#y|$di", names, &request.text, &path_len,
                                     &request.cwd, &timeout, &watch.cancel)) {
        return -1;
    }
    if (memchr(request.text, '\0', (size_t)path_len) != NULL) {
        PyErr_SetString(PyExc_ValueError, "path must not contain a NUL byte");
        return -1;
    }
    request.text_bytes = (size_t)path_len;
    if (sn_py_deadline(timeout, "timeout", &watch.deadline) < 0) {
        return -1;
    }
    sn_py_wait_init(&wait);
    watch.tick = wait.tick;
    sn_py_wait_begin(&wait);
    enum sn_status status = sn_box_open(box, op, &request, &watch, &reply, &fd);
    sn_py_wait_end(&wait);
    if (status != SN_OK || wait.raised) {
        if (!wait.raised) {
            (void)sn_raise(status, "reach a sandbox file");
        }
        return -1;
    }
    if (fd < 0) {
        (void)os_error(reply.value);
    }
    return fd;
}

PyDoc_STRVAR(open_read_doc,
             "open_read(path, cwd, *, timeout, cancel_fd=-1)\n--\n\n"
             "Open a regular file inside; (descriptor, size). OSError with the errno of inside,\n"
             "EISDIR for a directory, ENXIO for a fifo, socket or device, EOPNOTSUPP for procfs\n"
             "and the like.");

static PyObject *box_open_read(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int fd = ask(self, SN_GUEST_READ, args, kwargs);

    return fd < 0 ? NULL : checked(fd, 0);
}

PyDoc_STRVAR(
    open_write_doc,
    "open_write(path, cwd, *, timeout, cancel_fd=-1)\n--\n\n"
    "Open a regular file inside to replace its content, made with its parents where it is\n"
    "missing; (descriptor, size). Errors as of open_read.");

static PyObject *box_open_write(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int fd = ask(self, SN_GUEST_WRITE, args, kwargs);

    return fd < 0 ? NULL : checked(fd, 1);
}

PyDoc_STRVAR(open_list_doc,
             "open_list(path, cwd, *, timeout, cancel_fd=-1)\n--\n\n"
             "The descriptor on which the records of a directory come: 'd' or 'f', the name, NUL;\n"
             "an empty record last.");

static PyObject *box_open_list(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int fd = ask(self, SN_GUEST_LIST, args, kwargs);

    return fd < 0 ? NULL : PyLong_FromLong(fd);
}

PyDoc_STRVAR(gone_doc,
             "is_gone(wait_ms=0)\n--\n\nWhether the sandbox takes no more calls; waits for that.");

static PyObject *box_is_gone(PyObject *self, PyObject *args)
{
    struct sn_box *box = mine(self);
    int wait_ms = 0, gone;

    if (box == NULL || !PyArg_ParseTuple(args, "|i", &wait_ms)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS gone = sn_box_is_gone(box, wait_ms);
    Py_END_ALLOW_THREADS return PyBool_FromLong(gone);
}

PyDoc_STRVAR(
    end_doc,
    "end()\n--\n\nEnd the sandbox and wait; True when it is known to be gone. Idempotent.");

static PyObject *box_end(PyObject *self, PyObject *unused)
{
    struct sn_box *box = mine(self);
    int gone;

    (void)unused;
    if (box == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS gone = sn_box_end(box);
    Py_END_ALLOW_THREADS return PyBool_FromLong(gone);
}

static void box_dealloc(PyObject *self)
{
    struct box *object = (struct box *)self;
    PyTypeObject *type = Py_TYPE(self);

    sn_box_free(object->box);
    Py_XDECREF(object->module);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void)) function, METH_VARARGS | METH_KEYWORDS

static PyMethodDef box_methods[] = {
    {"run", KEYWORDS(box_run), run_doc},
    {"open_read", KEYWORDS(box_open_read), open_read_doc},
    {"open_write", KEYWORDS(box_open_write), open_write_doc},
    {"open_list", KEYWORDS(box_open_list), open_list_doc},
    {"is_gone", box_is_gone, METH_VARARGS, gone_doc},
    {"end", box_end, METH_NOARGS, end_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot box_slots[] = {
    {Py_tp_doc, (void *)"One standing local sandbox; made by start_box."},
    {Py_tp_dealloc, (void *)box_dealloc},
    {Py_tp_methods, box_methods},
    {0, NULL},
};

static PyType_Spec box_spec = {
    .name = "sandbox_native._sandbox_native.Box",
    .basicsize = sizeof(struct box),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = box_slots,
};

static PyMethodDef module_methods[] = {
    {"start_box", KEYWORDS(start_box), start_box_doc},
    {NULL, NULL, 0, NULL},
};

int sn_py_add_box(PyObject *module)
{
    struct sn_state *state = sn_state_of(module);

    state->box_type = PyType_FromModuleAndSpec(module, &box_spec, NULL);
    if (state->box_type == NULL || PyModule_AddObjectRef(module, "Box", state->box_type) < 0 ||
        PyModule_AddIntConstant(module, "BOX_FD_SECCOMP", SN_FD_SECCOMP) < 0 ||
        PyModule_AddIntConstant(module, "BOX_FD_USERNS", SN_FD_USERNS) < 0 ||
        PyModule_AddIntConstant(module, "BOX_FD_PROGRAM", SN_FD_PROGRAM) < 0 ||
        PyModule_AddIntConstant(module, "BOX_FD_DATA", SN_FD_FIRST_DATA) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, module_methods);
}
