"""A block of a transcript as columns.

`skim` is in C (`_skim.c`), which passes over text at some gigabytes a second; where this was installed without a
compiler, `decoded_columns` decodes each row and gives the same, a row a stretch.
"""

from __future__ import annotations

from importlib import import_module

from mala_context.analysis.replay.row_runs import Skim

skim: Skim
try:
    skim = import_module("mala_context.analysis.replay._skim").stretches
except (ImportError, AttributeError):  # not there, or left from another version
    skim = import_module("mala_context.analysis.replay.decoded_columns").skim
