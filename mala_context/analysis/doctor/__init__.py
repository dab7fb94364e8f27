"""What is wrong on this machine, and how to fix it.

Two halves that share only `facts`: `gather` looks at the machine and changes nothing on purpose, `checks` is a table of
pure functions from facts to findings. A fact that was not gathered is `None`, and its check is then skipped.
"""

from __future__ import annotations

from mala_context.analysis.doctor.checks import CHECKS, CheckResult, examine
from mala_context.analysis.doctor.facts import Facts
from mala_context.analysis.doctor.findings import Finding, HealthCheck
from mala_context.analysis.doctor.gather import gather

__all__ = ["CHECKS", "CheckResult", "Facts", "Finding", "HealthCheck", "examine", "gather"]
