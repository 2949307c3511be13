/* SPDX-License-Identifier: Apache-2.0 */
/* A pass over bytes that is made without the GIL when it is long:
 *
 *     PyThreadState *gil = sn_gil_release_over(len);
 *     ... no Python here; the caller holds the buffer ...
 *     sn_gil_take(gil);
 */
#ifndef SN_PY_GIL_H
#define SN_PY_GIL_H

#include <Python.h>

/* Shorter passes are over before giving the lock away pays. */
#define SN_GIL_BYTES ((size_t)64 * 1024)

/* Releases the GIL for a pass over more than SN_GIL_BYTES; NULL where it is kept. */
static inline PyThreadState *sn_gil_release_over(size_t bytes)
{
    return bytes > SN_GIL_BYTES ? PyEval_SaveThread() : NULL;
}

/* Takes it back if it was released. */
static inline void sn_gil_take(PyThreadState *gil)
{
    if (gil != NULL) {
        PyEval_RestoreThread(gil);
    }
}

#endif
