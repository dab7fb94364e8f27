"""What telemetry adds to a message: the records alone, with OpenTelemetry's API alone, and with an SDK behind it.

Run with `python tests/benchmarks/telemetry.py`. Each figure is a median over interleaved runs, of the processor's time
and not of the clock's, so that what else the machine does is left out; the spread (minimum and maximum) is behind it.
`a message` is what the SDK sends: a response of three, or one whose every message is a response of its own, which is
the worst that can be.
"""

from __future__ import annotations

import gc
import itertools
import platform
import statistics
import time

from claims import of
from claude_agent_sdk import AssistantMessage, TextBlock, ToolResultBlock, ToolUseBlock, UserMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from mala_context import ContextTracker, MessageStreamProcessor
from mala_context.agent.actions import Actions
from mala_context.agent.telemetry import Hub, Reporter, log_happening
from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Thresholds

RUNS = 61
RESPONSES = 600
_NUMBERS = itertools.count()
ALLOWED = {"no SDK configured": 2.0, "an SDK, metrics and spans": 15.0}


def spread(values):
    return f"{statistics.median(values):7.2f}  ({min(values):.2f} to {max(values):.2f})"


def part(number, block):
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 900, "cache_read_input_tokens": 41_000 + number % 90_000}
    return AssistantMessage(
        content=[block],
        model="claude-sonnet-4-5",
        usage={**usage, "output_tokens": 1},
        message_id=f"m{number}",
        session_id="s1",
        uuid=f"{number:x}",
    )


def of_three():
    """Responses as they are: words, a tool call, its result."""
    found = []
    for _ in range(RESPONSES):
        number = next(_NUMBERS)
        found += [
            part(number, TextBlock("I look at the failing test first. " * 10)),
            part(number, ToolUseBlock(f"t{number}", "Bash", {"command": "pytest -q"})),
            UserMessage([ToolResultBlock(f"t{number}", "line of output\n" * 130)]),
        ]
    return found


def of_one():
    """A response with every message."""
    return [part(next(_NUMBERS), TextBlock("I look at the failing test first.")) for _ in range(3 * RESPONSES)]


def processor(observers):
    """Return a processor as a runtime has it, the guard at work; without observers it has no telemetry at all."""
    made = MessageStreamProcessor(ContextTracker(window=200_000))
    hub = Hub(observers or [])
    Actions(Policy(Thresholds()), made, hub=hub)
    if observers is not None:
        reporter = Reporter(hub.tell, hub.wants)
        made.observe(reporter.on_event, *reporter.events)
    return made


def with_sdk():
    meters = MeterProvider(metric_readers=[InMemoryMetricReader()])
    return OpenTelemetryObserver(meter_provider=meters, tracer_provider=TracerProvider())


def seconds(observers, messages):
    process = processor(observers).process
    gc.collect()
    gc.disable()
    started = time.process_time()
    for message in messages:
        process(message)
    took = time.process_time() - started
    gc.enable()
    return took / len(messages) * 1e6


def added_costs(runs=RUNS):
    """For each kind of response: its name, µs a message without telemetry, and what each kind of observer adds."""
    kinds = {
        "the log alone": [log_happening],
        "no SDK configured": [log_happening, OpenTelemetryObserver()],
        "an SDK, metrics and spans": [log_happening, with_sdk()],
    }
    for name, make in (("three messages a response", of_three), ("every message a response", of_one)):
        bare, added = [], {kind: [] for kind in kinds}
        for _ in range(runs):
            messages = make()
            bare.append(seconds(None, messages))
            for kind, observers in kinds.items():
                added[kind].append(seconds(observers, messages) - bare[-1])
        yield name, bare, added


def figures(quick):
    """What `main` prints, for `all.py`."""
    names = {"the log alone": "log", "no SDK configured": "none", "an SDK, metrics and spans": "sdk"}
    for name, bare, added in added_costs(5 if quick else RUNS):
        beside = f"without telemetry: {statistics.median(bare):.2f} µs"
        for kind, values in added.items():
            yield of(
                f"telemetry.{names[kind]}.{name.split()[0].replace('every', 'one')}",
                values,
                "µs",
                beside=beside,
                bound=ALLOWED.get(kind),
            )


def main():
    print(f"Python {platform.python_version()} on {platform.machine()}, {platform.system()}; µs a message")
    for name, bare, added in added_costs():
        print(f"{name}: without telemetry {spread(bare)}")
        for kind, values in added.items():
            allowed = ALLOWED.get(kind)
            verdict = (
                ""
                if allowed is None
                else f", allowed {allowed:g}: " + ("kept" if statistics.median(values) <= allowed else "EXCEEDED")
            )
            print(f"{name}: added, {kind} {spread(values)}{verdict}")


if __name__ == "__main__":
    main()
