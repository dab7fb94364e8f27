"""The debug topics, which `CONTEXT_DEBUG=true` prints by itself."""

import io

import pytest

from mala_context.guard import ContextGuard, TargetContextConfig
from mala_context.guard.debug import debug_printer


def guard(**kwargs):
    return ContextGuard([TargetContextConfig(provider="p", model="m", window=1000)], current=5000, **kwargs)


@pytest.mark.parametrize("value", [None, "", "false", "1"])
def test_no_printer_unless_asked_for(value):
    assert debug_printer({} if value is None else {"CONTEXT_DEBUG": value}) is None


def test_printer():
    stream = io.StringIO()
    guard(on_debug=debug_printer({"CONTEXT_DEBUG": "true"}, stream)).preflight()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith('[context-guard/init-counters] {"current": 5000, ')
    assert any(line.startswith("[context-guard/enforce] ") for line in lines)


def test_a_plain_guard_prints_by_itself(monkeypatch, capsys):
    monkeypatch.setenv("CONTEXT_DEBUG", "TRUE")
    guard()
    assert capsys.readouterr().err.startswith("[context-guard/init-counters] ")


def test_a_listener_of_ones_own_takes_its_place(monkeypatch, capsys):
    monkeypatch.setenv("CONTEXT_DEBUG", "true")
    heard = []
    guard(on_debug=heard.append).preflight()
    assert {event.name for event in heard} >= {"context-guard/init-counters", "context-guard/provider-eval"}
    assert capsys.readouterr().err == ""


def test_without_the_variable_a_guard_prints_nothing(monkeypatch, capsys):
    monkeypatch.delenv("CONTEXT_DEBUG", raising=False)
    guard().preflight()
    assert capsys.readouterr().err == ""


def refusing(error):
    class Refusing(io.StringIO):
        def write(self, text):
            raise error

    return Refusing()


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize(
    "stream", [refusing(BrokenPipeError(32, "Broken pipe")), refusing(SystemExit(1)), closed(), None]
)
def test_no_guard_stops_for_a_standard_error_that_takes_nothing(monkeypatch, stream):
    monkeypatch.setenv("CONTEXT_DEBUG", "true")
    monkeypatch.setattr("sys.stderr", stream)
    assert len(guard().preflight()) == 1


def test_an_interruption_passes():
    printer = debug_printer({"CONTEXT_DEBUG": "true"}, refusing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        guard(on_debug=printer)
