/* SPDX-License-Identifier: Apache-2.0 */
#include "net/collect.h"

#include <string.h>

#include "core/alloc.h"

#define FIRST_CAPACITY ((size_t)4096)

static bool reserve(struct sn_collect *collect, size_t more)
{
    size_t capacity = collect->capacity > 0 ? collect->capacity : FIRST_CAPACITY;
    char *grown;

    if (more <= collect->capacity - collect->len) {
        return true;
    }
    while (capacity - collect->len < more) { /* len + more is at most max */
        capacity = capacity > collect->max / 2 ? collect->max : capacity * 2;
    }
    grown = sn_realloc(collect->data, capacity);
    if (grown == NULL) {
        return false;
    }
    collect->data = grown;
    collect->capacity = capacity;
    return true;
}

static enum sn_take take_body(void *ctx, const char *data, size_t len,
                              struct sn_net_outcome *outcome)
{
    struct sn_collect *collect = ctx;
    size_t room = collect->max - collect->len;
    size_t kept = len < room ? len : room;

    if (kept < len && !collect->may_cut) {
        sn_net_fail(outcome, SN_NET_TOO_LARGE, "the body of the answer is over the cap");
        return SN_TAKE_FAILED;
    }
    if (kept > 0) {
        if (!reserve(collect, kept)) {
            sn_net_fail(outcome, SN_NET_MEMORY, "out of memory");
            return SN_TAKE_FAILED;
        }
        memcpy(collect->data + collect->len, data, kept);
        collect->len += kept;
    }
    if (kept < len) {
        collect->cut = true;
        outcome->received += kept;
        return SN_TAKE_ENOUGH;
    }
    return SN_TAKE_ALL;
}

struct sn_sink sn_collect_sink(struct sn_collect *collect)
{
    struct sn_sink sink = {.ctx = collect, .body = take_body};

    return sink;
}

void sn_collect_clear(struct sn_collect *collect)
{
    sn_free(collect->data);
    collect->data = NULL;
    collect->len = collect->capacity = 0;
}
