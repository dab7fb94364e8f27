"""What a decision of the guard and of the policy costs. Run: python tests/benchmarks/guard.py [--json]

Prints the median of several rounds, in microseconds a decision; exits 1 where one is over its bound.
"""

import json
import statistics
import sys
import time
from types import SimpleNamespace

import anyio

from mala_context.guard import ContextGuard, FinalGate, TargetContextConfig
from mala_context.policy import Policy, Thresholds
from mala_context.tool_budget import ToolBudget

BOUND = 20.0
ROUNDS, CALLS = 15, 2_000
GIT = {"command": "cd /repo && git commit -m 'a message'"}


def guard(**kwargs):
    targets = [TargetContextConfig(provider="p", model=str(size), window=size) for size in (20_000, 200_000, 1_000_000)]
    return ContextGuard(targets, current=50_000, schema=9_000, **kwargs)


def measure(call):
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - started) / CALLS)
    return statistics.median(rounds) * 1e6


def reserve():
    async def main():
        budget = ToolBudget(ContextGuard([TargetContextConfig(provider="p", model="m", window=10**9)]))
        rounds = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            for _ in range(CALLS):
                await budget.reserve("a tool result")
            rounds.append((time.perf_counter() - started) / CALLS)
        return statistics.median(rounds) * 1e6

    return anyio.run(main)


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


def main():
    plain, said = guard(), guard(on_event=lambda event: None)
    gate = FinalGate(("Write", "Edit", "TodoWrite", "Bash(git *)"))
    figures = {
        "guard.evaluate": measure(plain.evaluate),
        "guard.evaluate_target": measure(lambda: plain.evaluate_target("p", "200000")),
        "guard.preflight, one target skipped and said": measure(said.preflight),
        "gate.ask, a name": measure(lambda: gate.ask("Write")),
        "gate.ask, a command": measure(lambda: gate.ask("Bash", GIT)),
        "budget.reserve, with its lock": reserve(),
        "policy.decide": decide(),
    }
    if "--json" in sys.argv:
        print(json.dumps(figures))
    else:
        for name, figure in figures.items():
            print(f"{figure:7.2f} µs  {name}")
    return int(any(figure > BOUND for figure in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
