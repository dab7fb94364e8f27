"""Fast path for the common SDK messages.

Later blocks of a response, the first block of the next one, and tool results are applied directly to the main agent's
state. Everything else takes the careful path: reader → event → reducer. So does a response whose event somebody wants
to see; those who want only some responses say which with a predicate of the request's size (see `wanted`). A property
test checks that both paths give the same state, and another that a runtime decides the same on both.
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
    """Sizes of requests, in tokens, of whose responses an observer need not be told; set them at any time.

    A look into a range costs a fifth of a call, and each response asks.
    """

    __slots__ = ("sizes",)

    def __init__(self, sizes: range) -> None:
        self.sizes = sizes


EVERY: Final = range(MOST)
"""Requests of any size."""


class _Nothing:
    message_id = object()


NOTHING: Final = _Nothing()
"""Stands where no message was counted: no message has its id."""


class FastPath:
    """Takes the usual messages of one SDK client.

    `holds` has a way by class of message, which takes a message and returns whether that was all. For messages on the
    careful path: unset `counted` with each event, and call `after` with each message. While something is `observed`,
    messages that change a number take the careful path.
    """

    __slots__ = ("_by_name", "_observed", "_reducer", "counted", "holds", "quiet", "wanted")

    def __init__(self, tracker: ContextTracker, observed: Sized) -> None:
        self._observed = observed
        self._reducer = tracker.reducer
        self._by_name: dict[str, Way] = {"AssistantMessage": self.later, "UserMessage": self.appended}
        self.holds: dict[type, Way] = {}
        self.counted: Any = NOTHING
        """The main agent's message whose counts the tracker took last, if it has taken nothing else since."""
        self.wanted: list[Wants] = []
        """Those who observe responses; a response that one of them wants takes the careful path."""
        self.quiet: list[Quiet] = []
        """The same of those who say beforehand which responses they do not want."""

    def leave(self, name: str) -> None:
        """Have all messages of the class of this name go the long way, for good."""
        self._by_name.pop(name, None)
        self.rest()

    def rest(self) -> None:
        """Have all messages go the long way until `after` is called for one of the class."""
        self.holds.clear()

    def after(self, message: Any, event: Event) -> None:
        """Take notice of a message that went the long way: the next of its class may go a short one."""
        cls = message.__class__
        way = self._by_name.get(cls.__name__)
        if way is not None and cls not in self.holds and len(self.holds) < _MOST_CLASSES:  # classes may be made at will
            self.holds[cls] = way
        if isinstance(event, Response) and event.agent is None and event.usage and event.source == "message":
            self.counted = message if event.message_id else NOTHING

    def later(self, message: Any) -> bool:
        """Hold a later block of the response whose counts were taken last, or take the first one of the next."""
        counted, identity = self.counted, message.message_id
        if identity != counted.message_id:
            return not self._observed and self.first(message, identity)
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
        seen[uuid] = None  # too many of them are seen to with the next response
        return True

    def first(self, message: Any, identity: Any) -> bool:  # noqa: C901  (each part may leave it to the long way)
        """Take the first block of a new response, of the model that the agent has, by its counts."""
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
            or not main.responses  # the first one of a conversation says more than its size
        ):
            return False
        usage, counted, key = message.usage, registry.responses, hash(identity) >> SHIFT
        try:
            fresh, written, read, output = counts = COUNTS(usage)
            tokens = fresh + written + read
            # Left to the long way: zeros of a bridge that counts at the end only (case core-17), an input that may
            # include the cache (core-23), and what is no count. `|` joins four range checks in one, since this runs per
            # response.
            usual = tokens and fresh != written + read and 0 <= fresh | written | read | output < MOST
        except (KeyError, TypeError):
            return False
        looped = "iterations" in usage and usage["iterations"]
        if not usual or key in counted or looped:
            return False
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
        clock, known = reducer.clock, new(Usage, counts)
        hour = written_for_an_hour(usage) if written else 0
        if not main.cache.goes_on(known, hour, None if clock is None else clock(), main.model):
            return False
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
        """Hold a message of the user, which most often is a tool's result."""
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
