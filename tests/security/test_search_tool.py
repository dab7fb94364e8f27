"""The search tool is no path out of a session: not to others of this project, to other projects, or to other files."""

import json
import os
import sqlite3

import pytest

from mala_context.agent.search_tool import FULL_NAME, SCHEMA, HistorySearch
from mala_context.archive import manifests
from mala_context.archive.search import search_session
from mala_context.archive.store import TranscriptArchive
from tests.helpers.small_transcripts import dump, message

MINE = "6d616c61-0000-4000-8000-0000000000a1"
SIBLING = "6d616c61-0000-4000-8000-0000000000a2"
FOREIGN = "6d616c61-0000-4000-8000-0000000000a3"
QUERIES = (
    "needle",
    "need*",
    SIBLING,
    FOREIGN,
    "elsewhere",
    "/etc/passwd",
    "../elsewhere needle",
    'x" OR "needle',
    "*",
    "",
)


def keep(archive, session_id, text, root):
    path = root / f"{session_id}.jsonl"
    path.write_bytes(dump([message(1, text)]))
    archive.archive(str(path), session_id)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Two sessions of a project, and two of another one, of which one has the same id as ours."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    made = TranscriptArchive(repo_path=tmp_path / "project")
    other = TranscriptArchive(repo_path=tmp_path / "elsewhere")
    keep(made, MINE, "needle mine", tmp_path)
    keep(made, SIBLING, "needle sibling-secret", tmp_path)
    keep(other, MINE, "needle foreign-secret", tmp_path)
    keep(other, FOREIGN, "needle foreign-secret", tmp_path)
    for each in (MINE, FOREIGN):
        search_session(other, each, "needle")  # its indexes are there too
    made.other = other
    return made


def add_rows(archive, rows):
    with open(os.path.join(archive.location, f"{MINE}.manifest.jsonl"), "ab") as file:
        file.write(manifests.dump(rows))


async def answers(archive, session=MINE):
    """All that the tool says to any of the queries."""
    tool = HistorySearch(archive, lambda: session)
    said = [await tool.answer({"query": query, "limit": 50, "session_id": FOREIGN, "repo": "/"}) for query in QUERIES]
    return json.dumps(said)


def says_nothing_of_others(text):
    return not [word for word in ("secret", "elsewhere/", "-elsewhere", SIBLING, FOREIGN) if word in text]


async def test_a_session_finds_its_own_words_alone(archive):
    text = await answers(archive)
    assert "needle mine" in text
    assert says_nothing_of_others(text), text


def test_the_tool_takes_words_and_a_number_alone():
    assert sorted(SCHEMA["properties"]) == ["limit", "query"]
    assert FULL_NAME == "mcp__mala_context__search_history"


@pytest.mark.parametrize(
    "session", ["../elsewhere", f"../../-elsewhere/archives/{FOREIGN}", f"{MINE}/../{SIBLING}", ""]
)
async def test_a_sessions_id_is_no_path(session, archive):
    assert "secret" not in await answers(archive, session)


@pytest.mark.parametrize("of", ["sibling", "foreign"])
async def test_a_link_among_the_pieces_is_none(of, archive):
    source = archive if of == "sibling" else archive.other
    (piece,) = source.pieces(SIBLING if of == "sibling" else FOREIGN)
    name = f"{MINE}_20990101T000000.000000Z_transcript.jsonl"
    os.symlink(os.path.join(source.location, piece.name), os.path.join(archive.location, name))
    assert says_nothing_of_others(await answers(archive))


async def test_a_manifests_rows_name_no_other_pieces(archive):
    (theirs,) = archive.other.pieces(FOREIGN)
    names = [os.path.join(archive.other.location, theirs.name), f"../../-elsewhere/archives/{theirs.name}", theirs.name]
    rows = [
        {"v": 1, "row": kind, "name": name, "to": f"file://{archive.other.location}", "length": 9, "mode": "full"}
        for name in names
        for kind in ("piece", "uploaded", "packed", "file")
    ]
    add_rows(archive, rows)
    assert says_nothing_of_others(await answers(archive))


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hardlink"])
async def test_another_projects_index_in_place_of_ones_own(make, archive, tmp_path):
    search_session(archive, MINE, "needle")
    own, theirs = ((tmp_path / "runs").glob(f"*{name}/search/{MINE}.sqlite") for name in ("project", "elsewhere"))
    (own,), (theirs,) = own, theirs
    before = theirs.read_bytes()
    own.unlink()
    make(theirs, own)
    assert says_nothing_of_others(await answers(archive))
    assert theirs.read_bytes() == before


async def test_rows_that_were_put_into_the_index_by_others_names(archive, tmp_path):
    """An index is as trusted as the archive beside it; one of other pieces is made again."""
    search_session(archive, MINE, "needle")
    (own,) = (tmp_path / "runs").glob(f"*project/search/{MINE}.sqlite")
    with sqlite3.connect(own) as index:
        index.execute("INSERT INTO piece VALUES ('of another')")
        index.execute("INSERT INTO text VALUES ('needle foreign-secret', 'main', 'user', NULL, 'of another', NULL)")
    index.close()
    assert says_nothing_of_others(await answers(archive))


@pytest.mark.parametrize("broken", ["index", "archive"])
async def test_an_error_says_nothing_of_others(broken, archive, tmp_path):
    search_session(archive, MINE, "needle")
    (own,) = (tmp_path / "runs").glob(f"*project/search/{MINE}.sqlite")
    if broken == "index":
        own.unlink()
        own.mkdir()
    else:
        os.rename(archive.location, tmp_path / "aside")
        os.symlink(archive.other.location, archive.location)
    text = await answers(archive)
    assert '"is_error": true' in text
    assert says_nothing_of_others(text), text
