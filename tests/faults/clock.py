"""Archives while the clock jumps, within a process and between two, and looks at order, names, ages and `verify`.

Run under libfaketime, `clock.py DIRECTORY`, which reads the time from a file that this program writes. The kernel goes
on with the real time, so after each step the times of files that it gave are set to the false one.
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from mala_context.archive import layout
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from tests.helpers.archive_tools import cat, rows

HOUR, DAY = 3_600, 86_400
START = 1_893_456_000
"""2030-01-01, far from any real now."""
JUMPS = (0, -HOUR, 60, -10 * 365 * DAY, -40 * 365 * DAY, DAY, 70 * 365 * DAY, -DAY, HOUR, 2 * HOUR)
"""Where the clock stands after each jump, in seconds from the start."""


class World:
    """Transcripts, their archive, and a clock that is set at will."""

    def __init__(self, base):
        self.base = base
        self.archive = TranscriptArchive(os.path.join(base, "archives"), keep={"days": 30}, projects_dirs=[])
        self.numbers = {}
        self.names = {}

    def set_clock(self, seconds):
        self.offset = seconds
        with open(os.environ["FAKETIME_TIMESTAMP_FILE"], "w") as file:
            file.write(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(START + seconds)))
        assert abs(time.time() - START - seconds) < 5, "the clock was not set"

    def age(self):
        """Give the files of the last step the time that the kernel would have given them."""
        probe = os.path.join(self.base, "probe")
        with open(probe, "w"):
            real = os.stat(probe).st_mtime
        for folder, _, names in os.walk(self.base):
            for name in names:
                path = os.path.join(folder, name)
                if abs(os.stat(path).st_mtime - real) < DAY:
                    os.utime(path, (time.time(), time.time()))

    def path(self, session):
        return os.path.join(self.base, f"{session}.jsonl")

    def step(self, session, *, apart=False, **how):
        """Grow a session and archive it, in this process or in one of its own."""
        first = self.numbers.get(session, 0)
        self.numbers[session] = first + 3
        with open(self.path(session), "ab") as file:
            file.write(rows(first, first + 3))
        self.age()
        if apart:
            program = (
                "import sys; from mala_context.archive.store import TranscriptArchive as A; "
                "print(A(sys.argv[1]).archive(sys.argv[2], sys.argv[3], trigger='auto').path)"
            )
            words = [sys.executable, "-c", program, self.archive.location, self.path(session), session]
            path = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        else:
            path = self.archive.archive(self.path(session), session, trigger="auto", **how).path
        self.age()
        assert path, "nothing was archived"
        self.names.setdefault(session, []).append(os.path.basename(path))

    def check(self):
        """Look at every session."""
        report = verify_archive(self.archive)
        assert report.ok, report.problems
        for session, names in self.names.items():
            assert len(set(names)) == len(names), "a name came twice"
            assert sorted(names) == names, "the names are not in the order in which the pieces were written"
            there = [each.plain for each in self.archive.pieces(session)]
            if session != "s" and not there:  # it began at a wrong time, and is as old as that; its transcript is there
                assert os.path.getsize(self.path(session)), session
                continue
            assert there == names, f"{there} and not {names}"
            assert all(layout.parse_piece_name(each) is not None for each in names)
            with open(self.path(session), "rb") as file:
                assert cat(self.archive, session) == file.read(), session


def main(base):
    world = World(base)
    steps = 0
    for number, jump in enumerate(JUMPS):
        world.set_clock(jump)
        for apart in (False, True):
            world.step("s", apart=apart)
            steps += 1
        world.step(f"new{number}")
        if number % 2:
            world.archive.record_outcome("s", "compacted")  # the others are left open
        world.archive.catch_up()
        world.age()
        world.check()
        assert world.archive.pieces("s"), "a session at work was removed by its age"
    # A hook asks while an earlier piece, from a time ahead of the clock, still waits for its outcome.
    now = time.time_ns() // 1000
    world.step("s", since=now - 10_000_000)
    # The clock is right again: no session that was written to this month is old, whatever the clock said meanwhile.
    world.set_clock(3 * DAY)
    done = world.archive.apply_keep()
    assert "s" not in done.removed, done
    plan = world.archive.prune(days=30)
    assert "s" not in plan.removed, plan
    world.check()
    with open(world.path("s"), "ab") as file:
        file.write(b'{"last":1}')  # no newline yet, and a time ahead of a clock that is set back
    world.age()
    world.set_clock(-DAY)
    world.archive.catch_up()
    world.age()
    world.names["s"] = [each.plain for each in world.archive.pieces("s")]
    world.check()
    print(f"jumps={len(JUMPS) + 2} steps={steps + len(JUMPS)}")


if __name__ == "__main__":
    main(sys.argv[1])
