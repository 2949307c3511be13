/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base64.h"
#include "harness.h"

TEST(base64_of_the_rfc)
{
    static const char *const vectors[][2] = {{"", ""},
                                             {"f", "Zg=="},
                                             {"fo", "Zm8="},
                                             {"foo", "Zm9v"},
                                             {"foob", "Zm9vYg=="},
                                             {"fooba", "Zm9vYmE="},
                                             {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct sn_b64_decoder decoder = {0};
        const char *plain = vectors[i][0];
        const char *coded = vectors[i][1];
        uint8_t out[32];
        size_t size;
        size_t written;

        CHECK(sn_b64_encoded_size(strlen(plain), &size) == SN_OK && size == strlen(coded));
        sn_b64_encode((const uint8_t *)plain, strlen(plain), out);
        CHECK(memcmp(out, coded, size) == 0);
        CHECK(sn_b64_decode(&decoder, (const uint8_t *)coded, size, out, sizeof out, &written) ==
              SN_OK);
        CHECK(sn_b64_finish(&decoder) == SN_OK);
        CHECK(written == strlen(plain) && memcmp(out, plain, written) == 0);
    }
    CHECK(sn_b64_encoded_size(SIZE_MAX, &(size_t){0}) == SN_TOO_LARGE);
}

TEST(base64_cut_anywhere_and_spaced_anyhow_comes_back)
{
    for (int round = 0; round < 2000; round++) {
        size_t len = harness_below(300);
        uint8_t *data = malloc(len + 1);
        uint8_t *coded = malloc(len * 3 + 16);
        uint8_t *spaced = malloc(len * 6 + 32);
        uint8_t *back = malloc(len + 64);
        struct sn_b64_decoder decoder = {0};
        size_t size = 0;
        size_t filled = 0;
        size_t got = 0;
        size_t gap = 1 + harness_below(120);
        bool good = true;

        for (size_t i = 0; i < len; i++) {
            data[i] = (uint8_t)harness_random();
        }
        good &= sn_b64_encoded_size(len, &size) == SN_OK;
        sn_b64_encode(data, len, coded);
        for (size_t i = 0; i < size; i++) {
            if (round % 3 != 0 && harness_below(gap) == 0) {
                spaced[filled++] = (uint8_t) " \t\n\v\f\r"[harness_below(6)];
            }
            spaced[filled++] = coded[i];
        }
        for (size_t done = 0; done < filled && good;) {
            size_t part = 1 + harness_below(filled - done);
            size_t written = 0;
            /* Exact blocks, so that AddressSanitizer sees a step over either end. */
            uint8_t *in = malloc(part);
            size_t room = sn_b64_decoded_size(&decoder, spaced + done, part);
            uint8_t *out = malloc(room != 0 ? room : 1);

            memcpy(in, spaced + done, part);
            good &= room <= sn_b64_decoded_bound(part);
            good &= sn_b64_decode(&decoder, in, part, out, room, &written) == SN_OK;
            good &= written == room;
            memcpy(back + got, out, written);
            got += written;
            done += part;
            free(in);
            free(out);
        }
        good &= decoder.position == filled && sn_b64_finish(&decoder) == SN_OK;
        good &= got == len && memcmp(back, data, len) == 0;
        free(data);
        free(coded);
        free(spaced);
        free(back);
        CHECK(good);
    }
}

TEST(what_is_not_base64_is_refused_where_it_is)
{
    static const struct {
        const char *text;
        int64_t bad; /* -1: only the end is missing */
    } cases[] = {{"Zg=", -1},      {"Zg", -1},
                 {"Z", -1},        {"Zm8", -1},
                 {"=", 0},         {"Z=", 1},
                 {"Zm9v=", 4},     {"Zg===", 4},
                 {"Zm8==", 4},     {"Zg==Zg==", 4},
                 {"Zg=a", 3},      {"Zh==", 2},
                 {"Zm9=", 3},      {"Zm9v!", 4},
                 {"Zm9-", 3},      {"Zm_v", 2},
                 {"Zm\x80v", 2},   {"Zm,v", 2},
                 {"Zg==\n\n=", 6}, {"Zm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9vZm9v:m9v", 40}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sn_b64_decoder decoder = {0};
        uint8_t out[128];
        size_t written;
        enum sn_status status = sn_b64_decode(&decoder, (const uint8_t *)cases[i].text,
                                              strlen(cases[i].text), out, sizeof out, &written);

        if (cases[i].bad < 0) {
            CHECK(status == SN_OK && sn_b64_finish(&decoder) == SN_INVALID);
        } else {
            CHECK(status == SN_INVALID && decoder.position == (uint64_t)cases[i].bad);
        }
    }
}

TEST(base64_never_writes_beyond_its_room)
{
    uint8_t text[400];

    memset(text, 'Q', sizeof text);
    for (size_t room = 0; room < 310; room++) {
        struct sn_b64_decoder decoder = {0};
        uint8_t *out = malloc(room != 0 ? room : 1);
        size_t written;
        enum sn_status status = sn_b64_decode(&decoder, text, sizeof text, out, room, &written);

        free(out);
        CHECK(status == (room >= 300 ? SN_OK : SN_TOO_LARGE));
        CHECK(written == (room >= 300 ? 300 : room / 3 * 3));
    }
}

TEST(every_width_of_base64_takes_the_same)
{
    sn_b64_run *widths[SN_B64_WIDTHS];
    size_t count = sn_b64_widths(widths);
    static const char letters[] = "ABCXYZabcxyz0189+/";

    for (int byte = 0; byte < 256; byte++) {
        for (size_t at = 0; at < 70; at += 3) {
            uint8_t in[72];
            uint8_t outs[SN_B64_WIDTHS][64 + 32] = {{0}};
            size_t taken = SIZE_MAX;

            for (size_t i = 0; i < sizeof in; i++) {
                in[i] = (uint8_t)letters[harness_below(sizeof letters - 1)];
            }
            in[at] = (uint8_t)byte;
            for (size_t w = count; w-- > 0;) {
                size_t took = widths[w](in, sizeof in, outs[w], sizeof outs[w]);

                /* The scalar one comes first here; a wide one may leave the rest to it. */
                CHECK(w == count - 1 ? took % 4 == 0 : took <= taken && taken - took < 32 + 8);
                taken = w == count - 1 ? took : taken;
                CHECK(memcmp(outs[w], outs[count - 1], took / 4 * 3) == 0);
            }
        }
    }
}
