"""Input that comes in small pieces, and how much is copied by whoever gathers them."""

import os
import tracemalloc


class Trickle:
    """Endless input, the same few bytes over and over: call it with a size, or put it in place of standard input.

    Whoever makes a new whole of each piece and what came before takes memory for all of it between two reads; one that
    appends takes some for the piece, and now and then for the whole as it moves. So the memory taken between reads,
    summed up, tells one from the other by a factor of hundreds, and no clock is asked.
    """

    def __init__(self, size):
        self.piece = b"x" * size
        self.given = self.taken = self._before = 0

    def __call__(self, size):
        now, peak = tracemalloc.get_traced_memory()
        self.taken += peak - self._before
        self._before = now
        tracemalloc.reset_peak()
        piece = self.piece[:size]
        self.given += len(piece)
        return piece

    def standard_input(self, monkeypatch):
        """Put this in place of what is read from descriptor 0, and nothing else."""
        read = os.read
        monkeypatch.setattr(os, "read", lambda fd, size: self(size) if fd == 0 else read(fd, size))

    def __enter__(self):
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_):
        tracemalloc.stop()
