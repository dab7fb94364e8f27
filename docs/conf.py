"""How the site is built: `sphinx-build -W --keep-going -b html docs site`.

The index page is the navigation: each of its headings becomes a section of the sidebar with the pages that its list
links to, so that a page is named in one place. Nothing in the built site comes from another host.
"""

from __future__ import annotations

import importlib
import pathlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "mala-context"
author = "mala-context contributors"
copyright = author  # noqa: A001  # the name that Sphinx reads
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["policies"]
html_theme = "furo"
html_title = "mala-context"
html_static_path: list[str] = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "monokai"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]  # pytest's and mala.yaml's blocks are checked by the test suite

add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_use_ivar = True
python_use_unqualified_type_names = True

_LINK = re.compile(r"^- \[[^]]*\]\(([^)#:]+)\.md\)", re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def navigation(text: str) -> str:
    """Return what the index's lists say, as hidden tables of contents, one a heading."""
    parts = _HEADING.split(text)
    trees = []
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        if pages := _LINK.findall(body):
            trees.append(":::{toctree}\n:hidden:\n:caption: " + heading + "\n\n" + "\n".join(pages) + "\n:::\n")
    return "\n".join(trees)


def examples(text: str, folder: pathlib.Path) -> str:
    """Return the examples' own page as one of the site: its links lead to the programs, which stand below it whole."""
    programs = sorted(path.name for path in folder.glob("*.py"))
    text = re.sub(r"\]\((?!https?:|#)([^)]+)\)", r"](../examples/\1)", text)
    shown = "".join(f"\n## {name}\n\n```{{literalinclude}} ../examples/{name}\n```\n" for name in programs)
    return text + shown


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    folder = pathlib.Path(app.srcdir).parent / "examples"
    if name == "examples":
        source[0] = examples((folder / "README.md").read_text(encoding="utf-8"), folder)
    source[0] = re.sub(r"\]\((?:\.\./)+examples/README\.md\)", f"]({'../' * name.count('/')}examples.md)", source[0])
    if name == app.config.root_doc:
        source[0] += "\n" + navigation(source[0])


def _as_markup(_app: Sphinx, _what: str, _name: str, obj: Any, _options: Any, lines: list[str]) -> None:
    """Turn docstrings, which are plain text with code in single backticks, into what Sphinx reads.

    What a key of `mala.yaml` does stands in its field.
    """
    fields = getattr(obj, "__dataclass_fields__", {})
    keys = [f":ivar {name}: {each.metadata['doc']}" for name, each in fields.items() if "doc" in each.metadata]
    lines += ["", *keys] if keys else []
    for number, line in enumerate(lines):
        pieces = re.split(r"`([^`]+)`", line)
        lines[number] = "".join(
            f"``{piece}``" if at % 2 else piece.replace("*", r"\*") for at, piece in enumerate(pieces)
        )


def setup(app: Sphinx) -> None:
    """Connect what makes the navigation and what readies the docstrings."""
    importlib.import_module("mala_context")
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _as_markup, priority=400)
