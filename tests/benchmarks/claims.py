"""What README and docs claim in figures, and what a measured figure looks like.

A `Figure` is what a benchmark measured. A `Claim` is a figure in a page: the words that hold it, its value, and by
what share a run on another day, beside other work, may be worse before the claim no longer holds. `NOT_MEASURED`
lists the figures in pages that no benchmark here measures, each with the reason.
`tests/project/test_benchmarks_claims.py` finds every figure in the pages and asks that it stands in one of the two.

Times of one machine are not those of another, so their spread is wide; ratios and sizes carry further, and theirs is
narrow. Being better than claimed never fails.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

TIMES = 1.0
"""Spread of times, rates and shares of a core: twice as slow, on a machine that does other work."""
WAITS = 2.0
"""Spread of times on the wall clock of somebody who waits for a screen: three times as long, where both cores have
other work."""
RATIOS = 0.25
"""Spread of ratios of two times that were measured in turn."""
SIZES = 0.10
"""Spread of sizes and of errors in percent, which do not depend on the machine."""


@dataclass(frozen=True)
class Figure:
    """One measured figure."""

    name: str
    """Its group and a name of its own, such as `archive.stored`."""
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    beside: str = ""
    """What it is compared to, with that one's value."""
    bound: float | None = None
    """What it must not be above, where the benchmark itself promises one (below, with `more_is_better`)."""
    more_is_better: bool = False

    @property
    def within(self) -> bool:
        """Whether it is within its bound."""
        return self.bound is None or (self.value >= self.bound if self.more_is_better else self.value <= self.bound)


@dataclass(frozen=True)
class Claim:
    """One figure in a page."""

    name: str
    """The figure that measures it."""
    page: str
    said: str
    """The words of the page that hold it, white space as one space."""
    value: float
    spread: float

    def holds(self, figure: Figure) -> bool:
        """Whether a figure is as good as claimed, but for the spread."""
        if figure.more_is_better:
            return figure.value >= self.value / (1 + self.spread)
        return figure.value <= self.value * (1 + self.spread)


@dataclass(frozen=True)
class Note:
    """Figures in a page that are not measured here."""

    page: str
    said: str
    """A regular expression for the words that hold them."""
    why: str


def of(name: str, values: Sequence[float], unit: str, **more: object) -> Figure:
    """Return the figure of several rounds: their median, the least and the most."""
    return Figure(name, statistics.median(values), unit, min(values), max(values), **more)  # type: ignore[arg-type]  # the fields of Figure


def number(value: float) -> str:
    """Return a value with three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def rows(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """Return one plain record a figure and claim, in which `holds` says whether it holds."""
    return [_row(figure, claim) for figure in figures for claim in _claims_of(figure.name)]


def _claims_of(name: str) -> Sequence[Claim | None]:
    found = [claim for claim in CLAIMS if claim.name == name]
    return found or (None,)


def _row(figure: Figure, claim: Claim | None) -> dict[str, object]:
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "least": figure.least,
        "most": figure.most,
        "compared_to": figure.beside,
        "bound": figure.bound,
        "claimed": claim.value if claim else None,
        "spread": claim.spread if claim else None,
        "page": claim.page if claim else None,
        "holds": figure.within and (claim is None or claim.holds(figure)),
    }


def line(row: dict[str, object]) -> str:
    """Return a record as a line of the table."""
    value = f"{number(row['value'])} {row['unit']}"  # type: ignore[arg-type]  # a float, see `rows`
    if row["least"] is not None:
        value += f" ({number(row['least'])} to {number(row['most'])})"  # type: ignore[arg-type]  # likewise
    wanted = []
    if row["claimed"] is not None:
        wanted.append(f"claimed {number(row['claimed'])} (± {row['spread']:.0%}) in {row['page']}")  # type: ignore[arg-type]  # likewise
    if row["bound"] is not None:
        wanted.append(f"bound {number(row['bound'])}")  # type: ignore[arg-type]  # likewise
    text = f"{row['name']:34} {value:38} {row['compared_to']!s:38} {'; '.join(wanted)}".rstrip()
    return text if row["holds"] else f"{text}   NO LONGER HOLDS"


Measure = Callable[[bool], Iterable[Figure]]
"""What a benchmark offers to `all.py`: its figures, quick ones where asked for."""

ARCHITECTURE = "docs/explanation/architecture.md"
FLEET = "docs/explanation/fleet.md"
FULL = "docs/explanation/how-full-is-full.md"
AUDIT = "docs/how-to/audit-your-sessions.md"
WATCH = "docs/how-to/watch-sessions.md"
TELEMETRY = "docs/reference/telemetry.md"
CLUSTER = "docs/how-to/replay-on-a-cluster.md"
COST = "docs/explanation/cost.md"

CLAIMS: tuple[Claim, ...] = (
    Claim("archive.stored", ARCHITECTURE, "a session of 100 MB take 100 MB", 1.0, SIZES),
    Claim("fleet.events", FLEET, "117,354 a second of one core (115,333 to 118,251)", 117_354, TIMES),
    Claim("fleet.rows", FLEET, "38,149 a second of one core (37,446 to 38,215)", 38_149, TIMES),
    Claim("fleet.allocated", FLEET, "28.3 KiB", 28.3, SIZES),
    Claim("fleet.resident", FLEET, "31.9 KiB (31.8 to 32.0)", 31.9, SIZES),
    Claim("watch.idle", WATCH, "1.4 % of one for 50 idle sessions", 1.4, TIMES),
    Claim("watch.row", WATCH, "125 ms (median)", 125, WAITS),
    Claim("watch.row_longest", WATCH, "at most 243 ms", 243, WAITS),
    Claim("watch.first", WATCH, "A transcript of 200 MB shows its size 0.3 s after the start", 0.3, WAITS),
    Claim("watch.counted", WATCH, "all its compactions are counted after 1.2 s", 1.2, WAITS),
    Claim("telemetry.none.three", TELEMETRY, "0.7 µs with no SDK configured", 0.7, TIMES),
    Claim("telemetry.sdk.three", TELEMETRY, "3.0 µs with an SDK", 3.0, TIMES),
    Claim("telemetry.none.one", TELEMETRY, "1.6 and 8.0 µs", 1.6, TIMES),
    Claim("telemetry.sdk.one", TELEMETRY, "1.6 and 8.0 µs", 8.0, TIMES),
    Claim("replay.rate", CLUSTER, "`replay` scans 1,200 MB a second of each core", 1_200, TIMES),
    Claim("overhead.messages.a_runtime's", COST, "3.2 µs of processor time", 3.2, TIMES),
    Claim("size.tracker", COST, "100,000: 1.09 s | | 1.01 |", 1.01, RATIOS),
    Claim("size.archive", COST, "1,000: 2.1 s | | 1.02 |", 1.02, RATIOS),
    Claim("size.replay", COST, "500: 0.62 s | | 0.59 |", 0.59, RATIOS),
    Claim("replay.against_ccusage_one_core", COST, "1.8 times as fast as ccusage on one core", 1.8, RATIOS),
    Claim("replay.against_ccusage_one_core", "README.md", "1.7 times as fast as ccusage's native binary", 1.7, RATIOS),
    Claim("replay.worst_shape", COST, "response has no counts | 2.4 |", 2.4, RATIOS),
    Claim("replay.worst_shape", "README.md", "`--totals` is 2.4 times as fast", 2.4, RATIOS),
    Claim("replay.against_jq", COST, "5.7 times as fast as `jq`", 5.7, RATIOS),
    Claim("replay.peak", COST, "0.72 s | 31 MiB", 31, RATIOS),
    Claim("size.report", COST, "50,000: 5.0 s | | 0.84 |", 0.84, RATIOS),
    Claim("size.watch", COST, "1,000: 0.70 s | | 0.51 |", 0.51, 1.0),
    Claim("size.list", COST, "10,000: 2.1 s | | 0.82 |", 0.82, RATIOS),
    Claim("size.start", COST, "10,000: 1.03 s | | 0.75 |", 0.75, RATIOS),
    Claim("audit.tokens.median", AUDIT, "| `tokens` against `/context` (n = 19) | 0.01 |", 0.01, 0.5),
    Claim("audit.tokens.p99", FULL, "| `tokens` (`occupancy`) | **0.01** | **0.02** | **0.06** |", 0.06, SIZES),
    Claim("audit.cli_estimate.median", FULL, "| `cli_estimate` | **0.003** |", 0.003, SIZES),
    Claim("audit.cli_estimate.median", AUDIT, "| `cli_estimate` against preTokens (n = 115) | 0.003 |", 0.003, SIZES),
    Claim("audit.cli_estimate.p90", AUDIT, "| `cli_estimate` against preTokens (n = 115) | 0.003 | 1.8 |", 1.8, SIZES),
    Claim("audit.cli_estimate.p99", FULL, "| `cli_estimate` | **0.003** | **1.8** | **3.9** |", 3.9, SIZES),
    Claim("audit.projected.median", FULL, "| `projected` | **0.03** |", 0.03, SIZES),
    Claim("audit.projected.p90", FULL, "| `projected` | **0.03** | **0.18** |", 0.18, SIZES),
    Claim("audit.projected.p99", FULL, "| `projected` | **0.03** | **0.18** | **1.7** |", 1.7, SIZES),
    Claim("audit.projected.median", AUDIT, "| `projected` against the next request (n = 11,925) | 0.03 |", 0.03, SIZES),
)

EXAMPLE = "an example, a setting or a limit of this package, and no measurement"
WHOLE = "measured by the whole run of tests/benchmarks/fleet.py, by hand: it takes minutes and both cores"
PUBLIC = "public transcripts, which are not part of this repository"
DASK = "measured by tests/benchmarks/fleet_dask.py, by hand: it starts clusters"
BY_HAND = "measured by tests/benchmarks/size.py; `all.py` looks at the exponents, which no other work disturbs"

NOT_MEASURED: tuple[Note, ...] = (
    Note(FLEET, r"about 540 KB and one compaction each|of a session|a session of 537 KB", "size of the recordings"),
    Note(FLEET, r"\| all at full speed: .*?\| 200 kills", WHOLE),
    Note(FLEET, r"## What a real agent does .*? ## A hundred thousand", PUBLIC),
    Note(FLEET, r"\| rows a second \|.*? requests to the store", "multiplied from the table above it, as it says"),
    Note(FLEET, r"The disk is: 5\.7 TB a day .*? five times smaller", "multiplied; packing is archive.packed"),
    Note(FLEET, r"0\.08 cores and 0\.03 GB; this machine pays a third|a machine of 64 GB", "multiplied from the table"),
    Note(
        COST,
        r"\| tracker, .*? medians of five|within \d+ %|30 MiB with 500 MB",
        BY_HAND,
    ),
    Note(COST, r": 5 GB are generated", EXAMPLE),
    Note(
        COST,
        r"real sessions \(100 MB of plain .*? above 2 MiB|2\.3 GHz, which ten times",
        "measured by tests/benchmarks/rates.py; " + PUBLIC,
    ),
    Note("README.md", r"warns at 70 %|at 70 % a note", EXAMPLE),
    Note("README.md", r"reads 500 MB of modern transcripts", "measured by tests/benchmarks/replay.py, like the ratio"),
    Note(
        COST,
        r"the same 500 MB of generated .*? on one core|\| reader \| one core .*? \| 15 MiB"
        r"|folders have 100 MB .*? 150 MB|sessions, 500 MB|sessions, 214 MB|unselected, 100 MB"
        r"|On two cores, by the clock .*? other folders",
        "measured by tests/benchmarks/replay.py; `all.py` has the ratios",
    ),
    Note(
        "docs/explanation/what-fills-the-context.md",
        r"0\.09 to 0\.54 s|right to 0\.1 % in the median|5 % and 2,000 tokens|changes that are heard: .*? 10 % \|"
        r"|nine repositories \| .*? 99\.96 %|and length \| .*? 99\.95 %|The worst half .*? 1\.6\."
        r"|A change of 6 % .*? 5 % is",
        "a measurement of the CLI, and the rule itself; tests/benchmarks/alarms.py counts the alarms",
    ),
    Note(
        FULL, r"off by 0\.04 / 0\.20 / 1\.8 %|by 0\.05 / 0\.38 / 1\.7 %|5,712 requests|0\.03 / 0\.32 / 1\.7 %", PUBLIC
    ),
    Note(FULL, r"off by 52 tokens .*? 0\.7 to 2\.5 % of the context in four sessions", PUBLIC),
    Note(
        FULL,
        r"\(207 MB, many CLI versions\)|The largest errors, 47 % and 25 %|the one of 25 %|13,000 tokens|"
        r"largest other error .*? 7\.7 %",
        PUBLIC,
    ),
    Note(FULL, r"A curve at height .*? at most 1 %", EXAMPLE),
    Note(
        "docs/explanation/compaction-by-reference.md",
        r"about 20 seconds|were 6\.4 % of .*? tool inputs 16 %|\| figure \| CLI's summary .*? [0-9,]+ largest",
        "counted once over public transcripts, and with the commands that the page names",
    ),
    Note("docs/how-to/add-to-an-agent.md", r"a warning at 70 %", EXAMPLE),
    Note(AUDIT, r"\| error \| true figure .*?2\.0 % \(7\)", PUBLIC),
    Note(AUDIT, r"a line of 64 MiB", EXAMPLE),
    Note("docs/how-to/cap-tool-output.md", r"from 60 % past", EXAMPLE),
    Note("docs/how-to/context-share-in-a-script.md", r"is 70 % full", EXAMPLE),
    Note(
        "docs/how-to/context-share-in-a-script.md",
        r"within 60 ms|\| a bare Python, .*? for the bare Python",
        "measured by tests/benchmarks/statusline.py, which fails above its own bound",
    ),
    Note("docs/how-to/find-what-is-wrong.md", r"less than 100 MB free", EXAMPLE),
    Note("docs/how-to/object-storage.md", r"after 5 seconds|over 8 MiB", EXAMPLE),
    Note("docs/how-to/restart-instead-of-compaction.md", r"has 30 seconds", EXAMPLE),
    Note("docs/how-to/restore-after-a-bad-compaction.md", r"over 64 MB", EXAMPLE),
    Note("docs/how-to/status-line.md", r"yellow from 50 % and red from 80 %", EXAMPLE),
    Note(
        "docs/how-to/telemetry.md", r"above 90 % for|80 % of the context|5 % of the archives|longer than 5 s", EXAMPLE
    ),
    Note(WATCH, r"every 0\.15 s", EXAMPLE),
    Note(CLUSTER, r"\| 10 MB, audit .*? \(1\.7 at best\)", DASK),
    Note(CLUSTER, r"two are 1\.2 times as quick as one at 1 GB, and not at 256 MB", DASK),
    Note(CLUSTER, r"from about 100 MB on, and are 1\.8 times as quick at 1 GB", DASK),
    Note(CLUSTER, r"shares of 8 to 64 MB|shares of 8 MB each", EXAMPLE),
    Note(CLUSTER, r"the same 256 MB take.*?0\.6 s of reading in the workers", "processor time, measured once by hand"),
    Note("docs/reference/cli.md", r"\(5GB, 5GiB\)|yellow from 50 % and red from 80 %", EXAMPLE),
    Note("docs/reference/cli.md", r"Of a row over 4 MiB|A row over 16 MiB", EXAMPLE),
    Note("docs/how-to/retention-and-secrets.md", r"in a row of more than 16 MiB", EXAMPLE),
    Note("docs/reference/configuration.md", r"a size such as 500MB, 1GB or 2GiB", EXAMPLE),
    Note(
        "docs/reference/replay-json.md", r"\(0\.001 is 0\.1 %\)|more than 3 % smaller|more than 25 % from ours", EXAMPLE
    ),
    Note("docs/tutorial/first-ten-minutes.md", r"a warning at 70 %", EXAMPLE),
)
"""Where a figure has no benchmark here, and why. A note that covers nothing any more fails its test."""

ELSEWHERE = {
    "docs/explanation/cache.md": "prices, rules, and token counts of `cache.py`, which reads recordings from elsewhere",
    "docs/explanation/security.md": "sizes of hostile inputs; each line of the page names the command that makes them",
    "docs/explanation/trust.md": "counts of the fuzzers' and the fault harness's runs, which the page names",
}
"""Pages whose figures are no measurements of speed or size, whole."""
