/* SPDX-License-Identifier: Apache-2.0 */
/* The one way to libcurl. The library is loaded when the first request is made, since loading costs
 * milliseconds and megabytes that a process without requests should not pay; nothing links to it.
 */
#ifndef SN_NET_CURL_TABLE_H
#define SN_NET_CURL_TABLE_H

/* CURLOPT_PROTOCOLS is used for the sake of libcurl before 7.85, and the table is called through
 * pointers, which the type-checking macros do not cover. */
#define CURL_DISABLE_DEPRECATION 1
#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

#include "core/status.h"

#define SN_CURL_FUNCTIONS(X)                                                                       \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_reset)                                                                                  \
    X(easy_cleanup)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_pause)                                                                                  \
    X(easy_strerror)                                                                               \
    X(multi_init)                                                                                  \
    X(multi_setopt)                                                                                \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_wakeup)                                                                                \
    X(multi_info_read)                                                                             \
    X(multi_cleanup)                                                                               \
    X(share_init)                                                                                  \
    X(share_setopt)                                                                                \
    X(share_cleanup)                                                                               \
    X(slist_append)                                                                                \
    X(slist_free_all)

#define SN_CURL_LIBRARY "libcurl.so.4"

struct sn_curl {
#define SN_CURL_POINTER(name) __typeof__(curl_##name) *name;
    SN_CURL_FUNCTIONS(SN_CURL_POINTER)
#undef SN_CURL_POINTER
};

/* The table, loaded and initialised by the first call that succeeds; NULL when that cannot be done,
 * and then *why is a static or library-owned text that names the package to install. The table
 * lives as long as the process. Any thread; serialised inside. It may block for the milliseconds of
 * loading: call it with the GIL held, so that no fork falls into the middle. */
const struct sn_curl *sn_curl_load(const char **why);

#endif
