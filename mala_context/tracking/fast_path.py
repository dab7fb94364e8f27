"""Fast path for the common SDK messages.

Later blocks of a response, the first block of the next one, and tool results are applied directly to the main agent's
state. Everything else takes the careful path: reader → event → reducer. A response also takes the careful path if an
observer wants its event. Observers that want only some responses choose them by the size of the request (see `wanted`).
One property test checks that both paths give the same state, another that a runtime decides the same on both.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, Final

from mala_context._util.foreign_code import passes
from mala_context.tracking.events import Event, Response
from mala_context.tracking.readers.parts import COUNTS, new, written_for_an_hour
from mala_context.tracking.reducer import is_other
from mala_context.tracking.registry import SHIFT
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import MOST, Usage

Way = Callable[[Any], bool]
Wants = Callable[[int], bool]
"""Tells whether the event of a response is wanted, by the size of its request in tokens."""
_THOUGHTS = frozenset({"ThinkingBlock", "RedactedThinkingBlock"})
_MOST_CLASSES = 256


class Quiet:
    """A range of request sizes, in tokens, whose responses an observer does not want; set it at any time.

    Each response asks every observer. To look into a range costs a fifth of a call of a predicate.
    """

    __slots__ = ("sizes",)

    def __init__(self, sizes: range) -> None:
        self.sizes = sizes


EVERY: Final = range(MOST)
"""Requests of any size."""


class _Nothing:
    message_id = object()


NOTHING: Final = _Nothing()
"""The value of `counted` while no message was counted; its id equals no message's id."""


class FastPath:
    """Takes the usual messages of one SDK client.

    `holds` maps a class of message to a method, which takes a message and returns whether it was applied completely; if
    not, send the message on the careful path. On the careful path, unset `counted` with each event and call `after`
    with each message. While `observed` is not empty, messages that change a number take the careful path.
    """

    __slots__ = ("_by_name", "_observed", "_reducer", "counted", "holds", "quiet", "wanted")

    def __init__(self, tracker: ContextTracker, observed: Sized) -> None:
        self._observed = observed
        self._reducer = tracker.reducer
        self._by_name: dict[str, Way] = {"AssistantMessage": self.later, "UserMessage": self.appended}
        self.holds: dict[type, Way] = {}
        self.counted: Any = NOTHING
        """The main agent's last counted message; `NOTHING` after the tracker took any other event."""
        self.wanted: list[Wants] = []
        """The observers' predicates; a response that one of them wants takes the careful path."""
        self.quiet: list[Quiet] = []
        """The ranges of those observers that declare beforehand which responses they do not want."""

    def leave(self, name: str) -> None:
        """Send all messages of the class of this name on the careful path, for good."""
        self._by_name.pop(name, None)
        self.rest()

    def rest(self) -> None:
        """Send all messages of each class on the careful path until `after` is called for one of that class."""
        self.holds.clear()

    def after(self, message: Any, event: Event) -> None:
        """Note a message that took the careful path: the next message of its class may take the fast one."""
        cls = message.__class__
        way = self._by_name.get(cls.__name__)
        if way is not None and cls not in self.holds and len(self.holds) < _MOST_CLASSES:  # classes may be made at will
            self.holds[cls] = way
        if isinstance(event, Response) and event.agent is None and event.usage and event.source == "message":
            self.counted = message if event.message_id else NOTHING

    def later(self, message: Any) -> bool:
        """Hold a later block of the last counted response, or take the first block of the next response."""
        counted, identity = self.counted, message.message_id
        if identity != counted.message_id:
            return not self._observed and self.first(message, identity)
        # The blocks of one response repeat its usage. Another usage may correct the size: the careful path compares.
        if message.usage != counted.usage:
            return False
        reducer = self._reducer
        registry = reducer.registry
        main, seen, uuid, content = registry.main, registry.seen, message.uuid, message.content
        if (
            uuid in seen
            or (registry.placed and hash(uuid) >> SHIFT in registry.rows)
            or message.parent_tool_use_id is not None
            or message.stop_reason is not None
            or main.current != identity
            or message.model != counted.model
            or message.session_id != reducer.session_id
            or content.__class__ is not list
        ):
            return False
        if content:
            main.context.parts.append(("response", content))
            if content[0].__class__.__name__ in _THOUGHTS:
                registry.sign(uuid, content, main)
        seen[uuid] = None  # not trimmed here: the next response's first block does it
        return True

    def first(self, message: Any, identity: Any) -> bool:  # noqa: C901  (each part may leave it to the careful path)
        """Take the first block of a new response of the main agent's present model."""
        # Until step 4 nothing may be changed: each `return False` sends the message on the careful path, which would
        # apply a change a second time.
        # Step 1: only a plain message of the main agent, in the present session and of the present model.
        reducer = self._reducer
        registry = reducer.registry
        main, seen = registry.main, registry.seen
        uuid, content = message.uuid, message.content
        if (
            not identity
            or uuid in seen
            or (registry.placed and hash(uuid) >> SHIFT in registry.rows)
            or message.parent_tool_use_id is not None
            or message.stop_reason is not None
            or (message.model != main.model and is_other(message.model, main.model))
            or message.session_id != reducer.session_id
            or content.__class__ is not list
            or not content
            or not main.responses  # a conversation's first response gives the baseline too, which the reducer notes
        ):
            return False
        # Step 2: only counts that need no interpretation.
        usage, counted, key = message.usage, registry.responses, hash(identity) >> SHIFT
        try:
            fresh, written, read, output = counts = COUNTS(usage)
            tokens = fresh + written + read
            # Left to the careful path: zeros of a bridge that counts only at the end (case core-17), an input that may
            # include the cache (core-23), and values that are no counts. `|` joins four range checks in one, because
            # this runs for each response.
            usual = tokens and fresh != written + read and 0 <= fresh | written | read | output < MOST
        except (KeyError, TypeError):
            return False
        looped = "iterations" in usage and usage["iterations"]
        if not usual or key in counted or looped:
            return False
        # Step 3: only a response that no observer wants. An observer's error must not end the agent's stream: only
        # Ctrl-C and the error of a signal's handler pass.
        for quiet in self.quiet:
            if tokens not in quiet.sizes:
                return False
        try:
            for wants in self.wanted:
                if wants(tokens):
                    return False
        except BaseException as error:
            if passes(error):
                raise
            return False
        # Step 4: the cache ledger first, because it may still refuse (tokens that were written again have a log line).
        clock, known = reducer.clock, new(Usage, counts)
        hour = written_for_an_hour(usage) if written else 0
        if not main.cache.goes_on(known, hour, None if clock is None else clock(), main.model):
            return False
        # Step 5: from here on the message is ours. These lines do what `EventReducer._response` does.
        counted[key] = seen[uuid] = None
        if len(seen) > seen.most:
            seen.trim()
        if len(counted) > counted.most:
            counted.trim()
        main.start(identity, known, tokens, content)
        if content[0].__class__.__name__ in _THOUGHTS:
            registry.sign(uuid, content, main)
        if tokens > reducer.windows.smallest:
            reducer.check_window(main)
        self.counted = message
        return True

    def appended(self, message: Any) -> bool:
        """Hold a message of the user; most of them are tool results."""
        registry = self._reducer.registry
        main, seen, uuid, content = registry.main, registry.seen, message.uuid, message.content
        if (
            content.__class__ is str  # words of the CLI's own, which may say that another model is set
            or uuid in seen
            or (registry.placed and hash(uuid) >> SHIFT in registry.rows)
            or message.parent_tool_use_id is not None
            or not main.responses
            or main.wait_summary
        ):
            return False
        main.context.parts.append(("user", content))
        seen[uuid] = None
        if len(seen) > seen.most:
            seen.trim()
        return True
