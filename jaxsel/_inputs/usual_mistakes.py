"""Warnings for legal input that is usually a mistake.

Each is one sentence that names the argument and the remedy, from a cheap check.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from jaxsel._devices.mesh import whole

from .checks import as_type, caller_level, show_labels
from .frames import feature_labels
from .scale import origin

_LOOKED_AT = 4096  # rows
_FEW = 50  # samples of which nothing is concluded
_FILLED = 4  # times as many numbers as rows may be in the range of identifiers
_APART = 1e3  # times the usual deviation
_EQUAL = 1e-5  # relative difference that rounding may make
_FEW_CLASSES = 20  # labels that may all differ by chance
_FAR = 3  # standard deviations from zero
_LOST = 1e-3  # standard deviations that rounding to float32 may take
_EXACT = 2**53  # whole numbers beyond have gaps in float64


def doubt(message: str) -> None:
    """Warn at the line that called jaxsel."""
    warnings.warn(message, UserWarning, stacklevel=caller_level())


@contextlib.contextmanager
def no_doubts() -> Iterator[None]:
    """Silence warnings that were given of the same input before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def doubt_columns(
    name: str, x: np.ndarray, given: Any = None, *, distances: bool = True
) -> None:
    """Warn of columns that number the rows, or by their scale drown all others.

    Args:
        name: The samples' name in warnings.
        x: Checked samples, `[n, d]`.
        given: The caller's argument: a data frame has names of columns.
        distances: Whether distances are to be computed, to which scales matter.
    """
    if x.ndim != 2 or len(x) < _FEW:
        return
    # A few rows rule out most columns, vectorised: ids are distinct whole numbers.
    head = np.sort(x[:_FEW], axis=0)
    likely = (head[1:] != head[:-1]).all(0) & (head == np.round(head)).all(0)
    numbering = list(filter(partial(_numbers_rows, x), np.flatnonzero(likely).tolist()))
    if numbering and x.shape[1] > 1:
        doubt(
            f"{_of(name, given, numbering[0])} seems to number the samples, which "
            "says nothing of them: leave it out"
        )
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        peak = np.abs(x.astype(np.float64)).max(0)
        if peak.max() > _EXACT:
            j = int(peak.argmax())
            doubt(
                f"{_of(name, given, j)} has whole numbers beyond 2**53, of which "
                "neighbours become one number: leave it out if they are identifiers"
            )
    if not distances:
        return
    spread = x[:: -(-len(x) // _LOOKED_AT)].astype(np.float64).std(0)
    varied = np.sort(spread[spread > 0])
    # The lower of two medians: of two columns it is the other one.
    usual = varied[(len(varied) - 1) // 2] if len(varied) > 1 else np.inf
    if spread.max() > _APART * usual:
        j = int(spread.argmax())
        doubt(
            f"{_of(name, given, j)} varies by {spread[j]:.3g}, where the median "
            f"column does by {usual:.3g}, so that it decides who is near: standardise "
            "the columns, as sklearn.preprocessing.StandardScaler does"
        )


def doubt_rounding(name: str, x: np.ndarray, given: Any = None) -> None:
    """Warn of a column that float32 all but loses, since it lies far from zero.

    Args:
        name: The samples' name in warnings.
        x: Checked samples, `[n, d]`.
        given: The caller's argument: a data frame has names of columns.
    """
    far = np.flatnonzero(origin(x))
    error = np.abs(x[:, far] - as_type(x[:, far], np.float32)).max(0, initial=0)
    lost = far[error > _LOST * x[:, far].std(axis=0, dtype=np.float64)]
    if lost.size:
        doubt(
            f"{_of(name, given, int(lost[0]))} lies so far from zero "
            "that float32 loses most of its digits: subtract its mean"
        )


def doubt_same(x: Any, y: Any, x_val: Any, y_val: Any) -> None:
    """Warn where validation samples are the training samples, labels included."""
    if x.shape != x_val.shape:
        return
    x = whole(x)
    if x is x_val or (
        np.array_equal(x[0], x_val[0]) and np.array_equal(np.asarray(x), x_val)
    ):
        if not np.array_equal(y, y_val):
            return
        doubt(
            "x_val and y_val are x and y: each sample is its own nearest neighbour and "
            "vouches for its own label, so that values say little; validate on samples "
            "that are not in x"
        )


def doubt_neighbours(k: int, n: int) -> None:
    """Warn where more than half of all samples are neighbours."""
    if n >= _FEW and k > n / 2:
        doubt(
            f"k = {k} is more than half of the {n} training samples, so that nearly "
            "all are neighbours of each validation sample: 5 to 20 is usual"
        )


def doubt_classes(labels: np.ndarray, count: int) -> None:
    """Warn where labels may be ids, or numbers to predict: of their many classes.

    Args:
        labels: Class labels, `[n]`.
        count: Number of different ones.
    """
    n = len(labels)
    # Classes are seldom stored as floats.
    most = max(_FEW_CLASSES, n / 20) if labels.dtype.kind == "f" else n / 2
    if n >= _FEW_CLASSES and count > most:
        shown = show_labels(list(dict.fromkeys(labels.tolist())))
        doubt(
            f"y has {count} different labels in {n} rows, such as {shown}, so that "
            "most classes have few samples: are they ids, or numbers to predict?"
        )


def doubt_targets(t: np.ndarray) -> None:
    """Warn of targets far from 0, which no neighbours are taken to predict."""
    mean, spread = float(t.mean(dtype=np.float64)), float(t.std(dtype=np.float64))
    if len(t) >= _FEW and abs(mean) > _FAR * spread > 0:
        doubt(
            f"t lies around {mean:.4g} and varies by {spread:.3g}, and no neighbours "
            "count as a prediction of 0, which drowns all else: subtract the mean of t "
            "from t and t_val"
        )


def doubt_values(values: np.ndarray) -> None:
    """Warn where all values `[n]` are one number: none is better than another."""
    if len(values) < _FEW or np.ptp(values) > _EQUAL * np.abs(values).max():
        return
    doubt(
        f"all {len(values)} values are {values[0]:.3g}, so that they rank nothing: is "
        "there one class only, or a constant column?"
    )


def _numbers_rows(x: np.ndarray, j: int) -> bool:
    """Return whether column j has distinct whole numbers that fill a range, nearly."""
    column = x[:, j]
    if column.dtype.kind not in "iu":
        head = column[:_LOOKED_AT]
        if (head != np.round(head)).any():
            return False
    for part in (column[:_LOOKED_AT], column):
        if len(np.unique(part)) < len(part):
            return False
    return bool(float(column.max()) - float(column.min()) < _FILLED * len(column))


def _of(name: str, given: Any, j: int) -> str:
    labels = feature_labels(given)
    return f"column {j if labels is None else labels[j]!r} of {name}"
