"""What `replay --cache` prints: what the prompt cache read and wrote, and which tokens it wrote a second time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.text import plural
from mala_context.tracking.cache import CAUSES

if TYPE_CHECKING:
    from mala_context.analysis.cache import AgentCache

FORMATS: Final = ("table", "json", "ndjson")
MOST_SHOWN: Final = 10
"""Re-writes that the table lists, the dearest."""


def write(agents: Sequence[AgentCache], form: str, out: Any, *, money: bool) -> None:
    """Write all agents in one of `FORMATS`, with an estimate in US dollars where `money` is set."""
    if form == "table":
        _table(agents, out, money=money)
        return
    lines = [json.dumps(agent.as_dict(money=money)) for agent in agents]
    out.write("[\n" + ",\n".join(lines) + "\n]\n" if form == "json" else "".join(f"{line}\n" for line in lines))


def _table(agents: Sequence[AgentCache], out: Any, *, money: bool) -> None:
    from mala_context.analysis.cache import total
    from mala_context.cli.scenarios.report import Lines, Table
    from mala_context.cli.tables import console, show

    screen, use = console(out), total(agents)
    written = use.written_5m + use.written_1h
    rows = [
        ("read from the cache", use.read),
        ("written for 5 minutes", use.written_5m),
        ("written for an hour", use.written_1h),
        ("neither", use.uncached),
    ]
    responses = sum(len(agent.responses) for agent in agents)
    show(screen, Table(f"{plural(responses, 'response')} of {plural(len(agents), 'agent')}", ("<", "tokens"), rows))
    causes = [(CAUSES[cause], *each[:2], round(each.cost)) for cause, each in use.causes]
    causes.sort(key=lambda row: -row[3])
    share = f"{use.rewritten / written:.1%}" if written else "none"
    show(screen, Table(f"Written again: {share} of what was written", ("<cause", "requests", "tokens", "cost"), causes))
    screen.print("cost: beyond that of reading them, in units of an uncached input token")
    again = [(agent, each) for agent in agents for each in agent.written if each.rewrite.again]
    again.sort(key=lambda pair: -pair[1].rewrite.cost)
    if again:
        lines = [f"{agent.path}:{each.row}: {each.rewrite.line}" for agent, each in again[:MOST_SHOWN]]
        show(screen, Lines("Written again, the dearest first", lines))
    if money:
        spent = sum(agent.dollars or 0.0 for agent in agents)
        screen.print(f"\nAt list prices, an estimate: to write again cost ${spent:,.2f} more than to read.")
