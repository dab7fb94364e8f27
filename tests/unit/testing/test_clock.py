"""A clock that a test moves."""

import anyio
import pytest

from mala_context.testing import ScriptedClock


def test_it_stands_still_until_it_is_moved():
    clock = ScriptedClock(100.0)
    assert clock() == clock() == 100.0
    clock.advance(5)
    assert clock() == 105.0
    assert ScriptedClock()() > 1_700_000_000


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_who_sleeps_wakes_when_it_is_moved(backend):
    clock, woken = ScriptedClock(0.0), []

    async def sleeper():
        await clock.sleep(10)
        woken.append(clock())

    async def main():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sleeper)
            await anyio.wait_all_tasks_blocked()
            assert woken == []
            clock.advance(10)

    anyio.run(main, backend=backend)
    assert woken == [10.0]
