"""The agents of a session (the main agent and its subagents) and their rows, in tables of bounded size.

A table remembers its newest entries, and a look-up costs as much as in a plain dict, because every message of a running
agent needs several. A full table drops its older half in one step: dropping the oldest entry each time would get slower
with every drop, because a dict keeps the gaps. So at least half of the promised entries are always there, and memory
stays flat.

Where an id is only compared, the table keeps its hash, which takes a third of the memory. Python's hash of a text
differs in every process and has 60 bits here, so two ids collide neither by chance nor by intent.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import NO_THOUGHT, ContextState
from mala_context.tracking.events import SIDECHAIN
from mala_context.tracking.text_counts import hidden_thinking, is_result
from mala_context.tracking.thinking_blocks import signed_blocks
from mala_context.tracking.token_costs import thinking_in, thinking_tokens
from mala_context.tracking.truth_alarm import Lookout

K = TypeVar("K")
V = TypeVar("V")
SHIFT: Final = 4
"""Bits of a hash that are dropped: the rest fits into two digits of a Python integer, the whole hash takes three."""


class BoundedDict(dict[K, V]):
    """Remembers the values of the newest keys: at least `most // 2` of them, at most `most`.

    Add entries as to any dict, and call `trim` when there are more than `most`.
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def trim(self) -> None:
        """Forget the older half."""
        kept = list(islice(self.items(), max(0, len(self) - self.most // 2), None))
        self.clear()
        self.update(kept)


class RowIndex(BoundedDict[int, int]):
    """Places of the newest rows: the context of each row, and how many parts that context had at the row's end."""

    __slots__ = ("_contexts", "_parts")

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._contexts: list[ContextState] = []
        self._parts = array("I")

    def put(self, uuid: str, context: ContextState, parts: int) -> None:
        """Remember a row's place."""
        contexts = self._contexts
        self[hash(uuid) >> SHIFT] = len(contexts)
        contexts.append(context)
        self._parts.append(parts)
        if len(self) > self.most:
            self.trim()

    def context(self, uuid: str) -> ContextState | None:
        """Return the context that a row belongs to; `None` where it is forgotten."""
        slot = self.get(hash(uuid) >> SHIFT)
        return None if slot is None else self._contexts[slot]

    def place(self, uuid: str) -> tuple[ContextState, int] | None:
        """Return a row's place; `None` where it is forgotten."""
        slot = self.get(hash(uuid) >> SHIFT)
        return None if slot is None else (self._contexts[slot], self._parts[slot])

    def trim(self) -> None:
        """Forget the older half, and the contexts that only this half used."""
        super().trim()
        # The lists still have the slots of forgotten rows. New lists without them free their contexts.
        slots = list(self.values())
        self._contexts = [self._contexts[slot] for slot in slots]
        self._parts = array("I", [self._parts[slot] for slot in slots])
        self.update(zip(self, range(len(slots)), strict=True))


LIVE: Final = 80
"""Most rows and responses that are remembered of live messages; at least half of them are always there."""
RECORDED: Final = 4_096
"""The same for a transcript, in which a row may go back far, and for a source of unknown kind."""
AGENTS: Final = 256
"""Most subagents that are remembered."""


def _put(table: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Put a value into a table; if it has `most` entries already, the oldest one leaves."""
    if len(table) >= most and key not in table:
        del table[next(iter(table))]
    table[key] = value


class AgentRegistry:
    """The agents of one session, and the places of their rows.

    An agent's key is the id of the Task call that started it where that is known, else its own id.
    """

    __slots__ = (
        "_agents_by_call",
        "_calls",
        "_counts_text",
        "_lookout",
        "main",
        "no_thought",
        "placed",
        "responses",
        "rows",
        "seen",
        "signed",
        "stated",
        "subagents",
    )

    def __init__(
        self,
        model: str | None = None,
        *,
        counts_text: bool = False,
        remembers: int = RECORDED,
        lookout: Lookout | None = None,
    ) -> None:
        self.main = AgentState(model=model)
        self.main.lookout = self._lookout = lookout
        self.main.counts_text = self._counts_text = counts_text
        self.subagents: dict[str, AgentState] = {}
        self.rows: RowIndex = RowIndex(remembers)
        self.no_thought: Mapping[str, float] | None = NO_THOUGHT
        """What the CLI does about thinking, see `ContextState.thought`."""
        self.placed = False
        """Whether there were any rows. Every live message asks this; to ask the table itself would cost more."""
        self.seen: BoundedDict[str, None] = BoundedDict(remembers // 2)
        """Ids of live messages, which no other message names as its parent."""
        self.signed: BoundedDict[str, tuple[str, int, int]] = BoundedDict(remembers)
        """Rows with hidden thinking: the model, the length of the signatures, and the response's key in `stated`. A
        compaction may keep such rows (case core-30)."""
        self.stated: BoundedDict[int, int] = BoundedDict(remembers)
        """Tokens of thinking that responses state, by the hash of the response's identity."""
        self.responses: BoundedDict[int, int | None] = BoundedDict(remembers)
        """Counted responses: the hash of the request's id by the hash of the message's id."""
        self._calls: dict[str, str] = {}
        """The Task call of each subagent, by the subagent's own id."""
        self._agents_by_call: dict[str, str] = {}
        """The reverse of `_calls`."""

    def find(self, key: str | None) -> AgentState | None:
        """Return an agent by either of its ids, or `None`."""
        return self.main if key is None else self.subagents.get(self._calls.get(key, key))

    def agent(self, key: str | None) -> AgentState:
        """Return an agent by either of its ids; make one if there is none."""
        if key is None:
            return self.main
        key = self._calls.get(key, key)
        agent = self.subagents.get(key)
        if agent is None:
            agent_id = self._agents_by_call.get(key)
            # A live message names the call before any event has joined it to an agent: then only the id's form tells.
            is_call = agent_id is not None or key.startswith(("toolu_", "call_"))
            agent = AgentState(agent_id, key) if is_call else AgentState(key)
            agent.counts_text, agent.lookout = self._counts_text, self._lookout
            _put(self.subagents, key, agent, AGENTS)
        return agent

    def was_counted(self, message_id: str, request_id: str | None) -> bool:
        """Tell whether a response was counted before, and note it as counted: old rows and copies come again."""
        known = self.responses
        key = hash(message_id) >> SHIFT
        request = hash(request_id) >> SHIFT if request_id else None
        if key in known:
            # One message id with two request ids is two responses (ryoppippi/ccusage#985). Without a request id on both
            # sides the second one is a copy.
            before = known[key]
            return before is None or request is None or before == request
        known[key] = request
        if len(known) > known.most:
            known.trim()
        return False

    def count_text(self) -> None:
        """Count the text of every agent from now on, even if no projection is asked for."""
        self._counts_text = True
        for agent in (self.main, *self.subagents.values()):
            agent.counts_text = True

    def owner(self, event: Any) -> AgentState:
        """Return the agent of an event that has a row's place."""
        key = event.agent
        # Old CLIs write sidechain rows without an agent's name. Such a row belongs to the agent of the row before it;
        # a root begins an agent, which is named by that root.
        if key == SIDECHAIN:
            place = self.rows.place(event.parent) if event.parent else None
            key = self.key(place[0].owner) if place is not None else None
            key = key or f"{SIDECHAIN}:{event.uuid}"
        return self.agent(key)

    def key(self, agent: AgentState) -> str | None:
        """Return an agent's key; `None` for the main agent."""
        return None if agent is self.main else agent.tool_use_id or agent.agent_id

    def join(self, agent_id: str, call: str) -> AgentState | None:
        """Note which Task call started a subagent; return the subagent if it is known and this is new."""
        if call in self._agents_by_call:
            return None
        _put(self._agents_by_call, call, agent_id, AGENTS)
        _put(self._calls, agent_id, call, AGENTS)
        # Before this event each of the two ids may have made an agent. One of them stays: the one with more responses.
        by_id = self.subagents.pop(agent_id, None)
        agent = self.subagents.get(call)
        if by_id is not None and (agent is None or by_id.responses >= agent.responses):
            agent = self.subagents[call] = by_id
        if agent is not None:
            agent.agent_id, agent.tool_use_id = agent_id, call
        return agent

    def knows(self, uuid: str | None) -> bool:
        """Tell whether a row was seen; only the newest rows are remembered."""
        if hash(uuid) >> SHIFT in self.rows:
            return True
        seen = self.seen
        return bool(seen) and uuid is not None and uuid in seen

    def see(self, uuid: str) -> None:
        """Remember that a live message was seen."""
        self.seen[uuid] = None
        if len(self.seen) > self.seen.most:
            self.seen.trim()

    def sign(self, uuid: str | None, content: Any, agent: AgentState, stated: int = 0) -> None:
        """Remember the thinking of a row that was just added; of hidden thinking, the length of the signature.

        `stated` is the response's own count of all its thinking, 0 if it states none.
        """
        blocks = signed_blocks(content)
        if not blocks:
            return
        agent.context.signs(thinking_in(blocks, agent.model), self.no_thought)
        self.remember(uuid, blocks, agent.model, agent.current)
        if stated:
            self.states(agent, stated)

    def remember(self, uuid: str | None, content: Any, model: str | None, identity: object, stated: int = 0) -> None:
        """Remember the length of the signature of a row's hidden thinking; do nothing for a row without any."""
        signed = hidden_thinking(signed_blocks(content))
        if signed and uuid is not None:
            key = hash(identity) >> SHIFT
            self.signed[uuid] = model or "", signed, key
            if len(self.signed) > self.signed.most:
                self.signed.trim()
            if stated:
                self._state(key, stated)

    def states(self, agent: AgentState, tokens: int) -> None:
        """Take the count that the agent's present response states for all its thinking."""
        if agent.context.message_id == agent.current:
            agent.context.states(tokens)
            self._state(hash(agent.current) >> SHIFT, tokens)

    def _state(self, key: int, tokens: int) -> None:
        self.stated[key] = tokens
        if len(self.stated) > self.stated.most:
            self.stated.trim()

    def kept_thinking(self, uuids: Collection[str]) -> Iterator[tuple[str, float]]:
        """Yield the model and the tokens of the hidden thinking in each of these rows.

        A count that the response states is divided among its rows by the length of their signatures. Where it states
        none, the length alone tells.
        """
        kept = [self.signed[uuid] for uuid in uuids if uuid in self.signed]
        whole = dict.fromkeys((key for _, _, key in kept if key in self.stated), 0)
        for _, signed, key in self.signed.values() if whole else ():
            if key in whole:
                whole[key] += signed
        for model, signed, key in kept:
            yield model, self.stated[key] * signed / whole[key] if key in whole else thinking_tokens(signed, model)

    def place(self, uuid: str | None, agent: AgentState) -> None:
        """Remember the present end of the agent's context as the place of a row."""
        if uuid is not None:
            context = agent.context
            context.pinned = self.placed = True
            self.rows.put(uuid, context, len(context.parts))

    def note(self, uuid: str | None, parent: str | None, agent: AgentState) -> None:
        """Remember a row's place; a live message has no parent and no place, so only remember that it was seen."""
        if parent is not None:
            self.place(uuid, agent)
        elif uuid is not None:
            self.see(uuid)

    def follow(self, agent: AgentState, parent: str, *, begins: bool) -> bool:
        """Go to the place that a row goes on from; return whether that changed the agent's context.

        `parent` is empty for a root. `begins` tells that the row may begin something: a prompt or a response may go
        back or start again, while a tool's late result and an attachment may not.
        """
        if not parent:
            # A resumed session's transcript, read from its first row, shows the session's real first request. While it
            # counted as unknown, the size at connect was unknown until the first response.
            if agent.rooted is None or not agent.responses:
                agent.rooted = True
            if not begins or agent is not self.main or not agent.responses:
                return False
            agent.begin_again()
            return True
        place = self.rows.place(parent)
        if place is None:
            if agent.rooted is None:  # the first row goes on from one that we have not seen: a recording without a head
                agent.rooted = False
            return False
        context, parts = place
        if context is agent.context or not begins or context.owner is not agent:
            return False
        if context.root:
            agent.begin_again()
            self.place(parent, agent)
        else:
            agent.go_to(context, parts)
        return True

    def take_back(self, agent: AgentState, parent: str) -> bool:
        """Take back the prompt that follows this row, because another prompt follows it now; return whether one did.

        No request held the first prompt: the user stopped it before the first answer. With both, 29,303 tokens were
        projected where the request held 22,838. User text after a tool's result is no prompt but words of the CLI, and
        both stay: two skills that are called at once give two such texts.
        """
        _, parts = self.rows.place(parent) or (None, 0)
        around = agent.context.parts[max(0, parts - 1) : parts + 1]
        prompt = len(agent.context.parts) > parts and around[-1][0] == "user"
        if not prompt or any(is_result(content) for _, content in around):
            return False
        agent.go_to(agent.context, parts)
        return True

    def link(self, agent: AgentState, uuid: str, parent: str | None) -> None:
        """Remember the place of a row that no request holds; after a root a new conversation may begin."""
        # The row has its parent's place, not the end of the context: the CLI may write it late (case core-27).
        place = self.rows.place(parent) if parent else None
        if place is not None:
            self.rows.put(uuid, *place)
            return
        if parent is not None:
            self.follow(agent, parent, begins=False)
        # The new conversation does not begin here but with the first prompt after this root: see `ContextState.root`.
        if parent == "" and agent is self.main and agent.responses:
            context = agent.fresh()
            context.root = True
            self.placed = True
            self.rows.put(uuid, context, 0)
        else:
            self.place(uuid, agent)
