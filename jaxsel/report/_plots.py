"""The plots that several rooms need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from ._style import COLORS, INK, MARKED, MUTED, new_figure, style

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    from matplotlib.ticker import PercentFormatter


class Estimates(Protocol):
    """Protocol of the argument of `plot_values`, such as `jaxsel.Values`."""

    @property
    def values(self) -> Any: ...

    @property
    def stderr(self) -> Any: ...


def plot_values(
    values: Estimates,
    *,
    ax: Sequence[matplotlib.axes.Axes] | None = None,
    labels: npt.ArrayLike | None = None,
) -> Sequence[matplotlib.axes.Axes]:
    """Draw the values in ascending order with error bars, and their histogram.

    Args:
        values: One value for each of n points.
        ax: Two axes to draw on; made with pyplot if None.
        labels: Optional `[n]`, the class of each point: one histogram for each, in
            rows.

    Returns:
        The two axes.

    Raises:
        ValueError: If `values` has rows (`reduce=None`), `labels` has another length,
            or `ax` does not hold two axes.
    """
    v = np.asarray(values.values)
    if v.ndim != 1:
        raise ValueError(
            f"values must hold one value per point, got shape {v.shape} (reduce=None)"
        )
    groups = np.zeros(len(v), int) if labels is None else np.asarray(labels)
    if groups.shape != v.shape:
        raise ValueError(f"labels must have shape {v.shape}, got {groups.shape}")
    if ax is None:
        with style():
            ax = list(new_figure(8.8, 3.2, shown=True).subplots(1, 2))
    if len(ax) != 2:
        raise ValueError(f"ax must hold two axes, got {len(ax)}")
    left, right = ax
    known = np.isfinite(v)
    if not known.any():
        raise ValueError("values must have one that is finite, but all are NaN")
    groups, kept = groups[known], v[known]
    with style():
        order = np.flatnonzero(known)[np.argsort(kept, kind="stable")]
        rank = np.arange(len(order))
        if values.stderr is not None:
            error = np.asarray(values.stderr)[order]
            low, high = v[order] - error, v[order] + error
            label = "± 1 standard error"
            left.fill_between(rank, low, high, color=COLORS[0], label=label, **_BAND)
            left.legend(loc="upper left")
        left.plot(rank, v[order], color=COLORS[0])
        left.axhline(0, color=MUTED, linewidth=0.8)
        left.set(xlabel="Points, least valuable first", ylabel="Value")
        v = kept
        edges = np.histogram_bin_edges(v, bins=min(40, max(10, len(v) // 20)))
        if labels is None:
            right.hist(v, list(edges), color=COLORS[0])
            right.set(ylabel="Points")
        else:
            # One row for each class: outlines of many histograms hide one another.
            kinds, which = np.unique(groups, return_inverse=True)
            # By row: counts would leave the row of a small or wide class white.
            counts = [np.histogram(v[which == i], edges)[0] for i in range(len(kinds))]
            rows = [count / count.max() for count in counts]
            place = np.arange(len(kinds) + 1) - 0.5
            image = right.pcolormesh(edges, place, np.array(rows), cmap="Blues")
            right.set_yticks(place[:-1] + 0.5, [str(kind) for kind in kinds])
            right.set(ylabel="Class")
            right.grid(visible=False)
            right.figure.colorbar(image, ax=right, label="Share of its peak")
        right.axvline(0, color=MUTED, linewidth=0.8)
        right.set(xlabel="Value")
        right.locator_params("x", nbins=5)
    return left, right


def plot_curves(
    x: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    *,
    levels: Mapping[str, npt.ArrayLike] | None = None,
    ax: matplotlib.axes.Axes | None = None,
    xlabel: str,
    ylabel: str,
    xscale: Literal["linear", "log"] = "linear",
    percent: bool = False,
) -> matplotlib.axes.Axes:
    """Draw the mean of each curve over seeds, in a band of one standard deviation.

    Args:
        x: `[points]`.
        curves: By name, `[seeds, points]`.
        levels: By name, `[seeds]`: figures that do not depend on x, as level lines.
        ax: Axes to draw on; made with pyplot if None.
        xlabel: Label of the x axis, with its unit.
        ylabel: Label of the y axis, with its unit.
        xscale: "linear" or "log"; a logarithmic axis has its ticks at `x`.
        percent: Whether to show fractions as percentages.

    Returns:
        The axes.

    Raises:
        ValueError: If a curve's or a level's shape is not as stated.
    """
    x = np.asarray(x)
    with style():
        ax = new_figure(shown=True).subplots() if ax is None else ax
        ax.set(xlabel=xlabel, ylabel=ylabel, xscale=xscale)
        marker = "o" if len(x) <= 12 else ""
        for name, curve in curves.items():
            y = np.asarray(curve)
            if y.ndim != 2 or y.shape[1] != len(x):
                raise ValueError(
                    f"curves[{name!r}] must have shape [seeds, {len(x)}], got {y.shape}"
                )
            mean, spread = y.mean(0), _spread(y)
            (line,) = ax.plot(x, mean, marker=marker, label=name)
            ax.fill_between(
                x, mean - spread, mean + spread, color=line.get_color(), **_BAND
            )
        for name, level in (levels or {}).items():
            y = np.asarray(level)
            if y.ndim != 1:
                raise ValueError(
                    f"levels[{name!r}] must have shape [seeds], got {y.shape}"
                )
            mean, spread = y.mean(), _spread(y)
            (line,) = ax.plot(x[[0, -1]], [mean, mean], label=name)
            ax.fill_between(
                x[[0, -1]],
                mean - spread,
                mean + spread,
                color=line.get_color(),
                **_BAND,
            )
        if xscale == "log":
            ax.set_xticks(x, [f"{value:g}" for value in x])
            ax.set_xticks([], minor=True)
        if percent:
            ax.yaxis.set_major_formatter(_percent())
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)
    return ax


def plot_images(
    images: npt.ArrayLike,
    *,
    columns: int,
    captions: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    marked: npt.ArrayLike | None = None,
    size: float = 0.55,
) -> matplotlib.figure.Figure:
    """Draw images in a grid, each pixel as a square, row by row.

    Args:
        images: `[n, height, width]`, dark where large, all on one scale.
        columns: Images in a row.
        captions: Optional `[n]`, below each image.
        rows: Optional names of the rows, to their left.
        marked: Optional `[n]` of bool: images with a highlighted caption.
        size: Width of an image in inches.

    Returns:
        The figure.

    Raises:
        ValueError: If the arguments differ in length, or are not images.
    """
    images = np.asarray(images)
    if images.ndim != 3 or not len(images):
        raise ValueError(
            f"images must have shape [n, height, width], got {images.shape}"
        )
    n_rows = -(-len(images) // columns)
    for name, argument, length in (
        ("captions", captions, len(images)),
        ("marked", marked, len(images)),
        ("rows", rows, n_rows),
    ):
        if argument is not None and np.shape(argument) != (length,):
            raise ValueError(
                f"{name} must have length {length}, got {np.shape(argument)}"
            )
    low, high = images.min(), images.max()
    # Laid out by hand, so that a long caption does not shrink the images.
    gap = 0.08 * size
    height = size * images.shape[1] / images.shape[2]
    pitch_x, pitch_y = size + gap, height + (gap if captions is None else 0.22)
    margin = 0.0 if rows is None else 0.75
    width, full = margin + columns * pitch_x, n_rows * pitch_y
    figure = new_figure(width, full)
    figure.set_layout_engine("none")
    with style():
        for i, image in enumerate(images):
            left = margin + (i % columns) * pitch_x
            bottom = full - (i // columns) * pitch_y - height
            box = (left / width, bottom / full, size / width, height / full)
            ax = figure.add_axes(box)
            ax.set_axis_off()
            ax.imshow(image, vmin=low, vmax=high)
            if captions is not None:
                stands_out = marked is not None and np.asarray(marked)[i]
                text_style = {"transform": ax.transAxes, "ha": "center", "va": "top"}
                color = MARKED if stands_out else INK
                ax.text(0.5, -0.05, captions[i], fontsize=8, color=color, **text_style)
            if rows is not None and i % columns == 0:
                name = rows[i // columns].replace(" ", "\n")
                text_style = {"transform": ax.transAxes, "ha": "right", "va": "center"}
                ax.text(-0.12, 0.5, name, fontsize=9, **text_style)
    return figure


_BAND = {"alpha": 0.2, "linewidth": 0, "linestyle": "-"}


def _spread(y: np.ndarray) -> np.ndarray:
    """Return the standard deviation over seeds; 0 for a single seed."""
    return np.std(y, axis=0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1:])


def _percent() -> PercentFormatter:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1.0, decimals=0)
