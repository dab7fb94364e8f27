/* The common rows of a transcript, as `Scanner._block` takes them; see `scan` for what the rules mean.

   `skim` goes through the lines of a block and changes a scanner's state as long as rows are plain (`_row.h`) and ask
   for nothing special. At any other it stops and says where, and the scanner takes that line itself: so each rule that
   needs a thought stands in Python only, and a rule that stands here twice is one that most rows meet. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_places_type.h"
#include "_row.h"

static row_reader read_row; /* the best one on this processor */

#define PRIME 0x4754924175FFC559u /* `record.PRIME` */

typedef struct {
    PyObject *scanner;
    const char *at, *end; /* the block */
    /* what the scanner holds, and is not changed here */
    PyObject *of_places, *of_older, *seen, *best;
    places *places, *older;
    PyObject *owner, *session, *model; /* kept for the texts below */
    row_text is_owner, is_session, is_model;
    int follows; /* whether it knows whose file this is, and that no boundary was just before */
    Py_ssize_t limit, turned, offset;
    /* what is changed */
    row_text current, based, started, ended; /* texts in the block, or of the objects below */
    PyObject *was_current, *was_based, *was_started, *was_ended;
    Py_ssize_t context, placed, tokens, peak, responses; /* -1: None */
    Py_ssize_t is_fork;
    PyObject *begun, *since;
    int counted; /* whether `counts` is the best of the present response; it goes into `best` when another begins */
    int64_t counts[4];
    /* the row before */
    row_text last;
    int64_t last_place;
} state;

#define NOWHERE INT64_MIN /* the context of a row that is not known */

/* -- from and to the scanner -------------------------------------------------------------------------------------- */

#define ATTRIBUTES(each) \
    each(places) each(older) each(seen) each(best) each(owner) each(session_id) each(model) each(follows) each(limit) \
    each(turned) each(offset) each(current) each(based) each(started) each(ended) each(context) each(placed) \
    each(tokens) each(peak) each(responses) each(begun) each(since) each(is_fork)

#define AS_NUMBER(name) AT_##name,
enum { ATTRIBUTES(AS_NUMBER) ATTRIBUTES_IN_ALL };
#define AS_STRING(name) #name,
static const char *const spelled[] = {ATTRIBUTES(AS_STRING)};
static PyObject *names[ATTRIBUTES_IN_ALL]; /* interned once for the process */

static int take(state *self, int name, PyObject **into) {
    Py_XDECREF(*into);
    *into = PyObject_GetAttr(self->scanner, names[name]);
    return *into ? 0 : -1;
}

static int take_places(state *self, int name, PyObject **held, places **into) {
    if (take(self, name, held)) return -1;
    if (Py_TYPE(*held) != places_type) {
        PyErr_SetString(PyExc_TypeError, "places are something else");
        return -1;
    }
    *into = &((Places *)*held)->held;
    return 0;
}

static int take_size(state *self, int name, Py_ssize_t *into) {
    PyObject *value = PyObject_GetAttr(self->scanner, names[name]);
    if (!value) return -1;
    *into = value == Py_None ? -1 : PyLong_AsSsize_t(value);
    Py_DECREF(value);
    return *into == -1 && PyErr_Occurred() ? -1 : 0;
}

static int take_text(state *self, int name, PyObject **held, row_text *into) {
    into->at = NULL;
    into->size = 0;
    if (take(self, name, held)) return -1;
    if (*held == Py_None) return 0;
    Py_ssize_t size;
    into->at = PyUnicode_AsUTF8AndSize(*held, &size);
    into->size = into->at ? (size_t)size : 0;
    return into->at ? 0 : -1;
}

static int give(state *self, int name, PyObject *value) {
    int wrong = !value || PyObject_SetAttr(self->scanner, names[name], value);
    Py_XDECREF(value);
    return wrong ? -1 : 0;
}

static int give_size(state *self, int name, Py_ssize_t value) {
    return give(self, name, value < 0 ? Py_NewRef(Py_None) : PyLong_FromSsize_t(value));
}

static PyObject *text(row_text of) {
    return of.at ? PyUnicode_DecodeUTF8(of.at, (Py_ssize_t)of.size, "strict") : Py_NewRef(Py_None);
}

static int load(state *self) {
    Py_ssize_t follows;
    if (take_size(self, AT_follows, &follows)) return -1;
    self->follows = follows > 0;
    if (!self->follows) return 0;
    if (take_places(self, AT_places, &self->of_places, &self->places)
        || take_places(self, AT_older, &self->of_older, &self->older) || take(self, AT_seen, &self->seen)
        || take(self, AT_best, &self->best) || take_text(self, AT_owner, &self->owner, &self->is_owner)
        || take_text(self, AT_session_id, &self->session, &self->is_session)
        || take_text(self, AT_model, &self->model, &self->is_model) || take_size(self, AT_limit, &self->limit)
        || take_size(self, AT_turned, &self->turned) || take_size(self, AT_offset, &self->offset)
        || take_text(self, AT_current, &self->was_current, &self->current)
        || take_text(self, AT_based, &self->was_based, &self->based)
        || take_text(self, AT_started, &self->was_started, &self->started)
        || take_text(self, AT_ended, &self->was_ended, &self->ended) || take_size(self, AT_context, &self->context)
        || take_size(self, AT_placed, &self->placed) || take_size(self, AT_tokens, &self->tokens)
        || take_size(self, AT_peak, &self->peak) || take_size(self, AT_responses, &self->responses)
        || take(self, AT_begun, &self->begun) || take(self, AT_since, &self->since)
        || take_size(self, AT_is_fork, &self->is_fork))
        return -1;
    self->counted = 0;
    self->last.at = NULL;
    return 0;
}

/* Note the best counts of the present response. */
static int settle(state *self) {
    if (!self->counted) return 0;
    PyObject *identity = text(self->current);
    PyObject *counts = Py_BuildValue(
        "(LLLL)", (long long)self->counts[0], (long long)self->counts[1], (long long)self->counts[2],
        (long long)self->counts[3]);
    int wrong = !identity || !counts || PyDict_SetItem(self->best, identity, counts);
    Py_XDECREF(identity);
    Py_XDECREF(counts);
    self->counted = 0;
    return wrong ? -1 : 0;
}

static int store(state *self) {
    if (!self->follows) return 0;
    return settle(self) || give(self, AT_current, text(self->current)) || give(self, AT_based, text(self->based))
        || give(self, AT_started, text(self->started)) || give(self, AT_ended, text(self->ended))
        || give_size(self, AT_context, self->context) || give_size(self, AT_placed, self->placed)
        || give_size(self, AT_tokens, self->tokens) || give_size(self, AT_peak, self->peak)
        || give_size(self, AT_responses, self->responses)
        || give(self, AT_begun, Py_NewRef(self->begun)) || give(self, AT_since, Py_NewRef(self->since))
        || give(self, AT_is_fork, PyBool_FromLong(self->is_fork));
}

static void drop(state *self) {
    PyObject *held[] = {self->of_places, self->of_older, self->seen, self->best, self->owner, self->session, self->model,
        self->was_current, self->was_based, self->was_started, self->was_ended, self->begun, self->since};
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) Py_XDECREF(held[i]);
}

/* -- rows --------------------------------------------------------------------------------------------------------- */

typedef enum { WRONG = -1, ODD = 0, TAKEN = 1 } outcome;

static int same(row_text one, row_text other) {
    return one.at && other.at ? one.size == other.size && !memcmp(one.at, other.at, one.size) : one.at == other.at;
}

static int before(row_text one, row_text other) {
    size_t shared = one.size < other.size ? one.size : other.size;
    int order = shared ? memcmp(one.at, other.at, shared) : 0;
    return order < 0 || (!order && one.size < other.size);
}

/* The context of a row's parent. */
static int64_t place_of(state *self, row_text parent) {
    if (!parent.at) return NOWHERE;
    if (same(parent, self->last)) return self->last_place;
    uint64_t hash = places_hash(parent.at, parent.size);
    places_row *found = places_find(self->places, parent.at, parent.size, hash);
    if (!found) found = places_find(self->older, parent.at, parent.size, hash);
    return found ? found->context : NOWHERE;
}

/* Whether this response's counts are told in `best` and greater: they stay. Of the present response only. */
static int keeps(state *self, const row *row) {
    if (self->counted) return self->counts[3] > row->output;
    PyObject *identity = text(row->id);
    if (!identity) return -1;
    PyObject *known = PyDict_GetItemWithError(self->best, identity);
    Py_DECREF(identity);
    if (!known) return PyErr_Occurred() ? -1 : 0;
    PyObject *output = PyTuple_GetItem(known, 3);
    if (!output) return -1;
    long long before_ = PyLong_AsLongLong(output);
    return before_ == -1 && PyErr_Occurred() ? -1 : before_ > row->output;
}

static outcome response(state *self, const row *row, int64_t place, Py_ssize_t at) {
    if (!row->has_message || !row->id.size || !same(row->session, self->is_session)) return ODD;
    if (row->model.at && row->model.size && !same(row->model, self->is_model)) return ODD;
    int begins = !same(row->id, self->current);
    int64_t tokens = row->has_usage ? row->input + row->creation + row->read : 0;
    int64_t now = tokens && row->last ? row->last : tokens;
    if (now > self->limit) return ODD;
    if (begins) {
        if (place != self->context) return ODD;
        PyObject *identity = text(row->id);
        if (!identity) return WRONG;
        if (PyDict_GetItemWithError(self->seen, identity) || PyErr_Occurred()) {
            Py_DECREF(identity);
            return PyErr_Occurred() ? WRONG : ODD;
        }
        PyObject *request = row->request.size ? text(row->request) : Py_NewRef(Py_None);
        int wrong = !request || settle(self) || PyDict_SetItem(self->seen, identity, request);
        Py_XDECREF(request);
        Py_DECREF(identity);
        if (wrong) return WRONG;
        self->current = row->id;
        self->responses++;
        Py_DECREF(self->begun);
        self->begun = Py_BuildValue("(nn)", at, (Py_ssize_t)0);
        if (!self->begun) return WRONG;
    }
    if (!tokens) return TAKEN;
    int kept = keeps(self, row);
    if (kept < 0) return WRONG;
    if (!kept) {
        self->counts[0] = row->input;
        self->counts[1] = row->creation;
        self->counts[2] = row->read;
        self->counts[3] = row->output;
        self->counted = 1;
    }
    if (!same(self->based, row->id)) {
        self->based = row->id;
        Py_DECREF(self->since);
        self->since = Py_NewRef(self->begun);
        self->context++;
        self->placed = self->turned + (Py_ssize_t)self->places->count;
    }
    self->tokens = (Py_ssize_t)now;
    if (now > self->peak) self->peak = (Py_ssize_t)now;
    return TAKEN;
}

static void note_time(state *self, row_text moment) {
    if (!moment.size) return;
    if (before(self->ended, moment)) {
        self->ended = moment;
        if (!self->started.size) self->started = moment;
    } else if (before(moment, self->started)) {
        self->started = moment;
    }
}

/* Whether this row moves nothing; of the others only `user`, `assistant` and `attachment` are not asked. */
static int is_link(const row *row) {
    if (!ROW_IS(row->type, "system")) return 1;
    return !row->subtype.at || !(ROW_IS(row->subtype, "compact_boundary") || ROW_IS(row->subtype, "local_command"));
}

/* Take a row that has an id. */
static outcome placed(state *self, const row *row, Py_ssize_t at) {
    const char *id = row->uuid.at;
    uint64_t hash = places_hash(id, row->uuid.size);
    if (places_find(self->places, id, row->uuid.size, hash) || places_find(self->older, id, row->uuid.size, hash)) return ODD;
    int64_t place = place_of(self, row->parent);
    int ours = row->session.at && same(row->agent, self->is_owner) && !(row->sidechain && !self->is_owner.at);
    if (ROW_IS(row->type, "assistant")) {
        outcome done = ours ? response(self, row, place, at) : ODD;
        if (done != TAKEN) return done;
        place = self->context;
    } else if (ROW_IS(row->type, "user") || ROW_IS(row->type, "attachment")) {
        if (!ours || place != self->context) return ODD;
    } else if (place == NOWHERE || !is_link(row) || (row->has_session_id && !row->session.at)) {
        return ODD;
    }
    if (places_add(self->places, id, row->uuid.size, hash, place)) {
        PyErr_NoMemory();
        return WRONG;
    }
    self->last = row->uuid;
    self->last_place = place;
    return TAKEN;
}

/* `at`: the byte of the recording at which the row's line begins. */
static outcome take_row(state *self, const row *row, Py_ssize_t at) {
    outcome done = ODD;
    if (!row->type.size) return ODD;
    if (row->uuid.size) {
        done = placed(self, row, at);
    } else if (!row->has_session_id && !ROW_IS(row->type, "assistant") && !ROW_IS(row->type, "user") && !ROW_IS(row->type, "attachment")
               && !ROW_IS(row->type, "system") && !ROW_IS(row->type, "progress")) {
        done = TAKEN;
    }
    if (done == TAKEN) {
        note_time(self, row->timestamp);
        if (row->forked) self->is_fork = 1;
    }
    return done;
}

/* Take plain rows until a line is odd; *p is then where it begins, *line its number, and the result where it ends. At
   the end of the block, p is there. */
static const char *through(state *self, const char **p, Py_ssize_t *line) {
    while (*p < self->end) {
        const char *stop = row_space(*p, self->end);
        if (stop < self->end && *stop != '\n') {
            row found;
            stop = self->follows ? read_row(stop, self->end, &found) : NULL;
            outcome done = stop ? take_row(self, &found, self->offset + (*p - self->at)) : ODD;
            if (done == WRONG) return NULL;
            if (done == ODD) break;
        }
        *p = stop < self->end ? stop + 1 : stop;
        ++*line;
    }
    if (*p == self->end) return *p;
    const char *stop = memchr(*p, '\n', (size_t)(self->end - *p));
    return stop ? stop : self->end;
}

/* -- the module --------------------------------------------------------------------------------------------------- */

static PyObject *skim(PyObject *module, PyObject *args) {
    state self = {0};
    Py_buffer block;
    Py_ssize_t start, line;
    (void)module;
    if (!PyArg_ParseTuple(args, "Oy*nn:skim", &self.scanner, &block, &start, &line)) return NULL;
    PyObject *result = NULL;
    if (start < 0 || start > block.len) {
        PyErr_SetString(PyExc_ValueError, "start is outside of the block");
    } else if (!load(&self)) {
        self.at = block.buf;
        self.end = self.at + block.len;
        const char *p = self.at + start, *stop = through(&self, &p, &line);
        if (stop && !store(&self)) result = Py_BuildValue("(nnn)", p - self.at, stop - self.at, line);
    }
    drop(&self);
    PyBuffer_Release(&block);
    return result;
}

static PyObject *read_line(PyObject *module, PyObject *args) {
    Py_buffer data;
    row found;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*:read_line", &data)) return NULL;
    const char *at = data.buf, *end = at + data.len, *stop = read_row(at, end, &found);
    PyObject *result;
    if (!stop || stop != end) {
        result = Py_NewRef(Py_None);
    } else {
        result = Py_BuildValue(
            "{s:N,s:O,s:O,s:O,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:O,s:N,s:N,s:O,s:(LLLLL)}", "parentUuid", text(found.parent),
            "session_id", found.has_session_id ? Py_True : Py_False, "forkedFrom", found.forked ? Py_True : Py_False,
            "isSidechain", found.sidechain ? Py_True : Py_False, "subtype", text(found.subtype), "sessionId", text(found.session), "agentId", text(found.agent), "type", text(found.type), "requestId",
            text(found.request), "uuid", text(found.uuid), "timestamp", text(found.timestamp), "has_message",
            found.has_message ? Py_True : Py_False, "model", text(found.model), "id", text(found.id), "has_usage",
            found.has_usage ? Py_True : Py_False, "counts", (long long)found.input, (long long)found.creation,
            (long long)found.read, (long long)found.output, (long long)found.last);
    }
    PyBuffer_Release(&data);
    return result;
}

/* The remainder of an id's bytes, the least first, by a prime of 63 bits; see `record.identify`. */
static uint64_t remainder_of(const unsigned char *bytes, Py_ssize_t size) {
    uint64_t rest = 0;
    while (size > 0) {
        Py_ssize_t some = size % 8 ? size % 8 : 8;
        uint64_t word = 0;
        size -= some;
        for (Py_ssize_t i = some; i-- > 0;) word = word << 8 | bytes[size + i];
        rest = (uint64_t)(((unsigned __int128)rest << (8 * some) | word) % PRIME);
    }
    return rest;
}

static PyObject *arrays(PyObject *module, PyObject *best) {
    (void)module;
    if (!PyDict_Check(best)) {
        PyErr_SetString(PyExc_TypeError, "arrays() takes a dict");
        return NULL;
    }
    Py_ssize_t size = PyDict_Size(best), at = 0, place = 0;
    PyObject *ids = PyBytes_FromStringAndSize(NULL, size * 8), *counts = PyBytes_FromStringAndSize(NULL, size * 32);
    PyObject *key, *value;
    char *into = ids ? PyBytes_AsString(ids) : NULL, *into_counts = counts ? PyBytes_AsString(counts) : NULL;
    int64_t sums[4] = {0};
    while (into && into_counts && place < size && PyDict_Next(best, &at, &key, &value)) {
        Py_ssize_t bytes;
        const char *id = PyUnicode_AsUTF8AndSize(key, &bytes);
        if (!id) break;
        uint64_t rest = remainder_of((const unsigned char *)id, bytes);
        memcpy(into + 8 * place, &rest, 8);
        for (int i = 0; i < 4; i++) {
            PyObject *one = PyTuple_GetItem(value, i);
            int64_t count = one ? PyLong_AsLongLong(one) : -1;
            memcpy(into_counts + 32 * place + 8 * i, &count, 8);
            if (count == -1 && PyErr_Occurred()) break;
            if (__builtin_add_overflow(sums[i], count, sums + i)) {
                PyErr_SetString(PyExc_OverflowError, "counts are too large");
                break;
            }
        }
        if (PyErr_Occurred()) break;
        place++;
    }
    if (into && into_counts && place == size)
        return Py_BuildValue(
            "(NN(LLLL))", ids, counts, (long long)sums[0], (long long)sums[1], (long long)sums[2], (long long)sums[3]);
    Py_XDECREF(ids);
    Py_XDECREF(counts);
    return NULL;
}

PyDoc_STRVAR(arrays_doc, "arrays(best, /)\n--\n\n"
"Return the bytes of the two arrays of `record.Best.arrays`, and its sums. Raises UnicodeEncodeError for an id with half of\n"
"a surrogate pair, OverflowError where a count or a sum takes more than 64 bits.");
PyDoc_STRVAR(skim_doc, "skim(scanner, block, start, line, /)\n--\n\n"
"Take plain rows from byte `start` of a block on, which is line `line` of it; return where the first line begins and\n"
"ends that is not plain, or not common, in bytes, and its number. At the end of the block both are its size.");
PyDoc_STRVAR(read_doc, "read_line(line, /)\n--\n\n"
"Return what the reader of rows finds on a line without its newline, or None where the row is not plain.");

static PyMethodDef methods[] = {
    {"skim", skim, METH_VARARGS, skim_doc},
    {"arrays", arrays, METH_O, arrays_doc},
    {"read_line", read_line, METH_VARARGS, read_doc},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module) {
    if (places_prepare(module)) return -1;
    read_row = row_reader_avx2();
    if (!read_row) read_row = row_read;
    for (int i = 0; i < ATTRIBUTES_IN_ALL; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(spelled[i]))) return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_skim", "The common rows of a transcript, compiled; see `scan`.", 0, methods, slots, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit__skim(void) {
    return PyModuleDef_Init(&module);
}
