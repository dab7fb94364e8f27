"""Decide what to do about a context, as data: a snapshot, the thresholds and the time go in, decisions come out.

This module only decides. A shell passes each snapshot of the main agent to `Policy.decide`, carries out the decisions,
and reports how they ended (`compacted`, `action_failed`, `restarted`, `reset`, `overflowed`), which may give further
decisions. `now` is in seconds from any clock that never goes back.

Each threshold fires once when its ratio is reached, and again only after the ratio was `margin` below it. So a ratio
that swings around the threshold fires it once. `warn_at` looks at the size of the last request, the others at the
projected next request. With another estimator than the default, all look at that estimator's value. A compaction and a
restart wait for a safe point (between turns, no tool and no subagent running); a final turn does not.

An action is asked for again only after the context has dropped below the threshold by the margin; or, if the action
failed or freed too little, after the context has grown by the margin. An outcome that never comes counts as a failure
after a while. Compactions and restarts that follow one another too fast open a breaker for the rest of the run.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from mala_context._util.text import percent, window_words
from mala_context.guard.overflow import ContextOverflow
from mala_context.guard.thresholds import (
    Caution,
    Compact,
    Cooldown,
    Decision,
    Decisions,
    Finish,
    OneShotThreshold,
    Restart,
    Tell,
    Thresholds,
    Warn,
    ratio_ahead,
)

if TYPE_CHECKING:
    from mala_context.tracking.snapshot import ContextSnapshot

LEAST_FREED: Final = 0.1
"""Share of the context that a compaction has to free to count as useful."""
BREAKER_COUNT: Final = 3
"""This many useless compactions, or restarts, within `BREAKER_SECONDS` open the breaker."""
REFILL_COUNT: Final = 10
"""This many compactions that we asked for open it too, even useful ones: the context was full again each time."""
BREAKER_SECONDS: Final = 300.0
"""Seconds in which these counts open the breaker."""
OUTCOME_SECONDS: Final = 600.0
"""Time after which an action without a reported outcome counts as failed."""
CONFIRMED: Final = 0.95
"""Share of a guessed window that a request has to reach before tools are denied because of it."""
NEAR: Final = 0.1
"""Every response whose size is within this share of the window below a threshold is projected."""
NOT_QUIET: Final = range(0)
"""No size is quiet: ask `decide` about every response."""
OVERDUE_PROMPTS: Final = 2
"""This many prompts above the CLI's own threshold, without a compaction, give a WARNING."""

_NOTES: Final = {
    "warn": "Context note: about {tokens} of {window} tokens are in use. Prefer short outputs and ranged reads; "
    "write down what you must not lose.",
    "final": "Context note: about {tokens} of {window} tokens are in use. This is the final turn: save the work with "
    "the finishing tools, then give your final answer.",
}


class Policy:
    """The decisions of one run of the main agent, across its sessions.

    Attributes:
        breaker_open: no more compactions and restarts are asked for.
        restarts: how many there were.
        looks_ahead: whether a threshold is about the next request, which has to be projected for it.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        actions = (thresholds.final_at, thresholds.compact_at, thresholds.restart_at)
        self.looks_ahead = any(at is not None for at in actions)
        self.breaker_open = False
        self.restarts = 0
        self._attended = False
        self._session: str | None = None
        self._useless: deque[float] = deque(maxlen=BREAKER_COUNT)
        self._restarted: deque[float] = deque(maxlen=BREAKER_COUNT)
        self._refilled: deque[float] = deque(maxlen=REFILL_COUNT)
        self._restarts_said = self._born_full_said = False
        self.reset()

    def reset(self) -> None:
        """Arm every threshold again because the context is empty (`/clear`, a fresh session); keep the breaker."""
        rules = self.thresholds
        self._warn = OneShotThreshold(rules.warn_at, rules.margin)
        self._final = OneShotThreshold(rules.final_at, rules.margin)
        self._compact = Cooldown(rules.compact_at, rules.margin)
        self._restart = Cooldown(rules.restart_at, rules.margin)
        self._prompts_above = 0
        self._overdue_said = self._overflow_said = self._overflow_restart = False
        self._of_no_use = self._born_full = self._guess_said = False
        self._asked_since: float | None = None
        self._last: float | None = None

    @property
    def final(self) -> bool:
        """Whether only finishing tools are allowed now; a drop below `final_at` by the margin lifts it."""
        return self._final.fired

    @property
    def can_restart(self) -> bool:
        """Whether one more restart is allowed."""
        rules = self.thresholds
        return rules.restart_at is not None and self.restarts < rules.max_restarts and not self.breaker_open

    def attend(self, *, by_session: bool) -> None:
        """Set whether a session restarts by itself: then its caller gets no error about a full context."""
        self._attended = by_session

    def raises_pressure(self, ratio: float) -> bool:
        """Tell whether a ratio must raise an error in the caller: `restart_at` is reached, and no session restarts."""
        return self._restart.due(ratio) and not self._born_full and not (self._attended and self.can_restart)

    @property
    def compact_reached(self) -> bool:
        """Whether the ratio that `decide` saw last is at `compact_at` or above it."""
        return self._compact.due(self._last)

    @property
    def restart_due(self) -> bool:
        """Whether `decide` would restart at a safe point, by the last ratio; then a long turn may be cut for it."""
        return (
            not self.breaker_open
            and not self._born_full
            and self._asked_since is None
            and self.restarts < self.thresholds.max_restarts
            and self._restart.due(self._last)
            and self._restart.allowed(self._last)
        )

    def decide(
        self, snapshot: ContextSnapshot, now: float, *, safe: bool = False, new_prompt: bool = False
    ) -> Decisions:
        """Return the decisions about a snapshot, in order.

        `safe`: this is a safe point. `new_prompt`: this is the first response to a prompt.
        """
        if snapshot.session_id is not None and snapshot.session_id != self._session:
            if self._session is not None:
                self.reset()
            self._session = snapshot.session_id
        # Only one action is under way at a time. One whose outcome never comes (the CLI ended, a hook was switched off)
        # would otherwise keep every later one from being asked for.
        if self._asked_since is not None and now - self._asked_since > OUTCOME_SECONDS:
            self.action_failed()
        size = snapshot.ratio
        ahead = ratio_ahead(snapshot) if self.looks_ahead else size
        self._last = ahead
        if self._of_no_use and ahead is not None and snapshot.exact:
            # The first exact size after a useless compaction. Growth counts from here, because a compaction may even
            # add to the context.
            self._of_no_use = False
            self._compact.asked(max(ahead, self._compact.floor or 0.0))
        self._compact.track(ahead)
        self._restart.track(ahead)
        decisions: list[Decision] = []
        if self._warn.reached(size) and size is not None:
            decisions.append(Warn(size, snapshot.tokens, snapshot.window))
            self._tell("warn", snapshot, size, decisions)
        if self._unconfirmed(snapshot):
            decisions += self._no_final_turn(ahead, snapshot.window)
        elif self._final.reached(ahead) and ahead is not None:
            decisions.append(Finish(ahead))
            self._tell("final", snapshot, ahead, decisions)
        overdue = self._overdue(snapshot, new_prompt, decisions)
        if safe:
            self._act(ahead, now, decisions, overdue=overdue)
        return tuple(decisions)

    def _unconfirmed(self, snapshot: ContextSnapshot) -> bool:
        """Tell whether the window is a guess that no request has come near; false in a final turn."""
        if snapshot.window_source != "guess" or self._final.fired:
            return False
        return snapshot.tokens is None or snapshot.tokens < CONFIRMED * snapshot.window

    def _no_final_turn(self, ahead: float | None, window: int) -> Decisions:
        """Say once that `final_at` is reached, but only of a guessed window.

        150,000 of a window guessed as 200,000 denied Bash at 16 % of the real one (case core-21).
        """
        limit = self.thresholds.final_at
        if limit is None or ahead is None or ahead < limit or self._guess_said:
            return ()
        self._guess_said = True
        words = (
            f"final_at {percent(limit)} is reached, but the window of {window:,} tokens is a guess: no tool is denied"
        )
        return (Caution("guess", f"Context: {words}"),)

    def quiet(self, snapshot: ContextSnapshot) -> range:
        """Return the sizes of later requests (tokens) for which `decide` would decide nothing and change nothing.

        It need not be asked about such a response while session and window are those of `snapshot`, its last one, and
        no other event comes. This is for speed: asking cost 1.25 µs a message, and costs 0.41. Thresholds that look
        ahead are checked again in the next hook and at the turn's end, with the whole answer; until then `NEAR` leaves
        room for the answer.
        """
        pending = self._asked_since is not None or self._of_no_use or self._prompts_above or self._final.fired
        if pending or self._compact.floor is not None or self._restart.floor is not None:
            return NOT_QUIET
        if snapshot.estimator != "occupancy" or snapshot.session_id != self._session:
            return NOT_QUIET
        rules, window, warned = self.thresholds, snapshot.window, self._warn.fired
        ahead = [at - NEAR for at in (rules.final_at, rules.compact_at, rules.restart_at) if at is not None]
        if rules.warn_at is not None and not warned:
            ahead.append(rules.warn_at)
        least = round((rules.warn_at - rules.margin) * window) + 1 if rules.warn_at is not None and warned else 0
        most = min(ahead, default=1.0) * window
        if snapshot.auto_compact_threshold is not None:
            most = min(most, snapshot.auto_compact_threshold)
        return range(least, round(most) - 1)

    def born(self, tokens: int, window: int) -> Decisions:
        """Note the tokens of a fresh session before its first prompt; a WARNING, once, if they reach a threshold.

        Another restart cannot make such a session smaller (cortextos#937: three useless restarts, then an error). If
        the session after a restart reaches `restart_at` by its system prompt and tools alone, it is not restarted for
        that again. If it reaches `compact_at`, a compaction is asked for only after the context has grown by the
        margin. Before the first restart it is unknown whether one would help.
        """
        if not self.restarts:
            return ()
        ratio, rules = tokens / window if window > 0 else 0.0, self.thresholds
        reached = [name for name in ("compact_at", "restart_at") if (at := getattr(rules, name)) and ratio >= at]
        self._born_full = "restart_at" in reached
        if "compact_at" in reached:
            self._compact.asked(ratio)
        if not reached or self._born_full_said:
            return ()
        self._born_full_said = True
        limits = " and ".join(f"{name} {percent(getattr(rules, name))}" for name in reached)
        held = f"{tokens:,} of {window:,} tokens before the first prompt, which reaches {limits}"
        return (Caution("born_full", f"Context: a fresh session holds {held}: nothing is done about that"),)

    def compacted(self, before: int | None, after: int | None, now: float) -> Decisions:
        """Report a compaction, asked for or not: the tokens before and after it, `None` if unknown."""
        asked, self._asked_since = self._asked_since is not None, None
        self._prompts_above = 0
        self._overdue_said = self._overflow_said = self._overflow_restart = False
        if before is None or after is None or after <= before * (1 - LEAST_FREED):
            why = "and the context was full again each time"
            return self._tripped(self._refilled, now, "compactions", why) if asked else ()
        self._of_no_use = True
        if self._compact.floor is None:
            self._compact.asked(self._last)
        return self._tripped(self._useless, now, "compactions", "each of which freed less than a tenth")

    def action_failed(self) -> None:
        """Report that a `Compact` or `Restart` failed."""
        self._asked_since = None
        self._overflow_restart = False

    def restarted(self, now: float) -> Decisions:
        """Report that the run continues in a fresh session."""
        self.restarts += 1
        self.reset()
        return self._tripped(self._restarted, now, "restarts", "so they do not help")

    def overflowed(self, overflow: ContextOverflow) -> Decisions:
        """Report that the context ran over; one `Caution`, however many messages report it.

        With `restart_at` set, the next `decide` at a safe point restarts.
        """
        if self._overflow_said:
            return ()
        self._overflow_said = True
        self._asked_since = None
        self._overflow_restart = self.thresholds.restart_at is not None
        return (Caution("overflow", overflow.line()),)

    def _tell(self, kind: str, snapshot: ContextSnapshot, ratio: float, decisions: list[Decision]) -> None:
        if self.thresholds.tell_agent:
            used = snapshot.tokens if kind == "warn" and snapshot.tokens is not None else ratio * snapshot.window
            window = window_words(snapshot.window, snapshot.window_source)
            words = _NOTES[kind].format(tokens=_rounded(used), window=window)
            decisions.append(Tell(words))

    def _overdue(self, snapshot: ContextSnapshot, new_prompt: bool, decisions: list[Decision]) -> bool:
        """Tell whether the CLI should have compacted by now; add a `Caution` the first time."""
        threshold, tokens = snapshot.auto_compact_threshold, snapshot.tokens
        if threshold is None or tokens is None:
            return False
        if tokens < threshold:
            self._prompts_above = 0
            return False
        self._prompts_above += new_prompt
        late = self._prompts_above >= OVERDUE_PROMPTS
        if late and not self._overdue_said:
            self._overdue_said = True
            words = f"{tokens:,} tokens are above its threshold of {threshold:,} for {self._prompts_above} prompts"
            decisions.append(
                Caution("overdue", f"Context: the CLI should have compacted by itself and did not: {words}")
            )
        return late

    def _act(self, ahead: float | None, now: float, decisions: list[Decision], *, overdue: bool) -> None:
        """Restart or compact at a safe point; restart if both are due."""
        if self.breaker_open or self._asked_since is not None:
            return
        # A session that ran over takes no prompt any more, /compact included: only a fresh one helps, and thresholds,
        # margin and `born` have no say in it. `max_restarts` and the breaker do.
        rules, overflow = self.thresholds, self._overflow_restart
        if overflow or (not self._born_full and self._restart.due(ahead) and self._restart.allowed(ahead)):
            if self.restarts < rules.max_restarts:
                self._asked_since = now
                self._restart.asked(ahead)
                decisions.append(Restart(ahead, "overflow" if overflow else "threshold"))
                return
            if not self._restarts_said:
                self._restarts_said = True
                words = f"Context: no restart, {self.restarts} of {rules.max_restarts} restarts are used"
                decisions.append(Caution("restarts", words))
        due = self._compact.due(ahead)
        if (due or (overdue and rules.compact_at is not None)) and self._compact.allowed(ahead):
            self._asked_since = now
            self._compact.asked(ahead)
            decisions.append(Compact(rules.compact_focus, ahead, "threshold" if due else "overdue"))

    def _tripped(self, times: deque[float], now: float, what: str, why: str) -> Decisions:
        """Record the time; open the breaker if there were too many within `BREAKER_SECONDS`."""
        times.append(now)
        if self.breaker_open or len(times) < (times.maxlen or 0) or now - times[0] > BREAKER_SECONDS:
            return ()
        self.breaker_open = True
        took = f"{len(times)} {what} within {now - times[0]:.0f} s, {why}"
        return (Caution("breaker", f"Context: {took}; no more compactions or restarts are asked for in this session"),)


def _rounded(tokens: float) -> str:
    """Round to thousands, small counts to hundreds: equal words in the notes keep the prompt cache valid."""
    step = 1000 if tokens >= 10_000 else 100
    return f"{round(tokens / step) * step:,}"
