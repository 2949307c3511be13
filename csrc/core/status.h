/* SPDX-License-Identifier: Apache-2.0 */
/* What a fallible function of csrc/core and csrc/net returns. Knows neither Python nor curl. */
#ifndef SN_CORE_STATUS_H
#define SN_CORE_STATUS_H

#define SN_WARN_UNUSED __attribute__((warn_unused_result))

enum sn_status {
    SN_OK = 0,
    SN_NO_MEMORY, /* an allocation failed */
    SN_INVALID,   /* the caller's argument or the peer's message is not of the expected form */
    SN_TOO_LARGE, /* a size is over the cap the caller gave */
    SN_SYSTEM,    /* a system call failed; errno says why and is untouched since */
    SN_TIMED_OUT, /* the caller's deadline passed */
    SN_CANCELLED, /* the caller's cancel descriptor became readable */
    SN_CLOSED,    /* the peer ended the conversation */
};

#endif
