"""Tell which rows of a transcript the user took back by rewinding.

The CLI only appends rows. If the user rewinds to a prompt and writes another one, the second prompt has the same parent
as the first. The first prompt and all rows after it stay in the file, but are no part of the conversation any more. A
prompt after a `/clear` may have no parent either; it takes nothing back.
"""

from __future__ import annotations

from mala_context.transcripts.compactions import is_clear
from mala_context.transcripts.prompts import is_prompt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Branches:
    """Sees the rows of one agent in the order of the file, and tells which of them were taken back."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._prompts: dict[str | None, str] = {}
        self._left: set[str] = set()

    def take(self, row: Mapping[str, Any]) -> None:
        """See the next row."""
        uuid, parent = row.get("uuid"), row.get("parentUuid", False)
        if not isinstance(uuid, str) or not (parent is None or isinstance(parent, str)):
            return
        self._parents[uuid] = parent
        if is_clear(row):
            # The first prompt after a /clear has no parent, like the first one of the file: it would look like a rewind
            # to the start.
            self._prompts.clear()
        elif is_prompt(row):
            earlier = self._prompts.get(parent)
            if earlier is not None and earlier != uuid:
                self._left.add(earlier)
            self._prompts[parent] = uuid

    def is_left(self, uuid: str | None) -> bool:
        """Tell whether a row is in a branch that was taken back."""
        seen: set[str] = set()  # a damaged file may have a loop of parents
        while uuid is not None and uuid not in seen:
            if uuid in self._left:
                return True
            seen.add(uuid)
            uuid = self._parents.get(uuid)
        return False
