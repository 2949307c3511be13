/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/guest.h"

#include <string.h>

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    if (strcmp(role, "init") == 0) {
        return sn_init_main();
    }
    if (strcmp(role, "run") == 0) {
        return sn_run_main();
    }
    if (strcmp(role, "launch") == 0) {
        return sn_launch_main(argc - 2, argv + 2);
    }
    return 64; /* EX_USAGE */
}
