"""The site: built with every warning an error, whole, and without anything from another host."""

import html.parser
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

pytestmark = pytest.mark.long

ROOT = pathlib.Path(__file__).parents[2]
LOADS = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
"""Element → attribute by which a browser loads something by itself."""


class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if values.get("id"):
            self.anchors.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag in LOADS and values.get(LOADS[tag]) and values.get("rel") not in {"index", "search", "next", "prev"}:
            self.loads.append(values[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(target / "trees")]
    done = subprocess.run([*command, str(ROOT / "docs"), str(target / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_page_is_there_and_in_the_navigation(site, pages):
    index = {urllib.parse.unquote(link) for link in pages[site / "index.html"].links}
    for path in (ROOT / "docs").rglob("*.md"):
        name = path.relative_to(ROOT / "docs").with_suffix(".html")
        assert site / name in pages
        assert path.name == "index.md" or str(name) in index


def test_every_internal_link_and_anchor_leads_somewhere(pages):
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), f"{path.name}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.name}: {link}"


def test_nothing_comes_from_another_host(site, pages):
    for path, page in pages.items():
        assert not [load for load in page.loads if re.match(r"(?:[a-z]+:)?//", load)], path
    for path in site.rglob("*.css"):
        assert not re.findall(r"@import|url\(\s*[\"']?(?:https?:)?//", path.read_text(encoding="utf-8")), path


def test_names_and_their_fields_are_documented(site, pages):
    anchors = pages[site / "reference/api.html"].anchors
    for name in ("instrument", "ContextSnapshot.tokens", "ContextConfig.warn_at", "TranscriptArchive.restore"):
        assert f"mala_context.{name}" in anchors
    assert "mala_context.testing.ScriptedMessagesAPI.env" in anchors


def test_examples_stand_there_whole(site):
    text = (site / "examples.html").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f'id="{path.stem.replace("_", "-")}-py"' in text


def test_text_of_the_index_that_is_no_page_makes_no_navigation():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("site_conf", ROOT / "docs/conf.py")
    conf = module_from_spec(spec)
    spec.loader.exec_module(conf)
    text = "# X\n\n## How to\n\n- [a](how-to/a.md): b\n- [c](https://d.md)\n- [e](../f.py)\n\n## Nothing\n\nwords\n"
    assert conf.navigation(text) == ":::{toctree}\n:hidden:\n:caption: How to\n\nhow-to/a\n:::\n"
