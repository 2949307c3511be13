/* SPDX-License-Identifier: Apache-2.0 */
#include "core/filecopy.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fdpass.h"
#include "harness.h"

static const struct sn_watch UNWATCHED = {.cancel = -1, .deadline = SN_NO_DEADLINE};

static int file_of(size_t len, unsigned char first)
{
    int fd = memfd_create("test", 0);

    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)(first + i % 251);
        if (write(fd, &byte, 1) != 1) {
            return -1;
        }
    }
    return lseek(fd, 0, SEEK_SET) == 0 ? fd : -1;
}

static bool same(int fd, size_t len, unsigned char first)
{
    unsigned char byte;

    for (size_t i = 0; i < len; i++) {
        if (pread(fd, &byte, 1, (off_t)i) != 1 || byte != (unsigned char)(first + i % 251)) {
            return false;
        }
    }
    return pread(fd, &byte, 1, (off_t)len) == 0;
}

TEST(copy_moves_all_or_what_was_asked_for)
{
    const size_t lengths[] = {0, 1, 4096, 10001};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int from = file_of(lengths[i], 7), to = memfd_create("to", 0);
        uint64_t copied = 99;
        CHECK(sn_file_copy(from, to, lengths[i], &UNWATCHED, &copied) == SN_OK);
        CHECK(copied == lengths[i] && same(to, lengths[i], 7));
        close(from);
        close(to);
    }
    int from = file_of(1000, 0), to = memfd_create("to", 0);
    uint64_t copied;
    CHECK(sn_file_copy(from, to, 400, &UNWATCHED, &copied) == SN_OK && copied == 400);
    /* More was asked for than there is. */
    CHECK(sn_file_copy(from, to, 5000, &UNWATCHED, &copied) == SN_OK && copied == 600);
    CHECK(same(to, 1000, 0));
    close(from);
    close(to);
}

TEST(copy_knows_positions_and_sizes_beyond_4_gib)
{
    const off_t far = (off_t)5 << 30;
    int from = file_of(0, 0), to = file_of(0, 0);
    struct sn_file_stamp stamp;
    enum sn_file_kind kind;
    uint64_t copied;
    char back[5];

    CHECK(ftruncate(from, far) == 0 && pwrite(from, "ahead", 5, far) == 5);
    CHECK(lseek(from, far, SEEK_SET) == far && lseek(to, far, SEEK_SET) == far);
    CHECK(sn_file_copy(from, to, UINT64_MAX, &UNWATCHED, &copied) == SN_OK && copied == 5);
    CHECK(pread(to, back, 5, far) == 5 && memcmp(back, "ahead", 5) == 0);
    CHECK(sn_file_check(to, 0, &kind, &stamp) == SN_OK && stamp.size == far + 5);
    close(from);
    close(to);
}

TEST(copy_works_where_the_kernel_has_no_short_way)
{
    char name[] = "/tmp/sandbox-native-test-XXXXXX";
    int to = mkstemp(name), from = file_of(70000, 3);
    uint64_t copied;

    CHECK(to >= 0 && fcntl(to, F_SETFL, O_APPEND) == 0);
    unlink(name);
    CHECK(sn_file_copy(from, to, 70000, &UNWATCHED, &copied) == SN_OK);
    CHECK(copied == 70000 && same(to, 70000, 3));
    close(from);
    close(to);
}

TEST(copy_stops_at_a_cancel_the_deadline_and_an_error)
{
    int from = file_of(100, 0), to = memfd_create("to", 0), full = open("/dev/full", O_WRONLY);
    uint64_t copied;
    struct sn_watch watch = {.cancel = eventfd(1, 0), .deadline = SN_NO_DEADLINE};

    CHECK(sn_file_copy(from, to, 100, &watch, &copied) == SN_CANCELLED && copied == 0);
    close(watch.cancel);
    watch = (struct sn_watch){.cancel = -1, .deadline = sn_clock_now() - 1};
    CHECK(sn_file_copy(from, to, 100, &watch, &copied) == SN_TIMED_OUT && copied == 0);
    CHECK(sn_file_copy(from, full, 100, &UNWATCHED, &copied) == SN_SYSTEM && errno == ENOSPC);
    close(from);
    close(to);
    close(full);
}

TEST(copy_says_when_there_is_no_memory)
{
    enum sn_status status = SN_OK;

    WITH_EACH_ALLOCATION_FAILING(status, {
        uint64_t copied;
        int from = file_of(10, 0);
        int null = open("/dev/null", O_WRONLY | O_APPEND);
        int pipes[2];
        if (pipe(pipes) == 0) {
            /* A pipe as the source has only the way through a buffer. */
            (void)!write(pipes[1], "0123456789", 10);
            status = sn_file_copy(pipes[0], null, 10, &UNWATCHED, &copied);
            close(pipes[0]);
            close(pipes[1]);
        }
        close(from);
        close(null);
    });
}

TEST(check_tells_what_a_descriptor_is)
{
    enum sn_file_kind kind;
    struct sn_file_stamp stamp;
    int pipes[2];
    char name[] = "/tmp/sandbox-native-test-XXXXXX";
    int made = mkstemp(name), reads = open(name, O_RDONLY),
        writes = open(name, O_WRONLY | O_NONBLOCK);

    CHECK(made >= 0 && write(made, "12345", 5) == 5);
    CHECK(sn_file_check(reads, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_REGULAR &&
          stamp.size == 5);
    CHECK(sn_file_check(reads, 1, &kind, &stamp) == SN_OK && kind == SN_FILE_FORGED);
    CHECK(sn_file_check(writes, 1, &kind, &stamp) == SN_OK && kind == SN_FILE_REGULAR);
    CHECK(sn_file_check(writes, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_FORGED);
    CHECK(sn_file_check(made, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_FORGED);
    int path = open(name, O_PATH), appends = open(name, O_WRONLY | O_APPEND);
    CHECK(sn_file_check(path, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_FORGED);
    CHECK(sn_file_check(appends, 1, &kind, &stamp) == SN_OK && kind == SN_FILE_FORGED);
    unlink(name);
    int proc = open("/proc/self/status", O_RDONLY), folder = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(sn_file_check(proc, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_KERNEL);
    CHECK(sn_file_check(folder, 0, &kind, &stamp) == SN_OK && kind == SN_FILE_DIRECTORY);
    CHECK(pipe(pipes) == 0);
    CHECK(sn_file_check(pipes[0], 0, &kind, &stamp) == SN_OK && kind == SN_FILE_SPECIAL);
    CHECK(sn_file_check(-1, 0, &kind, &stamp) == SN_SYSTEM && errno == EBADF);
    const int all[] = {made, reads, writes, path, appends, proc, folder, pipes[0], pipes[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        close(all[i]);
    }
}

TEST(replace_shortens_and_lengthens)
{
    int fd = file_of(100, 0);

    CHECK(sn_file_replace(fd, "abc", 3) == SN_OK);
    char text[8] = "";
    CHECK(pread(fd, text, sizeof text, 0) == 3 && strcmp(text, "abc") == 0);
    CHECK(sn_file_replace(fd, "", 0) == SN_OK && pread(fd, text, sizeof text, 0) == 0);
    CHECK(sn_file_replace(-1, "x", 1) == SN_SYSTEM && errno == EBADF);
    close(fd);
}

TEST(descriptors_beyond_what_is_expected_are_closed)
{
    int pair[2], pipes[2], fds[4] = {-1, -1, -1, -1};
    size_t count = 9;
    uint32_t word = 7;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 && pipe(pipes) == 0);
    const int sent[3] = {pipes[1], pipes[1], pipes[1]};
    CHECK(sn_fdpass_send(pair[0], &word, sizeof word, sent, 3, 0) == SN_OK);
    CHECK(sn_fdpass_receive(pair[1], &word, sizeof word, 0, fds, 2, &count) == SN_INVALID &&
          count == 0);
    /* If a copy had been kept, the pipe would not be at its end now. */
    close(pipes[1]);
    CHECK(read(pipes[0], &word, sizeof word) == 0);
    CHECK(sn_fdpass_send(pair[0], &word, sizeof word, pipes, 1, 0) == SN_OK);
    CHECK(sn_fdpass_receive(pair[1], &word, sizeof word, 0, fds, 2, &count) == SN_OK && count == 1);
    CHECK((fcntl(fds[0], F_GETFD) & FD_CLOEXEC) != 0);
    close(fds[0]);
    CHECK(sn_fdpass_send(pair[0], "longer than a word", 18, NULL, 0, 0) == SN_OK);
    CHECK(sn_fdpass_receive(pair[1], &word, sizeof word, 0, fds, 2, &count) == SN_INVALID);
    CHECK(sn_fdpass_send(pair[0], &word, sizeof word, pipes, 5, 0) == SN_INVALID);
    close(pair[0]);
    CHECK(sn_fdpass_receive(pair[1], &word, sizeof word, 0, fds, 2, &count) == SN_CLOSED);
    CHECK(sn_fdpass_send(pair[1], &word, sizeof word, NULL, 0, 0) == SN_CLOSED);
    close(pair[1]);
    close(pipes[0]);
}
