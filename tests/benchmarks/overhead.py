"""What it costs to import the package and to stream through it, beside the same without.

Run with `python tests/benchmarks/overhead.py [FOLDER ...]`. Each figure is a median over interleaved runs on this
machine, with the spread (minimum and maximum) after it; compare the ratios and differences, since machines are noisy.

A FOLDER holds recordings: what their messages cost is measured too, as a stream shows them, each session by a processor
of its own. Their answers are longer, their tools and results larger, and some of their requests have to be priced.
"""

import asyncio
import itertools
import json
import logging
import platform
import statistics
import subprocess
import sys
import time
import tracemalloc

from claims import of
from claude_agent_sdk._internal.message_parser import parse_message
from folders import folders

from mala_context import ContextConfig, MessageStreamProcessor, instrument
from mala_context.analysis.audit import as_streamed
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.rows import lines as rows_of

RUNS, ROUNDS = 15, 7
MOST = 12_000
"""Recorded messages of a folder that are enough."""
PROCESSORS = {
    "a processor": MessageStreamProcessor,
    "a runtime's": lambda: instrument(config=ContextConfig()).processor,
}
ROWS = itertools.count()


def spread(values):
    return f"{statistics.median(values):8.2f}  ({min(values):.2f} to {max(values):.2f})"


# Every 150 responses the context begins again, and a line says so.
logging.getLogger("mala_context").addHandler(logging.NullHandler())


def row(kind, number, content, **fields):
    message = {"role": kind, "content": content, **fields}
    ids = {"session_id": "s1", "uuid": f"{next(ROWS):032x}", "parent_tool_use_id": None}
    return json.dumps({"type": kind, "message": message, **ids})


def assistant(number, block):
    # A request grows by what came, as the API counts it; otherwise each one would be a silent change.
    read = 41_000 + 600 * (number % 150)
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 900, "cache_read_input_tokens": read}
    fields = {"id": f"m{number}", "model": "claude-sonnet-4-5", "usage": {**usage, "output_tokens": 1}}
    return row("assistant", number, [block], **fields)


def response(number):
    """A response as the SDK sends it: text, a tool call, its result."""
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "line of output\n" * 130}
    return [
        assistant(number, {"type": "text", "text": "I look at the failing test first. " * 10}),
        assistant(number, {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "pytest -q"}}),
        row("user", number, [result]),
    ]


def deltas(number):
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}
    return [json.dumps({"type": "stream_event", "uuid": f"d{number}", "session_id": "s1", "event": event})]


def streamed(row):
    """Return a recorded row as a line of the stream; `None` where the stream has no such message."""
    message = row.get("message")
    if row.get("type") not in ("assistant", "user") or row.get("isSidechain") or row.get("isMeta"):
        return None
    if not isinstance(message, dict) or message.get("model") == "<synthetic>":
        return None
    message = {**as_streamed(row)["message"], "stop_reason": None}
    if isinstance(message.get("usage"), dict):  # rows that were written before the answer's end have no list of calls
        message["usage"] = {name: count for name, count in message["usage"].items() if name != "iterations"}
    ids = {"session_id": row.get("sessionId"), "uuid": row.get("uuid"), "parent_tool_use_id": None}
    return json.dumps({"type": row["type"], "message": message, **ids})


def recorded(folder):
    """Return the sessions of a folder as lists of lines, until there are enough."""
    sessions, count = [], 0
    for recording in find([folder]):
        found = rows_of(recording, lambda row, problem: None)
        lines = [line for each in found for row in each.rows if (line := streamed(row)) is not None]
        sessions.append(lines)
        count += len(lines)
        if count > MOST:
            break
    return [lines for lines in sessions if lines]


async def seconds(lines, processor):
    async def source():
        for line in lines:
            yield parse_message(json.loads(line))

    messages = source() if processor is None else processor.stream(source())
    started = time.process_time()  # of the processor alone: other programs may run beside this one
    async for _ in messages:
        pass
    return time.process_time() - started


def through(sessions, make):
    """Return the µs of a message, each session by a processor of its own; of `None` without any."""
    taken = sum(asyncio.run(seconds(lines, None if make is None else make())) for lines in sessions)
    return taken / sum(map(len, sessions)) * 1e6


def costs(sessions, runs):
    """Return the µs of a message without us, and by processor the µs that it adds."""
    bare, added = [], {who: [] for who in PROCESSORS}
    for _ in range(runs):
        bare.append(through(sessions, None))
        for who, make in PROCESSORS.items():
            added[who].append(through(sessions, make) - bare[-1])
    return bare, added


def stream_costs(runs=RUNS):
    """For each kind of message: its name, and its `costs`."""
    kinds = {
        "messages": [line for number in range(2000) for line in response(number)],
        "partial messages": [line for number in range(6000) for line in deltas(number)],
    }
    for name, lines in kinds.items():
        yield name, *costs([lines], runs)


def show(name, bare, added):
    print(f"µs a message, {name}: without us {spread(bare)}")
    for who, values in added.items():
        share = statistics.median(values) / statistics.median(bare)
        print(f"µs a message, {name}: added by {who} {spread(values)}, {share:.2f} of that")


def memory():
    """Bytes that are kept after 10,000 more responses."""
    processor = MessageStreamProcessor()

    def feed(start, count):
        for number in range(start, start + count):
            for line in response(number):
                processor.process(parse_message(json.loads(line)))

    tracemalloc.start()
    feed(0, 5000)  # until every table of bounded size is full
    before = tracemalloc.get_traced_memory()[0]
    feed(5000, 10_000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return after - before


def import_times(runs=40):
    """ms of a bare process, and of one that imports the package."""
    programs = {"bare": "pass", "import mala_context": "import mala_context"}
    times = {name: [] for name in programs}
    for _ in range(runs):
        for name, program in programs.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times[name].append((time.perf_counter() - started) * 1e3)
    return times


def importing():
    times = import_times()
    for name, values in times.items():
        print(f"ms a process, {name}: {spread(values)}")
    bare, ours = (statistics.median(values) for values in times.values())
    print(f"ms a process, allowed (1.2 x bare + 15): {1.2 * bare + 15:8.2f}, ours {ours:.2f}")


def figures(quick):
    """What the lines below print, for `all.py`."""
    bare, ours = import_times(10 if quick else 40).values()
    middle = statistics.median(bare)
    yield of("overhead.import", ours, "ms", beside=f"bare Python: {middle:.1f} ms", bound=1.2 * middle + 15)
    for name, bare, added in stream_costs(3 if quick else RUNS):
        beside = f"without us: {statistics.median(bare):.1f} µs"
        for who, values in added.items():
            yield of(f"overhead.{name}.{who}".replace(" ", "_"), values, "µs a message", beside=beside)


if __name__ == "__main__":
    given, _ = folders(__doc__, 0)
    print(f"Python {platform.python_version()} on {platform.machine()}, {platform.system()}")
    importing()
    for found in stream_costs():
        show(*found)
    logging.getLogger("mala_context").setLevel(logging.CRITICAL)  # a terminal would take most of the time
    for folder in given:
        sessions = recorded(folder)
        show(f"{sum(map(len, sessions)):,} of {len(sessions)} sessions in {folder}", *costs(sessions, ROUNDS))
    print(f"bytes kept after 10,000 more responses: {memory():,}")
