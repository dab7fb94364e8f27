"""The fast way gives what the careful way gives, whatever a transcript's shape; its compiled part changes nothing."""

import contextlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.analysis.replay import columns, decoded_columns
from mala_context.analysis.replay.counts import CountReader
from mala_context.analysis.replay.files import Recording, new_buffer
from mala_context.analysis.replay.follow import NeedsRatio
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.row_runs import NeedsFullReader
from mala_context.analysis.replay.scan import Scanner, read
from tests.benchmarks import shapes
from tests.helpers.recordings import Rows, dump, generated, plain

SKIMS = {columns.skim, decoded_columns.skim}


def recording(path):
    return Recording(str(path), (str(path),), 0)


def scan(path, buffer=None):
    """What the fast way gives: the same with its compiled part and without, and where it learns though it need not."""
    found, buffer = [], new_buffer() if buffer is None else buffer
    for skim in SKIMS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "skim", skim)
            found.append(Scanner(recording(path), learns=True).run(buffer))
            with contextlib.suppress(NeedsRatio):
                found.append(Scanner(recording(path)).run(buffer))
            with contextlib.suppress(NeedsFullReader):
                counted = CountReader(recording(path)).run(buffer)
                check_counts(counted, *found[0])
    assert all(each == found[0] for each in found[1:])
    return found[0]


def check_counts(counted, stretch):
    """Hold what is counted without a tracker against what is no estimate of a whole reading.

    A sidechain without a name that lacks a row falls in two. An agent that has no response of its own is left out of
    a whole reading then, with the last rows of its response, which have the largest output. A `/clear` lets the
    tracker forget the ids: a response with rows on both sides of it counts twice.
    """
    for name in ("session_id", "started_at", "ended_at", "is_fork"):
        assert getattr(counted, name) == getattr(stretch, name)
    (answered, main), (answers, most) = figures_of([counted.main]), figures_of([stretch.main])
    assert main == most
    (responses, counts), (expected, least) = figures_of(counted.agents), figures_of(stretch.agents)
    assert stretch.resets or (answered, responses) == (answers, expected)
    assert counts.keys() == least.keys()
    assert all(each == least[identity] or each[3] > least[identity][3] for identity, each in counts.items())


def figures_of(agents):
    """Return how many responses agents have, and the counts of each; the largest where several have it."""
    found = {}
    for agent in agents:
        for place, identity in enumerate(agent.ids):
            counts = tuple(agent.counts[4 * place : 4 * place + 4])
            found[identity] = max(found.get(identity, counts), counts, key=lambda each: each[3])
    return sum(each.responses for each in agents), found


def follow(path):
    return RecordingReader(recording(path)).run()


def both(path, data, buffer=None):
    path.write_bytes(data)
    careful = follow(path)
    try:
        return scan(path, buffer), careful
    except NeedsFullReader as error:  # the one shape that the fast way leaves to the careful way
        if str(error) != "a name in a sidechain without one":
            raise
        return careful, careful


def test_a_name_in_a_sidechain_without_one_is_left_to_the_careful_way(tmp_path):
    """A progress row of another agent stands in an old sidechain, whose rows have no name."""
    lines = list(LINES[3])
    for kind, place in (("drop", 19), ("drop", 19), ("agent", 16)):
        change(kind, lines, place, 0)
    path = tmp_path / "odd.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(NeedsFullReader):
        scan(path)
    assert read(recording(path)) == follow(path)


@pytest.mark.parametrize("seed", range(4))
def test_generated_sessions_are_scanned_and_the_same(tmp_path, seed):
    lines = generated(seed, 150_000, agent=None if seed else "a1")
    fast, slow = both(tmp_path / "a.jsonl", "\n".join(lines).encode())
    assert fast == slow
    assert fast[0].compactions or fast[0].agents[0].compactions


def thoughtful(seed):
    """Return rows of a session that thinks, changes its model, compacts, and goes back."""
    rng, rows, uuids, tokens = random.Random(seed), Rows(), [], 20_000
    models, version = (
        ("claude-opus-5", "claude-opus-4-8", "claude-sonnet-4-5"),
        rng.choice(["2.1.29", "2.1.97", "2.1.332"]),
    )
    model = models[0]
    rows.prompt("hello " * 20)
    for number in range(rng.randint(5, 24)):
        kind = rng.choice(["answer"] * 5 + ["prompt", "prompt", "model", "set", "compaction", "rewind"])
        if kind == "answer":
            thought = {"type": "thinking", "thinking": "", "signature": "s" * rng.randint(10, 20_000)}
            said = {"type": "text", "text": "words " * rng.randint(1, 80)}
            usage = {"cache_read_input_tokens": tokens, "output_tokens": rng.choice([1, 900])}
            usage |= rng.choice([{}, {"output_tokens_details": {"thinking_tokens": rng.choice([0, 1, 300, 800, 901])}}])
            short = {**thought, "signature": "s" * rng.randint(10, 900)}
            blocks = [[thought, said], [thought, said], [thought], [said], [thought, said, short], [short, thought]]
            for block in rng.choice(blocks):
                message = {"id": f"m{number}", "model": model, "content": [block], "usage": usage}
                uuids.append(rows.row("assistant", message=message, requestId=f"r{number}")["uuid"])
            tokens += rng.randint(100, 7_000)
        elif kind == "prompt":
            uuids.append(rows.prompt("again " * rng.randint(1, 90))["uuid"])
        elif kind == "set":
            model = rng.choice(models)
            rows.prompt(f"<local-command-stdout>Set model to `{model}`</local-command-stdout>")
        elif kind == "model":
            model = rng.choice(models)
            rows.row("attachment", attachment={"type": "model", "identity": {"modelId": model}})
        elif kind == "compaction" and uuids:
            kept = rng.sample(uuids, min(len(uuids), rng.randint(0, 6)))
            rows.boundary(tokens, 3_000)["compactMetadata"]["preservedMessages"] = {"uuids": kept}
            if rng.random() < 0.7:
                rows.summary()
            tokens = 20_000 + rng.randint(0, 9_000)
        elif kind == "rewind" and uuids:
            rows.parent = rng.choice(uuids)
    return [{**row, "version": version} for row in rows.rows]


@pytest.mark.parametrize("seed", [*range(60), 4195, 5416, 7282])
def test_sessions_that_think_and_change_their_model_are_scanned_and_the_same(tmp_path, seed):
    fast, slow = both(tmp_path / "a.jsonl", dump(thoughtful(seed)))
    assert fast == slow


def one(line):
    try:
        return json.loads(line)
    except ValueError:
        return {}


INSIDE = '},"isCompactSummary":true,"uuid":"u"}{"parentUuid":null,"message":{"usage":{"input_tokens":9}}}'
SPELLINGS = {
    "escaped key": lambda line: line.replace('"usage":', '"\\u0075sage":').replace('"uuid":', '"\\u0075uid":'),
    "escaped value": lambda line: line.replace('"type":"assistant"', '"type":"\\u0061ssistant"'),
    "blanks": lambda line: line.replace('":', '" : ').replace(',"', ' , "'),
    "return": lambda line: line + "\r",
    "blank before": lambda line: " \t" + line,
    "key twice": lambda line: line[:-1] + ',"uuid":"another","isSidechain":false}',
    "key twice, other kind": lambda line: line[:-1] + ',"type":"system"}',
    "late key": lambda line: line[:-1] + ',"isCompactSummary":true}',
    "needles in text": lambda line: line.replace('"content":"', f'"content":"{json.dumps(INSIDE)[1:-1]}', 1),
    "needles in keys": lambda line: line[:-1] + f',"toolUseResult":{{"x":{{{json.dumps(INSIDE)}:0}},"uuid":"u"}}}}',
    "two objects": lambda line: line + '{"type":"progress","uuid":"p","parentUuid":null}',
    "order": lambda line: json.dumps(dict(reversed(one(line).items())), separators=(",", ":")),
    "stream without a name": lambda line: line.replace('"sessionId":', '"session_id":null,"x":'),
}
"""Other ways to write a row, on its text; some mean the same, some do not."""

RAW = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def by_reference(row, cut):
    """Return the rows of a compaction by reference before a row, without the last ones."""
    about = {name: row[name] for name in ("sessionId", "timestamp", "isSidechain", "agentId") if name in row}
    meta = {"trigger": "auto", "preTokens": 20_000, "postTokens": 900}
    made = [about | {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta, "parentUuid": None}]
    made[0]["logicalParentUuid"] = row.get("parentUuid")
    texts = '<kept-conversation part="1" calls="0" file="">\n' + "kept words " * 300, "<kept-state>\nAll."
    made += [about | {"type": "user", "message": {"role": "user", "content": text}} for text in texts]
    parents = [None, "kept-0", "kept-1"]
    return [json.dumps({"uuid": f"kept-{n}", "parentUuid": parents[n], **each}) for n, each in enumerate(made)][
        : 3 - cut
    ]


def change(kind, lines, place, other):  # noqa: C901  (a list of oddities, one after the other)
    """Make one oddity that real files have."""
    row, place_other = one(lines[place]), one(lines[other])
    message = row.get("message") if isinstance(row.get("message"), dict) else {}
    if kind == "drop":
        lines.pop(place)
    elif kind == "twice":
        lines.insert(other, lines[place])
    elif kind == "move":
        lines.insert(other, lines.pop(place))
    elif kind == "join":
        lines[place : place + 2] = ["".join(lines[place : place + 2])]
    elif kind == "cut":
        lines[place] = lines[place][: len(lines[place]) // 2]
    elif kind == "garbage":
        lines.insert(place, "no JSON")
    elif kind == "empty":
        lines.insert(place, "")
    elif kind == "by reference":
        lines[place:place] = by_reference(row, cut=other % 3)
    elif kind in SPELLINGS:
        lines[place] = SPELLINGS[kind](lines[place])
    else:
        if kind == "rewind":
            row["parentUuid"] = place_other.get("uuid")
        elif kind == "root":
            row["parentUuid"] = None
        elif kind == "unknown parent":
            row["parentUuid"] = "not in this file"
        elif kind == "no id":
            row.pop("uuid", None)
        elif kind == "zero" and "usage" in message:
            message["usage"] = {"input_tokens": 0, "output_tokens": 1, "iterations": [{"type": "message"}]}
        elif kind == "no usage":
            message.pop("usage", None)
        elif kind == "iterations" and message.get("usage"):
            none = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
            calls = [{"type": "advisor"}, {"type": "message", "input_tokens": 7_000, "output_tokens": 9} | none]
            message["usage"]["iterations"] = calls
        elif kind == "other calls" and message.get("usage"):
            calls = [{"type": "message", "input_tokens": 7_000}, {"type": "fallback_message", "input_tokens": 9_000}]
            message["usage"]["iterations"] = [call | dict.fromkeys(RAW[1:], 0) for call in calls]
        elif kind == "twice" and message.get("usage"):
            message["usage"] |= dict(zip(RAW, (9_000, 2_000, 7_000), strict=True))
        elif kind == "renamed" and message.get("usage"):
            message["usage"]["cached_input_tokens"] = message["usage"].pop("cache_read_input_tokens", 5)
        elif kind == "renamed in a call" and message.get("usage"):
            message["usage"]["iterations"] = [{"type": "message", "input_tokens": 3, "cached_input_tokens": 90_000}]
        elif kind == "odd usage" and message.get("usage"):
            message["usage"]["cache_read_input_tokens"] = None
        elif kind == "less" and message.get("usage"):
            message["usage"]["cache_read_input_tokens"] = 100
        elif kind == "error":
            row |= {"isApiErrorMessage": True, "errorDetails": "15093 tokens > 14000 maximum"}
        elif kind == "session":
            row["sessionId"] = "another"
        elif kind == "stream":
            row["session_id"] = row.pop("sessionId", None)
        elif kind == "both names":
            row["session_id"] = row.get("sessionId")
        elif kind == "link":
            row |= {"type": "system", "subtype": "turn_duration", "content": "5 s"}
        elif kind == "attachment":
            row |= {"type": "attachment", "content": ["x"]}
        elif kind == "other":
            row |= {"type": "custom", "data": {"a": 1}}
        elif kind == "sidechain":
            row["isSidechain"] = True
        elif kind == "agent":
            row["agentId"] = "a9"
        elif kind == "summary":
            row |= {"type": "user", "isCompactSummary": True}
        elif kind == "clear":
            data = {"hookName": "SessionStart:clear"}
            row |= {"type": "progress", "parentUuid": None, "data": data}
        elif kind == "context":
            content = "<local-command-stdout>## Context Usage\n**Tokens:** 27k/300k tokens (14%)"
            row |= {"type": "system", "subtype": "local_command", "content": content}
        elif kind == "boundary":
            meta = {"trigger": "manual", "preTokens": 1_234, "postTokens": 12}
            row |= {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta, "parentUuid": None}
        elif kind == "model":
            message["model"] = "claude-opus-4-8"
        elif kind == "time":
            row["timestamp"] = "2020-01-01T00:00:00Z"
        elif kind == "fork":
            row["forkedFrom"] = {"sessionId": "x"}
        lines[place] = json.dumps(row)


KINDS = (
    *("drop", "twice", "move", "join", "cut", "garbage", "empty", "rewind", "root", "unknown parent", "no id", "zero"),
    *(
        "renamed",
        "renamed in a call",
        "no usage",
        "other calls",
        "twice",
        "iterations",
        "odd usage",
        "less",
        "error",
        "session",
        "stream",
        "sidechain",
        "agent",
        "summary",
    ),
    *("clear", "context", "boundary", "model", "time", "fork", "both names", "link", "attachment", "other"),
    "by reference",
    *SPELLINGS,
)
LINES = {seed: generated(seed, 25_000) for seed in range(3)}


def with_sidechains(seed, **fields):
    """A session with a subagent's rows inside; without a name where no field gives one."""
    rows = shapes.sidechains([json.loads(line) for line in LINES[seed]], random.Random(seed))
    return [json.dumps(row | fields if row.get("isSidechain") else row, separators=(",", ":")) for row in rows]


LINES |= {3: with_sidechains(0), 4: with_sidechains(1, agentId="a7"), 5: with_sidechains(2)}


def hold(path, seed, data):
    """Draw up to three oddities and hold the scan against the tracker."""
    lines = list(LINES[seed])
    for kind in data.draw(st.lists(st.sampled_from(KINDS), max_size=3)):
        place = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        change(kind, lines, place, other)
    ended = data.draw(st.booleans())
    fast, slow = both(path / "odd.jsonl", "\n".join(lines).encode() + b"\n" * ended)
    assert fast == slow


def test_a_place_that_was_let_go_is_as_large_both_ways(tmp_path):
    """A row that comes again goes back to a measured model's context, whose text nothing was learned from."""
    lines = list(LINES[3])
    change("twice", lines, 48, 36)
    fast, slow = both(tmp_path / "odd.jsonl", "\n".join(lines).encode())
    assert fast == slow
    assert fast[0].compactions


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(LINES)), st.data())
def test_whatever_is_odd_the_scan_is_right(tmp_path_factory, seed, data):
    hold(tmp_path_factory.getbasetemp(), seed, data)


@pytest.mark.long
@pytest.mark.timeout(600)
@settings(max_examples=2_000, deadline=None)
@given(st.sampled_from(sorted(LINES)), st.data())
def test_whatever_is_odd_the_scan_is_right_at_length(tmp_path_factory, seed, data):
    hold(tmp_path_factory.getbasetemp(), seed, data)


@pytest.mark.parametrize(
    ("seed", "changes"),
    [
        (2, [("no usage", 16, 0), ("twice", 1, 0)]),
        (4, [("move", 31, 41)]),
        (0, [("drop", 0, 0), ("session", 0, 0), ("twice", 0, 5)]),
        (3, [("twice", 0, 10), ("twice", 0, 2)]),
        (1, [("twice", 0, 3), ("twice", 26, 4)]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_oddities_that_a_long_run_found(tmp_path, seed, changes):
    lines = list(LINES[seed])
    for kind, place, other in changes:
        change(kind, lines, place, other)
    fast, slow = both(tmp_path / "odd.jsonl", "\n".join(lines).encode())
    assert fast == slow


@pytest.mark.parametrize("kind", ["cut", "garbage", "empty", "time", "model", "iterations", "context", "no usage"])
def test_these_oddities_are_followed_with_their_problems(tmp_path, kind):
    lines = list(LINES[1])
    place = next(place for place, line in enumerate(lines) if '"type":"assistant"' in line)
    if kind == "cut":
        lines.append(lines[-1][:50])
    else:
        change(kind, lines, place - 1 if kind == "context" else place, 0)
    fast, slow = both(tmp_path / "a.jsonl", "\n".join(lines).encode())
    assert fast == slow
    assert [each.problem for each in fast[0].problems] == (
        ["no whole JSON object"] if kind in ("cut", "garbage") else []
    )


@pytest.mark.parametrize("kind", ["escaped key", "escaped value", "blanks", "return", "needles in text", "order"])
def test_another_spelling_of_every_row_gives_the_same(tmp_path, kind):
    before, _ = both(tmp_path / "a.jsonl", "\n".join(LINES[1]).encode())
    lines = [SPELLINGS[kind](line) for line in LINES[1]]
    assert kind == "needles in text" or lines != LINES[1]
    fast, slow = both(tmp_path / "a.jsonl", "\n".join(lines).encode())
    assert fast == slow
    assert fast[0].main.counts == before[0].main.counts


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("name", shapes.SHAPES)
def test_every_shape_of_the_benchmark_is_followed(tmp_path, name, seed):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(generated(seed, 200_000)))
    shapes.reshape(path, name, random.Random(seed))
    assert scan(path) == follow(path)


def test_bad_lines_are_counted_with_their_rows(tmp_path):
    rows = plain().rows
    data = dump([*rows[:3], b"bad", b"worse", *rows[3:], b'{"type":'])
    fast, slow = both(tmp_path / "a.jsonl", data)
    assert fast == slow
    assert [(each.row, each.rows) for each in fast[0].problems] == [(4, 2), (11, 1)]
    assert fast[0].compactions[0].row == 8


def test_the_text_before_a_boundary_is_counted_over_blocks(tmp_path, monkeypatch):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    for _ in range(40):
        rows.prompt("z" * 2_000)
    rows.boundary(60_000)
    rows.summary()
    rows.response("b", 22_000)
    (tmp_path / "a.jsonl").write_bytes(dump(rows.rows))
    slow = follow(tmp_path / "a.jsonl")
    monkeypatch.setattr("mala_context.analysis.replay.files.BLOCK", 10_000)
    fast = scan(tmp_path / "a.jsonl", bytearray(10_000))
    assert fast == slow
    assert fast[0].compactions[0].cli_estimate > 39_000


@pytest.mark.parametrize("count", [3_000, 9_000])
def test_more_rows_than_are_remembered_change_nothing(tmp_path, count):
    rows = plain()
    for number in range(count):
        rows.row("progress", data={"n": number})
    rows.prompt("go on")
    rows.response("d", 21_000)
    fast, slow = both(tmp_path / "a.jsonl", dump(rows.rows))
    assert fast == slow


def test_an_empty_file_gives_nothing_that_is_known(tmp_path):
    fast, slow = both(tmp_path / "a.jsonl", b"")
    assert fast == slow
    assert slow[0].session_id is None


@pytest.mark.parametrize("named", [None, "s", 5])
def test_a_row_under_a_stream_s_name_is_none_of_the_transcript(tmp_path, named):
    """The boundary goes on from it, and it is not there."""
    rows = plain().rows[:5]
    row = {key: value for key, value in rows[-1].items() if key not in ("sessionId", "message")}
    rows.append(row | {"type": "custom", "uuid": "c", "parentUuid": row["uuid"], "session_id": named})
    meta = {"trigger": "auto", "preTokens": 20_000}
    fields = {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta}
    rows.append(rows[0] | fields | {"uuid": "b", "logicalParentUuid": "c", "parentUuid": None})
    after = Rows()
    after.parent = "b"
    after.response("d", 9_000)
    fast, slow = both(tmp_path / "a.jsonl", dump(rows + after.rows))
    assert fast == slow
    assert slow[0].compactions[0].parent_missing is True


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": 0, "output_tokens": 3}, {"output_tokens": 5}])
def test_a_subagent_is_one_though_none_of_its_responses_has_counts(tmp_path, usage):
    rows = Rows(agent="a1")
    rows.prompt()
    message = rows.response("a", 0)["message"]
    message["usage"] = usage
    fast, slow = both(tmp_path / "a.jsonl", dump(rows.rows))
    assert fast == slow
    assert [(each.agent_id, each.responses, each.tokens) for each in slow[0].agents] == [("a1", 1, None)]


def test_rows_are_forgotten_however_plain_all_of_them_are(tmp_path, monkeypatch):
    """Else memory would grow with a transcript."""
    rows = plain().rows
    links = [{"type": "x", "uuid": "0", "parentUuid": rows[-1]["uuid"]}]
    links += [{"type": "x", "uuid": f"{number}", "parentUuid": f"{number - 1}"} for number in range(1, 40_000)]
    (tmp_path / "a.jsonl").write_bytes(dump(rows + links))
    monkeypatch.setattr("mala_context.analysis.replay.files.BLOCK", 100_000)
    for skim in SKIMS:
        monkeypatch.setattr(columns, "skim", skim)
        scanner = Scanner(recording(tmp_path / "a.jsonl"), learns=True)
        scanner.run()
        assert len(scanner._places) + len(scanner._older) < 25_000


@pytest.mark.parametrize("seed", sorted(LINES))
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_compaction_by_reference_anywhere(tmp_path, seed, cut):
    """Also at the end, where the kept rows say the size."""
    count = len(LINES[seed])
    for place in (1, count // 3, count // 2, count - 1):
        lines = LINES[seed][:place]
        lines += by_reference(one(LINES[seed][place]), cut)
        for rest in ([], LINES[seed][place:]):
            fast, slow = both(tmp_path / "odd.jsonl", "\n".join([*lines, *rest]).encode() + b"\n")
            assert fast == slow
