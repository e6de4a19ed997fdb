"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

import numpy as np

from ._chapter import Cell, Chapter, Figure, Heading, Table
from ._figure import code, render_figure

_CSS = """
:root { color-scheme: light dark; --paper: #fff; --card: #f5f6f8; --ink: #1a1d22;
  --muted: #5a626e; --line: #d8dce3; --link: #005a8f; --blue: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --card: #1d2126;
  --ink: #e6e8eb; --muted: #a0a8b4; --line: #363c45; --link: #7cc0ee;
  --blue: #4ba3dc; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 58rem;
  background: var(--paper); color: var(--ink); overflow-wrap: break-word;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.4rem; line-height: 1.25; margin: 3rem 0 .75rem; }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p, nav { max-width: 44rem; }
p { margin: .6rem 0; }
header p { font-size: 1.1rem; }
a { color: var(--link); }
nav { background: var(--card); border-radius: .5rem; padding: .75rem 1rem;
  margin: 1.25rem 0; }
nav ol { margin: .25rem 0 0; padding-left: 1.4rem; }
nav ul { margin: 0; padding-left: 1.1rem; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .9em; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem 1.5rem; margin: 1rem 0; }
figure { margin: 0; max-width: 100%; }
figcaption, footer { color: var(--muted); font-size: .875rem;
  line-height: 1.4; }
.plot { display: block; max-width: 100%; height: auto; }
svg.plot * { stroke-linejoin: round; }
svg.plot text { font-family: inherit !important; }
img.plot { background: #fff; border-radius: .25rem; }
.table { margin: 1.25rem 0; }
.table figcaption { max-width: 44rem; padding-bottom: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; white-space: normal; }
td, tbody th { vertical-align: top; }
thead th { vertical-align: bottom; }
th:first-child, .text { text-align: left; }
th:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
td.text { white-space: normal; }
@media (max-width: 40rem) { table { font-size: .8125rem; }
  th, td { padding: .3rem .35rem; } }
footer { margin-top: 4rem; border-top: 1px solid var(--line); padding-top: .75rem; }
"""


def render(
    title: str, summary: str, chapters: Sequence[Chapter], versions: Mapping[str, str]
) -> str:
    """Return the whole page."""
    numbered = list(enumerate(chapters, 1))
    body = "\n".join(_chapter(chapter, f"c{i}") for i, chapter in numbered)
    contents = "\n".join(_contents(chapter, f"c{i}") for i, chapter in numbered)
    made = ", ".join(f"{escape(k)} {escape(v)}" for k, v in versions.items())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_CSS}</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<p>{_text(summary)}</p>
</header>
<nav aria-label="Contents">
<strong>Contents</strong>
<ol>
{contents}
</ol>
</nav>
<main>
{body}
</main>
<footer>Made with {made}. The same numbers are in report.json.</footer>
</body>
</html>
"""


def _headings(chapter: Chapter, name: str) -> dict[int, str]:
    """The id of each heading, by its place among the blocks."""
    places = [i for i, b in enumerate(chapter.blocks) if isinstance(b, Heading)]
    return {place: f"{name}-s{i}" for i, place in enumerate(places, 1)}


def _contents(chapter: Chapter, name: str) -> str:
    link = f'<a href="#{name}">{escape(chapter.title)}</a>'
    anchors = _headings(chapter, name)
    items = "".join(
        f'<li><a href="#{anchors[place]}">{escape(block.text)}</a></li>'
        for place, block in enumerate(chapter.blocks)
        if isinstance(block, Heading)
    )
    return f"<li>{link}{f'<ul>{items}</ul>' if items else ''}</li>"


def _chapter(chapter: Chapter, name: str) -> str:
    anchors = _headings(chapter, name)
    parts = [f'<section id="{name}">', f"<h2>{escape(chapter.title)}</h2>"]
    for is_figure, group in groupby(
        enumerate(chapter.blocks), key=lambda item: isinstance(item[1], Figure)
    ):
        if is_figure:
            parts.append('<div class="figures">')
        for place, block in group:
            if isinstance(block, str):
                parts.append(f"<p>{_text(block)}</p>")
            elif isinstance(block, Heading):
                parts.append(f'<h3 id="{anchors[place]}">{escape(block.text)}</h3>')
            elif isinstance(block, Table):
                parts.append(_table(block, f"{name}-t{place}"))
            elif isinstance(block, Figure):
                parts.append(render_figure(block, f"{name}-f{place}"))
            else:
                raise TypeError(
                    "blocks must be str, Heading, Figure or Table, got "
                    f"{type(block).__name__}"
                )
        if is_figure:
            parts.append("</div>")
    return "\n".join([*parts, "</section>"])


def _table(table: Table, name: str) -> str:
    formats = table.formats or [""] * len(table.columns)
    is_text = [
        any(isinstance(row[i], str) for row in table.rows)
        for i in range(len(table.columns))
    ]
    kinds = [' class="text"' if text else "" for text in is_text]
    head = "".join(
        f'<th scope="col"{kind}>{escape(column)}</th>'
        for column, kind in zip(table.columns, kinds, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = [_show(cell, form) for cell, form in zip(row, formats, strict=True)]
        rest = "".join(
            f"<td{kind}>{cell}</td>"
            for cell, kind in zip(cells[1:], kinds[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row">{cells[0]}</th>{rest}</tr>')
    return (
        f'<figure class="table">\n<figcaption id="{name}">{_text(table.caption)}'
        f'</figcaption>\n<div class="wide" role="region" tabindex="0" '
        f'aria-labelledby="{name}"><table aria-labelledby="{name}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n"
        "</tbody></table></div>\n</figure>"
    )


def _show(cell: Cell, form: str) -> str:
    """A cell as text; a number that is not known as a dash."""
    if isinstance(cell, str):
        return escape(cell)
    if cell is None or np.ndim(cell) == 0 and not np.isfinite(cell):
        return "–"
    if np.ndim(cell) == 0:
        shown = escape(format(cell, form))
        return f"\N{MINUS SIGN}{shown[1:]}" if shown.startswith("-") else shown
    mean, spread = cell
    if spread is None:
        return _show(mean, form)
    return f"{_show(mean, form)} ± {_show(spread, form)}"


def _text(text: str) -> str:
    return code(escape(text))
