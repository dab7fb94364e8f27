"""The guard's arithmetic, its final turn, the gate of tools and the cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.guard import (
    AUTO_CAP_TOKENS,
    DEBUG_TOPICS,
    ContextGuard,
    FinalGate,
    FinalTurnState,
    Requirement,
    TargetContextConfig,
    cap_text,
    cap_tokens,
    estimate_schema,
    estimate_tokens,
    matches_tool,
)
from mala_context.guard.context_guard import FORCED


def target(limit, provider="p", model="m"):
    return TargetContextConfig(provider=provider, model=model, window=limit + 256)


def guard_of(*limits, **kwargs):
    return ContextGuard([target(limit, model=f"m{limit}") for limit in limits], **kwargs)


class TestTargets:
    @pytest.mark.parametrize(
        "window", [0, -1, "unknown", True, 2.5, float("nan"), "200000", 100_000_001, 2**50 - 1, 10**400]
    )
    @pytest.mark.parametrize("level", ["session_window", "window", "provider_window", "buffer_tokens"])
    def test_a_level_that_is_no_positive_number_is_no_licence(self, window, level):
        with pytest.raises(ValueError, match=f"acme/large: {level} is ") as caught:
            TargetContextConfig(provider="acme", model="large", **{level: window})
        assert "wanted a positive whole number" in str(caught.value)

    def test_also_behind_a_level_that_answers(self):
        with pytest.raises(ValueError, match="provider_window"):
            TargetContextConfig(provider="p", model="m", window=1000, provider_window=0)

    @pytest.mark.parametrize(
        ("levels", "window"),
        [
            ({}, 131_072),
            ({"provider_window": 3_000}, 3_000),
            ({"provider_window": 3_000, "window": 2_000}, 2_000),
            ({"provider_window": 3_000, "window": 2_000, "session_window": 1_000}, 1_000),
            ({"provider_window": 3_000, "session_window": 1_000}, 1_000),
        ],
    )
    def test_window(self, levels, window):
        assert TargetContextConfig(provider="p", model="m", **levels).context_window == window

    @pytest.mark.parametrize(
        ("levels", "buffer"),
        [
            ({}, 256),
            ({"default_buffer_tokens": 3}, 3),
            ({"default_buffer_tokens": 3, "provider_buffer_tokens": 2}, 2),
            ({"default_buffer_tokens": 3, "provider_buffer_tokens": 2, "buffer_tokens": 1}, 1),
        ],
    )
    def test_buffer(self, levels, buffer):
        assert TargetContextConfig(provider="p", model="m", **levels).buffer == buffer

    @pytest.mark.parametrize("output", [-1, "x", None, True])
    def test_output(self, output):
        with pytest.raises(ValueError, match="max_output_tokens"):
            TargetContextConfig(provider="p", model="m", max_output_tokens=output)

    @pytest.mark.parametrize(
        ("window", "buffer", "output", "left"),
        [
            (32_768, 1, 32_767, "0"),
            (32_768, 256, 40_960, "-8,448"),
            (32_768, 256, 36_864, "-4,352"),
            (100, None, 0, "-156"),
        ],
    )
    def test_a_reserve_as_large_as_the_window_is_no_limit(self, window, buffer, output, left):
        with pytest.raises(ValueError, match=rf"p/m: window .* leaves {left} tokens for a request"):
            TargetContextConfig(provider="p", model="m", window=window, buffer_tokens=buffer, max_output_tokens=output)


class TestTokenizers:
    def test_a_model_may_have_its_own(self):
        by_words = TargetContextConfig(
            provider="p", model="words", window=5_000, tokenizer=lambda text: len(text.split())
        )
        by_characters = TargetContextConfig(provider="p", model="characters", window=5_000)
        assert ContextGuard([by_words]).count("a b c d e f g h") == 8
        assert ContextGuard([by_characters]).count("a b c d e f g h") == 4
        assert ContextGuard([by_words, by_characters]).count("a b c d e f g h") == 8
        assert ContextGuard([by_words]).estimate_schema([{"name": "Bash", "input": "a b"}]) == 5

    def test_what_blocks_a_request_is_named(self):
        one = TargetContextConfig(provider="p", model="m", window=5_000, buffer_tokens=300, max_output_tokens=700)
        (entry,) = ContextGuard([one], current=4_500).evaluate().blocked
        assert (entry.limit, entry.window, entry.buffer, entry.max_output_tokens) == (4_000, 5_000, 300, 700)


class TestEvaluation:
    @pytest.mark.parametrize(("projected", "blocked"), [(111_360, False), (111_361, True)])
    def test_equal_passes(self, projected, blocked):
        one = TargetContextConfig(provider="p", model="m", window=128_000, buffer_tokens=256, max_output_tokens=16_384)
        result = ContextGuard([one], current=projected).evaluate()
        assert one.limit == 111_360
        assert bool(result.blocked) is blocked
        assert result.final is blocked

    @pytest.mark.parametrize(
        ("projected", "big", "small"), [(15_000, "ok", "ok"), (60_000, "ok", "skip"), (150_000, "final", "final")]
    )
    def test_skip_and_final(self, projected, big, small):
        guard = ContextGuard([target(100_000, model="big"), target(20_000, model="small")], current=projected)
        assert guard.evaluate_target("p", "big") == big
        assert guard.evaluate_target("p", "small") == small
        with pytest.raises(LookupError):
            guard.evaluate_target("p", "none")

    def test_projection_is_the_sum(self):
        guard = guard_of(1000, current=100, schema=20)
        guard.add_pending(3)
        guard.add_new(4)
        assert guard.projected == 127
        assert guard.limit == 1000
        assert guard.remaining == 873
        assert guard.evaluate(1).projected == 128

    def test_a_guard_needs_targets(self):
        with pytest.raises(ValueError, match="at least one"):
            ContextGuard([])


class TestCounters:
    @pytest.mark.parametrize("tokens", [-1, True, 1.5, None])
    def test_only_grow(self, tokens):
        guard = guard_of(1000)
        for add in (guard.add_new, guard.add_pending, guard.commit if tokens is not None else guard.add_new):
            with pytest.raises(ValueError, match="whole number"):
                add(tokens)
        assert guard.projected == 0

    def test_commit_joins_or_takes_what_was_measured(self):
        guard = guard_of(1000, current=1, schema=2)
        guard.add_pending(10)
        guard.add_new(20)
        guard.commit()
        assert (guard.current, guard.pending, guard.new, guard.schema, guard.turn) == (31, 0, 0, 2, 1)
        guard.add_new(5)
        guard.commit(40)
        assert (guard.current, guard.new) == (40, 0)

    def test_reset_starts_over(self):
        guard = guard_of(10, current=50, requirements=[Requirement("report", ("Write",))])
        guard.enforce_final_turn(guard.evaluate().blocked, "turn_preflight")
        guard.final_turn.meet("report")
        guard.commit()
        assert guard.final_reason == "context"
        guard.reset(3)
        assert guard.final_reason is None
        assert guard.current == 3
        assert not guard.final_turn.ready

    @given(st.lists(st.tuples(st.sampled_from(["new", "pending"]), st.integers(0, 10_000))))
    def test_inside_a_turn_the_projection_never_falls(self, steps):
        guard = guard_of(5000, schema=7, finishing_schema=7)
        seen = [guard.projected]
        for kind, tokens in steps:
            (guard.add_new if kind == "new" else guard.add_pending)(tokens)
            guard.preflight()
            seen.append(guard.projected)
        assert seen == sorted(seen)


class TestPreflight:
    def test_a_target_that_cannot_hold_it_is_skipped_and_said(self):
        events = []
        guard = guard_of(100, 1000, on_event=events.append, current=500)
        assert [item.model for item in guard.preflight()] == ["m1000"]
        assert [event.as_dict() for event in events] == [
            {
                "event": "agent:context",
                "trigger": "turn_preflight",
                "outcome": "skipped_provider",
                "limit_tokens": 100,
                "projected_tokens": 500,
                "remaining_tokens": 0,
                "provider": "p",
                "model": "m100",
            }
        ]
        assert guard.final_reason is None

    def test_nothing_is_said_where_all_can(self):
        events = []
        guard = guard_of(100, 1000, on_event=events.append, current=50)
        assert len(guard.preflight()) == 2
        assert events == []

    def test_final_turn_shrinks_the_tools_and_goes_on_within(self):
        events = []
        guard = guard_of(1000, current=900, schema=200, finishing_schema=50, on_event=events.append)
        assert [item.model for item in guard.preflight()] == ["m1000"]
        assert guard.projected == 950
        assert guard.final_reason == "context"
        assert not guard.final_turn.still_over
        assert [event.message for event in events] == [FORCED]
        assert FORCED == "Context limit exceeded; forcing final turn."
        assert events[0].fields["projected_tokens"] == 1100
        assert events[0].fields["remaining_tokens"] == 0

    def test_still_over_is_a_warning_and_going_on(self):
        events = []
        guard = guard_of(100, 1000, 1000, current=2000, schema=20, finishing_schema=10, on_event=events.append)
        assert [item.model for item in guard.preflight()] == ["m1000", "m1000"]
        assert guard.final_turn.still_over
        assert [event.fields["outcome"] for event in events] == ["forced_final"]
        assert events[0].fields["still_over"]
        guard.preflight()
        assert len(events) == 1

    def test_the_first_reason_stays(self):
        guard = guard_of(10, current=50)
        guard.enforce_final_turn(guard.evaluate().blocked, "turn_preflight")
        assert not guard.request_final_turn("retries exhausted")
        assert guard.final_reason == "context"

    def test_may_be_forced_without_a_blocked_target(self):
        events = []
        guard = guard_of(1000, current=400, on_event=events.append)
        assert guard.enforce_final_turn((), "tool_preflight").reason == "context"
        assert events[0].fields["limit_tokens"] == 1000
        assert events[0].fields["remaining_tokens"] == 600
        assert "model" not in events[0].fields

    def test_another_first_reason_stays_too(self):
        events = []
        guard = guard_of(10, current=50, on_event=events.append)
        assert guard.request_final_turn("retries exhausted")
        guard.preflight()
        assert guard.final_reason == "retries exhausted"
        assert events == []

    def test_the_schema_stays_small_in_a_final_turn(self):
        guard = guard_of(100, current=200)
        guard.preflight()
        guard.set_schema(80, 30)
        assert guard.schema == 30


class TestWhatIsSaid:
    def test_log_fields(self):
        guard = ContextGuard(
            [TargetContextConfig(provider="p", model="m", window=200_000)], current=100_000, schema=5_000
        )
        guard.add_new(20_000)
        guard.add_pending(1_500)
        assert guard.log_fields() == {
            "ctx_tokens": 100_000,
            "new_tokens": 21_500,
            "schema_tokens": 5_000,
            "expected_tokens": 126_500,
            "context_pct": 63.2,
        }

    def test_debug_topics_all_occur(self):
        records = []
        guard = guard_of(10, current=20, on_debug=records.append)
        guard.commit()
        guard.estimate_schema([{"name": "Bash"}], finishing=[])
        guard.preflight()
        guard.log_fields()
        guard.debug_tool(ok=True)
        assert {record.name for record in records} == set(DEBUG_TOPICS)

    def test_schema_estimate(self):
        definitions = [{"name": "Bash", "input_schema": {"type": "object"}}, object()]
        assert estimate_schema(definitions[:1]) == -(-len('{"name": "Bash", "input_schema": {"type": "object"}}') // 4)
        assert estimate_schema(definitions) > estimate_schema(definitions[:1])
        assert estimate_schema([]) == 0


class TestFinalTurn:
    REPORT = Requirement("the report", ("Write",), main=True)
    META = Requirement("the report's metadata", ("SetMeta",))

    def test_not_ready_until_everything_is_there(self):
        turn = FinalTurnState((self.REPORT, self.META))
        assert turn.tools(["Write", "Edit"]) == ("Write", "Edit", "SetMeta")
        turn.meet("the report")
        assert not turn.ready
        assert turn.missing == (self.META,)
        assert turn.tools(["Write", "Edit"]) == ("SetMeta",)
        turn.meet("the report's metadata")
        assert turn.ready
        assert turn.tools(["Write", "Edit"]) == ()

    def test_while_the_report_is_missing_the_finishing_tools_stay(self):
        turn = FinalTurnState((self.REPORT, self.META))
        turn.meet("the report's metadata")
        assert turn.tools(["Edit"]) == ("Edit", "Write")

    def test_without_requirements(self):
        assert FinalTurnState().ready
        assert FinalTurnState().tools(["Write", "Write"]) == ("Write",)

    def test_unknown_requirement(self):
        with pytest.raises(LookupError):
            FinalTurnState((self.REPORT,)).meet("a poem")


class TestGate:
    TOOLS = ("Write", "Edit", "TodoWrite", "Bash(git *)")

    def test_saving_is_always_allowed_and_nobody_is_trapped(self):
        gate = FinalGate(self.TOOLS)
        asks = [
            ("Write", {"file_path": "checkpoint.md"}),
            ("Bash", {"command": "git commit -m x"}),
            *[("Bash", {"command": "curl example"})] * 4,
        ]
        answers = [gate.ask(*ask) for ask in asks]
        assert [answer.action for answer in answers] == ["allow", "allow", "deny", "deny", "deny", "stop"]
        assert "Bash(git *)" in answers[2].reason
        assert "ends here" in answers[5].reason

    def test_calls_beside_a_denied_one_are_denied_and_do_not_count(self):
        gate = FinalGate(self.TOOLS, max_denials=1)
        assert [gate.ask("Read").action, gate.ask("Read", again=True).action] == ["deny", "deny"]
        assert gate.denials == 1
        assert gate.ask("Read").action == "stop"
        assert gate.ask("Read", again=True).action == "deny"
        assert gate.ask("Write", again=True).action == "allow"

    @given(st.lists(st.sampled_from(["Bash", "Read", "WebFetch"]), min_size=4), st.lists(st.just("Write"), max_size=3))
    def test_who_asks_only_for_denied_tools_is_stopped(self, denied, allowed):
        gate = FinalGate(self.TOOLS)
        actions = [gate.ask(tool).action for tool in [*allowed, *denied]]
        assert actions[len(allowed) : len(allowed) + 3] == ["deny"] * 3
        assert set(actions[len(allowed) + 3 :]) == {"stop"}

    @pytest.mark.parametrize(
        ("rule", "tool", "tool_input", "covered"),
        [
            ("Write", "Write", {}, True),
            ("Write", "NotebookWrite", {}, False),
            ("mcp__report__*", "mcp__report__save", {}, True),
            ("Bash(git *)", "Bash", {"command": "git"}, True),
            ("Bash(git *)", "Bash", {"command": "gitk all"}, False),
            ("Bash(git:*)", "Bash", {"command": "git push"}, True),
            ("Bash(git *)", "Bash", {"command": "cd /repo && git add . && git commit -m 'a; b | c'"}, True),
            ("Bash(git *)", "Bash", {"command": "git commit -m \"$(cat <<'EOF'\nfix\n\nmore\nEOF\n)\""}, True),
            ("Bash(git *)", "Bash", {"command": "git status; curl example"}, False),
            ("Bash(git *)", "Bash", {"command": "git status\ncurl example"}, False),
            ("Bash(git *)", "Bash", {"command": "git log | curl example"}, False),
            ("Bash(git *)", "Bash", {"command": "git log > file 2>&1"}, True),
            ("Bash(git *)", "Bash", {"command": 'git commit -m "say \\"a; b\\""'}, True),
            ("Bash(git *)", "Bash", {"command": "git commit -m 'a'; curl 'b'"}, False),
            ("Bash(git *)", "Bash", {"command": "git add a\\;b"}, True),
            ("Bash(git *)", "Bash", {"command": "git $(curl example)"}, False),
            ("Bash(git *)", "Bash", {"command": "git commit -m 'unclosed"}, True),
            ("Bash(git *)", "Bash", {"command": "cd /repo"}, False),
            ("Bash(git *)", "Bash", {"command": ""}, False),
            ("Bash(git *)", "Bash", {}, False),
            ("Bash(*)", "Bash", {"command": "ls"}, True),
            ("Write(*.md)", "Write", {"file_path": "/repo/notes.md"}, True),
            ("Write(*.md)", "Write", {"file_path": "/repo/notes.py"}, False),
        ],
    )
    def test_rules(self, rule, tool, tool_input, covered):
        assert matches_tool(rule, tool, tool_input) is covered

    @given(st.text(), st.text())
    def test_any_rule_and_command(self, rule, command):
        assert matches_tool(rule, "Bash", {"command": command}) in {True, False}


class TestCap:
    @pytest.mark.parametrize(
        ("setting", "left", "cap"),
        [
            (None, 5, None),
            (300, 5, 300),
            ("auto", None, AUTO_CAP_TOKENS),
            ("auto", 80_000, 7_500),
            ("auto", 15_001, 7_500),
            ("auto", 1_001, 500),
            ("auto", 0, 0),
            ("auto", -5, 0),
        ],
    )
    def test_cap(self, setting, left, cap):
        assert cap_tokens(setting, left) == cap

    def test_one_read_does_not_jump_the_limit(self):
        cap = cap_tokens("auto", 200_000 - 120_000)
        assert cap <= 7_500
        seen = cap_text("line of text\n" * 30_000, cap, where="/archive/full.txt")
        assert estimate_tokens(seen) <= 7_500
        assert seen.startswith("line of text")
        assert seen.endswith("line of text\n")
        assert "characters left out; full text: /archive/full.txt …]" in seen
        assert seen == cap_text("line of text\n" * 30_000, cap, where="/archive/full.txt")

    def test_what_is_left_out_is_counted(self):
        text = "".join(chr(97 + number % 26) for number in range(5_000))
        head, _, rest = cap_text(text, 500).partition("\n[… ")
        left_out, _, tail = rest.partition(" characters left out …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) + int(left_out.replace(",", "")) == 5_000
        assert len(head) > len(tail)

    def test_where_the_marker_does_not_fit(self):
        assert cap_text("x" * 1000, 5) == ""
        assert "full text" not in cap_text("x" * 1000, 20, where="/" * 100)
        assert cap_text("", 0) == ""

    @given(st.text(max_size=3_000), st.integers(0, 400), st.text(max_size=50))
    def test_never_more_than_the_cap(self, text, cap, where):
        seen = cap_text(text, cap, where=where)
        assert estimate_tokens(seen) <= cap
        assert seen == text or estimate_tokens(text) > cap
        assert cap_text(seen, cap, where=where) == seen


NO_COUNTS = [float("nan"), float("inf"), -1, 3.5, True, None, "5"]


class TestNoCounts:
    """Where a number of tokens is wanted, anything else is an error, and neither a decision nor a counter changes."""

    @pytest.mark.parametrize("answer", NO_COUNTS, ids=repr)
    def test_of_a_tokenizer(self, answer):
        odd = TargetContextConfig(provider="p", model="m", window=1_256, tokenizer=lambda text: answer)
        guard = ContextGuard([target(1_000), odd])
        for ask in (lambda: guard.count("text"), lambda: guard.estimate_schema([{}])):
            with pytest.raises(ValueError, match=r"the tokenizer's answer is .*, wanted a whole number of tokens"):
                ask()
        assert (guard.projected, guard.final_reason) == (0, None)

    @pytest.mark.parametrize("extra", NO_COUNTS, ids=repr)
    def test_of_what_is_added_to_a_request(self, extra):
        guard = guard_of(1_000)
        for ask in (guard.evaluate, guard.preflight, lambda extra: guard.evaluate_target("p", "m1000", extra)):
            with pytest.raises(ValueError, match=r"extra is .*, wanted a whole number of tokens"):
                ask(extra)
        assert guard.final_reason is None


def test_a_final_turn_may_be_forced_for_a_request_that_is_no_longer_the_next_one():
    guard = guard_of(1_000, current=1_500)
    blocked = guard.evaluate().blocked
    guard.commit(1_900)
    assert guard.enforce_final_turn(blocked, "turn_preflight").still_over
    small = guard_of(1_000, current=1_500)
    blocked = small.evaluate().blocked
    small.commit(100)
    assert small.enforce_final_turn(blocked, "turn_preflight").still_over  # the request that was refused is judged


@pytest.mark.parametrize(
    "make",
    [
        lambda: FinalGate("Write"),
        lambda: FinalTurnState((Requirement("the report", "Write"),)),
        lambda: guard_of(1_000, requirements=[Requirement("the report", "Write")]),
        lambda: FinalTurnState().tools("Write"),
    ],
)
def test_one_text_is_no_list_of_tools(make):
    with pytest.raises(TypeError, match="'Write' is a text, wanted a list of tools"):
        make()
