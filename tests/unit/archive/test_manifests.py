"""Rows, and what files and rows say together."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mala_context.archive import layout, manifests
from mala_context.archive.layout import StoredFile
from mala_context.archive.reading import chunks
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive as verify
from mala_context.cli.app import app
from mala_context.errors import MalaContextError
from tests.security.test_readers_change_nothing import READERS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def name(number, chain=1, subagent=None):
    return layout.piece_name("s1", subagent, chain, layout.stamp(10**15 + number), ".jsonl")


def stored(name, size=10):
    return StoredFile(name=name, size=size, mtime_ns=1)


def read(*rows):
    return manifests.parse(manifests.dump(rows))


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=4), max_size=5))
def test_rows_come_back_as_they_were(rows):
    assume(all(isinstance(row.get("row"), str | None) for row in rows))  # a row of no kind is none
    data = manifests.dump(rows)
    assert data.count(b"\n") == len(rows)
    assert list(manifests.parse(data).rows) == rows
    assert manifests.parse(data).unreadable == ()


@given(st.binary())
def test_any_bytes_are_read_and_none_is_lost_silently(data):
    manifest = manifests.parse(data)
    lines = [line for line in data.split(b"\n") if line.strip()]
    assert len(manifest.rows) + len(manifest.unreadable) == len(lines)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=4), min_size=1, max_size=5), st.data())
def test_a_cut_manifest_loses_its_last_row_only(rows, data):
    whole = manifests.dump(rows)
    last = len(manifests.dump(rows[-1:]))
    cut = whole[: len(whole) - data.draw(st.integers(2, max(2, last - 1)))] if last > 3 else whole
    manifest = manifests.parse(cut)
    assert list(manifest.rows)[: len(rows) - 1] == rows[:-1]


def test_a_row_that_is_nested_too_deep_is_unreadable():
    assert manifests.parse(b"[" * 200_000).unreadable[0][0] == 1


def test_surrogates_in_a_path_are_kept():
    (row,) = read({"transcript": "/t/\udcff.jsonl"}).rows
    assert row["transcript"] == "/t/\udcff.jsonl"


def test_a_new_row_leaves_out_what_is_unknown():
    row = manifests.new_row("piece", 1_700_000_000_123_456, name="n", tokens=None, offset=0)
    assert row == {"v": 1, "row": "piece", "time": "2023-11-14T22:13:20.123456Z", "name": "n", "offset": 0}


def test_pieces_lie_end_to_end_in_their_chain():
    files = [stored(name(2), 20), stored(name(1)), stored(name(3, chain=2), 7), stored(name(4, subagent="a"), 5)]
    pieces = manifests.pieces_of([*files, stored("s1.manifest.jsonl")], read())
    assert [(each.subagent, each.chain, each.offset, each.end) for each in pieces] == [
        (None, 1, 0, 10),
        (None, 1, 10, 30),
        (None, 2, 0, 7),
        ("a", 1, 0, 5),
    ]
    assert [[each.length for each in chain] for chain in manifests.chains_of(pieces, None)] == [[10, 20], [7]]
    assert len(manifests.without_row(pieces)) == 4


def test_a_packed_piece_has_the_length_that_its_row_says():
    row = {"row": "piece", "name": name(1), "length": 100, "sha256": "0a" * 32}
    (piece, following) = manifests.pieces_of([stored(name(1) + ".zst"), stored(name(2))], read(row))
    assert (piece.packed, piece.length, piece.stored, piece.plain, piece.sha256) == (True, 100, 10, name(1), "0a" * 32)
    assert following.offset == 100
    (unknown,) = manifests.pieces_of([stored(name(1) + ".zst")], read())
    assert (unknown.length, unknown.end) == (None, None)


def test_a_piece_that_is_there_twice_counts_as_plain():
    both = [stored(name(1) + ".zst", 3), stored(name(1), 10)]
    for files in (both, both[::-1]):
        (piece,) = manifests.pieces_of(files, read())
        assert not piece.packed


def test_a_gap_is_seen_by_the_offset_that_a_row_states():
    row = {"row": "piece", "name": name(2), "offset": 99}
    pieces = manifests.pieces_of([stored(name(1)), stored(name(2))], read(row))
    assert [piece.offset for piece in pieces] == [0, None]
    first_is_gone = manifests.pieces_of([stored(name(2))], read(row))
    assert [piece.offset for piece in first_is_gone] == [None]


def test_what_is_gone_is_named_and_a_packed_piece_is_not_gone():
    rows = [{"row": "piece", "name": name(number)} for number in (1, 2)]
    pieces = manifests.pieces_of([stored(name(1) + ".zst")], read(*rows))
    assert manifests.gone(pieces, read(*rows)) == [name(2)]


def test_edited_values_are_not_believed():
    row = {"row": "piece", "name": name(1), "length": True, "offset": -1, "sha256": 5, "mode": ["full"]}
    (piece,) = manifests.pieces_of([stored(name(1) + ".zst")], read(row, {"row": "piece", "name": 5}))
    assert (piece.length, piece.offset, piece.sha256, piece.mode) == (None, 0, None, "incremental")


def test_the_open_piece_is_the_newest_compaction_without_an_outcome():
    def row(number, **fields):
        return {"row": "piece", "name": name(number), **fields}

    assert read().open_piece() is None
    rows = [row(1, trigger="auto", agent="main"), row(2, trigger="catch_up"), row(3, trigger="auto", subagent="a")]
    assert read(*rows).open_piece()["name"] == name(1)
    assert read(*rows).open_piece("main")["name"] == name(1)
    assert read(*rows).open_piece("a1") is None
    assert read(*rows, {"row": "outcome", "piece": name(1)}).open_piece() is None


def test_a_compaction_for_which_nothing_was_new_opens_the_newest_piece_again():
    piece = {"row": "piece", "name": name(1), "trigger": "session_end", "offset": 5, "length": 10}
    nothing = {"row": "nothing_new", "piece": name(1), "trigger": "auto", "agent": "main"}
    outcome = {"row": "outcome", "piece": name(1)}
    found = read(piece, outcome, nothing).open_piece("main")
    assert [found[key] for key in ("name", "trigger", "offset", "length")] == [name(1), "auto", 5, 10]
    assert read(piece, nothing).open_piece("a1") is None
    assert read(piece, nothing, outcome).open_piece() is None
    assert read(nothing).open_piece() is None  # the piece is gone


def test_files_are_summed_up_by_session_the_newest_first():
    files = [
        StoredFile(name=name(0), size=10, mtime_ns=1),
        StoredFile(name="s1.manifest.jsonl", size=5, mtime_ns=9),
        StoredFile(name="s2.manifest.jsonl", size=7, mtime_ns=12),
        StoredFile(name="notes.txt", size=99, mtime_ns=99),
    ]
    newest, older = manifests.summaries(files)
    assert (newest.session_id, newest.pieces, newest.stored) == ("s2", 0, 7)
    assert (older.session_id, older.stored, older.newest_ns) == ("s1", 15, 9)
    assert older.files == (name(0), "s1.manifest.jsonl")
    assert manifests.summaries([]) == []


ODD = ["[]", "{}", "7", "-1", "1.5", "true", '"text"', "9" * 400, "[[]]", '{"a":[]}', '"\\ud800"', "1e400"]
FIELDS = {
    "piece": ["name", "chain", "mode", "offset", "length", "sha256", "subagent", "transcript", "trigger", "agent"],
    "piece's": ["tokens", "model", "cwd", "clock", "time", "began"],
    "packed": ["piece", "length", "sha256"],
    "outcome": ["piece", "outcome", "trigger", "agent", "tokens_before", "summary", "lost", "error", "duration_ms"],
    "file": ["path", "name", "length", "sha256"],
    "session": ["transcript", "cwd", "pid", "host", "started"],
    "removing": ["names"],
    "uploaded": ["name", "to", "length", "sha256", "mtime_ns"],
}


@pytest.mark.parametrize("kind", FIELDS)
def test_no_odd_row_stops_anything(kind, tmp_path, monkeypatch):
    """Every command and every method, with every field of every kind of row holding what it never holds."""
    for each in ("HOME", "MALA_RUNS_DIR", "CLAUDE_CONFIG_DIR"):
        (tmp_path / each).mkdir()
        monkeypatch.setenv(each, str(tmp_path / each))
    monkeypatch.chdir(tmp_path)
    transcript = tmp_path / "s1.jsonl"
    archive = TranscriptArchive(tmp_path / "a")
    row = {"type": "user", "uuid": "u1", "sessionId": "s1", "message": {"role": "user", "content": "the word"}}
    transcript.write_text(json.dumps(row) + "\n")
    archive.archive(transcript, "s1", trigger="auto")
    (name,) = (piece.name for piece in archive.pieces("s1"))
    row_kind = kind.removesuffix("'s")
    tail = f'"row":"{row_kind}"'
    given = {"piece": {"name": name}, "outcome": {"piece": name}, "file": {"path": "p", "name": "s1.file-0"}}
    path = tmp_path / "a" / "s1.manifest.jsonl"
    lines = [
        "{" + ",".join([*(f'"{k}":"{v}"' for k, v in given.get(row_kind, {}).items()), f'"{field}":{odd}', tail]) + "}"
        for field in FIELDS[kind]
        for odd in ODD
    ]
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    before = path.read_bytes()
    archive.pieces("s1"), archive.sessions(), archive.manifest("s1").open_piece("main", (0, 1 << 50))
    for command in READERS:
        done = CliRunner().invoke(app, [*command, "--dir", str(tmp_path / "a")])
        assert done.exception is None or isinstance(done.exception, SystemExit | MalaContextError), (command, done)
    with transcript.open("a") as file:
        file.write('{"n":2}\n')
    archive.archive(transcript, "s1", trigger="auto", since=0)
    archive.archive_session(transcript, "s1")
    archive.compaction_seen(transcript, "s1", trigger="auto")
    archive.register_session("s1", str(transcript), pid=1)
    archive.catch_up()
    archive.prune(days=1)
    assert path.read_bytes().startswith(before)  # what cannot be understood is kept
    assert b"".join(chunks_of(archive)) == transcript.read_bytes()


def chunks_of(archive):
    with archive.view("s1") as files:
        chain = manifests.chains_of(archive.pieces("s1"), None)[-1]
        yield from chunks(files, chain, strict=False)


@pytest.mark.parametrize(
    "line",
    [
        '{"row":"outcome","piece":[],"outcome":"compacted"}',
        *('{"row":[]}', '{"row":{},"piece":"x"}', '{"row":7}', "[1]", '"text"', "null", "7", "{", "\\x00"),
    ],
)
def test_odd_rows_are_named_by_verify_and_kept_as_text_by_its_repair(tmp_path, line):
    archive = TranscriptArchive(tmp_path / "a")
    (tmp_path / "s1.jsonl").write_text("{}\n")
    archive.archive(tmp_path / "s1.jsonl", "s1", trigger="auto")
    with (tmp_path / "a" / "s1.manifest.jsonl").open("a") as file:
        file.write(line + "\n")
    (problem,) = verify(archive).problems
    assert (problem.kind, problem.detail) == ("manifest", f"line 2: {line.encode()[:60]!r}")
    assert verify(archive, repair=True).ok
    assert verify(archive).problems == ()
    assert [row["text"] for row in archive.manifest("s1").of_kind("unreadable")] == [line]


@pytest.mark.parametrize("number", [2, 1_001, 1_002, 5_000, 999_998, 999_999])
@pytest.mark.parametrize("agent", ["", ".agent-a1"])
def test_a_planted_chain_never_ends_an_archive(tmp_path, number, agent):
    """The numbers in names end at 999,999: the session behind such a name was never archived again."""
    archive, transcript = TranscriptArchive(tmp_path / "a"), tmp_path / "s1.jsonl"
    which = {"subagent": "a1"} if agent else {}
    transcript.write_text('{"n":0}\n')
    archive.archive(transcript, "s1", **which)
    (tmp_path / "a" / f"s1{agent}.{number}_20260101T000000.000000Z_transcript.jsonl").write_text('{"planted":1}\n')
    for n in range(3):
        with transcript.open("a") as file:
            file.write(f'{{"n":{n}}}\n')
        archive.archive(transcript, "s1", **which)
    chain = manifests.chains_of(archive.pieces("s1"), which.get("subagent"))[-1]
    with archive.view("s1") as files:
        assert b"".join(chunks(files, chain)) == transcript.read_bytes()
    assert len(archive.pieces("s1")) <= 5  # no row is archived with every compaction
