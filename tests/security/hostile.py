"""A machine on which every text that a session can choose is hostile."""

import json
import os

from mala_context.archive.store import TranscriptArchive

SID = "6d616c61-0000-4000-8000-000000000001"
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\u202egnp.exe\u2066\r\x08\x7f\u2028</script><img src=x onerror=alert(1)>"
NAME = "\x1b]0;owned\x07\x1b[2J\u202egnp\r\n<b>"
"""The same as a part of a path."""
USAGE = {
    "input_tokens": 20_000,
    "output_tokens": 50,
    "cache_read_input_tokens": 160_000,
    "cache_creation_input_tokens": 0,
}


def rows(session_id=SID):
    """A session with a compaction whose every free text is hostile; session and row ids too, but for the file's."""
    made = []

    def row(kind, **fields):
        uuid = f"{EVIL}-{len(made)}"
        about = {"cwd": "/home/" + EVIL, "gitBranch": EVIL, "version": EVIL, "slug": EVIL, "timestamp": EVIL}
        parent = made[-1]["uuid"] if made else None
        made.append({"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": session_id, **about, **fields})
        made[-1].setdefault("isSidechain", False)

    def answer(number):
        blocks = [
            {"type": "text", "text": EVIL},
            {"type": "thinking", "thinking": EVIL},
            {"type": "tool_use", "id": f"{EVIL}{number}", "name": EVIL, "input": {EVIL: EVIL, "file_path": "/" + EVIL}},
            {"type": EVIL},
        ]
        message = {"id": f"{EVIL}{number}", "model": EVIL, "role": "assistant", "content": blocks, "stop_reason": EVIL}
        row("assistant", message={**message, "usage": USAGE}, requestId=EVIL)
        result = {"type": "tool_result", "tool_use_id": f"{EVIL}{number}", "content": EVIL * 400}
        row("user", message={"role": "user", "content": [result]}, toolUseResult={"agentId": EVIL, EVIL: EVIL})

    row("user", message={"role": "user", "content": EVIL + f" never touch /srv/{EVIL}.py"})
    answer(1)
    row("attachment", attachment={"type": EVIL, "content": EVIL})
    row("user", message={"role": "user", "content": f"<local-command-stdout>{EVIL}</local-command-stdout>"})
    answer(2)
    meta = {"trigger": EVIL, "preTokens": 181_000, "postTokens": 20_000, EVIL: EVIL}
    row("system", subtype="compact_boundary", compactMetadata=meta, content=EVIL, parentUuid=None)
    row("user", isCompactSummary=True, message={"role": "user", "content": EVIL})
    answer(3)
    row("system", subtype=EVIL, content=EVIL, level=EVIL)
    row(EVIL, message=EVIL)
    row(
        "assistant",
        isApiErrorMessage=True,
        message={"model": "<synthetic>", "content": [{"type": "text", "text": EVIL}]},
    )
    return made


def dump(made):
    """Rows as a transcript, with a line in it that is no JSON."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in made) + EVIL.encode() + b"\n"


class Machine:
    """Transcripts, archives, a configuration and names of files, all of them hostile."""

    def __init__(self, root, monkeypatch):
        self.runs, self.claude = root / "runs", root / "claude"
        for name, value in (("MALA_RUNS_DIR", self.runs), ("CLAUDE_CONFIG_DIR", self.claude), ("HOME", root / "home")):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("NO_COLOR", "1")
        self.repo = root / ("repo" + NAME)
        self.folder = self.claude / "projects" / ("-home" + NAME)
        for each in (self.repo, self.folder, root / "home"):
            each.mkdir(parents=True)
        monkeypatch.chdir(self.repo)
        self.transcript = self.folder / f"{SID}.jsonl"
        self.transcript.write_bytes(dump(rows()))
        self.odd = self.folder / f"{NAME}.jsonl"
        self.odd.write_bytes(dump(rows(EVIL)))
        beside = self.folder / SID / "subagents"
        beside.mkdir(parents=True)
        agent = [{**each, "isSidechain": True, "agentId": EVIL} for each in rows()]
        (beside / f"agent-{NAME}.jsonl").write_bytes(dump(agent))
        (beside / "agent-a1.jsonl").write_bytes(dump(agent))
        results = self.folder / SID / "tool-results"
        results.mkdir()
        (results / f"{NAME}.txt").write_text(EVIL)
        self.archive = TranscriptArchive(repo_path=self.repo)
        self.archive.archive_session(self.transcript, SID, trigger="manual", agent=EVIL, cwd="/home/" + EVIL)
        self.archive.archive(beside / "agent-a1.jsonl", SID, trigger="auto", agent="a1", subagent="a1")
        lost = {kind: {"missing": [EVIL], "of": 2, "named": 1} for kind in ("instruction", "read", "written", EVIL)}
        fields = {"tokens_before": 181_000, "tokens_after": 20_000, "trigger": EVIL, "summary": EVIL, "lost": lost}
        self.archive.record_outcome(SID, "compacted", agent="main", **fields)
        self.archive.record_outcome(SID, "failed", agent=EVIL, error=EVIL, trigger=EVIL)
        with open(os.path.join(self.archive.location, f"{SID}.manifest.jsonl"), "ab") as file:
            file.write(json.dumps({"row": "piece", "name": EVIL, "trigger": EVIL, "time": EVIL}).encode() + b"\n")
        os.makedirs(os.path.join(self.runs, "other" + NAME, "archives"))


def on_a_terminal(text, *, lines="\n"):
    """Whether a terminal only shows a text."""
    return all(each.isprintable() or each in lines for each in text)
