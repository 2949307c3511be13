/* SPDX-License-Identifier: Apache-2.0 */
#include "net/trust.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "core/clock.h"

/* X509_V_FLAG_TRUSTED_FIRST and X509_V_FLAG_PARTIAL_CHAIN: what libcurl sets for its own stores. */
#define STORE_FLAGS (0x8000UL | 0x80000UL)

/* Of the libssl and libcrypto that libcurl itself uses, found through its handle: a process may
 * have others loaded. Declared here, so that no OpenSSL headers are needed to build. */
static struct {
    void *(*store_new)(void);
    int (*store_up_ref)(void *store);
    void (*store_free)(void *store);
    int (*store_load)(void *store, const char *file, const char *folder);
    int (*store_set_flags)(void *store, unsigned long flags);
    void (*ctx_set_store)(void *ssl_ctx, void *store);
    void (*clear_errors)(void);
    bool usable;
} openssl;
static const char *default_file, *default_folder;

static void find_openssl(void)
{
    const char *why;
    const struct sn_curl *curl = sn_curl_load(&why);
    const curl_version_info_data *version =
        curl != NULL ? curl->version_info(CURLVERSION_NOW) : NULL;
    void *library;

    if (version == NULL || version->ssl_version == NULL ||
        strncmp(version->ssl_version, "OpenSSL/", 8) != 0) {
        return;
    }
    library = dlopen(SN_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == NULL) {
        return;
    }
    *(void **)(&openssl.store_new) = dlsym(library, "X509_STORE_new");
    *(void **)(&openssl.store_up_ref) = dlsym(library, "X509_STORE_up_ref");
    *(void **)(&openssl.store_free) = dlsym(library, "X509_STORE_free");
    *(void **)(&openssl.store_load) = dlsym(library, "X509_STORE_load_locations");
    *(void **)(&openssl.store_set_flags) = dlsym(library, "X509_STORE_set_flags");
    *(void **)(&openssl.ctx_set_store) = dlsym(library, "SSL_CTX_set1_cert_store");
    *(void **)(&openssl.clear_errors) = dlsym(library, "ERR_clear_error");
    openssl.usable = openssl.store_new != NULL && openssl.store_up_ref != NULL &&
                     openssl.store_free != NULL && openssl.store_load != NULL &&
                     openssl.store_set_flags != NULL && openssl.ctx_set_store != NULL &&
                     openssl.clear_errors != NULL;
    default_file = version->cainfo;
    default_folder = version->capath;
}

static struct sn_trust_source look_at(const char *path)
{
    struct sn_trust_source source = {0};
    struct stat info;

    if (path != NULL && stat(path, &info) == 0) {
        source.changed_ns =
            (int64_t)info.st_mtim.tv_sec * SN_NS_PER_S + (int64_t)info.st_mtim.tv_nsec;
        source.inode = info.st_ino;
        source.size = info.st_size;
    }
    return source;
}

static bool is_same(const struct sn_trust_source *a, const struct sn_trust_source *b)
{
    return a->changed_ns == b->changed_ns && a->inode == b->inode && a->size == b->size;
}

static void *make_store(const char *file, const char *folder)
{
    void *store = openssl.store_new();

    if (store != NULL && (openssl.store_load(store, file, folder) != 1 ||
                          openssl.store_set_flags(store, STORE_FLAGS) != 1)) {
        openssl.store_free(store);
        store = NULL;
    }
    openssl.clear_errors();
    return store;
}

void *sn_trust_store(struct sn_trust *trust, const char *file, const char *folder)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct sn_trust_source file_now, folder_now;

    (void)pthread_once(&once, find_openssl);
    if (!openssl.usable) {
        return NULL;
    }
    if (file == NULL && folder == NULL) {
        file = default_file;
        folder = default_folder;
    }
    if (file == NULL && folder == NULL) {
        return NULL;
    }
    file_now = look_at(file);
    folder_now = look_at(folder);
    if (trust->store == NULL || !is_same(&trust->file, &file_now) ||
        !is_same(&trust->folder, &folder_now)) {
        sn_trust_release(trust->store);
        trust->store = make_store(file, folder);
        trust->file = file_now;
        trust->folder = folder_now;
    }
    if (trust->store == NULL || openssl.store_up_ref(trust->store) != 1) {
        return NULL;
    }
    return trust->store;
}

void sn_trust_release(void *store)
{
    if (store != NULL) {
        openssl.store_free(store);
    }
}

CURLcode sn_trust_install(CURL *easy, void *ssl_ctx, void *store)
{
    (void)easy;
    openssl.ctx_set_store(ssl_ctx, store);
    return CURLE_OK;
}
