"""What is wrong on this machine, and how to mend it.

Two halves that know only `facts` of each other: `gather` looks at the machine and changes nothing on purpose, `checks`
is a table of pure functions from facts to findings. A fact that nobody gathered is `None`, and its check is then passed
over rather than passed.
"""

from __future__ import annotations

from mala_context.analysis.doctor.checks import CHECKS, Checked, examine
from mala_context.analysis.doctor.facts import Facts
from mala_context.analysis.doctor.findings import Check, Finding
from mala_context.analysis.doctor.gather import gather

__all__ = ["CHECKS", "Check", "Checked", "Facts", "Finding", "examine", "gather"]
