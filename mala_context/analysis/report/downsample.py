"""Fewer points for the same picture: of each stretch of a line its first, lowest, highest and last point stay."""

from __future__ import annotations

from typing import Final

from mala_context.analysis.report.model import Points

MOST_POINTS: Final = 20_000
"""Points of one line in a page."""


def thinned(points: Points, most: int = MOST_POINTS) -> Points:
    """Return the points, or at most about `most` of them; gaps and estimates (what is around a compaction) stay."""
    count = len(points)
    if count <= most:
        return points
    step = max(1, -(-4 * count // most))
    kept = {place for place in range(count) if not points.exact[place]}
    for start in range(0, count, step):
        known = [place for place in range(start, min(count, start + step)) if points.tokens[place] is not None]
        if known:
            sizes = {place: points.tokens[place] or 0 for place in known}
            kept |= {known[0], known[-1], min(known, key=sizes.__getitem__), max(known, key=sizes.__getitem__)}
    return points.chosen(sorted(kept))
