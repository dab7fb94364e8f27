"""Finding words in what is archived."""

import json
import os
import sqlite3
import stat
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mala_context.archive import search as search_module
from mala_context.archive.search import as_expression, search_session, texts
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import InvalidSessionIdError


def said(words, number=0, **more):
    message = {"role": "user", "content": words}
    return {
        "type": "user",
        "uuid": f"u{number}-{words[:40]}",
        "timestamp": f"2026-01-0{number}",
        "message": message,
        **more,
    }


class Bench:
    def __init__(self, folder, **archive):
        self.folder = folder
        self.archive = TranscriptArchive(folder / "archives", **archive)

    def path(self, session="s1", subagent=""):
        return self.folder / f"{session}{subagent}.jsonl"

    def keep(self, *rows, session="s1", **fields):
        path = self.path(session, fields.get("subagent", ""))
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        self.archive.archive(str(path), session, **fields)

    def find(self, query, session="s1", **more):
        return [hit.text for hit in search_session(self.archive, session, query, **more)]

    @property
    def index(self):
        return self.folder / "archives" / "search" / "s1.sqlite"


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_words_in_any_order_phrases_and_endings(bench):
    bench.keep(said("the parser fails on nested lists", 1), said("lists of files to parse", 2))
    assert bench.find("lists parser") == ["the parser fails on nested lists"]
    assert bench.find('"nested lists"') == ["the parser fails on nested lists"]
    assert bench.find('"lists nested"') == []
    assert len(bench.find("pars*")) == 2
    assert len(bench.find("LISTS")) == 2
    assert len(bench.find("lists", limit=1)) == 1
    assert bench.find("absent") == bench.find("") == bench.find('" " * -') == []


def test_a_hit_says_where_it_is(bench):
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "needle in a result"}]}
    bench.keep(said("x", 1, message={"role": "user", "content": [result]}), agent="main")
    (hit,) = search_session(bench.archive, "s1", "needle")
    (piece,) = bench.archive.pieces("s1")
    assert (hit.session_id, hit.agent, hit.role, hit.time, hit.piece) == (
        "s1",
        "main",
        "tool",
        "2026-01-01",
        piece.plain,
    )


def test_the_next_search_sees_what_was_archived_since(bench):
    bench.keep(said("first needle", 1))
    assert bench.find("needle") == ["first needle"]
    bench.keep(said("second needle", 2))
    assert sorted(bench.find("needle")) == ["first needle", "second needle"]
    assert sorted(bench.find("needle")) == ["first needle", "second needle"]


def test_a_session_sees_only_itself_and_its_subagents(bench):
    bench.keep(said("my needle", 1))
    bench.keep(said("needle of a subagent", 2), subagent="a1")
    bench.keep(said("needle of another", 3), session="s2")
    assert sorted(bench.find("needle")) == ["my needle", "needle of a subagent"]
    assert bench.find("needle", session="s3") == []
    assert not os.path.exists(bench.folder / "archives" / "search" / "s3.sqlite")
    with pytest.raises(InvalidSessionIdError):
        search_session(bench.archive, "../s1", "needle")


def test_whole_copies_and_new_chains_are_found_once(tmp_path):
    bench = Bench(tmp_path, mode="full")
    bench.keep(said("one needle", 1))
    assert bench.find("needle") == ["one needle"]
    bench.keep(said("two needle", 2))
    assert sorted(bench.find("needle")) == ["one needle", "two needle"]
    rewritten = Bench(tmp_path / "other")
    rewritten.folder.mkdir()
    rewritten.keep(said("one needle", 1), said("two needle", 2))
    path = rewritten.folder / "s1.jsonl"
    path.write_text(json.dumps(said("one needle", 1)) + "\n")
    rewritten.archive.archive(str(path), "s1")
    assert len(rewritten.archive.pieces("s1")) == 2
    assert sorted(rewritten.find("needle")) == ["one needle", "two needle"]


def test_the_index_is_private(bench):
    bench.folder.chmod(0o755)
    bench.keep(said("needle", 1))
    bench.find("needle")
    assert stat.S_IMODE(bench.index.stat().st_mode) == 0o600
    assert stat.S_IMODE(bench.index.parent.stat().st_mode) == 0o700
    assert [path.name for path in bench.index.parent.iterdir()] == ["s1.sqlite"]
    assert stat.S_IMODE(bench.folder.stat().st_mode) == 0o755  # that one is not ours
    bench.index.chmod(0o644)
    bench.find("needle")
    assert stat.S_IMODE(bench.index.stat().st_mode) == 0o600


def test_without_a_place_the_index_is_in_memory(bench, monkeypatch):
    bench.keep(said("needle", 1))
    monkeypatch.setattr(search_module, "derived_dir", lambda *_: None)
    assert bench.find("needle") == ["needle"]
    assert not bench.index.exists()


@pytest.mark.parametrize("damage", ["garbage", "empty", "version", "table"])
def test_an_index_of_no_use_is_made_again(bench, damage):
    bench.keep(said("needle", 1))
    bench.find("needle")
    if damage in {"garbage", "empty"}:
        bench.index.write_bytes(b"garbage" * 1_000 if damage == "garbage" else b"")
    else:
        with sqlite3.connect(bench.index) as index:
            index.execute("PRAGMA user_version = 99" if damage == "version" else "DROP TABLE seen")
        index.close()
        bench.keep(said("another needle", 2))
    assert "needle" in bench.find("needle")


@pytest.mark.parametrize("left", [b"", b"\0" * 600, b"no journal"], ids=["empty", "unwritten", "garbage"])
@pytest.mark.parametrize("damaged", [False, True], ids=["", "beside a damaged index"])
def test_a_journal_that_a_kill_left_is_removed(bench, left, damaged):
    bench.keep(said("the parser", 1))
    bench.find("parser")
    if damaged:
        bench.index.write_bytes(b"no index " * 1_000)
    journal = bench.index.with_name("s1.sqlite-journal")
    journal.write_bytes(left)
    assert bench.find("parser") == ["the parser"]
    assert not journal.exists()


def test_an_index_of_pieces_that_are_gone_is_made_again(bench):
    bench.keep(said("old needle", 1))
    bench.find("needle")
    os.unlink(os.path.join(bench.archive.location, bench.archive.pieces("s1")[0].name))
    (bench.folder / "s1.jsonl").write_text("")
    bench.keep(said("new needle", 2))
    assert bench.find("needle") == ["new needle"]


def test_an_index_that_cannot_be_written(bench, monkeypatch):
    def broken(*_):
        raise sqlite3.OperationalError("disk I/O error")

    bench.keep(said("needle", 1))
    monkeypatch.setattr(search_module, "_bring_up", broken)
    with pytest.raises(OSError, match="cannot be used: disk I/O error"):
        bench.find("needle")


def test_another_process_at_work_keeps_its_index(bench, monkeypatch):
    def locked(*_):
        raise sqlite3.OperationalError("database is locked")

    bench.keep(said("needle", 1))
    bench.find("needle")
    monkeypatch.setattr(search_module, "_bring_up", locked)
    with pytest.raises(OSError, match="locked"):
        bench.find("needle")
    assert bench.index.exists()


def test_a_link_in_its_place_is_not_followed(bench):
    bench.keep(said("needle", 1))
    bench.index.parent.mkdir(mode=0o700)
    target = bench.folder / "target"
    target.write_text("mine")
    bench.index.symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        bench.find("needle")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("shared", [True, False])
def test_where_others_may_swap_its_directory_nothing_of_it_is_on_a_disk(shared, bench, monkeypatch):
    """SQLite opens a path: swapped at the right moment, that would lead to a directory of somebody else."""
    bench.keep(said("needle", 1))
    bench.folder.chmod(0o777 if shared else 0o700)
    connect = sqlite3.connect
    there = bench.index.parent

    def swap_and_connect(*given, **more):
        if there.exists():
            there.rename(there.with_name("aside"))
        there.mkdir(mode=0o777)
        return connect(*given, **more)

    if shared:
        monkeypatch.setattr(sqlite3, "connect", swap_and_connect)
    for _ in range(2):
        assert len(bench.find("needle")) == 1
    assert bench.index.exists() is not shared
    assert not [each for each in bench.folder.rglob("*sqlite*") if shared]


def test_many_searches_at_once(bench):
    bench.keep(*(said(f"needle {number}", 1) for number in range(200)))
    found = []
    threads = [threading.Thread(target=lambda: found.append(len(bench.find("needle", limit=500)))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 6


def test_hostile_text_in_rows(bench):
    odd = ["\ud800 needle", "needle \0 nul", "needle \u202e turned", "needle\u2028line"]
    bench.keep(*(said(words, number) for number, words in enumerate(odd)))
    assert len(bench.find("needle")) == 4
    assert all("\n" not in text for text in bench.find("needle"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("filled"))
    bench.keep(said("some words and a needle", 1))
    return bench


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text() | st.text(alphabet='"*-:^(){}+ANDORTNE needle\0\ud800', max_size=40))
def test_no_query_raises(filled, query):
    assert isinstance(filled.find(query), list)


@pytest.mark.parametrize(
    "query",
    ["NEAR(a b)", "body:needle", "needle AND", "NOT needle", "^needle", "-needle", '"', '""', '"*"', "needle^2", "'"],
)
def test_the_indexs_own_language_means_nothing(filled, query):
    assert isinstance(filled.find(query), list)


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("two words", '"two" "words"'),
        ('"in a row" and', '"in a row" "and"'),
        ("pars*", '"pars"*'),
        ('half "open quote', '"half" "open" "quote"'),
        ("* - ( )", ""),
        ("a" * 3 + " b" * 40, '"aaa" ' + " ".join(['"b"'] * 31)),
    ],
)
def test_a_query_in_the_indexs_language(query, expression):
    assert as_expression(query) == expression


def test_what_rows_say():
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "make"}}
    content = [{"type": "text", "text": "words"}, call, {"type": "thinking", "thinking": "no"}, "odd", {"type": "text"}]
    assert list(texts({"type": "assistant", "message": {"content": content}})) == [
        ("assistant", "words"),
        ("assistant", 'Bash {"command": "make"}'),
    ]
    assert list(texts({"type": "user", "isCompactSummary": True, "message": {"content": "s"}})) == [("summary", "s")]
    assert list(texts({"type": "system", "content": "a note"})) == [("system", "a note")]
    result = {"type": "tool_result", "content": "out"}
    assert list(texts({"type": "user", "message": {"content": [result, {"type": "tool_result"}]}})) == [("tool", "out")]
    assert list(texts({"type": "attachment", "content": "x"})) == list(texts({"type": "user", "message": 3})) == []


def test_an_index_that_cannot_be_read_is_an_error_and_not_an_empty_answer(tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    bench.keep(said("apples"))

    class Broken:
        def __init__(self, error):
            self.error = error

        def execute(self, *_):
            raise self.error

        def close(self):
            pass

    for error in (sqlite3.DatabaseError("malformed"), sqlite3.OperationalError("disk I/O error")):
        monkeypatch.setattr(search_module, "_up_to_date", lambda *_, error=error: Broken(error))
        with pytest.raises(OSError, match="cannot be read"):
            search_session(bench.archive, "s1", "apples")
    monkeypatch.setattr(search_module, "_up_to_date", lambda *_: Broken(sqlite3.OperationalError("fts5: syntax error")))
    assert search_session(bench.archive, "s1", "apples") == []


@pytest.mark.parametrize("place", ["beginning", "middle", "end"])
@pytest.mark.parametrize("words", ["needle", "Näedle", "fine needle", "needles fine"])
def test_the_words_around_what_was_found_are_shown(bench, words, place):
    hay = "straw and hay " * 2_000
    text = {"beginning": f"{words} {hay}", "middle": f"{hay} {words} {hay}", "end": f"{hay} {words}"}[place]
    bench.keep(said(text, 1))
    query = {"Näedle": "naedle", "needles fine": '"needles fine"'}.get(words, words)
    (found,) = bench.find(query)
    assert words in found
    assert len(found) < 400
    assert found.startswith("… ") == (place != "beginning")
    assert found.endswith(" …") == (place != "end")


def test_the_part_with_most_of_the_words_is_shown(bench):
    bench.keep(said("red " * 500 + "grey " * 500 + "the red fox and the blue hen " + "grey " * 500 + "blue " * 500, 1))
    (found,) = bench.find("blue red")
    assert "red fox and the blue hen" in found


@pytest.mark.parametrize(
    ("size", "place"),
    [(300_000, 0), (300_000, 199_990), (300_000, 299_980), (4_300_000, 65_530), (4_300_000, 264_500)],
)
def test_a_text_is_searched_to_its_end(bench, size, place):
    """Also where it is cut, and in a row too long to be decoded: a word that stands there is whole on one side."""
    words = "ab " * (size // 3)
    bench.keep(said(f"{words[:place]} einzig artig {words[place:]}", 1), said("after", 2))
    assert bench.find('"einzig artig"')
    assert all(hit.role == "user" and hit.time == "2026-01-01" for hit in search_session(bench.archive, "s1", "einzig"))
    assert bench.find("after") == ["after"]


def test_a_row_of_very_many_values_is_searched(bench):
    row = b'{"type":"assistant","message":{"content":[{"type":"tool_use","input":["needle",' + b"[]," * 1_500_000
    bench.path().write_bytes(row + b'[]]}]},"uuid":"u1"}\n')
    bench.keep(said("after", 2))
    assert bench.find("needle")
    assert bench.find("after") == ["after"]


def test_a_word_that_stands_there_very_often(bench):
    """Its square would be 10^10."""
    bench.keep(said("y " * 100_000, 1))
    before = time.process_time()
    assert len(bench.find("y")) == 1
    assert time.process_time() - before < 5


SPACELESS = ("请把登录页面的按钮改成蓝色,然后重跑build-step后检查日志", "ボタンの設定ファイルはconfig.yamlです。")
QUERIES = (
    "登录",
    "登录页面",
    "蓝色",
    "ボタン",
    "設定ファイル",
    "build-step",
    "build",
    "config.yaml",
    "登*",
    "蓝色 build",
)


@pytest.mark.parametrize("query", QUERIES)
def test_words_that_are_written_without_spaces_are_found(bench, query):
    bench.keep(*[said(text, number) for number, text in enumerate(SPACELESS)])
    (shown,) = bench.find(query)
    assert shown in SPACELESS


def test_a_row_of_such_characters_is_found_only_as_a_row(bench):
    bench.keep(said(SPACELESS[0], 1))
    for query in ("页登", "录登", "红色", "uild"):
        assert bench.find(query) == []


@pytest.mark.parametrize(("text", "query"), [("서버를 다시 시작", "다시"), ("สวัสดี ครับ", "ครับ"), ("naïve café", "cafe")])
def test_other_scripts_are_found_as_before(bench, text, query):
    bench.keep(said(text, 1))
    assert bench.find(query) == [text]


def test_a_hit_says_whose_words_it_is(bench):
    result = {"type": "tool_result", "tool_use_id": "t", "content": "needle one"}
    bench.keep(
        said("x", 1, message={"role": "user", "content": [result]}),
        said("needle two, a reminder", 2, isMeta=True),
        said("needle three", 3, type="assistant", message={"role": "assistant", "content": "needle three"}),
        said("needle four", 4),
        said("<local-command-stdout>needle five</local-command-stdout>", 5),
    )
    roles = {
        word: search_session(bench.archive, "s1", f"needle {word}")[0].role
        for word in ("one", "two", "three", "four", "five")
    }
    assert roles == {"one": "tool", "two": "injected", "three": "assistant", "four": "user", "five": "injected"}


@pytest.mark.parametrize("root", [None, "u0"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_what_the_user_took_back_is_marked(bench, root, pieces):
    rows = [
        said("needle: use tabs", 1, uuid="a", parentUuid=root),
        said("needle: tabs it is", 2, uuid="b", parentUuid="a", type="assistant"),
        said("needle: use spaces", 3, uuid="c", parentUuid=root),
        said("needle: spaces it is", 4, uuid="d", parentUuid="c", type="assistant"),
    ]
    for part in (rows,) if pieces == 1 else (rows[:2], rows[2:]):
        bench.keep(*part)
        bench.find("needle")
    hits = {hit.text: hit.rewound for hit in search_session(bench.archive, "s1", "needle")}
    assert {text for text, rewound in hits.items() if rewound} == {"needle: use tabs", "needle: tabs it is"}


def test_a_clear_inside_a_file_takes_nothing_back(bench):
    bench.keep(
        said("needle: use tabs", 1, uuid="a", parentUuid=None),
        said("<command-name>/clear</command-name>", 2, uuid="b", parentUuid=None),
        said("needle: use spaces", 3, uuid="c", parentUuid=None),
        said("needle: spaces of two", 4, uuid="d", parentUuid=None),
    )
    hits = {hit.text: hit.rewound for hit in search_session(bench.archive, "s1", "needle")}
    assert {text for text, rewound in hits.items() if rewound} == {"needle: use spaces"}
