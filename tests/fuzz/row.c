/* The compiled reader of rows under a sanitizer: whatever the bytes, it reads none but them.

   For clang: clang -g -O1 -fsanitize=fuzzer,address,undefined -I mala_context/analysis/replay tests/fuzz/row.c
   With STANDALONE it reads inputs from standard input, each behind its size (4 bytes, as the machine has them). */

#include <stdio.h>
#include <stdlib.h>

#include "_row.h"

static void hold(row_text text, const char *from, const char *end) {
    if (text.at && (text.at < from || text.size > (size_t)(end - text.at))) abort();
    for (size_t i = 0; i < text.size; i++)
        if (text.at[i] < 0x20 || text.at[i] == '"' || text.at[i] == '\\') abort();
}

static size_t plain;
static uint64_t sum = 14695981039346656037u; /* FNV-1a over what was found */

static void mix(uint64_t value) {
    sum = (sum ^ value) * 1099511628211u;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size ? size : 1), *end = copy + size; /* of its own size: a byte more is seen */
    memcpy(copy, data, size);
    for (const char *p = copy; p < end;) {
        row found;
        const char *stop = row_read(p, end, &found);
        if (stop) {
            plain++;
            if (stop <= p || stop > end || (stop < end && *stop != '\n')) abort();
            const row_text texts[] = {found.parent, found.session, found.agent, found.type, found.subtype,
                found.request, found.uuid, found.timestamp, found.model, found.id};
            for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
                hold(texts[i], p, stop);
                mix(texts[i].at ? (uint64_t)(texts[i].at - p) : 0);
                mix(texts[i].size);
            }
            mix((uint64_t)(stop - p));
            mix((uint64_t)(found.has_session_id | found.forked << 1 | found.sidechain << 2 | found.has_message << 3 | found.has_usage << 4 | found.has_parent << 5));
            for (size_t i = 0; i < 4; i++)
                mix((uint64_t)(const int64_t[]){found.input, found.creation, found.read, found.output}[i]);
            if (found.input < 0 || found.creation < 0 || found.read < 0 || found.output < 0) abort();
        } else {
            stop = memchr(p, '\n', (size_t)(end - p));
            if (!stop) break;
        }
        p = stop < end ? stop + 1 : end;
    }
    free(copy);
    return 0;
}

#ifdef STANDALONE
int main(void) {
    static uint8_t data[1 << 20];
    uint32_t size;
    size_t inputs = 0;
    while (fread(&size, sizeof size, 1, stdin) == 1) {
        if (size > sizeof data || fread(data, 1, size, stdin) != size) return 2;
        LLVMFuzzerTestOneInput(data, size);
        inputs++;
    }
    printf("%zu inputs, %zu plain rows, in sum %llx\n", inputs, plain, (unsigned long long)sum);
    return 0;
}
#endif
