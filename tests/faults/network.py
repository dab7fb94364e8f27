"""Runs each operation of an archive as on a network file system, and looks at what that left.

Run as a process of its own with `network.c` loaded, `network.py DIRECTORY OPERATION…`, since it forks. In turn each
call of a kind takes effect and is answered by an error all the same (its answer was lost and it was sent again), or
fails as only such file systems do: a stale handle, no hard links, no locks, a directory that cannot be synced, a file
that is renamed to `.nfs…` in place of going. Then what was committed is there, `verify` tells the truth, and the next
run mends. The last line says how many faults there were, how many operations said that they failed, and how long a
hook waited at most.
"""

import ctypes
import errno
import os
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from breaker import MOST, prepared, told, waited, whole

from mala_context.agent.archiving import ANSWER_SECONDS
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError
from tests.helpers.fork_work import FAILED

KINDS = [
    "none",
    "link",
    "rename",
    "unlink",
    "exclusive",
    "open",
    "sync",
    "syncdirectory",
    "flock",
    "read",
    "mkdir",
    "close",
    "silly",
    "writable",
]
SAID_TWICE = {  # the call took effect; the operation has nothing to complain about
    "link": (errno.EEXIST, errno.EIO, errno.ENOENT),
    "rename": (errno.ENOENT, errno.EIO),
    "unlink": (errno.ENOENT, errno.EIO),
    "exclusive": (errno.EEXIST,),
    "mkdir": (errno.EEXIST,),
    "close": (errno.EIO, errno.EDQUOT),
}
ONCE = {
    "exclusive": (errno.EIO,),
    "open": (errno.ESTALE,),
    "read": (errno.ESTALE,),
    "sync": (errno.EIO,),
    "syncdirectory": (errno.EIO,),
}
ALWAYS = {  # how the file system is; the operation has nothing to complain about
    "link": (errno.EPERM, errno.ENOTSUP),
    "syncdirectory": (errno.EINVAL, errno.ENOTSUP),
    "flock": (errno.ENOLCK,),
    "silly": (errno.EIO,),
}
OPERATIONS = ("first", "next", "pack", "outcome", "side", "prune", "rebuild", "restore", "claim", "hook")
_shim = ctypes.CDLL(None)


def made(base, operation):
    """Return a site and the work on it, those of `breaker` and one more."""
    if operation == "claim":
        site, _ = prepared(base, "first")
        os.environ["MALA_RUNS_DIR"] = os.path.join(base, "runs")
        repo = TranscriptArchive(repo_path=base)
        return site, lambda: repo.archive(site.transcript, "s")
    return prepared(base, operation)


def hit(run, call, error, number, *, done, always, strict):
    """Run in a child under a fault; return whether it was met, and whether the operation said that it failed."""
    child = os.fork()
    if child == 0:
        status = 0
        try:
            _shim.fault_plan(KINDS.index(call), number, error, done, always)
            run()
        except (OSError, ArchiveError):
            status, hits = 1, _shim.fault_hits()
            if strict:
                _shim.fault_plan(0, 0, 0, 0, 0)
                traceback.print_exc()
                os._exit(16 + min(hits, 1) * 32)
        except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
            _shim.fault_plan(0, 0, 0, 0, 0)
            traceback.print_exc()
            os._exit(FAILED)
        hits = _shim.fault_hits()
        _shim.fault_plan(0, 0, 0, 0, 0)
        os._exit(status * 16 + min(hits, 1) * 32)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, 16, 32, 48}, f"the operation ended with {code}"
    return bool(code & 32), bool(code & 16)


def faults_of(base, operation):
    """Meet every fault of one operation; return how many, how many it complained of, and the longest wait."""
    faults = said = 0
    wait = 0.0
    table = [(SAID_TWICE, True, False), (ONCE, False, False), (ALWAYS, False, True)]
    for plans, done, always in table:
        for call, error in ((call, error) for call, errors in plans.items() for error in errors):
            for number in range(1, 2 if always else MOST + 1):
                where = os.path.join(base, f"{operation}-{call}-{error}-{number}-{int(done)}")
                os.makedirs(where)
                site, run = made(where, operation)
                try:
                    met, failed = hit(run, call, error, number, done=done, always=always, strict=plans is not ONCE)
                    if not met:
                        break
                    faults, said = faults + 1, said + failed
                    wait = max(wait, waited(where))
                    assert not failed or plans is ONCE, "it says that it failed, and it did not"
                    assert wait < ANSWER_SECONDS, "the hook waited too long"
                    told(site)
                    whole(where)
                    site.check(one_chain=call != "read" and call != "open")
                except AssertionError:
                    print(f"{operation}: {call} {number}: {errno.errorcode[error]} {done=} {always=}", file=sys.stderr)
                    raise
    return faults, said, wait


if __name__ == "__main__":
    directory, *operations = sys.argv[1:]
    for operation in operations:  # each once with no fault, so that no import of a module fails later
        where = os.path.join(directory, f"whole-{operation}")
        os.makedirs(where)
        made(where, operation)[1]()
    counts = [faults_of(directory, each) for each in operations]
    print(f"faults={sum(c[0] for c in counts)} failed={sum(c[1] for c in counts)} wait={max(c[2] for c in counts):.3f}")
