"""The report in a real browser: it asks nobody, it can be read in every way, and 5,000 responses stay smooth."""

import base64
import json
import struct
import sys
import zlib
from dataclasses import replace

import pytest

from mala_context.analysis.report import build_report
from mala_context.analysis.report.page import page
from tests.helpers.recordings import SID
from tests.helpers.report_sessions import hostile_session, long_session

pytestmark = pytest.mark.system


def write(folder, found):
    path = folder / "report.html"
    path.write_text("".join(page(found)))
    return str(path)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return write(folder, build_report([long_session(folder / f"{SID}.jsonl", 400)]))


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    return write(folder, build_report([long_session(folder / f"{SID}.jsonl", 5_000)]))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return write(folder, build_report([hostile_session(folder / f"{SID}.jsonl")]))


def requests(browser):
    """Return every address that was asked for."""
    events = [json.loads(entry["message"])["message"] for entry in browser.log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def visible_range(browser):
    return browser.js("return document.querySelector('.live')._fullLayout.xaxis.range.slice()")


def pixels(png):
    """Return a picture's size and a function that gives the colour at a place."""
    at, data, header = 8, b"", None
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        header = struct.unpack(">IIBB", body[:10]) if kind == b"IHDR" else header
        data += body if kind == b"IDAT" else b""
        at += length + 12
    width, height, _, colour_type = header
    channels = {2: 3, 6: 4}[colour_type]
    raw, stride, rows, before = zlib.decompress(data), width * channels, [], bytearray(width * channels)
    for y in range(height):
        start = y * (stride + 1)
        kind, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            up, corner = before[x], before[x - channels] if x >= channels else 0
            line[x] = (line[x] + _predicted(kind, left, up, corner)) & 255
        rows.append(line)
        before = line
    return width, height, lambda x, y: tuple(rows[y][x * channels : x * channels + 3])


def _predicted(kind, left, up, corner):
    if kind == 4:
        guess = left + up - corner
        return min((left, up, corner), key=lambda each: abs(guess - each))
    return (0, left, up, (left + up) // 2)[kind]


def test_it_loads_without_an_error_and_without_a_request(browser, small):
    browser.open(small)
    assert browser.log("browser") == []
    assert {url.split(":")[0] for url in requests(browser)} <= {"file", "data", "blob"}
    assert [url for url in requests(browser) if url.startswith("file")] == []
    assert browser.js("return performance.getEntriesByType('resource').map(e => e.name)") == []


def test_the_policy_stops_a_request_and_a_script_that_are_not_ours(browser, small):
    browser.open(small)
    script = "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s);"
    assert browser.js(f"{script} return window.hacked === undefined")
    assert browser.js("return fetch('http://127.0.0.1:9/').then(() => false, () => true)")
    assert "Content Security Policy" in " ".join(entry["message"] for entry in browser.log("browser"))


def test_hostile_text_runs_nothing_and_is_seen_spelt_out(browser, hostile):
    browser.open(hostile)
    box = browser.box(".live")
    for step in range(20):
        browser.mouse("mouseMoved", box["x"] + box["width"] * step / 20, box["y"] + box["height"] / 3)
    browser.js("document.querySelectorAll('details').forEach(each => { each.open = true })")
    browser.wait("return document.querySelectorAll('details.points tbody tr').length > 4")
    assert browser.js("return window.hacked === undefined")
    assert browser.js("return document.querySelectorAll('script').length") <= 4
    assert browser.js("return document.querySelectorAll('img, iframe, object').length") == 0
    text = browser.js("return document.body.innerText + document.querySelector('.live').innerHTML")
    assert "<script>window.hacked" in browser.js("return document.body.innerText")
    assert "\\u202e" in text
    assert "\u202e" not in text
    assert browser.log("browser") == []


def test_hovering_shows_a_tooltip(browser, small):
    browser.open(small)
    box = browser.box(".live")
    browser.mouse("mouseMoved", box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    browser.mouse("mouseMoved", box["x"] + box["width"] / 2 + 3, box["y"] + box["height"] / 2)
    words = browser.wait("return document.querySelector('.live .hoverlayer')?.textContent")
    assert "tokens" in words
    assert "response" in words


def test_dragging_zooms_and_a_double_click_shows_all(browser, small):
    browser.open(small)
    before = visible_range(browser)
    box = browser.box(".live .nsewdrag")
    y = box["y"] + box["height"] / 2
    left, right = box["x"] + box["width"] * 0.4, box["x"] + box["width"] * 0.6
    browser.mouse("mouseMoved", left, y)
    browser.mouse("mousePressed", left, y, button="left", clickCount=1)
    for step in range(1, 6):
        browser.mouse("mouseMoved", left + (right - left) * step / 5, y, button="left", buttons=1)
    browser.mouse("mouseReleased", right, y, button="left", clickCount=1)
    script = "const r = document.querySelector('.live')._fullLayout.xaxis.range; return r[1] - r[0] < arguments[0]"
    browser.wait(script, (before[1] - before[0]) * 0.3)
    browser.js("document.querySelector('[data-act=all]').click()")
    browser.wait(script.replace("<", ">"), (before[1] - before[0]) * 0.95)


def test_the_keyboard_reaches_everything_in_order(browser, small):
    browser.open(small)
    seen = []
    for _ in range(40):
        browser.tab()
        seen.append(
            browser.js("const e = document.activeElement; return e.id || e.dataset.act || e.className || e.tagName")
        )
        if seen[-1] == "SUMMARY":
            break
    assert seen[0] == "skip"
    order = ["skip", "theme", "in", "out", "left", "right", "all", "time"]
    assert [each for each in seen if each in order] == order
    assert "live" in " ".join(seen)
    assert seen[-1] == "SUMMARY"
    browser.key("Enter", windowsVirtualKeyCode=13, text="\r")
    browser.wait("return document.querySelectorAll('details.points tbody tr').length === 200")


def test_the_keys_go_from_point_to_point_and_zoom(browser, small):
    browser.open(small)
    browser.js("document.querySelector('.live').focus()")
    browser.key("ArrowRight", windowsVirtualKeyCode=39)
    browser.key("ArrowRight", windowsVirtualKeyCode=39)
    said = browser.wait("return document.querySelector('[aria-live]').textContent")
    assert said.startswith("response 2: ")
    assert "tokens" in said
    before = visible_range(browser)
    browser.key("+")
    script = "const r = document.querySelector('.live')._fullLayout.xaxis.range; return r[1] - r[0] < arguments[0]"
    browser.wait(script, (before[1] - before[0]) * 0.6)


def test_the_axis_can_be_time(browser, small):
    browser.open(small)
    browser.js("document.querySelector('[data-act=time]').click()")
    browser.wait("return document.querySelector('.live')._fullLayout.xaxis.type === 'date'")
    assert browser.js("return document.querySelector('[data-act=time]').getAttribute('aria-pressed')") == "true"


def paper(browser):
    return browser.js("return getComputedStyle(document.body).backgroundColor")


def test_dark_follows_the_system_and_the_button(browser, small):
    browser.emulate(scheme="dark")
    browser.open(small)
    assert paper(browser) == "rgb(20, 23, 26)"
    chart = "return document.querySelector('.live .main-svg').style.background"
    assert "20, 23, 26" in browser.js(chart)
    browser.js("document.getElementById('theme').click()")
    assert paper(browser) == "rgb(255, 255, 255)"
    browser.wait(f"{chart}.includes('255, 255, 255')")
    assert browser.js("return document.getElementById('theme').textContent") == "Dark colours"


def test_paper_gets_light_pictures_and_no_buttons(browser, small):
    browser.emulate(scheme="dark")
    browser.open(small)
    browser.emulate(media="print", scheme="dark")
    shown = "return getComputedStyle(document.querySelector(arguments[0])).display"
    assert paper(browser) == "rgb(255, 255, 255)"
    assert [browser.js(shown, each) for each in (".live", ".controls", "#theme", ".still")] == [
        "none",
        "none",
        "none",
        "block",
    ]
    browser.resize(700)
    wide = "return [...document.querySelectorAll('table')].map(e => e.getBoundingClientRect().right)"
    assert max(browser.js(wide)) <= 701
    printed = base64.b64decode(browser.cdp("Page.printToPDF", printBackground=True)["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000


@pytest.mark.parametrize("width", [400, 960, 1500])
def test_no_page_is_wider_than_its_window(browser, small, width):
    browser.resize(width)
    browser.open(small)
    assert browser.js("return document.documentElement.scrollWidth") == width


def test_the_picture_is_built_as_it_should_be(browser, small):
    """Regions follow one another, and each line has pixels of its own colour."""
    browser.open(small)
    regions = [browser.box(each) for each in ("h1", "h2", "dl.facts", ".controls", ".live", "details.points", ".card")]
    tops = [region["y"] for region in regions]
    assert tops == sorted(tops)
    assert all(region["width"] > 80 and region["height"] > 10 for region in regions)
    plot = browser.box(".live .nsewdrag")
    assert plot["width"] > 900
    assert plot["height"] > 250
    assert browser.js("return document.querySelectorAll('.live .scatterlayer .trace').length") >= 6
    traces = browser.js(
        "return [...document.querySelectorAll('.live .scatterlayer .trace .js-line')]"
        ".map(e => e.getBoundingClientRect()).map(r => [r.width, r.height])"
    )
    assert len(traces) == 3
    assert all(width > 20 and height > 20 for width, height in traces)
    assert traces[0][0] > 0.9 * plot["width"]
    clip = {key: plot[key] for key in ("x", "y", "width", "height")}
    clip["y"] += browser.js("return scrollY")
    shot = browser.cdp("Page.captureScreenshot", format="png", clip={**clip, "scale": 0.5}, captureBeyondViewport=True)
    width, height, colour = pixels(base64.b64decode(shot["data"]))
    for wanted in ((31, 111, 196), (138, 99, 201), (179, 38, 30), (161, 92, 0), (11, 114, 133)):
        near = sum(
            sum(abs(a - b) for a, b in zip(colour(x, y), wanted, strict=True)) < 90
            for x in range(width)
            for y in range(height)
        )
        assert near > 8, wanted


def test_five_thousand_responses_stay_smooth(browser, large):
    browser.open(large)
    loaded, ready = browser.js(
        "return [performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd, performance.now()]"
    )
    frames = measure_frames(browser)
    half = frames[len(frames) // 2]
    late = frames[int(len(frames) * 0.95)]
    sys.stderr.write(f"readable after {loaded:.0f} ms, drawn {ready:.0f} ms, frame {half:.1f} / {late:.1f} ms\n")
    assert len(frames) > 20
    assert half < 50
    assert late < 250


def measure_frames(browser, steps=80):
    """Move over the chart, and return the times between two frames meanwhile, sorted, in milliseconds."""
    box = browser.box(".live")
    browser.js(
        "window.frames_ = []; let last = performance.now();"
        "(function next(now) { frames_.push(now - last); last = now; requestAnimationFrame(next); })(last)"
    )
    for step in range(steps):
        x = box["x"] + 80 + (box["width"] - 160) * step / steps
        browser.mouse("mouseMoved", x, box["y"] + box["height"] / 3)
    return sorted(browser.js("return frames_.slice(1)"))


@pytest.fixture(scope="session")
def crowd(tmp_path_factory):
    """A page of more sessions than stand in it as they are; the index has more rows than it shows at first."""
    folder = tmp_path_factory.mktemp("crowd")
    found = build_report([long_session(folder / f"{SID}.jsonl", 60)])
    (one,) = found.sessions
    found.sessions = [
        replace(one, session_id=f"{number:08x}{SID[8:]}", project=f"project-{number % 3}", peak_tokens=number)
        for number in range(2_000)
    ]
    return write(folder, found)


def test_an_index_of_many_sessions_is_sorted_searched_and_opened(browser, crowd):
    browser.open(crowd, ready=False)
    rows = "return [...document.querySelectorAll('#index tbody tr')].map((row) => row.textContent)"
    browser.wait("return !document.getElementById('search').closest('p').hidden")
    ready = browser.js("return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
    sys.stderr.write(f"2,000 sessions: sorted and searched from {ready:.0f} ms on\n")
    for width in (900, 1_120, 1_400):
        browser.resize(width)
        scroll = "return ['scrollWidth', 'clientWidth'].map((each) => document.querySelector('#index .scroll')[each])"
        assert len(set(browser.js(scroll))) == 1, "no column is cut: a narrow window leaves out whole ones"
    assert len(browser.js(rows)) == 200
    browser.js("document.getElementById('more').click()")
    assert len(browser.js(rows)) == 400
    head = "[...document.querySelectorAll('#index th')].find((head) => head.textContent === 'Peak')"
    for least in ("1,999", "0"):
        browser.js(f"{head}.querySelector('button').click()")
        assert browser.js("return document.querySelector('#index tbody tr').cells[6].textContent") == least
    assert browser.js(f"return {head}.getAttribute('aria-sort')") == "ascending"
    browser.js(
        "const search = document.getElementById('search'); search.value = 'PROJECT-1 000000';"
        "search.dispatchEvent(new Event('input'))"
    )
    assert browser.js("return document.getElementById('found').textContent") == "85 of 2,000"
    browser.js("document.querySelector('#index tbody a').click()")
    browser.wait("return !!document.querySelector('#opened .live .main-svg')")
    assert browser.js("return document.getElementById('index').hidden")
    assert browser.js("return document.querySelectorAll('section').length") == 1
    browser.js("document.querySelector('#opened a').click()")
    browser.wait("return !document.getElementById('index').hidden && !document.querySelector('section')")
    assert [address for address in requests(browser) if not address.startswith(("file:", "data:", "blob:"))] == []


def test_responses_are_whole_numbers_and_labels_stand_clear_of_the_line(browser, tmp_path):
    path = write(tmp_path, build_report([long_session(tmp_path / f"{SID}.jsonl", 4)]))
    browser.open(path)
    ticks = browser.js("return [...document.querySelectorAll('.live .xtick text')].map((text) => text.textContent)")
    assert ticks
    assert all(tick.replace(",", "").isdigit() for tick in ticks)
    assert len(set(ticks)) == len(ticks)
