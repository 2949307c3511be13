/* SPDX-License-Identifier: Apache-2.0 */
#include "net/curl_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "net/fork_gate.h"

/* CURLOPT_PREREQFUNCTION, which tells "never sent" from "perhaps sent", came with 7.80.0. */
#define MIN_VERSION 0x075000
#if LIBCURL_VERSION_NUM < MIN_VERSION
#error "libcurl headers of 7.80.0 or newer are needed"
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sn_curl table;
static bool loaded;

/* Fills the table. On failure returns why. */
static const char *fill(void *library)
{
/* POSIX lets dlsym give function pointers; C does not, hence the copy through an object pointer. */
#define SN_CURL_FIND(name)                                                                         \
    *(void **)(&table.name) = dlsym(library, "curl_" #name);                                       \
    if (table.name == NULL) {                                                                      \
        return "libcurl.so.4 lacks curl_" #name "; install a newer package libcurl4";              \
    }
    SN_CURL_FUNCTIONS(SN_CURL_FIND)
#undef SN_CURL_FIND
    if (table.version_info(CURLVERSION_NOW)->version_num < MIN_VERSION) {
        return "libcurl is older than 7.80.0; install a newer package libcurl4";
    }
    if (table.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return "libcurl could not be initialised";
    }
    sn_fork_gate_close_at_exit();
    return NULL;
}

const struct sn_curl *sn_curl_load(const char **why)
{
    *why = NULL;
    (void)pthread_mutex_lock(&lock);
    if (!loaded) {
        void *library = dlopen(SN_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);

        if (library == NULL) {
            *why = "libcurl.so.4 was not found; install the package libcurl4 (libcurl4t64 on newer "
                   "Debian)";
        } else {
            sn_fork_gate_install();
            *why = fill(library);
            /* It stays loaded even when unusable: unloading a TLS library is not safe. */
            loaded = *why == NULL;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return *why == NULL ? &table : NULL;
}
