/* SPDX-License-Identifier: Apache-2.0 */
/* A client: settings that all its requests share, and a pool of lanes.
 *
 * A lane is what one call needs: an easy handle in a multi handle of its own, and so a connection
 * cache of its own. Concurrent calls use different lanes; a lane given back is used again, its
 * connections still open. Names and TLS sessions are shared between the lanes of a client, which
 * libcurl allows between threads; connections are not, since it does not.
 *
 * Threads: any number may use one client at once; a lane belongs to one call at a time.
 * sn_client_free needs the client to itself. No function here needs the GIL except where noted.
 *
 * Fork: a client remembers the process that made its lanes. In a child nothing of them is touched
 * by libcurl, which would say goodbye on the parent's connections: their sockets are closed raw,
 * their memory is left, and lanes are made anew on use. */
#ifndef SN_NET_CLIENT_H
#define SN_NET_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

struct sn_client;
struct sn_lane;

struct sn_client_config {
    const char *ca_file; /* trust what this file holds; NULL for none */
    const char
        *ca_dir; /* trust what this hashed folder holds; NULL for none. Both NULL: the system's */
    int64_t connect_ns; /* longest time for name, connection and TLS together; at least 1 ms */
    int64_t keep_ns;    /* a connection idle for longer is not used again */
};

/* Makes a client; the strings are copied. Does no I/O and does not load libcurl. The caller owns
 * *out and ends it with sn_client_free. */
SN_WARN_UNUSED enum sn_status sn_client_new(const struct sn_client_config *config,
                                            struct sn_client **out);

/* Ends the client and closes its connections, or, in a child of the process that used it, only
 * forgets them. No lane may be out. Does not wait. NULL is allowed. */
void sn_client_free(struct sn_client *client);

/* Takes a lane for one call. Loads libcurl the first time: hold the GIL (see curl_table.h).
 * SN_CLOSED: libcurl cannot be used, and *why (static) says what to install. */
SN_WARN_UNUSED enum sn_status sn_client_take(struct sn_client *client, struct sn_lane **out,
                                             const char **why);

/* Gives a lane back when its call has ended. The lane's transfer is over, or left to run out
 * (sn_transfer says so to the lane). Does not wait. */
void sn_client_give_back(struct sn_client *client, struct sn_lane *lane);

/* In a child of the process that made the lanes: closes their sockets raw and forgets them.
 * Elsewhere does nothing. Nothing else of the client may run at the same time. */
void sn_client_after_fork(struct sn_client *client);

/* How many lanes there are and how many of them wait for use; for tests. */
void sn_client_count(struct sn_client *client, unsigned *lanes, unsigned *idle);

#endif
