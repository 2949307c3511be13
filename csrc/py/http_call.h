/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP call seen from Python: arguments in, outcome out, and what runs in between. */
#ifndef SN_PY_HTTP_CALL_H
#define SN_PY_HTTP_CALL_H

#include <Python.h>

#include "net/transfer.h"
#include "py/wait.h"

/* Who keeps whom alive: `request` points into the Python objects of the argument tuple, which the
 * caller of the method holds for the whole call and which are all immutable, and into `headers`,
 * `pieces` and `views`, which are the call's. */
struct sn_http_call {
    struct sn_net_request request;
    struct sn_header *headers;
    struct sn_body_piece *pieces;
    Py_buffer *views;
    size_t view_count;
    struct sn_py_wait wait; /* holds the thread state while the GIL is released */
};

/* Reads the request tuple (see HttpClient in the stub). `reserve` header places are left free at
 * the end for the caller to fill. GIL held. -1 with an exception set, which names no header value;
 * then and later sn_http_call_clear ends it. */
int sn_http_call_parse(PyObject *tuple, size_t reserve, struct sn_http_call *call);
void sn_http_call_clear(struct sn_http_call *call);

/* Sets the deadline, a value of time.monotonic(); during the transfer, too, from one of its hooks.
 * GIL held. -1 with an exception set. */
int sn_http_call_set_deadline(struct sn_http_call *call, double deadline);

/* Release and take the GIL around and within a transfer. In the main thread the transfer takes it
 * every 0.2 s for the signal handlers written in Python. */
void sn_http_call_leave(struct sn_http_call *call);
void sn_http_call_enter(struct sn_http_call *call);

/* The outcome as the tuple of the stub's `_Outcome`; takes the answer's contents along. NULL with
 * an exception set, which is the pending one if a hook left one. GIL held. */
PyObject *sn_http_outcome(const struct sn_net_outcome *outcome, const struct sn_answer *answer);

#endif
