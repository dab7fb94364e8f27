"""Sessions for the tests of `report`: one with all that a report shows, a long one, and one with hostile text."""

import random

from tests.helpers.recordings import SID, Rows

HOSTILE = (
    "\x1b]0;title\x07\x1b[2J <script>window.hacked=1;alert(1)</script> \u202e"
    "</script><img src=x onerror=hacked=1>\u2028"
)


def call(rows, identity, tokens, name, given, result, **fields):
    """A response that calls a tool, and the tool's result."""
    row = rows.response(identity, tokens, **fields)
    row["message"]["content"] = [{"type": "tool_use", "id": f"call-{identity}", "name": name, "input": given}]
    content = [{"type": "tool_result", "tool_use_id": f"call-{identity}", "content": result}]
    at = {"timestamp": fields["timestamp"]} if "timestamp" in fields else {}
    rows.row("user", message={"role": "user", "content": content}, **at)


def stamp(number):
    return f"2026-05-01T{10 + number // 3600:02d}:{number // 60 % 60:02d}:{number % 60:02d}.000Z"


def long_session(path, responses=5_000, seed=7):
    """Write a session of many responses that is compacted again and again, and its two subagents."""
    random_ = random.Random(seed)
    rows = Rows()
    rows.prompt("Make all of it work.", timestamp=stamp(0))
    tokens = 21_000
    for number in range(responses):
        time = stamp(number * 5)
        if tokens > 166_000:
            rows.boundary(tokens + 500, 4_000)["timestamp"] = time
            summary = rows.summary()
            summary["message"]["content"] = "All of it, but for /p/module_3.py."
            summary["timestamp"] = time
            tokens = 31_000
        tokens += random_.randrange(50, 1_500)
        if number % 97 == 50:
            tokens += 9_000
            path_ = f"/p/module_{number % 11}.py"
            call(
                rows, f"r{number}", tokens, "Read", {"file_path": path_}, "def f(): return 0\n" * 1_500, timestamp=time
            )
        elif number % 3:
            call(rows, f"r{number}", tokens, "Bash", {"command": "make test"}, "ok " * 40, timestamp=time)
        else:
            rows.response(f"r{number}", tokens, timestamp=time)
    rows.write(path)
    for name, start in (("a1", responses // 5), ("b2", responses // 2)):
        sub = Rows(agent=name)
        sub.prompt(timestamp=stamp(start * 5))
        for number in range(40):
            sub.response(f"{name}-{number}", 9_000 + 1_200 * number, timestamp=stamp((start + number) * 5))
        sub.write(path.parent / SID / "subagents" / f"agent-{name}.jsonl")
    return str(path)


def hostile_session(path):
    """Write a session whose tools, files, prompts, summaries, model and subagents are named to do harm."""
    rows = Rows()
    rows.prompt(HOSTILE)
    call(rows, "a", 20_000, HOSTILE, {"file_path": HOSTILE}, HOSTILE * 800)
    call(rows, "b", 40_000, "Read", {"file_path": f"/p/{HOSTILE}"}, HOSTILE * 800)
    rows.response("c", 60_000, model=f"claude-{HOSTILE}")
    rows.boundary(61_000, 900, trigger=HOSTILE)
    rows.summary()["message"]["content"] = HOSTILE[:30]
    rows.response("d", 150_000)
    sub = Rows(agent=HOSTILE)
    sub.prompt()
    sub.response("s", 7_000)
    sub.write(path.parent / SID / "subagents" / "agent-x.jsonl")
    return rows.write(path)
