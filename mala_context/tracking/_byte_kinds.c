/* What a text is made of: its bytes of each kind and their runs, and where long runs of one kind of byte lie. What the
   kinds mean, `byte_kinds.py` knows; here only the order of their bits matters. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>

enum { LETTER, UPPER, DIGIT, SIGN, BLANK, LINE, WIDE, OTHER, KINDS };

/* For each set of kinds a number with a byte for each kind, so that one addition counts all eight. */
static uint64_t spread[256];

static void add_up(uint64_t *from, Py_ssize_t *to) {
    for (int kind = 0; kind < KINDS; kind++) to[kind] += (*from >> (8 * kind)) & 255;
    *from = 0;
}

/* A text's UTF-8, and in `holder` the object that holds it; half a surrogate pair has no UTF-8, and `errors` says what
   to do about it. */
static const unsigned char *bytes_of(PyObject *text, const char *errors, Py_ssize_t *size, PyObject **holder) {
    const char *found = PyUnicode_AsUTF8AndSize(text, size);
    *holder = NULL;
    if (found || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) return (const unsigned char *)found;
    PyErr_Clear();
    *holder = PyUnicode_AsEncodedString(text, "utf-8", errors);
    if (!*holder) return NULL;
    *size = PyBytes_Size(*holder);
    return (const unsigned char *)PyBytes_AsString(*holder);
}

static const unsigned char *table_of(PyObject *table) {
    if (PyBytes_Check(table) && PyBytes_Size(table) == 256) return (const unsigned char *)PyBytes_AsString(table);
    PyErr_SetString(PyExc_TypeError, "a table is 256 bytes");
    return NULL;
}

/* tally(text, kinds): see `byte_kinds.tally`. */
static PyObject *tally(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    PyObject *holder;
    Py_ssize_t size;
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "tally takes a text and a table");
    const unsigned char *kinds = table_of(given[1]);
    const unsigned char *at = kinds ? bytes_of(given[0], "ignore", &size, &holder) : NULL;
    if (!at) return NULL;
    Py_ssize_t all[KINDS] = {0}, runs[KINDS] = {0}, longer[KINDS] = {0}, turns = 0;
    unsigned before = 0, began = 0;
    for (const unsigned char *end = at + size; at < end;) {
        uint64_t each = 0, starts = 0, seconds = 0;
        for (const unsigned char *stop = end - at < 255 ? end : at + 255; at < stop; at++) { /* no byte overflows */
            unsigned here = kinds[*at], start = here & ~before;
            each += spread[here];
            starts += spread[start];
            seconds += spread[began & here];
            turns += ((before << 1 ^ before) & here) >> UPPER & 1; /* a letter that is not upper case is lower case */
            before = here;
            began = start;
        }
        add_up(&each, all);
        add_up(&starts, runs);
        add_up(&seconds, longer);
    }
    Py_XDECREF(holder);
    return Py_BuildValue("(nnnnnnnnnnnn)", runs[LETTER], all[LETTER], turns, longer[UPPER], runs[DIGIT], all[DIGIT],
        runs[SIGN], all[SIGN], longer[BLANK], all[LINE], all[WIDE], all[OTHER]);
}

static Py_ssize_t characters(const unsigned char *at, const unsigned char *end) {
    Py_ssize_t count = 0;
    for (; at < end; at++) count += (*at & 0xC0) != 0x80;
    return count;
}

/* runs(text, table, least): see `byte_kinds.runs`. Each `least`-th byte is looked at; a run lies only around one. */
static PyObject *runs(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    PyObject *holder;
    Py_ssize_t size;
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "runs takes a text, a table and a number");
    Py_ssize_t least = PyLong_AsSsize_t(given[2]);
    if (least < 1) return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "a run has a byte or more");
    const unsigned char *in = table_of(given[1]);
    const unsigned char *data = in ? bytes_of(given[0], "surrogatepass", &size, &holder) : NULL;
    if (!data) return NULL;
    PyObject *found = PyList_New(0);
    Py_ssize_t told = 0, told_characters = 0; /* how far characters were counted */
    for (Py_ssize_t at = least - 1; found && at < size;) {
        Py_ssize_t begin = at + 1, end = at + 1;
        while (begin > at + 1 - least && in[data[begin - 1]]) begin--;
        if (begin == at + 1) { /* not around this one */
            at += least;
            continue;
        }
        while (end < size && in[data[end]]) end++;
        if (end - begin >= least) {
            told_characters += characters(data + told, data + begin);
            PyObject *run = Py_BuildValue("(nn)", told_characters, told_characters + (end - begin));
            if (!run || PyList_Append(found, run)) Py_CLEAR(found);
            Py_XDECREF(run);
            told_characters += end - begin;
            told = end;
        }
        at = end + least;
    }
    Py_XDECREF(holder);
    return found;
}

static int prepare(PyObject *module) {
    (void)module;
    for (int kinds = 0; kinds < 256; kinds++) {
        uint64_t bytes = 0;
        for (int kind = 0; kind < KINDS; kind++) bytes |= (uint64_t)(kinds >> kind & 1) << (8 * kind);
        spread[kinds] = bytes; /* at once, since another interpreter may read it */
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"tally", (PyCFunction)(void (*)(void))tally, METH_FASTCALL, "Count a text's bytes of each kind, and their runs."},
    {"runs", (PyCFunction)(void (*)(void))runs, METH_FASTCALL, "Find the long runs of one kind of byte in a text."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_byte_kinds", "What a text is made of.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__byte_kinds(void) { return PyModuleDef_Init(&definition); }
