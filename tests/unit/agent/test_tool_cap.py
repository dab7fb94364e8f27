"""The cap on tool results, as a hook's action."""

import logging
import os
import random
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.agent import tool_cap as tool_cap_module
from mala_context.agent.tool_cap import LOST, PAGING, PREVIEW_TOKENS, ToolCap, count_tokens
from mala_context.archive.full_outputs import Spills
from mala_context.config import GuardConfig

LINES = "".join(f"line {number} of a result\n" for number in range(5_000))


class Gauge:
    """A tracker that says what it is told."""

    def __init__(self, tokens=50_000, window=200_000):
        self.tokens, self.window = tokens, window

    def snapshot(self, agent_id=None):
        return SimpleNamespace(tokens=self.tokens, projected=self.tokens, window=self.window, model="m")


@pytest.fixture
def spills(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    return Spills(tmp_path / "repo")


def bash(stdout, command="make", **fields):
    response = {"stdout": stdout, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    return {
        "session_id": "s1",
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_response": {**response, **fields},
        "cwd": "/",
    }


def shown(answer, hook_input):
    if answer is None:
        return hook_input["tool_response"]["stdout"]
    output = answer["hookSpecificOutput"]
    assert output["hookEventName"] == "PostToolUse"
    return output["updatedToolOutput"]["stdout"]


async def cap_of(cap, hook_input):
    return shown(await cap.after_tool(hook_input), hook_input)


def content(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def kept(spills):
    return sorted(os.listdir(os.path.join(spills.root, "s1"))) if os.path.isdir(spills.root) else []


@pytest.mark.parametrize("setting", [1_000, "auto"])
async def test_a_large_result_is_cut_and_kept(spills, setting, caplog):
    caplog.set_level(logging.INFO, "mala_context")
    cap = ToolCap(GuardConfig(tool_output_tokens=setting), spills, Gauge())
    seen = await cap_of(cap, bash(LINES))
    most = 1_000 if setting == 1_000 else 7_500
    assert most - 10 <= count_tokens(seen) <= most
    path = spills.path("s1", LINES.encode())
    assert f"characters left out; full text: {path}; {PAGING} …]" in seen
    assert LINES.startswith(seen.partition("\n[…")[0])
    assert LINES.endswith(seen.partition("…]\n")[2])
    assert content(path) == LINES
    assert f"capped to {count_tokens(seen):,}" in caplog.text
    assert await cap_of(cap, bash(LINES)) == seen if setting == 1_000 else True
    assert kept(spills) == [os.path.basename(path)]


async def test_auto_is_half_of_what_is_left(spills):
    cap = ToolCap(GuardConfig(buffer_tokens=1_000, tool_output_tokens="auto"), spills, Gauge(190_000))
    assert 4_480 <= count_tokens(await cap_of(cap, bash(LINES))) <= 4_500
    cap = ToolCap(
        GuardConfig(buffer_tokens=1_000, max_output_tokens=1_000, tool_output_tokens="auto"), spills, Gauge(190_000)
    )
    assert 3_980 <= count_tokens(await cap_of(cap, bash(LINES))) <= 4_000


async def test_a_small_result_is_left_alone(spills):
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge())
    assert await cap.after_tool(bash("short")) is None
    assert await cap.after_tool(bash("x" * 4_000)) is None
    assert kept(spills) == []


@pytest.mark.parametrize(
    "hook_input",
    [{}, {"tool_name": 3, "session_id": "s1"}, {"tool_name": "Bash"}, {**bash(LINES), "tool_response": {"odd": 1}}],
)
async def test_odd_input_gets_no_answer(spills, hook_input):
    assert await ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge()).after_tool(hook_input) is None


async def test_what_is_capped_is_told_and_what_is_not_is_not(spills):
    told = []
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge(), lambda *what: told.append(what))
    await cap_of(cap, bash("a few words"))
    assert told == []
    await cap_of(cap, bash(LINES))
    assert told == [("capped", "Bash")]


def test_other_scripts_cost_more_than_a_quarter():
    assert count_tokens("abcd") == 1
    assert count_tokens("字" * 100) == 75
    assert count_tokens("") == 0


@given(st.text(), st.text())
def test_a_part_never_counts_more_than_the_whole(part, rest):
    assert count_tokens(part) <= count_tokens(part + rest)


async def test_what_the_cli_has_cut_gets_as_much_as_it_would_show(spills, tmp_path):
    full = tmp_path / "full.txt"
    full.write_text(LINES)
    cap = ToolCap(GuardConfig(tool_output_tokens="auto"), spills, Gauge())
    hook_input = bash(LINES[:30_000], persistedOutputPath=str(full), persistedOutputSize=len(LINES))
    answer = await cap.after_tool(hook_input)
    assert "persistedOutputPath" not in answer["hookSpecificOutput"]["updatedToolOutput"]
    seen = shown(answer, hook_input)
    assert count_tokens(seen) <= PREVIEW_TOKENS
    assert "line 4999 of a result" in seen
    assert content(spills.path("s1", LINES.encode())) == LINES


async def test_an_enormous_output_is_left_to_the_cli(spills, tmp_path, monkeypatch):
    full = tmp_path / "full.txt"
    full.write_text(LINES)
    monkeypatch.setattr(tool_cap_module, "MOST_BYTES", len(LINES) - 1)
    cap = ToolCap(GuardConfig(tool_output_tokens="auto"), spills, Gauge())
    assert await cap.after_tool(bash(LINES[:30_000], persistedOutputPath=str(full))) is None
    assert kept(spills) == []


async def test_a_cut_result_whose_file_is_gone(spills):
    cap = ToolCap(GuardConfig(tool_output_tokens="auto"), spills, Gauge())
    hook_input = bash(LINES[:30_000], persistedOutputPath="/nowhere/full.txt")
    assert spills.path("s1", LINES[:30_000].encode()) in await cap_of(cap, hook_input)


async def test_what_is_read_back_is_never_kept_again(spills, tmp_path):
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge())
    await cap_of(cap, bash(LINES))
    (name,) = kept(spills)
    path = spills.path("s1", LINES.encode())
    link = tmp_path / "link.txt"
    link.symlink_to(path)
    part = LINES[1_000:20_000]
    body = {"filePath": path, "content": part, "numLines": 1, "startLine": 40, "totalLines": 5_000}
    read = {**bash(""), "tool_name": "Read", "tool_response": {"type": "text", "file": body}}
    for hook_input in (
        bash(part, f"head -c 20000 '{path}' | tail -n +3"),
        bash(part, f"cat {link}"),
        {**bash(part, "cat link.txt"), "cwd": str(tmp_path)},
        {**read, "tool_input": {"file_path": path, "offset": 40}},
        {**read, "tool_input": {"file_path": str(link)}},
    ):
        output = (await cap.after_tool(hook_input))["hookSpecificOutput"]["updatedToolOutput"]
        seen = output.get("stdout") or output["file"]["content"]
        assert f"full text: {path}; {PAGING}" in seen
    assert kept(spills) == [name]
    assert await cap.after_tool(bash(LINES[5_000:8_000], f"head -c 8000 {path}")) is None
    await cap_of(cap, bash(part, "make other"))
    assert len(kept(spills)) == 2


async def test_a_disk_that_is_full_still_caps_and_says_so(spills, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spills, "write", full)
    seen = await cap_of(ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge()), bash(LINES))
    assert LOST in seen
    assert "full text:" not in seen
    assert count_tokens(seen) <= 1_000
    assert "could not be kept" in caplog.text


async def test_a_disk_that_hangs_does_not_hold_the_agent(spills, monkeypatch, caplog):
    import threading

    gate = threading.Event()
    monkeypatch.setattr(tool_cap_module, "DISK_SECONDS", 0.05)
    monkeypatch.setattr(spills, "owner", lambda path: gate.wait(30) and None)
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge())
    try:
        seen = await cap_of(cap, bash(LINES))
    finally:
        gate.set()
        # What goes on ends while the runs directory is still the test's.
        await tool_cap_module.wait_for(cap._worker.submit(lambda: None), seconds=30)
    assert LOST in seen
    assert "could not be kept in" in caplog.text


async def test_no_place_for_files(spills, monkeypatch, tmp_path):
    monkeypatch.delenv("MALA_RUNS_DIR")
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("HOME", "/")
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), Spills(tmp_path / "repo"), Gauge())
    seen = await cap_of(cap, bash(LINES))
    assert count_tokens(seen) <= 1_000
    assert "full text" not in seen


async def test_line_numbers_count(spills):
    body = {"filePath": "/f", "content": "x\n" * 1_200, "numLines": 1_201, "startLine": 1, "totalLines": 1_201}
    hook_input = {**bash(""), "tool_name": "Read", "tool_response": {"type": "text", "file": body}}
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge())
    answer = await cap.after_tool(hook_input)
    content = answer["hookSpecificOutput"]["updatedToolOutput"]["file"]["content"]
    numbered = "".join(f"{number}\t{line}\n" for number, line in enumerate(content.split("\n"), 1))
    assert count_tokens(numbered) <= 1_000


async def test_a_batch_closes_and_another_response_opens_a_new_one(spills):
    gauge = Gauge(tokens=100_000, window=120_000)
    cap = ToolCap(GuardConfig(buffer_tokens=10_000, tool_output_tokens="auto"), spills, gauge)
    sizes = [count_tokens(await cap_of(cap, bash(LINES))) for _ in range(3)]
    assert sizes == pytest.approx([5_000, 2_500, 1_250], abs=15)
    await cap.after_batch(bash(""))
    assert count_tokens(await cap_of(cap, bash(LINES))) == pytest.approx(5_000, abs=15)
    gauge.tokens = 106_000
    assert count_tokens(await cap_of(cap, bash(LINES))) == pytest.approx(2_000, abs=15)


async def test_a_subagent_has_a_budget_of_its_own(spills):
    cap = ToolCap(GuardConfig(buffer_tokens=10_000, tool_output_tokens="auto"), spills, Gauge(100_000, 120_000))
    for agent in [None, *(f"a{number}" for number in range(100))]:
        assert count_tokens(await cap_of(cap, {**bash(LINES), "agent_id": agent})) == pytest.approx(5_000, abs=15)
    assert len(cap._batches) <= 64


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    setting=st.sampled_from(["auto", 300, 5_000]),
    left=st.integers(-2_000, 400_000),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_200_parallel_results_never_pass_the_budget_and_none_is_lost(tmp_path_factory, seed, setting, left, backend):
    folder = tmp_path_factory.mktemp("parallel")
    rng = random.Random(seed)
    texts = [f"{n} " + "w" * int(10 ** rng.uniform(0, 4.7)) + f" {n}" for n in range(200)]
    window, buffer = 1_000_000, 8_192
    gauge = Gauge(window - buffer - left, window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALA_RUNS_DIR", str(folder / "runs"))
        spills = Spills(folder / "repo")
        cap = ToolCap(GuardConfig(buffer_tokens=buffer, tool_output_tokens=setting), spills, gauge)
        results = [None] * len(texts)

        async def one(number):
            results[number] = await cap_of(cap, bash(texts[number]))

        async def main():
            async with anyio.create_task_group() as tasks:
                for number in range(len(texts)):
                    tasks.start_soon(one, number)

        anyio.run(main, backend=backend)
        batch = cap._batches[None]
        guard = batch.budget.guard
        assert guard.new == 0 or guard.remaining >= 0
        noted = batch.noted[0]
        assert sum(map(count_tokens, results)) == guard.new + noted
        assert noted <= buffer
        for text, seen in zip(texts, results, strict=True):
            if seen != text:
                path = spills.path("s1", text.encode())
                assert os.path.basename(path) in seen
                assert content(path) == text


async def test_a_reserve_that_leaves_no_room_is_one_warning_and_left_out(spills, caplog):
    config = GuardConfig(tool_output_tokens=1_000, max_output_tokens=300_000)
    cap = ToolCap(config, spills, Gauge())
    for _ in range(2):
        assert await cap_of(cap, bash(LINES))
        await cap.after_batch({})
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 1
    assert "context.guard keeps nothing free" in said[0]


async def test_failed_tools_results_are_cut_as_the_mod_hands_them_on(spills):
    cap = ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge())
    long, short, none = await cap.failed({"session": "s1", "agent": "", "texts": [LINES, "boom", ""]})
    assert (short, none) == (None, None)
    assert 990 <= count_tokens(long) <= 1_000
    assert long.startswith(LINES[:100])
    assert content(spills.path("s1", LINES.encode())) == LINES
    assert await cap_of(cap, bash("x" * 4_000)) == "x" * 4_000


@pytest.mark.parametrize(
    "request_", [{}, {"session": "s1"}, {"session": 3, "texts": [LINES]}, {"session": "s1", "texts": "x"}]
)
async def test_an_odd_question_of_the_mod_gets_no_answer(spills, request_):
    assert await ToolCap(GuardConfig(tool_output_tokens=1_000), spills, Gauge()).failed(request_) == []
