"""The scenario `why`: each of its steps, on the real CLI."""

import pytest

from mala_context.cli.scenarios import why
from mala_context.cli.scenarios.report import Stage


@pytest.mark.parametrize("step", why.STEPS, ids=lambda step: step.__name__)
async def test_each_step_holds(step, tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    found = await step(Stage(str(tmp_path), 8))
    assert found.checks
    assert [check for check in found.checks if not check.ok] == []
    assert found.data
    assert found.parts


async def test_the_steps_are_one_report(tmp_path, monkeypatch):
    async def one(stage):
        return why.Step({"a": 1}, [], [why.Check("a", ok=True, words="held")])

    async def two(stage):
        return why.Step({"b": 2}, [], [why.Check("b", ok=False, words="did not")])

    monkeypatch.setattr(why, "STEPS", (one, two))
    report = await why.play(Stage(str(tmp_path), 8))
    assert report.data == {"a": 1, "b": 2}
    assert not report.ok
