"""`mala-context simulate`: what another policy would have done in recorded sessions."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.text import plural
from mala_context.cli.files import write_parquet
from mala_context.cli.inputs import chosen, engine_options, must_be_there, must_hold_rows, own_options, recordings
from mala_context.cli.progress import waiting
from mala_context.cli.scenarios.report import Lines, Table
from mala_context.cli.session_names import named

if TYPE_CHECKING:
    from mala_context.analysis.kept_by_reference import KeptByReference
    from mala_context.analysis.simulate import Outcome

_MOST_LINES = 40
"""Lines of what a policy would have done; the JSON has all."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="FILE",
    help="A mala.yaml; repeat the option to compare several.",
)
@click.option("--best", is_flag=True, help="Rank common policies, and those named, by the cost of these recordings.")
@click.option("--json", "as_json", is_flag=True, help="Print an array with an object for each recording and policy.")
@click.option("--parquet", metavar="FILE", help="Write a Parquet file with a row for each recording and policy.")
@own_options
@engine_options
def simulate(
    paths: tuple[str, ...],
    policies: tuple[str, ...],
    best: bool,
    as_json: bool,
    parquet: str | None,
    project: str | None,
    session: str | None,
    since: str | None,
    **where: Any,
) -> None:
    """Show what the policy of a mala.yaml would have done in recorded sessions.

    When it would have warned, compacted, restarted or forced a final turn, which tool results it would have capped, and
    what that would have saved. The work is taken as it was recorded. Costs are in units of one uncached input token:
    prompts with what the cache would have read and written, answers, and compactions. PATH is as for replay; without
    PATH all your own sessions are read. Exit status 3 if a policy is not there, or no row could be read.
    """
    from mala_context.analysis.simulate import POLICIES, simulate_policies
    from mala_context.config import load_config

    if not policies and not best:
        raise click.UsageError("name a policy with --policy FILE, or use --best")
    for each in policies:
        must_be_there(each)
    paths = tuple(recordings(paths, project=project, session=session, since=since))
    configs = {_name(path, policies): load_config(path) for path in policies}
    if best:
        configs = {**POLICIES, **configs}
    with chosen(**where) as engine, waiting("simulating") as progress:
        outcomes = simulate_policies(paths, configs, engine=engine, progress=progress)
    if not outcomes:
        must_hold_rows(paths)
    if parquet is not None:
        write_parquet([flat(each) for each in outcomes], parquet)
    if best:
        _rank(outcomes, list(configs), as_json=as_json)
        return
    if as_json:
        sys.stdout.write(json.dumps([each.as_dict() for each in outcomes], indent=1) + "\n")
        return
    _show(outcomes, list(configs))


def _rank(outcomes: Sequence[Outcome], names: Sequence[str], *, as_json: bool) -> None:
    """Print the policies, the cheapest first, and how much of what really happened each saves."""
    from mala_context.cli.tables import console, show

    groups = {name: [each for each in outcomes if each.policy == name] for name in names}
    costs = {name: sum(each.costs.simulated for each in group) for name, group in groups.items()}
    recorded = sum(each.costs.recorded for each in groups[names[0]])
    ranked = sorted(names, key=costs.__getitem__)
    found = [
        {
            "policy": name,
            "cost": round(costs[name]),
            "saved": round(1 - costs[name] / recorded, 4) if recorded else 0.0,
            "compactions": sum(each.simulated_compactions + each.asked for each in groups[name]),
            "restarts": sum(len(each.restarts) for each in groups[name]),
        }
        for name in ranked
    ]
    if as_json:
        count = len(groups[names[0]])
        answer = {"sessions": count, "recorded_cost": round(recorded), "best": ranked[0], "policies": found}
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
        return
    out = console()
    rows = [(*list(each.values())[:2], f"{each['saved']:.1%}", each["compactions"], each["restarts"]) for each in found]
    heading = f"{plural(len(groups[names[0]]), 'session')}; cost in uncached input tokens, saved of what happened"
    show(out, Table(heading, ("<policy", "cost", "saved", "compactions", "restarts"), rows))
    words = f"Cheapest here: {ranked[0]}, {found[0]['saved']:.1%} less than what happened."
    show(out, Lines(words, ["Tokens are priced, and nothing else: not what an agent forgets, nor the time it takes."]))


def flat(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as one row of plain values: a list as its length, with its JSON after it."""
    row: dict[str, Any] = {}
    for key, value in outcome.as_dict().items():
        if isinstance(value, list) or key == "capped":
            row[key], row[f"{key}_json"] = len(value), json.dumps(value)
        elif isinstance(value, dict):
            row |= {f"{key}_{name}": number for name, number in value.items()}
        else:
            row[key] = value
    return row


def _name(path: str, policies: Sequence[str]) -> str:
    """Return a policy's short name, or its whole path if another policy has the same short name."""
    short = os.path.splitext(os.path.basename(path))[0]
    return path if sum(os.path.splitext(os.path.basename(each))[0] == short for each in policies) > 1 else short


def _show(outcomes: Sequence[Outcome], names: Sequence[str]) -> None:
    from mala_context.cli.tables import console, show

    out = console()
    groups = {name: [each for each in outcomes if each.policy == name] for name in names}
    count = len(groups[names[0]])
    lines_shown = [*_LINES, *(_BY_REFERENCE if any(each.by_reference for each in outcomes) else ())]
    rows = [(words, *(value(groups[name]) for name in names)) for words, value in lines_shown]
    show(out, Table(plural(count, "session"), ("<", *names), rows))
    for name in names:
        lines = [(line, each.path) for each in groups[name] for line in _events(each)]
        if lines:
            shown = [named(line, path, out.file, out.width) for line, path in lines[:_MOST_LINES]]
            shown += [f"{len(lines) - _MOST_LINES:,} more; --json has all"] if len(lines) > _MOST_LINES else []
            show(out, Lines(f"{name}: what it would have done, and where", shown))


def _events(outcome: Outcome) -> list[str]:
    found = [(row, "warn") for row in outcome.warnings]
    found += [(row, "compact") for row in outcome.compactions_asked]
    found += [(row, "compact while idle") for row in outcome.idle_compactions]
    found += [(row, "restart") for row in outcome.restarts]
    found += [(row, "final turn") for row in outcome.final_turns]
    found += [(kept.row, _by_reference(kept)) for kept in outcome.by_reference]
    lines = [f"{outcome.path}:{row}: {words}" for row, words in sorted(found)]
    for tool, (results, tokens) in sorted(outcome.capped.items()):
        lines.append(f"{outcome.path}: {plural(results, 'result')} of {tool} capped, {tokens:,} tokens less")
    return lines


def _by_reference(kept: KeptByReference) -> str:
    before = "" if kept.before is None else f" of {kept.before:,}"
    return f"by reference, {kept.tokens:,}{before} tokens stay"


def _sum(name: str) -> Any:
    return lambda group: sum(getattr(each, name) for each in group)


def _count(name: str) -> Any:
    return lambda group: sum(len(getattr(each, name)) for each in group)


def _first(name: str) -> Any:
    def median(group: Sequence[Outcome]) -> Any:
        turns = sorted(value for each in group if (value := getattr(each, name)) is not None)
        return turns[len(turns) // 2] if turns else None

    return median


def _kept(share: float) -> Any:
    def quantile(group: Sequence[Outcome]) -> Any:
        tokens = sorted(kept.tokens for each in group for kept in each.by_reference)
        return tokens[min(len(tokens) - 1, int(share * len(tokens)))] if tokens else None

    return quantile


_LINES: Sequence[tuple[str, Any]] = (
    ("prompt tokens as recorded", _sum("recorded_tokens")),
    ("prompt tokens simulated", _sum("simulated_tokens")),
    ("tokens saved", lambda group: sum(each.recorded_tokens - each.simulated_tokens for each in group)),
    ("cost as recorded", lambda group: round(sum(each.costs.recorded for each in group))),
    ("cost simulated", lambda group: round(sum(each.costs.simulated for each in group))),
    ("cost saved", lambda group: round(sum(each.costs.recorded - each.costs.simulated for each in group))),
    ("compactions as recorded", _sum("recorded_compactions")),
    ("compactions by the CLI, simulated", _sum("simulated_compactions")),
    ("compactions asked for", _count("compactions_asked")),
    ("compactions while idle", _count("idle_compactions")),
    ("turns until the first, recorded", _first("recorded_first")),
    ("turns until the first, simulated", _first("simulated_first")),
    ("warnings", _count("warnings")),
    ("restarts", _count("restarts")),
    ("final turns", _count("final_turns")),
    ("tool results capped", lambda group: sum(counts[0] for each in group for counts in each.capped.values())),
)
"""Words and value of each line of the table."""
_BY_REFERENCE: Sequence[tuple[str, Any]] = (
    ("compactions by reference", lambda group: sum(len(each.by_reference) for each in group)),
    ("tokens that these keep, median", _kept(0.5)),
    ("tokens that these keep, 90th percentile", _kept(0.9)),
    ("tokens that these keep, largest", _kept(1.0)),
    (
        "messages of the user that became pointers",
        lambda group: sum(kept.pointed_at for each in group for kept in each.by_reference),
    ),
)
"""Further lines of the table, if a policy compacts by reference."""
