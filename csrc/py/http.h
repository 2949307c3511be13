/* SPDX-License-Identifier: Apache-2.0 */
/* The HttpClient object, shared by the files that hold its methods. */
#ifndef SN_PY_HTTP_H
#define SN_PY_HTTP_H

#include <Python.h>
#include <stdbool.h>

#include "net/client.h"
#include "net/transfer.h"
#include "py/http_call.h"

struct sn_http_client {
    PyObject_HEAD struct sn_client *client; /* NULL once closed and unused */
    Py_ssize_t calls;                       /* under way; changed with the GIL held */
    bool closed;
};

/* A lane for one call; NULL with an exception set. GIL held. */
struct sn_lane *sn_http_take_lane(struct sn_http_client *self);
void sn_http_give_back(struct sn_http_client *self, struct sn_lane *lane);

/* Makes the request of `call` on a lane of its own, with the GIL released meanwhile, and says how
 * it went in *outcome. GIL held. -1 with an exception set where there is no lane; *answer and
 * *outcome are then as they were. */
int sn_http_exchange(struct sn_http_client *self, struct sn_http_call *call,
                     const struct sn_sink *sink, struct sn_answer *answer,
                     struct sn_net_outcome *outcome);

PyObject *sn_http_download_to_fd(PyObject *self, PyObject *args);
PyObject *sn_http_download_to_write(PyObject *self, PyObject *args);

#endif
