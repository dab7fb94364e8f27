"""A store of pieces in memory, written from the interface's text alone."""

import io
import threading
import time

from mala_context.archive import layout
from mala_context.archive.interface import PieceStore, SessionFiles, SessionView
from mala_context.archive.layout import StoredFile
from mala_context.errors import ArchiveBusyError
from mala_context.transcripts.session_ids import check_session_id


class MemoryView(SessionView):
    def __init__(self, session_id, files):
        self.session_id = session_id
        self._files = files

    def list(self):
        return [
            StoredFile(name=name, size=len(data), mtime_ns=mtime)
            for name, (data, mtime) in sorted(self._files.items())
            if layout.session_of(name) == self.session_id
        ]

    def open(self, name):
        if name not in self._files:
            raise FileNotFoundError(name)
        return io.BytesIO(self._files[name][0])

    def manifest(self):
        return self._files.get(layout.manifest_name(self.session_id), (b"", 0))[0]

    def path(self, name):
        return f"memory:{name}"

    def close(self):
        """Nothing was opened."""


class MemoryFiles(MemoryView, SessionFiles):
    def __init__(self, session_id, files, lock):
        super().__init__(session_id, files)
        self._lock = lock

    def _check(self, name):
        if layout.session_of(name) != self.session_id:
            raise ValueError(name)

    def publish(self, name, fill, *, mtime_ns=None):
        self._check(name)
        if name in self._files:
            raise FileExistsError(name)
        data = io.BytesIO()
        fill(data.write)
        self._files[name] = (data.getvalue(), mtime_ns or time.time_ns())

    def publish_named(self, fill):
        data = io.BytesIO()
        name = fill(data.write)
        new = name not in self._files
        self._files.setdefault(name, (data.getvalue(), time.time_ns()))
        return name, new

    def append(self, rows):
        old = self.manifest()
        between = b"\n" if old and not old.endswith(b"\n") else b""
        self.replace_manifest(old + between + rows)

    def replace_manifest(self, data):
        self._files[layout.manifest_name(self.session_id)] = (data, time.time_ns())

    def touch(self, names):
        for name in {*names} & self._files.keys():
            self._files[name] = (self._files[name][0], time.time_ns())

    def remove(self, name):
        self._check(name)
        self._files.pop(name, None)

    def close(self):
        self._lock.release()


class MemoryStore(PieceStore):
    location = "memory"

    def __init__(self):
        self._files = {}
        self._locks = {}

    def view(self, session_id):
        return MemoryView(check_session_id(session_id), self._files)

    def lock(self, session_id, timeout):
        lock = self._locks.setdefault(check_session_id(session_id), threading.Lock())
        if not lock.acquire(timeout=timeout):
            raise ArchiveBusyError(session_id, timeout)
        return MemoryFiles(session_id, self._files, lock)

    def list(self):
        return [
            StoredFile(name=name, size=len(data), mtime_ns=mtime) for name, (data, mtime) in sorted(self._files.items())
        ]
