"""Report chapter: suspected labels beside samples with surely right labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_count
from jaxsel._inputs.frames import is_missing
from jaxsel.report import Chapter, Figure, Table, new_figure, plot_images, style

from ._plot import plot_errors
from ._suspects import Suspects
from ._words import short

if TYPE_CHECKING:
    import pandas as pd

_TEXT = 4000  # characters of a text that are shown
_TRIPLES = 2  # in a row of pictures


def chapter(
    errors: Suspects,
    samples: npt.ArrayLike | None,
    columns: Mapping[str, npt.ArrayLike] | pd.DataFrame | None,
    *,
    budget: int,
) -> Chapter:
    """Return the chapter; see `LabelErrors.chapter`.

    Raises:
        ValueError: If there are not as many samples as labels.
    """
    shown = errors.indices[: check_count("budget", budget)]
    n = len(errors.given)
    items = () if columns is None else columns.items()
    table = {str(name): np.asarray(column) for name, column in items}
    array = None if samples is None else np.asarray(samples)
    for name, entries in {"samples": array, **table}.items():
        if entries is not None and len(entries) != n:
            raise ValueError(
                f"{name} must have one entry for each of {n} labels, got {len(entries)}"
            )
    figure = new_figure(8.8, 3.2)
    with style():
        axes = figure.subplots(1, 2)
    plot_errors(errors.scores, errors.mask, errors.confused, ax=axes)
    blocks: list[Any] = [
        f"{'. '.join(errors.summary)}.",
        Figure(
            plot=figure,
            alt=_alt(errors),
            caption="Scores of all labels (0 is the worst), and how many labels of "
            "which class are estimated to be wrong.",
        ),
    ]
    if array is not None and array.ndim >= 3 and len(shown):
        blocks.append(_pictures(errors, array, shown))
    if array is not None and array.dtype.kind in "OU":
        table["text"] = array
    if len(shown):
        blocks.append(_table(errors, shown, table))
    if errors.duplicates is not None and len(errors.duplicates):
        blocks.append(_pairs(errors, budget))
    low, high = errors.interval
    return Chapter(
        title=f"About {errors.n_errors} of {n} labels are wrong",
        blocks=blocks,
        data={
            "method": errors.method,
            "indices": errors.indices,
            "wrong": errors.wrong,
            "scores": errors.scores[errors.indices],
            "precision": errors.precision if len(errors) else None,
            "accuracy": errors.accuracy,
            "n_errors": errors.n_errors,
            "interval": [low, high],
            "classes": [str(label) for label in errors.joint.classes],
            "counts": errors.joint.counts,
        },
    )


def _alt(errors: Suspects) -> str:
    if not len(errors):
        return f"No label is suspected; the lowest score is {errors.scores.min():.2f}."
    pairs = ", ".join(
        f"{short(pair.given, 16)} in place of {short(pair.true, 16)} ({pair.n:.0f})"
        for pair in errors.confused[:3]
        if pair.n >= 1
    )
    return (
        f"The {len(errors)} suspected labels have scores up to "
        f"{errors.scores[errors.mask].max():.2f}, the median of all is "
        f"{np.median(errors.scores):.2f}. Wrong most often: {pairs or 'none'}."
    )


def _table(
    errors: Suspects, shown: np.ndarray, columns: Mapping[str, np.ndarray]
) -> Table:
    names = shown if errors.index is None else [errors.index[i] for i in shown]
    rows = [
        [
            str(name),
            str(errors.given[i]),
            str(errors.suggested[i]),
            float(errors.wrong[place]),
            *(_cell(column[i]) for column in columns.values()),
        ]
        for place, (i, name) in enumerate(zip(shown, names, strict=True))
    ]
    more = len(errors) - len(shown)
    rest = f" {more} more are not shown." if more else ""
    return Table(
        columns=["row", "given", "suggested", "wrong", *columns],
        rows=rows,
        caption="The most suspicious labels. `wrong` is the estimated probability that "
        f"the label is wrong.{rest}",
        formats=["", "", "", ".0%", *[""] * len(columns)],
    )


def _pairs(errors: Suspects, budget: int) -> Table:
    duplicates = errors.duplicates
    assert duplicates is not None
    rows = [
        [str(i), str(errors.given[i]), str(j), str(errors.given[j]), float(far)]
        for (i, j), far in zip(
            duplicates.pairs[:budget].tolist(),
            duplicates.distances[:budget],
            strict=True,
        )
    ]
    return Table(
        columns=["row", "label", "other row", "its label", "distance"],
        rows=rows,
        caption=f"{len(duplicates)} pairs of near-duplicates have different labels.",
        formats=["", "", "", "", ".3g"],
    )


def _pictures(errors: Suspects, images: np.ndarray, shown: np.ndarray) -> Figure:
    """Draw each picture beside sure ones of the given and of the suggested class."""
    classes = errors.joint.classes
    numbers = {label: k for k, label in enumerate(classes.tolist())}
    quiet = ~errors.mask
    sure: list[int | None] = []
    for k, label in enumerate(classes):
        rows = np.flatnonzero(quiet & (errors.given == label))
        likely = errors.pred_probs[rows, k]
        sure.append(int(rows[likely.argmax()]) if len(rows) else None)
    drawn: list[int] = []
    captions: list[str] = []
    for i in shown:
        drawn.append(i)
        captions.append(f"{i}: {_name(errors.given[i])}?")
        for label in (errors.given[i], errors.suggested[i]):
            like = sure[numbers[label.item() if hasattr(label, "item") else label]]
            drawn.append(i if like is None else like)
            captions.append("none" if like is None else f"a {_name(label)}")
    pictures = images[np.array(drawn)].astype(np.float32)
    if pictures.ndim == 4:
        pictures = pictures.mean(axis=-1)
    return Figure(
        plot=plot_images(
            pictures,
            columns=3 * _TRIPLES,
            captions=captions,
            marked=np.arange(len(drawn)) % 3 == 0,
            size=0.9,
        ),
        alt="Each suspected picture, then a sure one of the given and of the suggested "
        "class. "
        + "; ".join(
            f"{i} is labelled {short(errors.given[i], 16)}, and more like "
            f"{short(errors.suggested[i], 16)}"
            for i in shown
        )
        + ".",
        caption="Each suspected picture, with its row and given label, then one that "
        "surely is of the given class, then one of the suggested class.",
        format="png",
    )


def _name(label: object) -> str:
    return short(label, 8).replace("$", r"\$")  # or it would be set as a formula


def _cell(value: Any) -> str:
    """Return a cell as text: numbers to six digits, long texts cut, gaps empty."""
    if is_missing(value):
        return ""
    text = f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 3]}..."
