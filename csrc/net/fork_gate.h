/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a fork, and the end of the process, from falling into the middle of libcurl and its TLS
 * library.
 *
 * A TLS library's locks are copied by a fork as they are. A child forked while another thread was
 * in there would find some of them held for ever, and hang in its own first request. So whoever
 * works in the library passes this gate, and a fork of this process waits until nobody is inside.
 * Nobody stays long: nothing waits for the network inside, and nothing takes the GIL, which the
 * forking thread may hold. Should a disk be so slow that a write takes seconds, the fork goes
 * ahead.
 *
 * A TLS library takes itself down when the process calls exit, which threads that nobody joins,
 * such as Python's daemon threads, do not live to see unless they are in the middle of it. So exit
 * waits in the same way, and nobody passes after it. */
#ifndef SN_NET_FORK_GATE_H
#define SN_NET_FORK_GATE_H

/* To be called once before the others; any number of times does no harm. */
void sn_fork_gate_install(void);

/* To be called once, after the library has been initialised: what it does at exit comes later then.
 */
void sn_fork_gate_close_at_exit(void);

/* Around each stay; not nested. Any thread. */
void sn_fork_gate_enter(void);
void sn_fork_gate_leave(void);

#endif
