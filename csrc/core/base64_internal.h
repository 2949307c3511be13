/* SPDX-License-Identifier: Apache-2.0 */
/* The widths, for base64.c alone. */
#ifndef SN_CORE_BASE64_INTERNAL_H
#define SN_CORE_BASE64_INTERNAL_H

#include "core/base64.h"

#if defined(__x86_64__)
sn_b64_run sn_b64_run_avx2;
#endif

#endif
