/* SPDX-License-Identifier: Apache-2.0 */
/* Most positions are ruled out by their first two bytes, looked up in a set of all such pairs: a
 * bit for each, which stays in the first-level cache. */
#include "core/multifind.h"

#include <string.h>

#include "core/alloc.h"

#define PAIRS 65536U

struct sn_multifind {
    const struct sn_needle *needles;
    size_t count;
    uint64_t pairs[PAIRS / 64];
    /* Needles by first byte: an index + 1 in `next`, 0 ends the chain. */
    size_t first[256];
    size_t next[];
};

static void add_pair(struct sn_multifind *find, unsigned pair)
{
    find->pairs[pair / 64] |= (uint64_t)1 << (pair % 64);
}

enum sn_status sn_multifind_new(const struct sn_needle *needles, size_t count,
                                struct sn_multifind **out)
{
    struct sn_multifind *find;

    *out = NULL;
    if (count > (SIZE_MAX - sizeof *find) / sizeof find->next[0]) {
        return SN_TOO_LARGE;
    }
    find = sn_calloc(1, sizeof *find + count * sizeof find->next[0]);
    if (find == NULL) {
        return SN_NO_MEMORY;
    }
    find->needles = needles;
    find->count = count;
    for (size_t i = 0; i < count; i++) {
        if (needles[i].len == 0) {
            sn_free(find);
            return SN_INVALID;
        }
        unsigned first = needles[i].bytes[0];
        if (needles[i].len > 1) {
            add_pair(find, first << 8 | needles[i].bytes[1]);
        } else {
            for (unsigned second = 0; second < 256; second++) {
                add_pair(find, first << 8 | second);
            }
        }
        find->next[i] = find->first[first];
        find->first[first] = i + 1;
    }
    *out = find;
    return SN_OK;
}

void sn_multifind_free(struct sn_multifind *find)
{
    sn_free(find);
}

/* The length of the longest needle that stands at `at`; 0 for none. */
static size_t match_at(const struct sn_multifind *find, const uint8_t *at, size_t left)
{
    size_t longest = 0;

    for (size_t i = find->first[at[0]]; i != 0; i = find->next[i - 1]) {
        const struct sn_needle *needle = &find->needles[i - 1];
        if (needle->len <= left && needle->len > longest &&
            memcmp(at, needle->bytes, needle->len) == 0) {
            longest = needle->len;
        }
    }
    return longest;
}

/* The first position in [from, until) that a needle may begin at, or `until`. The last byte of the
 * data has no second one, so it is always looked at. */
static size_t next_candidate(const struct sn_multifind *find, const uint8_t *data, size_t len,
                             size_t from, size_t until)
{
    size_t paired = until < len ? until : len - 1;

    for (size_t i = from; i < paired; i++) {
        unsigned pair = (unsigned)data[i] << 8 | data[i + 1];
        if (find->pairs[pair / 64] >> (pair % 64) & 1) {
            return i;
        }
    }
    return from < paired ? paired : from;
}

int sn_multifind_next(const struct sn_multifind *find, const uint8_t *data, size_t len, size_t from,
                      size_t *begin, size_t *end)
{
    size_t reach = 0; /* end of the stretch found so far; 0 while there is none */
    size_t until = len;

    while (find->count > 0 && from < until) {
        size_t at = next_candidate(find, data, len, from, until);
        if (at >= until) {
            break;
        }
        size_t matched = match_at(find, data + at, len - at);
        if (matched > 0) {
            if (reach == 0) {
                *begin = at;
            }
            if (at + matched > reach) {
                /* Only what begins before the end goes on with it. */
                reach = until = at + matched;
            }
        }
        from = at + 1;
    }
    *end = reach;
    return reach > 0;
}
