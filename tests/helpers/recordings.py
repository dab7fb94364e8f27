"""Rows of recorded sessions for the tests of `replay`, in a few words each."""

import itertools
import json
import random

from tests.benchmarks import corpus

SID = "0b5e0000-0000-4000-8000-000000000001"
OTHER = "0b5e0000-0000-4000-8000-000000000002"


def dump(rows):
    """Rows (dicts, or bytes for lines that are none) as a transcript's bytes."""
    return b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows)


class Rows:
    """Builds rows that go on from one another; each call returns the row."""

    def __init__(self, session_id=SID, agent=None, start=1):
        self.session_id, self.agent = session_id, agent
        self.count = itertools.count(start)
        self.parent = None
        self.rows = []

    def row(self, kind, parent=..., **fields):
        number = next(self.count)
        row = {"type": kind, "uuid": f"{self.session_id[-4:]}-{self.agent or 'm'}-{number}"}
        row |= {"parentUuid": self.parent if parent is ... else parent, "sessionId": self.session_id}
        row |= {"timestamp": f"2026-05-01T10:{number // 60:02d}:{number % 60:02d}.000Z", "version": "2.1.222"}
        row["isSidechain"] = self.agent is not None
        if self.agent is not None:
            row["agentId"] = self.agent
        row |= fields
        self.parent = row["uuid"]
        self.rows.append(row)
        return row

    def prompt(self, text="hello there", **fields):
        return self.row("user", message={"role": "user", "content": text}, **fields)

    def response(self, identity, tokens, output=20, text="an answer", model="claude-sonnet-4-5", **fields):
        usage = {"input_tokens": 3, "cache_creation_input_tokens": 0, "cache_read_input_tokens": max(0, tokens - 3)}
        usage["output_tokens"] = output
        if not tokens:
            usage["input_tokens"] = 0
        message = {"id": identity, "model": model, "role": "assistant", "usage": usage}
        message["content"] = [{"type": "text", "text": text}]
        return self.row("assistant", message=message, requestId=f"req-{identity}", **fields)

    def boundary(self, pre, post=None, trigger="auto"):
        meta = {"trigger": trigger, "preTokens": pre} | ({} if post is None else {"postTokens": post})
        logical = self.parent
        fields = {"logicalParentUuid": logical, "compactMetadata": meta}
        return self.row("system", None, subtype="compact_boundary", **fields)

    def summary(self, **fields):
        return self.row("user", isCompactSummary=True, message={"role": "user", "content": "a summary"}, **fields)

    def write(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dump(self.rows))
        return str(path)


def plain(session_id=SID):
    """A session with two responses, a compaction and a response behind it."""
    rows = Rows(session_id)
    rows.prompt()
    rows.response(f"a-{session_id[-1]}", 20_000)
    rows.prompt("x" * 400)
    rows.response(f"b-{session_id[-1]}", 20_180, output=60)
    rows.prompt("y" * 4_000)
    rows.boundary(21_240, 900)
    rows.summary()
    rows.response(f"c-{session_id[-1]}", 20_900)
    return rows


def generated(seed, size=40_000, **fields):
    """Lines of a generated session that compacts early."""
    random_ = random.Random(seed)
    session = corpus.Session(random_, corpus.pool(random_, 1 << 17), **fields)
    session.threshold = session.base + 6_000
    return session.run(size).rows
