/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to zlib, loaded when something has to be decompressed for the first time. */
#ifndef SN_CORE_ZLIB_TABLE_H
#define SN_CORE_ZLIB_TABLE_H

#include <zlib.h>

#define SN_ZLIB_LIBRARY "libz.so.1"

#define SN_ZLIB_FUNCTIONS(X)                                                                       \
    X(inflateInit2_)                                                                               \
    X(inflate)                                                                                     \
    X(inflateReset)                                                                                \
    X(inflateEnd)

struct sn_zlib {
#define SN_ZLIB_POINTER(name) __typeof__(name) *name;
    SN_ZLIB_FUNCTIONS(SN_ZLIB_POINTER)
#undef SN_ZLIB_POINTER
};

/* The table, which lives as long as the process; NULL where there is no usable zlib. Any thread. */
const struct sn_zlib *sn_zlib_load(void);

#endif
