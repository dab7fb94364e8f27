"""Tell which errors out of foreign code (an observer, a metric, a log handler) must reach our caller.

An error of the foreign code itself must not: a `SystemExit` of a log handler once went through a hook into the agent.
But a signal's handler runs inside any code, foreign code too, and may raise `SystemExit` or its own error: that error
must pass. Call this only in an `except` branch, so that it costs nothing where nothing is raised.
"""

from __future__ import annotations

from types import TracebackType


def passes(error: BaseException) -> bool:
    """Tell whether an error must reach our caller: Ctrl-C, and every error that a signal's handler raised."""
    return isinstance(error, KeyboardInterrupt) or _from_signal(error.__traceback__)


def _from_signal(trace: TracebackType | None) -> bool:
    """Tell whether a signal's handler is in the traceback: only a handler gets the interrupted frame as an argument."""
    while trace is not None and trace.tb_next is not None:
        code, values = trace.tb_next.tb_frame.f_code, trace.tb_next.tb_frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount + 1  # `*args` comes last
        for given in map(values.get, code.co_varnames[:count]):
            if any(each is trace.tb_frame for each in (given if type(given) is tuple else [given])):
                return True
        trace = trace.tb_next
    return False
