/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a fork from falling into the middle of libcurl and its TLS library.
 *
 * A TLS library's locks are copied by a fork as they are. A child forked while another thread was
 * in there would find some of them held for ever, and hang in its own first request. So whoever
 * works in the library passes this gate, and a fork of this process waits until nobody is inside.
 * Nobody stays long: nothing waits for the network inside, and nothing takes the GIL, which the
 * forking thread may hold. Should a disk be so slow that a write takes seconds, the fork goes
 * ahead. */
#ifndef SN_NET_FORK_GATE_H
#define SN_NET_FORK_GATE_H

/* To be called once before the others; any number of times does no harm. */
void sn_fork_gate_install(void);

/* Around each stay; not nested. Any thread. */
void sn_fork_gate_enter(void);
void sn_fork_gate_leave(void);

#endif
