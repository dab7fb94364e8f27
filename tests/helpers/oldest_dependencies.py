"""Which tests do not apply on the oldest dependencies that pyproject.toml allows (.ci/oldest.txt), and why.

Nothing here is about code of ours: all of it is what that version of another does.
"""

from importlib.metadata import version


def _before(package, *numbers):
    return tuple(map(int, version(package).split(".")[: len(numbers)])) < numbers


OLD_SDK = _before("claude-agent-sdk", 0, 2)
OLD_CLICK = _before("click", 8, 2)

_COMPACTS = "Claude Code 2.1.119 does not compact where the API refuses a prompt of this size"
_LEFT_OPEN = "this SDK leaves its queues open, and Python says so on standard error"
_NO_FIELD = "this SDK makes a message without that field of the line, or none at all"
_AGREE = "tests/unit/tracking/test_readers_agree.py::test_the_message_that_is_made_of_it_says_the_same"
_WORDS = "this click words it in another way"

_SDK = {
    "tests/e2e/": "Claude Code 2.1.119 compacts, restores and words in its own way: the demo is what drives it",
    "tests/fleet/test_otlp.py::test_an_agents_life_arrives_at_a_collector": _COMPACTS,
    "tests/fleet/test_otlp.py::test_nothing_is_counted_twice_beside_openinference": _COMPACTS,
    "tests/unit/cli/test_demo.py::test_the_main_job_for_machines": "Claude Code 2.1.119 compacts before it is refused",
    "tests/unit/cli/test_run.py::test_no_login_is_said": "Claude Code 2.1.119 asks the API without a login too",
    "tests/unit/cli/test_scenarios_capped.py::test_big_tool": "Claude Code 2.1.119 does not know updatedToolOutput",
    "tests/unit/cli/test_scenarios_capped.py::test_lost": "Claude Code 2.1.119 may write its rows after PreCompact",
    "tests/project/test_docs_blocks.py::test_python_runs[docs/how-to/restore-after-a-bad-compaction.md]": (
        "Claude Code 2.1.119 resumes no session whose answers are plain strings, as the test's are"
    ),
    "tests/project/test_docs_blocks.py::test_python_runs[docs/how-to/test-an-agent-offline.md]": (
        "Claude Code 2.1.119 loads no mods, so that it compacts in its own way there"
    ),
    "tests/project/test_examples.py::test_it_runs[minimal.py]": _LEFT_OPEN,
    "tests/project/test_examples.py::test_it_runs[existing_agent.py]": _LEFT_OPEN,
    "tests/project/test_examples.py::test_it_runs[object_store.py]": _LEFT_OPEN,
    "tests/project/test_examples.py::test_it_runs[testing_offline.py]": _LEFT_OPEN,
    f"{_AGREE}[end of a turn": _NO_FIELD,
    f"{_AGREE}[conversation thrown away]": _NO_FIELD,
}
_CLICK = {
    "tests/project/test_docs_transcripts.py::test_a_page_says_what_is_printed[transcripts/completion.md]": _WORDS,
    "tests/project/test_readme.py::test_its_help_is_the_command_lines_own": _WORDS,
}


def why_not(name):
    """Return why the test with this node id does not apply here; `None` where it does."""
    tables = (*(_SDK.items() if OLD_SDK else ()), *(_CLICK.items() if OLD_CLICK else ()))
    return next((why for start, why in tables if name.startswith(start)), None)
