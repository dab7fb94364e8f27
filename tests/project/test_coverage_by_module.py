"""Which test file is a module's own."""

import pytest

from tests.coverage_by_module import PACKAGE, modules, own_tests


def test_each_module_has_one():
    without = {str(path.relative_to(PACKAGE)) for path in modules([]) if not own_tests(path)}
    assert without == set()


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("following.py", ["test_following.py", "test_following_rows.py"]),
        ("archive/store.py", ["test_archive_store.py"]),
        ("archive/remote/push.py", ["test_archive_remote.py"]),
        ("cli/scenarios/undo.py", ["test_cli_undo.py"]),
        ("cli/archives/lost.py", ["test_cli_archives_lost.py"]),
        ("guard/context.py", ["test_guard.py", "test_guard_log.py"]),
    ],
)
def test_it_carries_the_modules_name_or_its_packages(module, tests):
    assert [path.name for path in own_tests(PACKAGE / module)] == tests
