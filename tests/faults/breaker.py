"""Makes each call into the system fail in turn, and looks at what that left of an archive.

Run as a process of its own, `breaker.py DIRECTORY OPERATION…`, since it forks. A child stops itself, strace takes hold
of it and lets its n-th call of a kind fail with an error, and the child goes on. Then what was committed before must be
there, `verify` must tell the truth about it, and the next run, with no fault, must finish the work. The last line of
the output says how many faults there were; a promise that is broken is an AssertionError.
"""

import asyncio
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import obstore.store  # noqa: F401  # before the forks; its threads begin with its first request

from mala_context.agent.archiving import ANSWER_SECONDS, SessionArchiver
from mala_context.archive.remote import bucket, push  # noqa: F401  # before the forks
from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.errors import ArchiveError, SessionNotFoundError
from tests.helpers.archive_killer import Site
from tests.helpers.archive_tools import cat
from tests.helpers.fork_work import FAILED, apart

READS = {  # a piece that cannot be read cannot be gone on from: then another chain begins, and nothing is lost
    "openat": (errno.EACCES, errno.EMFILE),
    "read": (errno.EIO,),
    "pread64": (errno.EIO,),
    "getdents64": (errno.EIO,),
    "lseek": (errno.EIO,),
    "newfstatat": (errno.EIO,),
}
WRITES = {
    "write": (errno.ENOSPC, errno.EIO),
    "pwrite64": (errno.ENOSPC,),
    "copy_file_range": (errno.ENOSPC,),
    "sendfile": (errno.ENOSPC,),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO,),
    "ftruncate": (errno.EIO,),
}
NAMES = {
    "link": (errno.EEXIST, errno.EPERM),
    "linkat": (errno.EEXIST, errno.EPERM, errno.ENOSPC),
    "rename": (errno.EROFS,),
    "renameat": (errno.EROFS,),
    "renameat2": (errno.EROFS,),
    "unlink": (errno.EACCES,),
    "unlinkat": (errno.EACCES,),
    "mkdir": (errno.ENOSPC,),
    "mkdirat": (errno.ENOSPC,),
    "fchmod": (errno.EPERM,),
    "utimensat": (errno.EPERM,),
    "flock": (errno.ENOLCK,),
}
TALK = [
    {
        "type": "user",
        "uuid": "u1",
        "parentUuid": None,
        "sessionId": "talk",
        "message": {"role": "user", "content": "hi"},
    },
    {
        "type": "assistant",
        "uuid": "a1",
        "parentUuid": "u1",
        "sessionId": "talk",
        "message": {"role": "assistant", "id": "m1", "content": [{"type": "text", "text": "hello"}]},
    },
]
CALLS = {**READS, **WRITES, **NAMES}
UNFINISHED = {"row", "empty", "side file"}
"""What `verify` may say of work that a fault broke off; anything else would be a loss."""
MOST = 60
"""At most so many calls of a kind are broken in one operation."""


def held(pid):
    """Wait until a tracer holds a process."""
    for _ in range(2_000):
        with open(f"/proc/{pid}/status") as file:
            if any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in file):
                return
        time.sleep(0.002)
    raise AssertionError("strace did not attach")


def broken(run, base, call, error, number):
    """Run a function in a child whose call number `number` of a kind fails; return whether there was such a call."""
    log, said = os.path.join(base, "strace"), os.path.join(base, "said")
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), signal.SIGSTOP)
            run()
        except (OSError, ArchiveError):
            os._exit(0)
        except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
            with open(said, "w") as file:
                traceback.print_exc(file=file)
            os._exit(FAILED)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    inject = f"inject={call}:error={errno.errorcode[error]}:when={number}"
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", log, "-e", f"trace={call}", "-e", inject, "-p", str(child)])
    held(child)
    os.kill(child, signal.SIGCONT)
    _, status = os.waitpid(child, 0)
    tracer.wait()
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == FAILED:
        with open(said) as file:
            raise AssertionError(f"{call} number {number} failed with {errno.errorcode[error]}:\n{file.read()}")
    with open(log) as file:
        return "(INJECTED)" in file.read()


def prepared(base, operation):
    """Return a session with archived pieces, new rows and a side file, and the work to do on it."""
    site = Site(base, "s")
    os.makedirs(os.path.join(base, "s"))
    site.grow(20)
    if operation != "first":
        site.archive.archive(site.transcript, "s", trigger="auto")
        site.grow(20)
    site.archive.archive(site.transcript, "other")
    with open(os.path.join(base, "s", "side.txt"), "wb") as file:
        file.write(b"side")
    if operation == "rebuild":
        os.unlink(os.path.join(site.archive.location, "s.manifest.jsonl"))
    site.acknowledged = {piece.plain: piece.sha256 for piece in site.archive.pieces("s") if piece.sha256}
    talk = os.path.join(base, "talk.jsonl")
    with open(talk, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in TALK)
    if operation == "restore":
        site.archive.archive(talk, "talk", trigger="auto")
    target = os.path.join(base, "restored")
    if operation == "upload":
        folder = os.path.join(base, "bucket")
        store = Target(address=f"file://{folder}", prefix="")
        site.archive = TranscriptArchive(site.archive.location, target=store, projects_dirs=[])
    return site, {
        "upload": lambda: site.archive.push(["s"]),
        "hook": lambda: ask(site, base),
        "first": lambda: site.archive.archive(site.transcript, "s"),
        "next": lambda: site.archive.archive(site.transcript, "s"),
        "pack": lambda: site.archive.pack(["s"]),
        "outcome": lambda: site.archive.record_outcome("s", "compacted"),
        "side": lambda: site.archive.archive_side_files(site.transcript, "s"),
        "prune": lambda: prune(site),
        "rebuild": site.archive.catch_up,
        "restore": lambda: site.archive.restore("talk", projects=target),
    }[operation]


def prune(site):
    """Remove a session; raise the words of the WARNING where the result names it as one that could not be removed."""
    said, handler = [], logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("mala_context").addHandler(handler)
    if site.archive.prune(session_ids=["other"], dry_run=False).failed:
        raise OSError(said[-1])


def ask(site, base):
    """Have a hook ask before a compaction; write down the seconds that it waits."""
    found = {"session_id": "s", "transcript_path": site.transcript, "trigger": "auto", "cwd": base}
    begun = time.monotonic()
    asyncio.run(SessionArchiver(site.archive).before_compaction(found))
    waited = time.monotonic() - begun
    assert waited < ANSWER_SECONDS, "the hook waited too long"
    try:
        with open(os.path.join(base, "waited"), "w") as file:
            file.write(str(waited))
    except OSError:
        pass  # the fault was for the file


def waited(base):
    """Return the seconds that a hook waited, 0 where none was asked."""
    try:
        with open(os.path.join(base, "waited")) as file:
            return float(file.read() or 0)
    except FileNotFoundError:
        return 0.0


def arrived(site):
    """Check that the next upload sends the rest, and that the store has the transcript once and nothing half-sent."""
    result = site.archive.push()
    assert result.pending == (), result
    with open(site.transcript, "rb") as file:
        assert cat(TranscriptArchive(site.archive.target.address), "s") == file.read(), "the store has something else"
    left = [name for name in os.listdir(site.archive.target.address.removeprefix("file://")) if "#" in name]
    assert not left, left


def told(site):
    """Check that `verify` finds nothing damaged of what was committed."""
    try:
        report = verify_archive(site.archive, ["s"])
    except SessionNotFoundError:
        assert not site.acknowledged
        return
    wrong = [each for each in report.problems if each.kind not in UNFINISHED]
    assert not wrong, wrong


def whole(base):
    """Check that whatever a broken restore left under a session's name is a whole session."""
    for folder, _, names in os.walk(os.path.join(base, "restored")):
        for name in names:
            if name.endswith(".jsonl"):
                with open(os.path.join(folder, name)) as file:
                    assert len([json.loads(line) for line in file]) == len(TALK), name


def each_call(base, operation):
    """Break every call of one operation; return how many faults there were, and a hook's longest wait in seconds."""
    faults, wait = 0, 0.0
    for call, errors in CALLS.items():
        for error in errors:
            for number in range(1, MOST + 1):
                where = os.path.join(base, f"{operation}-{call}-{error}-{number}")
                os.makedirs(where)
                site, run = prepared(where, operation)
                if not broken(run, where, call, error, number):
                    break
                faults += 1
                wait = max(wait, waited(where))
                try:
                    told(site)
                    whole(where)
                    site.check(one_chain=call not in READS)
                    if operation == "upload":
                        apart(lambda: arrived(site))  # noqa: B023  # called at once
                except AssertionError:
                    print(f"{operation}: {call} number {number} failed with {errno.errorcode[error]}", file=sys.stderr)
                    raise
    return faults, wait


if __name__ == "__main__":
    directory, *operations = sys.argv[1:]
    for operation in operations:  # each once with no fault, so that no import of a module fails later
        _, work = prepared(os.path.join(directory, f"whole-{operation}"), operation)
        apart(work) if operation == "upload" else work()
    counts = [each_call(directory, each) for each in operations]
    print(f"faults={sum(faults for faults, _ in counts)} wait={max(wait for _, wait in counts):.3f}")
