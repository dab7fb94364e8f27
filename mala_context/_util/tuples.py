"""Named tuples, without what `typing` does to make one: it compiles the annotation of every field, 5 ms for forty."""

from __future__ import annotations

__all__ = ("NamedTuple",)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    class _Makes(type):
        """Makes a class that names this base a named tuple of its annotations, which stay as they are written."""

        def __new__(cls, name, bases, namespace):  # noqa: ANN001, ANN204  (a type checker sees the other branch)
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            # From Python 3.14 on only a finished class has the annotations of a module without the `__future__` import.
            fields = namespace.get("__annotations__") or type(name, (), dict(namespace)).__annotations__
            defaults = [namespace[field] for field in fields if field in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])  # noqa: PYI024
            for key, value in namespace.items():
                if key not in fields and key not in {"__module__", "__qualname__"}:
                    setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Makes):
        """As in `typing`: a class with this base is a tuple, and its annotations are its fields."""
