/* `_places.h` as a type of Python, for the rows that the scanner takes itself: what it uses of a dict. */

#ifndef MALA_CONTEXT_PLACES_TYPE_H
#define MALA_CONTEXT_PLACES_TYPE_H

#include <Python.h>

#include "_places.h"

typedef struct {
    PyObject_HEAD
    places held;
} Places;

static PyTypeObject *places_type;

/* A key; `id` is NULL for one that is no text, perhaps with an error set. */
typedef struct {
    const char *id;
    size_t size;
    uint64_t hash;
} places_key;

static places_row *places_find_key(places *held, PyObject *key, places_key *told) {
    Py_ssize_t size = 0;
    told->id = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, &size) : NULL;
    if (!told->id) return NULL;
    told->size = (size_t)size;
    told->hash = places_hash(told->id, told->size);
    return places_find(held, told->id, told->size, told->hash);
}

static PyObject *places_get(PyObject *self, PyObject *key) {
    places_key told;
    places_row *row = places_find_key(&((Places *)self)->held, key, &told);
    if (row) return PyLong_FromLongLong(row->context);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static int places_contains(PyObject *self, PyObject *key) {
    places_key told;
    return places_find_key(&((Places *)self)->held, key, &told) ? 1 : PyErr_Occurred() ? -1 : 0;
}

static int places_set(PyObject *self, PyObject *key, PyObject *value) {
    places *held = &((Places *)self)->held;
    long long context = value ? PyLong_AsLongLong(value) : 0;
    if (PyErr_Occurred()) return -1;
    places_key told;
    places_row *row = places_find_key(held, key, &told);
    if (PyErr_Occurred()) return -1;
    if (!value || !told.id) {
        PyErr_SetString(PyExc_TypeError, "places are set, never removed, and by texts");
        return -1;
    }
    if (row) row->context = context;
    else if (places_add(held, told.id, told.size, told.hash, context)) PyErr_NoMemory();
    return PyErr_Occurred() ? -1 : 0;
}

static Py_ssize_t places_length(PyObject *self) {
    return (Py_ssize_t)((Places *)self)->held.count;
}

static void places_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    places_free(&((Places *)self)->held);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef places_methods[] = {
    {"get", places_get, METH_O, PyDoc_STR("get(key, /)\n--\n\nReturn a row's context, or None.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot places_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("The context of each row, by the row's id; what a dict of them would be.")},
    {Py_tp_dealloc, places_dealloc},
    {Py_tp_methods, places_methods},
    {Py_sq_contains, places_contains},
    {Py_mp_length, places_length},
    {Py_mp_ass_subscript, places_set},
    {0, NULL},
};

static PyType_Spec places_spec = {"mala_context.replay._skim.Places", sizeof(Places), 0, Py_TPFLAGS_DEFAULT, places_slots};

/* Make the type, once for the process, and seed what it holds with Python's own secret. */
static int places_prepare(PyObject *module) {
    PyObject *seed = PyUnicode_FromString("places");
    if (!seed) return -1;
    places_seeds[0] = (uint64_t)PyObject_Hash(seed) | 1;
    places_seeds[1] = places_mix(places_seeds[0], 0x9E3779B97F4A7C15u);
    Py_DECREF(seed);
    if (!places_type && !(places_type = (PyTypeObject *)PyType_FromSpec(&places_spec))) return -1;
    return PyModule_AddObjectRef(module, "Places", (PyObject *)places_type);
}

#endif
