/* SPDX-License-Identifier: Apache-2.0 */
#include "core/process.h"

#include <errno.h>

#include "core/spawn.h"

static int kill_runner(void *context)
{
    (void)sn_child_end(context, 0);
    return 0;
}

enum sn_status sn_process_run(int program_fd, int input, const struct sn_request *request,
                              struct sn_drain *drain, struct sn_outcome *out)
{
    static char name[] = "sandbox-native", role[] = "run";
    char *argv[] = {name, role, NULL};
    static char *const no_env[] = {NULL};
    struct sn_call_ends ends;
    struct sn_child runner;
    enum sn_status status = sn_call_make(1, (unsigned)-1, &ends);

    *out = (struct sn_outcome){.ending = SN_ENDED_LOST};
    if (status != SN_OK) {
        return status;
    }
    struct sn_spawn_fd fds[4] = {{ends.out, 1}, {ends.err, 2}, {ends.sock, SN_FD_CALL}, {input, 0}};
    struct sn_spawn what = {.program_fd = program_fd,
                            .argv = argv,
                            .env = no_env,
                            .fds = fds,
                            .nfds = input < 0 ? 3 : 4};
    status = sn_spawn(&what, &runner);
    int saved = errno;
    sn_call_sent(&ends);
    if (status == SN_OK) {
        struct sn_last_resort last = {.call = kill_runner, .context = &runner};
        struct sn_watch watch = {drain->cancel, drain->deadline, drain->tick};
        status = sn_call_request(&ends.host, request, &watch);
        if (status == SN_OK) {
            status = sn_call_run(&ends.host, drain, last, out);
        }
        saved = errno;
    }
    /* The end of the conversation tells the runner to go: at once when it has reported, else when
     * the tree is dead. It may have pipes to read away for what was left in the background. */
    sn_call_close(&ends.host);
    sn_child_release(&runner, 100);
    errno = saved;
    return status;
}
