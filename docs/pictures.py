"""Draw the pictures of the guides: `python docs/pictures.py [NAME ...]`.

Each runs the first blocks of Python of its guide, which are seeded, and draws what they
computed, so that a picture shows what its page says. They go to docs/images/.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLUE, _ORANGE, _GREEN, _GREY = "#0072b2", "#d55e00", "#007a5a", "#8c959f"
_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.figsize": (6.4, 3.2),
    "font.size": 10,
    "legend.frameon": False,
    "svg.hashsalt": "jaxsel",
}


def run(page: str, blocks: int) -> dict[str, Any]:
    """Return the names that the first blocks of a page define."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    codes = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))[:blocks]
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                for code in codes:
                    exec(code, namespace)  # noqa: S102
        finally:
            os.chdir(home)
            plt.close("all")
    return namespace


def values() -> None:
    """Values of digits, a tenth of them labelled wrong."""
    found = run("README.md", 1)
    wrong, worth = np.asarray(found["wrong"]), np.asarray(found["values"].values)
    order = np.argsort(worth)
    _, ax = plt.subplots()
    for of, colour, name in ((~wrong, _BLUE, "right label"), (wrong, _ORANGE, "wrong")):
        rank = np.flatnonzero(of[order])
        ax.vlines(rank, 0, 1e4 * worth[order][rank], colour, lw=0.6, rasterized=True)
        ax.plot([], [], color=colour, lw=4, label=name)
    ax.set(xlabel="training points, lowest value first", ylabel="value × 10⁴")
    ax.legend(loc="lower right")


def label_errors() -> None:
    """The most suspicious labels, as images."""
    found = run("docs/label-errors.md", 1)
    images, errors = found["digits"].x, found["errors"]
    _, axes = plt.subplots(2, 8, figsize=(7.2, 2.6))
    for ax, row in zip(axes.flat, np.asarray(errors.indices), strict=False):
        ax.imshow(np.asarray(images[row]).reshape(8, 8), cmap="gray_r")
        suggested = np.asarray(errors.suggested)[row]
        ax.set_title(f"{found['y'][row]}, not {suggested}?", fontsize=9)
        ax.axis("off")


def neighbours() -> None:
    """How soon the lowest values of several kinds find the wrong labels."""
    import jaxsel

    found = run("docs/getting-started.md", 1)
    x, y, x_val, wrong = (found[name] for name in ("x", "y", "x_val", "wrong"))
    y_val = found["val"].y
    share = np.arange(1, len(y) + 1) / len(y)
    _, ax = plt.subplots()
    for function, colour in (
        (jaxsel.knn_shapley, _BLUE),
        (jaxsel.knn_banzhaf, _GREEN),
        (jaxsel.knn_loo, _ORANGE),
    ):
        lowest = np.asarray(function(x, y, x_val, y_val, k=5).bottom(len(y)))
        hits = np.asarray(wrong)[lowest].cumsum() / wrong.sum()
        ax.plot(share[::8], hits[::8], color=colour, label=function.__name__)
    ax.plot([0, 1], [0, 1], color=_GREY, ls=":", label="random order")
    ax.set(
        xlabel="share of points looked at, lowest first", ylabel="wrong labels found"
    )
    ax.legend(loc="lower right")


def retraining() -> None:
    """Values by retraining, with their standard errors."""
    found = run("docs/retraining.md", 1)
    worth, wrong = np.asarray(found["values"].values), np.asarray(found["wrong"])
    error, order = np.asarray(found["values"].stderr), np.argsort(worth)
    _, ax = plt.subplots()
    for of, colour, name in ((~wrong, _BLUE, "right label"), (wrong, _ORANGE, "wrong")):
        rank = np.flatnonzero(of[order])
        at = order[rank]
        ax.errorbar(rank, worth[at], error[at], fmt=".", color=colour, ms=4, label=name)
    ax.axhline(0, color=_GREY, lw=0.8)
    ax.set(xlabel="training points, lowest value first", ylabel="TMC-Shapley value")
    ax.legend(loc="lower right")


def applications() -> None:
    """The guide's own curves."""
    curves = run("docs/applications.md", 1)["curves"]
    _, ax = plt.subplots()
    curves.plot(ax=ax)


def matching() -> None:
    """Classes of the pool, of the hard samples, and of those chosen."""
    found = run("docs/matching.md", 1)
    labels = {
        "pool": found["pool"][1],
        "hard samples": found["hard"][1],
        "chosen": np.asarray(found["pool"][1])[found["chosen"]],
    }
    _, ax = plt.subplots()
    colours = (_GREY, _ORANGE, _BLUE)
    for i, (name, y) in enumerate(labels.items()):
        share = np.bincount(np.asarray(y), minlength=10) / len(y)
        ax.bar(
            np.arange(10) + 0.27 * (i - 1), share, 0.25, color=colours[i], label=name
        )
    ax.set(xlabel="class", ylabel="share", xticks=range(10))
    ax.legend()


def retrieval() -> None:
    """Copies among what is retrieved by distance, and by coverage."""
    found = run("docs/retrieval.md", 6)
    _, ax = plt.subplots(figsize=(6.4, 1.8))
    names = ("retrieve_targeted", "retrieve_nearest")
    for i, key in enumerate(("by_facilities", "by_distance")):
        rows = found[key].to_numpy() if hasattr(found[key], "to_numpy") else found[key]
        kinds = len(np.unique(found["copies"][rows], axis=0))
        ax.barh(i, len(rows), color=_ORANGE, label=None if i else "copies of others")
        ax.barh(i, kinds, color=_BLUE, label=None if i else "different samples")
    ax.set(yticks=(0, 1), yticklabels=names, xlabel="samples chosen, at most 60")
    ax.legend(loc="lower right")


def filtering() -> None:
    """Losses of clean samples and noise, and the threshold between."""
    found = run("docs/filtering.md", 1)
    bins = np.linspace(0, 10, 60)
    _, ax = plt.subplots()
    ax.hist(found["clean"], bins, color=_BLUE, alpha=0.8, label="clean")
    ax.hist(found["noise"], bins, color=_ORANGE, alpha=0.7, label="noise")
    ax.axvline(float(found["found"].value), color="black", label="threshold")
    ax.set(xlabel="loss of the benchmark model", ylabel="samples")
    ax.legend()


def market() -> None:
    """What the samples of each owner gain."""
    ranking = run("docs/market.md", 1)["ranking"]
    table = ranking.to_pandas()[::-1]
    _, ax = plt.subplots(figsize=(6.4, 1.9))
    ax.barh(list(table.index), table["score"], color=_BLUE, height=0.6)
    ax.axvline(float(ranking.baseline[0]), color=_ORANGE, label="without a purchase")
    ax.set(xlabel="accuracy on held-out hard samples", xlim=(0, 1))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1))


def owners() -> None:
    """Four owners as players; the west's labels are wrong."""
    found = run("docs/owners.md", 3)
    players = found["players"].to_pandas()
    _, ax = plt.subplots(figsize=(6.4, 2.2))
    names = [str(name) for name in players.index]
    colours = [_ORANGE if name == "west" else _BLUE for name in names]
    ax.barh(names, players["value"], color=colours)
    ax.axvline(0, color="black", lw=0.8)
    ax.set(xlabel="Shapley value in accuracy")


def private_values() -> None:
    """Values with noise beside exact ones."""
    found = run("docs/private-values.md", 2)
    _, ax = plt.subplots(figsize=(4.4, 3.6))
    noisy = found["noisy"]["north"].values
    ax.plot(1e4 * found["exact"], 1e4 * noisy, ".", color=_BLUE, ms=3, rasterized=True)
    ax.axline((0, 0), slope=1, color=_GREY, lw=0.8)
    ax.set(xlabel="exact value × 10⁴", ylabel="with ε = 1")


def speed() -> None:
    """Five figures of benchmarks/history/, each a case's latest run."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import _records, _summary

    known = {
        (line.bench, line.case): line
        for line in _summary.lines(_records.read(_records.HISTORY.glob("*.json")))
        if line.machine.startswith("AMD")
    }
    _, ax = plt.subplots(figsize=(6.4, 2.4))
    for i, key in enumerate(reversed(HEADLINES)):
        low, middle, high = known[key].ratios
        ax.barh(i, middle, color=_BLUE, xerr=[[middle - low], [high - middle]])
        ax.text(high * 1.1, i, f"{middle:,.3g} ×", va="center")
    ax.set(
        xscale="log",
        xlim=(1, 3000),
        xlabel="times as fast as the best peer, one core",
        yticks=range(len(HEADLINES)),
        yticklabels=reversed(HEADLINES.values()),
    )


HEADLINES = {
    ("knn", "exact"): "KNN-Shapley, exact\nbest peer: a torch loop",
    ("knn", "sort-free"): "Threshold-KNN-Shapley\nbest peer: pyDVL",
    ("retrain", "tmc large"): "TMC-Shapley, 64 features\nbest peer: pyDVL",
    ("match", "factored"): "OMP on gradients\nbest peer: a torch loop",
    ("retrieve", "million"): "Retrieval from a million\nbest peer: scikit-learn",
}
# By the names of the files.
PICTURES = {
    "values.png": values,
    "label-errors.png": label_errors,
    "knn-values.svg": neighbours,
    "retraining.png": retraining,
    "applications.png": applications,
    "matching.svg": matching,
    "retrieval.svg": retrieval,
    "filtering.svg": filtering,
    "market.svg": market,
    "owners.svg": owners,
    "private-values.svg": private_values,
    "speed.svg": speed,
}


def main() -> None:
    """Draw the pictures whose names begin with an argument, or all."""
    IMAGES.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        with mpl.rc_context(_STYLE):
            draw()
            metadata = {"Date": None} if name.endswith("svg") else {"Software": None}
            plt.savefig(IMAGES / name, metadata=metadata)
            plt.close("all")
        sys.stdout.write(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} KB\n")


if __name__ == "__main__":
    main()
