"""Frozen records without `dataclasses`."""

import pytest

from mala_context.archive.layout import ArchiveResult, Frozen, Piece, StoredFile


class Pair(Frozen):
    first: int
    second: str = "b"


class Couple(Pair):
    pass


class Nothing(Frozen):
    pass


def test_a_record_takes_keywords_and_knows_its_defaults():
    assert (Pair(first=1).first, Pair(first=1).second) == (1, "b")
    assert repr(Pair(first=1)) == "Pair(first=1, second='b')"


def test_equal_values_are_equal_records():
    assert Pair(first=1) == Pair(first=1, second="b")
    assert Pair(first=1) != Pair(first=2)
    assert Pair(first=1) != (1, "b")
    assert len({Pair(first=1), Pair(first=1)}) == 1


def test_wrong_keywords_are_named():
    with pytest.raises(TypeError, match=r"unknown \['third'\], missing \['first'\]"):
        Pair(third=1)
    with pytest.raises(TypeError):
        Pair(1)


def test_a_record_with_other_values():
    assert Pair(first=1).but(second="c") == Pair(first=1, second="c")
    with pytest.raises(TypeError, match="third"):
        Pair(first=1).but(third=1)


def test_a_record_is_frozen():
    pair = Pair(first=1)
    with pytest.raises(AttributeError, match="frozen"):
        pair.first = 2
    with pytest.raises(AttributeError, match="frozen"):
        del pair.first


def test_what_is_derived():
    result = ArchiveResult(session_id="s", path=None, reason="nothing new")
    assert not result.archived
    assert StoredFile(name="n", size=1, mtime_ns=1).mode == 0o600
    fields = {"session_id": "s", "subagent": None, "chain": 1, "stamp": "x", "ext": ".jsonl", "mtime_ns": 0}
    piece = Piece(name="a.jsonl.zst", packed=True, offset=3, length=4, stored=2, mode="full", **fields)
    assert (piece.plain, piece.end, piece.sha256) == ("a.jsonl", 7, None)


def test_a_class_without_fields_of_its_own_has_those_of_its_base():
    assert repr(Couple(first=1)) == "Couple(first=1, second='b')"
    assert Couple(first=1) == Couple(first=1, second="b")
    assert Couple(first=1) != Pair(first=1)
    assert repr(Nothing()) == "Nothing()"


@pytest.mark.parametrize("head", ["", "from __future__ import annotations"])
def test_fields_are_found_whether_annotations_are_evaluated_or_not(head):
    made = {"Frozen": Frozen, "__name__": "made"}
    exec(compile(f"{head}\nclass Made(Frozen):\n    x: int\n    y: int = 0", "made", "exec", dont_inherit=True), made)
    assert repr(made["Made"](x=1)) == "Made(x=1, y=0)"
