"""Warnings for legal input that is usually a mistake, printed as `Check: ...`."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_PREDICTION = re.compile(
    r"(y|label|target|class|model)?[_ .-]?(pred|preds|predicted|prediction|predictions|"
    r"hat|proba?|probs|probability|probabilities|logits?|confidence)"
    r"([_ .-]?(y|label|target|class|\d+))?|scores?|scored[_ .-]labels?",
    re.I,
)
_MISSES = 0.02  # of the errors without a column; a column with fewer leaks the label
_ENOUGH = 10  # rows outside of the most frequent class, for a rule on the label


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """Collect the warnings of jaxsel as lines, each once, and let others pass."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield lines
    for warning in caught:
        if warning.category is UserWarning:
            line = " ".join(str(warning.message).split())
            lines += [line] if line not in lines else []
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def same_inputs(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line if TRAIN and VAL are the same file, by their sums."""
    by_role = {entry["role"]: entry for entry in inputs}
    train, val = by_role.get("train", {}), by_role.get("val", {})
    sums = train.get("sha256"), val.get("sha256")
    arrays = train.get("array"), val.get("array")
    if None in sums or sums[0] != sums[1] or arrays[0] != arrays[1]:
        return []
    return [
        f"VAL ({val['source']}) is TRAIN ({train['source']}): each sample finds itself "
        "there. Give other samples, or --split 0.2"
    ]


def leaking_columns(
    path: str, frame: Any, y: np.ndarray | None, remedy: str
) -> list[str]:
    """Return a line for each feature that tells the labels or is called a prediction.

    A column tells them if its values have one label each, but for a fiftieth of the
    rows outside of the most frequent class; or if its numbers lie in one cluster for
    each class, further apart than they are wide.

    Args:
        path: The table's name in messages.
        frame: The features.
        y: Labels of the rows; None looks at names only.
        remedy: Options that leave a column out.
    """
    lines: list[str] = []
    codes = None
    if y is not None and y.ndim == 1 and len(y) == len(frame):
        classes, codes = np.unique(y.astype(str), return_inverse=True)
        if len(y) - np.bincount(codes).max() < _ENOUGH or 2 * len(classes) > len(y):
            codes = None
    for name in frame.columns:
        if codes is not None and _tells(frame[name], codes):
            lines.append(
                f"column {name!r} of {path} alone tells the label of nearly every row, "
                "and counts as a feature: if it was made from the label, leave it out "
                f"with {remedy}"
            )
        elif _PREDICTION.fullmatch(name):
            lines.append(
                f"column {name!r} of {path} is called like a prediction, and counts as "
                f"a feature: if a model made it, leave it out with {remedy}"
            )
    return lines


def _tells(column: Any, codes: np.ndarray) -> bool:
    """Return whether values, or ranges of numbers, have one label each."""
    import pandas as pd

    places, values = pd.factorize(column, use_na_sentinel=False)
    if 10 * len(values) <= len(codes):
        table = np.zeros((len(values), codes.max() + 1), np.int64)
        np.add.at(table, (places, codes), 1)
        wrong = len(codes) - table.max(axis=1).sum()
        return bool(wrong <= _MISSES * (len(codes) - np.bincount(codes).max()))
    if not pd.api.types.is_numeric_dtype(column) or column.isna().any():
        return False
    numbers: np.ndarray = column.to_numpy(np.float64)
    low = np.full(codes.max() + 1, np.inf)
    high = -low
    np.minimum.at(low, codes, numbers)
    np.maximum.at(high, codes, numbers)
    gaps = np.sort(low)[1:] - np.sort(high)[:-1]
    return bool(np.all(gaps > np.max(high - low)))
