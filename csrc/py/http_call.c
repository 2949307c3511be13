/* SPDX-License-Identifier: Apache-2.0 */
#include "py/http_call.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "py/errors.h"

/* ---- arguments ---- */

/* The text of a str. The exception shows nothing of it: it may be a secret. */
static const char *text_of(PyObject *object, size_t *len, const char *what)
{
    Py_ssize_t size = 0;
    const char *text;

    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be str", what);
        return NULL;
    }
    text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "invalid %s: not encodable", what);
        return NULL;
    }
    *len = (size_t)size;
    return text;
}

static int parse_headers(PyObject *tuple, size_t reserve, struct sn_http_call *call)
{
    Py_ssize_t count = PyTuple_Size(tuple);

    if (count < 0) {
        return -1;
    }
    call->headers = sn_calloc((size_t)count + reserve, sizeof *call->headers);
    if (call->headers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(tuple, i);
        struct sn_header *header = &call->headers[i];

        if (pair == NULL || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a header must be a tuple of name and value");
            return -1;
        }
        header->name = text_of(PyTuple_GetItem(pair, 0), &header->name_len, "header name");
        if (header->name == NULL) {
            return -1;
        }
        header->value = text_of(PyTuple_GetItem(pair, 1), &header->value_len, "header value");
        if (header->value == NULL) {
            return -1;
        }
    }
    call->request.headers = call->headers;
    call->request.header_count = (size_t)count;
    return 0;
}

static int parse_piece(PyObject *item, struct sn_http_call *call, struct sn_body_piece *piece)
{
    if (PyTuple_Check(item)) {
        long long offset, length;

        if (!PyArg_ParseTuple(item, "iLL", &piece->fd, &offset, &length)) {
            return -1;
        }
        if (piece->fd < 0) {
            PyErr_SetString(PyExc_ValueError, "invalid body: a descriptor cannot be negative");
            return -1;
        }
        piece->offset = offset;
        piece->len = length;
        return 0;
    }
    if (PyObject_GetBuffer(item, &call->views[call->view_count], PyBUF_SIMPLE) < 0) {
        return -1;
    }
    /* An empty buffer may have no address, which would read as a file. */
    piece->data =
        call->views[call->view_count].buf != NULL ? call->views[call->view_count].buf : "";
    piece->len = call->views[call->view_count].len;
    call->view_count++;
    return 0;
}

static int parse_body(PyObject *body, struct sn_http_call *call)
{
    Py_ssize_t count;

    if (body == Py_None) {
        return 0;
    }
    call->request.has_body = true;
    count = PyTuple_Size(body);
    if (count <= 0) {
        return count < 0 ? -1 : 0;
    }
    call->pieces = sn_calloc((size_t)count, sizeof *call->pieces);
    call->views = sn_calloc((size_t)count, sizeof *call->views);
    if (call->pieces == NULL || call->views == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (parse_piece(PyTuple_GetItem(body, i), call, &call->pieces[i]) < 0) {
            return -1;
        }
    }
    call->request.body.pieces = call->pieces;
    call->request.body.count = (size_t)count;
    return 0;
}

static int parse_proxy(PyObject *proxy, struct sn_http_call *call)
{
    size_t len;

    if (proxy == Py_None) {
        return 0;
    }
    call->request.proxy = text_of(proxy, &len, "proxy");
    if (call->request.proxy == NULL) {
        return -1;
    }
    if (len == 0 || strlen(call->request.proxy) != len ||
        !sn_http_value_ok(call->request.proxy, len)) {
        PyErr_SetString(PyExc_ValueError, "invalid proxy URL");
        return -1;
    }
    return 0;
}

/* Seconds as nanoseconds; what is too large to matter is the largest value. */
static int parse_seconds(double seconds, const char *what, int64_t *out)
{
    if (!isfinite(seconds)) {
        PyErr_Format(PyExc_ValueError, "invalid %s: it must be a finite number of seconds", what);
        return -1;
    }
    if (seconds <= 0) {
        *out = 0;
    } else {
        *out = seconds > 9e9 ? INT64_MAX : (int64_t)(seconds * (double)SN_NS_PER_S);
    }
    return 0;
}

int sn_http_call_set_deadline(struct sn_http_call *call, double deadline)
{
    return parse_seconds(deadline, "deadline", &call->request.deadline_ns);
}

int sn_http_call_parse(PyObject *tuple, size_t reserve, struct sn_http_call *call)
{
    struct sn_net_request *request = &call->request;
    PyObject *url, *headers, *body, *proxy, *stall;
    double deadline;
    int idempotent, compressed;
    Py_ssize_t max_head, max_error;
    const char *what;
    enum sn_status status;

    memset(call, 0, sizeof *call);
    if (!PyArg_ParseTuple(tuple, "sUO!OOdOippnn", &request->method, &url, &PyTuple_Type, &headers,
                          &body, &proxy, &deadline, &stall, &request->cancel_fd, &idempotent,
                          &compressed, &max_head, &max_error)) {
        return -1;
    }
    request->url = text_of(url, &request->url_len, "URL");
    if (request->url == NULL || parse_headers(headers, reserve, call) < 0 ||
        parse_body(body, call) < 0 || parse_proxy(proxy, call) < 0 ||
        sn_http_call_set_deadline(call, deadline) < 0) {
        return -1;
    }
    if (stall != Py_None) {
        double seconds = PyFloat_AsDouble(stall);

        if (seconds == -1.0 && PyErr_Occurred()) {
            return -1;
        }
        if (!(seconds > 0)) {
            PyErr_SetString(PyExc_ValueError, "invalid stall limit: it must be above 0 or None");
            return -1;
        }
        if (parse_seconds(seconds, "stall limit", &request->stall_ns) < 0) {
            return -1;
        }
    }
    if (max_head < 1 || max_error < 0) {
        PyErr_SetString(PyExc_ValueError,
                        "invalid cap on the head or the error body of the answer");
        return -1;
    }
    request->max_head = (size_t)max_head;
    request->max_error = (size_t)max_error;
    request->idempotent = idempotent != 0;
    request->compressed = compressed != 0;
    sn_py_wait_init(&call->wait);
    if (call->wait.tick.every_ms > 0) {
        request->tick = call->wait.tick.call;
        request->tick_ctx = call->wait.tick.context;
    }
    status = sn_net_check(request, &what);
    if (status == SN_INVALID) {
        PyErr_Format(PyExc_ValueError, "invalid %s", what);
        return -1;
    }
    if (status != SN_OK) {
        (void)sn_raise(status, "use the descriptor of the body");
        return -1;
    }
    return 0;
}

void sn_http_call_clear(struct sn_http_call *call)
{
    for (size_t i = 0; i < call->view_count; i++) {
        PyBuffer_Release(&call->views[i]);
    }
    call->view_count = 0;
    sn_free(call->views);
    sn_free(call->pieces);
    sn_free(call->headers);
    call->views = NULL;
    call->pieces = NULL;
    call->headers = NULL;
}

/* ---- the GIL ---- */

void sn_http_call_leave(struct sn_http_call *call)
{
    sn_py_wait_begin(&call->wait);
}

void sn_http_call_enter(struct sn_http_call *call)
{
    /* Not sn_py_wait_end: that this is a forked child is the transfer's to say. */
    PyEval_RestoreThread(call->wait.thread);
}

/* ---- the outcome ---- */

PyObject *sn_http_outcome(const struct sn_net_outcome *outcome, const struct sn_answer *answer)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (outcome->kind == SN_NET_MEMORY) {
        return sn_raise(SN_NO_MEMORY, "make the request");
    }
    return Py_BuildValue("(sNiy#y#NKLis)", sn_net_kind_name(outcome->kind),
                         PyBool_FromLong(outcome->sent), answer->head.status,
                         answer->head.text != NULL ? answer->head.text : "",
                         (Py_ssize_t)answer->head.len, answer->error != NULL ? answer->error : "",
                         (Py_ssize_t)answer->error_len, PyBool_FromLong(answer->error_cut),
                         (unsigned long long)outcome->received, (long long)outcome->announced,
                         outcome->os_error, outcome->detail);
}
