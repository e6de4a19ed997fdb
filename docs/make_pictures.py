"""Draw the pictures of the guides, from the guides' own data and the recorded speeds.

Run `python docs/make_pictures.py` from a checkout, with the data and report extras. It
takes well under two minutes on two cores, and overwrites docs/images.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import jaxsel
from jaxsel import data, report

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
CASES = {  # of benchmarks/RESULTS.md; the last three are those where a peer is ahead
    "knn weighted": "Weighted KNN-Shapley",
    "knn sort-free": "Threshold KNN-Shapley",
    "retrain tmc small": "TMC-Shapley, 200 points",
    "retrain loo": "Leave-one-out, retrained",
    "retrain tmc large": "TMC-Shapley, large",
    "labels joint": "Confident joint",
    "knn exact": "Exact KNN-Shapley",
    "match past the rank": "Matching pursuit",
    "labels found digits": "Label errors, digits",
    "labels found newsgroups": "Label errors, newsgroups",
    "labels found adult": "Label errors, Adult",
}


def pictures() -> Iterator[tuple[str, Figure]]:
    """Yield the name and the figure of each picture."""
    train, val = data.load("digits"), data.load("digits", split="test")
    x, x_val = train.as_features(), val.as_features()
    y, wrong = data.flip_labels(jax.random.key(0), train.y, 0.1, n_classes=10)
    wrong = np.asarray(wrong)

    values = jaxsel.knn_shapley(x, y, x_val, val.y, k=5)
    yield "values", values.plot(labels=np.where(wrong, "wrong", "right"))[0].figure
    yield "found", found({"KNN-Shapley": values.values}, wrong)

    errors = jaxsel.find_label_errors(x, y)
    yield "label-errors", errors.plot()[0].figure
    yield "found-without-clean", found({"find_label_errors": errors.scores}, wrong)
    yield "suspects", suspects(np.asarray(train.x), errors)
    yield "speed", speed()


def found(scores: dict[str, np.ndarray], wrong: np.ndarray) -> Figure:
    """Draw the share of wrong labels found against the share of labels inspected."""
    figure, ax = plt.subplots(figsize=(5, 3.2))
    inspected = np.arange(len(wrong) + 1) / len(wrong)
    for name, score in scores.items():
        order = np.argsort(score, kind="stable")
        ax.plot(
            inspected, np.append(0, np.cumsum(wrong[order])) / wrong.sum(), label=name
        )
    ax.plot([0, 1], [0, 1], "--", color="0.5", label="random order")
    ax.set(xlabel="Share of labels inspected", ylabel="Share of wrong labels found")
    ax.legend()
    return figure


def suspects(images: np.ndarray, errors: jaxsel.LabelErrors) -> Figure:
    """Draw the ten most suspicious digits, with their label and the suggested one."""
    figure, axes = plt.subplots(2, 5, figsize=(6.5, 3.2))
    for ax, row in zip(axes.flat, errors.indices, strict=False):
        ax.imshow(images[row].reshape(8, 8), cmap="gray_r")
        ax.set_title(f"{errors.given[row]} → {errors.suggested[row]}", loc="center")
        ax.axis("off")
    return figure


def speed() -> Figure:
    """Draw how many times as fast as its fastest peer jaxsel is, on a CPU."""
    table = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    times = {}
    for case, peer, ratio in re.findall(
        r"^\| ([\w -]+?) \| AMD EPYC \| [^|]+ \| ([^|]+), [^,|]+ \| \*\*([\d.]+)\*\*",
        table,
        re.MULTILINE,
    ):
        times[case] = peer, float(ratio)
    figure, ax = plt.subplots(figsize=(7, 4))
    for i, case in enumerate(reversed(CASES)):
        peer, ratio = times[case]
        ax.barh(i, ratio - 1, left=1, color=report.COLORS[0 if ratio > 1 else 1])
        left = max(ratio, 1) * 1.15
        ax.text(
            left,
            i,
            f"{ratio:.0f}× {peer}" if ratio > 100 else f"{ratio:.2g}× {peer}",
            va="center",
            fontsize=8,
        )
    ax.set_yticks(range(len(CASES)), list(reversed(CASES.values())))
    ax.set(
        xscale="log", xlim=(0.04, 60_000), xlabel="Times as fast as the fastest peer"
    )
    ax.axvline(1, color="0.4", linewidth=1)
    ax.grid(axis="y", visible=False)
    return figure


def main() -> None:
    """Draw all pictures."""
    IMAGES.mkdir(exist_ok=True)
    mpl.use("svg")
    with report.style():
        for name, figure in pictures():
            path = IMAGES / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None}, facecolor="white")
            lines = path.read_text().splitlines()
            path.write_text("\n".join(line.rstrip() for line in lines) + "\n")
            plt.close(figure)


if __name__ == "__main__":
    main()
