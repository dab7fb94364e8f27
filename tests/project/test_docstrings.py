"""What is public says what it is, what it takes and what it raises."""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import textwrap

import pytest

import mala_context
from mala_context import errors, testing
from mala_context.agent.telemetry import records

LEFT_OUT = re.compile(r"\.__main__$|^mala_context\.(cli|testing\.plugin)\b")
"""Commands say what they are to `--help`, fixtures to `--fixtures`."""
OFFERED = {
    **{name: getattr(mala_context, name) for name in mala_context.__all__},
    **{name: getattr(testing, name) for name in testing.__all__},
    **{name: getattr(records, name) for name in records.__all__},
    **{name: value for name, value in vars(errors).items() if inspect.isclass(value)},
}
"""What other projects import, by its name."""
MANY = {"session_id", "session_ids", "transcript_path", "trigger", "cwd"}
"""Parameters that many methods of one class take: the class may describe them."""
MADE_FOR_YOU = {mala_context.AgentRuntime}
"""Classes whose docstring says who makes one; nobody else calls them."""


def members(name, value):
    """Yield a class and its public methods and properties, or a function, each with its name and its class."""
    if inspect.isfunction(value):
        yield name, value, None
    elif inspect.isclass(value):
        yield name, value, None
        ours = [vars(each) for each in reversed(value.__mro__) if each.__module__.startswith("mala_context.")]
        for each, member in {name: member for names in ours for name, member in names.items()}.items():
            plain = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if not each.startswith("_") and inspect.isfunction(plain):
                yield f"{name}.{each}", plain, value


def public():
    for module in pkgutil.walk_packages(mala_context.__path__, "mala_context."):
        if LEFT_OUT.search(module.name) or any(part.startswith("_") for part in module.name.split(".")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == module.name:
                yield from ((f"{module.name}.{each}", value) for each, value, _ in members(name, value))


def offered():
    return [each for name, value in OFFERED.items() for each in members(name, value)]


def test_everything_public_says_what_it_is():
    found = list(public())
    assert len(found) > 1_000
    assert [name for name, value in found if not inspect.getdoc(value)] == []


@pytest.mark.parametrize(
    ("function", "owner"), [pytest.param(value, owner, id=name) for name, value, owner in offered() if callable(value)]
)
def test_what_is_offered_says_what_it_takes(function, owner):
    """One parameter is told by the sentence about what is done with it; of several each is named."""
    if inspect.isclass(function):
        taken = [] if issubclass(function, tuple | Exception) else _own_parameters(function)
    else:
        taken = _parameters(inspect.signature(function))
    words = inspect.getdoc(function) or ""
    about_many = inspect.getdoc(owner) or "" if owner is not None else ""
    unsaid = [name for name in taken if name not in words and not (name in MANY and name in about_many)]
    assert len(taken) < 2 or unsaid == []


def _own_parameters(kind):
    called = "__init__" in vars(kind) and not _is_record(kind) and kind not in MADE_FOR_YOU
    return _parameters(inspect.signature(kind)) if called else []


def _is_record(kind):
    return hasattr(kind, "__dataclass_fields__")


def _parameters(signature):
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, each in signature.parameters.items() if each.kind in named and name not in {"self", "cls"}]


@pytest.mark.parametrize(
    "kind", [value for value in OFFERED.values() if inspect.isclass(value)], ids=lambda k: k.__name__
)
def test_each_field_of_a_record_is_described(kind):
    """In a docstring under the field, in a key's own words, or by name in the class's docstring."""
    if not _is_record(kind) and not hasattr(kind, "_fields"):
        return
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    below = zip(node.body, [*node.body[1:], None], strict=True)
    bare = {
        each.target.id
        for each, after in below
        if isinstance(each, ast.AnnAssign)
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    }
    keys = {name for name, each in getattr(kind, "__dataclass_fields__", {}).items() if each.metadata.get("doc")}
    assert {name for name in bare - keys if not name.startswith("_") and name not in inspect.getdoc(kind)} == set()


@pytest.mark.parametrize(
    "function", [pytest.param(each, id=name) for name, each, _ in offered() if inspect.isfunction(each)]
)
def test_what_is_offered_says_what_it_raises(function):
    """Of what it raises in its own lines; what those raise whom it asks is theirs to say."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    raised = {
        each.exc.func.id
        for each in ast.walk(node)
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call) and isinstance(each.exc.func, ast.Name)
    }
    words = inspect.getdoc(function) or ""
    assert not raised or "aises" in words or all(name in words for name in raised)


FOREIGN = {"Client._ensure_connected", "YYYYMMDDTHHMMSS.ffffffZ", "contextlib.aclosing"}
"""Dotted names in docstrings and comments that are not ours."""
STRINGS = re.compile(r'"""((?:.|\n)*?)"""|#([^\n]*)')


def test_a_dotted_name_in_a_docstring_is_there():
    """A module or a class that was renamed leaves its old name where no checker looks."""
    root = pathlib.Path(mala_context.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    known = {name for path in root.rglob("*") for name in (path.stem, path.name)}
    for text in sources.values():
        known.update(re.findall(r"\w+", STRINGS.sub("", text)))
    wrong = {
        (path.name, name)
        for path, text in sources.items()
        for found in STRINGS.finditer(text)
        for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+)`", found[1] or found[2] or "")
        if name not in FOREIGN and not set(name.split(".")) <= known
    }
    assert wrong == set()
