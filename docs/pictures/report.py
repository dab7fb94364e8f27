"""Draw the report of a made-up session: `python docs/pictures/report.py`.

`report.svg` beside this file is what `mala-context report -o report.svg` draws. The PNGs are the page in Debian's
chromium (packages chromium and chromium-driver), left out where there is none: light, dark, on a phone, on paper, and
the index of 2,000 sessions. The test suite checks that the SVG is the current one.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))

from mala_context.analysis.report import ContextReport, build_report  # noqa: E402  (after the path above)
from mala_context.analysis.report.page import page  # noqa: E402  (the same)
from mala_context.analysis.report.svg_chart import svg  # noqa: E402  (the same)
from tests.helpers.recordings import SID, Rows  # noqa: E402  (a module of the tests)
from tests.helpers.report_sessions import call, stamp  # noqa: E402  (the same)

PICTURE = HERE / "report.svg"
CHROMIUM = pathlib.Path("/usr/bin/chromium")
WIDTH, HEIGHT = 1120, 1040
PROJECTS = ("web-shop", "parser", "atlas", "notes", "billing")
PROMPTS = ("Fix the rounding of prices in the cart", "Why is the parser slow on long lines?", "Write the release notes")
_FILES = ("src/parser.py", "src/lexer.py", "tests/test_parser.py", "docs/grammar.md", "src/nodes.py")


def write(folder: pathlib.Path) -> str:
    """Write a session that reads, builds and is compacted twice, and its subagent."""
    rows = Rows()
    clock = iter(range(0, 100_000, 7))
    rows.prompt("Make the parser accept nested lists. Never change vendor.lock.", timestamp=stamp(next(clock)))
    tokens = 24_000
    for number in range(180):
        time_ = stamp(next(clock))
        if number in {74, 148}:
            rows.boundary(tokens + 400, 5_200)["timestamp"] = time_
            kept = rows.summary()
            kept["message"]["content"] = (
                "The parser in src/parser.py accepts nested lists; tests in tests/test_parser.py."
            )
            kept["timestamp"] = time_
            tokens = 33_000
        tokens += 700 + (number * 7919) % 1_300
        if number % 17 == 5:
            path = f"/home/dev/lists/{_FILES[number % len(_FILES)]}"
            call(rows, f"r{number}", tokens, "Read", {"file_path": path}, "x = parse(line)\n" * 900, timestamp=time_)
            tokens += 4_600 + (8_200 if number % 5 == 2 else 0)
        elif number % 2:
            call(rows, f"r{number}", tokens, "Bash", {"command": "pytest"}, "passed " * 90, timestamp=time_)
        else:
            rows.response(f"r{number}", tokens, output=260, timestamp=time_)
    path_ = folder / f"{SID}.jsonl"
    rows.write(path_)
    sub = Rows(agent="a5c0ffee")
    sub.prompt("Find all callers.", timestamp=stamp(60 * 7))
    for number in range(22):
        sub.response(f"s{number}", 11_000 + 2_300 * number, timestamp=stamp((60 + number) * 7))
    sub.write(folder / SID / "subagents" / "agent-a5c0ffee.jsonl")
    return str(path_)


def made() -> ContextReport:
    """Return the report of that session, as if it lay in a folder `sessions`."""
    with tempfile.TemporaryDirectory() as folder:
        found = build_report([write(pathlib.Path(folder))])
    for session in found.sessions:
        session.path = f"sessions/{SID}.jsonl"
    return found


def crowd(report: ContextReport, count: int = 2_000) -> ContextReport:
    """Return that report with many sessions, each with an id, a project, a prompt and sizes of its own."""
    (one,) = report.sessions
    many = [
        replace(
            one,
            session_id=f"{number * 2_654_435_761 % (1 << 32):08x}{SID[8:]}",
            project=PROJECTS[number % len(PROJECTS)],
            first_prompt=PROMPTS[number % len(PROMPTS)],
            peak_tokens=15_000 + number * 7_919 % 170_000,
        )
        for number in range(count)
    ]
    return replace(report, sessions=many)


SHOTS = (
    ("light", "screen", "light", WIDTH, HEIGHT),
    ("dark", "screen", "dark", WIDTH, HEIGHT),
    ("phone", "screen", "light", 400, 860),
    ("print", "print", "light", 760, 1_080),
)
"""Name, medium, colours, width and height."""


def photograph(text: str, index: str) -> None:
    """Take pictures of a session's page, and of the index of many."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    driver: Any = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "report.html"
        try:
            for name, medium, scheme, width, height in (*SHOTS, ("index", "screen", "light", WIDTH, 640)):
                path.write_text(index if name == "index" else text, encoding="utf-8")
                drawn = "#index tbody tr" if name == "index" else ".live .main-svg"
                size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})
                driver.get(f"file://{path}")
                while not driver.execute_script("return !!document.querySelector(arguments[0])", drawn):
                    time.sleep(0.05)
                driver.save_screenshot(str(HERE / f"report-{name}.png"))
        finally:
            driver.quit()


def main() -> None:
    """Draw all of them."""
    found = made()
    PICTURE.write_text(svg(found.sessions), encoding="utf-8")
    if CHROMIUM.exists():
        photograph("".join(page(found)), "".join(page(crowd(found))))


if __name__ == "__main__":
    main()
