"""Matplotlib figures as parts of a page."""

from __future__ import annotations

import base64
import io
import re

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


def draw_png(figure: Figure) -> str:
    """Return the figure as PNG, in base64."""
    file = io.BytesIO()
    with style():
        figure.plot.savefig(file, format="png", dpi=192, facecolor="white")
    return base64.b64encode(file.getvalue()).decode()


def draw_svg(figure: Figure, name: str) -> tuple[str, str]:
    """Return the view box of the figure as SVG, and the content of the element.

    Its ids start with `name`.
    """
    file = io.StringIO()
    with style():
        figure.plot.savefig(
            file, format="svg", transparent=True, metadata={"Date": None}
        )
    svg = file.getvalue()
    head, _, drawing = svg[svg.index("<svg") : svg.rindex("</svg>")].partition(">")
    view = head.partition('viewBox="')[2].partition('"')[0]
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
    return view, drawing.strip()
