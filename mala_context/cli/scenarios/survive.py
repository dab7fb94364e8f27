"""The scenario `survive`: six planted sentences, five compactions, three ways; what is left of each sentence.

The ways are the CLI's own summaries, the same with `pin: auto`, and `compaction: reference`. The summaries are scripted
and no model's, so the first two rows show what becomes of a sentence that a summary does not repeat. The keys of the
result: for each way `model_requests`, `tokens` (of the first request after each compaction) and `fates` (by kind, one
after each compaction); `rounds`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from mala_context.cli.scenarios.report import Check, Lines, Report, Stage, Table, environment
from mala_context.testing.survival import CANARIES, SCRIPTED_SUMMARY, Survival, play_survival

ROUNDS: Final = 5
WAYS: Final = {
    "CLI's summary": "",
    "pin: auto": "context: {pin: auto}",
    "reference": "context: {compaction: reference}",
}
"""Name → what would stand in `mala.yaml`."""


async def play(stage: Stage) -> Report:
    """Play the three sessions and check the last. Raises what the SDK raises where the CLI cannot be run."""
    found: dict[str, Survival] = {}
    for number, (name, config) in enumerate(WAYS.items()):
        where = {"cwd": stage.place(f"project-{number}"), "home": stage.place(f"home-{number}")}
        with environment("MALA_RUNS_DIR", stage.place("runs")):
            found[name] = await play_survival(rounds=ROUNDS, config=config, options=where)
        stage.on_turn(number + 1)
    rows: list[list[Any]] = [
        [canary.kind, *(_in_words(_fates(each, canary)) for each in found.values())] for canary in CANARIES
    ]
    rows.append(["requests to a model", *(each.model_requests for each in found.values())])
    ours = found["reference"]
    lost = [canary.kind for canary in CANARIES if ours.fate(canary) != "verbatim"]
    checks = [
        Check("verbatim", not lost, f"by reference {len(CANARIES) - len(lost)} of {len(CANARIES)} stand word for word"),
        Check("no_model", ours.model_requests == 0, f"by reference, requests for a summary: {ours.model_requests}"),
    ]
    data: dict[str, Any] = {"rounds": ROUNDS}
    for name, each in found.items():
        fates = {canary.kind: list(_fates(each, canary)) for canary in CANARIES}
        data[name] = {"model_requests": each.model_requests, "tokens": list(each.tokens), "fates": fates}
    parts: list[Table | Lines] = [
        Table(f"What is left after each of {ROUNDS} compactions", ["<sentence", *(f"<{name}" for name in found)], rows),
        Lines("The summary was scripted, and is no model's", [SCRIPTED_SUMMARY]),
    ]
    return Report(data, parts, checks)


def _in_words(fates: list[str]) -> str:
    """Return one fate where it is the same after each compaction, else each with the number of compactions."""
    counts = Counter(fates)
    return fates[0] if len(counts) == 1 else ", ".join(f"{number}x {fate}" for fate, number in counts.items())


def _fates(survival: Survival, canary: Any) -> list[str]:
    return [each[canary.text] for each in survival.rounds]
