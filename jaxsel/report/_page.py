"""The report as one HTML page, made by the templates beside this file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from ._chapter import Cell, Chapter, Figure, Heading, Table
from ._figure import draw_png, draw_svg
from ._origin import Origin

if TYPE_CHECKING:
    import jinja2


def render(
    title: str,
    summary: str,
    chapters: Sequence[Chapter],
    made: Origin,
    story: Sequence[str | Figure] = (),
) -> str:
    """Return the whole page; with a story, which it opens with, chapters are folded.

    Raises:
        ImportError: If Jinja is not installed.
    """
    page = _templates().get_template("page.html")
    return page.render(
        title=title,
        summary=summary,
        story=_parts(Chapter(title="", blocks=story), "c0"),
        chapters=[
            {"id": f"c{i}", "title": chapter.title, "parts": _parts(chapter, f"c{i}")}
            for i, chapter in enumerate(chapters, 1)
        ],
        made=made,
        versions=[f"{name} {version}" for name, version in made.versions.items()],
    )


def _templates() -> jinja2.Environment:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(
            "a report needs jinja2: pip install 'jaxsel[report]'"
        ) from error
    templates = jinja2.Environment(
        autoescape=True,
        keep_trailing_newline=True,
        loader=jinja2.PackageLoader("jaxsel.report", "_templates"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.filters["at_code"] = _at_code
    return templates


def _at_code(text: str) -> list[str]:
    """Split text at its `backticks`: every other piece is code."""
    return re.split(r"`([^`]+)`", text)


def _parts(chapter: Chapter, name: str) -> list[dict[str, Any]]:
    """Return each block's template variables, with ids that start with `name`."""
    parts: list[dict[str, Any]] = []
    headings = count(1)
    for place, block in enumerate(chapter.blocks):
        if isinstance(block, str):
            part = {"kind": "text", "text": block}
        elif isinstance(block, Heading):
            name_of = f"{name}-s{next(headings)}"
            part = {"kind": "heading", "id": name_of, "text": block.text}
        elif isinstance(block, Table):
            part = {"kind": "table", "id": f"{name}-t{place}", **_table(block)}
        elif isinstance(block, Figure):
            part = {"kind": "figure", **_figure(block, f"{name}-f{place}")}
        else:
            raise TypeError(
                "blocks must be str, Heading, Figure or Table, got "
                f"{type(block).__name__}"
            )
        parts.append(part)
    return parts


def _figure(figure: Figure, name: str) -> dict[str, Any]:
    if figure.format == "png":
        view, drawing = None, draw_png(figure)
    else:
        view, drawing = draw_svg(figure, name)
    return {
        "format": figure.format,
        "width": round(figure.plot.get_figwidth() * 96),
        "view": view,
        "drawing": drawing,
        "alt": figure.alt,
        "caption": figure.caption,
    }


def _table(table: Table) -> dict[str, Any]:
    formats = table.formats or [""] * len(table.columns)
    columns = [
        {"title": title, "is_text": any(isinstance(row[i], str) for row in table.rows)}
        for i, title in enumerate(table.columns)
    ]
    rows = [
        [_show(cell, form) for cell, form in zip(row, formats, strict=True)]
        for row in table.rows
    ]
    return {"caption": table.caption, "columns": columns, "rows": rows}


def _show(cell: Cell, form: str) -> str:
    """Format a cell as text; an unknown number as a dash."""
    if isinstance(cell, str):
        return cell
    if cell is None or np.ndim(cell) == 0 and not np.isfinite(cell):
        return "–"
    if np.ndim(cell) == 0:
        shown = format(cell, form)
        return f"\N{MINUS SIGN}{shown[1:]}" if shown.startswith("-") else shown
    mean, spread = cell
    if spread is None:
        return _show(mean, form)
    return f"{_show(mean, form)} ± {_show(spread, form.replace('+', ''))}"
