/* SPDX-License-Identifier: Apache-2.0 */
/* A small ring of buffers between one producing thread and one consuming thread.
 *
 * The consumer owns the memory of the buffers: it lends empty ones (sn_ring_lend), gets them back
 * filled (sn_ring_take), and may lend others in their place. The producer only copies bytes in
 * (sn_ring_write) and says when it is done (sn_ring_finish). Filled buffers come back in the order
 * of their bytes. Memory in flight is what was lent and nothing more; a full ring holds the
 * producer.
 *
 * Waits block, so call with the GIL released where a function says it waits. */
#ifndef SN_CORE_RING_H
#define SN_CORE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

#define SN_RING_SLOTS 8

struct sn_ring;

/* The caller owns *out and ends it with sn_ring_free once both threads are through with it. */
SN_WARN_UNUSED enum sn_status sn_ring_new(struct sn_ring **out);

/* NULL is allowed. The lent buffers stay the consumer's. */
void sn_ring_free(struct sn_ring *ring);

/* Consumer: lends `capacity` bytes (at least 1) at `data`, which stay valid until they are taken or
 * the producer has ended. `cookie` comes back with them. At most SN_RING_SLOTS are lent at a time
 * (SN_INVALID). Does not wait. */
SN_WARN_UNUSED enum sn_status sn_ring_lend(struct sn_ring *ring, unsigned cookie, char *data,
                                           size_t capacity);

/* Consumer: waits up to `wait_ns` for the next filled buffer.
 *   SN_OK        *cookie and *len say which buffer and how many bytes it holds
 *   SN_TIMED_OUT nothing yet
 *   SN_CLOSED    the producer has finished and everything was taken */
SN_WARN_UNUSED enum sn_status sn_ring_take(struct sn_ring *ring, int64_t wait_ns, unsigned *cookie,
                                           size_t *len);

/* Consumer: wants no more. A waiting producer is released, further writes are refused. */
void sn_ring_stop(struct sn_ring *ring);

/* Producer: waits until `len` bytes can be written without waiting; at most as many as are lent at
 * a time. SN_CANCELLED after sn_ring_stop. */
SN_WARN_UNUSED enum sn_status sn_ring_wait_room(struct sn_ring *ring, size_t len);

/* Producer: whether that is so now. */
bool sn_ring_has_room(struct sn_ring *ring, size_t len);

/* Producer: copies `len` bytes in, waiting while no buffer is empty. SN_CANCELLED after
 * sn_ring_stop. */
SN_WARN_UNUSED enum sn_status sn_ring_write(struct sn_ring *ring, const char *data, size_t len);

/* Producer: no more bytes will come. The buffer that is partly filled becomes available. */
void sn_ring_finish(struct sn_ring *ring);

#endif
