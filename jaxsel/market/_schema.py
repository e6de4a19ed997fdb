"""Schema of samples, features and labels, on which both sides must agree."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxsel._files.wire import check_fields, check_text, dtype_name, is_dtype
from jaxsel._inputs.checks import as_array, check_count, check_finite, check_numeric
from jaxsel._inputs.frames import names_of
from jaxsel._inputs.show import brief
from jaxsel.tables import TableEncoder

_LARGEST_SAMPLE = 1 << 31  # numbers
_LARGEST_NAMES = 1 << 26  # bytes of all classes, each as long as the longest


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
    """The form of the data that a request asks for.

    Attributes:
        sample_shape: Shape of one sample, such as (28, 28, 1); () for a text. None if
            the answer shall hold features only.
        sample_dtype: Type of its numbers, such as "<f4" or "|u1"; "text" for a text.
        n_features: Length of a feature vector, if the request shows features.
        columns: Names of the d columns of a table, if known.
        classes: All labels that there are, ascending: integers or texts. None if the
            request shows no labels.
        categories: Of a table of texts, the places of the columns that hold
            categories, ascending; the others hold numbers as texts, "" where one is
            missing. None if all hold categories, and for anything else.
    """

    sample_shape: tuple[int, ...] | None = None
    sample_dtype: str | None = None
    n_features: int | None = None
    columns: tuple[str, ...] | None = None
    classes: tuple[int, ...] | tuple[str, ...] | None = None
    categories: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.sample_shape is None and self.n_features is None:
            raise ValueError("schema must tell of samples, of features, or of both")
        if (self.sample_shape is None) != (self.sample_dtype is None):
            raise ValueError("schema must have both sample_shape and sample_dtype")
        if self.sample_shape is not None:
            for size in self.sample_shape:
                check_count("sample_shape", size)
            if math.prod(self.sample_shape) > _LARGEST_SAMPLE:
                raise ValueError(f"sample_shape is impossible: {self.sample_shape}")
            kind = check_text("sample_dtype", self.sample_dtype)
            if kind != "text" and (kind.startswith("<U") or not is_dtype(kind)):
                raise ValueError(f"sample_dtype is unknown: {kind[:40]!r}")
        if self.n_features is not None:
            check_count("n_features", self.n_features)
        if self.columns is not None:
            for name in self.columns:
                check_text("columns", name)
            if self.sample_shape != (len(self.columns),):
                raise ValueError(
                    f"columns must name the columns of a table, got "
                    f"{len(self.columns)} names for samples of shape "
                    f"{self.sample_shape}"
                )
        if self.classes is not None:
            _check_classes(self.classes)
        if self.categories is not None:
            places = [check_count("categories", c, minimum=0) for c in self.categories]
            shape = self.sample_shape or ()
            if self.sample_dtype != "text" or len(shape) != 1:
                raise ValueError("categories are for tables of texts")
            if sorted(set(places)) != places or any(c >= shape[0] for c in places):
                raise ValueError(
                    f"categories must be places of columns in [0, {shape[0]}), "
                    f"ascending, got {str(self.categories)[:40]}"
                )

    def check_samples(self, name: str, x: np.ndarray, *, gaps: bool = False) -> None:
        """Raise if samples have another form, or NaN without `gaps`."""
        if self.sample_shape is None:
            raise ValueError(f"{name} must not be given: the schema has features only")
        check_rows(name, x, gaps=gaps)
        if x.shape[1:] != self.sample_shape or kind_of(x) != self.sample_dtype:
            raise ValueError(
                f"{name} must hold samples of shape {self.sample_shape} and dtype "
                f"{self.sample_dtype}, got {x.shape[1:]} and {kind_of(x)}"
            )
        if self.categories is not None:
            for column in sorted(set(range(x.shape[1])) - set(self.categories)):
                _check_numbers(name, column, x[:, column])

    def check_features(self, name: str, features: np.ndarray) -> None:
        """Raise if features have another length or type."""
        if self.n_features is None:
            raise ValueError(f"{name} must not be given: the schema has none")
        check_rows(name, features)
        if features.shape[1:] != (self.n_features,) or features.dtype != np.float32:
            raise ValueError(
                f"{name} must have shape [n, {self.n_features}] and dtype float32, got "
                f"{features.shape} and {features.dtype}"
            )

    def check_labels(self, name: str, y: np.ndarray) -> None:
        """Raise if labels are none of the classes."""
        codes = self.encode(name, y)
        if len(codes) and codes.min() < 0:
            row = int(np.argmin(codes))
            raise ValueError(
                f"{name} must hold classes of the request, but row {row} holds "
                f"{str(y[row])[:40]!r}"
            )

    def encode(self, name: str, y: np.ndarray) -> np.ndarray:
        """Return each label's place among the classes, `[n]` int32; -1 for others."""
        if self.classes is None:
            raise ValueError(f"{name} must not be given: the request has no classes")
        classes = np.asarray(self.classes)
        if y.ndim != 1 or y.dtype.kind != classes.dtype.kind:
            raise ValueError(
                f"{name} must hold labels of shape [n], "
                f"{'integers' if classes.dtype.kind == 'i' else 'texts'} as in the "
                f"request ({listed(classes)}), got shape {y.shape} and dtype {y.dtype}"
                + (f" ({listed(y)})" if y.ndim == 1 else "")
            )
        places = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        return np.where(classes[places] == y, places, -1).astype(np.int32)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields to store in the header of a file."""
        fields: dict[str, tuple[Any, ...] | int | str | None] = dataclasses.asdict(self)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if name != "categories" or value is not None  # as before there were any
        }

    @classmethod
    def from_fields(cls, fields: dict[str, list[Any] | int | str | None]) -> Schema:
        """Return the schema that the header of a file holds, checked."""
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(fields, dict) or fields.get("categories") is None:
            names.remove("categories")
        check_fields("schema", fields, names)
        for name in names & {"sample_shape", "columns", "classes", "categories"}:
            if not isinstance(fields[name], list | None):
                raise ValueError(f"{name} must be a list or null")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        return cls(**values)


def listed(labels: np.ndarray) -> str:
    """Return distinct labels with commas, the first ten, texts in quotes."""
    distinct = np.unique(labels).tolist()
    more = f" and {len(distinct) - 10} others" if len(distinct) > 10 else ""
    return (
        ", ".join(
            f"{str(label)[:40]!r}" if isinstance(label, str) else str(label)
            for label in distinct[:10]
        )
        + more
    )


def misspelt(
    labels: np.ndarray, classes: np.ndarray, *, beside: bool = True
) -> np.ndarray:
    """Return the labels, distinct, that differ from a class in case or blanks only.

    Args:
        labels: Labels, `[n]`.
        classes: Labels of others.
        beside: Whether also where `labels` have that class itself: two spellings in one
            place may be two classes.
    """
    if labels.dtype.kind != "U" or classes.dtype.kind != "U":
        return labels[:0]
    known = {_folded(c) for c in np.unique(classes).tolist()}
    if not beside:
        known -= {_folded(c) for c in np.intersect1d(labels, classes).tolist()}
    others = np.setdiff1d(labels, classes)
    return others[np.array([_folded(c) in known for c in others.tolist()], bool)]


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def check_rows(name: str, array: np.ndarray, *, gaps: bool = False) -> None:
    """Raise unless the array is finite and has a first axis; `gaps` allows NaN."""
    if not isinstance(array, np.ndarray) or not array.ndim:
        raise TypeError(f"{name} must be an array, one row a sample")
    if gaps and array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(0), array)
    check_finite(name, array)


def kind_of(x: np.ndarray) -> str:
    """Return the type of samples as a schema names it: for texts, of any length."""
    return "text" if x.dtype.kind == "U" else dtype_name(x)


def as_samples(name: str, value: npt.ArrayLike, *, gaps: bool = False) -> np.ndarray:
    """Return finite samples `[n, ...]`, with texts in arrays of fixed length.

    With `gaps`, NaN passes: a missing number; and a table of numbers and texts becomes
    one of texts.
    """
    x = np.asarray(as_array(name, value))
    if gaps and x.dtype.kind == "O" and x.ndim == 2:
        x = np.stack([_written(name, column) for column in x.T], axis=1)
    if x.dtype.kind in "OS" and x.ndim == 1:
        x = _as_texts(name, x)
    if not x.ndim or not len(x) or (x.dtype.kind != "U" and x.ndim < 2):
        raise ValueError(
            f"{name} must have shape [n, d] or [n, ...], or hold n texts, got shape "
            f"{x.shape} and dtype {x.dtype}"
        )
    try:
        kind_of(x)
    except TypeError as error:
        raise TypeError(f"{name} {error}") from error
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    check_rows(name, x, gaps=gaps)
    return x


def encoded(name: str, value: Any, encoder: TableEncoder | None) -> Any:
    """Return a table as numbers, if there is an encoder; anything else as it is.

    Raises:
        ValueError: If it has other columns than the table that was fitted.
    """
    if encoder is None or names_of(value) is None:
        return value
    try:
        return encoder.transform(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def categories_of(value: npt.ArrayLike) -> tuple[int, ...] | None:
    """Return which columns of a table of objects hold categories; None of others."""
    x = np.asarray(as_array("x", value))
    if x.dtype.kind != "O" or x.ndim != 2:
        return None
    return tuple(j for j, column in enumerate(x.T) if not _is_numeric(column))


def as_vectors(name: str, value: npt.ArrayLike) -> np.ndarray:
    """Return finite features `[n, d]` in float32."""
    features = np.asarray(as_array(name, value))
    check_numeric(name, features)
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"{name} must have shape [n, d], not empty, got {features.shape}"
        )
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    check_finite(name, features)
    return features


def as_labels(name: str, value: npt.ArrayLike) -> np.ndarray:
    """Return labels `[n]` as int64, or as texts."""
    y = np.asarray(as_array(name, value))
    if y.ndim != 1:
        raise ValueError(f"{name} must have shape [n], got {y.shape}")
    if y.dtype.kind in "OS":
        y = _as_texts(name, y)
    if y.dtype.kind == "U":
        return y
    if y.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold classes, integers or texts, got {y.dtype}")
    whole = (y == np.round(y)) & (y < 2.0**63) & (y >= -(2.0**63))
    if not whole.all():
        raise TypeError(
            f"{name} must hold classes, integers of 64 bits or texts, got "
            f"{y[~whole][0]}"
        )
    return y.astype(np.int64)


def _as_texts(name: str, array: np.ndarray) -> np.ndarray:
    if not all(isinstance(item, str) for item in array.tolist()):
        raise TypeError(f"{name} must hold numbers or texts, got objects")
    return array.astype(str)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and value != value)


def _is_numeric(column: np.ndarray) -> bool:
    known = [value for value in column if not _is_missing(value)]
    return all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in known)


def _written(name: str, column: np.ndarray) -> np.ndarray:
    """Return a column of numbers or texts as texts; missing ones are empty."""
    if _is_numeric(column):
        return np.array(["" if _is_missing(v) else repr(float(v)) for v in column])
    texts = ["" if _is_missing(value) else value for value in column]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f"{name} must have columns of numbers or of texts, got objects or a mixture"
        )
    return np.array(texts)


def _check_numbers(name: str, column: int, texts: np.ndarray) -> None:
    """Raise unless a column of texts holds finite numbers."""
    try:
        wrong = not np.isfinite(texts[texts != ""].astype(np.float64)).all()
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(
            f"{name} must hold finite numbers, written as texts, in column {column}"
        )


def _check_classes(classes: Sequence[Any]) -> None:
    if not classes:
        raise ValueError("classes must not be empty")
    if isinstance(classes[0], str):
        for name in classes:
            check_text("classes", name, empty=True)
    for kind in classes:
        if type(kind) is not type(classes[0]) or type(kind) not in (int, str):
            raise TypeError("classes must be all integers, or all texts")
        if isinstance(kind, int) and not -(2**63) <= kind < 2**63:
            raise ValueError(f"classes must be integers of 64 bits, got {kind}")
    if isinstance(classes[0], str):
        size = 4 * len(classes) * max(map(len, classes))
        if size > _LARGEST_NAMES:
            raise ValueError(
                f"classes must fit {_LARGEST_NAMES} bytes as texts of one length, got "
                f"{size}: give them shorter names"
            )
    if any(a >= b for a, b in zip(classes, classes[1:], strict=False)):
        raise ValueError("classes must be in ascending order, each once")
