"""Blocking work beside an event loop, under a deadline."""

import subprocess
import sys
import threading

import anyio
import pytest

from mala_context._util.background import Worker, wait_for


async def run_bounded(work, *, seconds):
    return await wait_for(Worker().submit(work), seconds=seconds)


both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@both
def test_returns_what_the_work_returns(backend):
    async def main():
        return await run_bounded(lambda: threading.current_thread().daemon, seconds=5)

    assert anyio.run(main, backend=backend) is True


@both
def test_raises_what_the_work_raises(backend):
    async def main():
        await run_bounded(lambda: 1 / 0, seconds=5)

    with pytest.raises(ZeroDivisionError):
        anyio.run(main, backend=backend)


@both
def test_stops_waiting_at_the_deadline_and_lets_the_work_go_on(backend):
    release, done = threading.Event(), threading.Event()

    def work():
        release.wait(30)
        done.set()

    async def main():
        with pytest.raises(TimeoutError):
            await run_bounded(work, seconds=0.05)

    anyio.run(main, backend=backend)
    assert not done.is_set()
    release.set()
    assert done.wait(5)


@both
def test_a_worker_that_outlives_its_loop_ends_quietly(backend):
    release = threading.Event()
    before = set(threading.enumerate())

    async def main():
        with pytest.raises(TimeoutError):
            await run_bounded(lambda: release.wait(30), seconds=0.01)

    anyio.run(main, backend=backend)
    workers = set(threading.enumerate()) - before
    release.set()
    for worker in workers:
        worker.join(5)  # an exception in it would fail this test: warnings are errors


def test_jobs_run_one_after_the_other_in_their_order():
    worker, order, gate = Worker(), [], threading.Event()
    jobs = [worker.submit(lambda: gate.wait(30))]
    jobs += [worker.submit(lambda number=number: order.append(number)) for number in range(100)]
    gate.set()
    for job in jobs:
        job.result(30)
    assert order == list(range(100))


@both
def test_a_job_that_is_done_already_is_not_waited_for(backend):
    job = Worker().submit(lambda: 7)
    job.result(30)

    async def main():
        return await wait_for(job, seconds=5)

    assert anyio.run(main, backend=backend) == 7


def test_a_failed_job_does_not_stop_the_next():
    worker = Worker()
    failed, fine = worker.submit(lambda: 1 / 0), worker.submit(lambda: 1)
    assert fine.result(30) == 1
    assert isinstance(failed.exception(30), ZeroDivisionError)


def test_abandoned_work_does_not_hold_the_process():
    program = (
        "import anyio, threading\n"
        "from mala_context._util.background import Worker, wait_for\n"
        "async def main():\n"
        "    try: await wait_for(Worker().submit(threading.Event().wait), seconds=0.05)\n"
        "    except TimeoutError: print('timeout')\n"
        "anyio.run(main)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (finished.returncode, finished.stdout) == (0, "timeout\n")
