"""Figures of the study in miniature, numbered as the paper's."""

from __future__ import annotations

import numpy as np

from experiments._kit.scenes.valuations import MAX, figure_of
from jaxsel.report import COLORS, Figure, new_figure, plot_curves, style
from jaxsel.tasks import RANDOM

from .cases import TITLES
from .embeddings import MEASURES, SHOWN, VALUED, names_of
from .run import Study
from .runtime import PERMUTATIONS, TIMED

_SHOWN = ("KNN-Shapley", "KNN-LOO", "TMC-Shapley", "G-Shapley", "LOO")
_MARKED = ("KNN-Shapley", "KNN-LOO", "TMC-Shapley", "G-Shapley", "LOO", MAX)


def curve_figure(result: Study, name: str) -> Figure:
    """Draw the curves of one application, the study's methods alone."""
    curves = result.applications[name]
    shown = _MARKED if MAX in curves.curves else _SHOWN
    return figure_of(curves, (*shown, RANDOM), TITLES[name])


def runtime_figure(result: Study) -> Figure:
    """Draw seconds against the number of training points."""
    n, seconds = result.runtime["n"], result.runtime["seconds"]
    figure = new_figure()
    with style():
        ax = figure.subplots()
    plot_curves(
        n,
        {name: seconds[:, i] for i, name in enumerate(TIMED)},
        ax=ax,
        xlabel="Training points",
        ylabel="Seconds",
        xscale="log",
    )
    ax.set_yscale("log")
    means = seconds.mean(0)
    return Figure(
        plot=figure,
        caption="Figure 1: seconds for all values, without compilation, mean of "
        f"{len(seconds)} runs; TMC-Shapley without truncation and G-Shapley scaled to "
        f"{PERMUTATIONS:,} permutations.",
        alt=f"Seconds with {n[0]} and {n[-1]} points: "
        + "; ".join(
            f"{name} {line[0]:.2g} and {line[-1]:.2g}"
            for name, line in zip(TIMED, means, strict=True)
        )
        + ".",
    )


def embedding_figure(result: Study) -> Figure:
    """Draw AUC of both measures by embedding, a dot for each seed."""
    auc = result.embeddings["images"]["auc"]
    names = names_of("images", result.embeddings["images"])
    figure = new_figure()
    with style():
        ax = figure.subplots()
        for i, (name, marker) in enumerate(zip(MEASURES, "os", strict=True)):
            places = np.arange(len(names)) + 0.15 * (2 * i - 1)
            positions = np.broadcast_to(places, auc[:, i].shape)
            ax.plot(
                positions.ravel(),
                auc[:, i].ravel(),
                marker,
                color=COLORS[i],
                label=name,
            )
        ax.set_xticks(range(len(names)), [n.replace(", ", ",\n") for n in names])
        ax.axhline(0.5, color=COLORS[-1], linewidth=0.8)
        ax.set(ylabel="AUC of wrong labels", ylim=(0.45, 1.02))
        ax.legend(loc="lower left")
    means = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{e} {m:.3f}" for e, m in zip(names, auc[:, i].mean(0), strict=True)
        )
        for i, name in enumerate(MEASURES)
    )
    return Figure(
        plot=figure,
        caption="Figure 5: finding wrong labels on six classes of Fashion-MNIST, by "
        "measure and embedding. Dots are seeds; the line is a random order.",
        alt=f"Mean AUC. {means}.",
    )


def gallery_figure(result: Study) -> Figure:
    """Draw the images of the highest values by embedding, and count their classes."""
    embedded = result.embeddings["images"]
    names = names_of("images", embedded)
    gallery, counts = embedded["gallery"][0], embedded["counts"]
    figure = new_figure()
    figure.set_size_inches(7.0, 0.75 * len(names))
    with style():
        tiles, counted = figure.subplots(
            len(names), 2, gridspec_kw={"width_ratios": (4, 1)}
        ).T
        for ax, bars, name, images, count in zip(
            tiles, counted, names, gallery, counts.mean(0), strict=True
        ):
            ax.imshow(_tiled(images, 2), cmap="gray_r", vmin=0, vmax=255)
            ax.set(xticks=[], yticks=[])
            ax.set_ylabel(
                name.replace(", ", ",\n"), rotation=0, ha="right", va="center"
            )
            bars.bar(range(VALUED), count, color=COLORS[0])
            bars.set(xticks=[], yticks=[], ylim=(0, counts.mean(0).max()))
        counted[-1].set_xticks(range(VALUED))
    top = "; ".join(
        f"{name}: {', '.join(f'{c:.1f}' for c in count)}"
        for name, count in zip(names, counts.mean(0), strict=True)
    )
    return Figure(
        plot=figure,
        caption=f"Figures 3 and 11: the {SHOWN} images of Fashion-MNIST with the "
        f"highest KNN-Shapley values of seed {int(result.seeds[0])}, labels right, by "
        f"embedding; and the classes 0 to {VALUED - 1} of the top tenth, mean over "
        "seeds.",
        alt=f"Points of each class among the top tenth. {top}.",
    )


def _tiled(images: np.ndarray, rows: int) -> np.ndarray:
    """Lay images `[n, h, w]` out in rows, a pixel apart."""
    padded = np.pad(images, ((0, 0), (0, 1), (0, 1)))
    n, height, width = padded.shape
    grid = padded.reshape(rows, n // rows, height, width)
    return grid.transpose(0, 2, 1, 3).reshape(rows * height, -1)
