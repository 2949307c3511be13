/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP group: the HttpClient type. Its callers are sandbox_native.http alone, which gives it
 * immutable arguments and turns its outcomes into answers and exceptions. */
#include "py/http.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "net/collect.h"
#include "net/events.h"
#include "py/errors.h"
#include "py/http_call.h"
#include "py/state.h"

/* Connecting for longer than this is no different from waiting for ever. */
#define MAX_SECONDS 86400.0

/* ---- lanes ---- */

static void end_client(struct sn_http_client *self)
{
    struct sn_client *client = self->client;

    self->client = NULL;
    sn_client_free(client);
}

struct sn_lane *sn_http_take_lane(struct sn_http_client *self)
{
    struct sn_lane *lane = NULL;
    const char *why = NULL;
    enum sn_status status;

    if (self->closed) {
        PyErr_SetString(PyExc_ValueError, "the client is closed");
        return NULL;
    }
    status = sn_client_take(self->client, &lane, &why);
    if (status == SN_CLOSED && why != NULL) {
        PyErr_SetString(PyExc_ImportError, why);
        return NULL;
    }
    if (status != SN_OK) {
        (void)sn_raise(status, "set up libcurl");
        return NULL;
    }
    self->calls++;
    return lane;
}

void sn_http_give_back(struct sn_http_client *self, struct sn_lane *lane)
{
    sn_client_give_back(self->client, lane);
    self->calls--;
    if (self->closed && self->calls == 0) {
        end_client(self);
    }
}

int sn_http_exchange(struct sn_http_client *self, struct sn_http_call *call,
                     const struct sn_sink *sink, struct sn_answer *answer,
                     struct sn_net_outcome *outcome)
{
    struct sn_lane *lane = sn_http_take_lane(self);

    if (lane == NULL) {
        return -1;
    }
    sn_http_call_leave(call);
    sn_transfer(lane, &call->request, sink, answer, outcome);
    sn_http_call_enter(call);
    sn_http_give_back(self, lane);
    return 0;
}

/* ---- requests ---- */

static PyObject *http_request(PyObject *object, PyObject *args)
{
    struct sn_http_client *self = (struct sn_http_client *)object;
    struct sn_http_call call;
    struct sn_answer answer = {0};
    struct sn_net_outcome outcome;
    struct sn_collect collect = {0};
    struct sn_sink sink = sn_collect_sink(&collect);
    PyObject *tuple, *result = NULL;
    Py_ssize_t max_body;
    int may_cut;

    if (!PyArg_ParseTuple(args, "O!np", &PyTuple_Type, &tuple, &max_body, &may_cut)) {
        return NULL;
    }
    if (max_body < 0) {
        PyErr_SetString(PyExc_ValueError, "invalid cap on the body of the answer");
        return NULL;
    }
    collect.max = (size_t)max_body;
    collect.may_cut = may_cut != 0;
    if (sn_http_call_parse(tuple, 0, &call) < 0) {
        goto done;
    }
    if (sn_http_exchange(self, &call, &sink, &answer, &outcome) < 0) {
        goto done;
    }
    result = sn_http_outcome(&outcome, &answer);
    if (result != NULL) {
        result = Py_BuildValue("(Ny#N)", result, collect.data != NULL ? collect.data : "",
                               (Py_ssize_t)collect.len, PyBool_FromLong(collect.cut));
    }
done:
    sn_collect_clear(&collect);
    sn_answer_clear(&answer);
    sn_http_call_clear(&call);
    return result;
}

/* ---- events ---- */

struct event_call {
    struct sn_http_call *call;
    PyObject *on_events; /* borrowed from the arguments */
    bool done;
};

static PyObject *batch_list(const struct sn_event_batch *batch)
{
    PyObject *list = PyList_New((Py_ssize_t)batch->count);

    for (size_t i = 0; list != NULL && i < batch->count; i++) {
        const struct sn_event *event = &batch->events[i];
        PyObject *item =
            Py_BuildValue("(y#y#K)", batch->bytes + event->event_at, (Py_ssize_t)event->event_len,
                          batch->bytes + event->data_at, (Py_ssize_t)event->data_len,
                          (unsigned long long)event->total);

        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static enum sn_flow call_on_events(void *ctx, const struct sn_event_batch *batch)
{
    struct event_call *events = ctx;
    PyObject *list, *answer = NULL;
    int done = -1;

    /* ---- the GIL is held from here ---- */
    sn_http_call_enter(events->call);
    list = batch_list(batch);
    if (list != NULL) {
        answer = PyObject_CallFunctionObjArgs(events->on_events, list, NULL);
        Py_DECREF(list);
    }
    if (answer != NULL) {
        if (PyFloat_Check(answer)) { /* a new deadline, and more is to come */
            done = sn_http_call_set_deadline(events->call, PyFloat_AsDouble(answer));
        } else {
            done = PyObject_IsTrue(answer);
        }
        Py_DECREF(answer);
    }
    sn_http_call_leave(events->call);
    /* ---- and released from here ---- */
    if (done < 0) {
        return SN_FLOW_ABORT;
    }
    events->done = done > 0;
    return done > 0 ? SN_FLOW_DONE : SN_FLOW_ON;
}

static PyObject *http_events(PyObject *object, PyObject *args)
{
    struct sn_http_client *self = (struct sn_http_client *)object;
    struct sn_http_call call;
    struct event_call context = {.call = &call};
    struct sn_answer answer = {0};
    struct sn_net_outcome outcome;
    struct sn_events *events = NULL;
    struct sn_sink sink;
    PyObject *tuple, *result = NULL;
    Py_ssize_t max_frame;
    enum sn_status status;

    if (!PyArg_ParseTuple(args, "O!On", &PyTuple_Type, &tuple, &context.on_events, &max_frame)) {
        return NULL;
    }
    if (max_frame < 1) {
        PyErr_SetString(PyExc_ValueError, "invalid cap on an event");
        return NULL;
    }
    if (sn_http_call_parse(tuple, 0, &call) < 0) {
        goto done;
    }
    status = sn_events_new((size_t)max_frame, call_on_events, &context, &events);
    if (status != SN_OK) {
        (void)sn_raise(status, "read an event stream");
        goto done;
    }
    sink = sn_events_sink(events);
    if (sn_http_exchange(self, &call, &sink, &answer, &outcome) < 0) {
        goto done;
    }
    result = sn_http_outcome(&outcome, &answer);
    if (result != NULL) {
        result = Py_BuildValue("(NN)", result, PyBool_FromLong(context.done));
    }
done:
    sn_events_free(events);
    sn_answer_clear(&answer);
    sn_http_call_clear(&call);
    return result;
}

/* ---- the rest of the type ---- */

static PyObject *http_close(PyObject *object, PyObject *unused)
{
    struct sn_http_client *self = (struct sn_http_client *)object;

    (void)unused;
    self->closed = true;
    if (self->calls == 0) {
        end_client(self);
    }
    Py_RETURN_NONE;
}

static PyObject *http_after_fork(PyObject *object, PyObject *unused)
{
    struct sn_http_client *self = (struct sn_http_client *)object;

    (void)unused;
    if (self->client != NULL) {
        sn_client_after_fork(self->client);
    }
    Py_RETURN_NONE;
}

static PyObject *http_lanes(PyObject *object, PyObject *unused)
{
    struct sn_http_client *self = (struct sn_http_client *)object;
    unsigned lanes = 0, idle = 0;

    (void)unused;
    if (self->client != NULL) {
        sn_client_count(self->client, &lanes, &idle);
    }
    return Py_BuildValue("(II)", lanes, idle);
}

static int seconds_to_ns(double seconds, const char *what, int64_t *out)
{
    if (!isfinite(seconds) || seconds < 0.001 || seconds > MAX_SECONDS) {
        PyErr_Format(PyExc_ValueError, "invalid %s: it must be from 0.001 to %d seconds", what,
                     (int)MAX_SECONDS);
        return -1;
    }
    *out = (int64_t)(seconds * (double)SN_NS_PER_S);
    return 0;
}

static PyObject *http_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ca_file", "ca_dir", "connect_timeout", "keep_alive", NULL};
    struct sn_client_config config = {0};
    struct sn_http_client *self;
    double connect_timeout, keep_alive;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    enum sn_status status;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "zzdd:HttpClient", names, &config.ca_file,
                                     &config.ca_dir, &connect_timeout, &keep_alive) ||
        seconds_to_ns(connect_timeout, "connect timeout", &config.connect_ns) < 0 ||
        seconds_to_ns(keep_alive, "keep-alive time", &config.keep_ns) < 0) {
        return NULL;
    }
    self = (struct sn_http_client *)alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    status = sn_client_new(&config, &self->client);
    if (status != SN_OK) {
        Py_DECREF(self);
        return sn_raise(status, "make an HTTP client");
    }
    return (PyObject *)self;
}

static void http_dealloc(PyObject *object)
{
    struct sn_http_client *self = (struct sn_http_client *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    end_client(self); /* no call is under way: each holds a reference */
    release(object);
    Py_DECREF(type);
}

static PyMethodDef http_methods[] = {
    {"request", http_request, METH_VARARGS, NULL},
    {"events", http_events, METH_VARARGS, NULL},
    {"download_to_fd", sn_http_download_to_fd, METH_VARARGS, NULL},
    {"download_to_write", sn_http_download_to_write, METH_VARARGS, NULL},
    {"close", http_close, METH_NOARGS, NULL},
    {"after_fork", http_after_fork, METH_NOARGS, NULL},
    {"lanes", http_lanes, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot http_slots[] = {
    {Py_tp_new, (void *)http_new},
    {Py_tp_dealloc, (void *)http_dealloc},
    {Py_tp_methods, http_methods},
    {Py_tp_doc,
     "Requests over libcurl with a pool of connections. Used through sandbox_native.http."},
    {0, NULL},
};

static PyType_Spec http_spec = {
    .name = "sandbox_native._sandbox_native.HttpClient",
    .basicsize = sizeof(struct sn_http_client),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = http_slots,
};

int sn_py_add_http(PyObject *module)
{
    return sn_py_add_type(module, &http_spec);
}
