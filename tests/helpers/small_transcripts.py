"""Small transcripts with compactions, for the tests of the archive's read side."""

import json

SID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def uuid(n):
    return f"00000000-0000-4000-8000-{n:012d}"


def message(n, text="", kind="user", **fields):
    """One row of conversation, number n; its time is n seconds past noon."""
    content = text or f"message {n}"
    return {
        "parentUuid": uuid(n - 1) if n > 1 else None,
        "isSidechain": False,
        "type": kind,
        "message": {"role": kind, "content": content},
        "uuid": uuid(n),
        "timestamp": f"2026-11-01T12:{n // 60:02d}:{n % 60:02d}.000Z",
        "cwd": "/home/dev/project",
        "sessionId": SID,
        **fields,
    }


def boundary(n, **fields):
    meta = {"trigger": "auto", "preTokens": 180_000, "postTokens": 20_000}
    row = message(n, type="system", subtype="compact_boundary", compactMetadata=meta, content="Conversation compacted")
    return {**{key: value for key, value in row.items() if key != "message"}, "parentUuid": None, **fields}


def summary(n, **fields):
    return message(n, "This session is being continued.", isCompactSummary=True, **fields)


def dump(rows):
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def session(compactions=2, each=4):
    """The rows of a session that was compacted so often, each time after so many rows."""
    rows, n = [], 0
    for part in range(compactions + 1):
        if part:
            rows += [boundary(n + 1), summary(n + 2)]
            n += 2
        for _ in range(each):
            n += 1
            rows.append(message(n, kind="user" if n % 2 else "assistant"))
    return rows


class Told(list):
    """A progress that notes what it is told, and how much it was told to expect."""

    expected = 0

    def expect(self, size):
        self.expected += size

    def __call__(self, size):
        self.append(size)
