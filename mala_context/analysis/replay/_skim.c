/* A block of a transcript as columns: what its plain rows say of themselves, and nothing of what that means.

   Rows that go on from one another come as one stretch: each names as its parent the row before it, or one since the
   last response's first row (as results of tools that ran side by side do); all are one author's in one session, and
   all responses among them are one model's. A row that is not plain (`_row.h`), or of a kind that is rare, is given as
   the bytes that it takes. So a row costs what it takes to pass over its text. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_row.h"

static row_reader read_row; /* the best one on this processor */

typedef enum { ODD = -1, FILLER, LINK, ATTACHMENT, USER, ASSISTANT, BARE } kind; /* as `columns` numbers them */

#define MOST_SINCE 64
#define COLUMNS 6

typedef struct {
    PyObject *found;
    PyObject *uuids;            /* of the open stretch; NULL where none is open */
    PyObject *answers[COLUMNS]; /* its responses, see `columns.Answers`; NULL where there is none so far */
    row answer;                 /* the last one, which is not in `answers` yet where `answering` */
    int answering;
    Py_ssize_t answer_at, answer_line;
    Py_ssize_t line, lines;
    kind kind;
    row head;
    row_text started, ended;
    row_text since[MOST_SINCE]; /* ids since the last response's first row, the last row's in any case */
    int count;
    int64_t *ends;              /* of each line so far, in bytes */
    Py_ssize_t room;
} state;

static int same(row_text one, row_text other) {
    return one.at && other.at ? one.size == other.size && !memcmp(one.at, other.at, one.size) : one.at == other.at;
}

static int before(row_text one, row_text other) {
    size_t shared = one.size < other.size ? one.size : other.size;
    int order = shared ? memcmp(one.at, other.at, shared) : 0;
    return order < 0 || (!order && one.size < other.size);
}

static PyObject *text(row_text of) {
    return of.size ? PyUnicode_DecodeUTF8(of.at, (Py_ssize_t)of.size, "strict") : Py_NewRef(Py_None);
}

static kind kind_of(const row *row) {
    int is_link = ROW_IS(row->type, "system") || ROW_IS(row->type, "progress");
    if (!row->type.size || (row->has_session_id && !row->session.at) || (row->parent.at && !row->parent.size)) return ODD;
    if (ROW_IS(row->type, "assistant")) {
        if (!row->uuid.size || !row->has_parent || !row->id.size || ROW_IS(row->model, "<synthetic>")) return ODD;
        if (!row->has_usage) return BARE;
        return row->input + row->creation + row->read ? ASSISTANT : ODD;
    }
    int is_user = ROW_IS(row->type, "user"), is_attachment = ROW_IS(row->type, "attachment");
    if (!row->uuid.size) return is_link || is_user || is_attachment || row->has_session_id ? ODD : FILLER;
    if (!row->has_parent) return ODD;
    if (is_user) return USER;
    if (is_attachment) return ATTACHMENT;
    int is_odd = ROW_IS(row->subtype, "compact_boundary") || ROW_IS(row->subtype, "microcompact_boundary");
    return is_odd || ROW_IS(row->subtype, "local_command") ? ODD : LINK;
}

static int is_since(const state *self, row_text parent) {
    for (int i = self->count; i--;) {
        if (same(parent, self->since[i])) return 1;
    }
    return 0;
}

/* Whether a row goes on from the open stretch. */
static int goes_on(const state *self, const row *row, kind kind) {
    if (!self->uuids) return 0;
    const struct row *head = &self->head;
    if (kind == FILLER) return !row->session.at || same(row->session, head->session);
    if (self->kind == FILLER || self->kind == BARE || kind == BARE || (self->kind == LINK && kind != LINK)) return 0;
    if (!is_since(self, row->parent) || !same(row->session, head->session)) return 0;
    if (!same(row->agent, head->agent) || row->sidechain != head->sidechain) return 0;
    if (kind != ASSISTANT || !self->answering) return 1;
    const struct row *answer = &self->answer;
    if (!same(row->model, answer->model)) return 0;
    return !same(row->id, answer->id)
        || (same(row->request, answer->request) && row->input == answer->input && row->creation == answer->creation
            && row->read == answer->read);
}

static int put(PyObject *list, PyObject *value) {
    int wrong = !value || PyList_Append(list, value);
    Py_XDECREF(value);
    return wrong ? -1 : 0;
}

/* Put the last response to the others. */
static int answered(state *self) {
    if (!self->answering) return 0;
    const row *of = &self->answer;
    PyObject **to = self->answers;
    for (int i = 0; i < COLUMNS; i++) {
        if (!to[i] && !(to[i] = PyList_New(0))) return -1;
    }
    long long input = (long long)of->input, creation = (long long)of->creation, cached = (long long)of->read;
    return put(to[0], text(of->id)) || put(to[1], text(of->request))
        || put(to[2], Py_BuildValue("(LLLL)", input, creation, cached, (long long)of->output))
        || put(to[3], PyLong_FromLongLong(input + creation + cached)) || put(to[4], PyLong_FromSsize_t(self->answer_at))
        || put(to[5], PyLong_FromSsize_t(self->answer_line)) ? -1 : 0;
}

static void drop_answers(state *self) {
    for (int i = 0; i < COLUMNS; i++) {
        Py_CLEAR(self->answers[i]);
    }
}

/* Give the open stretch, if there is one. */
static int give(state *self) {
    if (!self->uuids) return 0;
    if (answered(self)) return -1;
    const row *head = &self->head;
    PyObject **of = self->answers, *uuids = self->uuids;
    PyObject *answers = of[0] ? PyTuple_Pack(COLUMNS, of[0], of[1], of[2], of[3], of[4], of[5]) : Py_NewRef(Py_None);
    drop_answers(self);
    const row_text none = {0};
    int filler = self->kind == FILLER;
    PyObject *author = head->agent.size && !filler ? text(head->agent) : Py_NewRef(head->sidechain && !filler ? Py_True : Py_None);
    PyObject *stretch = Py_BuildValue("(nniNNNNNNNNO)", self->line, self->lines, (int)self->kind, author, text(head->session),
        text(filler ? none : head->parent), uuids, answers, text(self->answering ? self->answer.model : none), text(self->started),
        text(self->ended), head->forked ? Py_True : Py_False);
    self->uuids = NULL;
    self->answering = 0;
    return put(self->found, stretch);
}

static int take(state *self, const row *row, kind kind, Py_ssize_t line) {
    if (!goes_on(self, row, kind)) {
        if (give(self) || !(self->uuids = PyList_New(0))) return -1;
        self->count = 0;
        self->line = line;
        self->kind = kind;
        self->head = *row;
        self->started = self->ended = row->timestamp;
    }
    self->lines = line - self->line + 1;
    if (kind >= ASSISTANT) {
        if (self->answering && same(row->id, self->answer.id)) {
            if (row->output > self->answer.output) self->answer.output = row->output;
        } else {
            if (answered(self)) return -1;
            self->answer = *row;
            self->answering = 1;
            self->count = 0;
            self->answer_at = PyList_Size(self->uuids);
            self->answer_line = line - self->line;
        }
    }
    if (row->forked) self->head.forked = 1;
    if (row->timestamp.size) {
        if (!self->started.size || before(row->timestamp, self->started)) self->started = row->timestamp;
        if (before(self->ended, row->timestamp)) self->ended = row->timestamp;
    }
    if (kind == FILLER) return 0;
    if (self->count == MOST_SINCE) self->count--;
    self->since[self->count++] = row->uuid;
    return put(self->uuids, text(row->uuid));
}

/* Note where a line ends. */
static int ended(state *self, Py_ssize_t line, Py_ssize_t at) {
    if (line == self->room) {
        int64_t *ends = PyMem_Realloc(self->ends, sizeof *ends * (size_t)(self->room = 2 * line + 64));
        if (!ends) return PyErr_NoMemory(), -1;
        self->ends = ends;
    }
    self->ends[line] = at;
    return 0;
}

/* Go through all lines from p on; returns their number, or -1. */
static Py_ssize_t through(state *self, const char *at, const char *end) {
    Py_ssize_t line = 0;
    for (const char *p = at; p < end; line++) {
        const char *stop = row_space(p, end);
        if (stop < end && *stop != '\n') {
            row found;
            stop = read_row(stop, end, &found);
            kind kind = stop ? kind_of(&found) : ODD;
            if (kind == ODD) {
                if (!stop) stop = memchr(p, '\n', (size_t)(end - p));
                if (!stop) stop = end;
                if (give(self) || put(self->found, Py_BuildValue("(nnn)", line, p - at, stop - at))) return -1;
            } else if (take(self, &found, kind, line)) {
                return -1;
            }
        }
        if (ended(self, line, stop - at)) return -1;
        p = stop < end ? stop + 1 : stop;
    }
    return give(self) ? -1 : line;
}

static PyObject *stretches(PyObject *module, PyObject *block) {
    state self = {0};
    Py_buffer data;
    (void)module;
    if (PyObject_GetBuffer(block, &data, PyBUF_SIMPLE)) return NULL;
    PyObject *result = NULL;
    if ((self.found = PyList_New(0))) {
        Py_ssize_t lines = through(&self, data.buf, (const char *)data.buf + data.len);
        PyObject *ends = lines < 0 ? NULL : PyBytes_FromStringAndSize((const char *)self.ends, lines * (Py_ssize_t)sizeof *self.ends);
        if (ends) result = Py_BuildValue("(ON)", self.found, ends);
    }
    PyMem_Free(self.ends);
    Py_XDECREF(self.found);
    Py_XDECREF(self.uuids);
    drop_answers(&self);
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(stretches_doc, "stretches(block, /)\n--\n\n"
"Return what a block's lines say, in order, and where each line ends, in bytes: as many integers of 8 bytes. An item is a\n"
"stretch (see `columns.Stretch`) or, for a line that is not plain, its number and where it begins and ends.");

static PyMethodDef methods[] = {{"stretches", stretches, METH_O, stretches_doc}, {NULL, NULL, 0, NULL}};

static int prepare(PyObject *module) {
    (void)module;
    read_row = row_reader_avx2();
    if (!read_row) read_row = row_read;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_skim", "A block of a transcript as columns, compiled; see `columns`.", 0, methods, slots, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC PyInit__skim(void) {
    return PyModuleDef_Init(&module);
}
