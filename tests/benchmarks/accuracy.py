"""How good the numbers are, against what was promised: `python tests/benchmarks/accuracy.py UNSELECTED [CHOSEN]`.

UNSELECTED are recordings that nobody chose, CHOSEN such as were chosen for long sessions; any folders will do. The last
lines are a table: a figure, how it is now, and its bar. Errors are shares in percent, median / p90 / p99 / max, worst
beside best. What is fitted was fitted on both folders: `fit_text.py` says what prices do that were fitted on other
projects.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from folders import folders

from mala_context.analysis.audit import collect
from mala_context.analysis.error_stats import errors, spread, summarise
from mala_context.analysis.ground_truth import Findings, Observation
from mala_context.tracking.token_costs import thinking_tokens
from mala_context.tracking.windows import GUESSES, TABLE

CACHE = ("creation", "read")
VALUES = ("median", "p90", "p99", "max")
MAX = 20.0
BARS = {
    "all": (0.05, 0.45, 2.5, MAX),
    "main": (0.04, 0.28, 2.0, MAX),
    "chosen": (0.047, 0.29, 1.99, None),
    "pre": (0.045, 0.25, 0.95, None),
}


class Line(NamedTuple):
    """A figure of the table."""

    name: str
    now: str
    bar: str
    met: bool


def next_prompts(findings: Findings, *, main_alone: bool = False) -> list[Observation]:
    """Return the truths of the next prompt, of the main agents' files alone if asked."""
    found = [each for each in findings.observations if each.truth == "next_prompt"]
    return [each for each in found if not main_alone or "agent" not in each.file.rsplit("/", 1)[-1]]


def unseen(each: Observation) -> bool:
    """Tell whether a request holds more tokens than the rows since the request before have bytes.

    A token has one byte at least, so no price of a row could have projected this request: it holds what no row shows.
    """
    opened = gzip.open(each.file, "rb") if each.file.endswith(".gz") else open(each.file, "rb")  # noqa: SIM115
    with opened as file:
        rows = file.readlines()[: each.row - 1]
    came, responded = 0, None
    for row in reversed(rows):
        message = json.loads(row).get("message") or {}
        if responded is not None and message.get("id") != responded:
            break
        came += len(row)
        usage = message.get("usage") or {}
        prompt = sum(usage.get(name) or 0 for name in ("input_tokens", *(f"cache_{do}_input_tokens" for do in CACHE)))
        if prompt:
            responded, before = message["id"], prompt
    return responded is not None and each.tokens - before > came


def line(name: str, observations: Sequence[Observation], bar: Sequence[float | None], number: str) -> Line:
    """Hold the errors of one of our numbers against a bar in percent."""
    found = spread(errors(observations, number))
    now = [100 * (found[value] or 0) for value in VALUES]
    met = all(most is None or value <= most for value, most in zip(now, bar, strict=True))
    words = " / ".join(f"{value:.3g}" for value in now)
    return Line(f"{name} (n {len(observations):,})", words, " / ".join(f"{each:g}" for each in bar if each), met)


def off(each: Observation) -> float:
    """Return by how many percent the projection misses a request."""
    return 100 * max(map(abs, errors([each], "projected")), default=0.0)


def as_live(name: str, replayed: Findings, live: Findings) -> Line:
    """Hold the p90 of the next prompt as live against 1.35 times that of the replay."""
    found = spread(errors(next_prompts(live), "projected"))
    p90 = found["p90"] or 0
    times = p90 / (spread(errors(next_prompts(replayed), "projected"))["p90"] or 1)
    now = " / ".join(f"{100 * (found[value] or 0):.3g}" for value in VALUES)
    return Line(f"the same as live, {name}", f"{now}; p90 {times:.2f} x replay's", "p90 at most 1.35 x", times <= 1.35)


def lines(unselected: str, chosen: str | None) -> Iterator[Line]:
    """Yield the table's lines."""
    found, live = collect([unselected]), collect([unselected], as_live=True)
    yield line("next prompt, unselected", next_prompts(found), BARS["all"], "projected")
    shown = [each for each in next_prompts(found) if not (off(each) > MAX and unseen(each))]
    yield line("the same, less what no row shows", shown, BARS["all"], "projected")
    yield line("the same, main files", next_prompts(found, main_alone=True), BARS["main"], "projected")
    if chosen is not None:
        whole = collect([chosen])
        yield line("next prompt, chosen", next_prompts(whole), BARS["chosen"], "projected")
        yield as_live("chosen", whole, collect([chosen], as_live=True))
        there = [each for each in whole.observations if each.truth == "pre_tokens" and each.parent_missing is False]
        yield line("preTokens, parent in file", there, BARS["pre"], "cli_estimate")
        apart = summarise(whole)["truths"]["pre_tokens"]["apart"]["n"]
        yield Line("preTokens that measure nothing", f"{apart} counted apart", "", met=True)
    yield as_live("unselected", found, live)
    missed = 100 * abs(thinking_tokens(20_000, "claude-opus-5") - 6_000) / 36_000
    yield Line("6,000 hidden thinking tokens after 30,000", f"{missed:.2f} % off", "2 %", missed <= 2)
    yield Line(
        "names with a window as the CLI says", str(len(TABLE) + len(GUESSES)), "tests/e2e/test_windows.py", met=True
    )


def main(unselected: str, chosen: str | None = None) -> None:
    """Print the table."""
    table = list(lines(unselected, chosen))
    width = max(len(each.name) for each in table)
    print(f"{'figure':{width}}  {'now':48}  bar")
    for each in table:
        print(f"{each.name:{width}}  {each.now:48}  {each.bar}{'' if each.met else '  NOT MET'}")


if __name__ == "__main__":
    main(*folders(__doc__, 1, 2)[0])
