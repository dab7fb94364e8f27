"""The contract of a store of pieces, as checks that every store passes: ours, and those that others write.

Parametrise a test with `STORE_CHECKS`; each check is called with a function that returns a new and empty store::

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_contract(check, tmp_path):
        check(lambda: MyStore(tmp_path / uuid4().hex))

A check returns nothing. It raises `AssertionError`, or what the store itself raised, where a promise of
`mala_context.archive.interface` is broken.
"""

# ruff: noqa: D401, S101  # asserting is what these checks are for, and their docstrings are the promises

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mala_context.archive import layout
from mala_context.archive.source import digest_of, fill
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveBusyError, InvalidSessionIdError

if TYPE_CHECKING:
    from mala_context.archive.interface import PieceStore, SessionView, Write

NewStore = Callable[[], "PieceStore"]

SESSION: Final = "0e2f4a6c-battery"
OTHER: Final = "0e2f4a6c-battery-2"
_WAIT: Final = 10.0


def _name(number: int, session_id: str = SESSION) -> str:
    return layout.piece_name(session_id, None, 1, layout.stamp(1_700_000_000_000_000 + number), ".jsonl")


def _writes(*blocks: bytes) -> Callable[[Write], None]:
    def fill_it(write: Write) -> None:
        for block in blocks:
            write(block)

    return fill_it


def _read(view: SessionView, name: str) -> bytes:
    reader = view.open(name)
    try:
        data = b""
        buffer = bytearray(64)
        while count := fill(reader, buffer):
            data += buffer[:count]
        return data
    finally:
        reader.close()


def _raises(kind: type[BaseException], function: Callable[[], object]) -> None:
    try:
        function()
    except kind:
        return
    raise AssertionError(f"nothing raised {kind.__name__}")


def an_unknown_session_is_empty(new: NewStore) -> None:
    """A session that was never archived has no files, an empty manifest, and no trace after looking at it."""
    store = new()
    with store.view(SESSION) as view:
        assert list(view.list()) == []
        assert view.manifest() == b""
        _raises(FileNotFoundError, lambda: view.open(_name(1)))
    assert list(store.list()) == []


def published_bytes_come_back(new: NewStore) -> None:
    """What was published is listed with its size and read back byte for byte, in several writes or one."""
    store = new()
    blocks = (b"a" * 70_000, b"\0\xff\n", b"", b"end")
    with store.lock(SESSION, _WAIT) as files:
        files.publish(_name(1), _writes(*blocks))
        assert _read(files, _name(1)) == b"".join(blocks)
    with store.view(SESSION) as view:
        assert [(each.name, each.size) for each in view.list()] == [(_name(1), 70_006)]
        assert _read(view, _name(1)) == b"".join(blocks)
        assert digest_of(view.open(_name(1)))[1] == 70_006


def files_are_listed_in_order(new: NewStore) -> None:
    """Files are listed in the order of their names, whatever the order in which they were written."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        for number in (3, 1, 2):
            files.publish(_name(number), _writes(b"x"))
        assert [each.name for each in files.list()] == [_name(1), _name(2), _name(3)]


def nothing_is_overwritten(new: NewStore) -> None:
    """A name that is taken raises `FileExistsError`, and the old bytes stay."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        files.publish(_name(1), _writes(b"old"))
        _raises(FileExistsError, lambda: files.publish(_name(1), _writes(b"new")))
        assert _read(files, _name(1)) == b"old"


def a_failed_write_leaves_nothing(new: NewStore) -> None:
    """What `fill` raises comes through, and nothing is listed; the name can be used afterwards."""
    store = new()

    def broken(write: Write) -> None:
        write(b"half")
        raise KeyError("broken")

    with store.lock(SESSION, _WAIT) as files:
        _raises(KeyError, lambda: files.publish(_name(1), broken))
        assert list(files.list()) == []
        files.publish(_name(1), _writes(b"whole"))
        assert _read(files, _name(1)) == b"whole"


def content_is_kept_once(new: NewStore) -> None:
    """`publish_named` keeps one file for a name and says whether it is new."""
    store = new()
    name = layout.side_file_name(SESSION, "a" * 64)

    def named(write: Write) -> str:
        write(b"side")
        return name

    with store.lock(SESSION, _WAIT) as files:
        assert files.publish_named(named) == (name, True)
        assert files.publish_named(named) == (name, False)
        assert _read(files, name) == b"side"


def names_belong_to_their_session(new: NewStore) -> None:
    """Only names of the session are written or removed: no path, no other session, nothing hidden."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        for name in ("../outside", "/tmp/x", ".hidden", _name(1, OTHER), "", "x\0y"):  # noqa: S108  # refused
            _raises(ValueError, lambda name=name: files.publish(name, _writes(b"x")))  # type: ignore[misc] # bound now
            _raises(ValueError, lambda name=name: files.remove(name))  # type: ignore[misc] # bound now as well
        assert list(files.list()) == []


def session_ids_are_plain_names(new: NewStore) -> None:
    """An id that is no plain name is refused by `view` and `lock`."""
    store = new()
    for session_id in ("../x", "a/b", "..", "", "x\0y", "n" * 300, ".hidden", "con\n", "é", "a.b"):
        _raises(InvalidSessionIdError, lambda sid=session_id: store.view(sid))  # type: ignore[misc] # bound now
        _raises(InvalidSessionIdError, lambda sid=session_id: store.lock(sid, 0))  # type: ignore[misc] # bound now as well


def sessions_do_not_mix(new: NewStore) -> None:
    """A session whose id begins like another's sees its own files only; the store's list has both."""
    store = new()
    for session_id in (SESSION, OTHER):
        with store.lock(session_id, _WAIT) as files:
            files.publish(_name(1, session_id), _writes(b"x"))
            files.append(b"{}\n")
    with store.view(SESSION) as view:
        assert {layout.session_of(each.name) for each in view.list()} == {SESSION}
    assert {layout.session_of(each.name) for each in store.list()} == {SESSION, OTHER}


def manifest_rows_are_added(new: NewStore) -> None:
    """Rows are appended, each on its own line, even after a row that was cut."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        files.append(b'{"a":1}\n')
        files.append(b'{"b":2}\n{"cut')
    with store.lock(SESSION, _WAIT) as files:
        files.append(b'{"c":3}\n')
        assert files.manifest() == b'{"a":1}\n{"b":2}\n{"cut\n{"c":3}\n'


def a_manifest_can_be_replaced(new: NewStore) -> None:
    """A manifest is replaced whole, the lock is still held, and rows are added to the new one."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        files.append(b"old\n")
        files.replace_manifest(b"new\n")
        files.append(b"row\n")
        _raises(ArchiveBusyError, lambda: store.lock(SESSION, 0.05))
    with store.view(SESSION) as view:
        assert view.manifest() == b"new\nrow\n"


def removed_files_are_gone(new: NewStore) -> None:
    """A removed file is listed no more; removing it again is no error."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        files.publish(_name(1), _writes(b"x"))
        files.remove(_name(1))
        files.remove(_name(1))
        assert list(files.list()) == []


def touched_files_are_young(new: NewStore) -> None:
    """`publish` sets a modification time that it is given; `touch` sets it to now."""
    store = new()
    with store.lock(SESSION, _WAIT) as files:
        files.publish(_name(1), _writes(b"x"), mtime_ns=10**18)
        assert files.list()[0].mtime_ns == 10**18
        files.touch([_name(1), _name(2)])
        assert files.list()[0].mtime_ns > 1_700_000_000 * 10**9


def one_writer_at_a_time(new: NewStore) -> None:
    """Holders of one session's lock never overlap; other sessions are not held up."""
    store = new()
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        with store.lock(SESSION, _WAIT) as files:
            inside.append(number)
            most.append(len(inside))
            files.append(b'{"n":%d}\n' % number)
            inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    with store.lock(OTHER, _WAIT):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert max(most) == 1
    with store.view(SESSION) as view:
        assert sorted(view.manifest().split()) == sorted(b'{"n":%d}' % number for number in range(8))


def waiting_ends(new: NewStore) -> None:
    """A writer that does not get the lock raises `ArchiveBusyError`, and the next one gets it."""
    store = new()
    with store.lock(SESSION, _WAIT):
        _raises(ArchiveBusyError, lambda: store.lock(SESSION, 0.05))
    store.lock(SESSION, 0.0).close()


def an_archive_works_on_it(new: NewStore) -> None:
    """`TranscriptArchive` on this store: pieces of a growing transcript are the transcript, and are archived once."""
    import os
    import tempfile

    archive = TranscriptArchive(store=new())
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, f"{SESSION}.jsonl")
        for count in (3, 3, 7):
            with open(path, "wb") as file:
                file.writelines(b'{"n":%d}\n' % number for number in range(count))
            archive.archive(path, SESSION, trigger="auto")
        with open(path, "rb") as file:
            transcript = file.read()
    pieces = archive.pieces(SESSION)
    with archive.view(SESSION) as view:
        assert b"".join(_read(view, piece.name) for piece in pieces) == transcript
    assert [(piece.offset, piece.length) for piece in pieces] == [(0, 24), (24, 32)]
    assert archive.usage_bytes() > len(transcript)


STORE_CHECKS: Final[tuple[Callable[[NewStore], None], ...]] = (
    an_unknown_session_is_empty,
    published_bytes_come_back,
    files_are_listed_in_order,
    nothing_is_overwritten,
    a_failed_write_leaves_nothing,
    content_is_kept_once,
    names_belong_to_their_session,
    session_ids_are_plain_names,
    sessions_do_not_mix,
    manifest_rows_are_added,
    a_manifest_can_be_replaced,
    removed_files_are_gone,
    touched_files_are_young,
    one_writer_at_a_time,
    waiting_ends,
    an_archive_works_on_it,
)
"""Every promise of the interface; a store that passes all of them can hold archives."""


def check_store(new: NewStore) -> None:
    """Run every check, each on a new store; raises `AssertionError` with the name of the first one that fails."""
    for check in STORE_CHECKS:
        try:
            check(new)
        except Exception as error:
            raise AssertionError(f"{check.__name__}: {error!r}") from error
