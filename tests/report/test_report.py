import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.report import (
    Chapter,
    Figure,
    Heading,
    Report,
    Table,
    _origin,
    new_figure,
    plot_curves,
    plot_images,
)

NASTY = """<script>alert("x")</script> & 'quotes' <b>"""
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """What is on a page; refuses one whose elements are not properly nested."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    def named(self, *tags):
        return [attributes for tag, attributes in self.tags if tag in tags]


def drawing():
    figure = new_figure()
    ax = plot_curves(
        [1, 10, 100],
        {"a": np.arange(12).reshape(4, 3), NASTY: np.ones((4, 3))},
        levels={"b": np.arange(4)},
        ax=figure.subplots(),
        xlabel=NASTY,
        ylabel="y",
        xscale="log",
    )
    assert ax.figure is figure
    return figure


def make_report():
    images = plot_images(
        np.arange(3 * 16).reshape(3, 4, 4), columns=2, captions=["p", "q", NASTY]
    )
    table = Table(
        columns=("name", NASTY, "share"),
        rows=[
            ("first", -1.23456, (0.5, 0.125)),
            (NASTY, None, (0.25, float("nan"))),
            ("third", np.float32(2.5), (np.float32(1), None)),
        ],
        formats=("", ".2f", ".1%"),
        caption=NASTY,
    )
    first = Chapter(
        title=NASTY,
        blocks=(
            NASTY,
            "Call `f(<x>)`.",
            Heading(NASTY),
            Figure(plot=drawing(), alt=NASTY, caption=NASTY),
            Figure(plot=drawing(), alt="A plot.", caption="Again."),
            table,
            Heading("Images"),
            Figure(plot=images, alt="Three images.", caption="Images.", format="png"),
        ),
        data={
            "array": jnp.arange(3.0),
            "nested": [{"x": np.int64(3)}, np.array([[True], [False]])],
            "gap": np.array([np.nan, 1.0, np.inf]),
            NASTY: NASTY,
        },
    )
    second = Chapter(
        title="Second", blocks=(Figure(plot=drawing(), alt="-", caption="-"),)
    )
    return Report(title=NASTY, summary=NASTY, chapters=[first, second])


@pytest.fixture
def report():
    return make_report()


@pytest.fixture
def written(report, tmp_path):
    html, numbers = report.save(tmp_path / "a" / "b")
    assert (html.name, numbers.name) == ("report.html", "report.json")
    text = html.read_text(encoding="utf-8")
    return text, Page(text), json.loads(numbers.read_text(encoding="utf-8"))


def test_all_text_is_escaped(written):
    text, page, _ = written
    assert not page.named("script", "b")
    assert "<script" not in text
    # Title twice, summary, chapter and its entry in the contents, and so on.
    assert sum(NASTY in shown for shown in page.texts) >= 10
    assert NASTY in [a.get("aria-label") for a in page.named("svg")]
    assert "f(<x>)" in page.texts
    assert len(page.named("code")) == 1


def test_the_page_needs_nothing_from_outside(written):
    text, page, _ = written
    links = [
        value
        for name, value in page.attributes
        if name in ("src", "href", "xlink:href", "action", "data", "srcset")
    ]
    assert links
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in links)
    assert not page.named("script", "link", "iframe", "object")
    assert not re.search(r"https?://|@import|url\((?!#)", text)


def test_anchors_and_ids(written):
    _, page, _ = written
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    targets = {
        value[1:]
        for name, value in page.attributes
        if name in ("href", "xlink:href") and value.startswith("#")
    }
    clips = {
        match
        for _, value in page.attributes
        for match in re.findall(r"url\(#(.*?)\)", value or "")
    }
    labels = {v for name, v in page.attributes if name == "aria-labelledby"}
    assert targets | clips | labels <= set(ids)
    assert {"c1", "c2", "c1-s1", "c1-s2"} <= targets
    assert clips


def test_accessibility(written):
    _, page, _ = written
    headings = [tag for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert headings == ["h1", "h2", "h3", "h3", "h2"]
    assert [a["alt"] for a in page.named("img")] == ["Three images."]
    assert len(page.named("svg")) == 3
    assert all(a["role"] == "img" and a["aria-label"] for a in page.named("svg"))
    assert len(page.named("figcaption")) == len(page.named("figure")) == 5
    assert page.named("html") == [{"lang": "en"}]
    assert {a["scope"] for a in page.named("th")} == {"row", "col"}


def test_figures_follow_the_theme(written):
    text, page, _ = written
    assert "prefers-color-scheme: dark" in text
    body = text[text.index("<body>") :]
    assert "var(--ink)" in body
    assert "#1a1d22" not in body


def test_numbers_are_those_shown(report, written):
    _, page, numbers = written
    first = numbers["chapters"][0]
    assert first["title"] == NASTY
    assert first["tables"][0]["rows"] == [
        ["first", -1.23456, [0.5, 0.125]],
        [NASTY, None, [0.25, None]],
        ["third", 2.5, [1.0, None]],
    ]
    for shown in ("−1.23", "50.0% ± 12.5%", "–", "25.0% ± –", "2.50", "100.0%"):
        assert shown in page.texts
    assert first["data"] == {
        "array": [0.0, 1.0, 2.0],
        "nested": [{"x": 3}, [[True], [False]]],
        "gap": [None, 1.0, None],
        NASTY: NASTY,
    }
    assert [f["alt"] for f in first["figures"]] == [NASTY, "A plot.", "Three images."]


def test_it_says_when_and_from_which_revision_it_was_made(
    report, tmp_path, monkeypatch
):
    one_second_to_midnight = "951782399"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", one_second_to_midnight)
    html, numbers = report.save(tmp_path)
    made = json.loads(numbers.read_text(encoding="utf-8"))
    assert set(made["versions"]) == {"jaxsel", "jax", "python", "device"}
    assert made["date"] == "2000-02-28"
    run = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    if run.returncode == 0:
        commit = made["revision"].removesuffix("+")
        assert len(commit) >= 12
        assert run.stdout.startswith(commit)
    text = html.read_text(encoding="utf-8")
    footer = text[text.index("<footer>") :]
    assert '<time datetime="2000-02-28">' in footer
    assert f"jaxsel {made['versions']['jaxsel']}" in footer
    assert (made["revision"] or "jaxsel") in footer
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ValueError, match=r"SOURCE_DATE_EPOCH must .* got 'yesterday'"):
        report.save(tmp_path)


def test_an_installed_copy_has_no_revision(tmp_path, monkeypatch):
    # A folder of packages can lie in the repository of another project.
    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)

    git("init", "--quiet")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    git(*who, "commit", "--quiet", "--allow-empty", "--message", "First")
    monkeypatch.setattr(_origin, "__file__", str(tmp_path / "_origin.py"))
    assert _origin.origin().revision is None
    (tmp_path / "_origin.py").touch()
    git("add", "_origin.py")
    assert _origin.origin().revision.endswith("+")


def test_the_same_report_gives_the_same_files(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    first, second = (
        [path.read_bytes() for path in make_report().save(tmp_path)] for _ in range(2)
    )
    assert first == second


def test_what_fails_leaves_the_old_report(tmp_path):
    good = Chapter(title="Good", blocks=("Text.",))
    Report(title="Old", summary="", chapters=[good]).save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for bad, message in (
        (Chapter(title="Bad", blocks=(), data={"a": [object()]}), r"Bad: data\.a\[0\]"),
        (Chapter(title="Bad", blocks=(3,)), "blocks must be"),
    ):
        with pytest.raises(TypeError, match=message):
            Report(title="New", summary="", chapters=[good, bad]).save(tmp_path)
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_full_disk_leaves_the_old_report(tmp_path, monkeypatch):
    from pathlib import Path

    report = Report(title="Old", summary="", chapters=[])
    report.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write = Path.write_text

    def fail(path, text, **kwargs):
        write(path, text[:10], **kwargs)
        if "json" in path.name:
            raise OSError("disk full")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="disk full"):
        Report(title="New", summary="", chapters=[]).save(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_report_without_jinja(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report = Report(title="Text", summary="", chapters=[])
    with pytest.raises(ImportError, match=r"jinja2: pip install 'jaxsel\[report\]'"):
        report.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_blocks_refuse():
    with pytest.raises(ValueError, match="alt must say"):
        Figure(plot=new_figure(), alt=" ", caption="x")
    with pytest.raises(ValueError, match="caption must say"):
        Figure(plot=new_figure(), alt="x", caption="")
    with pytest.raises(ValueError, match="format must be 'svg' or 'png', got 'gif'"):
        Figure(plot=new_figure(), alt="x", caption="x", format="gif")
    with pytest.raises(ValueError, match="row 1 has 1"):
        Table(columns=("a", "b"), rows=[(1, 2), (1,)], caption="")
    with pytest.raises(ValueError, match="one entry for each of 2 columns, got 1"):
        Table(columns=("a", "b"), rows=[], formats=("",), caption="")


@pytest.mark.left_out
def test_importing_the_room_imports_nothing_heavy():
    heavy = ("matplotlib", "jinja2", "pandas", "flax")
    code = (
        f"import sys, jaxsel.report; sys.exit(any(m in sys.modules for m in {heavy}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
