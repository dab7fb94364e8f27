"""What a decision of the guard and of the policy costs. Run: python tests/benchmarks/guard.py [--json]

Prints the median of several rounds, in microseconds of processor time a decision; exits 1 where one is over its bound.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from types import SimpleNamespace

import anyio
from claims import Figure
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, SystemMessage, TextBlock

from mala_context.agent.builder import instrument
from mala_context.agent.tool_cap import ToolCap
from mala_context.archive.full_outputs import Spills
from mala_context.config import ArchiveConfig, ContextConfig, GuardConfig
from mala_context.guard import ContextGuard, FinalGate, TargetContextConfig
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import Thresholds
from mala_context.guard.tool_budget import ToolBudget
from mala_context.tracking.events import Appended
from mala_context.tracking.tracker import ContextTracker

BOUND = 20.0
HOOK_BOUND = 1_000.0
ROUNDS, CALLS = 15, 2_000
GIT = {"command": "cd /repo && git commit -m 'a message'"}


def guard(**kwargs):
    targets = [TargetContextConfig(provider="p", model=str(size), window=size) for size in (20_000, 200_000, 1_000_000)]
    return ContextGuard(targets, current=50_000, schema=9_000, **kwargs)


def measure(call):
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.process_time() - started) / CALLS)
    return statistics.median(rounds) * 1e6


def reserve():
    async def main():
        budget = ToolBudget(ContextGuard([TargetContextConfig(provider="p", model="m", window=10**9)]))
        rounds = []
        for _ in range(ROUNDS):
            started = time.process_time()
            for _ in range(CALLS):
                await budget.reserve("a tool result")
            rounds.append((time.process_time() - started) / CALLS)
        return statistics.median(rounds) * 1e6

    return anyio.run(main)


def hook(cap, hook_input):
    """Measure the callback of a PostToolUse hook, with its batch's end, without any disk work."""

    async def main():
        rounds = []
        for _ in range(ROUNDS):
            started = time.process_time()
            for _ in range(CALLS // 10):
                assert await cap.after_tool(hook_input) is None
                await cap.after_batch(hook_input)
            rounds.append((time.process_time() - started) / (CALLS // 10))
        return statistics.median(rounds) * 1e6

    return anyio.run(main)


def hooks():
    """Return what a tool result costs that is not cut: a short one, and one of just under the cap."""
    tracker = ContextTracker()
    cap = ToolCap(GuardConfig(tool_output_tokens="auto"), Spills("/nowhere"), tracker)
    figures = {}
    for name, text in (("short", "a result"), ("30,000 characters", "w" * 30_000), ("not ASCII", "wörter " * 3_000)):
        response = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
        hook_input = {"session_id": "s", "tool_name": "Bash", "tool_input": {}, "tool_response": response}
        figures[f"hook PostToolUse, {name}"] = hook(cap, hook_input)
    return figures


def acting():
    """Return what the other callbacks cost while tool results pile up, a new one of 6,000 characters each time.

    They are called as the SDK calls them; the gauge reads nothing, since the processor is fed.
    """
    config = ContextConfig(final_at=0.95, restart_at=0.9, archive=ArchiveConfig(enabled=False))
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "2026-01-01 request 17 answered in 3 ms " * 150}]
    inputs = {
        "UserPromptSubmit": {"prompt": "Go on."},
        "PreToolUse": {"tool_name": "Bash", "tool_input": GIT},
        "PostToolBatch": {},
    }

    async def one(event):
        runtime = instrument(ClaudeAgentOptions(), config=config)
        processor = runtime.processor
        processor.process(SystemMessage("init", {"session_id": "s", "model": "claude-sonnet-4-5"}))
        usage = {"input_tokens": 50_000, "output_tokens": 1}
        processor.process(AssistantMessage([TextBlock("x")], "m", usage=usage, message_id="m1", session_id="s"))
        callbacks = [callback for matcher in runtime.options.hooks[event] for callback in matcher.hooks]
        given = {"hook_event_name": event, "session_id": "s", "transcript_path": "/nowhere", **inputs[event]}
        times = []
        for _ in range(40):
            processor.take(Appended(None, "s", "user", result))
            started = time.process_time()
            for callback in callbacks:
                await callback(given, None, {})
            times.append(time.process_time() - started)
        return statistics.median(times) * 1e6

    return {f"hook {event}": anyio.run(one, event) for event in inputs}


def decide():
    policy = Policy(Thresholds(compact_at=0.8, restart_at=0.9, final_at=0.95))
    snapshot = SimpleNamespace(
        session_id="s",
        tokens=120_000,
        projected=125_000,
        window=200_000,
        ratio=0.6,
        estimator="occupancy",
        auto_compact_threshold=167_000,
    )
    return measure(lambda: policy.decide(snapshot, 1.0, safe=True, new_prompt=True))


def costs():
    """Microseconds of each kind of decision."""
    plain, said = guard(), guard(on_event=lambda event: None)
    gate = FinalGate(("Write", "Edit", "TodoWrite", "Bash(git *)"))
    return {
        "guard.evaluate": measure(plain.evaluate),
        "guard.evaluate_target": measure(lambda: plain.evaluate_target("p", "200000")),
        "guard.preflight, one target skipped and said": measure(said.preflight),
        "gate.ask, a name": measure(lambda: gate.ask("Write")),
        "gate.ask, a command": measure(lambda: gate.ask("Bash", GIT)),
        "budget.reserve, with its lock": reserve(),
        "policy.decide": decide(),
        **hooks(),
        **acting(),
    }


def bound_of(name):
    return HOOK_BOUND if name.startswith("hook ") else BOUND


def figures(quick):
    """What `main` prints, for `all.py`."""
    os.environ["MALA_RUNS_DIR"] = tempfile.mkdtemp(prefix="mala-context-bench-")
    for name, figure in costs().items():
        yield Figure(f"guard: {name}", figure, "µs", bound=bound_of(name))


def main():
    figures = costs()
    if "--json" in sys.argv:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{figure:7.2f} µs  {name}")
    return int(any(figure > bound_of(name) for name, figure in figures.items()))


if __name__ == "__main__":
    os.environ["MALA_RUNS_DIR"] = tempfile.mkdtemp(prefix="mala-context-bench-")  # never the user's own
    sys.exit(main())
