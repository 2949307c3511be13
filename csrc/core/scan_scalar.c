/* SPDX-License-Identifier: Apache-2.0 */
#include "core/scan_internal.h"

static size_t count_byte(const uint8_t *p, size_t len, uint8_t byte)
{
    size_t count = 0;

    for (size_t i = 0; i < len; i++) {
        count += p[i] == byte;
    }
    return count;
}

const struct sn_scan_width sn_scan_scalar = {
    .name = "scalar",
    .count_byte = count_byte,
};
