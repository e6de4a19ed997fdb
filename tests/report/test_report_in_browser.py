"""A report in Chromium, on screens and on paper, and by axe-core if npm has it.

Needs `chromium` and `chromedriver`, as of Debian's packages chromium and
chromium-driver, and `npm install --global axe-core` for the last test.
"""

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import jaxsel
from jaxsel.report import (
    Chapter,
    Figure,
    Heading,
    Report,
    Table,
    new_figure,
    plot_curves,
    plot_images,
    plot_values,
)

webdriver = pytest.importorskip("selenium.webdriver")

PROGRAMS = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
MISSING = [name for name, path in PROGRAMS.items() if path is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"no {' or '.join(MISSING)}")

A4 = 673  # px between margins of 16 mm
VIEWS = [
    (1280, "light", "screen"),
    (1280, "dark", "screen"),
    (390, "light", "screen"),
    (390, "dark", "screen"),
    (A4, "dark", "print"),
]
LONG = "Chooses_" + "without_a_break_" * 12


def make_report():
    lines = new_figure()
    plot_curves(
        [1, 10, 100],
        {"ours": np.arange(12).reshape(4, 3), "random": np.ones((4, 3))},
        ax=lines.subplots(),
        xlabel="Samples",
        ylabel="Accuracy",
    )
    wide = new_figure(8.8, 3.2)
    x, y = np.arange(30.0)[:, None], np.arange(30) % 2
    values = jaxsel.knn_shapley(x, y, x[:6], y[:6], k=3)
    plot_values(values, ax=wide.subplots(1, 2), labels=y)
    images = plot_images(
        np.arange(64).reshape(4, 4, 4),
        columns=2,
        captions=["0", "1", "2 (is 3)", "3"],
        rows=["first owner", "second owner"],
        marked=[False, False, True, False],
    )
    say = {"alt": "Ours is best.", "caption": "Ours is best."}
    numbers = Table(
        columns=["method", *(f"measure {i} of quality" for i in range(9))],
        rows=[
            [name, *[(0.5, 0.01)] * 9] for name in ("nearest neighbours", "at random")
        ],
        caption="Wider than a phone.",
        formats=["", *[".1%"] * 9],
    )
    texts = Table(
        columns=["review", "share", "label"],
        rows=[["A review of many words. " * 20, 0.5, "negative"], [LONG, 0.1, "b"]],
        caption="Texts.",
    )
    few = Table(columns=["", "b"], rows=[["x", 1]], caption="Narrow.")
    blocks = (
        f"A paragraph with `{LONG}`. " * 3,
        Heading("A finding in many words, as findings are, over several lines"),
        Figure(plot=lines, **say),
        Figure(plot=images, **say),
        numbers,
        Heading(LONG),
        Figure(plot=wide, **say),
        texts,
        few,
        Figure(plot=images, format="png", **say),
    )
    chapters = [Chapter(title=LONG, blocks=blocks), Chapter(title="Next", blocks=())]
    return Report(title=f"Findings {LONG}", summary=f"Why {LONG}", chapters=chapters)


@pytest.fixture(scope="module", params=["plain", "folded"])
def address(request, tmp_path_factory):
    """A page with chapters one below the other, and one that folds them."""
    report = make_report()
    if request.param == "folded":
        story = (f"A story of {LONG}. " * 3, report.chapters[0].blocks[2], "The end.")
        report = dataclasses.replace(report, story=story)
    page, _ = report.save(tmp_path_factory.mktemp("report"))
    return page.as_uri()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = PROGRAMS["chromium"]
    options.add_argument("--headless=new")
    options.add_argument("--no-sandbox")  # it does not run as root, nor in containers
    options.add_argument("--disable-dev-shm-usage")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=PROGRAMS["chromedriver"])
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


@pytest.fixture(params=VIEWS, ids=lambda view: "-".join(map(str, view)))
def view(request, browser, address):
    """Show the page, and return width, colour scheme and medium."""
    width, scheme, medium = request.param
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {
            "media": medium,
            "features": [{"name": "prefers-color-scheme", "value": scheme}],
        },
    )
    browser.get_log("browser")  # of the view before
    browser.get(address)
    if medium == "screen":
        for summary in browser.find_elements("css selector", "summary"):
            summary.send_keys(" ")  # by the keyboard
    return width, scheme, medium


@pytest.mark.every(5)
def test_chapters_that_are_folded_open_and_are_printed(browser, view):
    heights = browser.execute_script(
        """
        return [...document.querySelectorAll('details')].map(
          e => e.querySelector('p') ? e.querySelector('p').offsetHeight : 1);
        """
    )
    assert all(heights)
    # Closed ones show their title, and nothing else.
    shown = browser.execute_script(
        """
        return [...document.querySelectorAll('details')].map(e => {
          e.open = false;
          return e.clientHeight <= e.querySelector('summary').offsetHeight + 12;
        });
        """
    )
    assert all(shown) or view[2] == "print"


def test_texts_of_tables_are_whole(browser, view):
    cut = browser.execute_script(
        """
        return [...document.querySelectorAll('td, th')].filter(
          e => e.scrollWidth > e.clientWidth + 1
            || getComputedStyle(e).textOverflow != 'clip').map(e => e.outerHTML);
        """
    )
    assert cut == []


def test_nothing_overflows(browser, view):
    width, _, medium = view
    beyond = browser.execute_script(
        """
        const [width, scrolls] = arguments;
        return [...document.body.querySelectorAll('*')].filter(e => {
          const box = e.getBoundingClientRect();
          return box.width && (box.right > width + .5 || box.left < -.5)
            && !(scrolls && e.closest('.wide table')) && !e.closest('svg *');
        }).map(e => e.outerHTML.slice(0, 80));
        """,
        width,
        medium == "screen",
    )
    assert beyond == []
    assert browser.execute_script(
        "return document.documentElement.scrollWidth <= arguments[0]", width
    )


def test_wide_tables_scroll_on_screens_and_wrap_on_paper(browser, view):
    _, _, medium = view
    scrolls = browser.execute_script(
        """
        return [...document.querySelectorAll('.wide')].map(e => {
          e.scrollLeft = 1e4;
          return e.scrollLeft > 0;
        });
        """
    )
    assert scrolls == ([False] * 3 if medium == "print" else [True, True, False])


def test_it_is_quiet_and_asks_for_nothing(browser, view):
    assert browser.get_log("browser") == []
    names = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert [name for name in names if not name.startswith("data:")] == []


@pytest.mark.every(3)
def test_colours_follow_the_reader_but_not_on_paper(browser, view):
    _, scheme, medium = view
    colour = browser.execute_script("return getComputedStyle(document.body).background")
    brightest = "rgb(255, 255, 255)" in colour
    assert brightest == (scheme == "light" or medium == "print")


@pytest.fixture(scope="module")
def axe():
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm")
    root = subprocess.run(
        [npm, "root", "--global"], capture_output=True, text=True, check=True
    ).stdout.strip()
    script = Path(root) / "axe-core" / "axe.min.js"
    if not script.exists():
        pytest.skip("no axe-core: npm install --global axe-core")
    return script.read_text(encoding="utf-8")


def test_axe_finds_nothing(browser, view, axe):
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "axe.run().then(r => arguments[0](r.violations.map(v =>"
        " [v.id, v.nodes.map(n => n.html.slice(0, 80))])))"
    )
    assert found == []
    # Which leaves out the text of drawings.
    faint = browser.execute_script(
        """
        const { Color, getContrast } = axe.commons.color;
        const read = text => { const c = new Color(); c.parseString(text); return c; };
        const paper = read(getComputedStyle(document.body).backgroundColor);
        const texts = [...document.querySelectorAll('svg.plot text')];
        const faint = texts.filter(
          e => getContrast(paper, read(getComputedStyle(e).fill)) < 4.5);
        return [texts.length, faint.map(e => e.outerHTML)];
        """
    )
    assert faint[0] > 20
    assert faint[1] == []
