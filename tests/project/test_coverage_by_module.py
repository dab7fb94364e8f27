"""Which test file is a module's own."""

import pytest

from tests.coverage_by_module import PACKAGE, modules, own_tests


def test_each_module_has_one():
    without = {str(path.relative_to(PACKAGE)) for path in modules([]) if not own_tests(path)}
    assert without == set()


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("tracking/reducer.py", ["test_reducer.py", "test_reducer_rows.py", "test_reducer_thinking.py"]),
        ("archive/store.py", ["test_store.py"]),
        ("archive/remote/push.py", ["test_remote.py"]),
        ("cli/scenarios/undo.py", ["test_undo.py"]),
        ("cli/archives/changed_files.py", ["test_archives_changed_files.py"]),
        ("guard/context_guard.py", ["test_guard.py"]),
    ],
)
def test_it_carries_the_modules_name_or_its_packages(module, tests):
    assert [path.name for path in own_tests(PACKAGE / module)] == tests
