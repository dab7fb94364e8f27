"""One corpus a shape of transcript, from the modern one that `corpus` writes; and a mixture of all of them.

    python tests/benchmarks/shapes.py FOLDER SHAPE [MEGABYTES]

Each shape stands for what real folders hold besides modern sessions: the shares are higher than in life, so that what a
shape costs is seen. Totals of tokens stay those of a folder that another program reads too.
"""

import copy
import itertools
import json
import os
import random
import sys
import uuid

OTHER_TEXT = "\u00e9t\u00e9 \u5b57\u5b57\u6bb5 \u0434\u043e\u043c \U0001f600 "
REFUSED = "prompt is too long: 210000 tokens > 200000 maximum"


def new_id(random_):
    return str(uuid.UUID(int=random_.getrandbits(128), version=4))


def placed(rows):
    """Places of rows that have an id."""
    return [place for place, row in enumerate(rows) if row.get("uuid")]


def prompts(rows):
    return [
        place
        for place, row in enumerate(rows)
        if row["type"] == "user" and isinstance(row["message"]["content"], str) and not row.get("isCompactSummary")
    ]


def is_plain(row):
    """Whether a row has an id and is no compaction's."""
    return row.get("uuid") and row.get("subtype") != "compact_boundary" and not row.get("isCompactSummary")


def sidechains(rows, random_):
    """A subagent's rows inside, without its name, as CLIs before 2.0.30 wrote them: a third of all."""
    found = []
    for start in range(0, len(rows), 60):
        part = rows[start : start + 60]
        inside = itertools.dropwhile(lambda row: row["type"] != "user", (row for row in part[:30] if is_plain(row)))
        inside, ids, parent = copy.deepcopy(list(inside)), {}, None
        for row in inside:
            message = row.get("message")
            if isinstance(message, dict) and message.get("id"):
                message["id"] = ids.setdefault(message["id"], f"msg_{random_.getrandbits(96):024x}")
                row["requestId"] = f"req_{message['id']}"
            row |= {"isSidechain": True, "parentUuid": parent, "uuid": new_id(random_)}
            parent = row["uuid"]
        found += inside + part
    return found


def rewinds(rows, random_):
    """Every third prompt goes back to a row some thirty before."""
    for place in prompts(rows)[2::3]:
        back = [each for each in placed(rows[:place]) if place - each > 10][-20:]
        if back:
            rows[place]["parentUuid"] = rows[random_.choice(back)]["uuid"]
    return rows


def clears(rows, random_):
    """A `/clear` before every fifth prompt."""
    for place in reversed(prompts(rows)[4::5]):
        row = {name: rows[place][name] for name in ("sessionId", "timestamp", "isSidechain")}
        row |= {"parentUuid": None, "type": "progress", "uuid": new_id(random_)}
        row["data"] = {"type": "hook_progress", "hookEvent": "SessionStart", "hookName": "SessionStart:clear"}
        rows[place]["parentUuid"] = row["uuid"]
        rows.insert(place, row)
    return rows


def refusals(rows, random_):
    """A request that is refused before every fifth prompt."""
    for place in reversed(prompts(rows)[4::5]):
        row = {name: rows[place][name] for name in ("sessionId", "timestamp", "isSidechain", "parentUuid")}
        message = {"model": "<synthetic>", "role": "assistant", "content": [{"type": "text", "text": REFUSED}]}
        row |= {"type": "assistant", "uuid": new_id(random_), "isApiErrorMessage": True, "message": message}
        rows[place]["parentUuid"] = row["uuid"]
        rows.insert(place, row)
    return rows


def without_counts(rows, random_):
    """Every tenth response has no counts."""
    number, last = 0, None
    for row in rows:
        if row["type"] == "assistant" and row["message"].get("id") != last:
            number, last = number + 1, row["message"].get("id")
        if row["type"] == "assistant" and number % 10 == 0:
            row["message"].pop("usage", None)
    return rows


def compacted_last(rows, random_):
    """A compaction and nothing after it."""
    there = [row for row in rows if row.get("uuid")]
    if there:
        base = {name: there[-1][name] for name in ("sessionId", "timestamp", "isSidechain")}
        meta = {"trigger": "manual", "preTokens": 90_000, "postTokens": 6_000}
        boundary = {"type": "system", "subtype": "compact_boundary", "parentUuid": None, "uuid": new_id(random_)}
        rows.append(base | boundary | {"logicalParentUuid": there[-1]["uuid"], "compactMetadata": meta})
        summary = {"role": "user", "content": "What was done. " * 300}
        fields = {"type": "user", "isCompactSummary": True, "uuid": new_id(random_), "message": summary}
        rows.append(base | fields | {"parentUuid": boundary["uuid"]})
    return rows


def not_ascii(rows, random_):
    """Text of other languages."""
    for row in rows:
        message = row.get("message")
        if isinstance(message, dict) and isinstance(message.get("content"), str):
            message["content"] += OTHER_TEXT * 20
        if isinstance(row.get("toolUseResult"), dict):
            row["toolUseResult"]["stdout"] = OTHER_TEXT * (len(row["toolUseResult"]["stdout"]) // len(OTHER_TEXT))
    return rows


def deep(rows, random_):
    """Results that are nested a hundred deep."""
    for row in rows:
        if "toolUseResult" in row:
            value = row["toolUseResult"]
            for _ in range(100):
                value = [value]
            row["toolUseResult"] = {"value": value}
    return rows


def same(rows, random_):
    return rows


def reversed_keys(row):
    return json.dumps(dict(reversed(row.items())), separators=(",", ":"), ensure_ascii=False)


def compact(row):
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


SHAPES = {
    "modern": (same, compact, "\n"),
    "sidechains inside": (sidechains, compact, "\n"),
    "rewinds": (rewinds, compact, "\n"),
    "/clear": (clears, compact, "\n"),
    "refusals": (refusals, compact, "\n"),
    "missing counts": (without_counts, compact, "\n"),
    "compaction at the end": (compacted_last, compact, "\n"),
    "spaces": (same, json.dumps, "\n"),
    "other key order": (same, reversed_keys, "\n"),
    "CRLF": (same, compact, "\r\n"),
    "not ASCII": (not_ascii, compact, "\n"),
    "deep rows": (deep, compact, "\n"),
    "torn lines": (same, compact, "\n"),
}
"""Name → what is done to a file's rows, how a row is written, and what stands behind it."""
UNREAD = "spaces"
"""The shape in which ccusage 20.0.24 finds no row; the mixture is without it."""


def reshape(path, name, random_):
    """Give a file a shape."""
    change, text, end = SHAPES[name]
    with open(path, encoding="utf-8", newline="\n") as file:
        rows = [json.loads(line) for line in file]
    rows = change(rows, random_)
    tail = ""
    if name == "torn lines":
        end, tail = "\n", '{"parentUuid":"to'
        for _ in range(len(rows) // 100):
            rows.insert(random_.randrange(len(rows)), None)
    torn = '{"parentUuid":"torn","type":"user","message":{"role":"us'
    lines = [torn if row is None else text(row) for row in rows]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(end.join(lines) + end + tail)


def write(folder, name, megabytes, seed=1):
    """Write about so many megabytes in a shape, or in all of them in turn for `mixture`; return the bytes."""
    import corpus  # beside this file, as a script finds it

    corpus.write(folder, megabytes, seed)
    random_, total = random.Random(seed), 0
    names, number = [each for each in SHAPES if each != UNREAD], 0
    for at, _, files in sorted(os.walk(folder)):
        for file in sorted(files):
            path = os.path.join(at, file)
            reshape(path, names[number % len(names)] if name == "mixture" else name, random_)
            number += 1
            total += os.path.getsize(path)
    return total


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if len(arguments) < 2:
        sys.exit(__doc__)
    print(f"{write(arguments[0], arguments[1], float((arguments[2:3] or [50])[0])):,} bytes")
