"""Columns as an encoder knows them: plain numbers and texts, which can be written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxsel._files.codec import Json, decode
from jaxsel._inputs.texts import FORMS

_ROUNDING = 1e-6  # relative difference that other arithmetic may make


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A column of numbers, or of dates as days since 1970.

    Attributes:
        name: Name of the column.
        kind: "number" or "date".
        median: Value that fills gaps.
        mean: Mean of the column, gaps filled.
        scale: Its standard deviation, or 1.
        gaps: Whether one more feature marks gaps.
        form: Format of texts, one of `FORMS`; "" also for numbers and dates.
    """

    name: str
    kind: str
    median: float
    mean: float
    scale: float
    gaps: bool
    form: str = dataclasses.field(default="", metadata={"omit": True})

    def __post_init__(self) -> None:
        if type(self.name) is not str:
            raise ValueError(f"name must be a text, got {self.name!r}")
        if self.kind not in ("number", "date"):
            raise ValueError(f"kind must be 'number' or 'date', got {self.kind!r}")
        for field in ("median", "mean", "scale"):
            value = getattr(self, field)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{field} must be a finite number, got {value!r}")
        if self.scale <= 0:
            raise ValueError(f"scale must be above 0, got {self.scale}")
        if type(self.gaps) is not bool:
            raise ValueError(f"gaps must be true or false, got {self.gaps!r}")
        if self.form not in FORMS:
            raise ValueError(f"form must be one of {FORMS}, got {self.form!r}")

    def scaled(self, column: Any) -> np.ndarray:
        """Return the feature of the numbers, `[n]`."""
        values: np.ndarray = column.to_numpy(np.float64)
        filled = np.where(np.isnan(values), self.median, values)
        return (filled - self.mean) / self.scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category:
    """A column of categories.

    Attributes:
        name: Of the column.
        categories: Those with a feature of their own; None is a gap.
        others: Whether one feature stands for all others.
        rare: Share of the rows that these had in the table that was fitted.
    """

    name: str
    categories: Sequence[str | None]
    others: bool
    rare: float = dataclasses.field(default=0.0, metadata={"omit": True})

    kind = "category"

    def __post_init__(self) -> None:
        if type(self.name) is not str:
            raise ValueError(f"name must be a text, got {self.name!r}")
        if type(self.others) is not bool:
            raise ValueError(f"others must be true or false, got {self.others!r}")
        if type(self.rare) not in (int, float) or not 0 <= self.rare <= 1:
            raise ValueError(f"rare must be from 0 to 1, got {self.rare!r}")
        names = self.categories
        if not isinstance(names, list | tuple) or not all(
            name is None or type(name) is str for name in names
        ):
            raise ValueError("categories must be texts or null")
        if len(set(names)) < len(names) or not len(names) + self.others:
            raise ValueError("categories must differ, and be one or more")

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: "work=private", "work missing", "work others"."""
        named = [
            f"{self.name} missing" if c is None else f"{self.name}={c}"
            for c in self.categories
        ]
        return [*named, f"{self.name} others"] if self.others else named

    def unseen(self, column: Any) -> list[str]:
        """List the values without a feature of their own, one a row, gaps aside."""
        known = set(self.categories)
        return [
            text for text in column.tolist() if text is not None and text not in known
        ]

    def one_hot(self, column: Any) -> np.ndarray:
        """Return the features, `[n, len(feature_names)]`."""
        places = {category: i for i, category in enumerate(self.categories)}
        size = len(places) + self.others
        indices = [places.get(text, len(places)) for text in column.tolist()]
        return np.eye(len(places) + 1)[np.array(indices, int)][:, :size]


Column = Number | Category


def features(columns: Sequence[Column], frame: Any) -> np.ndarray:
    """Return numbers, then where they have gaps, then categories, `[n, d]`."""
    numeric = [c for c in columns if isinstance(c, Number)]
    parts = [c.scaled(frame[c.name])[:, None] for c in numeric]
    parts += [
        frame[c.name].isna().to_numpy(np.float64)[:, None] for c in numeric if c.gaps
    ]
    parts += [c.one_hot(frame[c.name]) for c in columns if isinstance(c, Category)]
    return np.concatenate(parts, axis=1)


def feature_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the names of these features."""
    numeric = [c for c in columns if isinstance(c, Number)]
    names = [c.name for c in numeric]
    names += [f"{c.name} missing" for c in numeric if c.gaps]
    for column in columns:
        if isinstance(column, Category):
            names += column.feature_names
    return tuple(names)


def numbers_of(columns: Sequence[Column], x: np.ndarray) -> np.ndarray:
    """Return the numbers and days that features `[n, d]` stand for, NaN for gaps.

    Raises:
        ValueError: If no table has such features; the message names row and feature.
    """
    numeric = [c for c in columns if isinstance(c, Number)]
    categories = [c for c in columns if isinstance(c, Category)]
    names = feature_names(columns)
    start = sum(not isinstance(c, Category) for c in columns)
    raw = x[:, :start] * [c.scale for c in numeric] + [c.mean for c in numeric]
    _check_units(names, x, start)
    for j, column in enumerate(numeric):
        if column.gaps:
            gap = x[:, start] == 1
            off = np.abs(raw[:, j] - column.median) > _ROUNDING * max(
                column.scale, abs(column.median)
            )
            if (gap & off).any():
                row = int(np.argmax(gap & off))
                raise ValueError(
                    f"row {row} has {x[row, j]:.6g} in {column.name!r} where "
                    f"{names[start]!r} is 1: a gap has the median there"
                )
            raw[gap, j] = np.nan
            start += 1
    for column in categories:
        end = start + len(column.feature_names)
        ones = x[:, start:end].sum(axis=1)
        allowed = "1" if column.others else "1, or to 0 for a category never met"
        wrong = (ones > 1) | ((ones < 1) & column.others)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"row {row} has {ones[row]:g} of the categories of {column.name!r} at "
                f"once: these features must add up to {allowed}"
            )
        start = end
    return raw


def _check_units(names: Sequence[str], x: np.ndarray, start: int) -> None:
    """Raise if numbers from column `start` on are not 0 or 1."""
    units = x[:, start:]
    wrong = (units != 0) & (units != 1)
    if wrong.any():
        row, j = np.argwhere(wrong)[0]
        raise ValueError(
            f"row {row} has {units[row, j]:.6g} in {names[start + j]!r}, which must be "
            f"0 or 1 ({int(wrong.any(axis=1).sum())} of {len(x)} rows)"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """An encoder as it is written, but for format and version.

    Attributes:
        max_categories: See `TableEncoder`.
        columns: The columns as JSON, in order.
        plan: See `TableEncoder`.
    """

    max_categories: int
    columns: Sequence[Json]
    plan: dict[str, str]

    def __post_init__(self) -> None:
        if type(self.max_categories) is not int:
            raise ValueError(
                f"max_categories must be a whole number, got {self.max_categories!r}"
            )
        if not isinstance(self.columns, list) or not self.columns:
            raise ValueError("columns must be a list, not empty")
        if not isinstance(self.plan, dict) or not all(
            isinstance(text, str) for text in self.plan.values()
        ):
            raise ValueError("plan must hold a text for each column")


def read_columns(written: Sequence[Json]) -> tuple[Column, ...]:
    """Return columns that `encode` wrote, checked as untrusted input.

    Raises:
        ValueError: If they are something else.
    """
    columns = tuple(
        decode(_kind(fields), fields, f"columns[{i}]")
        for i, fields in enumerate(written)
    )
    if len({column.name for column in columns}) < len(columns):
        raise ValueError("columns must have different names")
    return columns


def _kind(fields: Json) -> type[Column]:
    is_category = isinstance(fields, dict) and "categories" in fields
    return Category if is_category else Number
