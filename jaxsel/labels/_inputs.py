"""Probabilities and labels as callers give them, checked and numbered."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import check_row_order
from jaxsel._inputs.checks import (
    as_array,
    check_finite,
    check_numeric,
    check_same_length,
    show_labels,
)
from jaxsel._inputs.foreign import feature_numbers
from jaxsel._inputs.frames import feature_labels
from jaxsel._inputs.labels import as_labels, encode_labels
from jaxsel._inputs.usual_mistakes import doubt_classes

CLOSE = 1e-6
"""Difference of probabilities below which they count as equal, as in cleanlab."""

_ENTRIES = 1 << 17  # of a block: 1 MB, which fits a core's second-level cache


class Predictions(NamedTuple):
    """Out-of-sample probabilities, and labels by the numbers of their columns.

    Attributes:
        probs: `[n, K]`.
        codes: The column of each label, `[n]`.
        classes: The class of each column, `[K]`.
        members: Probabilities by each of the models that `probs` combine; None if they
            come from one model.
        source: The model, for people.
    """

    probs: np.ndarray
    codes: np.ndarray
    classes: np.ndarray
    members: tuple[np.ndarray, ...] | None = None
    source: str = "pred_probs"


def row_blocks(probs: np.ndarray) -> list[slice]:
    """Return slices of the rows of probabilities, in blocks that stay in cache."""
    n, rows = len(probs), max(1, _ENTRIES // probs.shape[1])
    return [slice(i, min(i + rows, n)) for i in range(0, n, rows)]


def check_probs(pred_probs: npt.ArrayLike) -> np.ndarray:
    """Return probabilities `[n, K]` of float32 or float64, two classes or more.

    Rows need not add up to 1.

    Raises:
        TypeError: If they are not numbers.
        ValueError: If they have another shape, or are not between 0 and 1.
    """
    array = as_array("pred_probs", pred_probs)
    if array.dtype == object:
        array = feature_numbers("pred_probs", np.asarray(array))
        array = as_array("pred_probs", pred_probs) if array is None else array
    check_numeric("pred_probs", array)
    probs = np.asarray(array)
    if probs.ndim != 2 or probs.shape[1] < 2 or not len(probs):
        raise ValueError(
            "pred_probs must have shape [n, n_classes], one row a sample and two "
            f"classes or more, got {probs.shape}"
        )
    if probs.dtype.kind != "f" or probs.dtype.itemsize > 8:
        whole = jnp.issubdtype(probs.dtype, jnp.floating)  # NumPy knows no bfloat16
        half = whole and probs.dtype.itemsize < 4
        probs = probs.astype(np.float32 if half else np.float64)
    elif probs.dtype.itemsize < 4 or not probs.dtype.isnative:
        probs = probs.astype(np.float32 if probs.dtype.itemsize < 8 else np.float64)
    for part in row_blocks(probs):
        block = np.ascontiguousarray(probs[part])
        # Neither holds where one of them is NaN.
        if not (block.min() >= -CLOSE and block.max() <= 1 + CLOSE):
            check_finite("pred_probs", probs)
            wrong = (block < -CLOSE) | (block > 1 + CLOSE)
            row, column = np.argwhere(wrong)[0]
            raise ValueError(
                f"pred_probs must be between 0 and 1, got {block[row, column]:g} in "
                f"row {part.start + row}: pass probabilities, not logits"
            )
    return probs


def number_labels(
    y: npt.ArrayLike, n_classes: int | None = None, classes: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return codes `[n]` of labels, and the classes that they are codes of, `[K]`.

    Args:
        y: Labels of any kind, `[n]`.
        n_classes: Columns of the probabilities that belong to them, if any.
        classes: The class of each column. If None, whole numbers from 0 to K - 1 are
            columns; other labels are numbered in sorted order, and all must occur.

    Raises:
        TypeError: If labels and classes are of different kinds.
        ValueError: If `y` is not `[n]`, is empty, holds labels that are no classes, or
            classes are repeated or are not as many as the columns.
    """
    labels = np.asarray(as_labels("y", y))
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"y must be labels of shape [n], got {labels.shape}")
    if classes is None and n_classes is not None and _are_columns(labels, n_classes):
        return labels.astype(np.intp), np.arange(n_classes)
    if labels.dtype == bool and n_classes == 2 and classes is None:
        return labels.astype(np.intp), np.array([False, True])
    if labels.dtype == object:
        labels = _plain(labels)
    if classes is None:
        codes, _, count = encode_labels(labels, labels[:1], names=("y", "y"))
        ordered = np.empty(count, labels.dtype)
        ordered[codes] = labels
        if n_classes is not None and count != n_classes:
            raise ValueError(
                f"classes must be given: pred_probs has {n_classes} columns, and y has "
                f"{count} labels, {show_labels(ordered.tolist())}"
            )
        doubt_classes(labels, count)
        return codes.astype(np.intp), ordered
    known = np.asarray(classes)
    if known.dtype == object:
        known = _plain(known)
    if known.ndim != 1 or (n_classes is not None and len(known) != n_classes):
        raise ValueError(
            f"classes must name the {n_classes} columns of pred_probs, got shape "
            f"{known.shape}"
        )
    codes, class_codes, count = encode_labels(labels, known, names=("y", "classes"))
    if len(np.unique(class_codes)) < len(class_codes):
        raise ValueError(
            f"classes must name each class once, got {show_labels(known.tolist())}"
        )
    place = np.full(count, -1, np.intp)
    place[class_codes] = np.arange(len(class_codes))
    codes = place[codes]
    if (codes < 0).any():
        raise ValueError(
            f"classes must have every label of y, but lacks "
            f"{show_labels(np.unique(labels[codes < 0]).tolist())}"
        )
    return codes, known


def _are_columns(labels: np.ndarray, n_classes: int) -> bool:
    """Return whether labels are numbers of columns."""
    whole = labels.dtype.kind in "iu"
    return bool(whole and labels.min() >= 0 and labels.max() < n_classes)


def _plain(labels: np.ndarray) -> np.ndarray:
    """Return labels that are all texts as such; others as they are."""
    if all(isinstance(label, str) for label in labels):
        return labels.astype(str)
    return labels


def check_predictions(
    pred_probs: npt.ArrayLike, y: npt.ArrayLike, classes: Any = None
) -> Predictions:
    """Return checked probabilities and labels.

    Columns of a table are matched to labels by name, in any order.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes or names do not fit, or probabilities are not in [0, 1].
    """
    check_row_order("pred_probs", pred_probs, "y", y)
    probs = check_probs(pred_probs)
    names = feature_labels(pred_probs)
    if names is not None:
        order, classes = _match_columns(names, y, classes)
        probs = probs[:, order]
    codes, known = number_labels(y, probs.shape[1], classes)
    check_same_length("pred_probs", probs, "y", codes)
    return Predictions(probs, codes, known)


def _match_columns(
    names: list[Any], y: npt.ArrayLike, classes: Any
) -> tuple[list[int], Any]:
    """Return the order in which columns of these names are taken, and their classes.

    Raises:
        ValueError: If the names are others than the labels', or contradict `classes`.
    """
    as_they_are = list(range(len(names)))
    texts = [_text(name) for name in names]
    if classes is not None:
        wanted = [_text(label) for label in np.asarray(classes).tolist()]
        if sorted(texts) == sorted(wanted) and texts != wanted:
            raise ValueError(
                f"classes must be in the order of the columns of pred_probs, "
                f"{show_labels(names)}, got {show_labels(np.asarray(classes).tolist())}"
            )
        return as_they_are, classes
    labels = {_text(label): label for label in np.asarray(as_labels("y", y)).tolist()}
    numbered = [str(i) for i in as_they_are]
    if set(labels) <= set(texts) and len(set(texts)) == len(texts):
        if texts == numbered:
            return as_they_are, None
        # A class without samples takes the type of the other labels.
        kind = cast(Any, type(next(iter(labels.values()))))
        try:
            known = [labels.get(text, kind(text)) for text in texts]
            order = sorted(as_they_are, key=known.__getitem__)
        except (TypeError, ValueError):
            known, order = names, as_they_are
        return order, np.array([known[i] for i in order])
    if texts == numbered or texts == [f"column_{i}" for i in as_they_are]:
        return as_they_are, None
    raise ValueError(
        f"pred_probs must have columns named after the labels of y, "
        f"{show_labels(sorted(labels.values()))}, got {show_labels(names)}: rename "
        "them, or pass to_numpy() and classes, the label of each column"
    )


def _text(label: Any) -> str:
    """Write a label as a name: 1.0 and "1" are one."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return str(label)
