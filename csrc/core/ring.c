/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ring.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/clock.h"

struct slot {
    char *data;
    size_t capacity, len;
    unsigned cookie;
};

/* Slots [first, first + full) are filled, the following `empty` ones wait to be filled in that
 * order. */
struct sn_ring {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slots[SN_RING_SLOTS];
    unsigned first, full, empty;
    bool finished, stopped;
};

static struct slot *slot_at(struct sn_ring *ring, unsigned offset)
{
    return &ring->slots[(ring->first + offset) % SN_RING_SLOTS];
}

enum sn_status sn_ring_new(struct sn_ring **out)
{
    pthread_condattr_t attributes;
    struct sn_ring *ring;
    bool made;

    *out = NULL;
    ring = sn_calloc(1, sizeof *ring);
    if (ring == NULL) {
        return SN_NO_MEMORY;
    }
    if (pthread_condattr_init(&attributes) != 0) {
        sn_free(ring);
        return SN_NO_MEMORY;
    }
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    made = pthread_cond_init(&ring->changed, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    if (!made || pthread_mutex_init(&ring->lock, NULL) != 0) {
        sn_free(ring);
        return SN_NO_MEMORY;
    }
    *out = ring;
    return SN_OK;
}

void sn_ring_free(struct sn_ring *ring)
{
    if (ring != NULL) {
        (void)pthread_cond_destroy(&ring->changed);
        (void)pthread_mutex_destroy(&ring->lock);
        sn_free(ring);
    }
}

enum sn_status sn_ring_lend(struct sn_ring *ring, unsigned cookie, char *data, size_t capacity)
{
    enum sn_status status = SN_INVALID;

    (void)pthread_mutex_lock(&ring->lock);
    if (capacity > 0 && ring->full + ring->empty < SN_RING_SLOTS) {
        struct slot *slot = slot_at(ring, ring->full + ring->empty);

        slot->data = data;
        slot->capacity = capacity;
        slot->len = 0;
        slot->cookie = cookie;
        ring->empty++;
        (void)pthread_cond_broadcast(&ring->changed);
        status = SN_OK;
    }
    (void)pthread_mutex_unlock(&ring->lock);
    return status;
}

enum sn_status sn_ring_take(struct sn_ring *ring, int64_t wait_ns, unsigned *cookie, size_t *len)
{
    int64_t until_ns = sn_clock_after(sn_clock_now(), wait_ns);
    struct timespec until = sn_clock_timespec(until_ns);
    enum sn_status status;

    (void)pthread_mutex_lock(&ring->lock);
    while (ring->full == 0 && !ring->finished && sn_clock_now() < until_ns) {
        (void)pthread_cond_timedwait(&ring->changed, &ring->lock, &until);
    }
    if (ring->full > 0) {
        struct slot *slot = slot_at(ring, 0);

        *cookie = slot->cookie;
        *len = slot->len;
        ring->first = (ring->first + 1) % SN_RING_SLOTS;
        ring->full--;
        status = SN_OK;
    } else {
        status = ring->finished ? SN_CLOSED : SN_TIMED_OUT;
    }
    (void)pthread_mutex_unlock(&ring->lock);
    return status;
}

void sn_ring_stop(struct sn_ring *ring)
{
    (void)pthread_mutex_lock(&ring->lock);
    ring->stopped = true;
    (void)pthread_cond_broadcast(&ring->changed);
    (void)pthread_mutex_unlock(&ring->lock);
}

/* Called with the lock held. */
static bool has_room_locked(struct sn_ring *ring, size_t len)
{
    size_t room = 0;

    for (unsigned i = 0; i < ring->empty && room < len; i++) {
        const struct slot *slot = slot_at(ring, ring->full + i);

        room += slot->capacity - slot->len; /* of memory that exists, so the sum fits */
    }
    return room >= len;
}

bool sn_ring_has_room(struct sn_ring *ring, size_t len)
{
    bool has_room;

    (void)pthread_mutex_lock(&ring->lock);
    has_room = has_room_locked(ring, len);
    (void)pthread_mutex_unlock(&ring->lock);
    return has_room;
}

enum sn_status sn_ring_wait_room(struct sn_ring *ring, size_t len)
{
    enum sn_status status;

    (void)pthread_mutex_lock(&ring->lock);
    while (!has_room_locked(ring, len) && !ring->stopped) {
        (void)pthread_cond_wait(&ring->changed, &ring->lock);
    }
    status = ring->stopped ? SN_CANCELLED : SN_OK;
    (void)pthread_mutex_unlock(&ring->lock);
    return status;
}

/* The slot being filled becomes the last of the full ones. Called with the lock held. */
static void publish_locked(struct sn_ring *ring)
{
    ring->full++;
    ring->empty--;
    (void)pthread_cond_broadcast(&ring->changed);
}

enum sn_status sn_ring_write(struct sn_ring *ring, const char *data, size_t len)
{
    enum sn_status status = SN_OK;

    (void)pthread_mutex_lock(&ring->lock);
    while (len > 0) {
        struct slot *slot;
        size_t part;

        while (ring->empty == 0 && !ring->stopped) {
            (void)pthread_cond_wait(&ring->changed, &ring->lock);
        }
        if (ring->stopped) {
            status = SN_CANCELLED;
            break;
        }
        slot = slot_at(ring, ring->full);
        part = slot->capacity - slot->len;
        part = len < part ? len : part;
        /* Only this thread touches the slot while it is the first empty one, and a lend adds behind
         * it; a take moves `first` and `full` together, so the slot stays the same one. */
        (void)pthread_mutex_unlock(&ring->lock);
        memcpy(slot->data + slot->len, data, part);
        (void)pthread_mutex_lock(&ring->lock);
        slot->len += part;
        data += part;
        len -= part;
        if (slot->len == slot->capacity) {
            publish_locked(ring);
        }
    }
    (void)pthread_mutex_unlock(&ring->lock);
    return status;
}

void sn_ring_finish(struct sn_ring *ring)
{
    (void)pthread_mutex_lock(&ring->lock);
    if (ring->empty > 0 && slot_at(ring, ring->full)->len > 0) {
        publish_locked(ring);
    }
    ring->finished = true;
    (void)pthread_cond_broadcast(&ring->changed);
    (void)pthread_mutex_unlock(&ring->lock);
}
