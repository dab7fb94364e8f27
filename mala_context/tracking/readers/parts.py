"""The parts that several sources share: fields of unknown objects, usage, system messages, results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from mala_context.tracking.context_map import parts_reported
from mala_context.tracking.events import (
    Compaction,
    CompactionStatus,
    ContextEdited,
    Events,
    PluginSaid,
    Refusal,
    SessionStart,
    SubagentStart,
    TurnEnd,
    WindowReport,
)
from mala_context.tracking.projection import PLACEHOLDER
from mala_context.tracking.text_counts import field_of, kind_of
from mala_context.tracking.usage import MOST, Usage, is_call
from mala_context.transcripts.compactions import MICRO_BOUNDARY

_REFUSED = r"(\d[\d,]*)\s*tokens?\s*>\s*(\d[\d,]*)\s*maximum"
_CONTEXT = r"(\d[\d.,]*)\s*([kKmM]?)\s*/\s*(\d[\d.,]*)\s*([kKmM]?)(?:\s*tokens|\s*\(|\b)"
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000}
_MOST_DIGITS = 20
_NOTHING: Mapping[str, Any] = {}
COUNTS = itemgetter("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
"""The counts of a usage in the order of `Usage`; raises `KeyError` or `TypeError` if one is missing."""
new = tuple.__new__
"""Makes a named tuple from all its values, for events of every message: calling the class takes twice as long."""
_SETS_MODEL = "<local-command-stdout>Set model to "


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if value.__class__ is dict or isinstance(value, Mapping) else _NOTHING


def text(value: Any) -> str | None:
    """Return the value if it is a string with something in it, else `None`."""
    if value.__class__ is str:  # nearly every value, and the call costs more than this look
        return value or None
    return value if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    """Return the value if it is a number ≥ 0, else `None`: unknown is not 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < MOST else None


def known(raw: Any) -> Usage | None:
    """Read a response's usage; `None` if it is missing or its prompt is all zero, because then the size is unknown."""
    if raw is None:
        return None
    if raw.__class__ is dict:  # nearly every message
        try:
            fresh, written, read, output = counts = COUNTS(raw)
            prompt = fresh | written | read
            # `|` joins the range checks of four values, and raises TypeError if one is no integer.
            if prompt and 0 <= prompt | output < MOST:
                calls = raw.get("iterations")
                if not calls or COUNTS(calls[-1]) == counts:
                    return new(Usage, counts)
        except (KeyError, TypeError, IndexError):
            pass
    usage = Usage.of_last_call(raw)
    return usage if usage is not None and usage.context_tokens else None


def written_for_an_hour(raw: Any) -> int:
    """Return how many tokens of a usage were written to the cache for an hour; 0 if the usage does not state it."""
    if raw.__class__ is dict:  # what every live message has
        creation = raw.get("cache_creation")
        if creation.__class__ is dict and not creation.get("ephemeral_1h_input_tokens"):
            return 0
    else:
        creation = raw.get("cache_creation") if isinstance(raw, Mapping) else getattr(raw, "cache_creation", None)
    return 0 if creation is None else count(mapping(creation).get("ephemeral_1h_input_tokens")) or 0


def stated_thinking(raw: Any, usage: Usage | None) -> int:
    """Return how many tokens of an answer were thinking, as the usage states them; 0 if it does not.

    `usage` is what was read from `raw`. A stated 0 is unknown too: CLI 2.1.332 writes 0 where the API states nothing.
    The count is unknown as well where the output is still a placeholder or is only one of several calls.
    """
    details = raw.get("output_tokens_details") if raw.__class__ is dict else None
    if details.__class__ is not dict or usage is None:
        return 0
    tokens, output = details.get("thinking_tokens"), usage.output_tokens
    if type(tokens) is not int or not 0 < tokens <= output or output <= PLACEHOLDER:
        return 0
    return tokens if raw.get("output_tokens") == output else 0


def lists_calls(raw: Any) -> bool:
    """Tell whether a usage lists the model calls of its sum, so that the last call is known."""
    iterations = raw.get("iterations") if isinstance(raw, Mapping) else getattr(raw, "iterations", None)
    if not isinstance(iterations, list | tuple):
        return False
    return any(is_call(mapping(row).get("type")) for row in iterations)


def refusal(message: Any, agent: str | None, session_id: str | None) -> Events:
    """Find "N tokens > M maximum" in an API error's text."""
    found = re.search(_REFUSED, message) if isinstance(message, str) else None
    if found is None:
        return ()
    tokens, maximum = map(number_in, found.groups())
    return () if tokens is None else (Refusal(agent, session_id, tokens, maximum or None),)


def parse_context_text(message: Any) -> tuple[int, int] | None:
    """Read (tokens, window) from the output of `/context`: `27k/200k tokens (14%)`, `62.5k/1m`, `1,234/200,000`."""
    found = re.search(_CONTEXT, message) if isinstance(message, str) else None
    if found is None:
        return None
    used, used_unit, window, window_unit = found.groups()
    tokens, size = number_in(used, used_unit), number_in(window, window_unit)
    return None if tokens is None or size is None else (tokens, size)


def number_in(words: str, unit: str = "") -> int | None:
    """Return the whole number in a text: `1,234`, or `62.5` with the unit `k` or `m`.

    `None` for any other text, and for a number from 2^50 on, because no window has as many tokens.
    """
    digits = words.replace(",", "").replace("_", "")
    if len(digits) > _MOST_DIGITS:  # `int` raises on a text of 5,000 digits
        return None
    try:
        number = (float(digits) if "." in digits else int(digits)) * _SCALE[unit.lower()]
    except ValueError:
        return None
    return round(number) if number < MOST else None


def system(subtype: Any, data: Mapping[str, Any], session_id: str | None) -> Events:
    """Read a system message of the stream by its subtype."""
    reader = _SYSTEM.get(subtype) if isinstance(subtype, str) else None
    return reader(data, session_id) if reader else ()


def _init(data: Mapping[str, Any], session_id: str | None) -> Events:
    if session_id is None:
        return ()
    betas = data.get("betas")
    names = tuple(beta for beta in betas if isinstance(beta, str)) if isinstance(betas, list) else ()
    model, cwd, cli = (text(data.get(name)) for name in ("model", "cwd", "claude_code_version"))
    return (SessionStart(session_id, "init", model, names, cwd, cli),)


def _boundary(data: Mapping[str, Any], session_id: str | None) -> Events:
    meta = mapping(data.get("compact_metadata") or data.get("compactMetadata"))
    return (boundary(meta, None, session_id, uuid=text(data.get("uuid"))),)


def boundary(
    meta: Mapping[str, Any],
    agent: str | None,
    session_id: str | None,
    *,
    uuid: str | None = None,
    parent: str | None = None,
) -> Compaction:
    """Read a boundary's metadata, in the stream's spelling or the transcript's."""
    get = meta.get
    kept = mapping(get("preserved_messages") or get("preservedMessages")).get("uuids")
    return Compaction(
        agent,
        session_id,
        text(get("trigger")),
        _first(get("pre_tokens"), get("preTokens")),
        _first(get("post_tokens"), get("postTokens")),
        _first(get("duration_ms"), get("durationMs")),
        uuid,
        parent,
        frozenset(u for u in kept if isinstance(u, str)) if isinstance(kept, list) else frozenset(),
    )


def _first(one: Any, other: Any) -> int | None:
    value = count(one)
    return count(other) if value is None else value


def _status(data: Mapping[str, Any], session_id: str | None) -> Events:
    if "compact_result" not in data and data.get("status") not in ("compacting", None):
        return ()
    get = data.get
    result, error = text(get("compact_result")), text(get("compact_error"))
    return (CompactionStatus(session_id, text(get("status")), result, error),)


def _task(data: Mapping[str, Any], session_id: str | None) -> Events:
    agent_id, call = text(data.get("task_id")), text(data.get("tool_use_id"))
    return (SubagentStart(session_id, agent_id, call),) if agent_id else ()


def _plugin(data: Mapping[str, Any], session_id: str | None) -> Events:
    plugin = text(data.get("plugin"))
    return (PluginSaid(session_id, plugin, text(data.get("text"))),) if plugin else ()


def _fallback(data: Mapping[str, Any], session_id: str | None) -> Events:
    model = text(data.get("fallback_model"))
    return (WindowReport(session_id, None, model=model),) if model else ()


def _microcompaction(data: Mapping[str, Any], session_id: str | None) -> Events:
    del data
    return (ContextEdited(None, session_id, "microcompaction"),)


def edited(message: Mapping[str, Any], agent: str | None, session_id: str | None) -> Events:
    """Read from a message of the API, or from the end of a streamed message, that the API edited the context."""
    edits = mapping(message.get("context_management")).get("applied_edits")
    return (ContextEdited(agent, session_id, "context_editing"),) if edits and isinstance(edits, list) else ()


_SYSTEM = {
    MICRO_BOUNDARY: _microcompaction,
    "init": _init,
    "model_fallback": _fallback,
    "compact_boundary": _boundary,
    "status": _status,
    "task_started": _task,
    "ui_log": _plugin,
}


def turn_end(get: Any) -> TurnEnd:
    """Read a result; `get` returns a field by its name in the SDK's spelling or in stream-json's."""
    raw = get("usage")
    usage = Usage.understood(raw)
    last = known(raw) if lists_calls(raw) else None
    windows = {}
    for model, row in mapping(get("model_usage") or get("modelUsage")).items():
        window = count(mapping(row).get("contextWindow"))
        if window and isinstance(model, str):
            windows[model] = window
    uuids = get("user_message_uuids")
    if not uuids or not isinstance(uuids, list | tuple):
        uuids = (get("user_message_uuid"),)
    return TurnEnd(
        text(get("session_id")),
        usage,
        last,
        count(get("num_turns")),
        windows,
        get("is_error") is True,
        text(get("subtype")),
        text(get("terminal_reason")),
        text(mapping(get("origin")).get("kind")),
        tuple(uuid for uuid in uuids if isinstance(uuid, str)),
        text(get("result")),
    )


def window_report(answer: Any, session_id: str | None = None) -> WindowReport:
    """Read the answer of the SDK's `get_context_usage()`.

    If the user chose an automatic window (`CLAUDE_CODE_AUTO_COMPACT_WINDOW`, a setting), the CLI's answer has that
    window instead of the model's, so the model's window stays unknown.
    """
    get = mapping(answer).get
    chosen = get("autocompactSource") not in (None, "auto", "model-default")
    return WindowReport(
        session_id,
        None if chosen else _first(get("maxTokens"), get("rawMaxTokens")) or None,
        count(get("totalTokens")),
        text(get("model")),
        count(get("autoCompactThreshold")),
        parts_reported(mapping(answer)),
    )


def model_set(kind: str, content: Any) -> str | None:
    """Return the model of later requests if a message or an attachment of the CLI's own names it, else `None`."""
    if kind == "attachment":
        return text(field_of(field_of(content, "identity"), "modelId")) if kind_of(content) == "model" else None
    if content.__class__ is not str or not content.startswith(_SETS_MODEL):
        return None
    said = re.search(r"claude-[\w.:@-]{1,80}", content[: len(_SETS_MODEL) + 200])
    return None if said is None else said[0]
