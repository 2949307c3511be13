/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing every occurrence of any of several strings in one pass, overlapping ones as one. Not
 * thread-safe; no function blocks; all may be called without the GIL. */
#ifndef SN_CORE_MULTIFIND_H
#define SN_CORE_MULTIFIND_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

struct sn_needle {
    const uint8_t *bytes;
    size_t len; /* at least 1 */
};

struct sn_multifind;

/* Prepares to look for `needles`, which the caller keeps unchanged as long as *out lives; *out is
 * the caller's and ends with sn_multifind_free. SN_INVALID for an empty needle. */
SN_WARN_UNUSED enum sn_status sn_multifind_new(const struct sn_needle *needles, size_t count,
                                               struct sn_multifind **out);

/* NULL is allowed. */
void sn_multifind_free(struct sn_multifind *find);

/* The next stretch of `data` at or after `from` that is covered by occurrences, each overlapping
 * the one before: *begin and *end. 1 if there is one, else 0. Occurrences that only touch are two
 * stretches. */
int sn_multifind_next(const struct sn_multifind *find, const uint8_t *data, size_t len, size_t from,
                      size_t *begin, size_t *end);

#endif
