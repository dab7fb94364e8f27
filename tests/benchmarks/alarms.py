"""How often the truth alarm is heard in recorded sessions, and whether it hears what is injected into them.

Run with `python tests/benchmarks/alarms.py PATH...`. Each request that follows another one is compared with its
projection, as in a live session, unless its size cannot be projected: those are counted by their reason. Just before,
it is compared with sizes that nothing in the stream explains: 5 % more or fewer than projected (2,000 tokens at least,
the limit itself), and 6 % and 10 % more or fewer than it really was (2,400 and 4,000 tokens at least, as far beyond
the limit). Of the latter, the projection's own error hides some. The same message in several recordings counts once.

`--halves` shows each half of the recordings too, by the folder that a session ran in.
"""

from __future__ import annotations

import math
import re
from functools import partial
from zlib import crc32

from folders import folders

from mala_context.analysis.audit import as_streamed
from mala_context.analysis.replay.engine import read_all
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.tracking import agent_state, truth_alarm
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState
from mala_context.tracking.truth_alarm import ALARM_AT, LEAST, Lookout
from mala_context.tracking.usage import Usage

CHANGES = (("projected", ALARM_AT), ("counted", 0.06), ("counted", 0.10))
"""What a change is a share of, and the share."""
LOOK_BACK = truth_alarm.look_back
BLACKENED = re.compile(r"\?X{8}\b")
"""A secret in an address of which these recordings hold eight characters, whatever its length."""


def alarm(agent, left, parts, tokens):
    """Return the alarm of a request of this size, on the way of a live session."""
    lookout, twin, now = Lookout(ALARM_AT), AgentState(model=agent.model), ContextState()
    twin.thought, twin.forgets, twin.doubts = agent.thought, agent.forgets, agent.doubts
    now.usage, now.tokens, now.model = Usage(0, 0, tokens, 1), tokens, agent.model
    teach, ContextState.teach = ContextState.teach, lambda *_: None  # what was injected teaches the session nothing
    try:
        LOOK_BACK(twin, lookout, left, parts, now)
    finally:
        ContextState.teach = teach
    return lookout.found[0] if lookout.found else None


def without_text(row):
    """Return a row as the stream shows it: an attachment's text is not there, but others name it as their parent."""
    if row.get("type") == "attachment":
        return {**row, "type": "progress", "data": {"hookEvent": row["attachment"].get("hookEvent")}}
    return {**row, "content": ""} if row.get("subtype") == "local_command" else as_streamed(row)


class AlarmCounter(RecordingReader):
    """Compares the requests of one recording with their projections."""

    divides = True

    def __init__(self, recording, *, as_live):
        super().__init__(recording)
        self.as_live = as_live
        self.found = {}
        self.apart = {}
        self.half = None

    def line(self, line):
        """Take the next line, as the stream shows it where that is asked for."""
        for row in line.rows if self.half is None else ():
            if isinstance(row.get("cwd"), str):
                self.half = crc32(row["cwd"].encode()) % 2
        super().line(line._replace(rows=[without_text(row) for row in line.rows]) if self.as_live else line)

    def look_back(self, agent, lookout, left, parts, now):
        """Try the changes, then the request as it was."""
        if left.tokens is None:
            self.apart[now.message_id] = "no size before"
        elif left.accuracy != "exact" or now.accuracy != "exact":
            self.apart[now.message_id] = "a compaction before"
        elif "resume" in agent.noted:
            self.apart[now.message_id] = "another process before"
        elif any(BLACKENED.search(str(content)) for _, content in left.parts[:parts]):
            self.apart[now.message_id] = "text that the recording lacks"
        else:
            found = alarm(agent, left, parts, now.tokens)
            projected = alarm(agent, left, parts, 10 * (left.tokens + 10**7)).projected
            heard = []
            for of, share in CHANGES:
                base = projected if of == "projected" else now.tokens
                change = math.ceil(max(LEAST, ALARM_AT * base) * share / ALARM_AT)
                sizes = [size for size in (base + change, base - change) if size > 0]
                heard.append((sum(alarm(agent, left, parts, size) is not None for size in sizes), len(sizes)))
            off = 0 if found is None else found.tokens - found.projected
            self.found[now.message_id] = off, heard, self.half
        LOOK_BACK(agent, lookout, left, parts, now)


def one(recording, *, as_live):
    """Return what was found in one recording."""
    counter = AlarmCounter(recording, as_live=as_live)
    agent_state.look_back = counter.look_back
    try:
        counter.run()
    finally:
        agent_state.look_back = LOOK_BACK
    return [(counter.found, counter.apart)]


def show(name, compared, apart):
    """Print the figures of some requests."""
    off = [each for each, _, _ in compared if each]
    rate, fewer = 1_000 * len(off) / max(1, len(compared)), sum(each < 0 for each in off)
    print(f"{name}: {len(compared):,} requests compared, {len(off)} alarms ({fewer} of fewer tokens), ", end="")
    print(f"{rate:.2f} in 1,000")
    for place, (of, share) in enumerate(CHANGES):
        heard = sum(each[place][0] for _, each, _ in compared)
        injected = sum(each[place][1] for _, each, _ in compared)
        print(f"  {share:.0%} of what was {of}: {heard:,} of {injected:,} injected changes are heard", end="")
        print(f" ({heard / max(1, injected):.2%})")
    for reason in dict.fromkeys(apart):
        print(f"  not compared, {reason}: {apart.count(reason)}")


def main(paths, *, halves):
    """Print the figures of each path."""
    for path in paths:
        for as_live in (False, True):
            found, apart = {}, {}
            for some, others in read_all(find([path]), partial(one, as_live=as_live)):
                found |= some
                apart |= others
            name = f"{path}, {'as live' if as_live else 'as recorded'}"
            show(name, list(found.values()), sorted(each for key, each in apart.items() if key not in found))
            for half in (0, 1) if halves else ():
                show(f"{name}, half {half + 1}", [each for each in found.values() if each[2] == half], [])


if __name__ == "__main__":
    given, halves = folders(__doc__, 0, flag="--halves")
    main(given or ["tests/data/recorded"], halves=halves)
