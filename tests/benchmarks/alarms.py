"""How often the truth alarm is heard in recorded sessions, and whether it hears what is injected into them.

Run with `python tests/benchmarks/alarms.py PATH...`. Each request that follows another one is compared with its
projection, as in a live session. Just before, it is compared with changes: 5.1 % more or fewer than projected, and 6 %
and 10 % more or fewer than it really was; each change is at least 2,001 tokens. The first request of a resumed session
is not compared, and is counted apart. The same message in several recordings counts once.
"""

from __future__ import annotations

import sys
from functools import partial

from mala_context.analysis.audit import as_streamed
from mala_context.analysis.replay.engine import read_all
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState
from mala_context.tracking.truth_alarm import ALARM_AT, LEAST, Lookout
from mala_context.tracking.usage import Usage

CHANGES = (("projected", 0.051), ("counted", 0.06), ("counted", 0.10))
"""What a change is a share of, and the share."""
LOOK_BACK = AgentState._look_back


def alarm(model, left, parts, tokens):
    """Return the alarm of a request of this size, on the way of a live session."""
    lookout, agent, now = Lookout(ALARM_AT), AgentState(model=model), ContextState()
    now.usage, now.tokens, now.model = Usage(0, 0, tokens, 1), tokens, model
    LOOK_BACK(agent, lookout, left, parts, now)
    return lookout.found[0] if lookout.found else None


def without_text(row):
    """Return a row as the stream shows it: an attachment's text is not there, but others name it as their parent."""
    if row.get("type") != "attachment":
        return as_streamed(row)
    return {**row, "type": "progress", "data": {"hookEvent": row["attachment"].get("hookEvent")}}


class AlarmCounter(RecordingReader):
    """Compares the requests of one recording with their projections."""

    divides = True

    def __init__(self, recording, *, as_live):
        super().__init__(recording)
        self.as_live = as_live
        self.found = []
        self.apart = set()

    def line(self, line):
        """Take the next line, as the stream shows it where that is asked for."""
        super().line(line._replace(rows=[without_text(row) for row in line.rows]) if self.as_live else line)

    def look_back(self, agent, lookout, left, parts, now):
        """Try the changes, then the request as it was."""
        if "resume" in agent.noted:
            self.apart.add(now.message_id)
        elif left.tokens is not None and left.accuracy == now.accuracy == "exact":
            found = alarm(agent.model, left, parts, now.tokens)
            projected = left.interval.projected(left.tokens, left.output or 0, cut=left.cut, parts=parts)
            heard = []
            for of, share in CHANGES:
                base = projected if of == "projected" else now.tokens
                change = max(LEAST + 1, round(share * base) + 1)
                sizes = [size for size in (base + change, base - change) if size > 0]
                heard.append((sum(alarm(agent.model, left, parts, size) is not None for size in sizes), len(sizes)))
            off = 0 if found is None else found.tokens - found.projected
            self.found.append((now.message_id, off, heard))
        LOOK_BACK(agent, lookout, left, parts, now)


def one(recording, *, as_live):
    """Return what was found in one recording."""
    counter = AlarmCounter(recording, as_live=as_live)
    AgentState._look_back = lambda *given: counter.look_back(*given)  # noqa: PLW0108 - a bound method would not get the agent
    try:
        counter.run()
    finally:
        AgentState._look_back = LOOK_BACK
    return [(counter.found, counter.apart)]


def main(paths):
    """Print the figures of each path."""
    for path in paths:
        for as_live in (False, True):
            found = read_all(find([path]), partial(one, as_live=as_live))
            seen = {each[0]: each for part, _ in found for each in part}.values()
            apart = len(set().union(*(part for _, part in found)))
            off = [each for _, each, _ in seen if each]
            print(
                f"{path}, {'as live' if as_live else 'as recorded'}: {len(seen):,} requests, {len(off)} alarms ", end=""
            )
            rate = 1_000 * len(off) / max(1, len(seen))
            print(
                f"({sum(each < 0 for each in off)} of fewer tokens), {rate:.2f} in 1,000; {apart} after a resume, apart"
            )
            for place, (of, share) in enumerate(CHANGES):
                heard = sum(each[place][0] for _, _, each in seen)
                injected = sum(each[place][1] for _, _, each in seen)
                print(f"  {share:.1%} of what was {of}: {heard:,} of {injected:,} injected changes are heard", end="")
                print(f" ({heard / max(1, injected):.2%})")


if __name__ == "__main__":
    main(sys.argv[1:] or ["tests/data/recorded"])
