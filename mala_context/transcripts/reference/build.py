"""Choose what stays of a conversation within a budget, and build the rows.

The user's words come first and are never shortened. The rest of the budget goes, in this order, to the state; to the
assistant's text, of which the oldest is shortened first; to a line for each tool call, of which the oldest are joined
to one line for a run; and to the newest results in full. Earlier parts stay as they are while the budget allows. Then
the oldest parts lose the results that they hold in full, and after that everything but the user's words. Only if the
user's words alone are over the budget, the oldest of them become a pointer; `Replacement.pointed_at` counts these.

Everything that is not in the rows word for word is in the full text, and a pointer says where.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mala_context.transcripts.kept_rows import (
    HEADINGS,
    PLAN,
    block,
    head_of,
    last_line_of,
    part_row,
    state_row,
    users_of,
    without_results,
)
from mala_context.transcripts.loss.report import safe_tokens
from mala_context.transcripts.reference.conversation import Call, Whole, Words
from mala_context.transcripts.reference.full_text import FullText, call_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from mala_context.transcripts.reference.conversation import Conversation

BUDGET = 20_000
"""Tokens that are kept by default, or a tenth of the window where that is less."""
FOR_TEXT, FOR_LINES, FOR_RESULTS, FOR_UNREAD = 0.38, 0.035, 0.03, 0.1
"""Shares of the budget that the assistant's text, lines of tool calls and results in full may take.

Results that the model has not read yet, since nothing came after them, may take the last share.
"""
_WHOLE = 0.8
"""Share of the room for the assistant's text that whole texts may take; the beginnings of older ones take the rest."""
_LEAST_ROOM = 0.25
"""Share of the budget that a new part gets beside the user's words, whatever the earlier ones take."""
_HEAD = 200
"""Characters that stay of a text that is shortened."""
_MOST_PLAN = 12_000
_MOST_ITEMS = {"todo": 60, "command": 10, "written": 60, "read": 30}
_REST, _POINTED = "(The rest of this part: ", "(To be read: "
_POINTER = " [000000-000000]"
"""Stands for a pointer where a text is counted that gets one."""


class ReferenceLimits(NamedTuple):
    """How much may stay, in tokens."""

    budget: int = BUDGET


class Replacement(NamedTuple):
    """What takes a conversation's place."""

    rows: tuple[str | int, ...]
    """Texts of the user's rows to be, and numbers of rows that stay as they are; in order."""
    data: bytes
    """The full text; to be kept under the path that `path_of` gave for it."""
    path: str
    tokens: int
    """About what the texts take, those of rows that stay whole too."""
    characters: int
    calls: int
    """Tool calls that became a line, or part of one."""
    shortened: int
    """Texts of the assistant that were shortened or left out."""
    pointed_at: int
    """Texts of the user that are there as a pointer only; 0 as long as the budget holds them all."""

    def texts(self) -> list[str]:
        """Return the rows that are texts."""
        return [row for row in self.rows if isinstance(row, str)]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, and where the full text is, for a manifest's row."""
        names = ("tokens", "characters", "calls", "shortened", "pointed_at")
        return {"full_text": self.path or None, **{name: getattr(self, name) for name in names}}


def build(
    conversation: Conversation,
    limits: ReferenceLimits,
    *,
    path_of: Callable[[bytes], str],
    trigger: str = "auto",
    focus: str = "",
    searchable: bool = True,
    count: Callable[[str], int] = safe_tokens,
) -> Replacement:
    """Return the conversation's replacement.

    Args:
        conversation: the conversation.
        limits: how much may stay.
        path_of: returns the path under which the full text will be kept.
        trigger: `auto` if a turn is going on.
        focus: what the user asked `/compact` to keep in mind.
        searchable: whether the agent has `search_history`.
        count: counts the tokens of a text.
    """
    return _Builder(conversation, limits, count).build(path_of, trigger, focus, searchable=searchable)


class _Builder:
    def __init__(self, conversation: Conversation, limits: ReferenceLimits, count: Callable[[str], int]) -> None:
        self._conversation = conversation
        self._budget = limits.budget
        self._count = count
        self._items = conversation.items
        self._full = FullText()
        self._lines: list[str] = []
        self._fold: list[Call | Words] = []
        self._pointers: list[str] = []
        self.calls = self.shortened = self.pointed_at = 0

    def build(self, path_of: Callable[[bytes], str], trigger: str, focus: str, *, searchable: bool) -> Replacement:
        conversation, count = self._conversation, self._count
        state = self._state()
        user = self._user_words()
        own = sum(count(self._items[place].text or "") + 8 for place in user)
        before = self._before(own)
        taken = sum(count(each) for each in before if isinstance(each, str)) + own + sum(map(count, state))
        room = max(self._budget - taken, round(_LEAST_ROOM * self._budget))
        texts = self._texts(round(min(FOR_TEXT * self._budget, 0.7 * room)))
        lines, whole = self._calls(room)
        for place, item in enumerate(self._items):
            self._add(item, place in user, texts.get(place, 0), line=place in lines, whole=place in whole)
        self._close()
        data = self._full.data()
        path = path_of(data)
        part = part_row(conversation.number, conversation.calls, path, self._lines)
        kept = [item.row for item in self._items if isinstance(item, Whole)]
        end = state_row([*self._preface(searchable=searchable), *state, *_next(self._items, trigger, focus)])
        rows = (*before, *kept, part, end)
        written = [row for row in rows if isinstance(row, str)]
        return Replacement(
            rows,
            data,
            path,
            sum(map(count, written)) + sum(count(item.text) for item in self._items if isinstance(item, Whole)),
            sum(map(len, written)) + sum(len(item.text) for item in self._items if isinstance(item, Whole)),
            self.calls,
            self.shortened,
            self.pointed_at,
        )

    # -- what fits ---------------------------------------------------------------------------------------------------

    def _user_words(self) -> set[int]:
        """Return the places of the user's texts, and of the CLI's own summaries, that stay word for word.

        These are all of them. If they alone are over the budget, they are those that fit, the newest first, and at
        least one.
        """
        stay: set[int] = set()
        left = self._budget
        for place in range(len(self._items) - 1, -1, -1):
            item = self._items[place]
            if not isinstance(item, Words) or item.role == "assistant":
                continue
            size = self._count(item.text) + 8
            if size <= left or not stay:  # no `break`: shorter texts before a long one may still fit
                left -= size
                stay.add(place)
        return stay

    def _before(self, own: int) -> list[str | int]:
        """Return the rows of earlier compactions; the oldest parts are reduced as far as the budget asks for it."""
        rows = list(self._conversation.before)
        places = [place for place, row in enumerate(rows) if isinstance(row, str)]
        most = round((1 - _LEAST_ROOM) * self._budget)
        sizes = {place: self._count(str(rows[place])) for place in places}
        for reduced in (without_results, self._users_alone, self._pointer_alone):
            for place in places:
                if sum(sizes.values()) + own <= (self._budget if reduced == self._pointer_alone else most):
                    break
                rows[place] = reduced(str(rows[place]))
                sizes[place] = self._count(str(rows[place]))
        return rows

    def _users_alone(self, part: str) -> str:
        number, calls, path = head_of(part) or (0, 0, "")
        users = users_of(part)
        if users is None or last_line_of(part).startswith((_REST, _POINTED)):
            return part  # it is reduced already
        pointer = self._full.add(f"part {number}, whole", part)
        rest = f"{_REST}{pointer} of part {self._conversation.number}'s file)"
        return part_row(number, calls, path, [*(block("user", text) for text in users), rest])

    def _pointer_alone(self, part: str) -> str:
        number, calls, path = head_of(part) or (0, 0, "")
        users = users_of(part)
        if not users:
            return part  # there is nothing to gain
        self.pointed_at += len(users)
        pointer = self._full.add(f"part {number}, as it was", part)
        words = f"{_POINTED}{len(users)} messages of the user: {pointer} of part {self._conversation.number}'s file)"
        return part_row(number, calls, path, [words])

    def _texts(self, room: int) -> dict[int, int]:
        """Return how many characters stay of each text of the assistant; the newest texts stay whole.

        From the first text on that does not fit into its share, only beginnings stay, as long as there is room.
        """
        stay: dict[int, int] = {}
        for_whole, all_of = _WHOLE * room, True
        for place in range(len(self._items) - 1, -1, -1):
            item = self._items[place]
            if not isinstance(item, Words) or item.role != "assistant":
                continue
            size = self._count(item.text) + 8
            all_of = all_of and size <= for_whole
            length = len(item.text) if all_of else min(_HEAD, len(item.text))
            size = size if all_of else self._count(item.text[:length] + _POINTER) + 8
            if size > room:
                break
            stay[place] = length
            room, for_whole = room - size, for_whole - size
        return stay

    def _calls(self, room: int) -> tuple[set[int], set[int]]:
        """Return the places of the tool calls that get a line of their own, and of those whose result stays whole."""
        lines: set[int] = set()
        whole: set[int] = set()
        for_lines = round(min(FOR_LINES * self._budget, 0.2 * room))
        unread, more = self._conversation.unread, round((FOR_UNREAD - FOR_RESULTS) * self._budget)
        for_results = round(FOR_RESULTS * self._budget) + (more if unread else 0)
        for place in range(len(self._items) - 1, -1, -1):
            item = self._items[place]
            if not isinstance(item, Call):
                continue
            for_lines -= self._count(_line(item) + _POINTER)
            if for_lines < 0:
                break
            if len(lines) == unread > 0:
                for_results -= more
            lines.add(place)
            for_results -= self._count(item.text or "") + 12
            if for_results >= 0 and item.text:
                whole.add(place)
        return lines, whole

    # -- the new part ------------------------------------------------------------------------------------------------

    def _add(self, item: Words | Call | Whole, said: bool, length: int, *, line: bool, whole: bool) -> None:
        if isinstance(item, Call):
            self.calls += 1
            title = f"#{item.number} {item.tool}"
            if not line:
                self._hold(item, title, call_body(item.given, item.text, failed=item.failed))
                return
            self._close()
            pointer = self._full.add(title, call_body(item.given, item.text, failed=item.failed))
            self._lines.append(f"{_line(item)} {pointer}")
            if whole and item.text:
                self._lines.append(block("result", item.text))
        elif isinstance(item, Whole):
            self._close()
            self._lines.append("(Here the user sent a message with more than text; it stands above, whole.)")
        elif item.role == "assistant" and not length:
            self.shortened += 1
            self._hold(item, "assistant", item.text)
        elif item.role == "assistant":
            self._close()
            text = item.text
            if length < len(text):
                self.shortened += 1
                text = f"{text[:length]}… {self._full.add('assistant', text)}"
            self._lines.append(block("assistant", text))
        elif said:
            self._close()
            self._lines.append(block(item.role, item.text))
        else:
            self.pointed_at += 1
            self._hold(item, item.role, item.text)

    def _hold(self, item: Call | Words, title: str, body: str) -> None:
        """Make an item part of the run that becomes one line."""
        self._fold.append(item)
        self._pointers.append(self._full.add(title, body))

    def _close(self) -> None:
        """Write the line of the run that ends here, if there is one."""
        held, self._fold = self._fold, []
        pointers, self._pointers = self._pointers, []
        if not held:
            return
        calls = [item for item in held if isinstance(item, Call)]
        said = Counter(item.role for item in held if isinstance(item, Words))
        words = []
        if calls:
            tools = Counter(call.tool for call in calls).most_common(4)
            names = ", ".join(f"{number} {tool}" for tool, number in tools) + ", …" * (len(tools) == 4)
            failed = sum(call.failed for call in calls)
            words.append(
                f"calls #{calls[0].number} to #{calls[-1].number}: {names}" + f"; {failed} failed" * bool(failed)
            )
        words += [f"{number} messages of the {role}" for role, number in said.items()]
        first, last = pointers[0][1:].partition("-")[0], pointers[-1].rpartition("-")[2]
        self._lines.append(f"({'; '.join(words)}) [{first}-{last}")

    # -- the state ---------------------------------------------------------------------------------------------------

    def _state(self) -> list[str]:
        plan, items = self._conversation.state
        lines = [PLAN, *(f"> {line}" for line in plan[:_MOST_PLAN].split("\n"))] if plan else []
        for kind, heading in HEADINGS.items():
            found = [text for name, text in items if name == kind]
            lines += [heading, *(f"- {text[:300]}" for text in found[-_MOST_ITEMS[kind] :])] if found else []
        return lines

    def _preface(self, *, searchable: bool) -> list[str]:
        lines = [
            "This conversation was compacted without a summary. Above, the user's messages stand word for word; tool "
            "calls are lines. A pointer like [12-80] names lines of its part's file: Read that file with offset 12 and "
            "limit 69 (long lines: sed -n 12,80p) to have the call with its whole result again"
            + ("; search_history finds words in it." if searchable else ".")
        ]
        if self.pointed_at:
            lines.append(f"There was no room for {self.pointed_at} older messages of the user; read them by pointer.")
        return lines


def _next(items: Sequence[Words | Call | Whole], trigger: str, focus: str) -> Iterable[str]:
    if focus:
        yield f"The user asked that this compaction keep in mind: {focus}"
    if trigger == "auto":
        last = items[-1] if items else None
        asked = isinstance(last, Whole) or (isinstance(last, Words) and last.role == "user")
        yield "The user's last message is still to be answered." if asked else "The turn goes on where it stood."


def _line(call: Call) -> str:
    """Return a tool call in one line, without its pointer."""
    size = "no result yet" if call.text is None else f"{len(call.text):,} characters"
    return f"#{call.number} {call.tool} {call.argument} → {size}{', failed' * call.failed}"
