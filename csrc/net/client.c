/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/clock.h"
#include "net/fork_gate.h"
#include "net/lane.h"
#include "net/trust.h"

/* More idle lanes than agents of one process are likely to be are ended, not kept. */
#define MAX_IDLE 64
/* Answers left to run out at the same time; the oldest is cut when there are more. */
#define MAX_DRAINING 8

/* TCP keep-alive, so that a peer that vanished is noticed without traffic: seconds. */
#define KEEPALIVE_IDLE 30L
#define KEEPALIVE_INTERVAL 10L

/* Since 7.87.0: do not wait for a name lookup that was given up. The headers may be older. */
#define OPTION_QUICK_EXIT ((CURLoption)(CURLOPTTYPE_LONG + 322))
/* The same of a multi handle's end, since 8.20.0. */
#define MULTI_OPTION_QUICK_EXIT ((CURLMoption)(CURLOPTTYPE_LONG + 21))
/* Since 7.87.0: for how long libcurl keeps a store in the multi handle. Before 8.4 it puts that
 * over the one a context callback has installed. */
#define OPTION_CA_CACHE_TIMEOUT ((CURLoption)(CURLOPTTYPE_LONG + 321))

struct sn_client {
    const struct sn_curl *curl; /* NULL before the first lane */
    char *ca_file, *ca_dir;
    long connect_ms, keep_s;
    pid_t pid;            /* of the process that made the lanes */
    pthread_mutex_t lock; /* over the lists and counts */
    struct sn_lane *all, *idle;
    struct sn_lane *draining; /* oldest first */
    unsigned lanes, idle_count, draining_count;
    pthread_mutex_t trust_lock; /* over `trust` */
    struct sn_trust trust;
    CURLSH *share;
    pthread_mutex_t share_locks[CURL_LOCK_DATA_LAST];
};

static void make_locks(struct sn_client *client)
{
    (void)pthread_mutex_init(&client->lock, NULL);
    (void)pthread_mutex_init(&client->trust_lock, NULL);
    for (size_t i = 0; i < CURL_LOCK_DATA_LAST; i++) {
        (void)pthread_mutex_init(&client->share_locks[i], NULL);
    }
}

static bool copy_text(const char *text, char **out)
{
    size_t size = text != NULL ? strlen(text) + 1 : 0;

    *out = NULL;
    if (text == NULL) {
        return true;
    }
    *out = sn_malloc(size);
    if (*out != NULL) {
        memcpy(*out, text, size);
    }
    return *out != NULL;
}

enum sn_status sn_client_new(const struct sn_client_config *config, struct sn_client **out)
{
    struct sn_client *client;

    *out = NULL;
    if (config->connect_ns < SN_NS_PER_MS || config->keep_ns < 0) {
        return SN_INVALID;
    }
    client = sn_calloc(1, sizeof *client);
    if (client == NULL) {
        return SN_NO_MEMORY;
    }
    make_locks(client);
    client->pid = getpid();
    client->connect_ms = (long)(config->connect_ns / SN_NS_PER_MS);
    client->keep_s = (long)(config->keep_ns / SN_NS_PER_S);
    if (!copy_text(config->ca_file, &client->ca_file) ||
        !copy_text(config->ca_dir, &client->ca_dir)) {
        sn_client_free(client);
        return SN_NO_MEMORY;
    }
    *out = client;
    return SN_OK;
}

/* ---- sockets ---- */

static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct sn_lane *lane = ctx;
    struct stat info;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

    (void)purpose;
    if (fd < 0 || fstat(fd, &info) != 0) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return CURL_SOCKET_BAD;
    }
    for (size_t i = 0; i < SN_LANE_SOCKETS; i++) {
        if (atomic_load(&lane->sockets[i].fd) < 0) {
            lane->sockets[i].inode = info.st_ino;
            atomic_store(&lane->sockets[i].fd, fd);
            break;
        }
    }
    return fd;
}

static int close_socket(void *ctx, curl_socket_t fd)
{
    struct sn_lane *lane = ctx;

    /* Out of the table first: a child forked in between must not close what it may have reused. */
    for (size_t i = 0; i < SN_LANE_SOCKETS; i++) {
        if (atomic_load(&lane->sockets[i].fd) == fd) {
            atomic_store(&lane->sockets[i].fd, -1);
        }
    }
    return close(fd);
}

bool sn_lane_has_closed_connection(const struct sn_lane *lane)
{
    for (size_t i = 0; i < SN_LANE_SOCKETS; i++) {
        struct pollfd end = {.fd = atomic_load(&lane->sockets[i].fd), .events = POLLRDHUP};

        if (end.fd >= 0 && poll(&end, 1, 0) > 0) {
            return true;
        }
    }
    return false;
}

static void close_raw(struct sn_lane *lane)
{
    for (size_t i = 0; i < SN_LANE_SOCKETS; i++) {
        int fd = atomic_load(&lane->sockets[i].fd);
        struct stat info;

        if (fd >= 0 && fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) &&
            info.st_ino == lane->sockets[i].inode) {
            (void)close(fd);
        }
        atomic_store(&lane->sockets[i].fd, -1);
    }
}

void sn_client_after_fork(struct sn_client *client)
{
    if (client->pid == getpid()) {
        return;
    }
    for (struct sn_lane *lane = client->all; lane != NULL; lane = lane->all_next) {
        close_raw(lane);
    }
    /* Another thread of the parent may have held any of these locks; they are made anew. */
    make_locks(client);
    memset(&client->trust, 0, sizeof client->trust);
    client->all = client->idle = client->draining = NULL;
    client->lanes = client->idle_count = client->draining_count = 0;
    client->share = NULL;
    client->pid = getpid();
}

/* ---- what lanes share ---- */

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *ctx)
{
    struct sn_client *client = ctx;

    (void)easy;
    (void)access;
    (void)pthread_mutex_lock(&client->share_locks[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *ctx)
{
    struct sn_client *client = ctx;

    (void)easy;
    (void)pthread_mutex_unlock(&client->share_locks[data]);
}

/* Called with the client's lock held. */
static enum sn_status make_share_locked(struct sn_client *client)
{
    const struct sn_curl *curl = client->curl;

    if (client->share != NULL) {
        return SN_OK;
    }
    client->share = curl->share_init();
    if (client->share == NULL) {
        return SN_NO_MEMORY;
    }
    if (curl->share_setopt(client->share, CURLSHOPT_LOCKFUNC, share_lock) != CURLSHE_OK ||
        curl->share_setopt(client->share, CURLSHOPT_UNLOCKFUNC, share_unlock) != CURLSHE_OK ||
        curl->share_setopt(client->share, CURLSHOPT_USERDATA, client) != CURLSHE_OK ||
        curl->share_setopt(client->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS) != CURLSHE_OK ||
        curl->share_setopt(client->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) !=
            CURLSHE_OK) {
        (void)curl->share_cleanup(client->share);
        client->share = NULL;
        return SN_NO_MEMORY;
    }
    return SN_OK;
}

/* ---- lanes ---- */

void sn_stay_begin(struct sn_stay *stay)
{
    sn_sigpipe_block(&stay->sigpipe);
    sn_fork_gate_enter();
}

void sn_stay_end(const struct sn_stay *stay)
{
    sn_fork_gate_leave();
    sn_sigpipe_restore(&stay->sigpipe);
}

CURLMcode sn_lane_perform(struct sn_lane *lane, int *running)
{
    struct sn_stay stay;
    CURLMcode code;

    sn_stay_begin(&stay);
    code = lane->curl->multi_perform(lane->multi, running);
    sn_stay_end(&stay);
    return code;
}

void sn_lane_unpause(struct sn_lane *lane)
{
    struct sn_stay stay;

    sn_stay_begin(&stay);
    (void)lane->curl->easy_pause(lane->easy, CURLPAUSE_CONT);
    sn_stay_end(&stay);
}

void sn_lane_detach(struct sn_lane *lane)
{
    struct sn_stay stay;

    sn_stay_begin(&stay);
    (void)lane->curl->multi_remove_handle(lane->multi, lane->easy);
    /* No pointer into a request may stay behind. */
    lane->curl->easy_reset(lane->easy);
    sn_trust_release(lane->store);
    sn_stay_end(&stay);
    lane->store = NULL;
    lane->draining = false;
    lane->transfer = NULL;
    lane->curl->slist_free_all(lane->headers);
    lane->headers = NULL;
}

/* Ends a lane that is in no list any more. */
static void free_lane(struct sn_lane *lane)
{
    struct sn_stay stay;

    if (lane->draining) {
        sn_lane_detach(lane);
    }
    sn_stay_begin(&stay);
    if (lane->easy != NULL) {
        lane->curl->easy_cleanup(lane->easy);
    }
    if (lane->multi != NULL) {
        (void)lane->curl->multi_cleanup(lane->multi);
    }
    sn_stay_end(&stay);
    sn_free(lane);
}

static struct sn_lane *new_lane(struct sn_client *client)
{
    const struct sn_curl *curl = client->curl;
    struct sn_lane *lane = sn_calloc(1, sizeof *lane);

    if (lane == NULL) {
        return NULL;
    }
    lane->curl = curl;
    lane->client = client;
    lane->pid = getpid();
    for (size_t i = 0; i < SN_LANE_SOCKETS; i++) {
        atomic_init(&lane->sockets[i].fd, -1);
    }
    lane->easy = curl->easy_init();
    lane->multi = curl->multi_init();
    if (lane->easy == NULL || lane->multi == NULL ||
        curl->multi_setopt(lane->multi, CURLMOPT_MAXCONNECTS, (long)SN_LANE_CONNECTIONS) !=
            CURLM_OK) {
        free_lane(lane);
        return NULL;
    }
    (void)curl->multi_setopt(lane->multi, MULTI_OPTION_QUICK_EXIT, 1L);
    return lane;
}

enum sn_status sn_lane_set_common(struct sn_lane *lane, bool tls)
{
    struct sn_client *client = lane->client;
    CURL *easy = lane->easy;
    bool ok = true;
#define SET(option, value) ok = ok && lane->curl->easy_setopt(easy, option, value) == CURLE_OK

    if (tls) {
        (void)pthread_mutex_lock(&client->trust_lock);
        sn_fork_gate_enter();
        lane->store = sn_trust_store(&client->trust, client->ca_file, client->ca_dir);
        sn_fork_gate_leave();
        (void)pthread_mutex_unlock(&client->trust_lock);
    }
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_NOPROGRESS, 1L);
    SET(CURLOPT_ERRORBUFFER, lane->error);
    SET(CURLOPT_SHARE, client->share);
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    SET(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    SET(CURLOPT_NOPROXY, "");
    SET(CURLOPT_CONNECTTIMEOUT_MS, client->connect_ms);
    SET(CURLOPT_MAXAGE_CONN, client->keep_s > 0 ? client->keep_s : 1L);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_TCP_KEEPIDLE, KEEPALIVE_IDLE);
    SET(CURLOPT_TCP_KEEPINTVL, KEEPALIVE_INTERVAL);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_OPENSOCKETDATA, lane);
    SET(CURLOPT_CLOSESOCKETFUNCTION, close_socket);
    SET(CURLOPT_CLOSESOCKETDATA, lane);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (lane->store != NULL) {
        SET(CURLOPT_SSL_CTX_FUNCTION, sn_trust_install);
        SET(CURLOPT_SSL_CTX_DATA, lane->store);
    }
    if (lane->store != NULL || client->ca_file != NULL || client->ca_dir != NULL) {
        /* What the environment names replaces the system's, it does not add to it. With a store
         * there is nothing left to load, and nothing is trusted should it not be installed. */
        const char *file = lane->store != NULL ? NULL : client->ca_file;
        const char *folder = lane->store != NULL ? NULL : client->ca_dir;

        SET(CURLOPT_CAINFO, file);
        SET(CURLOPT_CAPATH, folder);
        SET(CURLOPT_PROXY_CAINFO, file);
        SET(CURLOPT_PROXY_CAPATH, folder);
    }
#undef SET
    /* Unknown to older versions, which then do not need or offer them. */
    (void)lane->curl->easy_setopt(easy, OPTION_QUICK_EXIT, 1L);
    if (lane->store != NULL) {
        (void)lane->curl->easy_setopt(easy, OPTION_CA_CACHE_TIMEOUT, 0L);
    }
    return ok ? SN_OK : SN_NO_MEMORY;
}

/* Lets a draining lane read what has come. True when the lane is free for use: its answer is over,
 * or was not worth more waiting. */
static bool drain(struct sn_lane *lane)
{
    int running = 0;

    if (sn_lane_perform(lane, &running) == CURLM_OK && running > 0 &&
        sn_clock_now() < lane->drain_until_ns) {
        return false;
    }
    sn_lane_detach(lane);
    return true;
}

/* Lets the oldest of the draining lanes move on, at each use of the client, since nothing else
 * would. Returns it if it is free now. */
static struct sn_lane *take_drained(struct sn_client *client)
{
    struct sn_lane *lane;

    (void)pthread_mutex_lock(&client->lock);
    lane = client->draining;
    if (lane != NULL) {
        client->draining = lane->queue_next;
        client->draining_count--;
    }
    (void)pthread_mutex_unlock(&client->lock);
    if (lane == NULL || drain(lane)) {
        return lane;
    }
    (void)pthread_mutex_lock(&client->lock);
    lane->queue_next = client->draining;
    client->draining = lane;
    client->draining_count++;
    (void)pthread_mutex_unlock(&client->lock);
    return NULL;
}

/* Called with the client's lock held. The lane used last has the freshest connection. */
static struct sn_lane *take_idle_locked(struct sn_client *client)
{
    struct sn_lane *lane = client->idle;

    if (lane != NULL) {
        client->idle = lane->queue_next;
        client->idle_count--;
    }
    return lane;
}

enum sn_status sn_client_take(struct sn_client *client, struct sn_lane **out, const char **why)
{
    struct sn_lane *lane, *drained;
    enum sn_status status;

    *out = NULL;
    *why = NULL;
    sn_client_after_fork(client);
    (void)pthread_mutex_lock(&client->lock);
    if (client->curl == NULL) {
        client->curl = sn_curl_load(why);
    }
    status = client->curl != NULL ? make_share_locked(client) : SN_CLOSED;
    (void)pthread_mutex_unlock(&client->lock);
    if (status != SN_OK) {
        return status;
    }
    drained = take_drained(client);
    (void)pthread_mutex_lock(&client->lock);
    lane = take_idle_locked(client);
    (void)pthread_mutex_unlock(&client->lock);
    if (lane == NULL) {
        lane = drained;
    } else if (drained != NULL) {
        sn_client_give_back(client, drained);
    }
    if (lane == NULL) {
        lane = new_lane(client);
        if (lane == NULL) {
            return SN_NO_MEMORY;
        }
        (void)pthread_mutex_lock(&client->lock);
        lane->all_next = client->all;
        client->all = lane;
        client->lanes++;
        (void)pthread_mutex_unlock(&client->lock);
    }
    *out = lane;
    return SN_OK;
}

/* Called with the client's lock held. */
static void forget_locked(struct sn_client *client, struct sn_lane *lane)
{
    struct sn_lane **at = &client->all;

    while (*at != NULL && *at != lane) {
        at = &(*at)->all_next;
    }
    if (*at == lane) {
        *at = lane->all_next;
        client->lanes--;
    }
}

void sn_client_give_back(struct sn_client *client, struct sn_lane *lane)
{
    struct sn_lane *oldest = NULL, *surplus = NULL;

    if (lane->pid != getpid()) {
        return; /* the parent's: left alone */
    }
    (void)pthread_mutex_lock(&client->lock);
    if (lane->draining) {
        struct sn_lane **end = &client->draining;

        while (*end != NULL) {
            end = &(*end)->queue_next;
        }
        lane->queue_next = NULL;
        *end = lane;
        lane = NULL;
        if (++client->draining_count > MAX_DRAINING) {
            oldest = client->draining;
            client->draining = oldest->queue_next;
            client->draining_count--;
        }
    }
    (void)pthread_mutex_unlock(&client->lock);
    if (oldest != NULL) {
        sn_lane_detach(oldest);
        lane = oldest;
    }
    if (lane == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&client->lock);
    if (client->idle_count < MAX_IDLE) {
        lane->queue_next = client->idle;
        client->idle = lane;
        client->idle_count++;
    } else {
        forget_locked(client, lane);
        surplus = lane;
    }
    (void)pthread_mutex_unlock(&client->lock);
    if (surplus != NULL) {
        free_lane(surplus);
    }
}

void sn_client_count(struct sn_client *client, unsigned *lanes, unsigned *idle)
{
    sn_client_after_fork(client);
    (void)pthread_mutex_lock(&client->lock);
    *lanes = client->lanes;
    *idle = client->idle_count;
    (void)pthread_mutex_unlock(&client->lock);
}

void sn_client_free(struct sn_client *client)
{
    if (client == NULL) {
        return;
    }
    sn_client_after_fork(client);
    while (client->all != NULL) {
        struct sn_lane *lane = client->all;

        client->all = lane->all_next;
        free_lane(lane);
    }
    if (client->share != NULL) {
        (void)client->curl->share_cleanup(client->share);
    }
    sn_trust_release(client->trust.store);
    (void)pthread_mutex_destroy(&client->trust_lock);
    (void)pthread_mutex_destroy(&client->lock);
    for (size_t i = 0; i < CURL_LOCK_DATA_LAST; i++) {
        (void)pthread_mutex_destroy(&client->share_locks[i]);
    }
    sn_free(client->ca_file);
    sn_free(client->ca_dir);
    sn_free(client);
}
