/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a file as it travels through a channel of text: base64, of gzip or of the bytes
 * themselves. */
#ifndef SN_CORE_SLICE_H
#define SN_CORE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/gunzip.h"
#include "core/status.h"

/* Decodes all `len` characters at `text` and gives the bytes to `sink`, in pieces; `most` bytes at
 * most. No GIL, in constant memory.
 *   SN_INVALID    it is damaged or not complete; *problem completes "the data ..."
 *   SN_TOO_LARGE  it holds more than `most` bytes
 *   SN_CLOSED     it is compressed and this machine has no zlib
 * or what the sink returned. */
SN_WARN_UNUSED enum sn_status sn_slice_decode(const uint8_t *text, size_t len, bool compressed,
                                              struct sn_sink_bytes sink, uint64_t most,
                                              const char **problem);

#endif
