/* SPDX-License-Identifier: Apache-2.0 */
/* The certificates that peers are verified by, parsed once for all lanes of a client.
 *
 * libcurl parses the system's bundle anew for each connection where a folder is configured as well,
 * as on Debian, and keeps what it parsed per multi handle, so per lane, where it does not: tens of
 * milliseconds of CPU and most of a megabyte each. With OpenSSL, a store can be shared between
 * connections of all threads (it locks itself), and libcurl lets us put one into each context. What
 * is trusted, and all checking, stays the same. With another TLS library, or when anything fails
 * here, libcurl loads the certificates itself and words the error. */
#ifndef SN_NET_TRUST_H
#define SN_NET_TRUST_H

#include <stdint.h>
#include <sys/stat.h>

#include "net/curl_table.h"

/* What a store was made from. */
struct sn_trust_source {
    int64_t changed_ns;
    ino_t inode;
    off_t size;
};

/* Zeroed at the start. The caller serialises the use of it. */
struct sn_trust {
    void *store; /* an X509_STORE, or NULL */
    struct sn_trust_source file, folder;
};

/* A reference to the store of the certificates in `file` and `folder` (NULL: none; both NULL:
 * libcurl's own defaults), made anew when they changed on disk. NULL: leave it to libcurl. Reads
 * and parses, some 20 ms the first time: no GIL. The reference ends with sn_trust_release. */
void *sn_trust_store(struct sn_trust *trust, const char *file, const char *folder);

/* NULL is allowed. */
void sn_trust_release(void *store);

/* Puts `store` into the context `ssl_ctx` of a connection: a CURLOPT_SSL_CTX_FUNCTION. */
CURLcode sn_trust_install(CURL *easy, void *ssl_ctx, void *store);

#endif
