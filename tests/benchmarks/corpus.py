"""Writes a folder of transcripts like real ones, of any size, the same for the same seed.

Sizes and shares follow what public transcripts show: two rows a response, 40 % of the rows from the assistant and 20 %
with results, which hold most of the bytes; a quarter progress; one compaction in about 5 MB; a subagent's file beside
every third session; one file in six without a newline at its end; a fork now and then, which repeats its origin's
responses.

    python tests/benchmarks/corpus.py FOLDER [MEGABYTES] [SEED]
"""

import json
import os
import random
import sys
import uuid
from datetime import UTC, datetime

MODELS = ("claude-sonnet-4-5-20250929", "claude-opus-4-8", "claude-haiku-4-5-20251001", "claude-opus-5")
TEXT = (
    "the of a to in def return import self None True if for while else class file path line error value test index "
    "config session token context window request response model count data result list dict string"
)
WORDS = TEXT.split()
THRESHOLD = 167_000


def pool(random_, size=1 << 20):
    """A text to cut pieces from, with digits, punctuation, quotes and line ends."""
    parts, length = [], 0
    while length < size:
        word = random_.choice(WORDS) if random_.random() < 0.85 else str(random_.randrange(10**6))
        word += random_.choice((" ", " ", " ", "\n    ", "(", ") ", ": ", '"', ", ", ".", " = "))
        parts.append(word)
        length += len(word)
    return "".join(parts)


class Session:
    """Rows of one agent's conversation, in order."""

    def __init__(self, random_, text, *, agent=None, session_id=None, rows=None):
        self.random, self.text, self.agent = random_, text, agent
        self.session_id = session_id or self.id()
        self.rows = rows if rows is not None else []
        self.parent = None
        self.clock = random_.randrange(1_750_000_000, 1_790_000_000)
        self.model = random_.choice(MODELS)
        self.base = self.tokens = random_.randrange(14_000, 25_000)
        self.growth = 0
        self.threshold = THRESHOLD
        self.bytes = 0

    def id(self):
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def cut(self, mean):
        length = min(int(self.random.expovariate(1 / mean)) + 20, 60_000)
        start = self.random.randrange(len(self.text) - length)
        return self.text[start : start + length]

    def row(self, kind, **fields):
        self.clock += self.random.expovariate(0.5)
        moment = self.clock - (30 if self.random.random() < 0.01 else 0)  # rows are not always in order of time
        head = {"parentUuid": self.parent, "isSidechain": self.agent is not None, "userType": "external"}
        head |= {"cwd": "/home/dev/project", "sessionId": self.session_id, "version": "2.1.222", "gitBranch": "main"}
        if self.agent is not None:
            head["agentId"] = self.agent
        row = head | {"type": kind} | fields | {"uuid": self.id(), "timestamp": iso(moment)}
        self.parent = row["uuid"]
        self.write(row)
        return row

    def write(self, row):
        line = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
        self.bytes += len(line)
        self.rows.append(line)

    def prompt(self):
        text = self.cut(400)
        self.growth += len(text) // 3
        self.row("user", message={"role": "user", "content": text})

    def response(self, calls):
        """One response: its text, its calls, and their results, each call's row behind the other's result."""
        random_ = self.random
        self.tokens += self.growth + 20
        identity, request = f"msg_{random_.getrandbits(96):024x}", f"req_{random_.getrandbits(96):024x}"
        text = self.cut(300)
        blocks = [{"type": "text", "text": text}]
        for _ in range(calls):
            name = random_.choice(("Bash", "Read", "Edit", "Grep"))
            call = f"toolu_{random_.getrandbits(96):024x}"
            blocks.append({"type": "tool_use", "id": call, "name": name, "input": {"command": self.cut(200)}})
        output = sum(len(json.dumps(block)) for block in blocks) // 4 + 10
        self.growth = output
        new = min(self.tokens - 1, 4 + self.growth * 3)
        for place, block in enumerate(blocks):
            last = place == len(blocks) - 1
            usage = {
                "input_tokens": 4,
                "cache_creation_input_tokens": new - 4,
                "cache_read_input_tokens": self.tokens - new,
                "cache_creation": {"ephemeral_5m_input_tokens": new - 4, "ephemeral_1h_input_tokens": 0},
                "output_tokens": output if last else random_.randrange(1, 9),
                "service_tier": "standard",
            }
            message = {"model": self.model, "id": identity, "type": "message", "role": "assistant", "content": [block]}
            stop = ("tool_use" if calls else "end_turn") if last else None
            message |= {"stop_reason": stop, "stop_sequence": None, "usage": usage}
            self.row("assistant", message=message, requestId=request)
        for block in blocks[1:]:
            while random_.random() < 0.5:
                self.row("progress", data={"type": "hook_progress", "command": self.cut(1_100)}, toolUseID=block["id"])
            text = self.cut(4_000)
            self.growth += len(text) // 3
            result = {"tool_use_id": block["id"], "type": "tool_result", "content": text}
            whole = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
            self.row("user", message={"role": "user", "content": [result]}, toolUseResult=whole)

    def others(self):
        random_ = self.random
        if random_.random() < 0.3:
            self.row("attachment", attachment={"type": "task_reminder", "content": self.cut(300)})
        if random_.random() < 0.2:
            self.write({"type": "file-history-snapshot", "messageId": self.id(), "snapshot": self.cut(800)})
        if random_.random() < 0.2:
            self.row("system", subtype="turn_duration", durationMs=random_.randrange(90_000), isMeta=False)
        if random_.random() < 0.01:
            error = {"model": "<synthetic>", "id": self.id(), "role": "assistant", "content": [], "usage": {}}
            self.row("assistant", message=error, isApiErrorMessage=True)

    def compact(self):
        parent, post = self.parent, self.random.randrange(3_000, 12_000)
        meta = {"trigger": "auto", "preTokens": self.tokens + self.growth, "postTokens": post}
        self.parent = None
        self.row("system", subtype="compact_boundary", logicalParentUuid=parent, compactMetadata=meta)
        summary = self.cut(8_000)
        self.row("user", isCompactSummary=True, message={"role": "user", "content": summary})
        self.tokens, self.growth = self.base + post, 0

    def run(self, size):
        while self.bytes < size:
            self.prompt()
            for _ in range(self.random.randrange(1, 12)):
                self.response(self.random.choice((0, 1, 1, 1, 2, 3)))
                if self.tokens + self.growth > self.threshold:
                    self.compact()
            self.response(0)
            self.others()
        return self


def iso(moment):
    """A time as transcripts have it."""
    when = datetime.fromtimestamp(moment, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def fork(session, random_):
    """Lines of a fork: the first half of a session's rows under another id."""
    new = str(uuid.UUID(int=random_.getrandbits(128), version=4))
    lines = session.rows[: len(session.rows) // 2]
    mark = json.dumps({"sessionId": session.session_id}, separators=(",", ":"))
    return new, [
        line.replace(f'"sessionId":"{session.session_id}"', f'"sessionId":"{new}","forkedFrom":{mark}')
        for line in lines
    ]


def write(folder, megabytes, seed=1):
    """Write about so many megabytes below `folder/projects`; returns the bytes written."""
    random_ = random.Random(seed)
    text = pool(random_)
    left = int(megabytes * 1e6)
    total = 0
    while left > 0:
        project = os.path.join(folder, "projects", f"-home-dev-project-{random_.randrange(12)}")
        size = min(left, int(random_.lognormvariate(13.3, 1.1)))
        session = Session(random_, text).run(size)
        files = {f"{session.session_id}.jsonl": session.rows}
        if random_.random() < 0.33:
            agent = f"a{random_.getrandbits(64):016x}"
            rows = Session(random_, text, agent=agent, session_id=session.session_id).run(size // 6).rows
            files[f"{session.session_id}/subagents/agent-{agent}.jsonl"] = rows
        if random_.random() < 0.02:
            new, rows = fork(session, random_)
            files[f"{new}.jsonl"] = rows
        for name, rows in files.items():
            path = os.path.join(project, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            data = "\n".join(rows) + ("" if random_.random() < 1 / 6 else "\n")
            with open(path, "w", encoding="utf-8") as file:
                file.write(data)
            written = os.path.getsize(path)
            total, left = total + written, left - written
    return total


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(__doc__)
    size, seed = float((arguments[1:2] or [500])[0]), int((arguments[2:3] or [1])[0])
    print(f"{write(arguments[0], size, seed):,} bytes")
