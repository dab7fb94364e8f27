"""Work in a fork of this process, for tests that end a writer at any moment, or that keep a library's threads apart.

A fork must not run the rest of the program that made it: whatever its work raises is written to standard error, and it
ends with `FAILED`. Import what the work needs before, or each fork imports it again.
"""

import os
import pickle
import signal
import traceback

FAILED = 3
"""How a fork ends whose work raised something."""


class Fork:
    """Does `work(pipe)` in a child, which may hand over lines through the pipe, a descriptor to write to."""

    def __init__(self, work):
        read, write = os.pipe()
        self.child = os.fork()
        if self.child == 0:
            os.close(read)
            try:
                work(write)
                os._exit(0)
            except BaseException:  # noqa: BLE001  # the child must not run the rest of this program
                traceback.print_exc()
            os._exit(FAILED)
        os.close(write)
        self.pipe = os.fdopen(read, "rb")

    def kill(self):
        os.kill(self.child, signal.SIGKILL)

    def end(self):
        """Wait for the end; return what the child said and nobody read yet, and whether it was killed."""
        with self.pipe:
            said = self.pipe.read()
        _, status = os.waitpid(self.child, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
        return said, os.WIFSIGNALED(status)


def apart(work):
    """Return what `work` returns, done in a fork: threads that a library starts there are in no later fork."""
    said, _ = Fork(lambda pipe: _write(pipe, pickle.dumps(work()))).end()
    return pickle.loads(said)


def _write(pipe, data):
    with os.fdopen(pipe, "wb") as file:
        file.write(data)
