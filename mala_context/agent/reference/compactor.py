"""Compaction by reference in an agent of the SDK: a mod in its options, and a tool of ours that the mod calls.

The tool runs in this process: it knows the tracker's sizes, uses the same queue to the archive as the hooks, and
reports to the observers. The model never sees it. If the CLI does not load the mod, one WARNING says so, and the CLI
compacts itself. It also does that if an answer is in doubt or takes longer than `SECONDS`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.log import get_logger
from mala_context._util.safe_open import read_regular
from mala_context.agent.reference.answer import SERVER, Doubt, Settings, say
from mala_context.archive import layout
from mala_context.archive.directory import open_archives
from mala_context.archive.full_outputs import publish
from mala_context.errors import ArchiveError
from mala_context.tracking.events import PluginSaid, SessionStart

if TYPE_CHECKING:
    from mala_context.agent.archiving import SessionArchiver
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.agent.tool_cap import ToolCap
    from mala_context.config import ContextConfig
    from mala_context.tracking.events import Event

NAME: Final = "mala-context-reference"
"""The plugin's name, as the CLI tells it."""
TOOL: Final = "compact"
FULL_NAME: Final = f"mcp__{SERVER}__{TOOL}"
CAP: Final = "cap"
_OURS: Final = (FULL_NAME, f"mcp__{SERVER}__{CAP}")
SWITCH: Final = {"MALA_CONTEXT_REFERENCE": "sdk"}
"""Tells the mod that this process answers."""
NEEDS: Final = ("plugins", "mcp_servers", "disallowed_tools", "env")
"""Fields of the options that are looked at and set."""
SECONDS: Final = 2.0
"""Longest that a compaction waits for us."""
_SCHEMA: Final = {"type": "object", "properties": {}}
_SOURCE: Final = os.path.join(os.path.dirname(__file__), "register.ts")
_LARGEST_SOURCE: Final = 1 << 20

log = get_logger(__name__)


class ByReference:
    """Answers the compactions of one runtime.

    Args:
        repo: the repository, in whose runs directory full texts are kept.
        config: `reference.budget` and `search_tool` count.
        archivist: archives before anything is pointed at.
        processor: its tracker knows the sizes, and it tells whether the mod was loaded.
        cap: caps failed tools' results, where tool results are capped.
    """

    def __init__(
        self,
        repo: str,
        config: ContextConfig,
        archivist: SessionArchiver,
        processor: MessageStreamProcessor,
        cap: ToolCap | None = None,
    ) -> None:
        self._repo = repo
        self._config = config
        self._archivist = archivist
        self._cap = cap
        self._tracker = processor.tracker
        self._loaded = self._told = False
        self._answered: dict[str | None, bool] = {}
        """For each agent, whether the last answer had rows; removed when PreCompact shows that the CLI compacts."""
        processor.observe(self._on_event, PluginSaid, SessionStart)

    def options(self, options: Any) -> dict[str, Any]:
        """Return the options with which the CLI asks us; empty, with a WARNING, if that is impossible."""
        servers = getattr(options, "mcp_servers", None) or {}
        if not isinstance(servers, Mapping):
            return self._not("the MCP servers are in a file")
        try:
            directory = mod_directory()
        except (ArchiveError, OSError) as error:
            return self._not(f"there is no place for its mod: {error}")
        plugins = [each for each in getattr(options, "plugins", None) or () if not _is_ours(each)]
        disallowed = [name for name in getattr(options, "disallowed_tools", None) or () if name not in _OURS]
        return {
            "plugins": [*plugins, {"type": "local", "path": directory}],
            "mcp_servers": {**servers, SERVER: self._server()},
            "disallowed_tools": [*disallowed, *_OURS],
            "env": {
                **(getattr(options, "env", None) or {}),
                **SWITCH,
                "MALA_CONTEXT_CAP": "sdk" if self._cap else "",
            },
        }

    def _not(self, why: str) -> dict[str, Any]:
        self._told = True
        log.warning("mala.yaml: compaction: reference is without effect, since %s", why)
        return {}

    def _server(self) -> dict[str, Any]:
        from claude_agent_sdk import create_sdk_mcp_server, tool

        asked = ((TOOL, self.compact), (CAP, self.cap))
        tools = [tool(name, "Not for the model.", _SCHEMA)(do) for name, do in asked]
        return dict(create_sdk_mcp_server(SERVER, tools=tools))

    async def cap(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the mod what the model may see of failed tools' results; `null` for one that stays. Never raises."""
        texts: list[str | None] = []
        try:
            texts = [] if self._cap is None else await self._cap.failed(request)
        except Exception:  # the result then stays as it is
            log.warning("Tool output: a failed tool's result was not capped", exc_info=True)
        return {"content": [{"type": "text", "text": json.dumps({"texts": texts})}]}

    async def compact(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the mod: `{"rows": [...]}`, or `{}` for what the CLI shall compact itself. Never raises."""
        try:
            rows = await self._rows(request)
        except Doubt as doubt:
            log.warning("Compaction by reference: left to the CLI: %s", doubt)
            rows = []
        except TimeoutError:
            log.warning("Compaction by reference: left to the CLI: the archive takes longer than %g s", SECONDS)
            rows = []
        except Exception:  # whatever it is, the CLI compacts and the agent goes on
            log.warning("Compaction by reference: left to the CLI", exc_info=True)
            rows = []
        self._answered[request.get("agent") or None] = bool(rows)
        return {"content": [{"type": "text", "text": json.dumps({"rows": rows} if rows else {})}]}

    async def _rows(self, request: Mapping[str, Any]) -> list[str | int]:
        agent = request.get("agent") or None
        snapshot = self._tracker.snapshot(agent)
        settings = Settings(
            self._repo,
            self._config.reference.budget,
            snapshot.window,
            snapshot.projected if snapshot.tokens is not None else None,
            searchable=True,
        )
        kept = await self._archivist.by_reference(request, settings, SECONDS)
        self._tracker.note_kept(agent, kept.characters)
        say(kept)
        return list(kept.rows)

    async def left_to_cli(self, hook_input: Mapping[str, Any]) -> None:
        """Note that the CLI compacts itself: only then PreCompact runs, so our answer was not used."""
        agent = hook_input.get("agent_id") or None
        self._tracker.note_kept(agent, None)
        answered = self._answered.pop(agent, None)
        if self._loaded and answered is not False:  # a doubt has said why
            why = "it did not take the answer" if answered else "its mod did not ask"
            log.warning("Compaction by reference: left to the CLI: %s", why)

    def _on_event(self, event: Event, snapshot: object) -> None:
        """Note whether the mod was loaded: it reports that before the first `init`."""
        if isinstance(event, PluginSaid):
            self._loaded = self._loaded or event.plugin == NAME
        elif isinstance(event, SessionStart) and event.source == "init" and not self._loaded and not self._told:
            self._told = True
            log.warning(
                "Compaction by reference is off: the CLI has not loaded its mod (Claude Code 2.1.326 or later does, "
                "unless hooks are disabled); it compacts as ever"
            )


def _is_ours(plugin: object) -> bool:
    path = plugin.get("path") if isinstance(plugin, Mapping) else None
    return isinstance(path, str) and f"/{NAME}-" in path


# -- the mod's files -------------------------------------------------------------------------------------------------


def mod_directory() -> str:
    """Return the directory of a private copy of the mod, a plugin that the CLI can load; make it where it is missing.

    Some CLIs write into a plugin's directory, so it is never the installed package. The content names the directory, so
    that versions lie side by side and a copy is made once.

    Raises `ArchiveUnavailableError` where there is no place for one, and `OSError` where it cannot be written.
    """
    files = _files()
    digest = sha256(b"\0".join(data for _, data in sorted(files.items()))).hexdigest()[:12]
    top = os.path.join(os.path.realpath(layout.runs_dir()), ".mods", f"{NAME}-{digest}")
    for name, data in files.items():
        folder = open_archives(os.path.join(top, os.path.dirname(name)), create=True)
        try:
            publish(folder, os.path.basename(name), data)
        finally:
            os.close(folder)
    return top


def _files() -> dict[str, bytes]:
    about = "Compaction by reference: what the user said stays, tool calls become pointers, no model is asked."
    manifest = {"name": NAME, "version": "1.0.0", "description": about, "author": {"name": "mala-context"}}
    hooks = {"description": about, "modules": ["./register.ts"]}
    return {
        ".claude-plugin/plugin.json": json.dumps(manifest).encode(),
        "hooks/hooks.json": json.dumps(hooks).encode(),
        "hooks/register.ts": read_regular(_SOURCE, _LARGEST_SOURCE),
    }
