/* SPDX-License-Identifier: Apache-2.0 */
#include "core/zlib_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct sn_zlib table;
static bool usable;

static void load(void)
{
    void *library = dlopen(SN_ZLIB_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        return;
    }
/* POSIX lets dlsym give function pointers; C does not, hence the copy through an object pointer. */
#define SN_ZLIB_FIND(name)                                                                         \
    *(void **)(&table.name) = dlsym(library, #name);                                               \
    if (table.name == NULL) {                                                                      \
        return;                                                                                    \
    }
    SN_ZLIB_FUNCTIONS(SN_ZLIB_FIND)
#undef SN_ZLIB_FIND
    usable = true;
}

const struct sn_zlib *sn_zlib_load(void)
{
    (void)pthread_once(&once, load);
    return usable ? &table : NULL;
}
