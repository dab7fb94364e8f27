"""Where the next piece goes."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.archive import layout
from mala_context.archive import manifest as manifests
from mala_context.archive.increment import Request, add_piece, make_plan
from mala_context.archive.local_store import LocalStore
from mala_context.archive.source import Source

WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=9).map(lambda b: b.replace(b"a", b"\n"))),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
        st.tuples(st.just("edit"), st.integers(0, 40)),
        st.tuples(st.just("archive"), st.booleans()),
        st.tuples(st.just("forget"), st.none()),
    ),
    max_size=14,
)


def request(mode="incremental", *, final=False, now=10**15, **more):
    fields = {"trigger": "auto", **more.pop("fields", {})}
    return Request(session_id="s1", subagent=None, mode=mode, final=final, now=now, fields=fields, **more)


def chains(files):
    """Bytes of each chain."""
    pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
    found = []
    for chain in manifests.chains_of(pieces, None):
        data = b""
        for piece in chain:
            with files.open(piece.name) as reader:
                data += reader.read()
        found.append(data)
    return found


@settings(max_examples=60, deadline=None)
@given(writes=WRITES)
def test_whatever_happens_to_a_transcript_the_newest_chain_is_its_beginning_and_old_chains_stay(
    writes, tmp_path_factory
):
    base = tmp_path_factory.mktemp("t")
    path, data, history = base / "s1.jsonl", bytearray(), []
    path.write_bytes(b"")
    with LocalStore(str(base / "archives")).lock("s1", 1) as files:
        for what, value in [*writes, ("archive", True)]:
            if what == "append":
                data += value
            elif what == "truncate":
                del data[value:]
            elif what == "edit" and value < len(data):
                data[value] ^= 1
            elif what == "forget":
                files.replace_manifest(b"")
            path.write_bytes(data)
            if what == "archive":
                with Source(path) as source:
                    add_piece(files, source, request(final=value))
                now = chains(files)
                assert now[: len(history) - 1] == history[:-1]
                assert not history or now[len(history) - 1].startswith(history[-1])
                history = now
                if data and (value or b"\n" in data):
                    assert data.startswith(now[-1])
                    rest = data[len(now[-1]) :]
                    assert not rest if value else b"\n" not in rest


def piece(number, size, **row):
    name = layout.piece_name("s1", None, 1, layout.stamp(10**15 + number), ".jsonl")
    return manifests.StoredFile(name=name, size=size, mtime_ns=1), {"row": "piece", "name": name, **row}


@pytest.mark.parametrize(
    ("pieces", "mode", "size", "broken"),
    [
        ([], "incremental", 10, None),
        ([piece(1, 10, offset=0)], "incremental", 9, "shrunk"),
        ([piece(1, 10, offset=5)], "incremental", 90, "gap"),
        ([piece(1, 10, mode="full")], "incremental", 10, "mode"),
        ([piece(1, 10, mode="incremental")], "full", 10, "mode"),
        ([piece(1, 10, mode="full"), piece(2, 90, mode="full")], "full", 10, None),
        ([piece(1, 10, offset=0)], "incremental", 90, "unreadable"),
    ],
)
def test_why_a_chain_ends(pieces, mode, size, broken, tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"x" * size)
    files = LocalStore(str(tmp_path / "none")).view("s1")
    manifest = manifests.parse(manifests.dump(row for _, row in pieces))
    chain = manifests.pieces_of([file for file, _ in pieces], manifest)
    with Source(tmp_path / "t.jsonl") as source:
        plan = make_plan(files, source, chain, mode)
    assert (plan.broken, plan.chain, plan.offset) == (broken, 1 if broken is None else 2, 0)


SECOND = 10**6


@pytest.mark.parametrize(
    ("since", "agent", "outcome", "pieces"),
    [
        (None, None, False, 2),
        (10**15, None, False, 1),
        (10**15 - SECOND, "main", False, 1),
        (10**15 + SECOND, None, False, 2),
        (10**15, None, True, 2),
        (10**15, "a1", False, 2),
    ],
    ids=[
        "nobody beside it",
        "beside it",
        "before it",
        "long before",
        "of a compaction that is over",
        "of another agent",
    ],
)
@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_what_another_hook_archived_for_this_compaction_is_not_archived_again(
    mode, since, agent, outcome, pieces, tmp_path
):
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"one\n")
    with LocalStore(str(tmp_path / "archives")).lock("s1", 1) as files, Source(str(path)) as source:
        source.take_size()
        first = add_piece(files, source, request(mode, fields={"agent": "main"}))
        if outcome:
            name = first.path.rpartition("/")[2]
            files.append(manifests.dump([manifests.new_row("outcome", 10**15, outcome="failed", piece=name)]))
        path.write_bytes(b"one\ntwo\n")
        source.take_size()
        result = add_piece(files, source, request(mode, now=10**15 + SECOND, since=since, fields={"agent": agent}))
        found = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
    assert len(found) == pieces
    assert result.archived is (pieces == 2)
    if pieces == 1:
        assert (result.reason, result.offset, result.chain) == ("another hook archived", 4, 1)


def test_a_stale_piece_is_opened_again(tmp_path, monkeypatch):
    from mala_context.archive import increment
    from mala_context.archive.store import TranscriptArchive

    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n')
    archive.archive(transcript, "s1")
    transcript.write_bytes(b'{"n":1}\n{"n":2}\n')
    real, answers = increment.open_plain, [OSError(errno.ESTALE, "Stale file handle")]

    def stale(files, piece):
        if answers:
            raise answers.pop()
        return real(files, piece)

    monkeypatch.setattr(increment, "open_plain", stale)
    result = archive.archive(transcript, "s1")
    assert (result.chain, result.new_chain, answers) == (1, False, [])


def test_a_hook_is_not_held_back_by_a_piece_from_before_the_clock_was_set_back(tmp_path, monkeypatch):
    from mala_context.archive import store as stores

    archive, transcript = stores.TranscriptArchive(tmp_path / "a"), tmp_path / "t.jsonl"
    transcript.write_bytes(b'{"n":1}\n')
    now = 1_800_000_000_000_000
    monkeypatch.setattr(stores, "_now", lambda: now + 7_200_000_000)
    archive.archive(transcript, "s1", trigger="auto")
    transcript.write_bytes(b'{"n":1}\n{"n":2}\n')
    monkeypatch.setattr(stores, "_now", lambda: now)
    assert archive.archive(transcript, "s1", trigger="auto", since=now - 10_000_000).archived
