"""The built site: its pages are small, whole without any other host, and described."""

import html.parser
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 1_000_000
"""Bytes of a page with the images that it shows. Scripts and styles are all pages'."""

pytestmark = pytest.mark.slow
_FETCHED = {"src", "srcset", "poster", "data", "xlink:href"}
_URL = re.compile(r"(?:url\(|@import\s)\s*['\"]?([^)'\"\s]+)")


class Page(html.parser.HTMLParser):
    """What a page has in its elements: what browsers fetch, images, title, headings."""

    def __init__(self, path):
        super().__init__()
        self.path, self.text = path, path.read_text("utf-8")
        self.fetched, self.images, self.classes, self.h1, self.title = [], [], [], 0, ""
        self._tag = None
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        self._tag = tag
        self.h1 += tag == "h1"
        self.classes += attributes.get("class", "").split()
        self.fetched += [v for name, v in attributes.items() if name in _FETCHED and v]
        self.fetched += _URL.findall(attributes.get("style", ""))
        if tag in ("link", "use") and attributes.get("rel") not in ("prev", "next"):
            self.fetched.append(attributes["href"])
        if tag == "img":
            self.images.append((attributes.get("src"), attributes.get("alt", "")))

    def handle_endtag(self, tag):
        self._tag = None

    def handle_data(self, data):
        if self._tag == "title":
            self.title += data
        elif self._tag == "style":
            self.fetched += _URL.findall(data)

    def file(self, link):
        """Return the file of the site to which a link of this page leads."""
        return self.path.parent / unquote(urlsplit(link).path)


def foreign(links):
    """Return which links lead to another host."""
    return [
        a for a in links if urlsplit(a).netloc or urlsplit(a).scheme not in ("", "data")
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://a.org/b.js"></script>',
        '<link rel="stylesheet" href="//a.org/b.css">',
        '<img src="http://a.org/b.png" alt="">',
        '<p style="background: url(https://a.org/b.png)">',
        "<style>@import 'https://a.org/b.css';</style>",
    ],
)
def test_another_host_is_noticed(text, tmp_path):
    path = tmp_path / "index.html"
    path.write_text(f'<a href="https://a.org">b</a><img src="c.svg">{text}')
    assert len(foreign(Page(path).fetched)) == 1


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="comes with the docs extra")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir"]
    done = subprocess.run(
        [*command, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    found = [Page(path) for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(found) == len([*(ROOT / "docs").rglob("*.md")])
    return {page.path.relative_to(site).as_posix(): page for page in found}


def test_settings_have_their_effect(pages):
    """Signatures, and code that is included."""
    assert "knn_shapley" in pages["api/index.html"].text
    for name, shown in (("index", "tmc_shapley("), ("value/index", "ModelUtility(")):
        assert shown in re.sub("<[^>]+>", "", pages[f"api/{name}.html"].text)
    wrong = [n for n, p in pages.items() if re.search("<p>::: \\w|--8&lt;--", p.text)]
    assert not wrong


def test_nothing_of_the_sources_is_published(site):
    assert not [*site.rglob("*.py"), *site.rglob("*.md")]


def test_pages_are_small(pages):
    sizes = {
        name: page.path.stat().st_size
        + sum(page.file(src).stat().st_size for src in {src for src, _ in page.images})
        for name, page in pages.items()
    }
    assert max(sizes.values()) <= LARGEST, max(sizes, key=sizes.get)


def test_nothing_is_fetched_from_another_host(site, pages):
    wrong = {name: of for name, page in pages.items() if (of := foreign(page.fetched))}
    for style in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        if of := foreign(_URL.findall(style.read_text("utf-8"))):
            wrong[style.name] = of
    assert not wrong
    # The theme's own script fetches these from elsewhere.
    assert not [n for n, p in pages.items() if {"mermaid", "md-source"} & {*p.classes}]


def test_what_is_fetched_is_there(pages):
    missing = {
        (name, link)
        for name, page in pages.items()
        for link in page.fetched
        if urlsplit(link).path and not link.startswith("data:")
        if not page.file(link).is_file()
    }
    assert not missing


def test_images_are_described(pages):
    assert sum(len(page.images) for page in pages.values()) >= 15
    assert not [
        n for n, p in pages.items() if any(len(alt) < 30 for _, alt in p.images)
    ]


def test_pages_have_a_title_and_one_heading(pages):
    assert {name: page.h1 for name, page in pages.items() if page.h1 != 1} == {}
    titles = [page.title.strip() for page in pages.values()]
    assert all(titles)
    assert len({*titles}) == len(titles)


def test_formulas_are_set(pages):
    sources = "".join(p.read_text("utf-8") for p in (ROOT / "docs").glob("*.md"))
    assert sources.count("$$") // 2 == sum(
        page.classes.count("formula") for page in pages.values()
    )
    assert not [name for name, page in pages.items() if "arithmatex" in page.classes]
    left = re.compile(r"\\|>&(amp;|#x0*26;)?<")  # commands, columns
    for name, page in pages.items():
        for formula in re.findall("<math.*?</math>", page.text, re.DOTALL):
            assert not left.search(formula), f"not converted: {formula} in {name}"
