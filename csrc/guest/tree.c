/* SPDX-License-Identifier: Apache-2.0 */
/* Killing descendants by the parent links of /proc. A single pass can miss what is forked
 * meanwhile; the callers repeat until waitpid says ECHILD, which no fork can race. */
#include "guest/guest.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct process {
    pid_t pid, parent;
    char state;
    char mark; /* 0 unknown, 'd' descendant, 's' spared */
};

static int read_process(const char *name, struct process *out)
{
    char path[64], text[512];
    int fd;

    snprintf(path, sizeof path, "/proc/%s/stat", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) {
        return -1;
    }
    text[got] = '\0';
    /* The command name is in parentheses and may hold any character, parentheses included. */
    const char *after = strrchr(text, ')');
    int parent;
    if (after == NULL || sscanf(after + 1, " %c %d", &out->state, &parent) != 2) {
        return -1;
    }
    out->pid = (pid_t)strtol(name, NULL, 10);
    out->parent = (pid_t)parent;
    out->mark = 0;
    return 0;
}

static struct process *scan(size_t *count)
{
    size_t room = 256, used = 0;
    struct process *list = malloc(room * sizeof *list);
    DIR *dir = opendir("/proc");
    struct dirent *entry;

    while (list != NULL && dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') {
            continue;
        }
        if (used == room) {
            struct process *more = realloc(list, 2 * room * sizeof *list);
            if (more == NULL) {
                break;
            }
            list = more;
            room *= 2;
        }
        if (read_process(entry->d_name, &list[used]) == 0) {
            used++;
        }
    }
    if (dir == NULL) {
        free(list);
        return NULL;
    }
    closedir(dir);
    *count = used;
    return list;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;

    return (x > y) - (x < y);
}

/* Follows the parents up to `root` or to a process whose mark is known. Depth is bounded by the
 * number of processes, so a torn picture with a loop ends, too. */
static char find_mark(struct process *list, size_t count, struct process *start, pid_t root)
{
    struct process *at = start;

    for (size_t depth = 0; depth <= count; depth++) {
        if (at->mark != 0) {
            return at->mark;
        }
        if (at->parent == root) {
            return 'd';
        }
        struct process key = {.pid = at->parent};
        at = bsearch(&key, list, count, sizeof *list, by_pid);
        if (at == NULL || at->pid == root) {
            break;
        }
    }
    return 0;
}

int sn_tree_kill(pid_t root, const pid_t *spared, size_t nspared)
{
    size_t count = 0;
    struct process *list = scan(&count);
    int found = 0;

    if (list == NULL) {
        return -1;
    }
    qsort(list, count, sizeof *list, by_pid);
    for (size_t i = 0; i < nspared; i++) {
        struct process key = {.pid = spared[i]};
        struct process *one = bsearch(&key, list, count, sizeof *list, by_pid);
        if (one != NULL) {
            one->mark = 's';
        }
    }
    for (size_t i = 0; i < count; i++) {
        list[i].mark = find_mark(list, count, &list[i], root);
        if (list[i].mark == 'd' && list[i].state != 'Z' && list[i].state != 'X') {
            kill(list[i].pid, SIGKILL);
            found++;
        }
    }
    free(list);
    return found;
}
