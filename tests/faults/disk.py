"""Runs each operation of an archive on a disk that is full, and on one that is read-only.

Run as a process of its own, `disk.py DIRECTORY OPERATION…`, with `network.c` loaded for where no disk may be mounted.
The disk is a small tmpfs that is filled but for a few pages, from none on, until the operation has enough; then one
that is mounted again read-only. Without the right to mount, a limit on the size of files and calls that fail with
`EROFS` stand in. An error has to say what it is; nothing that was committed goes; a prune frees space on a full disk;
hooks answer `{}` within their bound; and with space the next run does the rest.
"""

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import resource
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from breaker import arrived, prepared, told, whole

from mala_context.agent.archiving import ANSWER_SECONDS, SessionArchiver
from mala_context.errors import ArchiveError, ObjectStoreError
from tests.helpers.fork_work import FAILED, apart

SIZE = 2 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
PAGES = range(9)
"""Free pages with which each operation is tried."""
WORDS = {errno.ENOSPC: "No space left", errno.EFBIG: "File too large", errno.EROFS: "Read-only"}
WRITABLE = 13
HOOK = os.path.join(os.path.dirname(__file__), "..", "..", "hooks", "hook.py")
_shim = ctypes.CDLL(None)


class Disk:
    """A small disk of its own, or what stands in for one."""

    def __init__(self, base):
        self.base = base
        os.makedirs(base, exist_ok=True)
        self.real = self._mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", base)
        self.limit = None

    @staticmethod
    def _mount(*words):
        return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0

    @contextlib.contextmanager
    def full(self, pages):
        """Leave so many pages free."""
        if not self.real:
            self.limit = pages * 512
            yield
            self.limit = None
            return
        filler = os.path.join(self.base, "filler")
        with open(filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(PAGE))
            file.truncate(max(0, os.path.getsize(filler) - pages * PAGE))
        yield
        os.unlink(filler)

    @contextlib.contextmanager
    def read_only(self):
        """Let nothing be written."""
        if self.real:
            assert self._mount("-o", "remount,ro", self.base)
            yield
            assert self._mount("-o", "remount,rw", self.base)
        else:
            self.limit = "read-only"
            yield
            self.limit = None

    def begin(self):
        """Hold the process to the limit that stands in."""
        if self.limit == "read-only":
            _shim.fault_plan(WRITABLE, 1, errno.EROFS, 0, 1)
        elif self.limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))

    def close(self):
        if self.real:
            subprocess.run(["umount", "-l", self.base], check=False)


def tried(disk, run):
    """Run in a child; return whether it failed. What it says has to say what is wrong."""
    child = os.fork()
    if child == 0:
        try:
            disk.begin()
            run()
        except (OSError, ArchiveError) as error:
            said = str(error)
            clear = any(words in said for words in WORDS.values()) or isinstance(error, ObjectStoreError)
            os.write(2, b"" if clear else f"unclear: {said}\n".encode())
            os._exit(16 if clear else FAILED)
        except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
            traceback.print_exc()
            os._exit(FAILED)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, 16}, f"the operation ended with {code}"
    return code == 16


def asked(disk, site, base):
    """Ask as both hooks do, in a child; return the longer wait in seconds."""
    found = {"session_id": "s", "transcript_path": site.transcript, "trigger": "auto", "cwd": base}
    begun = time.monotonic()
    assert not tried(disk, lambda: asyncio.run(SessionArchiver(site.archive).before_compaction(found)))
    waits = [time.monotonic() - begun]
    env = {**os.environ, "MALA_RUNS_DIR": os.path.join(base, "runs"), "CLAUDE_PROJECT_DIR": base}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", HOOK],
        input=json.dumps({**found, "hook_event_name": "PreCompact"}).encode(),
        env=env,
        capture_output=True,
        check=False,
        preexec_fn=disk.begin if not disk.real and disk.limit != "read-only" else None,  # no threads
    )
    waits.append(time.monotonic() - begun)
    assert (done.returncode, done.stdout) == (0, b"{}\n"), done
    assert max(waits) < ANSWER_SECONDS, waits
    return max(waits)


def case(base, operation, how):
    """Try one operation on one disk; return whether it failed, and a hook's wait."""
    disk = Disk(base)
    try:
        site, run = prepared(os.path.join(base, "d"), operation)
        with disk.read_only() if how is None else disk.full(how):
            failed = tried(disk, run)
            assert not (failed and operation == "prune" and how is not None), "a full disk could not be pruned"
            told(site)
            wait = asked(disk, site, os.path.join(base, "d"))
        told(site)
        whole(base)
        site.check()
        if operation == "upload":
            apart(lambda: arrived(site))
    except AssertionError:
        print(f"{operation}: {'read-only' if how is None else f'{how} pages free'}", file=sys.stderr)
        raise
    finally:
        disk.close()
    return failed, wait


if __name__ == "__main__":
    directory, *operations = sys.argv[1:]
    for operation in operations:
        os.makedirs(os.path.join(directory, f"whole-{operation}"))
        _, work = prepared(os.path.join(directory, f"whole-{operation}"), operation)
        apart(work) if operation == "upload" else work()
    tries = failures = 0
    wait = 0.0
    real = Disk(os.path.join(directory, "probe"))
    real.close()
    for operation in operations:
        for how in (*PAGES, None):
            failed, waited = case(os.path.join(directory, f"{operation}-{how}"), operation, how)
            tries, failures, wait = tries + 1, failures + failed, max(wait, waited)
    print(f"tries={tries} failed={failures} wait={wait:.3f} disk={'real' if real.real else 'limited'}")
