"""Whether the object store that `archive.directory` names can be written to and read.

A few bytes are sent under a name of their own beside the archives, read back and removed. Whatever a store answers is
put in words by the archive's own `Bucket`, which repeats none of it, so no credential gets here.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Mapping
from typing import Final

from mala_context.analysis.doctor.facts import ObjectStore
from mala_context.archive import layout
from mala_context.archive.remote.address import Target
from mala_context.archive.remote.bucket import Bucket
from mala_context.config import ContextConfig, target_of
from mala_context.errors import ArchiveError, ObjectStoreError

SECONDS: Final = 20.0
"""Longest that a store is waited for; the library's own tries take less where nothing answers at all."""
_NAME: Final = ".mala-context-doctor"
_WORDS: Final = b"mala-context doctor\n"


def stores(
    repo: str, config: ContextConfig, env: Mapping[str, str], seconds: float = SECONDS
) -> tuple[ObjectStore, ...]:
    """Return what became of writing to the repository's object store; nothing where none is named."""
    target = target_of(config.archive)
    if target is None:
        return ()
    found: list[ObjectStore] = []
    thread = threading.Thread(
        target=lambda: found.append(_tried(repo, target, env)), name="mala-context doctor", daemon=True
    )
    thread.start()
    thread.join(seconds)
    late = ObjectStore(target.address, error=f"it does not answer within {seconds:g} s")
    return (found[0] if found else late,)


def _tried(repo: str, target: Target, env: Mapping[str, str]) -> ObjectStore:
    begun = time.monotonic()
    try:
        base = target.base(layout.repo_runs_dir(repo, env))
        bucket = Bucket(base, target.encryption, target.kms_key)
        bucket.put(_NAME, io.BytesIO(_WORDS), len(_WORDS))
        came_back = bucket.read(_NAME) == _WORDS
        with contextlib.suppress(ObjectStoreError):  # whoever may remove nothing there can archive all the same
            bucket.remove(_NAME)
    except ObjectStoreError as error:
        return ObjectStore(target.address, error=error.reason, installed=error.installed)
    except (ArchiveError, OSError, ValueError) as error:
        return ObjectStore(target.address, error=str(error))
    wrong = None if came_back else "what was written to it cannot be read back"
    return ObjectStore(base, time.monotonic() - begun, wrong)
