"""Blocking work beside an event loop, under a deadline."""

import asyncio
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


@both
@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError(), OSError(11, "again")], ids=repr
)
def test_a_thread_that_cannot_start_is_started_while_somebody_waits(backend, error, monkeypatch):
    starts = []
    start = threading.Thread.start

    def fail_first(thread):
        starts.append(thread)
        if len(starts) < 3:
            raise error
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_first)
    monkeypatch.setattr("mala_context._util.background.START_SECONDS", 0.01)
    worker = Worker()
    before = worker.submit(lambda: "first")  # nobody waits for it, and it is not forgotten

    async def main():
        return await wait_for(worker.submit(lambda: "second"), seconds=5)

    assert anyio.run(main, backend=backend) == "second"
    assert before.result(0) == "first"


def test_ctrl_c_while_a_thread_starts_leaves_the_jobs_in_their_order(monkeypatch):
    start, worker, order, gate = threading.Thread.start, Worker(), [], threading.Event()

    def interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.submit(lambda: (gate.wait(30), order.append(0)))
    jobs = [worker.submit(lambda number=number: order.append(number)) for number in (1, 2)]
    gate.set()
    for job in jobs:
        job.result(30)
    assert order == [0, 1, 2]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, type("Odd", (BaseException,), {})])
def test_a_job_that_fails_in_any_way_leaves_the_worker_as_it_was(error):
    def fail():
        raise error

    worker = Worker()
    failed, fine = worker.submit(fail), worker.submit(lambda: 1)
    assert fine.result(30) == 1
    assert isinstance(failed.exception(30), error)


def test_a_job_that_was_cancelled_is_not_done_and_the_next_is():
    worker, gate, done = Worker(), threading.Event(), []
    worker.submit(lambda: gate.wait(30))
    cancelled, fine = worker.submit(lambda: done.append(1)), worker.submit(lambda: 2)
    cancelled.cancel()
    gate.set()
    assert fine.result(30) == 2
    assert done == []


def test_a_loop_that_stops_and_is_not_closed_does_not_hold_the_worker_up():
    worker, gate = Worker(), threading.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait_for(worker.submit(lambda: gate.wait(30)), seconds=60))
    loop.call_soon(loop.stop)
    loop.run_forever()
    gate.set()
    assert worker.submit(lambda: 7).result(30) == 7
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


FORK = """
import anyio, os, threading
from mala_context._util.background import Worker, wait_for
worker, gate = Worker(), threading.Event()
theirs = worker.submit(gate.wait)
worker.submit(lambda: print("parent", flush=True))
child = os.fork()
async def main():
    return await wait_for(worker.submit(lambda: 3), seconds=5)
if child == 0:
    print(anyio.run(main), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
gate.set()
print(anyio.run(main))
"""


def test_the_child_of_a_fork_has_a_worker_of_its_own_and_the_parents_jobs_are_the_parents():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (finished.stdout, finished.stderr) == ("3\n0\nparent\n3\n", "")
