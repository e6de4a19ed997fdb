"""Columns as an encoder knows them: plain numbers and texts, which can be written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Json: TypeAlias = "dict[str, Json] | list[Json] | str | float | None"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A column of numbers, or of dates as days since 1970.

    Attributes:
        name: Of the column.
        kind: "number" or "date".
        median: What a gap gets.
        mean: Of the column, gaps filled.
        scale: Its standard deviation, or 1.
        gaps: Whether a feature more says where there was a gap.
    """

    name: str
    kind: str
    median: float
    mean: float
    scale: float
    gaps: bool

    def __post_init__(self) -> None:
        if self.kind not in ("number", "date"):
            raise ValueError(f"kind must be number, date or category: {self.kind!r}")
        for field in ("median", "mean", "scale"):
            value = getattr(self, field)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise ValueError(f"{field} of column {self.name!r} must be finite")
        if self.scale <= 0:
            raise ValueError(f"scale of column {self.name!r} must be positive")
        if type(self.gaps) is not bool:
            raise ValueError(f"gaps of column {self.name!r} must be true or false")

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
    """

    name: str
    categories: tuple[str | None, ...]
    others: bool

    def __post_init__(self) -> None:
        names = self.categories
        if not all(c is None or type(c) is str for c in names):
            raise ValueError(f"categories of column {self.name!r} must be texts")
        if len(set(names)) < len(names) or not len(names) + self.others:
            raise ValueError(f"categories of column {self.name!r} must differ")
        if type(self.others) is not bool:
            raise ValueError(f"others of column {self.name!r} must be true or false")

    @property
    def feature_names(self) -> list[str]:
        """Names of the features: "work=private", "work missing", "work others"."""
        named = [
            f"{self.name} missing" if c is None else f"{self.name}={c}"
            for c in self.categories
        ]
        return [*named, f"{self.name} others"] if self.others else named

    def one_hot(self, column: Any) -> np.ndarray:
        """Return the features, `[n, len(feature_names)]`."""
        places = {category: i for i, category in enumerate(self.categories)}
        size = len(places) + self.others
        found = [places.get(text, len(places)) for text in column.tolist()]
        return np.eye(len(places) + 1)[np.array(found, int)][:, :size]


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


def to_fields(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Return columns as JSON knows them."""
    return [dataclasses.asdict(column) for column in columns]


def from_fields(fields: Json) -> tuple[Column, ...]:
    """Check and return what `to_fields` wrote, which may come from anybody.

    Raises:
        ValueError: If it is something else.
    """
    if not isinstance(fields, list) or not fields:
        raise ValueError("columns must be a list, not empty")
    found = tuple(_column(values) for values in fields)
    if len({column.name for column in found}) < len(found):
        raise ValueError("columns must have different names")
    return found


def _column(fields: Json) -> Column:
    known: dict[str, Any] = fields if isinstance(fields, dict) else {}
    kind: type[Column] = Category if "categories" in known else Number
    wanted = sorted(field.name for field in dataclasses.fields(kind))
    if sorted(known) != wanted:
        raise ValueError(f"a column must have the fields {', '.join(wanted)}")
    if type(known["name"]) is not str:
        raise ValueError("the name of a column must be a text")
    if kind is Category:
        categories: Json = known["categories"]
        if not isinstance(categories, list):
            raise ValueError("categories must be a list")
        known = {**known, "categories": tuple(categories)}
    return kind(**known)
