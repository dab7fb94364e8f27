"""Fit the prices of `mala_context.tracking.projection` to recorded transcripts.

Run `python tests/benchmarks/fit_text.py FOLDER...`, where a folder has transcripts, `*.jsonl` or `*.jsonl.gz`;
recordings of your own do. It prints the errors of the next request, in percent: by chars/4, by the table that is
shipped, and by tables of which each was fitted without the projects that it is tested on (five folds, by the folder
that the rows name; a session by itself where they name none). Then come the table fitted on all, ready to be copied,
and what a character of a thinking's signature stands for, by model, with the error of a rate that was fitted on the
other projects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from folders import folders

from mala_context.analysis.cross_validation import CONSTANTS, COUNTS, Sample, fit, folded, predict, sample
from mala_context.analysis.error_stats import percentile, spread
from mala_context.analysis.replay.engine import read_all
from mala_context.analysis.replay.files import find
from mala_context.tracking.token_costs import FAMILIES

FOLDS = 5
VALUES = ("median", "p90", "p99", "max")


def figures(errors: Iterable[float]) -> str:
    """Return median, p90, p99 and maximum in percent."""
    found = spread(errors)
    return " / ".join(f"{100 * (found[value] or 0):.3f}" for value in VALUES)


def tested(parts: Sequence[Sequence[Sample]]) -> list[float]:
    """Return the errors of tables that were fitted without the projects that they are tested on."""
    errors = []
    for place, part in enumerate(parts):
        others = [each for other in (*parts[:place], *parts[place + 1 :]) for each in other]
        errors += predict(part, {name: fit([each for each in others if each.family == name]) for name in FAMILIES})
    return errors


def line(answers: Sequence[Sample]) -> tuple[float, float] | None:
    """Fit tokens of thinking as a line over the signature's length; `None` for fewer than ten answers.

    Least absolute deviations: the line through two of the answers, tried over pairs that lie far apart.
    """
    points = sorted((signed, left) for _, signed, left in filter(None, (each.thought for each in answers)))
    if len(points) < 10:
        return None
    step = max(1, len(points) // 60)
    best = None
    for low in points[: len(points) // 2 : step]:
        for high in points[len(points) // 2 :: step]:
            if high[0] > low[0]:
                rate = (high[1] - low[1]) / (high[0] - low[0])
                added = low[1] - rate * low[0]
                off = sum(abs(added + rate * signed - left) for signed, left in points)
                best = min(best, (off, added, rate)) if best else (off, added, rate)
    return best[1:] if best else None


def thinking(parts: Sequence[Sequence[Sample]]) -> None:
    """Print the line of each model over all its answers, and the error of lines that other projects' answers gave."""
    models = sorted({each.thought[0] for part in parts for each in part if each.thought})
    for model in models:
        own = [[each for each in part if each.thought and each.thought[0] == model] for part in parts]
        errors = []
        for place, part in enumerate(own):
            found = line([each for other in (*own[:place], *own[place + 1 :]) for each in other])
            if found is not None:
                errors += [abs(found[0] + found[1] * each.thought[1] - each.thought[2]) for each in part]
        errors.sort()
        middle, most = (percentile(errors, share) if errors else float("nan") for share in (0.5, 0.9))
        whole = line([each for part in own for each in part])
        words = f"{whole[0]:6.0f} + {whole[1]:.4f}" if whole else "too few"
        count = sum(map(len, own))
        print(f"  {model:32} {words:16} n = {count:5}, cross-fitted error {middle:5.0f} / {most:5.0f}")


def main(folders: Sequence[str]) -> None:
    """Print all of it."""
    found: list[Sample] = [each for part in [read_all(find(folders), sample)] for each in part]
    samples = sorted(found, key=lambda each: each.thread)
    parts = folded(samples, FOLDS)
    projects = len({each.group for each in samples})
    print(f"{len(samples):,} next requests of {projects} projects; median / p90 / p99 / max of the error in %")
    print(f"  chars/4                        {figures((each.quarter - each.truth) / each.truth for each in samples)}")
    print(f"  the table that is shipped      {figures((each.shipped - each.truth) / each.truth for each in samples)}")
    print(f"  fitted on the other projects   {figures(tested(parts))}")
    for name in FAMILIES:
        prices = fit([each for each in samples if each.family == name])
        print(name, {key: round(price, 3) for key, price in zip((*COUNTS, *CONSTANTS), prices, strict=True)})
    print("tokens of thinking for a character of its signature; median / p90 in tokens")
    thinking(parts)


if __name__ == "__main__":
    main(folders(__doc__)[0])
