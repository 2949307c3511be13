/* SPDX-License-Identifier: Apache-2.0 */
#include "net/outcome.h"

#include <stdio.h>

#include "net/curl_table.h"

const char *sn_net_kind_name(enum sn_net_kind kind)
{
    switch (kind) {
#define SN_NET_NAME(name, text)                                                                    \
    case SN_NET_##name:                                                                            \
        return text;
        SN_NET_KINDS(SN_NET_NAME)
#undef SN_NET_NAME
    }
    return "unknown";
}

void sn_net_fail(struct sn_net_outcome *outcome, enum sn_net_kind kind, const char *detail)
{
    if (outcome->kind == SN_NET_OK) {
        outcome->kind = kind;
        (void)snprintf(outcome->detail, sizeof outcome->detail, "%s", detail);
    }
}

enum sn_net_kind sn_net_kind_of_curl(int curl_code)
{
    switch (curl_code) {
    case CURLE_OK:
        return SN_NET_OK;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return SN_NET_RESOLVE;
    case CURLE_COULDNT_CONNECT:
    case CURLE_INTERFACE_FAILED:
        return SN_NET_CONNECT;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_USE_SSL_FAILED:
        return SN_NET_TLS;
    case CURLE_PROXY:
        return SN_NET_PROXY;
    case CURLE_OPERATION_TIMEDOUT: /* no total time is given to curl, so this is connecting */
        return SN_NET_CONNECT_TIMEOUT;
    case CURLE_SEND_ERROR:
        return SN_NET_SEND;
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_FAIL_REWIND: /* the connection died and the body is not sent twice */
        return SN_NET_RECEIVE;
    case CURLE_OUT_OF_MEMORY:
        return SN_NET_MEMORY;
    case CURLE_FAILED_INIT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_UNKNOWN_OPTION:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_SSL_ENGINE_NOTFOUND:
        return SN_NET_LIBRARY;
    default: /* malformed heads, chunks and encodings, and whatever later versions add */
        return SN_NET_PROTOCOL;
    }
}
