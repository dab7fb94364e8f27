"""Your own loop over two providers, with the guard and without the SDK.

An agent works on a report until the context is full. Before each request the guard says which models can still hold it:
first both models, then only the large one. When no model can, the guard forces the final turn, in which only the tools
for the report and its metadata remain. Tool results pass a budget, which caps long results to half of the free part.

It runs offline: a line of Python plays the models. Run it, with the guard's calculation on standard error, with

    CONTEXT_DEBUG=true python examples/multi_provider_guard.py
"""

from __future__ import annotations

import anyio

from mala_context import ContextGuard, Requirement, TargetContextConfig, ToolBudget, debug_printer

TARGETS = (
    TargetContextConfig(provider="local", model="small", window=20_000),
    TargetContextConfig(provider="cloud", model="large", window=60_000, max_output_tokens=4_000),
)
TOOLS = {"search": 1_200, "write_report": 300, "set_metadata": 200}  # tokens of each tool's description
REPORT = Requirement("the report", ("write_report",), main=True)
METADATA = Requirement("its metadata", ("set_metadata",))


async def main() -> None:
    """Run the loop to its end."""
    guard = ContextGuard(
        TARGETS,
        schema=sum(TOOLS.values()),
        finishing_schema=TOOLS["write_report"] + TOOLS["set_metadata"],
        requirements=(REPORT, METADATA),
        on_event=lambda event: print(f"    {event.message or event.name}: {event.fields['outcome']}"),
        on_debug=debug_printer(),
    )
    budget = ToolBudget(guard, tool_output_tokens="auto")
    guard.add_pending(500)  # the prompt
    while not guard.final_turn.ready:
        target = guard.preflight()[0]  # the first that can hold the next request
        final = guard.final_reason is not None
        tools = guard.final_turn.tools(("write_report",)) if final else tuple(TOOLS)
        print(f"{target.provider}/{target.model}: {guard.projected:,} tokens, tools {', '.join(tools)}")
        tool = tools[0]  # plays the model: it searches as long as it may
        guard.add_new(50)
        result = "words and words " * 3_000 if tool == "search" else "saved"
        reservation, seen = await budget.fit(result, "full/result.txt")
        print(f"    {tool}: {reservation.tokens:,} tokens, {reservation.reason or f'joined: {seen[:15]}…'}")
        if not reservation.ok:
            guard.add_new(20)  # the text of the refusal, in place of the result
        elif tool != "search":
            guard.final_turn.meet("the report" if tool == "write_report" else "its metadata")
        guard.commit()
    print(f"Finished; the final turn's reason: {guard.final_reason}")


if __name__ == "__main__":
    anyio.run(main)
