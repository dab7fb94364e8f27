"""Answer Claude Code's command hooks: the plugin's whole behaviour, in a process of its own for each event.

Such a process lives for a few milliseconds, most of them for Python's own start. So every larger module is imported
where it is needed. PyYAML and `site` are loaded only if there is a `mala.yaml`, and the input is not even decoded if
there is nothing to do. The standard library alone is enough.

Nothing here raises, whatever the input is. A failure gives one line on standard error (the first line, if there are
several); the answer is `{}`, or the `additionalContext` of a warning.
"""

from __future__ import annotations

import io
import os
import sys

from mala_context._util.safe_open import reader_of
from mala_context.agent.hook_io import object_from, text_in
from mala_context.transcripts.session_ids import check_session_id, session_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from mala_context.archive.layout import ArchiveResult
    from mala_context.archive.store import TranscriptArchive

ANSWER_SECONDS = 8.0
"""Longest that a hook's process takes to answer, whatever the disk does; the archiving continues without it."""
WARN_SECONDS = 3.0
"""The same for the event that only warns: a late answer would be of no use."""
CATCH_UP_SECONDS = 1.0
"""Longest that a session's start is delayed by archiving what earlier sessions left."""
OWNER_SECONDS = 3.0
"""Longest that a compaction waits for the process that archives the session itself; after that it counts as hung."""
_RECENT_SECONDS = 10.0
"""A piece without an outcome that is no older than this was written for this compaction."""
_STARTED_SECONDS = 1.0
"""Longest start of this process. A piece that another hook wrote since then was written for this compaction."""
_POLL_SECONDS = 0.02
_OFF = frozenset({"0", "false", "no", "off"})
_WARNING = "mala-context: the context window is"
"""Beginning of a warning. If the transcript has it after the last compaction, it is not given again."""


def answer_in_time(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[bytes, str]:
    """Do what `answer_hook` does, in a child process, and return after `ANSWER_SECONDS` in any case.

    A thread would not be enough: a process ends only with its last thread, and a thread that waits for a frozen disk
    cannot even be killed. On such a disk the plugin took 20.6 s. The child continues by itself and archives as soon as
    the disk answers. If no child can be made, the work is done here.
    """
    # If a standard stream is closed, the pipe would get its number, and the child would write its words into it.
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(number)
    ours, theirs = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(ours)
        os.close(theirs)
        return answer_hook(arguments, env)
    if child == 0:
        _answer_into(theirs, arguments, env)
    os.close(theirs)
    seconds = WARN_SECONDS if "warn" in arguments else ANSWER_SECONDS
    told = _all_of(ours, seconds)
    if told is None:
        later = "no warning about the context" if "warn" in arguments else "it is archived once there is one"
        return b"{}", f"no answer of the disk within {seconds:g} s; {later}, the session goes on"
    answer, mark, words = told.partition(b"\0")
    return (answer, words.decode("utf-8", "replace")) if mark else (b"{}", "the hook's work was killed")


def _answer_into(pipe: int, arguments: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Do the work in the child, and close every stream of the hook for whose end Claude Code would wait."""
    try:
        os.setsid()  # a signal to the hook's process group (Ctrl-C) must not end this one
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        answer, words = answer_hook(arguments, env)
        data = answer + b"\0" + words.encode("utf-8", "replace")
        while data and (count := os.write(pipe, data)):  # a write of 0 bytes must end the loop
            data = data[count:]
    finally:
        os._exit(0)


def _all_of(pipe: int, seconds: float) -> bytes | None:
    """Return all bytes of a pipe up to its end; `None` if that takes longer than `seconds`."""
    import select
    import time

    end, found = time.monotonic() + seconds, b""
    while select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
        more = os.read(pipe, 1 << 16)
        if not more:
            return found
        found += more
    return None


def answer_hook(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[bytes, str]:
    """Answer one hook; return the JSON for standard output and the words for standard error, if any.

    `arguments` are the script's: `warn` for the event that only warns, `compact` for the plugin's mod. The input is
    read from descriptor 0.
    """
    if "warn" in arguments and not _warns(env):
        return b"{}", ""
    words = io.StringIO()
    stderr, sys.stderr = sys.stderr, words  # the archive logs to it; the first line is shown
    answer = b"{}"
    try:
        found = _input()
        handler = _compact if "compact" in arguments else _EVENTS.get(found.get("hook_event_name"))
        if handler is not None:
            answer = handler(found, env) or b"{}"
    except Exception as error:  # noqa: BLE001  # a hook never disturbs the session, whatever is wrong
        ours = type(error).__module__ == "mala_context.errors"  # by name: importing the module takes longer than this
        words.write(f"\n{error if ours or isinstance(error, OSError | ValueError) else repr(error)}\n")
    finally:
        sys.stderr = stderr
    return answer, next((line.strip() for line in words.getvalue().splitlines() if line.strip()), "")


def _warns(env: Mapping[str, str]) -> bool:
    """Tell, from the environment and a look at `mala.yaml`, whether warnings were asked for at all."""
    if env.get("MALA_WARN_AT"):
        return True
    from mala_context._util.safe_open import read_regular

    try:
        path = os.path.join(env.get("CLAUDE_PROJECT_DIR") or os.getcwd(), "mala.yaml")
        return b"warn_at" in read_regular(path, 1 << 20)
    except OSError:
        return False


def _input() -> dict[str, Any]:
    """Return the hook's input; raises `ValueError` for what is no JSON object."""
    try:
        found = object_from(*reader_of(0))
    except OSError as error:
        raise ValueError(f"no input: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"the hook's input is {error}: nothing archived") from None
    return {**found, "session_id": session_in(found.get("session_id"), found.get("transcript_path"))}


def _repository(found: Mapping[str, Any], env: Mapping[str, str]) -> str:
    """Return the directory in which the session was started; a hook's own `cwd` changes with each `cd`."""
    return env.get("CLAUDE_PROJECT_DIR") or text_in(found, "cwd") or os.getcwd()


class _Configured:
    """The settings of `mala.yaml` if it can be read, else those of the environment and the defaults."""

    def __init__(self, repo: str, env: Mapping[str, str]) -> None:
        self.enabled = env.get("MALA_ARCHIVE", "").lower() not in _OFF
        self.at_session_end = True
        self.warn_at = _ratio(env.get("MALA_WARN_AT"))
        self.window: int | None = None
        self.by_reference = env.get("MALA_COMPACTION") == "reference"
        self.budget: int | None = None
        self.arguments: dict[str, Any] = {"directory": None}
        path = os.path.join(repo, "mala.yaml")
        if os.path.lexists(path):
            self._read(path, repo)
        self.repo = repo

    def _read(self, path: str, repo: str) -> None:
        try:
            import site

            # The plugin runs the script with `python3 -I -S`: without `site` it takes half the time. PyYAML is found
            # only with `site`.
            site.main()
            import yaml  # noqa: F401  # to tell whether it is there
        except ImportError:
            _say(f"{path} is not read, since this python3 has no PyYAML; environment and defaults are used")
            return
        from mala_context.archive.remote.address import is_address
        from mala_context.config import load_config
        from mala_context.errors import ConfigError

        try:
            config = load_config(path)
        except ConfigError as error:
            _say(f"{error}; environment and defaults are used")
            return
        kept = config.archive
        self.enabled = self.enabled and config.enabled and kept.enabled
        self.at_session_end = kept.at_session_end
        self.window = config.window if isinstance(config.window, int) else None
        if self.warn_at is None and config.enabled and config.tell_agent:
            self.warn_at = config.warn_at
        self.by_reference = self.by_reference or config.compaction == "reference"
        self.budget = config.reference.budget
        from mala_context.archive.reader import absolute

        place = kept.directory
        if place is not None:  # an object store has no code here, and what it needs first is local in any case
            place = None if is_address(place) else absolute(place, repo)
        self.arguments = {"directory": place, "mode": kept.mode, "warn_bytes": kept.warn_bytes}

    def archive(self) -> TranscriptArchive | None:
        """Return where to archive; `None` where that is switched off."""
        if not self.enabled:
            return None
        from mala_context.archive.store import TranscriptArchive

        return TranscriptArchive(repo_path=self.repo, **self.arguments)


def _say(words: str) -> None:
    sys.stderr.write(" ".join(words.split()) + "\n")


def _ratio(text: str | None) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        _say(f"MALA_WARN_AT is {text!r}; a number above 0 and at most 1 would be right")
        return None
    return value


def _before_compaction(found: Mapping[str, Any], env: Mapping[str, str]) -> None:
    import time

    begun = time.time_ns() // 1000
    archive = _Configured(_repository(found, env), env).archive()
    if archive is not None and not _owner_archived(archive, found):
        from mala_context.archive.increment import archive_from_hook

        _close(archive, archive_from_hook(archive, found, since=begun - round(_STARTED_SECONDS * 1e6)))


def _close(archive: TranscriptArchive, result: ArchiveResult | None) -> None:
    """Record the previous compaction's sizes from its boundary, which the CLI wrote after that compaction's hooks."""
    if result is not None and result.path is not None:
        from mala_context.archive.catch_up import close_from_hook

        close_from_hook(archive, result.session_id, result.path)


def _compact(request: Mapping[str, Any], env: Mapping[str, str]) -> bytes | None:
    """Answer the plugin's mod with the conversation's replacement; `None` if the CLI shall compact itself."""
    settings = _Configured(_repository(request, env), env)
    archive = settings.archive()
    if archive is None or not settings.by_reference:
        return None
    import json

    from mala_context.agent.claude_code.statusline.fields import measure
    from mala_context.agent.reference.answer import Doubt, Settings, answer, transcript_of

    request = {**request, "transcript": transcript_of(request, archive)}
    agent = text_in(request, "agent")
    gauge = measure({"transcript_path": text_in(request, "transcript")}, env)
    context = gauge.tokens if agent is None else None
    limits = Settings(settings.repo, settings.budget, settings.window or gauge.window, context)
    try:
        made = answer(request, archive, limits)
    except Doubt as doubt:
        _say(f"compaction left to the CLI: {doubt}")
        return None
    path = made.archived.transcript if agent is None else text_in(request, "transcript")
    lost = _lost(archive, request.get("session"), "\n".join(made.kept.texts()), path, agent)
    archive.note_kept(request.get("session"), made.kept.as_dict(), agent=agent or "main", lost=lost)
    return json.dumps({"rows": made.kept.rows}).encode()


def _owner_archived(archive: TranscriptArchive, found: Mapping[str, Any]) -> bool:
    """Tell whether the process that owns the session has archived for this compaction; wait for it a while.

    Its hook runs beside this one, and the CLI writes rows between the two: if both archived, one compaction would have
    two pieces. If no process owns the session, or its owner is dead or hangs, the answer is no.
    """
    from mala_context.archive.catch_up import has_live_owner

    path = text_in(found, "transcript_path")
    try:
        sid = check_session_id(found.get("session_id"))
        if path is None or not has_live_owner(archive.manifest(sid)):
            return False
        size = os.stat(path).st_size
    except (OSError, ValueError):
        return False  # archiving itself will report what is wrong
    import time

    begun = time.time_ns() // 1000
    end = time.monotonic() + OWNER_SECONDS
    while time.monotonic() < end:
        between = begun - round(_RECENT_SECONDS * 1e6), time.time_ns() // 1000
        if archive.manifest(sid).open_piece(text_in(found, "agent_id") or "main", between) is not None:
            return True
        if any(piece.end == size for piece in archive.pieces(sid) if piece.subagent is None):
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _after_compaction(found: Mapping[str, Any], env: Mapping[str, str]) -> bytes | None:
    """Record how the compaction ended, unless a living process owns the session and records it itself.

    The answer tells the user how to undo it. Claude Code shows this event's text as it is, and JSON as JSON
    (CLI 2.1.332), so it is plain text.
    """
    archive = _Configured(_repository(found, env), env).archive()
    if archive is None:
        return None
    from mala_context.archive.catch_up import has_live_owner

    session_id, summary = found.get("session_id"), found.get("compact_summary")
    if has_live_owner(archive.manifest(str(session_id))):
        return None
    agent = text_in(found, "agent_id") or "main"
    # A compaction by reference has no summary. The mod's command has written what it keeps as a row of its own, since
    # this process knows nothing of it; the row is open until this outcome closes it.
    row = None if summary else archive.manifest(str(session_id)).open_kept(agent)
    outcome: dict[str, Any] = {
        "trigger": found.get("trigger"),
        "summary": summary if isinstance(summary, str) and row is None else None,
        "agent": agent,
        "kept": row and row["kept"],
        "once": True,
    }
    if agent == "main" and row is None:
        path = text_in(found, "transcript_path")
        outcome.update(_stated_sizes(archive, str(session_id), path))
        archive.compaction_seen(
            found.get("transcript_path"),
            session_id,
            measure=lambda: _lost(archive, session_id, summary, path),
            **outcome,
        )
    else:
        how = "compacted" if row is None else "by_reference"
        archive.record_outcome(session_id, how, lost=row and row.get("lost"), **outcome)
    if agent != "main" or not archive.pieces(str(session_id)):
        return None
    undo = "/mala-context:undo" if env.get("CLAUDE_PLUGIN_ROOT") else f"mala-context archives restore {session_id!s:.8}"
    return f"archived; undo with {undo}".encode()


def _stated_sizes(archive: TranscriptArchive, session_id: str, path: object) -> dict[str, Any]:
    """Return the sizes of this compaction, if the transcript has its boundary already."""
    from mala_context.archive.catch_up import boundary_after

    row = archive.manifest(session_id).open_piece("main")
    end = next((each.end for each in archive.pieces(session_id) if row is not None and each.plain == row["name"]), None)
    found = None if end is None or not isinstance(path, str) else boundary_after(path, end)
    return {name: (found or {}).get(name) for name in ("tokens_before", "tokens_after")}


def _lost(
    archive: TranscriptArchive, session_id: object, words: object, path: str | None, agent: str | None = None
) -> Mapping[str, Any] | None:
    """Return what a summary or a kept text does not mention; `None` if that cannot be found out.

    `path` is the main transcript, `agent` the subagent whose rows were dropped.
    """
    from mala_context.archive.losses import read_loss, read_subagent_loss
    from mala_context.errors import ArchiveError

    if not isinstance(words, str) or path is None:
        return None
    try:
        if agent is None:
            loss = read_loss(archive, str(session_id), words, transcript=path)
        else:
            loss = read_subagent_loss(path, agent, words)
    except (ArchiveError, OSError):  # the outcome must be written even if the loss cannot be measured
        return None
    return None if loss is None else loss.as_dict()


def _session_started(found: Mapping[str, Any], env: Mapping[str, str]) -> bytes | None:
    """Catch up at a session's start, and tell the user what the cold cache of a resumed session will cost."""
    _catch_up_sessions(found, env)
    words = cold_cache(found)
    if words is None:
        return None
    import json

    return json.dumps({"systemMessage": words}).encode()


def cold_cache(found: Mapping[str, Any]) -> str | None:
    """Return a note on the tokens that a resumed session's first request writes to the cache again, if the CLI says."""
    tokens, idle, cost = (
        value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None
        for value in map(found.get, ("context_tokens", "seconds_since_last_response", "estimated_cache_write_usd"))
    )
    if found.get("prompt_cache_likely_expired") is not True or not tokens:
        return None
    since = "" if idle is None else f" ({idle / 60:,.0f} min idle)"
    about = "" if cost is None else f", about ${cost:.2f} by the CLI's estimate"
    return (
        f"mala-context: the prompt cache has lapsed{since}; the next request writes {tokens:,.0f} tokens again{about}"
    )


def _catch_up_sessions(found: Mapping[str, Any], env: Mapping[str, str]) -> None:
    """Register the session, and archive the rest of earlier sessions, for `CATCH_UP_SECONDS` at most.

    If finding them takes half of that time, they are left to `archives catch-up`.
    """
    session_id, path = found.get("session_id"), text_in(found, "transcript_path")
    settings = _Configured(_repository(found, env), env)
    archive = settings.archive()
    if archive is None or not settings.at_session_end or found.get("source") == "compact":
        return
    import time

    end = time.monotonic() + CATCH_UP_SECONDS
    if path is not None:
        from mala_context.archive.catch_up import has_live_owner

        if not has_live_owner(archive.manifest(str(session_id))):
            archive.register_session(session_id, path, cwd=text_in(found, "cwd"))
    known = archive.listed()
    for each in known.store(create=False).recent(end - CATCH_UP_SECONDS / 2):
        if each != session_id:
            from mala_context.archive.catch_up import catch_up

            list(catch_up(known, [each], time.time()))
            if time.monotonic() > end:
                break


def _session_ended(found: Mapping[str, Any], env: Mapping[str, str]) -> None:
    settings = _Configured(_repository(found, env), env)
    archive = settings.archive()
    path = text_in(found, "transcript_path")
    if archive is None or not settings.at_session_end or path is None or not os.path.exists(path):
        return  # a session in which nothing was said has no transcript
    main, *_ = archive.archive_session(
        path, found.get("session_id"), trigger="session_end", agent="main", cwd=text_in(found, "cwd")
    )
    _close(archive, main)


def _prompt(found: Mapping[str, Any], env: Mapping[str, str]) -> bytes | None:
    """Tell the agent once that its context is nearly full; once more after a compaction."""
    settings = _Configured(_repository(found, env), env)
    path = text_in(found, "transcript_path")
    if settings.warn_at is None or path is None or not os.path.exists(path) or found.get("agent_id"):
        return None
    from mala_context._util.text import window_words
    from mala_context.agent.claude_code.statusline.fields import measure
    from mala_context.agent.claude_code.statusline.recorded import said_since_compaction
    from mala_context.agent.hook_io import add_context

    gauge = measure({"transcript_path": path}, env)
    window = settings.window or gauge.window
    if gauge.tokens is None or gauge.tokens < settings.warn_at * window or said_since_compaction(path, _WARNING):
        return None
    import json

    of = window_words(window, "config" if settings.window else gauge.window_source)
    words = (
        f"{_WARNING} {gauge.tokens / window:.0%} full ({gauge.tokens:,} of {of} tokens). "
        "Save what must not be lost, and keep further reads small."
    )
    return json.dumps(add_context("UserPromptSubmit", words)).encode()


_EVENTS: dict[object, Callable[[Mapping[str, Any], Mapping[str, str]], bytes | None]] = {
    "PreCompact": _before_compaction,
    "PostCompact": _after_compaction,
    "SessionStart": _session_started,
    "SessionEnd": _session_ended,
    "UserPromptSubmit": _prompt,
}
