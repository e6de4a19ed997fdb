"""Drawings of the pages' own tables, which `pictures.py` saves."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from diagrams import BLUE as _BLUE, GREEN as _GREEN, ORANGE as _ORANGE

from jaxsel import report

ROOT = Path(__file__).parents[1]
_GREY = "#8c959f"


def speed() -> None:
    """Draw the table of docs/benchmarks.md; letters stay readable on a telephone."""
    shown = rows("docs/benchmarks.md", "")
    _, ax = plt.subplots(figsize=(4.4, 0.45 * len(shown) + 0.6))
    for i, (name, _, peer, times) in enumerate(shown):
        ratio = float(times.strip("†‡§").removesuffix(" (wall)"))
        color = report.COLORS[0 if ratio > 1 else 1]
        ax.barh(i, ratio - 1, left=1, height=0.3, color=color)
        # Above its bar, so that no column of names takes half of the width.
        text = f"{name}: {ratio:g}× {peer.rsplit(', ', 1)[0]}"
        ax.text(0.04, i - 0.42, text, va="center", fontsize=9)
    ax.set(xscale="log", xlim=(0.04, 10_000), ylim=(len(shown) - 0.5, -0.8), yticks=[])
    ax.set_xlabel("Times as fast as the closest peer", fontsize=9)
    ax.axvline(1, color="0.4", linewidth=1, zorder=0)
    ax.grid(axis="y", visible=False)


def rows(page: str, first: str) -> list[list[str]]:
    """Return the cells of the rows of a page's table, whose header begins so."""
    text = (ROOT / page).read_text(encoding="utf-8")
    table = text[text.index(f"\n| {first} |") :].partition("\n\n")[0].splitlines()[3:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table]


def number(cell: str) -> float:
    """Return the first number in a cell, such as "+.4 ± .6" or "1,907"."""
    found = re.search(r"[-−+]?[\d,]*\.?\d+", cell)
    assert found is not None, cell
    return float(found[0].replace(",", "").replace("−", "-"))


def recipes() -> None:
    """How well attributions predict retraining, by the recipe of the training."""
    shown = rows("benchmarks/RECIPES.md", "recipe, 30 epochs")
    _, ax = plt.subplots(figsize=(6.4, 0.55 * len(shown) + 0.9))
    places = np.arange(len(shown))
    for shift, column, colour, name in (
        (-0.2, 2, _BLUE, "metagradient: the same run without 5 %"),
        (0.2, 3, _ORANGE, "influence of five: other networks on halves"),
    ):
        scores = [number(row[column]) for row in shown]
        ax.barh(places + shift, scores, height=0.36, color=colour, label=name)
    names = [f"{row[0]}\naccuracy {number(row[1]):.2f}" for row in shown]
    ax.set(yticks=places, yticklabels=names, xlim=(0, 1), xlabel="rank correlation")
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.4, 1), ncols=1)


def accuracy() -> None:
    """How much each score of a linear target gains, mean of the pools."""
    _, ax = plt.subplots(figsize=(6.4, 3.6))
    ways = [
        (way, secret, number(mean))
        for way, secret, *_, mean in rows("docs/accuracy.md", "way | in secret")
        if mean
    ]
    for place, (_, secret, gain) in enumerate(ways):
        ax.barh(place, gain, color=_BLUE if secret else _GREY)
    for colour, name in ((_BLUE, "can run in secret"), (_GREY, "needs more in clear")):
        ax.barh(0, 0, color=colour, label=name)
    ax.invert_yaxis()
    ax.set(
        yticks=range(len(ways)),
        yticklabels=[way for way, _, _ in ways],
        xlabel="points beyond a random choice, mean of five pools",
        xlim=(0, 2.6),
    )
    ax.legend(loc="lower right")


def filtering_figures() -> None:
    """Accuracy of each filter under strong noise, by way of averaging."""
    shown = rows("docs/filtering-figures.md", "noise : data | filter")
    noises = [noise.partition(",")[0] for noise, *_ in shown if noise]
    place = np.arange(len(noises))
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.2), sharey=True)
    for ax, column, name in zip(
        axes, (-2, -1), ("plain averaging", "Adam at the server"), strict=True
    ):
        for i, way in enumerate(dict.fromkeys(row[1] for row in shown)):
            cells = [row[column].split("±") for row in shown if row[1] == way]
            height, error = np.transpose([[number(c) for c in cell] for cell in cells])
            at, colour = place - 0.3 + 0.2 * i, (_GREY, _ORANGE, _BLUE, _GREEN)[i]
            ax.bar(at, height, 0.2, yerr=error, color=colour, label=way)
        ax.set(xticks=place, xticklabels=noises, ylim=(50, 90), xlabel=name)
    axes[0].set_ylabel("accuracy, per cent")
    figure.legend(
        *axes[0].get_legend_handles_labels(), ncols=4, loc="outside upper center"
    )


def mycroft() -> None:
    """Accuracy on held-out hard samples by budget, for each set of data."""
    found: dict[str, list[list[float]]] = {}
    data = ""
    for name, *cells in rows("docs/mycroft.md", "data | samples"):
        data = name or data
        found.setdefault(data, []).append([number(cell) for cell in cells])
    _, axes = plt.subplots(1, len(found), figsize=(8.8, 2.8), sharey=True)
    lines = ((1, _ORANGE, "Mycroft"), (4, _BLUE, "retrieval"), (5, _GREY, "random"))
    for ax, (name, table) in zip(axes, found.items(), strict=True):
        of = np.array(table)
        for column, colour, label in lines:
            ax.plot(of[:, 0], of[:, column], "o-", color=colour, ms=4, label=label)
        ax.axhline(of[0, -1], color="black", ls=":", label="everything")
        ax.set_title(name.replace(" of ", "\nof ").replace(" before", "\nbefore"))
        ax.set(xscale="log", xlabel="samples", xticks=of[:, 0])
        ax.set_xticklabels([f"{budget:.0f}" for budget in of[:, 0]])
        ax.minorticks_off()
    axes[0].set_ylabel("accuracy, per cent")
    axes[0].legend(fontsize=7)


def secure_figures() -> None:
    """Hours of messages of a whole selection, on CrypTen."""
    costs = rows("docs/secure-figures.md", "| paper | crypten")[1:]
    (measured,) = [number(r[1]) for r in costs if r[0] == "the paper's two phases"]
    bars = [("the two phases as the paper measured them", measured)]
    bars += [(r[0], number(r[3])) for r in costs]
    names, hours = zip(*reversed(bars), strict=True)
    _, ax = plt.subplots(figsize=(7, 3.4))
    colours = [
        _BLUE if "ours" in n else _GREY if "measured" in n else _ORANGE for n in names
    ]
    ax.barh(names, hours, color=colours)
    for i, value in enumerate(hours):
        ax.text(value * 1.1, i, f"{value:,.4g}", va="center", fontsize=8)
    ax.set(xscale="log", xlim=(0.02, 20_000), xlabel="hours of messages")


def study() -> None:
    """How well two values find wrong labels, by the embedding."""
    table = rows("docs/study.md", "| KNN-Shapley | KNN-LOO")[::-1]
    _, ax = plt.subplots()
    for column, colour, name in ((1, _BLUE, "KNN-Shapley"), (2, _ORANGE, "KNN-LOO")):
        area, error = np.transpose(
            [[number(part) for part in row[column].split("±")] for row in table]
        )
        at = np.arange(len(table)) + 0.2 * (3 - 2 * column)
        ax.barh(at, area, 0.4, xerr=error, color=colour, label=name)
    ax.set(
        yticks=range(len(table)),
        yticklabels=[row[0] for row in table],
        xlim=(0.5, 1),
        xlabel="area under the ROC curve for wrong labels",
    )
    ax.legend(loc="lower right")


# By the names of the files.
