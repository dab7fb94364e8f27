"""`archives export --html`: a conversation to read, and nothing in it that runs."""

import html.parser
import json

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from mala_context.cli.archives.html_page import conversation_page
from tests.helpers.report_sessions import HOSTILE
from tests.helpers.small_transcripts import SID, boundary, dump, message, session, summary


class Parser(html.parser.HTMLParser):
    """Collects tags, the text outside of them, and what must be closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name.startswith("on") or name in {"src", "href"} for name, _ in attributes)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def made(*found):
    return "".join(conversation_page(SID, found))


def test_a_conversation_can_be_read():
    page = made(
        {"kind": "user", "text": "Fix it.\nPlease.", "time": "2026-11-01T12:00:00Z"},
        {"kind": "assistant", "text": "Like this:\n```python\nx = 1\ny = 2\n```\nand done."},
        {"kind": "tool", "name": "Bash", "text": '{"command": "make"}', "agent": "a1"},
        {"kind": "result", "text": "one\ntwo\nthree"},
        {"kind": "assistant", "text": "  "},
        {
            "kind": "compaction",
            "number": 1,
            "trigger": None,
            "tokens_before": 9_000,
            "tokens_after": None,
            "time": None,
        },
        {"kind": "left_out", "bytes": 2048, "text": ""},
    )
    parsed = Parser(page)
    assert parsed.open == []
    assert "<header>Prompt 2026-11-01 12:00:00</header>" in page
    assert "<summary>Code (python), 2 lines</summary><pre>x = 1\ny = 2</pre>" in page
    assert "<summary>Tool Bash of subagent a1, 1 line</summary>" in page
    assert "<summary>Result, 3 lines</summary><pre>one\ntwo\nthree</pre>" in page
    assert "Compaction 1 (trigger unknown, 9,000 → \u2013 tokens)" in page
    assert "2.0 K" in page
    assert page.count("<article") == 4


def test_it_loads_nothing_and_runs_nothing():
    page = made(
        *(
            {"kind": kind, "name": HOSTILE, "text": f"```{HOSTILE}\n{HOSTILE}", "agent": HOSTILE}
            for kind in ("user", "tool")
        )
    )
    parsed = Parser(page)
    assert not {"script", "img", "link", "a", "iframe"} & set(parsed.tags)
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "<script>" in "".join(parsed.texts)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / f"{SID}.jsonl"
    path.write_bytes(dump([*session(1), boundary(50), summary(51), message(52, "key AKIAIOSFODNN7EXAMPLE")]))
    archive = TranscriptArchive(tmp_path / "archives")
    archive.archive(path, SID, trigger="auto", agent="main")
    return archive


def run(archive, *arguments, status=0):
    result = CliRunner().invoke(app, ["archives", "export", SID, *arguments, "--dir", str(archive.location)])
    assert result.exit_code == status, (result.output, result.exception)
    return result


def test_export_as_a_page(archive, tmp_path):
    target = tmp_path / "talk.html"
    assert f"{target}: " in run(archive, str(target), "--html").stdout
    page = target.read_text()
    assert Parser(page).open == []
    assert "AKIAIOSFODNN7EXAMPLE" in page
    assert target.stat().st_mode & 0o777 == 0o600
    run(archive, str(target), "--html", status=3)  # it is never replaced
    assert target.read_text() == page
    found = json.loads(run(archive, str(tmp_path / "masked.html"), "--html", "--redact", "--json").stdout)
    assert (found["redacted"], found["bytes"]) == (1, (tmp_path / "masked.html").stat().st_size)
    assert "AKIA" not in (tmp_path / "masked.html").read_text()
