/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads of HttpClient: straight to a descriptor, or through a ring to a Python `write`. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "net/download.h"
#include "py/arguments.h"
#include "py/errors.h"
#include "py/http.h"
#include "py/http_call.h"

/* libcurl hands over what it read in one go; larger reads are fewer calls. */
#define RECEIVE_BUFFER ((size_t)256 * 1024)
/* Buffers that are on their way to `write` together: the memory of a download. */
#define RING_BUFFERS 4
#define RING_BUFFER_SIZE ((Py_ssize_t)512 * 1024)
#define CHECK_NS (SN_NS_PER_S / 5)

struct download_call {
    struct sn_http_call call;
    struct sn_download download;
    char range[SN_RANGE_SIZE];
    PyObject *dest; /* borrowed from the arguments */
};

/* Reads (request, dest, (ranged, first, last, size, max_bytes)). -1 with an exception set; ended by
 * sn_http_call_clear either way. */
static int parse(PyObject *args, struct download_call *self)
{
    struct sn_download *download = &self->download;
    PyObject *request;
    long long first, last, size, max_bytes;
    int ranged;

    memset(self, 0, sizeof *self);
    download->fd = -1;
    if (!PyArg_ParseTuple(args, "O!O(pLLLL)", &PyTuple_Type, &request, &self->dest, &ranged, &first,
                          &last, &size, &max_bytes) ||
        sn_http_call_parse(request, 1, &self->call) < 0) {
        return -1;
    }
    download->ranged = ranged != 0;
    download->first = first;
    download->last = last;
    download->size = size;
    download->max_bytes = max_bytes;
    self->call.request.buffer_size = RECEIVE_BUFFER;
    if (download->ranged) {
        struct sn_header *header = &self->call.headers[self->call.request.header_count++];

        sn_download_range(download, self->range);
        header->name = "Range";
        header->name_len = 5;
        header->value = self->range;
        header->value_len = strlen(self->range);
    }
    return 0;
}

static int check(const struct sn_download *download)
{
    const char *what;

    if (sn_download_check(download, &what) != SN_OK) {
        PyErr_Format(PyExc_ValueError, "invalid %s", what);
        return -1;
    }
    return 0;
}

static PyObject *result_of(const struct download_call *self, const struct sn_net_outcome *outcome,
                           const struct sn_answer *answer)
{
    PyObject *result = sn_http_outcome(outcome, answer);

    if (result == NULL) {
        return NULL;
    }
    return Py_BuildValue("(NLL)", result, (long long)self->download.taken,
                         (long long)self->download.total);
}

PyObject *sn_http_download_to_fd(PyObject *object, PyObject *args)
{
    struct sn_http_client *client = (struct sn_http_client *)object;
    struct download_call self;
    struct sn_answer answer = {0};
    struct sn_net_outcome outcome;
    struct sn_sink sink;
    PyObject *result = NULL;

    if (parse(args, &self) < 0) {
        goto done;
    }
    self.download.fd = sn_read_descriptor(self.dest);
    if (self.download.fd < 0 || check(&self.download) < 0) {
        goto done;
    }
    sink = sn_download_sink(&self.download);
    if (sn_http_exchange(client, &self.call, &sink, &answer, &outcome) < 0) {
        goto done;
    }
    sn_http_call_leave(&self.call);
    sn_download_finish(&self.download, &outcome);
    sn_http_call_enter(&self.call);
    result = result_of(&self, &outcome, &answer);
done:
    sn_answer_clear(&answer);
    sn_http_call_clear(&self.call);
    return result;
}

/* ---- through a ring ---- */

/* Each buffer of the ring is the inside of a bytes object that nobody else has seen. It is given to
 * `write` as it is and another takes its place, so nothing is copied and a sink may keep what it
 * got. */
struct ring_buffers {
    struct sn_ring *ring;
    PyObject *bytes[RING_BUFFERS];
};

/* All that the producing thread works with. Not on the stack: where Python ends a daemon thread
 * that wants the GIL back while the interpreter exits, the stack goes and the producing thread does
 * not.
 */
struct ring_call {
    struct download_call download;
    struct ring_buffers buffers;
    struct sn_producer producer;
};

static int lend(struct ring_buffers *buffers, unsigned at)
{
    enum sn_status status;

    buffers->bytes[at] = PyBytes_FromStringAndSize(NULL, RING_BUFFER_SIZE);
    if (buffers->bytes[at] == NULL) {
        return -1;
    }
    status = sn_ring_lend(buffers->ring, at, PyBytes_AsString(buffers->bytes[at]),
                          (size_t)RING_BUFFER_SIZE);
    if (status != SN_OK) {
        (void)sn_raise(status, "lend a buffer");
        return -1;
    }
    return 0;
}

/* Takes the filled buffer `at` out of the ring as a bytes object of its length. */
static PyObject *filled(struct ring_buffers *buffers, unsigned at, size_t len)
{
    PyObject *bytes = buffers->bytes[at];

    buffers->bytes[at] = NULL;
    if ((Py_ssize_t)len < RING_BUFFER_SIZE) {
        PyObject *shorter = PyBytes_FromStringAndSize(PyBytes_AsString(bytes), (Py_ssize_t)len);

        Py_DECREF(bytes);
        return shorter;
    }
    return bytes;
}

/* Calls write(bytes). One that takes less than it was given, as raw files do, is called again. */
static int write_bytes(PyObject *write, PyObject *bytes)
{
    Py_ssize_t len = PyBytes_Size(bytes), done = 0;

    while (done < len) {
        PyObject *rest, *answer;
        Py_ssize_t taken = len - done;

        rest = done == 0 ? Py_NewRef(bytes)
                         : PyBytes_FromStringAndSize(PyBytes_AsString(bytes) + done, len - done);
        if (rest == NULL) {
            return -1;
        }
        answer = PyObject_CallFunctionObjArgs(write, rest, NULL);
        Py_DECREF(rest);
        if (answer == NULL) {
            return -1;
        }
        if (PyLong_Check(answer)) {
            taken = PyLong_AsSsize_t(answer);
        }
        Py_DECREF(answer);
        if (taken <= 0 || taken > len - done) {
            if (!PyErr_Occurred()) {
                PyErr_SetString(PyExc_OSError,
                                "the destination's write() took no sensible number of bytes");
            }
            return -1;
        }
        done += taken;
    }
    return 0;
}

/* Whether Python code that ran here has forked and this is the child, where nobody fills the ring.
 * An exception is set then. */
static bool is_forked(pid_t pid)
{
    if (getpid() == pid) {
        return false;
    }
    PyErr_SetString(PyExc_RuntimeError, "forked in the middle of a download");
    return true;
}

/* Moves what the producer fills to `write` until it has finished. -1 with an exception set. */
static int consume(struct download_call *self, struct ring_buffers *buffers)
{
    pid_t pid = getpid();

    for (;;) {
        unsigned at = 0;
        size_t len = 0;
        enum sn_status status;
        PyObject *bytes;
        int failed;

        sn_http_call_leave(&self->call);
        status = sn_ring_take(buffers->ring, CHECK_NS, &at, &len);
        sn_http_call_enter(&self->call);
        if (status == SN_CLOSED) {
            return 0;
        }
        if (PyErr_CheckSignals() < 0 || is_forked(pid)) {
            return -1;
        }
        if (status != SN_OK) {
            continue;
        }
        bytes = filled(buffers, at, len);
        if (bytes == NULL) {
            return -1;
        }
        failed = write_bytes(self->dest, bytes);
        Py_DECREF(bytes);
        if (failed < 0 || is_forked(pid) || lend(buffers, at) < 0) {
            return -1;
        }
    }
}

/* Runs the producer with this thread as its consumer. The ring and the producer are left alone in a
 * child that was forked by `write`: its producing thread does not exist. */
static PyObject *run(struct sn_http_client *client, struct ring_call *self, struct sn_lane *lane)
{
    struct sn_http_call *call = &self->download.call;
    struct sn_producer *producer = &self->producer;
    pid_t pid = getpid();
    PyObject *result = NULL;
    int failed;

    producer->lane = lane;
    producer->request = &call->request;
    producer->download = &self->download.download;
    call->request.tick = NULL; /* signals are looked for here */
    if (sn_producer_start(producer) != SN_OK) {
        (void)sn_raise(SN_SYSTEM, "start a download thread");
        sn_http_give_back(client, lane);
        return NULL;
    }
    failed = consume(&self->download, &self->buffers);
    if (getpid() != pid) {
        client->calls--;
        return NULL;
    }
    sn_http_call_leave(call);
    if (failed < 0) {
        sn_producer_stop(producer);
    }
    sn_producer_join(producer);
    sn_http_call_enter(call);
    sn_http_give_back(client, lane);
    if (failed == 0) {
        result = result_of(&self->download, &producer->outcome, &producer->answer);
    }
    sn_answer_clear(&producer->answer);
    return result;
}

PyObject *sn_http_download_to_write(PyObject *object, PyObject *args)
{
    struct sn_http_client *client = (struct sn_http_client *)object;
    struct ring_call *self = sn_calloc(1, sizeof *self);
    struct sn_lane *lane;
    PyObject *result = NULL;
    pid_t pid = getpid();
    enum sn_status status;

    if (self == NULL) {
        return PyErr_NoMemory();
    }
    if (parse(args, &self->download) < 0) {
        goto done;
    }
    status = sn_ring_new(&self->buffers.ring);
    if (status != SN_OK) {
        (void)sn_raise(status, "make a ring of buffers");
        goto done;
    }
    self->download.download.ring = self->buffers.ring;
    if (check(&self->download.download) < 0) {
        goto done;
    }
    for (unsigned i = 0; i < RING_BUFFERS; i++) {
        if (lend(&self->buffers, i) < 0) {
            goto done;
        }
    }
    lane = sn_http_take_lane(client);
    if (lane != NULL) {
        result = run(client, self, lane);
    }
done:
    if (getpid() == pid) {
        sn_ring_free(self->buffers.ring);
    }
    for (unsigned i = 0; i < RING_BUFFERS; i++) {
        Py_XDECREF(self->buffers.bytes[i]);
    }
    sn_http_call_clear(&self->download.call);
    sn_free(self);
    return result;
}
