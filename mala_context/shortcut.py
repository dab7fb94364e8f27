"""The short way of those messages that most of a stream is.

A response comes as one message for each of its blocks, all with the same counts; a tool's result adds text whose size
nobody may ever ask for. The long way of a message (a reader makes an event, the tracker takes it) is for everything
that there is; the main agent's usual messages are recognised here by themselves, and do to its state at once what they
would do that way, at a fraction of the cost. A test compares both on every kind of stream. Where a message is in any
way unusual, or somebody wants to see its event, it goes the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mala_context.events import Event, Response
from mala_context.readers.parts import COUNTS, new
from mala_context.tracker import ContextTracker, is_other
from mala_context.usage import MOST, Usage

Way = Callable[[Any], bool]
_MOST_CLASSES = 256


class Shortcut:
    """Takes the usual messages of one SDK client.

    `ways` has two ways for a class of messages: one for those that change no number, and one for those that do, which
    is to be gone where nobody asks for their snapshots. Either takes a message and tells whether that was all. What
    goes the long way: unset `counted` with each event, and call `after` with each message.
    """

    __slots__ = ("_by_name", "_tracker", "counted", "ways")

    def __init__(self, tracker: ContextTracker) -> None:
        self._tracker = tracker
        self.counted: Any = None
        """The main agent's message whose counts the tracker took last, if it has taken nothing else since."""
        self._by_name: dict[str, tuple[Way, Way | None]] = {
            "AssistantMessage": (self.later, self.first),
            "UserMessage": (self.appended, None),
        }
        self.ways: dict[type, tuple[Way, Way | None]] = {}
        """Short ways by class of message, for the classes that were seen."""

    def leave(self, name: str) -> None:
        """Have all messages of the class of this name go the long way."""
        self._by_name.pop(name, None)
        self.ways.clear()

    def after(self, message: object, event: Event) -> None:
        """Take notice of a message that went the long way: the next of its class may go a short one."""
        cls = message.__class__
        if cls not in self.ways and cls.__name__ in self._by_name and len(self.ways) < _MOST_CLASSES:
            self.ways[cls] = self._by_name[cls.__name__]  # classes may be made by the thousand
        if isinstance(event, Response) and event.agent is None and event.usage and event.source == "message":
            self.counted = message

    def later(self, message: Any) -> bool:
        """Hold a later block of the response whose counts were taken last."""
        counted, identity = self.counted, message.message_id
        if counted is None or identity is None or identity != counted.message_id or message.usage != counted.usage:
            return False
        tracker = self._tracker
        roster = tracker.roster
        main, seen, uuid = roster.main, roster.seen, message.uuid
        if (
            uuid is None
            or uuid in seen
            or (roster.rows and hash(uuid) in roster.rows)
            or message.parent_tool_use_id is not None
            or message.stop_reason is not None
            or main.current != identity
            or message.model != counted.model
            or message.session_id != tracker.session_id
        ):
            return False
        if message.content:
            main.context.parts.append(("response", message.content))
        seen[uuid] = None  # too many of them are seen to with the next response
        return True

    def first(self, message: Any) -> bool:
        """Take the first block of a new response, of the model that the agent has, by its counts."""
        tracker = self._tracker
        roster = tracker.roster
        main, seen = roster.main, roster.seen
        identity, uuid = message.message_id, message.uuid
        if (
            not identity
            or uuid is None
            or uuid in seen
            or (roster.rows and hash(uuid) in roster.rows)
            or message.parent_tool_use_id is not None
            or message.stop_reason is not None
            or (message.model != main.model and is_other(message.model, main.model))
            or message.session_id != tracker.session_id
            or not message.content
        ):
            return False
        usage, counted, key = message.usage, roster.responses, hash(identity)
        try:
            fresh, written, read, output = counts = COUNTS(usage)
            tokens = fresh + written + read
            usual = tokens and 0 <= fresh | written | read | output < MOST and not usage.get("iterations")
        except (AttributeError, KeyError, TypeError):
            return False
        if not usual or key in counted:
            return False
        counted[key] = None
        if len(counted) > counted.most:
            counted.trim()
        main.start(identity, new(Usage, counts), tokens, message.content)
        if tokens > tracker.windows.smallest:
            tracker.check_window(main)
        seen[uuid] = None
        if len(seen) > seen.most:
            seen.trim()
        self.counted = message
        return True

    def appended(self, message: Any) -> bool:
        """Hold a message of the user, which most often is a tool's result."""
        roster = self._tracker.roster
        main, seen, uuid = roster.main, roster.seen, message.uuid
        if (
            uuid is None
            or uuid in seen
            or (roster.rows and hash(uuid) in roster.rows)
            or message.parent_tool_use_id is not None
            or not main.responses
            or main.wait_summary
        ):
            return False
        main.context.parts.append(("user", message.content))
        seen[uuid] = None
        if len(seen) > seen.most:
            seen.trim()
        return True
