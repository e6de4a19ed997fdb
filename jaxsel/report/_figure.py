"""Matplotlib figures as parts of a page."""

from __future__ import annotations

import base64
import io
import re
from html import escape

from ._chapter import Figure
from ._style import COLORS, GRID, INK, MARKED, MUTED, style

_THEME = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--line)",
    MARKED: "var(--marked)",
    # Matplotlib's own, of axes that were made without the style.
    "#000000": "var(--ink)",
    "#ffffff": "var(--paper)",
    COLORS[0].lower(): "var(--blue)",
}


def render_figure(figure: Figure, name: str) -> str:
    """Return the figure and its caption as HTML, with ids that start with `name`."""
    width = round(figure.plot.get_figwidth() * 96)
    alt = escape(figure.alt)
    if figure.format == "png":
        plot = _png(figure, width, alt)
    else:
        plot = _svg(figure, width, alt, name)
    caption = code(escape(figure.caption))
    return (
        f'<figure>\n{plot}\n<figcaption style="max-width: {width}px">{caption}'
        "</figcaption>\n</figure>"
    )


def code(escaped: str) -> str:
    """Mark up `backticks` in text that has been escaped."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)


def _png(figure: Figure, width: int, alt: str) -> str:
    file = io.BytesIO()
    with style():
        figure.plot.savefig(file, format="png", dpi=192, facecolor="white")
    data = base64.b64encode(file.getvalue()).decode()
    return (
        f'<img class="plot" width="{width}" alt="{alt}" '
        f'src="data:image/png;base64,{data}">'
    )


def _svg(figure: Figure, width: int, alt: str, name: str) -> str:
    file = io.StringIO()
    with style():
        figure.plot.savefig(
            file, format="svg", transparent=True, metadata={"Date": None}
        )
    svg = file.getvalue()
    view = re.search(r'viewBox="[^"]*"', svg)
    drawing = svg[svg.index(">", svg.index("<svg")) + 1 :]
    # The page has its own style sheet, and two figures must not share an id.
    drawing = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->\n?",
        "",
        drawing,
        flags=re.DOTALL,
    )
    drawing = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    for colour, variable in _THEME.items():
        drawing = drawing.replace(colour, variable)
    return (
        f'<svg class="plot" width="{width}" {view.group() if view else ""} role="img" '
        f'aria-label="{alt}">{drawing.strip()}'
    )
