"""Results as notebooks show them: a table, and a small picture."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from jaxsel._inputs.checks import is_readable
from jaxsel._inputs.show import SHOWN, show_count


def values_html(values: Any) -> str:
    """Return the best and the worst points as a table, beside `Values.plot`.

    Args:
        values: A `Values`; text only if it is traced or has `reduce=None`.
    """
    if values.values.ndim != 1 or not is_readable(values.values):
        return f"<pre>{html.escape(repr(values))}</pre>"
    shown = min(SHOWN, len(values) // 2)
    order = np.argsort(values.rank())
    ends = np.concatenate([order[:shown], order[len(order) - shown :]])
    numbers = values.to_numpy()
    names = range(len(values)) if values.index is None else values.index
    rows = [
        f"<td>{html.escape(str(names[i]))}</td><td>"
        f"{'unknown' if np.isnan(numbers[i]) else format(numbers[i], '.4g')}</td>"
        for i in ends.tolist()
    ]
    rows.insert(shown, "<td colspan=2>…</td>")
    first = "position" if values.index is None else "index"
    rows.insert(0, f"<th>{first}</th><th>value</th>")
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    caption = f"{values.method or 'values'}, n = {len(values)}"
    caption += f", count = {show_count(values.count)}"
    return (
        f"<div><p>{html.escape(caption)}</p><div style='display: flex; gap: 2em'>"
        f"<table>{table}</table>{_picture(values)}</div></div>"
    )


def table_html(
    summary: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Return sentences over a table of texts.

    Args:
        summary: Sentences.
        head: Names of the columns.
        rows: Cells as texts, as many as columns.
    """
    lines = "".join(f"<p>{html.escape(line)}.</p>" for line in summary)
    cells = [[f"<td>{html.escape(cell)}</td>" for cell in row] for row in rows]
    names = [f"<th>{html.escape(name)}</th>" for name in head]
    table = "".join(f"<tr>{''.join(row)}</tr>" for row in [names, *cells])
    return f"<div>{lines}<table>{table}</table></div>"


def _picture(values: Any) -> str:
    """Return the plot of values as SVG; nothing without Matplotlib."""
    if find_spec("matplotlib") is None or not np.isfinite(values.to_numpy()).all():
        return ""
    from jaxsel.report import new_figure, style

    figure = new_figure(6.6, 2.4)
    with style():
        axes = figure.subplots(1, 2)
    values.plot(axes)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
