"""A fleet in one process: many sessions at once, each with a transcript, a tracker and an archive.

Every session plays a recording row by row, under an id of its own: the row is appended to the session's transcript, as
the CLI does; it is decoded and read into events, the tracker takes them, and a snapshot is taken for each that moved
it. Before a compaction's boundary the session waits for its archive, as an agent waits for its hook; the others go on,
since archives are written by a thread of their own. A third thread sends what is archived to an object store.

As a program it is one life of a fleet that somebody is about to kill: `fleet_simulation.py DIRECTORY SESSIONS SEED
[finish]` first does what a start does (`catch_up`), then works, and says on standard output which pieces it was told to
be archived, a line each. With `finish` it works to the end of all recordings.
"""

import contextlib
import gzip
import hashlib
import json
import logging
import os
import pathlib
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import uuid

from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive
from mala_context.tracking.readers import read_row
from mala_context.tracking.registry import LIVE
from mala_context.tracking.tracker import ContextTracker

RECORDED = pathlib.Path(__file__).parent.parent / "data" / "recorded"
BOUNDARY = b'"subtype":"compact_boundary"'
BATCH = 8
"""Rows that a session plays before the next has its turn, at full speed."""


class Source:
    """A recording, as lines with their session's id in them."""

    def __init__(self, session_id, lines):
        self.session_id, self.lines = session_id.encode(), lines

    def under(self, session_id):
        """Return the lines as another session's."""
        return [line.replace(self.session_id, session_id.encode()) for line in self.lines]


def recorded():
    """Return the recordings of the test suite."""
    found = []
    for path in sorted(RECORDED.glob("*.jsonl.gz")):
        with gzip.open(path) as file:
            found.append(Source(path.name.partition(".")[0], file.read().splitlines(keepends=True)))
    return found


class Session:
    """One agent's session, at some row of its recording."""

    def __init__(self, fleet, source, session_id):
        self.fleet, self.source, self.session_id = fleet, source, session_id
        self.transcript = os.path.join(fleet.directory, "projects", f"{session_id}.jsonl")
        self.tracker = ContextTracker(remembers=LIVE)
        self.at = 0
        self.waiting = False
        """Whether it stands still until its archive is written."""

    @property
    def over(self):
        """Whether its recording is at its end."""
        return self.at >= len(self.source.lines)

    def line(self):
        """Return the next line as this session's."""
        return self.source.lines[self.at].replace(self.source.session_id, self.session_id.encode())

    def step(self):
        """Play one row; returns the events that came of it. A session that must wait for its archive plays none."""
        line = self.line()
        if BOUNDARY in line and not self.waiting:
            self.waiting = True
            self.fleet.archive_soon(self, "auto")
            return 0
        self.waiting = False
        with open(self.transcript, "ab", buffering=0) as file:
            file.write(line)
        self.at += 1
        return self.take(line)

    def take(self, line):
        """Read a line and have the tracker take it; returns the number of events."""
        count = 0
        for event in read_row(json.loads(line)):
            count += 1
            self.tracker.apply(event)
        return count


class Fleet:
    """The sessions, their archive, and the threads that write and send it; for the `with` statement."""

    def __init__(self, directory, sessions, seed=1, *, archived=None, upload=True):
        self.directory = os.fspath(directory)
        os.makedirs(os.path.join(self.directory, "projects"), exist_ok=True)
        chance = random.Random(seed)
        sources = recorded()
        names = [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(sessions)]
        self.sessions = [Session(self, sources[place % len(sources)], name) for place, name in enumerate(names)]
        store = Target(address=f"file://{os.path.abspath(self.directory)}/store", prefix="one") if upload else None
        self.archive = TranscriptArchive(os.path.join(self.directory, "archives"), target=store, projects_dirs=[])
        self.archived = archived or (lambda session_id, result: None)
        self.waits = []
        """Seconds from the wish for an archive to its end, one an archive."""
        self.uploaded_bytes = self.uploaded_files = 0
        self._jobs = queue.SimpleQueue()
        self._ready = queue.SimpleQueue()
        self._pending = 0
        self._failures = []

    def __enter__(self):
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._write)]
        if self.archive.target is not None:
            self._threads.append(threading.Thread(target=self._send))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    # -- threads ------------------------------------------------------------------------------------------------------

    def archive_soon(self, session, trigger):
        """Have a session's transcript archived; the session is ready again when that is done."""
        self._pending += 1
        self._jobs.put((session, trigger, time.perf_counter()))

    def _write(self):
        while (job := self._jobs.get()) is not None:
            session, trigger, since = job
            try:
                tokens = session.tracker.snapshot().tokens
                final = trigger == "session_end"
                result = self.archive.archive(
                    session.transcript, session.session_id, trigger=trigger, tokens=tokens, final=final
                )
                self.archived(session.session_id, result)
            except Exception as error:  # noqa: BLE001  # told at the end of the block
                self._failures.append(error)
            self.waits.append(time.perf_counter() - since)
            self._ready.put(session)

    def _send(self):
        while not self._ends.wait(0.2):
            self._push()
        self._push()

    def _push(self):
        try:
            if os.path.isdir(self.archive.location):
                result = self.archive.push()
                self.uploaded_bytes += result.bytes
                self.uploaded_files += result.files
        except Exception as error:  # noqa: BLE001  # likewise
            self._failures.append(error)

    # -- driving ------------------------------------------------------------------------------------------------------

    def take_ready(self):
        """Return the sessions whose archives were written since."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._ready.get_nowait())
                self._pending -= 1
        return found

    def run(self):
        """Play everything as fast as it goes, every session in turn; returns (rows, events)."""
        rows = events = 0
        playing = list(self.sessions)
        while playing or self._pending:
            left = []
            for session in playing:
                for _ in range(BATCH):
                    if session.over:
                        self.archive_soon(session, "session_end")
                        break
                    before = session.at
                    events += session.step()
                    rows += session.at - before
                    if session.waiting:
                        break
                else:
                    left.append(session)
            ready = self.take_ready()
            if not left and not ready and self._pending:
                ready = [self._ready.get()]
                self._pending -= 1
            playing = left + [session for session in ready if not session.over]
        return rows, events

    def begin_anywhere(self, seed=1):
        """Put every session at some row of its recording, as a fleet is that has run for a while."""
        chance = random.Random(seed)
        for session in self.sessions:
            session.at = chance.randrange(len(session.source.lines))
            lines = session.source.under(session.session_id)[: session.at]
            with open(session.transcript, "wb") as file:
                file.write(b"".join(lines))
            for line in lines:
                session.take(line)

    def run_paced(self, rows_a_second, seconds):
        """Play so many rows a second for so long; returns how late each row was taken, in seconds."""
        late, playing, place = [], list(self.sessions), 0
        begun = time.perf_counter()
        for number in range(int(rows_a_second * seconds)):
            due = begun + number / rows_a_second
            if (now := time.perf_counter()) < due:
                time.sleep(due - now)
            playing += [session for session in self.take_ready() if not session.over]
            if not playing:
                break
            place %= len(playing)
            session = playing[place]
            session.step()
            late.append(time.perf_counter() - due)
            if session.over:
                self.archive_soon(session, "session_end")
            if session.waiting or session.over:
                playing[place] = playing[-1]
                playing.pop()
            place += 1
        return late


# -- killed and begun again ----------------------------------------------------------------------------------------


def begin_again(fleet):
    """Do what the next start does: mend torn rows as the CLI's next row does, and archive what nobody archived."""
    for session in fleet.sessions:
        if os.path.exists(session.transcript):
            with open(session.transcript, "rb+") as file:
                data = file.read()
                end = data.rfind(b"\n") + 1
                file.truncate(end)
            session.at = data.count(b"\n")
            for line in data[:end].splitlines(keepends=True):
                session.take(line)
    if os.path.isdir(fleet.archive.location):
        fleet.archive.catch_up()


def live(directory, sessions, seed, *, finish):
    """Be a fleet until the process is killed, or to the end."""

    def told(session_id, result):
        if result.path is not None:
            sys.stdout.write(f"{session_id} {os.path.basename(result.path)} {result.sha256}\n")
            sys.stdout.flush()

    with Fleet(directory, sessions, archived=told) as fleet:
        begin_again(fleet)
        chance = random.Random(seed)
        sys.stdout.write("works\n")
        sys.stdout.flush()
        if finish:
            fleet.run()
            return
        playing, held = [session for session in fleet.sessions if not session.over], set()
        while playing:
            session = chance.choice(playing)
            if session not in held:
                session.step()
                if session.waiting:
                    held.add(session)
                elif chance.random() < 0.02:
                    held.add(session)
                    fleet.archive_soon(session, "manual")
            held.difference_update(fleet.take_ready())
            playing = [each for each in playing if not each.over]


def check(directory, acknowledged):
    """Look at what a killed fleet left: each acknowledged piece is there, whole. Returns how many were looked at."""
    archives = os.path.join(directory, "archives")
    for name, digest in acknowledged.items():
        with open(os.path.join(archives, name), "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
        if found != digest:
            raise AssertionError(f"{name} is not what was acknowledged")
    return len(acknowledged)


def check_end(directory):
    """Look at what a finished fleet left: every session's pieces are its transcript, here and in the store."""
    projects = os.path.join(directory, "projects")
    sources = {len(source.lines): source for source in recorded()}
    names = sorted(os.listdir(os.path.join(directory, "archives")))
    left = [name for name in names if name.startswith(".tmp")]
    if left:
        raise AssertionError(f"left behind: {left}")
    for file_name in sorted(os.listdir(projects)):
        session_id = file_name.partition(".")[0]
        with open(os.path.join(projects, file_name), "rb") as file:
            transcript = file.read()
        source = sources[transcript.count(b"\n")]
        if transcript != b"".join(source.under(session_id)):
            raise AssertionError(f"{session_id}: the simulation itself lost rows")
        pieces = [name for name in names if name.startswith(f"{session_id}_") and name.endswith("_transcript.jsonl")]
        for place in ("archives", os.path.join("store", "one")):
            data = b"".join(pathlib.Path(directory, place, name).read_bytes() for name in pieces)
            if data != transcript:
                raise AssertionError(f"{session_id}: {place} holds {len(data):,} of {len(transcript):,} bytes")


def one_life(directory, sessions, seed, when=None):
    """Have a fleet live in a process of its own; returns what it acknowledged, and whether it was killed.

    `when` is how many lines of its output to wait for, and then for how many seconds, before it is killed; waiting for
    work and not for time alone keeps a busy machine from killing every process before it has done anything.
    """
    ending = ["finish"] if when is None else []
    arguments = [sys.executable, __file__, directory, str(sessions), str(seed), *ending]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as child:
        lines = []
        if when is not None:
            lines = [child.stdout.readline() for _ in range(when[0])]
            time.sleep(when[1])
            child.kill()
        lines += child.stdout.readlines()
    if child.returncode not in {0, -signal.SIGKILL}:
        raise AssertionError(f"a life failed by itself: {child.returncode}")
    told = [line.split() for line in lines if line.endswith("\n")]
    return {words[1]: words[2] for words in told if len(words) == 3}, child.returncode != 0


def kill(directory, kills, seed=1, *, sessions=6, lives=12):
    """Kill fleets so many times, at random moments; every so many kills one is let finish and looked at whole.

    Returns how many archives were acknowledged; raises AssertionError where one is lost.
    """
    chance = random.Random(seed)
    done = checked = number = 0
    while done < kills:
        number += 1
        place, acknowledged = os.path.join(directory, str(number)), {}
        for _ in range(lives):
            lines = chance.choice((0, 1, 1, 2, 3, 5))
            pause = chance.uniform(0, 0.4) if not lines else chance.uniform(0, 0.05)
            told, killed = one_life(place, sessions, chance.getrandbits(32), (lines, pause))
            acknowledged |= told
            done += killed
            check(place, acknowledged)
            if done == kills or not killed:
                break
        acknowledged |= one_life(place, sessions, 0)[0]
        checked += check(place, acknowledged)
        check_end(place)
    return checked


if __name__ == "__main__":
    logging.getLogger("mala_context").setLevel(logging.CRITICAL)  # what a killed writer left is mended with a WARNING
    where, count, which, *rest = sys.argv[1:]
    live(where, int(count), int(which), finish=rest == ["finish"])
