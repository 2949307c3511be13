/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in nanoseconds, the same clock as Python's time.monotonic(). Deadlines are
 * absolute values of it. Nothing blocks; any thread. */
#ifndef SN_CORE_CLOCK_H
#define SN_CORE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SN_NS_PER_S INT64_C(1000000000)
#define SN_NS_PER_MS INT64_C(1000000)

static inline int64_t sn_clock_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * SN_NS_PER_S + (int64_t)now.tv_nsec;
}

/* `at` plus `ns`, at most INT64_MAX; negative `ns` counts as 0. */
static inline int64_t sn_clock_after(int64_t at, int64_t ns)
{
    if (ns <= 0) {
        return at;
    }
    return at > INT64_MAX - ns ? INT64_MAX : at + ns;
}

static inline struct timespec sn_clock_timespec(int64_t at)
{
    struct timespec value = {(time_t)(at / SN_NS_PER_S), (long)(at % SN_NS_PER_S)};

    return value;
}

/* Milliseconds from `now` to `at`, rounded up so that a wait of them does not end early; 0 if it is
 * past, at most `most`. */
static inline int sn_clock_ms_until(int64_t now, int64_t at, int most)
{
    int64_t ms;

    if (at <= now) {
        return 0;
    }
    ms = (at - now - 1) / SN_NS_PER_MS + 1;
    return ms > most ? most : (int)ms;
}

#endif
