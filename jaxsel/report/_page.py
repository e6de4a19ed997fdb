"""The report as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

import numpy as np

from ._chapter import Cell, Chapter, Figure, Heading, Table
from ._figure import code, render_figure
from ._origin import Origin
from ._page_style import CSS


def render(title: str, summary: str, chapters: Sequence[Chapter], made: Origin) -> str:
    """Return the whole page."""
    numbered = list(enumerate(chapters, 1))
    body = "\n".join(_chapter(chapter, f"c{i}") for i, chapter in numbered)
    contents = "\n".join(_contents(chapter, f"c{i}") for i, chapter in numbered)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{CSS}</style>
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
<footer>{_made(made)} The same numbers are in report.json.</footer>
</body>
</html>
"""


def _made(made: Origin) -> str:
    revision = f", revision {made.revision}" if made.revision else ""
    versions = [f"{name} {version}" for name, version in made.versions.items()]
    ours, *others = map(escape, versions)
    return (
        f'Made on <time datetime="{made.date}">{made.date}</time> by {ours}{revision}, '
        f"with {', '.join(others)}."
    )


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
        f'<th scope="col"{kind}>{escape(column)}</th>' if column else "<td></td>"
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
