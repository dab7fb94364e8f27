"""What a summary does not mention, from rows as the CLI writes them."""

import json
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.transcripts.loss import Item, Loss, lost_words, measure
from mala_context.transcripts.loss.collect import plain_command
from mala_context.transcripts.loss.mentions import SummaryText, distinct_suffixes
from mala_context.transcripts.loss.report import safe_tokens

_ids = count(1)


def row(kind, content, **more):
    return {"type": kind, "uuid": f"u{next(_ids)}", "message": {"role": kind, "content": content}, **more}


def call(name, given, result="ok", *, failed=False, **more):
    """A tool call and its result, as two rows."""
    tool_id = f"toolu_{next(_ids)}"
    use = {"type": "tool_use", "id": tool_id, "name": name, "input": given}
    answer = {"type": "tool_result", "tool_use_id": tool_id, "content": result}
    if failed:
        answer["is_error"] = True
    return [row("assistant", [use], **more), row("user", [answer], **more)]


def bash(command, *, failed=False, result=""):
    return call("Bash", {"command": command}, result or ("Exit code 1" if failed else "done"), failed=failed)


def boundary():
    return {"type": "system", "subtype": "compact_boundary", "uuid": f"u{next(_ids)}"}


def items(rows, summary="", **more):
    return [tuple(item) for item in measure(rows, summary, **more).items]


def texts(rows, kind):
    return [item.text for item in measure(rows, "").items if item.kind == kind]


SESSION = [
    row("user", "Port the parser to Rust and keep the error messages byte for byte."),
    *call("Read", {"file_path": "/repo/src/parser.py"}),
    *call("Read", {"file_path": "/repo/README.md"}),
    *call("Write", {"file_path": "/repo/src/parser.rs", "content": "…"}),
    *bash("cargo test", failed=True),
    *bash("cargo clippy -- -D warnings", failed=True),
    *bash("cargo test"),
    row("user", "<task-notification>\nAgent finished\n</task-notification>"),
    row("user", "Never push to the main branch without asking."),
    *call(
        "TodoWrite",
        {
            "todos": [
                {"content": "Port the lexer", "status": "completed"},
                {"content": "Write fuzz targets for numbers", "status": "pending"},
            ]
        },
    ),
]

SUMMARY = """<analysis>README.md and clippy and fuzz targets for numbers; never push to main without asking</analysis>
<summary>The user wants the parser ported to Rust with error messages kept byte for byte. parser.py was read and
src/parser.rs written; tests pass.</summary>"""


def test_a_session():
    loss = measure(SESSION, SUMMARY)
    assert [tuple(item) for item in loss.items] == [
        ("instruction", "Port the parser to Rust and keep the error messages byte for byte.", True),
        ("instruction", "Never push to the main branch without asking.", False),
        ("todo", "Write fuzz targets for numbers", False),
        ("command", "cargo clippy -- -D warnings", False),
        ("written", "/repo/src/parser.rs", True),
        ("read", "/repo/src/parser.py", True),
        ("read", "/repo/README.md", False),
    ]
    assert loss.words() == "summary names 2 of 3 files, 1 of 2 instructions"
    assert json.loads(json.dumps(loss.as_dict()))["read"] == {"total": 2, "named": 1, "missing": ["/repo/README.md"]}


def test_pin():
    text = measure(SESSION, SUMMARY).pin("/archives/s_1.jsonl")
    assert text.splitlines() == [
        "The summary above does not mention the following, from before the compaction.",
        "Instructions of the user:",
        "- Never push to the main branch without asking.",
        "Open todo items:",
        "- Write fuzz targets for numbers",
        "Commands that failed and were not fixed:",
        "- cargo clippy -- -D warnings",
        "Files read:",
        "- /repo/README.md",
        "The full history is in /archives/s_1.jsonl",
    ]


class TestFiles:
    def test_written_wins_over_read(self):
        rows = [*call("Edit", {"file_path": "/a.py"}), *call("Read", {"file_path": "/a.py"})]
        assert items(rows) == [("written", "/a.py", False)]

    @pytest.mark.parametrize(
        ("tool", "field", "kind"),
        [
            ("Read", "file_path", "read"),
            ("Write", "file_path", "written"),
            ("MultiEdit", "file_path", "written"),
            ("NotebookEdit", "notebook_path", "written"),
        ],
    )
    def test_tools(self, tool, field, kind):
        assert items(call(tool, {field: "/x.ipynb"})) == [(kind, "/x.ipynb", False)]

    def test_a_call_that_failed_touched_nothing(self):
        assert items(call("Read", {"file_path": "/none"}, "File does not exist.", failed=True)) == []

    def test_a_later_failure_leaves_what_was_read_before(self):
        rows = [*call("Read", {"file_path": "/a"}), *call("Edit", {"file_path": "/a"}, failed=True)]
        assert items(rows) == [("read", "/a", False)]

    def test_an_earlier_failure_leaves_what_was_done_after_it(self):
        first, answer = call("Edit", {"file_path": "/a"}, failed=True)
        assert items([first, *call("Read", {"file_path": "/a"}), answer]) == [("read", "/a", False)]

    def test_a_call_without_a_result_counts(self):
        assert texts(call("Read", {"file_path": "/a"})[:1], "read") == ["/a"]

    def test_calls_without_a_path_or_an_id(self):
        odd = row("assistant", [{"type": "tool_use", "name": "Read", "input": {"file_path": "/a"}}])
        rows = [*call("Read", {}), *call("Read", {}, failed=True), odd, *call("TodoWrite", {"todos": "none"})]
        assert items(rows) == [("read", "/a", False)]

    def test_names_that_several_files_share_need_their_folder(self):
        rows = [*call("Read", {"file_path": "/r/a/__init__.py"}), *call("Read", {"file_path": "/r/b/__init__.py"})]
        assert items(rows, "we changed b/__init__.py and __init__.py") == [
            ("read", "/r/a/__init__.py", False),
            ("read", "/r/b/__init__.py", True),
        ]

    @pytest.mark.parametrize(
        ("summary", "named"),
        [
            ("see a.py.", True),
            ("`src/a.py`", True),
            (r"C:\repo\src\a.py:12", True),
            ("/repo/src/a.py", True),
            ("data.py", False),
            ("a.pyc", False),
            ("a.py.bak", False),
            ("test-a.py and a.py", True),
            ("a_py", False),
            ("A.PY", False),
            ("", False),
        ],
    )
    def test_whole_names(self, summary, named):
        assert SummaryText(summary).names_file("a.py") is named

    def test_suffixes(self):
        assert distinct_suffixes(["/r/x/a", "/r/y/a", r"C:\r\b", "/", "a"]) == {
            "/r/x/a": "x/a",
            "/r/y/a": "y/a",
            r"C:\r\b": "b",
            "/": "",
            "a": "a",
        }


class TestCommands:
    @pytest.mark.parametrize(
        ("failed", "later", "left"),
        [
            ("make", "make", []),
            ("pytest tests/x.py", "pytest", []),
            ("pytest", "pytest tests/x.py", ["pytest"]),
            ("cd /repo && make 2>&1 | tail -5", "make", []),
            ("CI=1 make", "make", []),
            ("make  all", "make all", []),
            ("makedocs", "make", ["makedocs"]),
        ],
    )
    def test_mended(self, failed, later, left):
        assert texts([*bash(failed, failed=True), *bash(later)], "command") == left

    def test_broken_again(self):
        assert texts([*bash("make", failed=True), *bash("make"), *bash("make", failed=True)], "command") == ["make"]

    @pytest.mark.parametrize(
        "result", ["The user doesn't want to proceed with this tool use.", "<tool_use_error>bad</tool_use_error>"]
    )
    def test_what_was_not_run_did_not_fail(self, result):
        assert texts(bash("rm -rf /", failed=True, result=result), "command") == []

    def test_plain(self):
        assert plain_command("cd '/my repo' && export A=1 && pytest -q 2>&1 | tail -20") == "pytest -q"
        assert plain_command("A=1 B=2 make") == "make"
        assert plain_command("cd /repo") == "cd /repo"

    def test_named_by_its_words(self):
        summary = SummaryText("clippy of cargo still fails (-D warnings)")
        assert summary.names_command("cargo clippy -D warnings")
        assert not summary.names_command("cargo fuzz run")
        assert SummaryText("ran `make  all` twice").names_command("make all")


class TestInstructions:
    @pytest.mark.parametrize(
        "text",
        [
            "<task-notification>done</task-notification>",
            "<local-command-stdout>x</local-command-stdout>",
            "<bash-input>ls</bash-input>",
            "[Request interrupted by user]",
            "Caveat: The messages below were generated by the user while running local commands.",
            "This session is being continued from a previous conversation that ran out of context.",
            "<command-name>/compact</command-name>\n<command-args></command-args>",
            "<system-reminder>be nice</system-reminder>",
            "   ",
        ],
    )
    def test_what_is_none(self, text):
        assert texts([row("user", text)], "instruction") == []
        assert texts([row("user", [{"type": "text", "text": text}])], "instruction") == []

    def test_marks_of_rows_that_are_none(self):
        rows = [
            row("user", "one", isMeta=True),
            row("user", "two", isCompactSummary=True),
            row("user", "three", origin={"kind": "task-notification"}),
            row("user", [{"type": "tool_result", "tool_use_id": "x"}, {"type": "text", "text": "four"}]),
            row("assistant", "five"),
        ]
        assert items(rows) == []

    def test_what_is_one(self):
        rows = [
            row("user", "<system-reminder>x</system-reminder>Fix the bug"),
            row("user", [{"type": "text", "text": "Add tests"}, {"type": "image", "source": {}}]),
            row("user", "<command-name>/review</command-name><command-args>the parser</command-args>"),
            {"type": "attachment", "uuid": "q", "attachment": {"type": "queued_command", "prompt": "And docs"}},
            {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "<task-notification>"}},
            row("user", "Fix the bug"),
        ]
        assert texts(rows, "instruction") == ["Fix the bug", "Add tests", "/review the parser", "And docs"]

    @pytest.mark.parametrize(
        ("sentence", "summary", "named"),
        [
            ("yes", "the user said: Yes", True),
            ("yes", "nothing", False),
            ("Rename the module to archive", "module renamed to archive", True),
            ("Rename the module to archive", "fixed the tests", False),
            ("请修复解析器的错误", "用户要求修复解析器", True),
            ("请修复解析器的错误", "用户要求写文档", False),
            ("use port 8443", "PORT 8443", True),
        ],
    )
    def test_named(self, sentence, summary, named):
        assert SummaryText(summary).names_sentence(sentence) is named

    @pytest.mark.parametrize(
        "frame",
        [
            """\
This session is being continued from a previous conversation that ran out of context. The summary below covers …

{}

If you need specific details from before compaction (…), read the full transcript at: /home/python-importer/c.jsonl
Continue the conversation from where it left off without asking the user any further questions. …""",
            """\
This session is being continued from a previous conversation that ran out of context. The conversation is below:
{}
Please continue the conversation from where we left it off without asking the user any further questions. …""",
        ],
    )
    def test_lines_of_the_cli_name_nothing(self, frame):
        summary = SummaryText(frame.format("The parser was fixed."))
        for sentence in ("Run the Python importer", "Continue without questions", "Read the earlier conversation"):
            assert not summary.names_sentence(sentence)
        assert not summary.names_file("c.jsonl")
        assert summary.names_sentence("Get the parser fixed")


class TestTodos:
    def test_the_last_list_counts(self):
        rows = [
            *call("TodoWrite", {"todos": [{"content": "old", "status": "pending"}]}),
            *call(
                "TodoWrite", {"todos": [{"content": "new", "status": "in_progress"}, {"content": "", "status": "x"}]}
            ),
        ]
        assert texts(rows, "todo") == ["new"]

    def test_tasks(self):
        rows = [
            *call("TaskCreate", {"subject": "first  task"}, "Task #1 created successfully: first task"),
            *call("TaskCreate", {"subject": "second"}, [{"type": "text", "text": "Task #2 created successfully"}]),
            *call("TaskCreate", {"subject": "third"}, "no", failed=True),
            *call("TaskUpdate", {"taskId": "1", "status": "completed"}),
            *call("TaskUpdate", {"taskId": "2", "status": "in_progress", "subject": "second, renamed"}),
            *call("TaskUpdate", {"taskId": "77", "status": "completed"}),
        ]
        assert texts(rows, "todo") == ["second, renamed"]

    def test_open_items_outlive_a_compaction(self):
        rows = [
            *call("TodoWrite", {"todos": [{"content": "later", "status": "pending"}]}),
            boundary(),
            row("user", "go on"),
        ]
        assert items(rows) == [("instruction", "go on", False), ("todo", "later", False)]


class TestStretches:
    def test_only_what_came_after_the_last_compaction(self):
        assert texts([row("user", "one"), boundary(), row("user", "two")], "instruction") == ["two"]

    def test_a_boundary_at_the_end_ends_the_stretch(self):
        rows = [
            row("user", "one"),
            boundary(),
            row("user", "two"),
            boundary(),
            row("user", "sum", isCompactSummary=True),
        ]
        assert texts(rows, "instruction") == ["two"]

    def test_subagents_apart(self):
        rows = [row("user", "main"), row("user", "sub", isSidechain=True)]
        assert texts(rows, "instruction") == ["main"]
        assert [item.text for item in measure(rows, "", sidechain=True).items] == ["sub"]

    def test_what_was_preserved_is_not_lost(self):
        kept = row("user", "keep me whole")
        assert items([kept], preserved=[kept["uuid"]]) == [("instruction", "keep me whole", True)]


class TestPin:
    def many(self, number):
        return Loss(tuple(Item("read", f"/repo/{index}/" + "x" * 80, named=False) for index in range(number)))

    def test_within_its_tokens_and_the_rest_is_counted(self):
        text = self.many(500).pin("/a")
        assert safe_tokens(text) <= 2000
        lines = text.splitlines()
        shown = sum(line.startswith("- ") for line in lines)
        assert lines[-2] == f"… and {500 - shown} more."
        assert shown > 40

    def test_weightiest_first(self):
        items = [
            *self.many(500).items,
            Item("instruction", "Do not touch the schema", named=False),
        ]
        rank = {"instruction": 0, "read": 4}
        loss = Loss(tuple(sorted(items, key=lambda item: rank[item.kind])))
        assert "Do not touch the schema" in loss.pin(max_tokens=200)

    def test_nothing_missing(self):
        assert Loss((Item("read", "/a", named=True),)).pin("/archive") == Loss().pin("/archive") == ""

    def test_no_room_at_all(self):
        assert self.many(3).pin("/a", max_tokens=5) == ""

    def test_one_line_each_whatever_the_text(self):
        item = Item("instruction", "a\nb\x1b[31m\u202ec" + "d" * 1000, named=False)
        assert item.shown().startswith("a b [31m c")
        assert len(item.shown()) == 300

    @given(st.lists(st.text(max_size=400), max_size=30), st.integers(0, 500), st.text(max_size=50))
    def test_never_more_than_its_tokens(self, found, most, archive):
        loss = Loss(tuple(Item("command", text, named=False) for text in found))
        assert safe_tokens(loss.pin(archive, max_tokens=most)) <= most


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["tool_use", "tool_result", "text"])},
    optional={
        "id": JSON,
        "tool_use_id": JSON,
        "name": st.sampled_from(["Read", "Edit", "Bash", "TodoWrite", "TaskCreate", "TaskUpdate"]) | JSON,
        "input": st.dictionaries(
            st.sampled_from(["file_path", "command", "todos", "subject", "taskId", "status"]), JSON, max_size=3
        )
        | JSON,
        "content": JSON,
        "is_error": JSON,
        "text": JSON,
    },
)
ROW = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "attachment", "system"])},
    optional={
        "uuid": JSON,
        "message": st.fixed_dictionaries({"content": st.lists(BLOCK, max_size=3) | JSON}) | JSON,
        "subtype": st.just("compact_boundary") | JSON,
        "attachment": st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": JSON}) | JSON,
        "isSidechain": JSON,
        "origin": JSON,
    },
)


@given(st.lists(ROW | JSON, max_size=8), st.text(max_size=60))
def test_odd_rows_never_raise(rows, summary):
    loss = measure(rows, summary)
    assert {item.kind for item in loss.missing} <= {item.kind for item in loss.items}
    json.dumps(loss.as_dict())


@given(st.lists(st.sampled_from(["/a/x.py", "/b/x.py", "/c/y.md", "/z"]), unique=True, min_size=1))
def test_a_summary_with_every_path_names_every_file(paths):
    rows = [line for path in paths for line in call("Read", {"file_path": path})]
    loss = measure(rows, "\n".join(paths))
    assert loss.count("read") == (len(paths), len(paths))


def test_a_row_of_a_manifest_says_what_the_log_line_said():
    rows = [row("user", "never touch the lexer"), row("user", "second instruction stands here")]
    loss = measure(rows, "never touch the lexer")
    assert lost_words(loss.as_dict()) == loss.words() == "summary names 0 of 0 files, 1 of 2 instructions"
    assert lost_words({"read": None, "other": 3}) == "summary names 0 of 0 files, 0 of 0 instructions"
