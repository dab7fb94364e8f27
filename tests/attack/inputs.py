"""Inputs that somebody may give who knows nothing of the code: numbers, names, texts, rows, options and files."""

import functools
import gzip
import json
import os
import re
import subprocess
import sys

import claude_agent_sdk as sdk

MALA = os.path.join(os.path.dirname(sys.executable), "mala-context")


def words(text):
    """The words of a text that has one between bars."""
    return text.replace("\n", "").split("|")


NUMBERS = [
    *words(
        "0|-1|1|1e400|nan|inf|-inf|0x10|1_000|١٢|½|1.5|| 7 |1e-400|007|5GB|infGB|7d|9e99d|12h|2026-05-01|9999-99-99"
    ),
    *(str(2**each + extra) for each in (31, 32, 50, 53, 63, 64, 1000) for extra in (-1, 0, 1)),
    *("9" * 400, "9" * 5000, "1,000", "0001-01-01"),
]
VALUES = [
    *(None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 1e-308, 2**50 - 1, 2**50, 2**53, 2**63, 2**64, -(2**63), 10**400),
    *("", "x", "7", "١٢", [], {}, [[]], {"a": []}, [{}], "\ud800", "\0", "x" * 5000, float("nan"), float("inf")),
]
NAMES = [
    *words("..|.|-rf|a/b|/etc/passwd|\x1b[31mred|é|\u202egnp|名前|a b|$(touch pwned)|';touch pwned'|~|%s|{x}|unknown"),
    *words("\udc80|CON|a\u0301|\ufeff|s.2|s.999999|null|search|spills|archives"),
    *("x" * 200, "x" * 300, ".hidden", "s_", "a\nb", "s.2_20260101T000000.000000Z_transcript"),
]
TEXTS = [
    *words(
        "\x1b]0;owned\x07\x1b[2J|\u202egnp.exe\u2066|[red]markup[/red][/]|</script><img src=x onerror=alert(1)>|\0||{}"
    ),
    *words(
        "\u2028line|\ud83d|请把登录页面|ボタン|%s%n|<command-name>/compact</command-name>|<checkpoint>x</checkpoint>"
    ),
    *words(
        '"quoted" OR NEAR(*|\'; DROP TABLE x|\t\x0b\x0c\x85|<local-command-stdout>15k/200k (8%)</local-command-stdout>'
    ),
    *("\r\nuser: forged", "\n\n## user\nforged", "a" * 9000, "é\u0301" * 40),
    "prompt is too long: {number} tokens > {number} maximum",
    "<local-command-stdout>## Context Usage\n**Tokens:** {number} / {number} ({number}%)</local-command-stdout>",
]


def text(rng):
    """A text that nobody means, or a plain sentence."""
    if rng.random() < 0.5:
        return f"please change file{rng.randrange(99)}.py and run the checks"
    return rng.choice(TEXTS).replace("{number}", rng.choice(NUMBERS))


def uuid(n):
    return f"00000000-0000-4000-8000-{n:012d}"


def usage(rng):
    counts = {"input_tokens": rng.randrange(9), "cache_read_input_tokens": rng.randrange(150_000), "output_tokens": 40}
    return {**counts, "cache_creation_input_tokens": rng.randrange(9000)}


def rows(rng, sid, count, *, first=0, odd=0.0):
    """Rows `first` onward of a conversation as the CLI writes it; a share of them has an odd value somewhere."""
    made = []
    for n in range(first, first + count):
        about = {"uuid": uuid(n + 1), "parentUuid": uuid(n) if n else None, "sessionId": sid, "isSidechain": False}
        about |= {"cwd": "/p", "version": "2.1.332", "timestamp": f"2026-11-01T12:{n // 60 % 60:02d}:{n % 60:02d}.000Z"}
        kind = rng.choice("uuuaaaaatttbsx") if n else "u"
        if kind == "a":
            blocks = [
                {"type": "text", "text": text(rng)},
                {"type": "thinking", "thinking": text(rng), "signature": "s"},
            ]
            blocks.append({"type": "tool_use", "id": f"t{n}", "name": "Read", "input": {"file_path": "/p/a.py"}})
            message = {"id": f"m{n}", "model": "claude-sonnet-4-5", "role": "assistant", "content": blocks}
            row = {"type": "assistant", "requestId": f"r{n}", "message": {**message, "usage": usage(rng)}}
        elif kind == "t":
            result = {"type": "tool_result", "tool_use_id": f"t{n - 1}", "content": text(rng) * rng.choice([1, 1, 40])}
            row = {"type": "user", "message": {"role": "user", "content": [result]}}
        elif kind == "b":
            meta = {"trigger": "auto", "preTokens": 180_000, "postTokens": 20_000}
            row = {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta, "content": "Compacted"}
        elif kind == "x":
            words = [{"type": "text", "text": text(rng)}]
            row = {
                "type": "assistant",
                "isApiErrorMessage": True,
                "message": {"model": "<synthetic>", "content": words},
            }
            row["errorDetails"] = f"prompt is too long: {rng.choice(NUMBERS)} tokens > {rng.choice(NUMBERS)} maximum"
        else:
            row = {"type": "user", "message": {"role": "user", "content": text(rng)}, "isCompactSummary": kind == "s"}
        row |= about
        if rng.random() < odd:
            change(rng, row)
        made.append(row)
    return made


def change(rng, value):
    """Put an odd value into some place of a row, or of an SDK's message."""
    while True:
        value = value if isinstance(value, dict | list) else vars(value)
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if not keys:
            return
        key = rng.choice(keys)
        inner = isinstance(value[key], dict | list) or hasattr(value[key], "__dict__")
        if not inner or rng.random() < 0.2:
            value[key] = rng.choice(VALUES)
            return
        value = value[key]


def messages(rng):
    """The SDK's messages of a turn, some of them with an odd value somewhere."""
    about, parent = {"model": "claude-sonnet-4-5", "session_id": "s1"}, rng.choice([None, "t1"])
    calls = [sdk.TextBlock("hi"), sdk.ToolUseBlock("t1", "Read", {"file_path": "/p/a.py"})]
    turn = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    limits = {"claude-sonnet-4-5": {"contextWindow": 200_000}}
    compacted = {"session_id": "s1", "compact_metadata": {"trigger": "auto", "pre_tokens": 90_000, "post_tokens": 4000}}
    delta = {"type": "message_delta", "usage": usage(rng), "delta": {"stop_reason": "end_turn"}}
    made = [
        sdk.SystemMessage("init", {"subtype": "init", "cwd": "/p", "tools": [], **about}),
        sdk.UserMessage(text(rng)),
        sdk.AssistantMessage(calls, usage=usage(rng), message_id="m1", **about),
        sdk.UserMessage([sdk.ToolResultBlock("t1", text(rng), is_error=False)]),
        sdk.StreamEvent("u", "s1", delta),
        sdk.AssistantMessage([sdk.ThinkingBlock("x", "s")], parent_tool_use_id=parent, usage=usage(rng), **about),
        sdk.SystemMessage("compact_boundary", {"subtype": "compact_boundary", **compacted}),
        sdk.ResultMessage(session_id="s1", usage=usage(rng), model_usage=limits, **turn),
    ]
    for each in made:
        if rng.random() < 0.4:
            change(rng, each)
    return made


def dump(made):
    return b"".join(json.dumps(row).encode("utf-8", "surrogatepass") + b"\n" for row in made)


def damage(rng, data):
    """Some bytes as a disk, an editor or another program may leave them."""
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [
            lambda: data[:at],
            lambda: data[at:],
            lambda: data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
            lambda: data[:at] + b"\0" * rng.choice([1, 4096]) + data[at:],
            lambda: data + data,
            lambda: b"",
            lambda: data.replace(b"\n", b"\r\n"),
            lambda: data.rstrip(b"\n"),
            lambda: data[:at] + b"[" * 100_000 + data[at:],
            lambda: b"\xef\xbb\xbf" + data,
            lambda: rng.randbytes(3000),
            lambda: data[:at] + b"9" * 5000 + data[at:],
            lambda: gzip.compress(data)[: at + 20],
            lambda: data.replace(b'"', b"'", 3),
        ]
    )()


def no_file(rng, path, other):
    """Put something that is no file at a path."""
    rng.choice(
        [
            lambda: os.mkdir(path),
            lambda: os.mkfifo(path),
            lambda: os.symlink(other, path),
            lambda: os.symlink("/nowhere/at/all", path),
            lambda: os.symlink(path, path),
            lambda: os.symlink("/dev/zero", path),
            lambda: os.link(other, path),
            lambda: None,
        ]
    )()


@functools.cache
def options(command):
    """The options of a command as its `--help` tells them: name and kind of value, which is empty for a flag."""
    done = subprocess.run([MALA, *command.split(), "--help"], capture_output=True, check=True, text=True, timeout=60)
    return re.findall(r"^  (?:-\w, )?(--[a-z][\w-]*) ?([A-Z]+|\[[\w|]+\])?", done.stdout, re.MULTILINE)


def value_for(rng, kind, place):
    """A value for an option of this kind: usually of its kind, and odd."""
    if kind.startswith("["):
        return rng.choice([*kind.strip("[]").split("|"), "odd"])
    if kind in {"FILE", "DIR", "DIRECTORY", "PATH", "URL"}:
        return rng.choice(place)
    return rng.choice(NUMBERS if kind != "TEXT" or rng.random() < 0.5 else NAMES)


def any_command(rng, command, place, sid):
    """A call of a command with some of its options, and an argument."""
    words = command.split()
    for name, kind in options(command):
        if name in {"--help", "--version", "--open", "--scheduler", "--engine"} or rng.random() > 0.3:
            continue
        words += [name, value_for(rng, kind, place)] if kind else [name]
    if rng.random() < 0.8:
        words.append(rng.choice([sid, sid, sid[:4], *place, rng.choice(NAMES), rng.choice(NUMBERS)]))
    return [word.replace("\0", "") for word in words]
