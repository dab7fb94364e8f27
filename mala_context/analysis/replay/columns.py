"""A block of a transcript as columns.

`skim` is written in C (`_skim.c`) and passes over text at some gigabytes a second. If the package was installed without
a compiler, `decoded_columns` decodes each row and gives the same, with one row in each run.
"""

from __future__ import annotations

from importlib import import_module

from mala_context.analysis.replay.row_runs import Skim

skim: Skim
try:
    skim = import_module("mala_context.analysis.replay._skim").stretches
except (ImportError, AttributeError):  # not compiled, or a file of another version of this package
    skim = import_module("mala_context.analysis.replay.decoded_columns").skim
