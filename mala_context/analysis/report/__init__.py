"""Recorded sessions as one file to look at: a page, a picture, or their data.

`build_report` reads; `page` makes the page (extra `report`), `svg_chart` the SVG. Neither loads anything else.
"""

from __future__ import annotations

from mala_context.analysis.report.gather import build_report, observe_transcript
from mala_context.analysis.report.model import CompactionEntry, ContextReport, Mark, NamedTokens, SessionReport
from mala_context.analysis.report.observe import ReportOptions

__all__ = [
    "CompactionEntry",
    "ContextReport",
    "Mark",
    "NamedTokens",
    "ReportOptions",
    "SessionReport",
    "build_report",
    "observe_transcript",
]
