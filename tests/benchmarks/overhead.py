"""What it costs to import the package and to stream through it, beside the same without.

Run with `python tests/benchmarks/overhead.py`. Each figure is a median over interleaved runs on this machine, with the
spread (minimum and maximum) behind it; compare the ratios and differences, since machines are noisy.
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

from mala_context import ContextConfig, MessageStreamProcessor, instrument

RUNS = 15
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


async def through(lines, processor):
    async def source():
        for line in lines:
            yield parse_message(json.loads(line))

    messages = source() if processor is None else processor.stream(source())
    started = time.process_time()  # of the processor alone: other programs may run beside this one
    async for _ in messages:
        pass
    return (time.process_time() - started) / len(lines) * 1e6


def stream_costs(runs=RUNS):
    """For each kind of message: its name, µs without us, and by processor the µs that it adds."""
    kinds = {
        "messages": [line for number in range(2000) for line in response(number)],
        "partial messages": [line for number in range(6000) for line in deltas(number)],
    }
    for name, lines in kinds.items():
        bare, added = [], {who: [] for who in PROCESSORS}
        for _ in range(runs):
            bare.append(asyncio.run(through(lines, None)))
            for who, make in PROCESSORS.items():
                added[who].append(asyncio.run(through(lines, make())) - bare[-1])
        yield name, bare, added


def streaming():
    for name, bare, added in stream_costs():
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
    print(f"Python {platform.python_version()} on {platform.machine()}, {platform.system()}")
    importing()
    streaming()
    print(f"bytes kept after 10,000 more responses: {memory():,}")
