/* One transcript row, as far as sizes need it: a strict reader of JSON that gives up where anything is unusual.

   A row is plain if the reader understood all of it; what it says of a plain row is what any JSON reader would say. It
   refuses what a reader could take in two ways (a key twice, an escape in a key or in a value that is kept, bytes that
   are not ASCII in such a value, counts of more than nine digits), so refusing is never wrong, only slower. Text is
   passed over 16 or 32 bytes at a time and never copied. Nothing is read at or past `end`, and nothing is allocated. */

#ifndef MALA_CONTEXT_ROW_H
#define MALA_CONTEXT_ROW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

#define ROW_DEPTH 256 /* nested deeper, a row is not plain */
#define ROW_DIGITS 9 /* of a count */

typedef struct {
    const char *at; /* NULL: not there, or null */
    size_t size;
} row_text;

typedef struct row {
    row_text parent, session, agent, type, subtype, request, uuid, timestamp, model, id;
    int has_parent;     /* the key is there, if only with null */
    int has_session_id; /* the key is there, if only with null: stream-json has it, and newer transcripts beside sessionId */
    int forked;         /* forkedFrom is not null */
    int sidechain;      /* true */
    int has_message; /* an object */
    int has_usage;
    int64_t input, creation, read, output;
} row;

static const char *row_space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p;
}

/* -- strings ------------------------------------------------------------------------------------------------------ */

#define ROW_CHUNK 64

/* Sets a bit of `word` for each of the `count` bytes from `at` on of which `test` holds. ROW_STEP: the fewest. */
#ifdef __AVX2__
#define ROW_STEP 32
#define ROW_EACH(word, count, at, bytes, test) \
    for (int row_i = 0; row_i < (count); row_i += 32) { \
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)((at) + row_i)); \
        word |= (uint64_t)(uint32_t)_mm256_movemask_epi8(test) << row_i; \
    }
#define ROW_EQUAL(bytes, c) _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(c))
#define ROW_CONTROL(bytes) _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes)
#define ROW_HIGH(bytes) bytes
#define ROW_OR(one, other) _mm256_or_si256(one, other)
#elif defined(__SSE2__)
#define ROW_STEP 16
#define ROW_EACH(word, count, at, bytes, test) \
    for (int row_i = 0; row_i < (count); row_i += 16) { \
        const __m128i bytes = _mm_loadu_si128((const __m128i *)((at) + row_i)); \
        word |= (uint64_t)(uint32_t)_mm_movemask_epi8(test) << row_i; \
    }
#define ROW_EQUAL(bytes, c) _mm_cmpeq_epi8(bytes, _mm_set1_epi8(c))
#define ROW_CONTROL(bytes) _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes)
#define ROW_HIGH(bytes) bytes
#define ROW_OR(one, other) _mm_or_si128(one, other)
#else
#define ROW_STEP 16
#define ROW_EACH(word, count, at, bytes, test) \
    for (int row_i = 0; row_i < (count); row_i++) { \
        const unsigned char bytes = (unsigned char)(at)[row_i]; \
        word |= (uint64_t)(test) << row_i; \
    }
#define ROW_EQUAL(bytes, c) (bytes == (unsigned char)(c))
#define ROW_CONTROL(bytes) (bytes < 0x20)
#define ROW_HIGH(bytes) (bytes >> 7)
#define ROW_OR(one, other) ((one) | (other))
#endif
#define ROW_ENDS(bytes) ROW_OR(ROW_OR(ROW_EQUAL(bytes, '"'), ROW_EQUAL(bytes, '\\')), ROW_CONTROL(bytes))

static int row_is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Whether a backslash before it makes this byte an escape. */
static int row_escapes(const char *p, const char *end) {
    switch (*p) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return 1;
    case 'u':
        return end - p >= 5 && row_is_hex(p[1]) && row_is_hex(p[2]) && row_is_hex(p[3]) && row_is_hex(p[4]);
    default:
        return 0;
    }
}

/* Which bytes a backslash stands before that is not itself escaped; `carry`: whether the chunk's first byte is one, and
   then whether the next chunk's is. */
static inline uint64_t row_escaped(uint64_t slashes, uint64_t *carry) {
    const uint64_t odd = 0xAAAAAAAAAAAAAAAAu;
    uint64_t first = *carry, begins = slashes & ~first;
    uint64_t ends = ((begins << 1 | odd) - begins) ^ odd;
    *carry = (ends & slashes) >> 63;
    return ends ^ (slashes | first);
}

/* After the quote that ends a string; p is after the one that begins it. NULL: no good string. */
static const char *row_string(const char *p, const char *end) {
    uint64_t carry = 0;
    if (end - p >= ROW_STEP) { /* most are short */
        uint64_t ends = 0;
        ROW_EACH(ends, ROW_STEP, p, c, ROW_ENDS(c))
        if (ends && p[__builtin_ctzll(ends)] == '"') return p + __builtin_ctzll(ends) + 1;
    }
    for (; end - p >= ROW_CHUNK; p += ROW_CHUNK) {
        uint64_t quotes = 0, slashes = 0, controls = 0, newlines = 0, escaped = 0;
        ROW_EACH(quotes, ROW_CHUNK, p, c, ROW_EQUAL(c, '"'))
        ROW_EACH(slashes, ROW_CHUNK, p, c, ROW_EQUAL(c, '\\'))
        ROW_EACH(controls, ROW_CHUNK, p, c, ROW_CONTROL(c))
        if (slashes | carry) {
            escaped = row_escaped(slashes, &carry);
            ROW_EACH(newlines, ROW_CHUNK, p, c, ROW_EQUAL(c, 'n'))
        }
        uint64_t closing = quotes & ~escaped, inside = closing ? (closing & -closing) - 1 : ~(uint64_t)0;
        escaped &= inside;
        if (controls & inside) return NULL;
        escaped &= ~(quotes | slashes | newlines);
        for (; escaped; escaped &= escaped - 1)
            if (!row_escapes(p + __builtin_ctzll(escaped), end)) return NULL;
        if (closing) return p + __builtin_ctzll(closing) + 1;
    }
    if (carry) p--; /* at the backslash */
    while (p < end && (unsigned char)*p >= 0x20) {
        if (*p == '"') return p + 1;
        if (*p++ != '\\') continue;
        if (p == end || !row_escapes(p++, end)) return NULL;
    }
    return NULL;
}

/* The same for text that is kept: ASCII without escapes. */
static const char *row_plain(const char *p, const char *end, row_text *text) {
    const char *stop = p;
    while (end - stop >= ROW_STEP) {
        uint64_t ends = 0;
        ROW_EACH(ends, ROW_STEP, stop, c, ROW_OR(ROW_ENDS(c), ROW_HIGH(c)))
        stop += ends ? __builtin_ctzll(ends) : ROW_STEP;
        if (ends) break;
    }
    while (stop < end && *stop != '"' && *stop != '\\' && *stop >= 0x20 && *stop < 0x7f) stop++;
    if (stop == end || *stop != '"') return NULL;
    text->at = p;
    text->size = (size_t)(stop - p);
    return stop + 1;
}

/* -- other values ------------------------------------------------------------------------------------------------- */

static const char *row_digits(const char *p, const char *end) {
    const char *first = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p == first ? NULL : p;
}

static const char *row_number(const char *p, const char *end) {
    if (p < end && *p == '-') p++;
    if (p < end && *p == '0') p++;
    else if (!(p = row_digits(p, end))) return NULL;
    if (p < end && *p == '.' && !(p = row_digits(p + 1, end))) return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        p = row_digits(p, end);
    }
    return p;
}

static const char *row_word(const char *p, const char *end, const char *word, size_t size) {
    return (size_t)(end - p) >= size && !memcmp(p, word, size) ? p + size : NULL;
}

static const char *row_null(const char *p, const char *end) {
    return row_word(p, end, "null", 4);
}

static const char *row_scalar(const char *p, const char *end) {
    switch (*p) {
    case '"': return row_string(p + 1, end);
    case 't': return row_word(p, end, "true", 4);
    case 'f': return row_word(p, end, "false", 5);
    case 'n': return row_null(p, end);
    default: return row_number(p, end);
    }
}

static const char *row_colon(const char *p, const char *end) {
    p = row_space(p, end);
    return p < end && *p == ':' ? row_space(p + 1, end) : NULL;
}

/* After any value. */
static const char *row_skip(const char *p, const char *end) {
    char closes[ROW_DEPTH];
    int depth = 0;
    for (;;) {
        if (p == end) return NULL;
        if (*p == '{' || *p == '[') {
            char close = *p == '{' ? '}' : ']';
            p = row_space(p + 1, end);
            if (p < end && *p == close) p++;
            else if (depth == ROW_DEPTH) return NULL;
            else {
                closes[depth++] = close;
                goto member;
            }
        } else if (!(p = row_scalar(p, end))) return NULL;
        for (;;) {
            if (!depth) return p;
            p = row_space(p, end);
            if (p == end) return NULL;
            if (*p == ',') break;
            if (*p++ != closes[--depth]) return NULL;
        }
        p = row_space(p + 1, end);
    member:
        if (closes[depth - 1] == '}') {
            if (p == end || *p != '"' || !(p = row_string(p + 1, end)) || !(p = row_colon(p, end))) return NULL;
        }
    }
}

static const char *row_maybe_text(const char *p, const char *end, row_text *text) {
    if (p < end && *p == '"') return row_plain(p + 1, end, text);
    return row_null(p, end);
}

static const char *row_count(const char *p, const char *end, int64_t *count) {
    const char *first = p;
    int64_t value = 0;
    while (p < end && *p >= '0' && *p <= '9' && p - first < ROW_DIGITS) value = value * 10 + (*p++ - '0');
    if (p == first || (*first == '0' && p - first > 1) || p == end) return NULL;
    if ((*p >= '0' && *p <= '9') || *p == '.' || *p == 'e' || *p == 'E') return NULL;
    *count = value;
    return p;
}

/* -- objects whose keys matter ------------------------------------------------------------------------------------ */

/* What a key's value goes into; returns what is after the value, or NULL. */
typedef const char *(*row_field)(const char *p, const char *end, row_text key, void *into, unsigned *seen);

static const char *row_object(const char *p, const char *end, row_field field, void *into) {
    unsigned seen = 0;
    if (p == end || *p != '{') return NULL;
    p = row_space(p + 1, end);
    if (p < end && *p == '}') return p + 1;
    for (;;) {
        row_text key;
        if (p == end || *p != '"' || !(p = row_plain(p + 1, end, &key)) || !(p = row_colon(p, end))) return NULL;
        if (p == end || !(p = field(p, end, key, into, &seen))) return NULL;
        p = row_space(p, end);
        if (p == end) return NULL;
        if (*p == '}') return p + 1;
        if (*p != ',') return NULL;
        p = row_space(p + 1, end);
    }
}

static int row_is(row_text text, const char *word, size_t size) {
    return text.size == size && !memcmp(text.at, word, size);
}

#define ROW_IS(text, word) row_is(text, word, sizeof(word) - 1)

/* Whether this key, the `bit`-th of its object, is there for the first time. */
static int row_first(unsigned *seen, unsigned bit) {
    unsigned before = *seen;
    *seen |= 1u << bit;
    return before != *seen;
}

#define ROW_ONCE(bit) do { if (!row_first(seen, bit)) return NULL; } while (0)

typedef struct {
    int64_t input, creation, read, output, last;
    row_text type;
    unsigned prompt; /* which of its counts are there: one may stand under another name, and then it is not plain */
} row_counts;

#define ROW_PROMPT 7u

static const char *row_call_field(const char *p, const char *end, row_text key, void *into, unsigned *seen) {
    row_counts *counts = into;
    if (ROW_IS(key, "input_tokens")) { ROW_ONCE(0); counts->prompt |= 1u; return row_count(p, end, &counts->input); }
    if (ROW_IS(key, "output_tokens")) { ROW_ONCE(1); return row_count(p, end, &counts->output); }
    if (ROW_IS(key, "cache_read_input_tokens")) { ROW_ONCE(2); counts->prompt |= 2u; return row_count(p, end, &counts->read); }
    if (ROW_IS(key, "cache_creation_input_tokens")) { ROW_ONCE(3); counts->prompt |= 4u; return row_count(p, end, &counts->creation); }
    if (ROW_IS(key, "type")) { ROW_ONCE(4); return row_maybe_text(p, end, &counts->type); }
    return row_skip(p, end);
}

/* Whether the cache may be in the input's count too; see Usage.counts_cache_twice. */
static int row_twice(const row_counts *counts) {
    return counts->input >= 1000 && counts->input == counts->creation + counts->read;
}

/* A response's calls: a list of counts, or null. */
static const char *row_calls(const char *p, const char *end, int64_t *last) {
    if (*p != '[') return row_null(p, end);
    p = row_space(p + 1, end);
    if (p < end && *p == ']') return p + 1;
    for (;;) {
        row_counts counts = {0};
        if (!(p = row_object(p, end, row_call_field, &counts))) return NULL;
        if (!counts.type.at || !ROW_IS(counts.type, "message") || counts.prompt != ROW_PROMPT || row_twice(&counts)) return NULL;
        if (counts.input + counts.creation + counts.read) *last = counts.input + counts.creation + counts.read;
        p = row_space(p, end);
        if (p == end) return NULL;
        if (*p == ']') return p + 1;
        if (*p != ',') return NULL;
        p = row_space(p + 1, end);
    }
}

static const char *row_usage_field(const char *p, const char *end, row_text key, void *into, unsigned *seen) {
    if (ROW_IS(key, "iterations")) { ROW_ONCE(5); return row_calls(p, end, &((row_counts *)into)->last); }
    return row_call_field(p, end, key, into, seen);
}

static const char *row_message_field(const char *p, const char *end, row_text key, void *into, unsigned *seen) {
    row *found = into;
    if (ROW_IS(key, "model")) { ROW_ONCE(0); return row_maybe_text(p, end, &found->model); }
    if (ROW_IS(key, "id")) { ROW_ONCE(1); return row_maybe_text(p, end, &found->id); }
    if (ROW_IS(key, "content")) { ROW_ONCE(2); return row_skip(p, end); }
    if (ROW_IS(key, "usage")) {
        row_counts counts = {0};
        ROW_ONCE(3);
        if (*p != '{') return row_null(p, end);
        if (!(p = row_object(p, end, row_usage_field, &counts))) return NULL;
        if (counts.prompt != ROW_PROMPT || row_twice(&counts)) return NULL;
        found->has_usage = 1;
        found->input = counts.input;
        found->creation = counts.creation;
        found->read = counts.read;
        found->output = counts.output;
        if (counts.last && counts.last != counts.input + counts.creation + counts.read) return NULL;
        return p;
    }
    return row_skip(p, end);
}

static const char *row_no(const char *p, const char *end) {
    return *p == 'f' ? row_word(p, end, "false", 5) : row_null(p, end);
}

static const char *row_top_field(const char *p, const char *end, row_text key, void *into, unsigned *seen) {
    row *found = into;
    switch (key.size) {
    case 4:
        if (ROW_IS(key, "type")) { ROW_ONCE(0); return row_maybe_text(p, end, &found->type); }
        if (ROW_IS(key, "uuid")) { ROW_ONCE(1); return row_maybe_text(p, end, &found->uuid); }
        break;
    case 7:
        if (ROW_IS(key, "message")) {
            ROW_ONCE(2);
            if (*p != '{') return row_null(p, end);
            found->has_message = 1;
            return row_object(p, end, row_message_field, found);
        }
        if (ROW_IS(key, "agentId")) { ROW_ONCE(3); return row_maybe_text(p, end, &found->agent); }
        if (ROW_IS(key, "subtype")) { ROW_ONCE(9); return row_maybe_text(p, end, &found->subtype); }
        break;
    case 9:
        if (ROW_IS(key, "sessionId")) { ROW_ONCE(4); return row_maybe_text(p, end, &found->session); }
        if (ROW_IS(key, "requestId")) { ROW_ONCE(5); return row_maybe_text(p, end, &found->request); }
        if (ROW_IS(key, "timestamp")) { ROW_ONCE(6); return row_maybe_text(p, end, &found->timestamp); }
        break;
    case 10:
        if (ROW_IS(key, "parentUuid")) {
            ROW_ONCE(7);
            found->has_parent = 1;
            return row_maybe_text(p, end, &found->parent);
        }
        if (ROW_IS(key, "session_id")) {
            row_text ignored;
            found->has_session_id = 1;
            return row_maybe_text(p, end, &ignored);
        }
        if (ROW_IS(key, "forkedFrom")) {
            ROW_ONCE(10);
            found->forked = *p != 'n';
            return row_skip(p, end);
        }
        break;
    case 11:
        if (ROW_IS(key, "isSidechain")) {
            ROW_ONCE(8);
            if (*p != 't') return row_no(p, end);
            found->sidechain = 1;
            return row_word(p, end, "true", 4);
        }
        break;
    case 12:
        if (ROW_IS(key, "errorDetails")) return row_null(p, end);
        break;
    case 15:
        if (ROW_IS(key, "compactMetadata")) return row_null(p, end);
        break;
    case 16:
        if (ROW_IS(key, "isCompactSummary")) return row_no(p, end);
        break;
    case 17:
        if (ROW_IS(key, "isApiErrorMessage")) return row_no(p, end);
        if (ROW_IS(key, "logicalParentUuid")) return row_null(p, end);
        break;
    }
    return row_skip(p, end);
}

/* A reader of rows, by `row_read` or by one of its kind for a processor that can do more. */
typedef const char *(*row_reader)(const char *p, const char *end, row *found);

row_reader row_reader_avx2(void); /* NULL where this processor, or the compiler of `_row_avx2.c`, has no AVX2 */

/* Read the row that begins at p. Returns where its line ends (at its newline, or `end`), or NULL: not plain. */
static const char *row_read(const char *p, const char *end, row *found) {
    memset(found, 0, sizeof *found);
    p = row_object(p, end, row_top_field, found);
    if (!p) return NULL;
    p = row_space(p, end);
    return p == end || *p == '\n' ? p : NULL;
}

#endif
