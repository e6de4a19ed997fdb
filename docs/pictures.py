"""Draw the pictures of the guides: `python docs/pictures.py [NAME ...]`.

Most run the first blocks of Python of their guide, which are seeded, and draw what
these computed; others draw a table of their page. So a picture shows what its page
says. They go to docs/images/.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from diagrams import (
    BLUE as _BLUE,
    GREEN as _GREEN,
    ORANGE as _ORANGE,
    certificates,
    floors,
)
from table_pictures import (
    accuracy,
    filtering_figures,
    mycroft,
    recipes,
    rows,
    secure_figures,
    speed,
    study,
)

import jaxsel
from jaxsel import LabelErrors, Values, data, report
from jaxsel.data import Dataset
from jaxsel.retrieve import nearest

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CARD = (3.6, 2.3)
"""Inches of a picture on a card of the first page, whose letters stay readable."""
_GREY = "#8c959f"


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


@functools.cache
def digits() -> tuple[Dataset, Any, Values, LabelErrors]:
    """Return digits, which of their labels are wrong, values, and suspected labels."""
    train, val = data.load("digits"), data.load("digits", split="test")
    x, x_val = train.as_features(), val.as_features()
    y, wrong = data.flip_labels(jax.random.key(0), train.y, 0.1, n_classes=10)
    values = jaxsel.knn_shapley(x, y, x_val, val.y, k=5)
    return train, np.asarray(wrong), values, jaxsel.find_label_errors(x, y)


def values() -> None:
    """Values of digits, a tenth of them labelled wrong."""
    _, wrong, found, _ = digits()
    found.plot(labels=np.where(wrong, "wrong", "right"))


def found() -> None:
    """Wrong labels found by values."""
    _, wrong, by, _ = digits()
    _found({"KNN-Shapley": by.values}, wrong)


def label_errors() -> None:
    """The library's own figure of suspected labels."""
    digits()[3].plot()


def found_without_clean() -> None:
    """Wrong labels found without validation data."""
    _, wrong, _, errors = digits()
    _found({"find_label_errors": errors.scores}, wrong)


def _found(scores: dict[str, Any], wrong: np.ndarray) -> None:
    """Draw the share of wrong labels found against the share of labels inspected."""
    _, ax = plt.subplots(figsize=(5, 3.2))
    inspected = np.arange(len(wrong) + 1) / len(wrong)
    for name, score in scores.items():
        order = np.argsort(np.asarray(score), kind="stable")
        hits = np.append(0, np.cumsum(wrong[order])) / wrong.sum()
        ax.plot(inspected, hits, label=name)
    ax.plot([0, 1], [0, 1], "--", color="0.5", label="random order")
    ax.set(xlabel="Share of labels inspected", ylabel="Share of wrong labels found")
    ax.legend()


def suspects() -> None:
    """The ten most suspicious digits, with their label and the suggested one."""
    train, _, _, errors = digits()
    _, axes = plt.subplots(2, 5, figsize=(6.5, 3.2))
    for ax, row in zip(axes.flat, errors.indices, strict=False):
        ax.imshow(np.asarray(train.x)[row].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"{errors.given[row]} → {errors.suggested[row]}", loc="center")
        ax.axis("off")


def harmful() -> None:
    """The training images that harm a CNN most, by the example."""
    example = runpy.run_path(str(ROOT / "examples" / "harmful_images.py"))
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "harmful.png"
        with contextlib.redirect_stdout(io.StringIO()):
            example["main"](["--out", str(picture)])
        image = plt.imread(picture)
    figure = plt.figure(figsize=(image.shape[1] / 100, image.shape[0] / 100), dpi=100)
    figure.figimage(image)


def finetuning() -> None:
    """Kinds of the posts that four ways choose, by the example; needs MiniLM."""
    example = runpy.run_path(str(ROOT / "examples" / "choose_to_finetune.py"))
    with contextlib.redirect_stdout(io.StringIO()):
        shares = example["main"](["--epochs", "0"])
    example["draw"](shares, plt.figure(figsize=(6.4, 2.2)))


def task_labels() -> None:
    """Six suspected digits, for the card of the first page."""
    train, _, _, errors = digits()
    _, axes = plt.subplots(2, 3, figsize=CARD)
    for ax, row in zip(axes.flat, errors.indices, strict=False):
        _digit(ax, train.x[row], f"{errors.given[row]} → {errors.suggested[row]}")


def task_worth() -> None:
    """Values in ascending order, for the card of the first page."""
    _, wrong, by, _ = digits()
    order = np.argsort(np.asarray(by.values), kind="stable")
    worth, is_wrong = 1e3 * np.asarray(by.values)[order], wrong[order]
    _, ax = plt.subplots(figsize=CARD)
    for mask, colour, name in (
        (~is_wrong, _BLUE, "right label"),
        (is_wrong, _ORANGE, "wrong label"),
    ):
        rank = np.flatnonzero(mask)
        ax.plot(rank, worth[rank], ".", color=colour, label=name, rasterized=True)
    ax.axhline(0, color=_GREY, lw=0.8)
    ax.set(xlabel="digits, lowest value first", ylabel="value × 1000")
    ax.legend(loc="lower right")


def task_choose() -> None:
    """Digits that a network gets wrong, and the nearest of the pool."""
    names = run("docs/matching.md", 1)
    (pool, y), (hard, y_hard) = names["pool"], names["hard"]
    lists = nearest(pool, hard[:4], 1, labels=y, hard_labels=y_hard[:4])
    _, axes = plt.subplots(2, 4, figsize=CARD)
    for column, row in zip(axes.T, range(4), strict=True):
        chosen = int(lists.indices[row, 0])
        _digit(column[0], hard[row], f"hard {y_hard[row]}")
        _digit(column[1], pool[chosen], f"buy {y[chosen]}")


def task_secret() -> None:
    """A digit, and the two numbers modulo 2^64 into which each pixel is split."""
    digit = digits()[0].x[0].reshape(8, 8).astype(np.uint64)
    share = np.random.default_rng(0).integers(0, 2**64, (8, 8), dtype=np.uint64)
    _, axes = plt.subplots(1, 3, figsize=CARD)
    titles = ("a sample", "share of A", "share of B")
    for ax, image, title in zip(
        axes, (digit, share, digit - share), titles, strict=True
    ):
        _digit(ax, image, title)


def _digit(ax: Any, image: np.ndarray, title: str) -> None:
    """Draw an image of 64 pixels under its title."""
    ax.imshow(np.asarray(image, float).reshape(8, 8), cmap="gray_r")
    ax.set_title(title, loc="center")
    ax.axis("off")


def neighbours() -> None:
    """How soon the lowest values of several kinds find the wrong labels."""
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


def datasets() -> None:
    """Owners that send one vector each, and the purchase."""
    values = run("docs/owners.md", 6)["datasets"]
    _, ax = plt.subplots(figsize=(6.4, 2.4))
    values.plot(ax)


def mixtures() -> None:
    """The metric along the weight of each domain, and the best mixture."""
    response = run("docs/mixtures.md", 1)["response"]
    _, axes = plt.subplots(1, 2, figsize=(8.8, 3.4), layout="constrained")
    response.plot(ax=axes)


def private_values() -> None:
    """Values with noise beside exact ones."""
    found = run("docs/private-values.md", 2)
    _, ax = plt.subplots(figsize=(4.4, 3.6))
    noisy = found["noisy"]["north"].values
    ax.plot(1e4 * found["exact"], 1e4 * noisy, ".", color=_BLUE, ms=3, rasterized=True)
    ax.axline((0, 0), slope=1, color=_GREY, lw=0.8)
    ax.set(xlabel="exact value × 10⁴", ylabel="with ε = 1")


PICTURES = {
    "task-labels.svg": task_labels,
    "task-worth.svg": task_worth,
    "task-choose.svg": task_choose,
    "task-secret.svg": task_secret,
    "values.svg": values,
    "found.svg": found,
    "label-errors.svg": label_errors,
    "found-without-clean.svg": found_without_clean,
    "suspects.svg": suspects,
    "knn-values.svg": neighbours,
    "retraining.png": retraining,
    "applications.png": applications,
    "matching.svg": matching,
    "retrieval.svg": retrieval,
    "filtering.svg": filtering,
    "market.svg": market,
    "owners.svg": owners,
    "datasets.svg": datasets,
    "mixtures.svg": mixtures,
    "recipes.svg": recipes,
    "harmful.png": harmful,
    "finetuning.svg": finetuning,
    "private-values.svg": private_values,
    "speed.svg": speed,
    "accuracy.svg": accuracy,
    "filtering-figures.svg": filtering_figures,
    "mycroft.svg": mycroft,
    "secure-figures.svg": secure_figures,
    "study.svg": study,
    "certificates.svg": certificates,
    "floors.svg": lambda: floors(rows("docs/extending.md", "floor | rooms | holds")),
}


def main() -> None:
    """Draw the pictures whose names begin with an argument, or all."""
    IMAGES.mkdir(exist_ok=True)
    mpl.use("agg")
    for name, draw in PICTURES.items():
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        with report.style(), mpl.rc_context({"figure.figsize": (6.4, 3.2)}):
            draw()
            metadata = {"Date": None} if name.endswith("svg") else {"Software": None}
            plt.savefig(IMAGES / name, metadata=metadata, facecolor="white")
            plt.close("all")
        sys.stdout.write(f"{name}: {(IMAGES / name).stat().st_size / 1000:.0f} KB\n")


if __name__ == "__main__":
    main()
