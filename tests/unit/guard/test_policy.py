"""Thresholds, the breaker, and what is asked for when: on a fake clock."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.config import ContextConfig
from mala_context.guard.overflow import ContextOverflow, overflow_of
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Caution, Compact, Finish, Restart, Tell, Thresholds, Warn, thresholds_from
from mala_context.tracking.events import Refusal, Reset, TurnEnd

WINDOW = 200_000


@dataclass
class Snap:
    tokens: int | None
    projected: int | None = None
    window: int = WINDOW
    estimator: str = "occupancy"
    estimate: int | None = None
    auto_compact_threshold: int | None = None
    session_id: str | None = "s"
    window_source: str = "table"
    exact: bool = True

    @property
    def ratio(self):
        value = self.tokens if self.estimate is None else self.estimate
        return None if value is None else value / self.window


def at(ratio, ahead=None, **kwargs):
    size = None if ratio is None else round(ratio * WINDOW)
    return Snap(size, size if ahead is None else round(ahead * WINDOW), **kwargs)


def policy_of(**kwargs):
    return Policy(Thresholds(**{"warn_at": None, "tell_agent": False, **kwargs}))


def kinds(decisions):
    return [type(decision).__name__ for decision in decisions]


class TestThresholds:
    def test_once_a_crossing_and_again_after_a_real_drop(self):
        policy = policy_of(warn_at=0.7)
        warned = []
        steps = [0.69, 0.71, 0.75, 0.69, 0.72, "compaction", 0.12, 0.71]
        for index, step in enumerate(steps):
            if step == "compaction":
                policy.compacted(144_000, 24_000, index)
            elif policy.decide(at(step), index):
                warned.append(index)
        assert warned == [1, 7]

    @pytest.mark.parametrize("ratio", [0.7, 1.0, 1.23])
    def test_at_and_above_also_above_the_window(self, ratio):
        assert policy_of(warn_at=0.7).decide(at(ratio), 0) == (Warn(ratio, round(ratio * WINDOW), WINDOW),)

    def test_warn_looks_at_tokens_and_the_others_ahead(self):
        policy = policy_of(warn_at=0.7, final_at=0.9)
        assert policy.decide(at(0.6, ahead=0.75), 0) == ()
        assert kinds(policy.decide(at(0.6, ahead=0.9), 1)) == ["Finish"]
        assert kinds(policy.decide(at(0.7, ahead=0.9), 2)) == ["Warn"]

    def test_another_estimator_goes_by_its_own_value(self):
        policy = policy_of(warn_at=0.7, final_at=0.7)
        snap = Snap(10_000, 190_000, estimator="cumulative", estimate=100_000)
        assert policy.decide(snap, 0) == ()
        snap.estimate = 140_000
        assert kinds(policy.decide(snap, 1)) == ["Warn", "Finish"]

    def test_unknown_decides_nothing_and_arms_nothing(self):
        policy = policy_of(warn_at=0.7, compact_at=0.7)
        assert kinds(policy.decide(at(0.8), 0)) == ["Warn"]
        assert policy.decide(at(None), 1, safe=True) == ()
        assert policy.decide(at(0.8), 2) == ()

    def test_a_new_session_arms_again(self):
        policy = policy_of(warn_at=0.7)
        assert policy.decide(at(0.8, session_id=None), 0)
        assert not policy.decide(at(0.8, session_id="a"), 1)
        assert not policy.decide(at(0.8, session_id=None), 2)
        assert policy.decide(at(0.8, session_id="b"), 3)

    def test_final_is_lifted_by_a_drop(self):
        policy = policy_of(final_at=0.9)
        assert policy.decide(at(0.95), 0) == (Finish(0.95),)
        assert policy.final
        policy.decide(at(0.86), 1)
        assert policy.final
        policy.decide(at(0.8), 2)
        assert not policy.final

    @given(st.lists(st.floats(0, 1.5), max_size=40))
    def test_between_two_warnings_there_was_a_drop_by_the_margin(self, ratios):
        policy = policy_of(warn_at=0.7)
        last = None
        for index, ratio in enumerate(ratios):
            if policy.decide(Snap(int(ratio * WINDOW)), index):
                assert last is None or min(ratios[last:index]) < 0.65
                last = index

    def test_reads_a_tracker_snapshot(self):
        from mala_context.tracking.tracker import ContextTracker

        assert policy_of(warn_at=0.7).decide(ContextTracker().snapshot(), 0, safe=True, new_prompt=True) == ()

    def test_from_the_configuration(self):
        assert thresholds_from(ContextConfig()) == Thresholds()
        assert thresholds_from(ContextConfig(compact_at=0.8, compact_focus="x", max_restarts=1)) == Thresholds(
            compact_at=0.8, compact_focus="x", max_restarts=1
        )


class TestNotes:
    def test_rounded_once_and_without_a_time(self):
        policy = policy_of(warn_at=0.7, final_at=0.9, tell_agent=True)
        (_, tell) = policy.decide(Snap(141_732, 150_000), 0)
        assert isinstance(tell, Tell)
        assert "about 142,000 of 200,000 tokens" in tell.text
        assert policy.decide(Snap(150_000, 160_000), 1) == ()
        (_, tell) = policy.decide(Snap(170_000, 190_000), 2)
        assert "about 190,000 of 200,000 tokens" in tell.text
        assert "final turn" in tell.text

    def test_the_words_do_not_depend_on_the_clock_or_on_small_changes(self):
        texts = {
            policy_of(warn_at=0.7, tell_agent=True).decide(Snap(size, size), now)[1].text
            for size in (141_600, 141_900, 142_400)
            for now in (0, 1e9)
        }
        assert len(texts) == 1

    def test_small_windows(self):
        text = policy_of(warn_at=0.7, tell_agent=True).decide(Snap(700, 700, window=900), 0)[1].text
        assert "700 of 900 tokens" in text

    def test_not_when_switched_off(self):
        assert kinds(policy_of(warn_at=0.7).decide(at(0.8), 0)) == ["Warn"]


class TestCompact:
    def test_waits_for_a_safe_point(self):
        policy = policy_of(compact_at=0.8, compact_focus="the plan")
        assert policy.decide(at(0.85), 0) == ()
        assert policy.decide(at(0.86), 1, safe=True) == (Compact("the plan", 0.86, "threshold"),)

    def test_is_asked_for_once_while_it_is_under_way(self):
        policy = policy_of(compact_at=0.8)
        assert policy.decide(at(0.85), 0, safe=True)
        assert policy.decide(at(0.99), 1, safe=True) == ()

    def test_again_after_it_helped(self):
        policy = policy_of(compact_at=0.8)
        policy.decide(at(0.85), 0, safe=True)
        policy.compacted(170_000, 30_000, 10)
        assert policy.decide(at(0.15), 20, safe=True) == ()
        assert kinds(policy.decide(at(0.8), 30, safe=True)) == ["Compact"]

    def test_one_that_failed_is_not_repeated_until_the_context_has_grown(self):
        policy = policy_of(compact_at=0.8)
        policy.decide(at(0.82), 0, safe=True)
        policy.action_failed()
        assert policy.decide(at(0.82), 1, safe=True) == ()
        assert policy.decide(at(0.86), 2, safe=True) == ()
        assert kinds(policy.decide(at(0.88), 3, safe=True)) == ["Compact"]

    def test_one_that_freed_too_little_is_not_repeated_either(self):
        policy = policy_of(compact_at=0.8)
        policy.decide(at(0.85), 0, safe=True)
        policy.compacted(170_000, 162_000, 10)
        assert policy.decide(at(0.81), 20, safe=True) == ()
        assert policy.decide(at(0.85), 20, safe=True) == ()
        assert kinds(policy.decide(at(0.87), 30, safe=True)) == ["Compact"]

    def test_growth_counts_from_behind_a_compaction_that_added_to_the_context(self):
        policy = policy_of(compact_at=0.5)
        policy.decide(at(0.51), 0, safe=True)
        policy.compacted(102_000, 150_000, 10)
        guess, measured = at(0.56), at(0.75)
        guess.exact = False
        assert policy.decide(guess, 20, safe=False) == ()
        assert policy.decide(measured, 30, safe=True) == ()
        assert policy.decide(at(0.79), 40, safe=True) == ()
        assert kinds(policy.decide(at(0.81), 50, safe=True)) == ["Compact"]

    def test_an_answer_that_never_comes_is_a_failure_in_the_end(self):
        policy = policy_of(compact_at=0.8)
        policy.decide(at(0.82), 0, safe=True)
        assert policy.decide(at(0.95), 600, safe=True) == ()
        assert kinds(policy.decide(at(0.95), 601, safe=True)) == ["Compact"]

    def test_nothing_without_compact_at(self):
        assert policy_of().decide(at(1.2), 0, safe=True) == ()


class TestOverdue:
    def prompts(self, policy, sizes, **kwargs):
        return [
            policy.decide(Snap(size, size, auto_compact_threshold=167_000), number, new_prompt=True, **kwargs)
            for number, size in enumerate(sizes)
        ]

    def test_said_after_two_prompts(self):
        answers = self.prompts(policy_of(), [168_000, 175_000, 190_000])
        assert [kinds(answer) for answer in answers] == [[], ["Caution"], []]
        assert answers[1][0].kind == "overdue"
        assert "175,000 tokens are above its threshold of 167,000" in answers[1][0].message

    def test_asks_at_the_next_safe_point(self):
        policy = policy_of(compact_at=0.99)
        self.prompts(policy, [168_000, 175_000])
        snap = Snap(176_000, 176_000, auto_compact_threshold=167_000)
        assert policy.decide(snap, 5, safe=True) == (Compact(None, 0.88, "overdue"),)
        policy.action_failed()
        assert policy.decide(snap, 6, safe=True) == ()

    def test_many_responses_of_one_prompt_are_one(self):
        policy = policy_of()
        snap = Snap(170_000, 170_000, auto_compact_threshold=167_000)
        policy.decide(snap, 0, new_prompt=True)
        assert [policy.decide(snap, number) for number in range(1, 9)] == [()] * 8

    def test_a_compaction_between_counts_anew(self):
        policy = policy_of()
        self.prompts(policy, [168_000])
        policy.compacted(168_000, 20_000, 1)
        assert [kinds(answer) for answer in self.prompts(policy, [168_000, 169_000])] == [[], ["Caution"]]

    def test_below_the_threshold_counts_anew(self):
        assert self.prompts(policy_of(), [168_000, 100_000, 168_000]) == [(), (), ()]

    def test_not_where_the_cli_is_not_proactive(self):
        policy = policy_of()
        assert [policy.decide(at(0.99), number, new_prompt=True) for number in range(5)] == [()] * 5


class TestRestart:
    def test_waits_for_a_safe_point_and_goes_before_a_compaction(self):
        policy = policy_of(compact_at=0.8, restart_at=0.9)
        assert policy.decide(at(0.95), 0) == ()
        assert policy.decide(at(0.95), 1, safe=True) == (Restart(0.95, "threshold"),)
        assert policy.decide(at(0.96), 2, safe=True) == ()
        assert policy.restarted(3) == ()
        assert policy.decide(at(0.1, session_id="t"), 4, safe=True) == ()
        assert policy.restarts == 1

    def test_whether_one_is_due_is_known_before_a_safe_point(self):
        policy = policy_of(restart_at=0.9, max_restarts=1)
        assert not policy.restart_due
        policy.decide(at(0.89), 0)
        assert not policy.restart_due
        policy.decide(at(0.91), 1)
        assert policy.restart_due
        policy.decide(at(0.91), 2, safe=True)
        assert not policy.restart_due  # it is under way
        policy.restarted(3)
        policy.decide(at(0.95), 4)
        assert not policy.restart_due  # none is left
        assert not policy_of().restart_due

    def test_at_most_max_restarts_said_once(self):
        policy = policy_of(restart_at=0.9, max_restarts=1)
        policy.decide(at(0.95), 0, safe=True)
        policy.restarted(1000)
        answers = [policy.decide(at(0.95), 2000 + step, safe=True) for step in range(3)]
        assert [kinds(answer) for answer in answers] == [["Caution"], [], []]
        assert answers[0][0].message == "Context: no restart, 1 of 1 restarts are used"

    def test_without_restarts_left_it_compacts(self):
        policy = policy_of(compact_at=0.8, restart_at=0.9, max_restarts=0)
        assert kinds(policy.decide(at(0.95), 0, safe=True)) == ["Caution", "Compact"]

    def test_one_that_failed_is_not_repeated_at_once(self):
        policy = policy_of(restart_at=0.9)
        policy.decide(at(0.92), 0, safe=True)
        policy.action_failed()
        assert policy.decide(at(0.93), 1, safe=True) == ()
        assert kinds(policy.decide(at(0.98), 2, safe=True)) == ["Restart"]

    def test_final_does_not_wait(self):
        policy = policy_of(restart_at=0.9, final_at=0.95)
        assert kinds(policy.decide(at(0.96), 0)) == ["Finish"]
        assert kinds(policy.decide(at(0.96), 0, safe=True)) == ["Restart"]


class TestBreaker:
    def thrash(self, times, freed=0.05):
        policy = policy_of(compact_at=0.8, restart_at=0.9)
        said = [policy.compacted(100_000, round(100_000 * (1 - freed)), time) for time in times]
        return policy, said

    def test_opens_after_the_third_with_one_warning(self):
        policy = policy_of(compact_at=0.8, restart_at=0.9)
        said = [
            *policy.compacted(100_000, 95_000, 0),
            *policy.compacted(100_000, 96_000, 70),
        ]
        assert not policy.breaker_open
        said += policy.compacted(100_000, 94_000, 130)
        said += policy.compacted(100_000, 94_000, 140)
        assert policy.breaker_open
        (caution,) = said
        assert caution.kind == "breaker"
        assert caution.message.startswith("Context: 3 compactions within 130 s, each of which freed less than a tenth;")
        assert policy.decide(at(0.99), 200, safe=True) == ()

    @pytest.mark.parametrize(
        ("times", "freed", "is_open"),
        [
            ((0, 150, 300), 0.05, True),
            ((0, 150, 301), 0.05, False),
            ((0, 400, 500, 600), 0.05, True),
            ((0, 70, 130), 0.1, False),
            ((0, 70, 130), -0.5, True),
        ],
    )
    def test_only_useless_ones_that_follow_fast(self, times, freed, is_open):
        assert self.thrash(times, freed)[0].breaker_open is is_open

    @pytest.mark.parametrize(
        ("every", "count", "is_open"), [(5, 50, True), (33, 10, True), (34, 100, False), (5, 9, False)]
    )
    @pytest.mark.parametrize("sizes", [(100_000, 9_000), (None, None)])
    def test_useful_ones_that_are_asked_for_again_and_again(self, every, count, is_open, sizes):
        """Each frees nine tenths, and the context is full again within seconds: it was 50 times in 250 s."""
        policy, asked, said = policy_of(compact_at=0.8), 0, ()
        for time in range(0, every * count, every):
            asked += "Compact" in kinds(policy.decide(at(0.85), time, safe=True))
            said += policy.compacted(*sizes, time + 1)
            policy.decide(at(0.1), time + 2)
        assert policy.breaker_open is is_open
        assert asked == (10 if is_open else count)
        assert len(said) == is_open
        assert all("10 compactions within" in each.message and "full again" in each.message for each in said)

    def test_fast_ones_of_the_clis_own_are_not_ours_to_stop(self):
        policy = policy_of(compact_at=0.8)
        assert [policy.compacted(100_000, 9_000, time) for time in range(50)] == [()] * 50

    def test_unknown_sizes_do_not_count(self):
        policy = policy_of()
        for time in range(5):
            assert policy.compacted(None, 5, time) == policy.compacted(5, None, time) == ()
        assert not policy.breaker_open

    def test_three_fast_restarts(self):
        policy = policy_of(restart_at=0.9, max_restarts=100)
        said = [policy.restarted(time) for time in (0, 100, 200, 210)]
        assert [kinds(item) for item in said] == [[], [], ["Caution"], []]
        assert policy.decide(at(0.99), 300, safe=True) == ()

    def test_slow_restarts_go_on(self):
        policy = policy_of(restart_at=0.9, max_restarts=100)
        assert [policy.restarted(time) for time in range(0, 2000, 200)] == [()] * 10

    def test_stays_open_in_a_fresh_session_and_warnings_go_on(self):
        policy = policy_of(warn_at=0.7, compact_at=0.8)
        for time in range(3):
            policy.compacted(100, 99, time)
        assert kinds(policy.decide(at(0.99, session_id="new"), 9, safe=True)) == ["Warn"]


class TestOverflow:
    def test_said_once_however_many_report_it(self):
        policy = policy_of()
        (caution,) = policy.overflowed(ContextOverflow("refusal", 201_000, 200_000, "s"))
        assert caution == Caution(
            "overflow",
            "Context: the window is full, the request was refused at 201,000 tokens (the model takes 200,000)",
        )
        assert policy.overflowed(ContextOverflow("terminal_reason")) == ()
        assert policy.decide(at(0.99), 0, safe=True) == ()

    def test_again_after_a_compaction(self):
        policy = policy_of()
        policy.overflowed(ContextOverflow("text"))
        policy.compacted(200_000, 20_000, 1)
        assert policy.overflowed(ContextOverflow("text"))

    def test_restarts_where_restart_at_is_set(self):
        policy = policy_of(restart_at=0.99)
        policy.overflowed(ContextOverflow("text"))
        assert policy.decide(at(0.5), 0) == ()
        assert policy.decide(at(0.5), 1, safe=True) == (Restart(0.5, "overflow"),)
        assert policy.restarted(2) == ()
        assert policy.decide(at(0.1, session_id="t"), 3, safe=True) == ()

    def test_also_where_the_size_is_unknown(self):
        policy = policy_of(restart_at=0.99)
        policy.overflowed(ContextOverflow("text"))
        assert policy.decide(at(None), 1, safe=True) == (Restart(None, "overflow"),)

    @pytest.mark.parametrize(
        ("text", "tokens", "maximum"),
        [
            ("prompt is too long: 15093 tokens > 14000 maximum", 15093, 14000),
            ("Prompt is too long", None, None),
            ("API Error: 400 prompt is too long: 208,310 tokens > 200,000 maximum", 208310, 200000),
            ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease", 188240, 200000),
            (
                "This model's maximum context length is 8192 tokens. However, your messages resulted in 8203 tokens.",
                8203,
                8192,
            ),
            ("maximum context length is 8192 tokens", None, 8192),
            ("{'code': 'context_length_exceeded'}", None, None),
            ("the request exceeds the model's context window", None, None),
            ("prompt is too long: ,,, tokens > ___ maximum", None, None),
        ],
    )
    def test_words(self, text, tokens, maximum):
        end = TurnEnd("s", None, is_error=True, result=text)
        assert overflow_of(end) == ContextOverflow("text", tokens, maximum, "s")
        assert overflow_of(end._replace(is_error=False)) is None

    @pytest.mark.parametrize("text", ["", "done", "rate limit exceeded", None, "x" * 5000 + "prompt is too long"])
    def test_other_words(self, text):
        assert overflow_of(TurnEnd("s", None, is_error=True, result=text)) is None

    def test_a_result_that_looks_like_success(self):
        end = TurnEnd("s", None, subtype="success", is_error=True, terminal_reason="prompt_too_long")
        assert overflow_of(end) == ContextOverflow("terminal_reason", session_id="s")
        assert overflow_of(TurnEnd("s", None, terminal_reason="completed")) is None
        assert overflow_of(Refusal(None, "s", 15_093, 14_000)) == ContextOverflow("refusal", 15_093, 14_000, "s")
        assert overflow_of(Reset("s")) is None

    def test_both_are_one_with_the_numbers_kept(self):
        text = "prompt is too long: 5 tokens > 4 maximum"
        end = TurnEnd("s", None, is_error=True, terminal_reason="prompt_too_long", result=text)
        assert overflow_of(end) == ContextOverflow("terminal_reason", 5, 4, "s")

    @given(st.text(), st.text())
    def test_never_raises(self, reason, text):
        end = TurnEnd("s", None, is_error=True, terminal_reason=reason, result=text)
        assert overflow_of(end) is None or "context" in text.lower() or "long" in text


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "safe", "compacted", "useless", "failed", "restarted", "overflow", "clear"]),
        st.floats(0, 1.3),
        st.floats(0, 400),
    ),
    max_size=60,
)


class TestAnyRun:
    @given(ACTS)
    def test_no_action_is_asked_for_twice_at_once_or_behind_the_breaker(self, acts):
        policy = policy_of(warn_at=0.5, compact_at=0.6, restart_at=0.8, final_at=0.9, max_restarts=4)
        now, session, asked = 0.0, 0, False
        for kind, ratio, seconds in acts:
            now += seconds
            if kind in {"decide", "safe"}:
                before = policy.breaker_open
                answer = policy.decide(at(ratio, session_id=str(session)), now, safe=kind == "safe")
                actions = [item for item in answer if isinstance(item, Compact | Restart)]
                assert len(actions) <= 1
                assert not (actions and (before or kind == "decide"))
                asked = bool(actions) or asked
            elif kind == "compacted":
                policy.compacted(1000, 100, now)
            elif kind == "useless":
                policy.compacted(1000, 950, now)
            elif kind == "failed":
                policy.action_failed()
            elif kind == "overflow":
                policy.overflowed(ContextOverflow("text"))
            else:
                session += 1
                if kind == "restarted":
                    policy.restarted(now)
        assert policy.restarts == sum(kind == "restarted" for kind, _, _ in acts)

    @given(st.lists(st.floats(0, 1.3), min_size=1, max_size=60), st.booleans())
    def test_a_run_of_useless_compactions_ends(self, ratios, fails):
        """Whatever the sizes do: an action is asked for only after growth, and each useless one is counted."""
        policy = policy_of(compact_at=0.5)
        asked = 0
        for index, ratio in enumerate([*ratios, *[0.99] * 50]):
            for decision in policy.decide(at(ratio), index, safe=True):
                asked += isinstance(decision, Compact)
                if fails:
                    policy.action_failed()
                else:
                    policy.compacted(1000, 990, index)
        assert asked <= (len(ratios) + 1 if fails else 3)


class TestBornFull:
    """A fresh session that reaches a threshold by itself (case guard-13)."""

    def test_the_first_restart_is_tried(self):
        policy = policy_of(restart_at=0.7)
        policy.decide(at(0.7674), 0.0)
        assert policy.born(19_185, 25_000) == ()
        assert kinds(policy.decide(at(0.7674), 1.0, safe=True)) == ["Restart"]

    def test_the_fresh_session_is_not_restarted_for_that_and_it_is_said_once(self):
        policy = policy_of(restart_at=0.7)
        policy.restarted(0.0)
        policy.decide(at(0.7674), 0.0)
        (caution,) = policy.born(19_185, 25_000)
        assert caution == Caution(
            "born_full",
            "Context: a fresh session holds 19,185 of 25,000 tokens before the first prompt, which reaches "
            "restart_at 70.0%: nothing is done about that",
        )
        assert policy.born(19_185, 25_000) == ()
        for ratio in (0.77, 0.85, 0.99):
            assert policy.decide(at(ratio), 1.0, safe=True) == ()
            assert not policy.restart_due
            assert not policy.raises_pressure(ratio)

    def test_an_overflow_restarts_it_all_the_same(self):
        policy = policy_of(restart_at=0.7)
        policy.restarted(0.0)
        policy.decide(at(0.7674), 0.0)
        policy.born(19_185, 25_000)
        policy.overflowed(ContextOverflow("refusal"))
        assert kinds(policy.decide(at(0.9), 1.0, safe=True)) == ["Restart"]

    def test_one_that_has_grown_restarts_as_ever(self):
        policy = policy_of(restart_at=0.7)
        policy.restarted(0.0)
        policy.decide(at(0.3), 0.0)
        assert policy.born(60_000, 200_000) == ()
        assert policy.raises_pressure(0.75)
        assert kinds(policy.decide(at(0.75), 1.0, safe=True)) == ["Restart"]

    def test_a_compaction_is_asked_for_once_it_has_grown(self):
        policy = policy_of(compact_at=0.7, restart_at=0.99)
        policy.restarted(0.0)
        policy.decide(at(0.76), 0.0)
        (caution,) = policy.born(152_000, 200_000)
        assert "compact_at 70.0%" in caution.message
        assert policy.decide(at(0.78), 1.0, safe=True) == ()
        assert kinds(policy.decide(at(0.82), 2.0, safe=True)) == ["Compact"]

    def test_the_next_session_is_looked_at_again(self):
        policy = policy_of(restart_at=0.7)
        policy.restarted(0.0)
        policy.decide(at(0.7674), 0.0)
        policy.born(19_185, 25_000)
        policy.decide(at(0.2, session_id="other"), 1.0)
        assert kinds(policy.decide(at(0.8, session_id="other"), 2.0, safe=True)) == ["Restart"]


class TestGuessedWindow:
    """No tool is denied because of a window that is only a guess (case core-21)."""

    def test_a_final_turn_waits_until_a_request_confirms_the_guess(self):
        policy = Policy(Thresholds(warn_at=None, final_at=0.7))
        first = policy.decide(Snap(75_000, projected=80_000, window=100_000, window_source="guess"), 0.0)
        assert [type(each) for each in first] == [Caution]
        assert "100,000 tokens is a guess: no tool is denied" in first[0].message
        assert policy.decide(Snap(90_000, projected=94_000, window=100_000, window_source="guess"), 1.0) == ()
        assert not policy.final
        last = policy.decide(Snap(95_500, projected=96_000, window=100_000, window_source="guess"), 2.0)
        assert Finish in {type(each) for each in last}
        assert policy.final

    def test_a_window_that_is_known_later_is_acted_on_at_once(self):
        policy = Policy(Thresholds(warn_at=None, final_at=0.7))
        policy.decide(Snap(75_000, projected=80_000, window=100_000, window_source="guess"), 0.0)
        told = policy.decide(Snap(75_000, projected=80_000, window=100_000, window_source="context_usage"), 1.0)
        assert Finish in {type(each) for each in told}

    def test_below_the_threshold_a_guess_is_no_news(self):
        policy = Policy(Thresholds(warn_at=None, final_at=0.7))
        assert policy.decide(Snap(10_000, projected=11_000, window=100_000, window_source="guess"), 0.0) == ()
