/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

struct test {
    const char *file;
    const char *name;
    void (*run)(void);
};

static struct test tests[1000];
static size_t registered;
static bool failing;
static uint32_t random_state = 2463534242U;

void harness_register(const char *file, const char *name, void (*run)(void))
{
    if (registered == sizeof tests / sizeof tests[0]) {
        fprintf(stderr, "harness: too many tests\n");
        abort();
    }
    tests[registered++] = (struct test){file, name, run};
}

void harness_fail(const char *file, int line, const char *what)
{
    failing = true;
    printf("%s:%d: not so: %s\n", file, line, what);
}

uint32_t harness_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

size_t harness_below(size_t bound)
{
    return harness_random() % bound;
}

/* With an argument, only tests whose name contains it. */
int main(int argc, char **argv)
{
    size_t passed = 0;
    size_t failed = 0;

    for (size_t i = 0; i < registered; i++) {
        size_t held = sn_allocated();

        if (argc > 1 && strstr(tests[i].name, argv[1]) == NULL) {
            continue;
        }
        failing = false;
        tests[i].run();
        (void)sn_alloc_fail_from(0);
        if (!failing && sn_allocated() != held) {
            failing = true;
            printf("%s: %zu bytes are left\n", tests[i].name, sn_allocated() - held);
        }
        if (failing) {
            failed++;
            printf("FAILED %s: %s\n", tests[i].file, tests[i].name);
        } else {
            passed++;
        }
    }
    printf("%zu passed, %zu failed\n", passed, failed);
    return failed != 0 || passed == 0;
}
