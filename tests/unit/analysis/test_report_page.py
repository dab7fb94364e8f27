"""The page without a browser: one file, nothing from elsewhere, hostile text harmless."""

import base64
import gzip
import html.parser
import json
import re
import sys

import pytest

from mala_context.analysis.report import build_report
from mala_context.analysis.report.html_text import markup
from mala_context.analysis.report.html_text import plain as harmless
from mala_context.analysis.report.model import ContextReport
from mala_context.analysis.report.page import fingerprint, library_source, page
from mala_context.analysis.report.sections import MOST_ROWS, section
from mala_context.analysis.report.svg_chart import LIGHT, MOST_PANELS, svg
from mala_context.analysis.svg import ticks
from mala_context.errors import MalaContextError
from tests.helpers.recordings import OTHER, SID, Rows, plain
from tests.helpers.report_sessions import HOSTILE, hostile_session, long_session


class Parser(html.parser.HTMLParser):
    """Collects tags, attributes and what stands in scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = hostile_session(tmp_path_factory.mktemp("hostile") / f"{SID}.jsonl")
    return build_report([path])


@pytest.fixture(scope="module")
def made(hostile):
    return "".join(page(hostile))


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_hostile_text_is_no_markup_and_no_script(made):
    parser = Parser(made)
    assert [tag for tag, _ in parser.tags].count("script") == 3
    assert not [attrs for tag, attrs in parser.tags if tag == "img" or any(name.startswith("on") for name in attrs)]
    assert "\u202e" not in made
    assert "\x1b" not in made
    assert "\u2028" not in made
    assert "\\u202e" in made


def test_the_data_hold_the_names_spelt_out_and_end_no_script(made):
    between = re.search(r'id="data">(.*?)</script>', made, re.DOTALL)[1]
    assert between.isascii()
    assert "<" not in between
    data = data_of(made)
    words = [mark["words"] for mark in data["sessions"][0]["marks"] if mark["kind"] == "big_result"]
    assert any(word.startswith(harmless(HOSTILE)[:60]) for word in words)
    assert data["sessions"][0]["subagents"][0]["agent_id"] == harmless(HOSTILE)


def test_nothing_comes_from_elsewhere_and_the_policy_forbids_it(made):
    tags = Parser(made).tags
    policy = next(attrs["content"] for tag, attrs in tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    script_rule = policy.split("script-src ")[1].split(";")[0]
    own = made.rsplit("<script>", 1)[1].split("</script>")[0]
    assert script_rule == f"'{fingerprint(own)}' '{fingerprint(library_source())}'"
    assert not [attrs for tag, attrs in tags if "src" in attrs]
    links = [attrs["href"] for _, attrs in tags if "href" in attrs]
    assert all(link.startswith(("#", "data:")) for link in links)


def test_every_chart_has_words_tables_and_a_picture_without_the_script(made):
    tags = Parser(made).tags
    for tag, attrs in tags:
        if tag == "table":
            continue
        if attrs.get("class") == "live":
            assert attrs["tabindex"] == "0"
            assert "Arrow keys" in attrs["aria-label"]
    assert [tag for tag, _ in tags].count("caption") == [tag for tag, _ in tags].count("table")
    assert {attrs.get("data-line") for _, attrs in tags} >= {"main", "agent"}
    assert {attrs.get("data-mark") for _, attrs in tags} >= {"compaction", "big_result", "warning"}


def test_a_folder_has_an_index_and_the_notes(tmp_path):
    for name in (SID, OTHER):
        plain(name).write(tmp_path / f"{name}.jsonl")
    found = build_report([str(tmp_path)])
    found.notes.append("the newest <2>")
    text = "".join(page(found))
    links = [attrs["href"] for tag, attrs in Parser(text).tags if tag == "a"]
    assert links == ["#main", "#s0", "#s1"]
    assert all(f'id="{link[1:]}"' in text for link in links)
    assert "the newest &lt;2&gt;" in text


def test_an_empty_report_is_a_page():
    assert "There is no session" in "".join(page(ContextReport([])))


def test_without_the_library_the_error_says_what_to_install(hostile, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MalaContextError, match=r"pip install 'mala-context\[report\]'"):
        next(page(hostile))


def test_a_long_session_stays_a_small_picture(tmp_path):
    found = build_report([long_session(tmp_path / f"{SID}.jsonl", 3_000)])
    (session,) = found.sessions
    assert len(session.points) == 3_000 + 2 * len(session.compactions)
    assert len(session.compactions) > 5
    picture = svg(found.sessions)
    assert len(picture) < 120_000
    assert picture.count('data-mark="compaction"') == len(session.compactions)
    assert picture.count('data-line="agent"') == 2


def test_a_picture_of_many_sessions_holds_the_first_few(hostile):
    picture = svg(hostile.sessions * (MOST_PANELS + 2))
    assert picture.count('data-line="main"') == MOST_PANELS
    assert "<script" not in picture
    assert "\u202e" not in picture


def contrast(one, other):
    def light(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_all_colours_stand_out_in_light_and_in_dark(made):
    dark = dict(re.findall(r"--(\w+):(#\w{6})", re.search(r':root\[data-theme="dark"\] \{(.*?)\}', made, re.DOTALL)[1]))
    for palette in (LIGHT, dark):
        for name, colour in palette.items():
            if name not in {"paper", "grid", "panel", "fill"}:
                assert contrast(colour, palette["paper"]) >= 4.3, (name, colour)


@pytest.mark.parametrize("top", [0, 0.5, 1, 7, 260, 216_000, 1_080_000])
def test_ticks_are_few_and_round_and_start_at_zero(top):
    found = ticks(top)
    assert found[0] == 0
    assert found[-1] <= top
    assert 1 <= len(found) <= 8


def test_markup_escapes_quotes_and_lone_surrogates():
    assert markup("\"<'&\ud800") == "&quot;&lt;&#x27;&amp;\\ud800"


def torn(tmp_path, lines):
    """A session with a compaction that has no summary, and so many lines that are no rows, each behind one that is."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    for number in range(lines):
        rows.rows += [b'{"<script>": ' + b"[" * (number % 2), {"type": "mode", "sessionId": SID}]
    rows.boundary(21_000, 900)
    rows.response("b", 15_000)
    return build_report([rows.write(tmp_path / f"{SID}.jsonl")])


@pytest.mark.parametrize(("lines", "listed", "rest"), [(0, 0, 0), (3, 3, 0), (MOST_ROWS + 5, MOST_ROWS, 5)])
def test_what_could_not_be_read_is_listed_as_far_as_it_goes(tmp_path, lines, listed, rest):
    text = "".join(page(torn(tmp_path, lines)))
    assert ("What could not be read" in text) is (lines > 0)
    assert len(re.findall(r"<li>[^<]*\.jsonl, line \d+: ", text)) == listed
    assert ("… and 5 more" in text) is (rest > 0)


def test_of_a_compaction_without_a_summary_the_page_says_that_its_loss_is_not_known(tmp_path):
    assert "<p>What its summary leaves out is not known.</p>" in "".join(page(torn(tmp_path, 0)))


def test_of_a_session_without_compactions_it_says_that_there_was_none(tmp_path):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    assert "<h3>Compactions</h3><p>None.</p>" in "".join(page(build_report([rows.write(tmp_path / f"{SID}.jsonl")])))


def test_the_whole_report_is_json(hostile):
    found = json.loads(json.dumps(hostile.as_dict()))
    assert [each["session_id"] for each in found["sessions"]] == [each.session_id for each in hostile.sessions]
    assert found["notes"] == hostile.notes


def test_of_many_sessions_each_is_packed_and_the_index_is_there_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("mala_context.analysis.report.page.MOST_OPEN", 2)
    for number in range(3):
        rows = Rows(f"{number:08x}{SID[8:]}")
        rows.prompt(f"{HOSTILE} number {number}", cwd=f"/home/dev/project-{number}")
        rows.response("a", 20_000 + number)
        rows.write(tmp_path / f"{rows.session_id}.jsonl")
    text = "".join(page(build_report([str(tmp_path)])))
    assert "<section" not in text
    assert all(f"project-{number}" in text for number in range(3))
    assert HOSTILE not in text
    packed_text = re.search(r'id="p1">([^<]+)<', text)[1]
    found = json.loads(gzip.decompress(base64.b64decode(packed_text)))
    assert 'id="s1"' in found["html"]
    assert "<script" not in found["html"]
    assert found["session"]["points"]["tokens"] == [20_001]
    assert json.loads(re.search(r'id="data">(.*?)</script>', text)[1])["sessions"] == []


def test_the_index_says_which_session_is_which(tmp_path):
    rows = plain()
    rows.rows[0] |= {"cwd": "/home/dev/web-shop"}
    rows.write(tmp_path / "a.jsonl")
    other = Rows(OTHER)
    other.prompt("Fix the <b>rounding</b>", cwd="/home/dev/api")
    other.response("x", 9_000)
    other.write(tmp_path / "b.jsonl")
    text = "".join(page(build_report([str(tmp_path)])))
    table_ = text[text.index('id="index"') : text.index("<section")]
    assert "<td>web-shop</td>" in table_
    assert "<td>api</td><td>Fix the &lt;b&gt;rounding&lt;/b&gt;</td>" in table_


def test_the_cache_has_a_panel_with_causes(tmp_path):
    rows = Rows()
    rows.prompt()
    for place, when in enumerate(("2026-05-01T10:00:00.000Z", "2026-05-01T11:11:00.000Z")):
        answer = rows.response(f"m{place}", 10, timestamp=when)
        answer["message"]["usage"] |= {"cache_creation_input_tokens": 30_000, "cache_read_input_tokens": 0}
    report = build_report([rows.write(tmp_path / "a.jsonl")])
    assert report.sessions[0].as_dict()["cache"]["rewritten"] == 30_000
    text = section(report.sessions[0], 0)
    assert "Prompt cache" in text
    assert "the cache had lapsed" in text
