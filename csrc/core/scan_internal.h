/* SPDX-License-Identifier: Apache-2.0 */
/* The widths, for scan.c alone. */
#ifndef SN_CORE_SCAN_INTERNAL_H
#define SN_CORE_SCAN_INTERNAL_H

#include "core/scan.h"

extern const struct sn_scan_width sn_scan_scalar;
#if defined(__x86_64__)
extern const struct sn_scan_width sn_scan_sse2;
extern const struct sn_scan_width sn_scan_avx2;
#endif

#endif
