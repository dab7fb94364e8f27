"""The files that one input passes on its way through a runtime: fewer are easier to follow.

Run with `python tests/benchmarks/way_of_data.py`; `--files` names them. The runtime is that of `instrument()` with no
`mala.yaml`; calls are counted in all threads with `sys.setprofile`, once each input has been there before.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import threading
from pathlib import Path

from claims import Figure
from claude_agent_sdk._internal.message_parser import parse_message
from overhead import assistant, row

import mala_context
from mala_context import ContextConfig, instrument

LOG = logging.getLogger("mala_context")
PACKAGE = os.path.dirname(mala_context.__file__) + os.sep
MOST = {"response": 12, "result": 16, "precompact": 18}
"""Files that an input may pass at most."""


LOGGED = "result at the level INFO"


class Way:
    """The calls of our own functions while the body runs, in all threads."""

    current = None

    def __init__(self):
        self.calls = []

    def __enter__(self):
        Way.current = self
        return self

    def __exit__(self, *error):
        Way.current = None

    @property
    def files(self):
        return list(dict.fromkeys(name for name, _ in self.calls))

    @property
    def changes(self):
        return sum(before[0] != after[0] for before, after in zip(self.calls, self.calls[1:], strict=False))


def see(frame, event, _):
    way, code = Way.current, frame.f_code
    if way is not None and event == "call" and code.co_filename.startswith(PACKAGE):
        way.calls.append((code.co_filename.removeprefix(PACKAGE), getattr(code, "co_qualname", code.co_name)))


def result(number):
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 9, "cache_read_input_tokens": 40_000, "output_tokens": 9}
    fields = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    return json.dumps({"type": "result", "session_id": "s1", "uuid": f"r{number}", "usage": usage, **fields})


def messages(number):
    """A turn: the CLI names the session, and the first response goes the careful way."""
    text, call = (
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}},
    )
    back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "line of output"}
    return {
        "the CLI's init": init(),
        "a turn's first response": assistant(2 * number, text),
        "its second block": assistant(2 * number, call),
        "a tool's result": row("user", number, [back]),
        "response": assistant(2 * number + 1, text),
        "result": result(number),
        LOGGED: result(number),
    }


def ways():
    """Return the way of each input, by name."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MALA_RUNS_DIR"] = os.path.join(folder, "runs")
        repo = Path(folder, "repo")
        repo.mkdir()
        transcript = Path(folder, "s1.jsonl")
        found = {}
        threading.setprofile(see)
        sys.setprofile(see)
        try:
            runtime = instrument(None, repo, config=ContextConfig())
            hooks = {event: matchers[0].hooks[0] for event, matchers in runtime.options.hooks.items()}
            told = {"session_id": "s1", "transcript_path": str(transcript), "cwd": str(repo)}

            def tell(event, **more):
                asyncio.run(hooks[event]({**told, "hook_event_name": event, **more}, None, None))

            transcript.write_text('{"type":"user","message":{"content":"x"}}\n')
            for number in range(1, 22):
                tell("UserPromptSubmit", prompt="x")
                for name, line in messages(number).items():
                    message = parse_message(json.loads(line))
                    LOG.setLevel(logging.INFO if name == LOGGED else logging.WARNING)
                    with Way() as found[name]:
                        runtime.processor.process(message)
            for _ in range(3):
                with transcript.open("a") as file:
                    file.write('{"type":"user","message":{"content":"x"}}\n')
                with Way() as found["precompact"]:
                    tell("PreCompact", trigger="auto")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return found


def init():
    return json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "claude-sonnet-4-5"})


def figures(quick):
    """What is printed below, for `all.py`."""
    del quick
    for name, way in ways().items():
        key = name.partition(",")[0]
        if key in MOST:
            yield Figure(f"way_of_data.{name}".replace(" ", "_"), len(way.files), "files", bound=MOST[key])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files")
    options = parser.parse_args()
    print(f"{'input':32} {'calls':>6} {'functions':>10} {'files':>6} {'changes of file':>16}")
    for name, way in ways().items():
        print(f"{name:32} {len(way.calls):6} {len(set(way.calls)):10} {len(way.files):6} {way.changes:16}")
        if options.files:
            print(*(f"    {file}" for file in way.files), sep="\n")
