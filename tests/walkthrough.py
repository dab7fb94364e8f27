"""Pages whose commands are run, in order, in a world of their own: `python tests/walkthrough.py` writes the answers.

A page says in a comment which world it is played in (`<!-- world: shop -->`). Each `$ ` line of its console blocks is
run there, and what follows it is the answer. A python or yaml block behind `<!-- file: NAME -->` becomes that file. A
line `…` in an answer leaves out what stands between as many lines as are before it and behind it.

Ids and paths of a run are written as the page's own, and back again in commands. In a world where a live session was
played, figures differ a little from run to run (its system prompt holds a path and the date), so two answers are the
same there if they are the same but for digits; in the others they are the same to the letter.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from unittest import mock

from mala_context.testing import ScriptedMessagesAPI

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
HOME = "/home/dev"
"""The home of those who read the pages."""
IDS = (
    "0f8fad5b-d9cb-469f-a165-70867728950e",
    "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "3d813cbb-47fb-32ba-91df-831e1593ac29",
    "16fd2706-8baf-433b-82eb-8c7fada847da",
    "886313e1-3b8a-5372-9b90-0c9aee199e5d",
    "6fa459ea-ee8a-3ca4-894e-db77e160355e",
)
"""Ids in pages, in the order in which a run's own turn up."""
RECORDED = {path.name.partition(".")[0] for path in (ROOT / "tests/data/recorded").glob("*.jsonl.gz")}
"""Ids that are the same in each run."""
_WORLD = re.compile(r"<!-- world: (\w+) -->")
_BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n+)?```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_UUID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])")
_SHELL = frozenset("|<>&;$*~`=")
ANSWERS = ("It is a small shop: a service and its log.", "One file, `service.log`.")
"""What the model says where a command asks one."""


class World:
    """A home, a directory to be in, and what stands for the run's ids and paths in pages."""

    def __init__(self, root: pathlib.Path, *, live: bool = True) -> None:
        self.live = live
        self.stack = contextlib.ExitStack()
        self.home = root / "dev"
        self.cwd = self.home / "shop"
        self.cwd.mkdir(parents=True)
        self.ids: dict[str, str] = {}
        self.env = {
            **{key: os.environ[key] for key in ("LANG", "TMPDIR", "LD_LIBRARY_PATH") if key in os.environ},
            "HOME": str(self.home),
            "PATH": f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONWARNINGS": "error",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "80",
        }

    def known(self, text: str) -> str:
        """Return a run's text with the page's ids and paths."""
        text = re.sub(r"/[^\s\"]*?/mala-context-demo-\w+", "/tmp/mala-context-demo", text)
        text = re.sub(r"-tmp-[\w-]*?mala-context-demo-\w+?-project", "-tmp-mala-context-demo-project", text)
        for found in (each for each in _UUID.findall(text) if each not in RECORDED):
            self.ids.setdefault(found, IDS[len(self.ids)] if len(self.ids) < len(IDS) else found)
        for real, shown in self.ids.items():
            text = text.replace(real, shown).replace(real[:8], shown[:8])
        for real, shown in ((str(self.home), HOME), (sys.prefix, f"{HOME}/.venv")):
            text = text.replace(real, shown).replace(real.replace("/", "-"), shown.replace("/", "-"))
        return text

    def real(self, command: str) -> str:
        """Return a page's command with the run's ids and paths."""
        for real, shown in self.ids.items():
            command = command.replace(shown, real).replace(shown[:8], real[:8])
        dashed = str(self.home).replace("/", "-")
        return command.replace(HOME, str(self.home)).replace(HOME.replace("/", "-"), dashed)

    def run(self, command: str) -> str:
        """Run a command line and return what it printed, on both streams."""
        command = self.real(command)
        if command.startswith("cd ") and not _SHELL & set(command):
            self.cwd = (self.cwd / command[3:]).resolve()
            return ""
        if command.startswith("mala-context ") and not _SHELL & set(command):
            said = self._in_process(shlex.split(command)[1:])
        else:
            done = subprocess.run(
                ["bash", "-c", command], cwd=self.cwd, env=self.env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, timeout=100, check=False,
            )  # fmt: skip
            said = done.stdout
        return re.sub(r"[ \r]+$", "", self.known(said).strip("\n"), flags=re.MULTILINE)

    def _in_process(self, arguments: list[str]) -> str:
        """Run a command of ours without a new process: a third of a second less for each."""
        from mala_context.cli.app import run

        data = io.BytesIO()
        stream = io.TextIOWrapper(data, encoding="utf-8", write_through=True)
        with (
            mock.patch.dict(os.environ, self.env, clear=True),
            mock.patch.object(sys, "argv", ["mala-context", *arguments]),
            mock.patch.multiple(sys, stdout=stream, stderr=stream),
            contextlib.chdir(self.cwd),
            contextlib.suppress(SystemExit),
        ):
            run()
        stream.flush()
        return data.getvalue().decode()


def _begin(world: World) -> None:
    """Begin at home, with nothing in it."""
    world.cwd.rmdir()
    world.cwd = world.home


def _shop(world: World) -> None:
    """Play the session of the tutorial in the shop, so that there is an archive."""
    page = (DOCS / "tutorial/first-ten-minutes.md").read_text(encoding="utf-8")
    for block in _BLOCK.finditer(page):
        if block["file"] == "agent.py":
            (world.home / "agent.py").write_text(block["body"], encoding="utf-8")
    shop, world.cwd = world.cwd, world.home
    said = world.run("python agent.py")
    world.cwd = shop
    if "PreCompact: archived" not in said:
        raise RuntimeError(said)


def _asked(world: World) -> None:
    """Let a scripted API answer in the place of an account."""
    api = world.stack.enter_context(ScriptedMessagesAPI(ANSWERS, strict=False))
    (world.cwd / "service.log").write_text("all is well\n")
    world.env |= {**api.env(world.home), "HOME": str(world.home)}


def _recorded(world: World) -> None:
    """Put the recorded sessions and the policies where a checkout has them."""
    for folder in ("tests/data/recorded", "docs/policies"):
        shutil.copytree(ROOT / folder, world.cwd / folder)


def _sessions(world: World) -> None:
    """Put the recorded sessions where the CLI has its transcripts, as if they went on just now."""
    folder = world.home / ".claude/projects" / str(world.cwd).replace("/", "-")
    for path in sorted((ROOT / "tests/data/recorded").rglob("*.jsonl.gz")):
        target = folder / path.relative_to(ROOT / "tests/data/recorded").with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.decompress(path.read_bytes()))
        now = time.time() - (60 if "subagents" in target.parts else ord(target.name[0]))
        os.utime(target, (now, now))


WORLDS: dict[str, tuple[Callable[[World], object], bool]] = {
    "empty": (_begin, True),
    "shop": (_shop, True),
    "asked": (_asked, True),
    "recorded": (_recorded, False),
    "sessions": (_sessions, True),
    "drawn": (_recorded, True),
}
"""Name of a world → what furnishes it, and whether figures differ from run to run."""


def pages() -> list[pathlib.Path]:
    """Return the pages that are played."""
    return [path for path in sorted(DOCS.rglob("*.md")) if _WORLD.search(path.read_text(encoding="utf-8"))]


def exchanges(body: str) -> Iterator[tuple[str, str]]:
    """Return the commands of a console block, each with its answer."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, answer = part.partition("\n")
        while command.endswith("\\"):
            more, _, answer = answer.partition("\n")
            command = f"{command}\n{more}"
        yield command, answer.rstrip("\n")


def cut(answer: str, shown: str) -> str:
    """Return an answer with what the page leaves out left out."""
    if "…" not in shown.split("\n"):
        return answer
    lines, before = answer.split("\n"), shown.split("\n").index("…")
    behind = len(shown.split("\n")) - before - 1
    if len(lines) <= before + behind:
        return answer
    return "\n".join([*lines[:before], "…", *lines[len(lines) - behind :]])


def same(one: str, other: str, *, live: bool) -> bool:
    """Tell whether two answers are the same."""
    return (_plain(one) == _plain(other)) if live else one == other


def _plain(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{32}\b", "#", _UUID.sub("#", text))
    text = re.sub(r"\d[\d,.]*", "#", text)
    text = re.sub(r"\b([kKMG]i?)?B\b", "B", text)
    return re.sub(r"[ ─-]+", " ", text)


def play(path: pathlib.Path, root: pathlib.Path) -> tuple[World, list[tuple[str, str, str]], str]:
    """Return a page's world, each command with the page's answer and the run's, and the page with the latter."""
    text = path.read_text(encoding="utf-8")
    furnish, live = WORLDS[_WORLD.findall(text)[0]]
    world, said = World(root, live=live), []

    def played(block: re.Match[str]) -> str:
        if block["file"]:
            (world.cwd / block["file"]).write_text(world.real(block["body"]), encoding="utf-8")
        if block["kind"] != "console":
            return block[0]
        lines = []
        for command, shown in exchanges(block["body"]):
            answer = cut(world.run(command), shown)
            said.append((command, shown, answer))
            answer = shown if same(shown, answer, live=live) else answer  # a page changes with what it says
            lines.append("\n".join(["$ " + command, *([answer] if answer else [])]))
        return "```console\n" + "\n".join(lines) + "\n```"

    with world.stack:
        furnish(world)
        return world, said, _BLOCK.sub(played, text)


def main(names: list[str]) -> None:
    """Play the pages, or those whose names are given, and write the answers into them."""
    if unknown := set(names) - {path.stem for path in pages()}:
        sys.exit(f"no page that is played: {', '.join(sorted(unknown))}")
    for path in pages():
        if not names or path.stem in names:
            with tempfile.TemporaryDirectory() as folder:
                path.write_text(play(path, pathlib.Path(folder))[2], encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
