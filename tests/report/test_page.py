"""The page as a whole: every kind of block, element by element."""

import json
import re
from html.parser import HTMLParser

from jaxsel.report import Chapter, Figure, Heading, Report, Table, new_figure
from jaxsel.report._origin import Origin
from jaxsel.report._page import render

EXPECTED = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Why `a` &lt; b</title>
<style></style>
</head>
<body>
<header>
<h1>Why `a` &lt; b</h1>
<p>See <code>f(&lt;x&gt;)</code>, &quot;all&quot; of it.</p>
</header>
<nav aria-label="Contents">
<strong>Contents</strong>
<ol>
<li><a href="#c1">R&amp;D</a><ul><li><a href="#c1-s1">First</a></li><li><a
href="#c1-s2">The `rest` &lt;</a></li></ul></li>
<li><a href="#c2">Next</a></li>
</ol>
</nav>
<main>
<section id="c1">
<h2>R&amp;D</h2>
<p>One, then <code>two</code>.</p>
<h3 id="c1-s1">First</h3>
<div class="figures">
<figure>
<svg class="plot" width="192" viewBox="0 0 144 72" role="img"
aria-label="`a` &lt; &quot;b&quot;"></svg>
<figcaption style="max-width: 192px"><code>a</code> &lt; &quot;b&quot;</figcaption>
</figure>
<figure>
<img class="plot" width="96" alt="Small." src="">
<figcaption style="max-width: 96px">Smaller.</figcaption>
</figure>
</div>
<figure class="table">
<figcaption id="c1-t4">Of <code>f</code> &lt; 1.</figcaption>
<div class="wide" role="region" tabindex="0" aria-labelledby="c1-t4">
<table aria-labelledby="c1-t4">
<thead><tr><td></td><th scope="col" class="text">what &lt;</th>
<th scope="col">share</th></tr></thead>
<tbody>
<tr><th scope="row">7</th><td class="text">&lt;b&gt; `c`</td><td>−50.0%</td></tr>
<tr><th scope="row">–</th><td class="text">–</td><td>1.0% ± –</td></tr>
</tbody></table></div>
</figure>
<h3 id="c1-s2">The `rest` &lt;</h3>
<div class="figures">
<figure>
<svg class="plot" width="192" viewBox="0 0 144 72" role="img" aria-label="Again."></svg>
<figcaption style="max-width: 192px">Again.</figcaption>
</figure>
</div>
</section>
<section id="c2">
<h2>Next</h2>
</section>
</main>
<footer>Made on <time datetime="2026-01-31">2026-01-31</time> by jaxsel 1{revision},
with jax &lt;2&gt;, device d &amp; e. The same numbers are in report.json.</footer>
</body>
</html>
"""


FOLDED = """<header>
<h1>Why</h1>
</header>
<main>
<section id="story">
<p>It was <code>so</code> &lt; it is.</p>
<div class="figures">
<figure>
<svg class="plot" width="192" viewBox="0 0 144 72" role="img" aria-label="A."></svg>
<figcaption style="max-width: 192px">B.</figcaption>
</figure>
</div>
</section>
<section id="more" aria-labelledby="more-h">
<h2 id="more-h">In detail</h2>
<p>How <code>it</code> was measured.</p>
<details id="c1">
<summary><h3>R&amp;D</h3></summary>
<p>One.</p>
<h4 id="c1-s1">First</h4>
</details>
<details id="c2">
<summary><h3>Next</h3></summary>
</details>
</section>
</main>
"""


class Parts(HTMLParser):
    """Elements, attributes and texts in order, without the spaces between elements."""

    def __init__(self, text):
        super().__init__()
        self.parts = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.parts.append((tag, attributes))

    def handle_endtag(self, tag):
        self.parts.append(f"</{tag}>")

    def handle_data(self, data):
        data = re.sub(r"\s+", " ", data)
        if data != " ":
            self.parts.append(data)

    def handle_decl(self, decl):
        self.parts.append(decl)


def without_drawings(page):
    page = re.sub(r"(<(svg|style)\b[^>]*>).+?(</\2>)", r"\1\3", page, flags=re.DOTALL)
    return re.sub(r'src="data:[^"]+"', 'src=""', page)


def make_chapters():
    plot, small = new_figure(2, 1), new_figure(1, 1)
    table = Table(
        columns=("", "what <", "share"),
        rows=[(7, "<b> `c`", -0.5), (None, None, (0.01, float("nan")))],
        formats=("", "", ".1%"),
        caption="Of `f` < 1.",
    )
    blocks = (
        "One, then `two`.",
        Heading("First"),
        Figure(plot=plot, alt='`a` < "b"', caption='`a` < "b"'),
        Figure(plot=small, alt="Small.", caption="Smaller.", format="png"),
        table,
        Heading("The `rest` <"),
        Figure(plot=plot, alt="Again.", caption="Again."),
    )
    return [Chapter(title="R&D", blocks=blocks), Chapter(title="Next", blocks=())]


def test_the_page_holds_this_and_nothing_else():
    versions = {"jaxsel": "1", "jax": "<2>", "device": "d & e"}
    for revision in (None, "abc+"):
        made = Origin(date="2026-01-31", revision=revision, versions=versions)
        summary = 'See `f(<x>)`, "all" of it.'
        page = render("Why `a` < b", summary, make_chapters(), made)
        shown = f", revision {revision}" if revision else ""
        expected = Parts(EXPECTED.replace("{revision}", shown)).parts
        assert Parts(without_drawings(page)).parts == expected
        # Both are drawn, and the style is there.
        assert page.count("<path") >= 2
        assert "data:image/png;base64,iVBOR" in page
        assert ":root { color-scheme: light;" in page


def test_with_a_story_chapters_are_folded(tmp_path):
    chapters = [
        Chapter(title="R&D", blocks=("One.", Heading("First"))),
        Chapter(title="Next", blocks=()),
    ]
    plot = Figure(plot=new_figure(2, 1), alt="A.", caption="B.")
    page, numbers = Report(
        title="Why",
        summary="How `it` was measured.",
        chapters=chapters,
        story=("It was `so` < it is.", plot),
    ).save(tmp_path)
    text = without_drawings(page.read_text())
    body = text[text.index("<header>") : text.index("<footer>")]
    assert Parts(body).parts == Parts(FOLDED).parts
    assert json.loads(numbers.read_text())["story"] == ["It was `so` < it is.", "A."]


def test_a_spread_has_no_sign(tmp_path):
    table = Table(
        columns=("way", "gain"),
        rows=[["a", (0.25, 0.5)], ["b", (-0.25, None)]],
        formats=("", "+.2f"),
        caption="Gains.",
    )
    chapter = Chapter(title="Gains", blocks=[table])
    page, _ = Report(title="A", summary="B", chapters=[chapter]).save(tmp_path)
    text = page.read_text()
    assert "<td>+0.25 ± 0.50</td>" in text
    assert "<td>−0.25</td>" in text


def test_long_texts_of_a_table_are_folded():
    short, long = "<i> word " * 3, "<i> word " * 60
    table = Table(columns=["row", "text"], rows=[["1", short], ["2", long]], caption="")
    made = Origin(versions={"jaxsel": "1"}, date="2026-01-31", revision=None)
    page = render("Why", "", [Chapter(title="T", blocks=[table])], made)
    assert page.count("<details>") == 1
    first, rest = page.split("<details><summary>")[1].split("</summary>")
    assert first.startswith("&lt;i&gt; word")
    assert first.endswith("...")
    assert len(first) < 400
    assert rest.split("</details>")[0].count("&lt;i&gt; word") == 60


def test_contents_of_one_chapter_are_left_out():
    made = Origin(versions={"jaxsel": "1"}, date="2026-01-31", revision=None)
    one, two = (Chapter(title=title, blocks=["..."]) for title in ("A", "B"))
    assert "<nav" not in render("Why", "", [one], made)
    assert "<nav" in render("Why", "", [one, two], made)
