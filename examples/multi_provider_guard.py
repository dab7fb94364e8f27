"""A loop of one's own over two providers, with the guard and without the SDK.

An agent works on a report until the context is full. The guard says before each request which model can still hold it:
first both can, then the small one is skipped, and when none can the final turn is forced, in which only the tools for
the report and its metadata remain. Tool results pass a budget: long ones are capped to half of what is left.

Nothing here needs a network: the models are played by a few lines of Python. Run it with

    python examples/multi_provider_guard.py
"""

from __future__ import annotations

import anyio

from mala_context.guard import ContextGuard, GuardEvent, Requirement, TargetContextConfig
from mala_context.guard_log import debug_printer
from mala_context.tool_budget import ToolBudget

TARGETS = (
    TargetContextConfig(provider="local", model="small", window=20_000),
    TargetContextConfig(provider="cloud", model="large", window=60_000, max_output_tokens=4_000),
)
REQUIREMENTS = (
    Requirement("the report", ("write_report",), main=True),
    Requirement("the report's metadata", ("set_metadata",)),
)
TOOLS = {"search": 1_200, "write_report": 300, "set_metadata": 200}
"""Tokens of each tool's description."""


def ask_model(tools: tuple[str, ...]) -> str:
    """Play a model: search as long as there is a tool for it, then do what is left to do."""
    return next((tool for tool in ("search", "write_report", "set_metadata") if tool in tools), "")


def run_tool(tool: str, turn: int) -> str:
    """Play a tool: searches give a lot of text."""
    return f"result {turn}: " + "words and words " * 3_000 if tool == "search" else "saved"


def report(event: GuardEvent) -> None:
    """Show what the guard says: an application would log it."""
    print(f"    {event.message or event.name}: {event.fields['outcome']}, {event.fields['projected_tokens']:,} tokens")


async def main() -> None:
    """Run the loop to its end."""
    guard = ContextGuard(
        TARGETS,
        schema=sum(TOOLS.values()),
        finishing_schema=TOOLS["write_report"] + TOOLS["set_metadata"],
        requirements=REQUIREMENTS,
        on_event=report,
        on_debug=debug_printer(),
    )
    budget = ToolBudget(guard, tool_output_tokens="auto")
    guard.add_pending(500)
    for turn in range(1, 30):
        target = guard.preflight()[0]
        final = guard.final_reason is not None
        tools = guard.final_turn.tools(("write_report",)) if final else tuple(TOOLS)
        size = guard.log_fields(target)["expected_tokens"]
        print(f"{turn:2}. {target.provider}/{target.model}: {size:,} tokens, tools {', '.join(tools)}")
        tool = ask_model(tools)
        guard.add_new(50)
        reservation, seen = await budget.fit(run_tool(tool, turn), f"full/{turn}.txt")
        outcome = f"joined: {seen[:18]}…" if reservation.ok else reservation.reason
        print(f"    {tool}: {reservation.tokens:,} tokens, {outcome}")
        if not reservation.ok:
            guard.add_new(20)  # the words of the refusal
        elif tool != "search":
            guard.final_turn.meet("the report" if tool == "write_report" else "the report's metadata")
        guard.commit()
        if final and guard.final_turn.ready:
            print(f"Finished in turn {turn}; the final turn's reason: {guard.final_reason}")
            return
    raise SystemExit("the loop did not end")


if __name__ == "__main__":
    anyio.run(main)
