"""Which error of foreign code (an observer, a metric, a log handler) is that code's own fault, and which one passes.

A handler of a signal runs inside whatever runs just then, foreign code too, and may end the process with `SystemExit`
or end some work with an error of its own. Such an error is for our caller. Asked in an `except` alone, so that it costs
nothing where nothing is raised.
"""

from __future__ import annotations

from types import TracebackType


def passes(error: BaseException) -> bool:
    """Tell whether an error goes on to our caller: Ctrl-C, and what the handler of a signal raised."""
    return isinstance(error, KeyboardInterrupt) or _from_signal(error.__traceback__)


def _from_signal(trace: TracebackType | None) -> bool:
    """Tell whether a handler of a signal is on the way: it alone is given the frame that it interrupted."""
    while trace is not None and trace.tb_next is not None:
        code, values = trace.tb_next.tb_frame.f_code, trace.tb_next.tb_frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount + 1  # `*args` comes last
        for given in map(values.get, code.co_varnames[:count]):
            if any(each is trace.tb_frame for each in (given if type(given) is tuple else [given])):
                return True
        trace = trace.tb_next
    return False
