/* Which context each row of a transcript is in, by the row's id: a table of texts, each with a number.

   Texts are kept whole and compared whole. The hash is seeded, so that nobody can write rows that all meet in one place
   of the table. */

#ifndef MALA_CONTEXT_PLACES_H
#define MALA_CONTEXT_PLACES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_FEWEST 256 /* rows that there is room for at first */
#define PLACES_ID 40      /* bytes that an id is expected to take */

typedef struct {
    size_t at, size; /* of the id, in `ids` */
    uint64_t hash;
    int64_t context;
} places_row;

typedef struct {
    places_row *rows; /* in the order in which they came */
    uint32_t *index;  /* numbers of rows, from 1; 0: free. Twice as long as `rows`, a power of two */
    char *ids;
    size_t count, room;
    size_t used, space; /* bytes of `ids` */
} places;

static uint64_t places_seeds[2];

static inline uint64_t places_mix(uint64_t one, uint64_t other) {
    unsigned __int128 product = (unsigned __int128)one * other;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t places_hash(const char *id, size_t size) {
    uint64_t hash = places_seeds[0] ^ size, words[2];
    for (; size > sizeof words; id += sizeof words, size -= sizeof words) {
        memcpy(words, id, sizeof words);
        hash = places_mix(words[0] ^ hash, words[1] ^ places_seeds[1]);
    }
    words[0] = words[1] = 0;
    memcpy(words, id, size);
    return places_mix(places_mix(words[0] ^ hash, words[1] ^ places_seeds[1]), places_seeds[0]);
}

static inline size_t places_after(const places *self, size_t slot) {
    return (slot + 1) & (2 * self->room - 1);
}

/* The row with this id, or NULL. */
static places_row *places_find(const places *self, const char *id, size_t size, uint64_t hash) {
    if (!self->count) return NULL;
    for (size_t slot = hash & (2 * self->room - 1); self->index[slot]; slot = places_after(self, slot)) {
        places_row *row = self->rows + self->index[slot] - 1;
        if (row->hash == hash && row->size == size && !memcmp(self->ids + row->at, id, size)) return row;
    }
    return NULL;
}

static void places_point(places *self, size_t number) {
    size_t slot = self->rows[number].hash & (2 * self->room - 1);
    while (self->index[slot]) slot = places_after(self, slot);
    self->index[slot] = (uint32_t)number + 1;
}

/* Make room for a row more, of so many bytes; -1: there is no memory. */
static int places_grow(places *self, size_t size) {
    if (self->count == self->room) {
        size_t room = self->room ? 2 * self->room : PLACES_FEWEST;
        if (room > UINT32_MAX / 2) return -1;
        places_row *rows = realloc(self->rows, room * sizeof *rows);
        if (!rows) return -1;
        self->rows = rows;
        uint32_t *index = calloc(2 * room, sizeof *index);
        if (!index) return -1;
        free(self->index);
        self->index = index;
        self->room = room;
        for (size_t number = 0; number < self->count; number++) places_point(self, number);
    }
    if (self->space - self->used <= size) { /* such that there are `ids`, if only for an empty one */
        size_t space = 2 * self->space + (size > PLACES_FEWEST * PLACES_ID ? size : PLACES_FEWEST * PLACES_ID);
        char *ids = realloc(self->ids, space);
        if (!ids) return -1;
        self->ids = ids;
        self->space = space;
    }
    return 0;
}

/* Add a row whose id is not there; -1: there is no memory. */
static int places_add(places *self, const char *id, size_t size, uint64_t hash, int64_t context) {
    if ((self->count == self->room || self->space - self->used <= size) && places_grow(self, size)) return -1;
    self->rows[self->count] = (places_row){self->used, size, hash, context};
    memcpy(self->ids + self->used, id, size);
    self->used += size;
    places_point(self, self->count);
    self->count++;
    return 0;
}

static void places_free(places *self) {
    free(self->rows);
    free(self->index);
    free(self->ids);
    memset(self, 0, sizeof *self);
}

#endif
