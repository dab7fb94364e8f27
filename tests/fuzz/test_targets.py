"""What fuzzing found, and random inputs of any kind: no reader breaks a promise."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS

CORPUS = pathlib.Path(__file__).parent / "corpus"
FOUND = [
    pytest.param(name, path, id=f"{name}-{path.name[:16]}")
    for name in TARGETS
    for path in sorted((CORPUS / name).glob("*"))
]


@pytest.mark.parametrize(("name", "path"), FOUND)
def test_an_input_that_was_found(name: str, path: pathlib.Path) -> None:
    TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=600))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


def test_every_folder_of_inputs_is_a_targets() -> None:
    assert {path.name for path in CORPUS.iterdir() if path.is_dir()} <= set(TARGETS)
