"""Recorded sessions as one file to look at: a page, a picture, or the data behind them.

`report` reads; `page` makes the page (extra `report`), `picture` the SVG. Nothing in either comes from elsewhere.
"""

from __future__ import annotations

from mala_context.analysis.report.gather import observe_transcript, report
from mala_context.analysis.report.model import CompactionEntry, Report, SessionReport
from mala_context.analysis.report.observe import Looking

__all__ = ["CompactionEntry", "Looking", "Report", "SessionReport", "observe_transcript", "report"]
