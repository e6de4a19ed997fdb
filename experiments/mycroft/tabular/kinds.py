"""Real tables with several kinds of positives, as attacks on a network are."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from jaxsel.data import Dataset, load

TABLES = ("adult", "digits")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KindTable:
    """A table of two classes with kinds of positives.

    Attributes:
        x: `[n, d]`, float32: numbers, and categories as codes 0, 1, ...
        categorical: Which columns hold codes.
        positive: Which rows are positives, `[n]` of bool.
        kind: Index of a row's kind, `[n]`; -1 for none. Negatives of kind -1 serve
            every kind, the others their own.
        kinds: Names of the kinds.
    """

    x: np.ndarray
    categorical: tuple[int, ...]
    positive: np.ndarray
    kind: np.ndarray
    kinds: tuple[str, ...]

    @functools.cached_property
    def _wide(self) -> np.ndarray:
        """All columns, categories one-hot, `[n, e]`."""
        parts = []
        for i, column in enumerate(self.x.T):
            one_hot = column[:, None] == np.unique(column)
            parts.append(one_hot if i in self.categorical else column[:, None])
        return np.concatenate(parts, axis=1).astype(np.float64)

    @functools.cached_property
    def _numbers(self) -> np.ndarray:
        spread = self._wide.std(axis=0)
        spread[spread == 0] = 1
        return ((self._wide - self._wide.mean(axis=0)) / spread).astype(np.float32)

    @functools.cached_property
    def _shares(self) -> np.ndarray:
        low, width = self._wide.min(axis=0), np.ptp(self._wide, axis=0)
        scaled = (self._wide - low) / np.where(width > 0, width, 1)
        return scaled / np.maximum(scaled.sum(axis=1, keepdims=True), 1e-9)

    def known(self, rows: np.ndarray) -> Known:
        """Return some rows in all forms that distances take."""
        return Known(self.x[rows], self._numbers[rows], self._shares[rows])


class Known(NamedTuple):
    """Rows of a table, in the forms that distances take.

    Attributes:
        x: `[n, d]`.
        numbers: Categories one-hot, all columns standardised, `[n, e]`.
        shares: Categories one-hot, all columns from 0 to 1, then each row divided by
            its sum: distributions, `[n, e]`.
    """

    x: np.ndarray
    numbers: np.ndarray
    shares: np.ndarray


def adult_kinds(adult: Dataset) -> KindTable:
    """Cut the high incomes of Adult into six kinds, by rules over its columns."""
    x, names, categorical, is_in = _decode(adult)
    gain, loss = x[:, names.index("capital-gain")], x[:, names.index("capital-loss")]
    married = is_in("marital-status=Married-civ-spouse")
    rules = {
        "large capital gain": gain > 7000,
        "large capital loss": loss > 1500,
        "not married": ~married,
        "married woman": is_in("sex=Female"),
        "married man with a degree": x[:, names.index("education-num")] >= 13,
        "other married man": np.ones(len(x), bool),
    }
    kind = np.argmax(np.stack(list(rules.values())), axis=0)  # the first that holds
    # Small gains and losses would blur the other kinds.
    blurred = (kind > 1) & ((gain > 0) | (loss > 0))
    return KindTable(
        x=x,
        categorical=categorical,
        positive=adult.y == 1,
        kind=np.where((adult.y == 1) & ~blurred, kind, -1),
        kinds=tuple(rules),
    )


def adult_occupations(adult: Dataset, n_kinds: int = 5) -> KindTable:
    """Take occupations for kinds, of negatives too, and drop the column itself.

    Only those with the most high incomes.
    """
    x, names, categorical, _ = _decode(adult)
    column = names.index("occupation")
    code = x[:, column].astype(int)
    most = np.argsort(-np.bincount(code[adult.y == 1]), kind="stable")[:n_kinds]
    titles = [
        name.partition("=")[2]
        for name in adult.feature_names or ()
        if name.startswith("occupation=")
    ]
    return KindTable(
        x=np.delete(x, column, axis=1),
        categorical=tuple(i - (i > column) for i in categorical if i != column),
        positive=adult.y == 1,
        kind=np.where(code[:, None] == most, np.arange(n_kinds), -1).max(axis=1),
        kinds=tuple(titles[i] for i in most),
    )


def digit_kinds(digits: Dataset) -> KindTable:
    """Take the digits 5 to 9 for kinds of positives, and 0 to 4 for negatives."""
    x = digits.x.reshape(len(digits), -1).astype(np.float32)
    return KindTable(
        x=x,
        categorical=(),
        positive=digits.y >= 5,
        kind=np.where(digits.y >= 5, digits.y - 5, -1),
        kinds=tuple(f"the digit {i}" for i in range(5, 10)),
    )


def load_table(name: str) -> tuple[KindTable, KindTable | None]:
    """Return a table of `TABLES`, and one with natural groups for kinds, if any."""
    if name == "digits":
        return digit_kinds(load("digits", split="all")), None
    adult = load("adult", split="train+test")
    return adult_kinds(adult), adult_occupations(adult)


def _decode(adult: Dataset):
    """Turn one-hot columns, named `column=category`, back into codes."""
    columns: dict[str, list[int]] = {}
    for i, name in enumerate(adult.feature_names or ()):
        columns.setdefault(name.partition("=")[0], []).append(i)
    x = np.stack(
        [
            adult.x[:, indices[0]]
            if len(indices) == 1
            else adult.x[:, indices].argmax(axis=1)
            for indices in columns.values()
        ],
        axis=1,
    ).astype(np.float32)

    def is_in(category: str) -> np.ndarray:
        return adult.x[:, (adult.feature_names or ()).index(category)] == 1

    categorical = tuple(
        i for i, indices in enumerate(columns.values()) if len(indices) > 1
    )
    return x, list(columns), categorical, is_in
