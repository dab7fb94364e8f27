"""The status line's figures and words, from Claude Code's JSON and from transcripts."""

import json
import pathlib
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context._util.text import printable
from mala_context.agent.claude_code.statusline import (
    FIELDS,
    check_template,
    line,
    measure,
    short,
    wants_color,
)
from mala_context.agent.claude_code.statusline.recorded import pace_and_cache, said_since_compaction
from mala_context.analysis.watch.state import TranscriptState

CASES = json.loads((pathlib.Path(__file__).parents[2] / "data/statusline/cases.json").read_text())


def response(tokens, *, sidechain=False, model="claude-sonnet-4-5", **usage):
    counts = {"input_tokens": 3, "cache_read_input_tokens": tokens - 3, "output_tokens": 1, **usage}
    return {"type": "assistant", "isSidechain": sidechain, "message": {"model": model, "usage": counts, "content": []}}


ROWS = {
    "assistant": response,
    "boundary": lambda post: {
        "type": "system",
        "subtype": "compact_boundary",
        "compactMetadata": {"trigger": "auto", "preTokens": 183_000, "postTokens": post},
    },
    "summary": lambda _: {"type": "user", "isCompactSummary": True, "message": {"content": "What was done."}},
}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def usage_of(tokens, window=200_000):
    return {"context_window": {"context_window_size": window, "current_usage": {"input_tokens": tokens}}}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_cases(case, tmp_path):
    given_ = dict(case["input"])
    if "rows" in case:
        given_["transcript_path"] = write(tmp_path / "t.jsonl", *(ROWS[kind](size) for kind, size in case["rows"]))
    gauge = measure(given_, {})
    assert gauge.source == case["source"]
    assert gauge.exact == (case["source"] in {"cli", "transcript"})
    text = line(gauge, color=False)
    assert "\n" not in text
    if case["percent"] is None:
        assert gauge.tokens is None
        assert "?" in text
    else:
        least, most = case["percent"]
        assert least <= round(gauge.ratio * 100) <= most
        assert ("~" in text) == (not gauge.exact)


@pytest.mark.parametrize(("model", "window"), [("claude-sonnet-4-5", "200k"), ("claude-newest-9", "1M?")])
def test_a_guessed_window_is_marked(model, window):
    gauge = measure({"model": {"id": model}, "context_window": {"current_usage": {"input_tokens": 50_000}}}, {})
    assert f"of {window})" in line(gauge, color=False)


@pytest.mark.parametrize("window", [10**8 + 1, 2**50 - 1, 1e11, -1, True, "200000", [], None])
def test_a_number_that_no_window_has_is_none(window):
    gauge = measure({"model": {"id": "claude-sonnet-4-5"}, **usage_of(50_000, window)}, {})
    assert (gauge.window, gauge.window_source) == (200_000, "table")


@pytest.mark.parametrize("more", [{}, {"iterations": [{"type": "message", "input_tokens": 3, "cacheRead": 9_000}]}])
def test_a_count_under_another_name_leaves_the_size_unknown(more):
    whole = {"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 90_000}
    used = {**whole, **more} if more else {"input_tokens": 3, "cached_input_tokens": 90_000}
    gauge = measure({"context_window": {"context_window_size": 200_000, "current_usage": used}}, {})
    assert (gauge.tokens, gauge.source) == (None, "none")


class TestTranscript:
    def test_what_does_not_count_is_passed_over(self, tmp_path):
        path = write(
            tmp_path / "t.jsonl",
            response(40_000),
            response(90_000, sidechain=True),
            response(9, model="<synthetic>"),
            response(3, cache_read_input_tokens=0, input_tokens=0),
            {"type": "user", "message": {"content": 'he said "assistant" and compact_boundary'}},
        )
        assert measure({"transcript_path": path}, {}).tokens == 40_000

    def test_the_last_call_of_a_response_counts(self, tmp_path):
        calls = [{"type": "message", "input_tokens": 10}, {"type": "message", "input_tokens": 30_000}]
        path = write(tmp_path / "t.jsonl", response(70_000, iterations=calls))
        assert measure({"transcript_path": path}, {}).tokens == 30_000

    @pytest.mark.parametrize("text", ["words " * 900_000, [[]] * 2_000_000], ids=["text", "values"])
    def test_a_long_line_says_what_the_others_do(self, tmp_path, text):
        long = {"type": "assistant", "message": {"content": text, "usage": {"input_tokens": 9}}}
        path = write(tmp_path / "t.jsonl", response(70_000), {**long, "isSidechain": True})
        assert measure({"transcript_path": path}, {}).tokens == 70_000

    def test_a_long_transcript_is_read_from_its_end(self, tmp_path):
        path = tmp_path / "t.jsonl"
        write(path, response(77_000))
        last = path.read_bytes()
        with path.open("wb") as file:
            file.truncate(500 << 20)  # a hole: reading all of it would show
            file.seek(0, 2)
            file.write(b"\n" + last + b"\n" + b"x" * (3 << 20))
        assert measure({"transcript_path": str(path)}, {}).tokens == 77_000

    def test_the_estimate_is_the_trackers(self, tmp_path):
        from mala_context.tracking.readers import read_row
        from mala_context.tracking.tracker import ContextTracker

        prompt, listing = "word " * 800, "skill " * 1_000
        rows = [
            {"type": "user", "sessionId": "s", "message": {"content": prompt}},
            {"type": "attachment", "sessionId": "s", "attachment": {"type": "skill_listing", "rendered": listing}},
            {**response(22_000), "sessionId": "s", "uuid": "1"},
            {**ROWS["boundary"](5_000), "sessionId": "s"},
        ]
        tracker = ContextTracker()
        for row in rows:
            for event in read_row(row):
                tracker.apply(event)
        gauge = measure({"transcript_path": write(tmp_path / "t.jsonl", *rows)}, {})
        assert gauge.source == tracker.snapshot().accuracy == "estimate"
        assert abs(gauge.tokens - tracker.snapshot().tokens) <= 0.02 * gauge.tokens

    def test_after_a_compaction_that_says_nothing_of_what_is_left_it_is_unknown(self, tmp_path):
        path = write(tmp_path / "t.jsonl", response(22_000), ROWS["boundary"](None))
        assert measure({"transcript_path": path}, {}).source == "none"
        path = write(tmp_path / "t.jsonl", ROWS["boundary"](5_000))
        assert measure({"transcript_path": path}, {}).tokens is None

    def test_an_attachment_counts_as_the_model_gets_it(self, tmp_path):
        listing = "skill " * 1_000
        inside = {"type": "attachment", "attachment": {"type": "skill_listing", "rendered": listing}}
        beside = {
            "type": "attachment",
            "attachment": {"type": "skill_listing"},
            "rendered": [{"content": listing}, {"content": 1}, "x"],
        }
        sizes = []
        for row in (inside, beside):
            odd = {"type": "progress", "note": "no user row"}
            rows = [
                {"type": "user", "message": {"content": "hello"}},
                odd,
                row,
                response(22_000),
                ROWS["boundary"](5_000),
            ]
            sizes.append(measure({"transcript_path": write(tmp_path / "t.jsonl", *rows)}, {}).tokens)
        assert sizes[0] == sizes[1]

    @pytest.mark.parametrize("content", [b"", b"\n", b"{", b"\xff\xfe", b"[]\n1\nnull\n", b'{"type":"assistant"}\n'])
    def test_nothing_in_it_is_unknown(self, tmp_path, content):
        path = tmp_path / "t.jsonl"
        path.write_bytes(content)
        assert measure({"transcript_path": str(path)}, {}).tokens is None

    @pytest.mark.parametrize("path", ["/nowhere/t.jsonl", "/", "\0", "/dev/null"])
    def test_none_to_read_is_unknown(self, path):
        assert measure({"transcript_path": path}, {}).tokens is None

    def test_words_said_before_a_compaction_are_forgotten(self, tmp_path):
        said = {"type": "attachment", "attachment": {"type": "hook_additional_context", "content": ["Mind the gap."]}}
        path = tmp_path / "t.jsonl"
        assert said_since_compaction(write(path, said, response(5)), "Mind the gap")
        assert not said_since_compaction(write(path, said, ROWS["boundary"](5), response(5)), "Mind the gap")
        assert not said_since_compaction(str(tmp_path / "none"), "Mind the gap")

    def test_images_at_the_end_are_passed_by(self, tmp_path):
        """Three user rows of 32 MB each after the last response (case people-20), and no counts from the CLI."""
        path = tmp_path / "t.jsonl"
        write(path, response(50_000))
        image = b'{"type": "user", "message": {"content": "' + b"iVBORw0KGgo" * (3 << 20) + b'"}}\n'
        with path.open("ab") as file:
            for _ in range(3):
                file.write(image)
        assert path.stat().st_size > 96 << 20
        given_ = {"transcript_path": str(path), "context_window": {"context_window_size": 200_000}}
        assert line(measure(given_, {}), color=False).endswith("25% (50k of 200k)")

    @pytest.mark.parametrize("shift", [*range(24), 4_000])
    def test_a_mark_of_a_long_row_is_seen_across_blocks(self, tmp_path, shift):
        path = tmp_path / "t.jsonl"
        long = json.dumps(response(60_000)).replace('"content"', f'"x": "{"y" * (200_000 + shift)}", "content"')
        path.write_text(json.dumps(response(70_000)) + "\n" + long + "\n")
        path.write_text(path.read_text() + json.dumps({"type": "user", "x": "z" * (65_500 - shift)}) + "\n")
        assert measure({"transcript_path": str(path)}, {}).tokens == 60_000


def turns(*sizes, start=0, **usage):
    """Rows of turns, each a prompt and responses of these sizes, a minute apart."""
    rows, clock = [], start
    for responses in sizes:
        rows.append({"type": "user", "message": {"content": "go on"}})
        for tokens in responses:
            clock += 60
            moment = datetime.fromtimestamp(clock, UTC).isoformat().replace("+00:00", "Z")
            rows.append({**response(tokens, **usage), "timestamp": moment})
            rows.append({"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t"}]}})
    return rows


class TestHistory:
    """The turns that are left, and the prompt's cache."""

    @pytest.mark.parametrize("count", [2, 3, 9, 30])
    def test_turns_left_are_those_of_watch(self, tmp_path, count):
        rows = turns(*([20_000 + 5_000 * number, 22_000 + 5_000 * number] for number in range(count)))
        path = write(tmp_path / "t.jsonl", *rows)
        state = TranscriptState()
        state.take(rows)
        pace, _ = pace_and_cache(path)
        assert pace.per_turn == state.pace.per_turn
        tokens = 22_000 + 5_000 * (count - 1)
        gauge = measure({"transcript_path": path, **usage_of(tokens)}, {}, history=True)
        assert gauge.turns == state.pace.turns_left(200_000 - tokens)
        assert line(gauge, "{turns}", color=False) == str(gauge.turns)

    @pytest.mark.parametrize("kind", ["boundary", "summary"])
    def test_turns_before_a_compaction_do_not_count(self, tmp_path, kind):
        rows = [*turns([20_000], [90_000]), ROWS[kind](5_000), *turns([30_000], [31_000], [32_000])]
        pace, _ = pace_and_cache(write(tmp_path / "t.jsonl", *rows))
        assert pace.per_turn == 1_000

    @pytest.mark.parametrize(
        ("creation", "seconds"),
        [({}, 300), ({"ephemeral_5m_input_tokens": 9}, 300), ({"ephemeral_1h_input_tokens": 9}, 3_600)],
    )
    def test_the_cache_lapses_after_the_time_that_it_was_written_for(self, tmp_path, creation, seconds):
        rows = [
            *turns([20_000], start=1_000, cache_creation=creation, cache_creation_input_tokens=0),
            *turns([21_000], start=2_000),
        ]
        _, lapses = pace_and_cache(write(tmp_path / "t.jsonl", *rows))
        assert lapses == 2_060 + seconds

    @pytest.mark.parametrize(
        ("ago", "words"), [(0, "4 min"), (65, "3 min"), (250, "<1 min"), (301, "lapsed"), (1e6, "lapsed")]
    )
    def test_the_field_of_the_cache(self, tmp_path, monkeypatch, ago, words):
        path = write(tmp_path / "t.jsonl", *turns([20_000], start=1_000))
        monkeypatch.setattr("time.time", lambda: 1_060.5 + ago)
        assert (
            line(measure({"transcript_path": path, **usage_of(1)}, {}, history=True), "{cache}", color=False) == words
        )

    def test_nothing_of_it_is_read_where_nothing_asks_for_it(self, tmp_path):
        path = write(tmp_path / "t.jsonl", *turns([20_000], [30_000], [40_000]))
        gauge = measure({"transcript_path": path, **usage_of(1)}, {})
        assert (gauge.turns, gauge.cache) == (None, None)
        assert line(gauge, "{turns} {cache}", color=False) == "? ?"

    @pytest.mark.parametrize(
        "content", ["", "x\n[]\n", '{"type": "assistant", "timestamp": 5, "message": {"usage": {"input_tokens": 4}}}']
    )
    def test_odd_transcripts(self, tmp_path, content):
        (tmp_path / "t.jsonl").write_text(content)
        pace, lapses = pace_and_cache(str(tmp_path / "t.jsonl"))
        assert (pace.per_turn, lapses) == (None, None)
        assert pace_and_cache("/nowhere")[1] is None


class TestWindow:
    @pytest.mark.parametrize(
        ("model", "window"),
        [
            ({"id": "claude-haiku-4-5-20251001"}, 200_000),
            ({"id": "claude-sonnet-4-5[1m]"}, 1_000_000),
            ({"id": "claude-sonnet-4-5", "display_name": "Sonnet 4.5 (1M context)"}, 1_000_000),
            ({}, 200_000),
        ],
    )
    def test_by_name_where_the_cli_does_not_say(self, model, window):
        assert measure({"model": model}, {}).window == window

    def test_a_context_above_the_named_window_refutes_it(self, tmp_path):
        path = write(tmp_path / "t.jsonl", response(350_000))
        assert measure({"transcript_path": path}, {}).window == 1_000_000


class TestUsable:
    def test_all_of_the_window_where_no_threshold_is_acted_on(self):
        assert measure(usage_of(100_000), {}).usable == 200_000

    @pytest.mark.parametrize(
        ("value", "usable"), [("150000", 117_000), ("150k", 117_000), ("1m", 167_000), ("x", 200_000)]
    )
    def test_by_the_variable(self, value, usable):
        assert measure(usage_of(1), {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": value}).usable == usable

    @pytest.mark.parametrize("name", ["DISABLE_AUTO_COMPACT", "DISABLE_COMPACT"])
    def test_not_where_compaction_is_off(self, name):
        env = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000", name: "1"}
        assert measure(usage_of(1), env).threshold is None

    def test_by_the_settings(self, tmp_path):
        (tmp_path / ".claude").mkdir()
        mine = tmp_path / ".claude/settings.json"
        env = {"HOME": str(tmp_path)}
        mine.write_text('{"autoCompactWindow": 150000}')
        assert measure(usage_of(1), env).usable == 117_000
        mine.write_text('{"autoCompactWindow": 150000, "autoCompactEnabled": false}')
        assert measure(usage_of(1), env).usable == 200_000
        mine.write_text('{"autoCompactWindow": broken')
        assert measure(usage_of(1), env).usable == 200_000


class TestLine:
    @pytest.mark.parametrize(
        ("tokens", "color"),
        [(98_900, "32"), (99_100, "33"), (158_900, "33"), (159_100, "31"), (160_000, "31"), (250_000, "31")],
    )
    def test_colours_at_half_and_at_four_fifths(self, tokens, color):
        text = line(measure(usage_of(tokens), {}))
        assert text.startswith(f"\x1b[{color}m")
        assert text.endswith("\x1b[0m")

    def test_the_colour_is_that_of_the_percentage_shown(self):
        for tokens in range(157_000, 161_000, 100):
            text = line(measure(usage_of(tokens), {}), "{usable_percent}")
            assert text.startswith("\x1b[31m") == ("80%" in text)

    def test_a_window_that_is_a_guess_is_marked(self):
        given_ = {"model": {"id": "glm-9-air"}, "context_window": {"current_usage": {"input_tokens": 50_000}}}
        assert line(measure(given_, {}), color=False).endswith("25% (50k of 200k?)")
        assert line(measure(usage_of(50_000), {}), color=False).endswith("25% (50k of 200k)")

    @pytest.mark.parametrize(
        ("template", "text"),
        [
            ("{percent}", "25%?"),
            ("{usable_percent} {left} {usable}", "43%? 67k? 117k?"),
            ("{threshold} {bar}", "117k? ██░░░░|░░░░?"),
            ("{turns}", "13?"),
            ("{percent} {left} of {window:>5}", "25% 67k of 200k?"),
            ("{{window}} {percent}", "{window} 25%?"),
            ("{tokens} {tokens_exact} {about}{model} {session} {source}", "50k 50,000 glm-9-air s1 cli"),
        ],
    )
    def test_a_template_marks_a_guess_at_the_window_or_at_each_figure_by_it(self, tmp_path, template, text):
        path = write(tmp_path / "t.jsonl", *turns([40_000], [45_000], [50_000]))
        used = {"context_window": {"current_usage": {"input_tokens": 50_000}}}
        given_ = {"session_id": "s1", "model": {"id": "glm-9-air"}, "transcript_path": path, **used}
        env = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}
        assert line(measure(given_, env, history=True), template, color=False) == text
        known = {**given_, **usage_of(50_000)}
        shown = line(measure(known, env, history=True), template, color=False)
        assert shown.replace("of  ", "of ") == text.replace("?", "")

    def test_each_field_that_another_window_changes_is_marked_as_a_guess(self):
        used = {"context_window": {"current_usage": {"input_tokens": 50_000}}}
        guess, known = ({"model": {"id": name}, **used} for name in ("glm-9-air", "claude-sonnet-4-5"))
        larger = measure({"model": {"id": "glm-9-air[1m]"}, **used}, {})
        for name in FIELDS.keys() - {"model"}:
            one, other, far = (
                line(each, f"{{{name}}}", color=False) for each in (measure(guess, {}), measure(known, {}), larger)
            )
            assert one == other + ("?" if other != far else "")

    def test_a_guess_marks_nothing_that_is_unknown(self):
        assert line(measure({}, {}), "{percent} {left} {turns} {threshold} {usable}", color=False) == "? ? ? - 200k?"

    def test_a_window_that_the_size_refutes_is_a_guess(self):
        used = {"context_window": {"current_usage": {"input_tokens": 250_000}}}
        gauge = measure({"model": {"id": "claude-sonnet-4-5"}, **used}, {})
        assert (gauge.window, gauge.window_source) == (1_000_000, "guess")
        assert line(gauge, "{percent}", color=False) == "25%?"

    @pytest.mark.parametrize("tokens", [50_000, 150_000, 190_000])
    def test_a_guess_has_the_colours_of_a_known_window(self, tokens):
        used = {"context_window": {"current_usage": {"input_tokens": tokens}}}
        marked = line(measure({"model": {"id": "glm-9-air"}, **used}, {}), "{percent}")
        assert marked.replace("?", "") == line(measure(usage_of(tokens), {}), "{percent}")

    def test_the_threshold(self):
        assert (
            line(measure(usage_of(1), {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"}), "{threshold}", color=False)
            == "117k"
        )
        assert line(measure(usage_of(1), {}), "{threshold}", color=False) == "-"

    def test_colours_go_by_what_is_usable(self):
        gauge = measure(usage_of(60_000), {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "150000"})
        assert line(gauge).startswith("\x1b[33m")
        assert "|" in line(gauge)

    def test_hostile_names_cannot_reach_the_terminal(self):
        given_ = {
            "model": {"display_name": "\x1b]0;title\x07\x1b[2J <script>alert(1)</script> \u202e\n"},
            **usage_of(5),
        }
        text = line(measure(given_, {}), color=False)
        assert text.isprintable()
        assert "\\x1b[2J" in text
        assert "\\u202e" in text

    @given(st.text())
    def test_it_is_one_line_whatever_the_name(self, text):
        shown = line(measure({"model": {"display_name": text}, **usage_of(5)}, {}), color=False)
        assert printable(shown) == shown

    def test_each_field_says_something(self):
        gauge = measure({"session_id": "0f8fad5b-d9cb", "model": {"id": "m"}, **usage_of(1_234)}, {})
        for name in FIELDS:
            if name != "about":
                assert line(gauge, "{" + name + "}", color=False)
        assert line(gauge, "{model}: {tokens_exact} {left} {{x}}", color=False) == "m: 1,234 199k {x}"

    def test_the_page_names_each_field(self):
        page = (pathlib.Path(__file__).parents[3] / "docs/how-to/status-line.md").read_text()
        rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `{")]
        assert re.findall(r"\{(\w+)\}", " ".join(rows)) == list(FIELDS)

    def test_json_has_every_value_under_its_name(self):
        values = measure({"session_id": "s1", **usage_of(100_000)}, {}).as_dict()
        assert (values["session_id"], values["tokens"], values["exact"]) == ("s1", 100_000, True)
        assert (values["ratio"], values["usable_ratio"]) == (0.5, 0.5)
        assert json.loads(json.dumps(values)) == values

    def test_a_line_of_another_field_lists_the_right_ones(self):
        with pytest.raises(ValueError, match=r"no field \{nope\}; the fields are model, percent"):
            line(measure({}, {}), "{nope}")

    @pytest.mark.parametrize("template", ["{nope}", "{", "{}", "{0}", "{model.x}"])
    def test_another_template_is_refused_with_the_right_names(self, template):
        with pytest.raises(ValueError, match="usable_percent"):
            check_template(template)

    @pytest.mark.parametrize(
        ("tokens", "text"),
        [
            (None, "?"),
            (0, "0"),
            (999, "999"),
            (1_000, "1k"),
            (9_940, "9.9k"),
            (183_021, "183k"),
            (999_600, "1M"),
            (1_500_000, "1.5M"),
        ],
    )
    def test_short(self, tokens, text):
        assert short(tokens) == text

    def test_colour_is_wanted_unless_somebody_says_no(self):
        assert wants_color("auto", {})
        assert not wants_color("auto", {"NO_COLOR": "1"})
        assert wants_color("always", {"NO_COLOR": "1"})
        assert not wants_color("never", {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "context_window",
                    "current_usage",
                    "input_tokens",
                    "model",
                    "id",
                    "transcript_path",
                    "iterations",
                    "type",
                ]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["context_window", "model", "session_id", "workspace", "transcript_path"]), JSON)
)
def test_any_input_gives_one_line(given_):
    text = line(measure(given_, {}))
    assert text
    assert "\n" not in text
