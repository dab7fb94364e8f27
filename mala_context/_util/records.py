"""Mutable records without `dataclasses`: loading that module and making the first classes takes 15 ms."""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


@dataclass_transform()
class Record:
    """A class whose annotations are its fields."""

    _fields: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        # The class is asked: from Python 3.14 on an object does not find the annotations of a module without the
        # `__future__` import.
        cls._fields = cls.__annotations__ or cls._fields

    def __init__(self, *values: Any, **named: Any) -> None:
        """Take values in the order of the fields, or by their names; other fields keep the default of the class.

        Raises `TypeError` for other names, or too many values.
        """
        fields = self._fields
        if len(values) > len(fields) or not named.keys() <= fields.keys():
            raise TypeError(f"{self.__class__.__name__} has these fields: {', '.join(fields)}")
        vars(self).update(zip(fields, values, strict=False), **named)

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{self.__class__.__name__}({values})"
