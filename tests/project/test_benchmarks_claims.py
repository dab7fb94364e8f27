"""Every figure of README and docs is a claim that a benchmark measures, or a note that says why not.

A figure is a number with one of the units of `FIGURE`, outside of code (blocks and spans: what programs print is run
and compared by other tests) and outside of `docs/transcripts/`, which the suite makes. It is looked up by place alone:
each claim and note covers the words it names, and what is not covered is reported with its surroundings. Pages in
`ELSEWHERE` are left out.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from tests.helpers.doc_pages import ROOT

BENCHMARKS = ROOT / "tests" / "benchmarks"
FIGURE = re.compile(
    r"(?<![\w.])\d[\d,.]*\s?"
    r"(?:µs|ms|s|ns|seconds?|[kKMG]i?B|bytes a second|[KMGT]?B/s|cores?|%|\N{MULTIPLICATION SIGN}"
    r"|times (?:as|smaller|quicker))(?!\w)"
)
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def load(name):
    """Load a benchmark by its file, under a name that no test module has."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if name != "claims":
        sys.modules.setdefault("claims", claims)  # as which the scripts import it
    spec.loader.exec_module(module)
    return module


claims = load("claims")
PAGES = [
    "README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")) if "transcripts" not in path.parts),
]


def words(text):
    return " ".join(text.split())


def uncovered(text, page):
    """Return the figures of a page's text that nothing covers, each with its surroundings."""
    text, blanked = words(text), words(CODE.sub(" ", text))
    for claim in claims.CLAIMS:
        if claim.page == page:
            assert claim.said in text, f"{page} does not say {claim.said!r} any more"
            blanked = blanked.replace(words(CODE.sub(" ", claim.said)), " ")
    for note in claims.NOT_MEASURED:
        if note.page == page:
            blanked, found = re.subn(note.said, " ", blanked)
            assert found, f"{page} has nothing for the note {note.said!r} any more"
    return [blanked[max(0, each.start() - 40) : each.end() + 10] for each in FIGURE.finditer(blanked)]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in claims.ELSEWHERE])
def test_that_each_figure_of_a_page_is_measured_or_noted(page):
    assert uncovered((ROOT / page).read_text(encoding="utf-8"), page) == []


def test_that_claims_and_notes_name_pages_that_are_there():
    assert {each.page for each in (*claims.CLAIMS, *claims.NOT_MEASURED)} <= set(PAGES)
    assert all(note.why for note in claims.NOT_MEASURED)


@pytest.mark.parametrize(
    "text", ["It takes 12 ms.", "about 1,200 MB", "a spread of 3 %", "2.5 \N{MULTIPLICATION SIGN} as fast", "0.3 µs"]
)
def test_that_a_new_figure_is_found(text):
    assert len(uncovered(text, "no page")) == 1


@pytest.mark.parametrize("text", ["`12 ms`", "12 messages", "```\n12 ms\n```", "version 1.2", "msg 5"])
def test_that_code_and_counts_are_left_alone(text):
    assert uncovered(text, "no page") == []


def test_that_every_claim_has_a_benchmark_that_names_its_figure():
    sources = {path.stem: path.read_text(encoding="utf-8") for path in BENCHMARKS.glob("*.py")}
    for claim in claims.CLAIMS:
        group, _, rest = claim.name.partition(".")
        assert group in sources
        assert claim.name in sources[group] or f'f"{group}.' in sources[group], claim.name
        assert rest


@pytest.mark.parametrize(
    ("value", "more_is_better", "holds"),
    [
        (1.0, False, True),
        (1.2, False, True),
        (1.3, False, False),
        (0.1, False, True),
        (0.9, True, True),
        (0.7, True, False),
        (5.0, True, True),
    ],
)
def test_that_a_claim_holds_within_its_spread_and_when_it_is_better(value, more_is_better, holds):
    claim = claims.Claim("a.b", "page", "words", 1.0, 0.25)
    assert claim.holds(claims.Figure("a.b", value, "s", more_is_better=more_is_better)) is holds


def test_that_a_bound_counts_without_a_claim():
    rows = claims.rows([claims.Figure("x.y", 3.0, "ms", 2.0, 4.0, "bare: 1 ms", bound=2.5)])
    assert [row["holds"] for row in rows] == [False]
    assert claims.line(rows[0]).endswith("bound 2.5   NO LONGER HOLDS")


def run(monkeypatch, capsys, value, *arguments):
    """Run `all.py` with one group, which measures one figure."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    everything = load("all")
    figure = claims.Figure("watch.row", value, "ms", beside="asked for every 150 ms")
    monkeypatch.setattr(everything, "measure", lambda group, options: lambda: [figure])
    status = everything.main(["--only", "watch", *arguments])
    return status, capsys.readouterr().out


def test_that_all_of_it_ends_with_1_where_a_claim_no_longer_holds(monkeypatch, capsys):
    assert run(monkeypatch, capsys, 130.0)[0] == 0
    status, out = run(monkeypatch, capsys, 9_000.0)
    assert status == 1
    assert "asked for every 150 ms" in out
    assert "NO LONGER HOLDS" in out
    assert out.endswith("1 figures, 1 of them claimed; 1 no longer hold\n")


def test_that_json_is_one_array(monkeypatch, capsys):
    _, out = run(monkeypatch, capsys, 130.0, "--json")
    (row,) = json.loads(out)
    assert row["compared_to"] == "asked for every 150 ms"
    assert row["page"] == "docs/how-to/watch-sessions.md"
    assert row["claimed"] == 125
    assert row["holds"] is True
    assert set(row) >= {"name", "value", "unit", "spread", "least", "most", "bound"}


def test_that_every_group_is_a_script_with_figures():
    everything = load("all")
    for group in everything.GROUPS:
        assert re.search(r"^def figures\(", (BENCHMARKS / f"{group}.py").read_text(encoding="utf-8"), re.MULTILINE)


def test_that_the_benchmarks_are_known_to_the_pages():
    assert Path(ROOT / claims.COST).is_file()
