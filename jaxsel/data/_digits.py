"""Handwritten digits that come with scikit-learn: no download."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from jaxsel._inputs.checks import check_choice

from ._dataset import Dataset

_SLICE = re.compile(r"(\w+)\[(-?\d+%?)?:(-?\d+%?)?\]")


def load_digits(split: str) -> Dataset:
    """Return one split of the 1797 digits, uint8 `[n, 8, 8, 1]`.

    There is no official split of these. Ours is fixed: in the order of the file, every
    fifth image of each class is in "test" (355), the others in "train" (1442), so that
    both hold the classes in equal shares; "all" is everything. Writers occur in both.

    The 17 grey levels 0..16 become 0..240 (times 15), which keeps distances in exact
    proportion. A slice such as "train[:100]" or "train[80%:]" keeps the file's order.
    """
    part = _SLICE.fullmatch(split)
    whole = split if part is None else part[1]
    check_choice("split", whole, ("train", "test", "all"))
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError as error:
        raise ImportError(
            "digits come with scikit-learn: pip install 'jaxsel[data]'"
        ) from error
    bunch: Any = bundled()
    labels = np.asarray(bunch.target, np.int64)
    place = np.zeros(len(labels), np.int64)
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        place[rows] = np.arange(len(rows))
    is_test = place % 5 == 4
    keep = np.flatnonzero({"train": ~is_test, "test": is_test}.get(whole, labels >= 0))
    if part is not None:
        keep = keep[_place(part[2], len(keep)) : _place(part[3], len(keep))]
    return Dataset(
        x=(np.asarray(bunch.images)[keep, :, :, None] * 15).astype(np.uint8),
        y=labels[keep],
        ids=keep,
        class_names=tuple(map(str, range(10))),
    )


def _place(bound: str | None, n: int) -> int | None:
    """Return a bound of a slice of `n` samples, which may be a percentage."""
    if bound is None:
        return None
    return round(n * int(bound[:-1]) / 100) if bound.endswith("%") else int(bound)
