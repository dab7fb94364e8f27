"""What an archive did, as one record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mala_context.agent.telemetry.records import Archived

if TYPE_CHECKING:
    from mala_context.archive.records import ArchiveResult


def tell_archived(
    tell: Callable[[object], object], trigger: str, begun: float, results: Iterable[ArchiveResult | None]
) -> None:
    """Tell what was written since `begun`, a reading of the monotonic clock; that nothing was new is no news."""
    new = [result for result in results if result is not None and result.archived]
    if new:
        size, seconds = sum(result.bytes for result in new), time.monotonic() - begun
        tell(Archived(new[0].session_id, trigger, len(new), size, seconds, new[0].path))
