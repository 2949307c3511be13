/* SPDX-License-Identifier: Apache-2.0 */
#include "core/multifind.h"
#include "harness.h"

/* Which bytes are covered, the slow way. */
static void cover(const struct sn_needle *needles, size_t count, const uint8_t *data, size_t len,
                  uint8_t *covered, uint8_t *joined)
{
    memset(covered, 0, len);
    memset(joined, 0, len + 1); /* joined[i]: one occurrence covers both i - 1 and i */
    for (size_t n = 0; n < count; n++) {
        for (size_t at = 0; at + needles[n].len <= len; at++) {
            if (memcmp(data + at, needles[n].bytes, needles[n].len) == 0) {
                memset(covered + at, 1, needles[n].len);
                memset(joined + at + 1, 1, needles[n].len - 1);
            }
        }
    }
}

TEST(multifind_finds_what_a_slow_search_finds)
{
    for (int round = 0; round < 3000; round++) {
        uint8_t text[6][6], covered[64], joined[65];
        struct sn_needle needles[6];
        size_t count = harness_below(7), len = harness_below(64), at = 0, begin, end;
        struct sn_multifind *find;
        /* On its own, so that a read past the end is seen. */
        uint8_t *data = malloc(len + (len == 0));

        for (size_t i = 0; i < len; i++) {
            data[i] = (uint8_t)('a' + harness_below(3));
        }
        for (size_t n = 0; n < count; n++) {
            needles[n] = (struct sn_needle){text[n], 1 + harness_below(6)};
            for (size_t i = 0; i < needles[n].len; i++) {
                text[n][i] = (uint8_t)('a' + harness_below(3));
            }
        }
        CHECK(sn_multifind_new(needles, count, &find) == SN_OK);
        cover(needles, count, data, len, covered, joined);
        while (sn_multifind_next(find, data, len, at, &begin, &end)) {
            CHECK(begin >= at && end > begin && end <= len);
            for (size_t i = at; i < begin; i++) {
                CHECK(!covered[i]);
            }
            CHECK(!joined[begin] && !joined[end]);
            for (size_t i = begin; i < end; i++) {
                CHECK(covered[i] && (i == begin || joined[i]));
            }
            at = end;
        }
        for (size_t i = at; i < len; i++) {
            CHECK(!covered[i]);
        }
        sn_multifind_free(find);
        free(data);
    }
}

TEST(multifind_refuses_an_empty_needle_and_survives_no_memory)
{
    struct sn_needle needles[] = {{(const uint8_t *)"a", 1}, {(const uint8_t *)"", 0}};
    struct sn_multifind *find;
    enum sn_status status;

    CHECK(sn_multifind_new(needles, 2, &find) == SN_INVALID && find == NULL);
    WITH_EACH_ALLOCATION_FAILING(status, {
        status = sn_multifind_new(needles, 1, &find);
        sn_multifind_free(find);
    })
}
