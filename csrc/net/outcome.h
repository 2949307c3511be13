/* SPDX-License-Identifier: Apache-2.0 */
/* How a transfer ended. Knows no Python; curl only as codes. */
#ifndef SN_NET_OUTCOME_H
#define SN_NET_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#define SN_DETAIL_SIZE 256

/* The names in the second column are what Python sees as TransportError.kind. */
#define SN_NET_KINDS(X)                                                                            \
    X(OK, "ok")             /* the whole answer came, or as much as was wanted */                  \
    X(LIBRARY, "library")   /* libcurl is missing or refuses to work */                            \
    X(RESOLVE, "resolve")   /* a name could not be resolved */                                     \
    X(CONNECT, "connect")   /* no connection */                                                    \
    X(TLS, "tls")           /* no TLS session, or a certificate that is not trusted */             \
    X(PROXY, "proxy")       /* the proxy refused */                                                \
    X(SEND, "send")         /* the connection ended while sending */                               \
    X(RECEIVE, "receive")   /* the connection ended before the answer did */                       \
    X(PROTOCOL, "protocol") /* the answer is not HTTP as it should be */                           \
    X(DEADLINE, "deadline") /* the caller's deadline passed */                                     \
    X(CONNECT_TIMEOUT, "connect_timeout") /* connecting took longer than allowed */                \
    X(STALLED, "stalled")                 /* no byte moved for the allowed time */                 \
    X(CANCELLED, "cancelled")             /* the cancel descriptor became readable */              \
    X(HEAD_TOO_LARGE, "head_too_large")   /* the answer's head is over the cap */                  \
    X(TOO_LARGE, "too_large") /* the answer's body is over the cap, announced or real */           \
    X(RANGE, "range")         /* the answer is not the range that was asked for */                 \
    X(LENGTH, "length")       /* a length that is unknown, absurd, or not kept */                  \
    X(ENCODING, "encoding")   /* an encoded body where plain bytes were asked for */               \
    X(SOURCE, "source")       /* the body to send could not be read in full */                     \
    X(SINK, "sink")           /* the destination could not be written */                           \
    X(STOPPED, "stopped")     /* a hook of the caller ended it and knows why */                    \
    X(FORKED, "forked")       /* this is a child forked in the middle of the transfer */           \
    X(MEMORY, "memory")       /* an allocation failed */

enum sn_net_kind {
#define SN_NET_ENUM(name, text) SN_NET_##name,
    SN_NET_KINDS(SN_NET_ENUM)
#undef SN_NET_ENUM
};

struct sn_net_outcome {
    enum sn_net_kind kind;
    /* False only if not a byte of the request can have reached the server. */
    bool sent;
    int os_error;      /* errno for SOURCE and SINK, else 0 */
    uint64_t received; /* body bytes taken, decoded */
    int64_t announced; /* the size the answer announced where that was the trouble, else -1 */
    char detail[SN_DETAIL_SIZE]; /* for people; never a header value, a token, or body bytes */
};

/* A static name. */
const char *sn_net_kind_name(enum sn_net_kind kind);

/* Sets kind and detail, unless a failure is already there: the first one counts. */
void sn_net_fail(struct sn_net_outcome *outcome, enum sn_net_kind kind, const char *detail);

/* The kind for a CURLcode. */
enum sn_net_kind sn_net_kind_of_curl(int curl_code);

#endif
