"""The battery finds what breaks a promise, whichever store breaks it."""

import io

import pytest

from mala_context.testing.battery import STORE_CHECKS, check_store
from tests.helpers.archive_memory import MemoryFiles, MemoryStore


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_store_that_keeps_its_promises_passes(check):
    check(MemoryStore)


def test_all_checks_at_once(monkeypatch):
    check_store(MemoryStore)
    monkeypatch.setattr(MemoryFiles, "touch", lambda self, names: None)
    with pytest.raises(AssertionError):
        check_store(MemoryStore)


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ({"open": lambda self, name: io.BytesIO(self._files[name][0][:-1])}, "published_bytes_come_back"),
        ({"append": lambda self, rows: self.replace_manifest(self.manifest() + rows)}, "manifest_rows_are_added"),
        ({"touch": lambda self, names: None}, "touched_files_are_young"),
        ({"remove": lambda self, name: self._check(name)}, "removed_files_are_gone"),
        ({"_check": lambda self, name: None}, "names_belong_to_their_session"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_battery_finds_a_broken_promise(broken, names, monkeypatch):
    for name, function in broken.items():
        monkeypatch.setattr(MemoryFiles, name, function)
    check = next(check for check in STORE_CHECKS if check.__name__ == names)
    with pytest.raises(AssertionError):
        check(MemoryStore)


def test_the_battery_finds_a_store_that_overwrites(monkeypatch):
    def publish(self, name, fill, *, mtime_ns=None):
        self._files.pop(name, None)
        real(self, name, fill, mtime_ns=mtime_ns)

    real = MemoryFiles.publish
    monkeypatch.setattr(MemoryFiles, "publish", publish)
    check = next(check for check in STORE_CHECKS if check.__name__ == "nothing_is_overwritten")
    with pytest.raises(AssertionError, match="FileExistsError"):
        check(MemoryStore)
