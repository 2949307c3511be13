/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a lane; for csrc/net alone. See client.h. */
#ifndef SN_NET_LANE_H
#define SN_NET_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/client.h"
#include "net/curl_table.h"
#include "net/sigpipe.h"

/* Sockets a lane can have open at once: its cached connections and the attempts of one connect. */
#define SN_LANE_SOCKETS 16
#define SN_LANE_CONNECTIONS 4

/* A socket is known by its inode, too: the number alone may have become something else in a child.
 */
struct sn_lane_socket {
    atomic_int fd; /* -1 when the entry is free */
    ino_t inode;
};

struct sn_transfer;
struct sn_net_request;

struct sn_lane {
    const struct sn_curl *curl;
    struct sn_client *client;
    CURL *easy;
    CURLM *multi;
    pid_t pid;
    struct sn_lane *all_next;   /* in the client's list of all lanes */
    struct sn_lane *queue_next; /* in the client's idle or draining list */
    struct sn_lane_socket sockets[SN_LANE_SOCKETS];
    char error[CURL_ERROR_SIZE];

    struct sn_transfer *transfer; /* what the callbacks work for; NULL while the rest of an answer
                                     that nobody wants any more runs out */
    bool draining;                /* the easy handle is in the multi handle and runs out */
    int64_t drain_until_ns;
    size_t drain_left; /* bytes that may still come before the connection is not worth it */
    void *store;       /* a reference to the client's certificates while a transfer uses it */
    struct curl_slist *headers; /* of the transfer; belongs to the lane while draining */
};

/* Sets the options that all requests of the client share; `tls` says that TLS may be spoken. The
 * handle was reset before. May read certificates: no GIL. */
SN_WARN_UNUSED enum sn_status sn_lane_set_common(struct sn_lane *lane, bool tls);

/* Makes lane->headers for a checked request. What is made stays the lane's, after a failure too. */
SN_WARN_UNUSED enum sn_status sn_lane_make_headers(struct sn_lane *lane,
                                                   const struct sn_net_request *request);

/* Around a stay in libcurl that may reach the network or TLS: keeps forks and SIGPIPE out. Nothing
 * that waits, and no Python, in between; not nested. */
struct sn_stay {
    struct sn_sigpipe sigpipe;
};
void sn_stay_begin(struct sn_stay *stay);
void sn_stay_end(const struct sn_stay *stay);

/* Lets libcurl do what it can without waiting. */
CURLMcode sn_lane_perform(struct sn_lane *lane, int *running);

/* Whether the peer has closed a connection of the lane, which has no transfer under way. libcurl
 * looks for that before it uses one again, but newer versions only where it lay idle for a second.
 */
bool sn_lane_has_closed_connection(const struct sn_lane *lane);

/* Lets a paused transfer go on. */
void sn_lane_unpause(struct sn_lane *lane);

/* Takes the transfer out of the lane; its connection is closed unless the answer was complete. */
void sn_lane_detach(struct sn_lane *lane);

#endif
