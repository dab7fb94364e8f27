"""The fast way through a transcript: sizes from usage rows alone, text only where a number needs it.

It gives what `follow` gives, or gives up. What most transcripts are is followed here: one agent a file, rows that go
on from rows of the present context, compactions with their boundary. Anything else (a rewind, a `/clear`, several
sessions or agents in one file, rows without ids, stream-json) raises `Unusual`, and the recording is read again the
careful way. So the rules live in one place, the tracker; here stand only the conditions under which nothing special
happens.

Where the tracker remembers a context for each row, the scan remembers its number: contexts are numbered from 0, and a
response with counts begins the next one. A row whose parent is in the present context moves nothing. The text before
a boundary is read a second time, from the response that its context began with, and goes through a tracker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mala_context.analysis.replay.compiled import Places, Skim, new_places, skim
from mala_context.analysis.replay.fast_rows import (
    NeedsFullReader,
    Row,
    RowUsage,
    decode_line,
    decode_lines,
    is_clear,
    is_result,
    last_call,
    prompt_of,
    value_of,
)
from mala_context.analysis.replay.files import Recording, blocks
from mala_context.analysis.replay.interval import Position, between, count_lines, estimates
from mala_context.analysis.replay.record import AgentRecord, Best, CompactionRecord, Problems, Stretch
from mala_context.tracking.readers.parts import boundary, parse_context_text, refusal
from mala_context.tracking.readers.stream_json import error_text
from mala_context.tracking.windows import Windows

PLACES: Final = 8_192
"""Rows whose context is remembered, at least; more than the tracker remembers."""
NEAR: Final = 2_000
"""Rows that the tracker surely remembers."""
IDS: Final = 4_096
"""Responses that the tracker remembers."""
_ROOT: Final = -1
_NEWLINE: Final = 10
_UNKNOWN: Final = object()
_LINKS: Final = frozenset({"system", "progress"})
_READ: Final = frozenset({"assistant", "user", "attachment", *_LINKS})


class Scanner:
    """Scans one plain transcript; `run` once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.problems = Problems(recording.path)
        self.lines = 0
        """Lines before the present block."""
        self.offset = 0
        """Bytes before it."""
        self.block = memoryview(b"")
        self.owner: Any = _UNKNOWN
        self.named: str | None = None
        self.session_id: str | None = None
        self.started = ""
        self.ended = ""
        self.is_fork = False
        self.places: Places = new_places()
        self.older: Places = new_places()
        self.context = 0
        self.placed = 0
        """Rows that were placed before the present context."""
        self.turned = 0
        """Rows in generations of places that are gone from `places`."""
        self.seen: dict[str, str | None] = {}
        self.best = Best()
        self.current: str | None = None
        self.based: str | None = None
        self.exact: Position | None = None
        """Where the present row's line is; known where rows are taken line by line."""
        self.begun: Position | None = None
        self.since: Position | None = None
        self.model: str | None = None
        self.tokens: int | None = None
        self.peak: int | None = None
        self.responses = 0
        self.overflows = 0
        self.windows = Windows()
        self.limit = 0
        self.compactions: list[CompactionRecord] = []
        self.wants_summary = False
        self.after_boundary = False
        self.silent = False
        """Whether a response behind the boundary came without counts; the tracker then leaves its text out."""

    def run(self, buffer: bytearray | None = None) -> list[Stretch]:
        """Read the whole recording; raises `Unusual` where it has to be read the careful way."""
        for block in blocks(self.recording, self._unreadable, buffer):
            self.block = block
            self._turn()
            lines = self._whole(block) if skim is None else self._skimmed(block, skim)
            self.offset += len(block)
            self.lines += lines
        return [self._stretch()]

    def _whole(self, block: memoryview) -> int:
        """Take a block, all of its rows decoded at once; return its lines."""
        size = len(block)
        lines, short = count_lines(block, size)
        lines += block[size - 1] != _NEWLINE
        try:
            rows = decode_lines(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            rows = []
        if short or len(rows) != lines:
            for number, line in enumerate(bytes(block).split(b"\n")):
                self._line(line, number)
        else:
            self._block(rows, range(lines))
        return lines

    def _skimmed(self, block: memoryview, skim: Skim) -> int:
        """Take a block, its common rows compiled; return its lines."""
        size, end, line = len(block), -1, 0
        while True:
            start, end, line = skim(self, block, end + 1, line)
            if start == size:
                return line
            self.exact = (self.offset + start, 0)
            self._line(block[start:end], line)
            line += 1
            if end == size:
                return line

    def _line(self, line: memoryview | bytes, number: int) -> None:
        """Take a line by itself, counted from the block's first."""
        rows, problem = decode_line(line)
        if problem is not None:
            self.problems.add(self.lines + number + 1, problem)
        if rows:
            self._block(rows, [number] * len(rows))

    def _position(self, line: int) -> Position:
        """Where the present row is, which is on this line of the block."""
        return self.exact or (self.offset, line)

    @property
    def follows(self) -> bool:
        """Whether it is known whose file this is, and nothing special is under way: then common rows may be skimmed."""
        return not (self.owner is _UNKNOWN or self.named is None or self.after_boundary or self.silent)

    def _unreadable(self, words: str) -> None:
        raise NeedsFullReader(words)

    def _turn(self) -> None:
        """Begin another generation of places where there are enough; of the one before the last nothing is kept."""
        if len(self.places) > PLACES:
            self.turned += len(self.places)
            self.older, self.places = self.places, new_places()

    def _block(self, rows: list[Row], numbers: Sequence[int]) -> None:  # noqa: C901  (a call costs more than a row may)
        started, ended = self.started, self.ended
        places, older, context, owner = self.places, self.older, self.context, self.owner
        for index, row in enumerate(rows):
            moment = row.timestamp
            if moment:
                if moment > ended:
                    ended = moment
                    started = started or moment
                elif moment < started:
                    started = moment
            if row.forkedFrom is not None:
                self.is_fork = True
            uuid = row.uuid
            if not uuid:
                self._without_id(row)
                continue
            if uuid in places or (older and uuid in older):
                raise NeedsFullReader("a row that is there twice")
            parent = row.parentUuid
            place = places.get(parent)
            if place is None and older:
                place = older.get(parent)
            kind = row.type
            if kind == "assistant":
                self._assistant(row, place, index, numbers)
                owner = self.owner
                places[uuid] = context = self.context
            elif kind == "user" or kind == "attachment":
                if place != context:
                    self._elsewhere(row, place)
                if (
                    row.agentId != owner
                    or row.isCompactSummary
                    or row.sessionId is None
                    or (owner is None and row.isSidechain)
                ):
                    self._special(row)
                    owner = self.owner
                places[uuid] = context
            elif parent is not msgspec.UNSET or kind in _LINKS:
                if place != context or kind == "system" or row.session_id is not msgspec.UNSET:
                    self._link(row, place, index, numbers)
                    context, owner = self.context, self.owner
                else:
                    places[uuid] = place
            elif row.session_id is not msgspec.UNSET:
                raise NeedsFullReader("stream-json")
            elif self.named is None:
                self.named = row.sessionId or None
        self.started, self.ended = started, ended

    # -- rows that are rare, or need a look ---------------------------------------------------------------------------

    def _without_id(self, row: Row) -> None:
        if row.session_id is not msgspec.UNSET or row.type in _READ:
            raise NeedsFullReader("a row without an id, or stream-json")
        if self.named is None:
            self.named = row.sessionId or None

    def _name(self, row: Row) -> None:
        """Take the session's id from the first row that has a place: of the others not all are asked."""
        self.named = row.sessionId or None
        if self.named is None:
            raise NeedsFullReader("no session's id")

    def _special(self, row: Row) -> None:
        """Take a row that says whose file this is, or is a summary."""
        self._own(row)
        if row.isCompactSummary is True and row.type == "user":
            if not self.wants_summary:
                raise NeedsFullReader("a compaction without a boundary")
            self.wants_summary = False

    def _own(self, row: Row) -> None:
        if row.agentId is None and row.isSidechain is True:
            raise NeedsFullReader("a sidechain without a name")
        if row.session_id is not msgspec.UNSET and row.sessionId is None:
            raise NeedsFullReader("stream-json")
        if self.named is None:
            self._name(row)
        if self.owner is _UNKNOWN:
            self.owner = row.agentId
        if row.agentId != self.owner or row.agentId == "":
            raise NeedsFullReader("several agents")

    def _elsewhere(self, row: Row, place: int | None) -> None:
        """Look at a prompt, result or attachment whose parent is not in the present context."""
        if row.parentUuid is None and self.named is not None and row.sessionId != self.named:
            raise NeedsFullReader("perhaps another session's transcript behind this one")
        if self.named is None:
            self._name(row)
        if row.type == "attachment":
            return
        if place is None and (row.parentUuid is not None or self.owner is not None or not self.responses):
            return
        content = row.message.content if row.message is not None else None
        if content is None or not is_result(content):
            raise NeedsFullReader("a prompt that goes back, or begins anew")

    def _link(self, row: Row, place: int | None, index: int, numbers: Sequence[int]) -> None:
        """Take a row that no request holds."""
        if row.session_id is not msgspec.UNSET and row.sessionId is None:
            raise NeedsFullReader("stream-json")
        if self.named is None:
            self._name(row)
        parent = row.parentUuid
        if row.type == "system":
            if row.subtype == "compact_boundary":
                self._boundary(row, index, numbers)
                self.places[row.uuid] = self.context
                return
            if row.subtype == "local_command" and isinstance(row.content, str) and "Context Usage" in row.content:
                self._report(row.content)
        elif row.type == "progress" and parent is None and (self.places or self.older) and is_clear(row):
            raise NeedsFullReader("a /clear")
        if place is not None:
            self.places[row.uuid] = place
        elif parent is None and self.responses and self.owner is None:
            self.places[row.uuid] = _ROOT
        else:
            self.places[row.uuid] = self.context

    def _report(self, content: str) -> None:
        found = parse_context_text(content)
        if found is None:
            return
        if found[1]:
            main = self.owner is None or self.owner is _UNKNOWN
            self.windows.learn(self.model if main else None, found[1], "context_usage")
            self.limit = self.windows.of(self.model).tokens

    # -- responses ------------------------------------------------------------------------------------------

    def _assistant(  # noqa: C901  (likewise)
        self, row: Row, place: int | None, index: int, numbers: Sequence[int]
    ) -> None:
        message = row.message
        if row.agentId != self.owner or row.sessionId is None or (row.isSidechain and self.owner is None):
            self._own(row)
        if message is None:
            raise NeedsFullReader("a response without a message")
        if message.model == "<synthetic>" or row.isApiErrorMessage is True:
            self._error(row, place)
            return
        if row.sessionId != self.session_id:
            self._session(row)
        identity = message.id or ""
        if identity != self.current:
            if not identity:
                raise NeedsFullReader("a response without an id")
            if place != self.context and (place is not None or (row.parentUuid is None and self.responses)):
                raise NeedsFullReader("a response that goes back, or begins anew")
            known = self.seen.get(identity, _UNKNOWN)
            if known is not _UNKNOWN:
                if len(self.seen) > IDS:
                    raise NeedsFullReader("a response that the tracker may have forgotten")
                if self.since is not None:
                    raise NeedsFullReader("an earlier response's row behind a later one")
                if known is None or not row.requestId or known == row.requestId:
                    self._count(identity, message.usage)
                    return
            else:
                self.seen[identity] = row.requestId or None
            self.current = identity
            self.responses += 1
            self.begun = self._position(numbers[index])
        model = message.model
        if model and model != self.model:
            if "[" in model:
                raise NeedsFullReader("a model with a suffix")
            self.model = model
            self.limit = self.windows.of(model).tokens
        usage = message.usage
        if usage is not None:
            self._usage(identity, usage)
        else:
            self.silent = self.after_boundary

    def _usage(self, identity: str, usage: RowUsage) -> None:
        tokens = prompt_of(usage)
        if not tokens:
            self.silent = self.after_boundary
            return
        self._keep(identity, usage)
        if usage.iterations:
            tokens = last_call(usage, tokens)
        if self.based != identity:
            if self.silent:
                raise NeedsFullReader("a response without counts behind a compaction")
            self.based = identity
            self.since = self.begun
            self.context += 1
            self.placed = self.turned + len(self.places)
            self.after_boundary = False
        elif tokens == self.tokens:
            return
        self.tokens = tokens
        if self.peak is None or tokens > self.peak:
            self.peak = tokens
        if tokens > self.limit:
            self.windows.accepted(self.model, tokens)
            self.limit = self.windows.of(self.model).tokens

    def _count(self, identity: str, usage: RowUsage | None) -> None:
        """Take the counts of a copied row for the totals."""
        if usage is not None and prompt_of(usage):
            self._keep(identity, usage)

    def _keep(self, identity: str, usage: RowUsage) -> None:
        fresh, written, read = usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens
        self.best.take(identity, (fresh, written, read, usage.output_tokens))

    def _session(self, row: Row) -> None:
        if self.session_id is not None and row.sessionId:
            raise NeedsFullReader("another session")
        if row.sessionId:
            self.session_id = row.sessionId

    def _error(self, row: Row, place: int | None) -> None:
        content = row.message.content if row.message is not None else None
        found = refusal(row.errorDetails, None, None) or (
            error_text(value_of(content), None, None) if content is not None else ()
        )
        if found:
            raise NeedsFullReader("a refusal")
        if place is not None and place != self.context:
            raise NeedsFullReader("an error elsewhere")
        if row.parentUuid is None and self.responses:
            raise NeedsFullReader("an error at a root")

    # -- compactions ------------------------------------------------------------------------------------------

    def _boundary(self, row: Row, index: int, numbers: Sequence[int]) -> None:
        self._own(row)
        meta = row.compactMetadata if isinstance(row.compactMetadata, dict) else {}
        parent = row.logicalParentUuid or None
        place = None
        if parent is not None:
            place = self.places.get(parent)
            if place is None:
                place = self.older.get(parent)
            if place is not None and place != self.context:
                raise NeedsFullReader("a compaction that goes back")
            if self.turned + len(self.places) - self.placed > NEAR:
                raise NeedsFullReader("more rows than the tracker may remember")
        event = boundary(meta, None, None, uuid=row.uuid, parent=parent)
        line = numbers[index]
        if self.after_boundary or (index and numbers[index - 1] == line):
            raise NeedsFullReader("two compactions with no response between, or on a line behind another row")
        if self.owner is None:
            cli_estimate = projected = None
            if self.since is not None:
                lines = between(self.recording.path, self.since, self._position(line), self.offset, self.block)
                cli_estimate, projected = estimates(lines, self.tokens)
            self.compactions.append(
                CompactionRecord(
                    self.lines + line + 1,
                    event.trigger,
                    event.pre_tokens,
                    event.post_tokens,
                    cli_estimate,
                    projected,
                    None if parent is None else place is None,
                    row.uuid,
                )
            )
        else:
            self.compactions.append(CompactionRecord(line, None, None, None, None, None, None))
        if event.trigger == "auto" and event.pre_tokens:
            self.windows.compacted(self.model, event.pre_tokens)
            self.limit = self.windows.of(self.model).tokens
        self.context += 1
        self.placed = self.turned + len(self.places)
        self.current = self.based = None
        self.tokens = None
        self.since = None
        self.wants_summary = self.after_boundary = True

    # -- the end ------------------------------------------------------------------------------------------

    def _stretch(self) -> Stretch:
        if self.after_boundary or (self.session_id is None and self.named is None):
            raise NeedsFullReader("a compaction with nothing behind it, or no session's id")
        ids, counts, sums = self.best.arrays()
        agent = AgentRecord(
            None if self.owner is _UNKNOWN else self.owner,
            self.model,
            self.responses,
            self.tokens,
            self.peak,
            len(self.compactions),
            accuracy="unknown" if self.tokens is None else "exact",
            ids=ids,
            counts=counts,
            sums=sums,
        )
        main = agent
        if agent.agent_id is not None:
            main = AgentRecord()
        window = self.windows.of(main.model)
        main.window, main.window_source, main.window_doubtful = window
        is_main = main is agent
        return Stretch(
            self.recording.path,
            self.session_id or self.named,
            main,
            [] if is_main or not agent.responses else [agent],
            self.compactions if is_main else [],
            0,
            self.overflows,
            self.is_fork,
            self.started or None,
            self.ended or None,
            self.problems.found,
        )
