/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "core/clock.h"
#include "core/ring.h"
#include "harness.h"

struct producer {
    struct sn_ring *ring;
    size_t total;
    enum sn_status status;
};

static char byte_at(size_t at)
{
    return (char)(at * 31 % 251);
}

static void *produce(void *ctx)
{
    struct producer *producer = ctx;
    char block[700];
    size_t at = 0;

    while (at < producer->total && producer->status == SN_OK) {
        size_t part = 1 + at * 7 % sizeof block;

        part = part < producer->total - at ? part : producer->total - at;
        for (size_t i = 0; i < part; i++) {
            block[i] = byte_at(at + i);
        }
        producer->status = sn_ring_write(producer->ring, block, part);
        at += part;
    }
    sn_ring_finish(producer->ring);
    return NULL;
}

/* Takes everything; returns how many bytes came, all as they were written, or SIZE_MAX. */
static size_t consume(struct sn_ring *ring, char buffers[3][100], size_t stop_after)
{
    size_t got = 0;

    for (;;) {
        unsigned cookie;
        size_t len;
        enum sn_status status = sn_ring_take(ring, SN_NS_PER_S, &cookie, &len);

        if (status == SN_CLOSED) {
            return got;
        }
        if (status == SN_TIMED_OUT) {
            continue;
        }
        for (size_t i = 0; i < len; i++, got++) {
            if (cookie >= 3 || buffers[cookie][i] != byte_at(got)) {
                return SIZE_MAX;
            }
        }
        if (got >= stop_after) {
            sn_ring_stop(ring);
            return got;
        }
        if (sn_ring_lend(ring, cookie, buffers[cookie], 100) != SN_OK) {
            return SIZE_MAX;
        }
    }
}

static bool lend_three(struct sn_ring *ring, char buffers[3][100])
{
    bool ok = true;

    for (unsigned i = 0; i < 3; i++) {
        ok = ok && sn_ring_lend(ring, i, buffers[i], 100) == SN_OK;
    }
    return ok;
}

TEST(ring_bytes_come_out_as_they_went_in)
{
    static const size_t totals[] = {0, 1, 99, 100, 101, 300, 100000};

    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        struct producer producer = {.total = totals[i]};
        char buffers[3][100];
        pthread_t thread;
        size_t got;

        CHECK(sn_ring_new(&producer.ring) == SN_OK);
        CHECK(lend_three(producer.ring, buffers));
        CHECK(pthread_create(&thread, NULL, produce, &producer) == 0);
        got = consume(producer.ring, buffers, SIZE_MAX);
        (void)pthread_join(thread, NULL);
        sn_ring_free(producer.ring);
        CHECK(got == totals[i] && producer.status == SN_OK);
    }
}

TEST(ring_a_consumer_that_stops_releases_the_producer)
{
    for (size_t stop_after = 1; stop_after < 1000; stop_after += 97) {
        struct producer producer = {.total = 100000};
        char buffers[3][100];
        pthread_t thread;

        CHECK(sn_ring_new(&producer.ring) == SN_OK);
        CHECK(lend_three(producer.ring, buffers));
        CHECK(pthread_create(&thread, NULL, produce, &producer) == 0);
        CHECK(consume(producer.ring, buffers, stop_after) != SIZE_MAX);
        (void)pthread_join(thread, NULL);
        CHECK(producer.status == SN_CANCELLED);
        sn_ring_free(producer.ring);
    }
}

TEST(ring_limits)
{
    char buffer[10];
    struct sn_ring *ring;
    unsigned cookie;
    size_t len;

    CHECK(sn_ring_new(&ring) == SN_OK);
    CHECK(sn_ring_lend(ring, 0, buffer, 0) == SN_INVALID);
    CHECK(sn_ring_take(ring, 0, &cookie, &len) == SN_TIMED_OUT);
    for (unsigned i = 0; i < SN_RING_SLOTS; i++) {
        CHECK(sn_ring_lend(ring, i, buffer, sizeof buffer) == SN_OK);
    }
    CHECK(sn_ring_lend(ring, 9, buffer, sizeof buffer) == SN_INVALID);
    CHECK(sn_ring_write(ring, "abc", 3) == SN_OK);
    CHECK(sn_ring_take(ring, 0, &cookie, &len) == SN_TIMED_OUT); /* not full, not finished */
    sn_ring_finish(ring);
    CHECK(sn_ring_take(ring, 0, &cookie, &len) == SN_OK && cookie == 0 && len == 3);
    CHECK(sn_ring_take(ring, 0, &cookie, &len) == SN_CLOSED);
    sn_ring_free(ring);
    sn_ring_free(NULL);
}

TEST(ring_without_memory)
{
    enum sn_status status = SN_OK;

    WITH_EACH_ALLOCATION_FAILING(status, {
        struct sn_ring *ring;

        status = sn_ring_new(&ring);
        sn_ring_free(ring);
    });
}

static void *wait_for_room(void *ctx)
{
    struct producer *producer = ctx;

    producer->status = sn_ring_wait_room(producer->ring, producer->total);
    return NULL;
}

TEST(ring_room_is_what_is_lent_and_not_filled)
{
    struct producer producer = {.total = 150};
    char buffers[3][100];
    unsigned cookie;
    pthread_t thread;
    size_t len;

    CHECK(sn_ring_new(&producer.ring) == SN_OK);
    CHECK(sn_ring_has_room(producer.ring, 0) && !sn_ring_has_room(producer.ring, 1));
    CHECK(lend_three(producer.ring, buffers));
    CHECK(sn_ring_has_room(producer.ring, 300) && !sn_ring_has_room(producer.ring, 301));
    CHECK(sn_ring_write(producer.ring, buffers[0], 100) == SN_OK);
    CHECK(sn_ring_write(producer.ring, buffers[0], 60) == SN_OK);
    CHECK(sn_ring_has_room(producer.ring, 140) && !sn_ring_has_room(producer.ring, 141));
    CHECK(pthread_create(&thread, NULL, wait_for_room, &producer) == 0);
    CHECK(sn_ring_take(producer.ring, SN_NS_PER_S, &cookie, &len) == SN_OK && len == 100);
    CHECK(sn_ring_lend(producer.ring, cookie, buffers[cookie], 100) == SN_OK);
    (void)pthread_join(thread, NULL);
    CHECK(producer.status == SN_OK);
    producer.total = 1000;
    CHECK(pthread_create(&thread, NULL, wait_for_room, &producer) == 0);
    sn_ring_stop(producer.ring);
    (void)pthread_join(thread, NULL);
    CHECK(producer.status == SN_CANCELLED);
    sn_ring_free(producer.ring);
}
