"""Talk to one place in an object store through obstore. No other module imports that library.

The library finds the credentials itself: in the environment, else by the identity of the machine. A store's answer is
never repeated, because it may hold signatures and names of keys. An error here names the store's code for it, or says
in our own words that the store cannot be reached.

Objects go up in parts of 8 MiB, two at a time, and come back in ranges of that size, so memory stays flat and each
request is short enough to be tried again by itself.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import re
import threading
from functools import partial
from hashlib import sha256

from mala_context._util.safe_open import Held
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY, publish
from mala_context.archive.directory import open_archives
from mala_context.archive.layout import StoredFile
from mala_context.archive.remote.address import check_address
from mala_context.archive.source import fill
from mala_context.errors import ArchiveUnavailableError, ObjectStoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Final, TypeVar

    from mala_context.archive.interface import Reader, Write

    T = TypeVar("T")

PART: Final = 8 * 1024 * 1024
"""Bytes of one request."""
RETRIES: Final = 4
"""How often the library repeats a request; with the pauses in between that takes about 3 seconds."""
_MOST_PARTS: Final = 9_000
"""Most parts of one object: S3 takes 10,000."""
_AT_ONCE: Final = 2
MOST_MANIFEST: Final = 256 * 1024 * 1024

_CODES: Final = {
    "RequestTimeTooSkewed": "it refuses this machine's clock, which is wrong by more than 15 minutes",
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "these credentials may not do that",
    "InvalidAccessKeyId": "it does not know these credentials",
    "SignatureDoesNotMatch": "it refuses the signature: the secret key is wrong",
    "ExpiredToken": "the credentials have expired",
    "BadDigest": "what arrived is not what was sent",
    "SlowDown": "it asks for fewer requests",
}
"""A store's code for an error, in words."""
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_WORDS: Final = (
    ("BadScheme", "its endpoint is http://, which AWS_ALLOW_HTTP=true allows (GOOGLE_, AZURE_ for the others)"),
    ("ccount must be specified", "no account is named: set AZURE_STORAGE_ACCOUNT_NAME"),
    ("incorrectly configured region", "the bucket is in another region: set AWS_REGION"),
    ("169.254.", "no credentials were found in the environment"),
    ("error sending request", "it cannot be reached"),
    ("imed out", "it does not answer in time"),
    ("RequestBody", "it cannot be reached"),
)
"""Words in an error of the library, and what the error means. The first match counts."""

_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}

_memory: dict[str, Any] = {}


class Bucket:
    """One place in an object store.

    Args:
        base: its address.
        encryption: server-side encryption to ask S3 for.
        kms_key: the key for it.

    Raises `ObjectStoreError` if the library is not installed or the address is invalid. No request is sent yet.
    """

    def __init__(self, base: str, encryption: str | None = None, kms_key: str | None = None) -> None:
        try:
            self.base = check_address(base)
        except ValueError as error:
            raise ObjectStoreError("archive.directory", str(error)) from None
        try:
            import obstore
        except ImportError:
            raise ObjectStoreError(
                self.base, "obstore is not installed: pip install 'mala-context[objects]'", installed=False
            ) from None
        self._api: Any = obstore
        scheme, _, rest = self.base.partition("://")
        self._folder = rest if scheme == "file" else None
        if self._folder is None:
            with _talking(self.base):
                self._opened = _open_store(self.base, encryption, kms_key)

    @property
    def _store(self) -> Any:
        """The library's store. A folder is opened each time, so that only `put` creates one and a reader never does."""
        if self._folder is None:
            return self._opened
        from obstore.store import LocalStore

        if not os.path.isdir(self._folder):
            raise FileNotFoundError(errno.ENOENT, "not in the object store", self.base)
        return LocalStore(self._folder)

    def _check_owners(self) -> None:
        """Refuse to change a folder below another user's: that user could put any other folder in its place.

        Raises `ObjectStoreError`.
        """
        # Both paths: a link on the way may belong to another user, and so may a directory that the link leads to.
        for each in () if self._folder is None else {self._folder, os.path.realpath(self._folder)}:
            path = pathlib.PurePath(each)
            for part in (path, *path.parents):
                with contextlib.suppress(OSError):
                    owner = os.lstat(part).st_uid
                    if owner not in {0, os.geteuid()}:
                        raise ObjectStoreError(self.base, f"{part} belongs to user {owner}, not to us")

    def put(self, name: str, reader: Reader, size: int) -> None:
        """Send `size` bytes under a name, and replace an object of that name. Raises `ObjectStoreError`, `OSError`."""
        self._check_owners()
        part = max(PART, -(-size // _MOST_PARTS))
        how = {"use_multipart": False} if size <= PART else {"chunk_size": part, "max_concurrency": _AT_ONCE}
        try:
            with _talking(self.base, name):
                if self._folder is not None:
                    _put_file(self._folder, name, reader, size)
                    return
                data = _take(reader, size) if size <= PART else _parts(reader, size, part)
                _interruptible(lambda: self._api.put(self._store, name, data, **how))
        except FileNotFoundError:
            raise ObjectStoreError(self.base, _CODES["NoSuchBucket"]) from None

    def size(self, name: str) -> int | None:
        """Return an object's size, `None` if there is none of that name.

        It requests the first byte, not a HEAD: the answer to a HEAD has no body that would say what is wrong.
        """
        try:
            with _talking(self.base, name):
                first = _interruptible(lambda: self._api.get(self._store, name, options={"range": (0, 1)}))
                return int(first.meta["size"])
        except FileNotFoundError:
            return None

    def parts(self, name: str, size: int) -> Iterator[bytes]:
        """Yield an object's bytes, a part at a time; raises `FileNotFoundError` and `ObjectStoreError`."""
        for start in range(0, size, PART):
            end = min(size, start + PART)
            with _talking(self.base, name):
                data = _interruptible(partial(self._api.get_range, self._store, name, start=start, end=end))
            yield bytes(data)

    def digest(self, name: str, size: int) -> str:
        """Return the SHA-256, in hexadecimal, of an object of that size, read back whole."""
        digest = sha256()
        for part in self.parts(name, size):
            digest.update(part)
        return digest.hexdigest()

    def read(self, name: str) -> bytes | None:
        """Return a small object whole, `None` where there is none of that name."""
        size = self.size(name)
        if size is None or size > MOST_MANIFEST:
            return None
        return b"".join(self.parts(name, size))

    def open(self, name: str) -> Reader:
        """Open an object for reading from its start; raises `FileNotFoundError` and `ObjectStoreError`."""
        size = self.size(name)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "not in the object store", f"{self.base}/{name}")
        return _Object(self.parts(name, size))

    def list(self) -> Iterator[StoredFile]:
        """Yield every object directly in this place."""
        found: list[Any] = []
        with contextlib.suppress(FileNotFoundError), _talking(self.base):
            found = _interruptible(lambda: [each for page in self._api.list(self._store) for each in page])
        for each in found:
            if "/" not in each["path"]:
                modified = int(each["last_modified"].timestamp() * 1_000_000) * 1000
                yield StoredFile(name=each["path"], size=each["size"], mtime_ns=modified, remote=self.base)

    def drop_unfinished(self, prefixes: tuple[str, ...]) -> None:
        """Remove half-sent files of a killed process whose names begin with a prefix; only a folder has such files."""
        folder = self._folder
        if folder is None:
            return
        self._check_owners()
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith(ARCHIVE_TEMPORARY) and name.removeprefix(ARCHIVE_TEMPORARY).startswith(prefixes):
                    os.unlink(os.path.join(folder, name))

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yield the path and size of every object in this place and below it; raises `ObjectStoreError`."""
        with contextlib.suppress(FileNotFoundError), _talking(self.base):
            for page in self._api.list(self._store):
                yield from ((each["path"], each["size"]) for each in page)

    def remove(self, name: str) -> None:
        """Remove an object; if there is none, that is no error."""
        self._check_owners()
        with contextlib.suppress(FileNotFoundError), _talking(self.base, name):
            _interruptible(lambda: self._api.delete(self._store, name))


def _open_store(base: str, encryption: str | None, kms_key: str | None) -> Any:
    from datetime import timedelta

    from obstore.store import MemoryStore, from_url

    scheme = base.partition("://")[0]
    if scheme == "memory":
        return _memory.setdefault(base, MemoryStore())
    config: dict[str, str] = {}
    if scheme == "s3":
        config["checksum_algorithm"] = "SHA256"
        if encryption is not None:
            config["server_side_encryption"] = encryption
        if kms_key is not None:
            config["sse_kms_key_id"] = kms_key
    backoff = {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2}
    retry = {"max_retries": RETRIES, "retry_timeout": timedelta(minutes=3), "backoff": backoff}
    client: dict[str, Any] = {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(minutes=5)}
    # `client_options` replace those that the library reads from the environment, so this one is read here.
    allowed = os.environ.get(_ALLOW_HTTP.get(scheme, ""), "")
    if allowed.lower() in {"1", "true"}:
        client["allow_http"] = True
    open_url: Any = from_url  # its overloads tell the clouds' settings apart by type
    return open_url(base, config=config or None, retry_config=retry, client_options=client)


def _put_file(folder: str, name: str, reader: Reader, size: int) -> None:
    """Write an object into a folder: private from its first byte, and never into another user's folder.

    The library would create the file as wide as the umask allows: another user of a shared folder read 58 of 58 MB of a
    transcript while it was written.
    """

    def fill(write: Write) -> None:
        for part in _parts(reader, size, PART):
            write(part)

    try:
        directory = open_archives(folder, create=True)
    except ArchiveUnavailableError as error:
        raise ObjectStoreError(f"file://{folder}", str(error)) from None
    with Held(directory):
        path = os.path.join(folder, name)
        publish(directory, f"{ARCHIVE_TEMPORARY}{name}.", fill, name=name, replace=True, path=path)


class _Object(io.RawIOBase):
    """An object's bytes, one after the other."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _take(reader: Reader, size: int) -> bytes:
    buffer = bytearray(size)
    if fill(reader, buffer) != size:
        raise OSError(errno.EIO, "the file is shorter than it was")
    return bytes(buffer)


def _parts(reader: Reader, size: int, part: int) -> Iterator[bytes]:
    while size:
        data = _take(reader, min(size, part))
        size -= len(data)
        yield data


def _interruptible(work: Callable[[], T]) -> T:
    """Do `work`. If this is the main thread, do it in another thread: Ctrl-C does not interrupt the library's calls."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name="mala-context object store", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@contextlib.contextmanager
def _talking(base: str, name: str = "") -> Iterator[None]:
    """Turn every error of the library into one of ours, which repeats nothing of the store's answer."""
    try:
        yield
    except FileNotFoundError as error:
        if "<Code>NoSuchBucket<" in str(error):
            raise ObjectStoreError(base, _CODES["NoSuchBucket"]) from None
        raise FileNotFoundError(errno.ENOENT, "not in the object store", f"{base}/{name}") from None
    except ObjectStoreError:
        raise
    except OSError as error:
        if error.errno is None:
            raise ObjectStoreError(base, _reason(error)) from None
        raise  # an error of the local file that is sent: errors of the library have no number
    except Exception as error:  # noqa: BLE001  # the library's errors are of many kinds and may hold secrets
        raise ObjectStoreError(base, _reason(error)) from None


def _reason(error: Exception) -> str:
    text = str(error)
    code = _CODE.search(text)
    if code is not None:
        return f"{_CODES.get(code[1], 'it answers')} ({code[1]})"
    for words, meaning in _WORDS:
        if words in text:
            return meaning
    status = _STATUS.search(text)  # an answer without a body, or from a proxy
    if status is not None:
        return f"it answers with status {status[1]}"
    return f"{type(error).__name__} from the library"


_open: dict[str, Bucket] = {}


def bucket_at(base: str) -> Bucket:
    """Return the `Bucket` of an address for reading, made once in this process; raises `ObjectStoreError`."""
    if base not in _open:
        _open[base] = Bucket(base)
    return _open[base]
