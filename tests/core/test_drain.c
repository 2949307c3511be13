/* SPDX-License-Identifier: Apache-2.0 */
/* The drain loop with the other side played by the test. */
#include "core/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"

struct scene {
    struct sn_drain drain;
    int out, err, call; /* the other side's ends */
};

static bool open_scene(struct scene *scene, size_t cap)
{
    int out[2], err[2], call[2];

    *scene = (struct scene){
        .drain = {.cancel = -1, .out_to = -1, .err_to = -1, .deadline = SN_NO_DEADLINE}};
    if (pipe2(out, O_NONBLOCK) < 0 || pipe2(err, O_NONBLOCK) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, call) < 0) {
        return false;
    }
    scene->drain.out = out[0];
    scene->drain.err = err[0];
    scene->drain.call = call[0];
    scene->out = out[1];
    scene->err = err[1];
    scene->call = call[1];
    scene->drain.buffer = sn_malloc(SN_DRAIN_BUFFER);
    return scene->drain.buffer != NULL && sn_tail_new(cap, &scene->drain.out_tail) == SN_OK &&
           sn_tail_new(cap, &scene->drain.err_tail) == SN_OK;
}

static void close_scene(struct scene *scene)
{
    const int fds[] = {scene->drain.out, scene->drain.err, scene->drain.call,
                       scene->out,       scene->err,       scene->call};

    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    sn_tail_free(scene->drain.out_tail);
    sn_tail_free(scene->drain.err_tail);
    sn_free(scene->drain.buffer);
}

static bool say(struct scene *scene, enum sn_guest_reply_kind kind, int value)
{
    struct sn_guest_reply reply = {.kind = kind, .value = value};

    return send(scene->call, &reply, sizeof reply, 0) == (ssize_t)sizeof reply;
}

TEST(drain_takes_the_last_burst_and_does_not_wait_for_a_holder)
{
    struct scene scene;
    struct sn_guest_reply reply;

    CHECK(open_scene(&scene, 4));
    CHECK(write(scene.out, "output", 6) == 6 && write(scene.err, "e", 1) == 1);
    CHECK(say(&scene, SN_REPLY_EXITED, 3));
    /* Both write ends stay open all the time. */
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_OK);
    CHECK(reply.kind == SN_REPLY_EXITED && reply.value == 3);
    CHECK(sn_drain_rest(&scene.drain) == SN_OK);
    CHECK(sn_tail_total_bytes(scene.drain.out_tail) == 6 &&
          sn_tail_kept(scene.drain.out_tail) == 4);
    CHECK(sn_tail_total_bytes(scene.drain.err_tail) == 1);
    CHECK(scene.drain.out >= 0 && scene.drain.err >= 0);
    close(scene.out);
    scene.out = -1;
    CHECK(sn_drain_rest(&scene.drain) == SN_OK);
    CHECK(scene.drain.out == -1 && scene.drain.err >= 0);
    close_scene(&scene);
}

TEST(drain_ends_at_the_deadline_by_cancel_and_when_the_other_side_is_gone)
{
    struct scene scene;
    struct sn_guest_reply reply;

    CHECK(open_scene(&scene, 10));
    CHECK(write(scene.out, "partial", 7) == 7);
    scene.drain.deadline = sn_clock_now() + 20 * 1000000;
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_TIMED_OUT);
    CHECK(sn_tail_total_bytes(scene.drain.out_tail) == 7);
    scene.drain.deadline = SN_NO_DEADLINE;
    scene.drain.cancel = eventfd(1, 0);
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_CANCELLED && !scene.drain.ticked);
    close(scene.drain.cancel);
    scene.drain.cancel = -1;
    close(scene.call);
    scene.call = -1;
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_CLOSED);
    close_scene(&scene);
}

static int third_time(void *context)
{
    return ++*(int *)context == 3;
}

TEST(drain_ticks_while_it_waits)
{
    struct scene scene;
    struct sn_guest_reply reply;
    int ticks = 0;

    CHECK(open_scene(&scene, 10));
    scene.drain.tick = (struct sn_tick){.call = third_time, .context = &ticks, .every_ms = 5};
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_CANCELLED);
    CHECK(scene.drain.ticked && ticks == 3);
    close_scene(&scene);
}

TEST(drain_refuses_half_a_reply)
{
    struct scene scene;
    struct sn_guest_reply reply;

    CHECK(open_scene(&scene, 10));
    CHECK(send(scene.call, "half", 4, 0) == 4);
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_INVALID);
    close_scene(&scene);
}

TEST(drain_says_when_there_is_no_memory)
{
    enum sn_status status = SN_OK;

    WITH_EACH_ALLOCATION_FAILING(status, {
        struct scene scene;
        struct sn_guest_reply reply;
        if (open_scene(&scene, 100000)) {
            (void)!write(scene.out, "some output", 11);
            (void)say(&scene, SN_REPLY_EXITED, 0);
            status = sn_drain_reply(&scene.drain, &reply);
            status = status == SN_OK ? sn_drain_rest(&scene.drain) : status;
        } else {
            status = SN_NO_MEMORY;
        }
        close_scene(&scene);
    });
}

TEST(clock_rounds_up_and_ends_at_zero)
{
    CHECK(sn_clock_left_ms(SN_NO_DEADLINE) == -1);
    CHECK(sn_clock_left_ms(sn_clock_now() - 1) == 0);
    CHECK(sn_clock_left_ms(sn_clock_now() + 100) <= 1);
    CHECK(sn_clock_left_ms(sn_clock_now() + 3600LL * 1000000000) > 3599000);
    CHECK(sn_clock_left_ms(SN_NO_DEADLINE - 1) == INT32_MAX);
}

static struct {
    char bytes[64];
    size_t len;
    enum sn_status answer;
} taken;

static enum sn_status take(void *context, const char *data, size_t len)
{
    (void)context;
    if (taken.answer == SN_OK) {
        memcpy(taken.bytes + taken.len, data, len);
        taken.len += len;
    }
    return taken.answer;
}

static struct sn_drain_sink sink_of(uint64_t room)
{
    taken.len = 0;
    taken.answer = SN_OK;
    return (struct sn_drain_sink){.write = take, .room = room};
}

TEST(drain_gives_standard_output_whole_to_a_sink)
{
    struct scene scene;
    struct sn_guest_reply reply;
    struct sn_drain_sink sink = sink_of(6);

    CHECK(open_scene(&scene, 4));
    scene.drain.sink = &sink;
    CHECK(write(scene.out, "output", 6) == 6 && write(scene.err, "error", 5) == 5);
    CHECK(say(&scene, SN_REPLY_EXITED, 0));
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_OK);
    CHECK(sn_drain_rest(&scene.drain) == SN_OK);
    CHECK(sink.taken == 6 && taken.len == 6 && memcmp(taken.bytes, "output", 6) == 0);
    CHECK(sn_tail_total_bytes(scene.drain.out_tail) == 0);
    CHECK(sn_tail_total_bytes(scene.drain.err_tail) == 5);
    /* One byte more is not passed on. */
    CHECK(write(scene.out, "!", 1) == 1);
    CHECK(sn_drain_rest(&scene.drain) == SN_TOO_LARGE && taken.len == 6);
    close_scene(&scene);
}

TEST(drain_ends_with_what_the_sink_says)
{
    struct scene scene;
    struct sn_guest_reply reply;
    struct sn_drain_sink sink = sink_of(100);

    CHECK(open_scene(&scene, 4));
    scene.drain.sink = &sink;
    taken.answer = SN_CANCELLED;
    CHECK(write(scene.out, "output", 6) == 6);
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_CANCELLED && sink.taken == 0);
    close_scene(&scene);
}

TEST(drain_ends_when_nothing_comes_for_the_sink)
{
    struct scene scene;
    struct sn_guest_reply reply;
    struct sn_drain_sink sink = sink_of(100);

    CHECK(open_scene(&scene, 4));
    scene.drain.sink = &sink;
    sink.stall_ns = 20000000;
    CHECK(write(scene.err, "busy", 4) == 4);
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_TIMED_OUT);
    /* What has come counts, however late it is looked at. */
    CHECK(write(scene.out, "output", 6) == 6 && say(&scene, SN_REPLY_EXITED, 0));
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_OK);
    CHECK(sn_drain_rest(&scene.drain) == SN_OK && taken.len == 6);
    close_scene(&scene);
}

/* The answer to the order to kill is seen however little the reader of the output does. */
TEST(drain_does_not_take_a_bad_reader_for_a_bad_runner)
{
    struct scene scene;
    struct sn_guest_reply reply;
    char filler[4096] = {0};
    int stuck[2], left[2];

    (void)signal(SIGPIPE, SIG_IGN);
    CHECK(open_scene(&scene, 10) && pipe2(stuck, O_NONBLOCK) == 0 && pipe(left) == 0);
    while (write(stuck[1], filler, sizeof filler) > 0) {
    }
    close(left[0]);
    scene.drain.out_to = stuck[1];
    scene.drain.err_to = left[1];
    scene.drain.deadline = sn_clock_now() + 100 * SN_NS_PER_S;
    scene.drain.readers_until = sn_clock_now() + 20 * SN_NS_PER_MS;
    CHECK(write(scene.out, "dying", 5) == 5 && write(scene.err, "words", 5) == 5);
    /* The output is looked at first. */
    struct sn_drain waiting = scene.drain;
    waiting.call = -1;
    waiting.deadline = sn_clock_now() + 500 * SN_NS_PER_MS;
    CHECK(sn_drain_reply(&waiting, &reply) == SN_TIMED_OUT);
    CHECK(waiting.out_to == -1 && waiting.err_to == -1);
    CHECK(sn_tail_total_bytes(scene.drain.out_tail) == 5 &&
          sn_tail_total_bytes(scene.drain.err_tail) == 5);
    CHECK(write(scene.out, "dying", 5) == 5 && write(scene.err, "words", 5) == 5);
    CHECK(say(&scene, SN_REPLY_KILLED, 0));
    CHECK(sn_drain_reply(&scene.drain, &reply) == SN_OK && reply.kind == SN_REPLY_KILLED);
    CHECK(sn_drain_rest(&scene.drain) == SN_OK);
    CHECK(sn_tail_total_bytes(scene.drain.err_tail) == 10);
    close(stuck[0]);
    close(stuck[1]);
    close(left[1]);
    close_scene(&scene);
}
