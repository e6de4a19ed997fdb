"""Requests of trainers, as objects and files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._files.wire import MAX_BYTES, Format, check_fields, check_id, reading, write
from jaxsel._inputs.checks import check_choice, check_count, check_same_length
from jaxsel._inputs.frames import names_of
from jaxsel.tables import TableEncoder

from ._methods import METHODS
from ._schema import (
    Schema,
    as_labels,
    as_samples,
    as_vectors,
    categories_of,
    encoded,
    kind_of,
)

FORMAT = Format("jaxsel.market", 1)
MAX_BUDGET = 1_000_000  # samples: nobody sends more for a handful of hard ones

_ARRAYS = ("features", "x", "y")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Trainer's request to owners: hard samples, budget and method.

    `make_request` makes one. It has no field for a model, and its file holds these
    arrays and no others.

    Attributes:
        id: 32 hexadecimal digits, drawn at random.
        budget: Maximum number of samples of an answer, up to 1,000,000.
        method: Requested method of choice; the answer names the method used.
        schema: The form of samples, features and labels.
        x: Hard samples, `[m, ...]`, or None: then `features` stand for them.
        y: Their labels, `[m]`: integers or texts. None if they are not known.
        features: Their features, `[m, d]`, float32, or None.
        encoder: Encoder of tables on both sides, or None. Owners see its fitted state.
    """

    id: str
    budget: int
    method: str
    schema: Schema
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    features: np.ndarray | None = None
    encoder: TableEncoder | None = None

    def __post_init__(self) -> None:
        check_id("id", self.id)
        if check_count("budget", self.budget) > MAX_BUDGET:
            raise ValueError(
                f"budget must be at most {MAX_BUDGET} samples, got {self.budget}"
            )
        check_choice("method", self.method, tuple(METHODS))
        if self.x is not None:
            self.schema.check_samples("x", self.x, gaps=self.gaps)
        if self.features is not None:
            self.schema.check_features("features", self.features)
        shown = [a for a in (self.x, self.features) if a is not None]
        if not shown or not len(shown[0]):
            raise ValueError("a request must show samples, or features of samples")
        if (self.features is None) != (self.schema.n_features is None):
            raise ValueError("n_features of the schema must be that of features")
        if (self.y is None) != (self.schema.classes is None):
            raise ValueError("a request must have both labels and classes, or neither")
        if self.y is not None:
            self.schema.check_labels("y", self.y)
            shown.append(self.y)
        for array in shown:
            check_same_length("x or features", shown[0], "the other arrays", array)
        if self.encoder is not None and (
            self.schema.columns != self.encoder.feature_names
            or self.schema.sample_dtype == "text"
        ):
            raise ValueError("columns of the schema must be those that encoder makes")

    def __len__(self) -> int:
        """Return the number of hard samples."""
        shown = self.features if self.x is None else self.x
        return 0 if shown is None else len(shown)

    def __repr__(self) -> str:
        return (
            f"Request({self.id[:8]}, {len(self)} hard samples, budget={self.budget}, "
            f"method={self.method!r})"
        )

    @property
    def gaps(self) -> bool:
        """True if samples may have missing numbers (NaN): only "binned" allows them."""
        return METHODS[self.method].table

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file in one step, and return its path."""
        fields = {
            "id": self.id,
            "budget": self.budget,
            "method": self.method,
            "schema": self.schema.to_fields(),
        }
        if self.encoder is not None:
            fields["encoder"] = self.encoder.to_json()
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return write(FORMAT, path, "request", fields, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES
    ) -> Request:
        """Read a request from a file that `save` wrote.

        Args:
            path: The file.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If `max_bytes` is no whole number.
            ValueError: If it holds anything else, is damaged or too large; the message
                names the file and the field. If `max_bytes` is less than 1.
        """
        with reading(FORMAT, path, "request", _ARRAYS, max_bytes) as (fields, arrays):
            names = {"id", "budget", "method", "schema"}
            if isinstance(fields, dict) and fields.get("encoder") is not None:
                names.add("encoder")
            check_fields("fields", fields, names)
            known: dict[str, Any] = {**fields, **arrays}
            known["schema"] = Schema.from_fields(fields["schema"])
            if "encoder" in names:
                known["encoder"] = TableEncoder.from_json(fields["encoder"])
            return cls(**known)


def make_request(
    x: npt.ArrayLike | None = None,
    y: npt.ArrayLike | None = None,
    *,
    budget: int,
    method: str = "retrieve",
    features: npt.ArrayLike | None = None,
    sample_shape: Sequence[int] | None = None,
    sample_dtype: npt.DTypeLike | None = None,
    columns: Sequence[str] | None = None,
    classes: Sequence[int] | Sequence[str] | None = None,
    encoder: TableEncoder | None = None,
    key: jax.Array | None = None,
) -> Request:
    """Make a request out of hard samples, or of their features alone.

    Args:
        x: Hard samples: numbers `[m, ...]`, or `[m]` texts. None keeps them private.
            With the method "binned", NaN is a missing number, and a data frame may have
            columns of numbers and of texts.
        y: Their labels, `[m]`: integers or texts. None if they are not known; owners
            then choose by features only.
        budget: Maximum number of samples of an answer, up to 1,000,000.
        method: Requested method of choice, one of `METHODS`.
        features: Features of the hard samples, `[m, d]`, from an encoder that owners
            have as well.
        sample_shape: Shape of the samples to send, where `x` is None. Without it,
            owners send features.
        sample_dtype: Their type, which must come along with `sample_shape`.
        columns: Names of the columns of a table; if None, the columns of `x` where it
            is a data frame.
        classes: All possible labels; the labels in `y` if None.
        encoder: Fitted on a table of the trainer's, for tables with categories, dates
            or gaps: it makes numbers of `x`, of owners' tables, and of the trainer's
            own when answers are ranked. It goes along with the request, so that owners
            see the medians, standard deviations and categories of that table.
        key: Key of the request's id; drawn from the operating system if None.

    Returns:
        The request.

    Raises:
        TypeError: If arrays are of types that files can't hold.
        ValueError: If the arguments differ in length, hold NaN or infinity, or there is
            neither `x` nor `features`.
    """
    if x is None and features is None:
        raise ValueError("x or features must be given: nothing would be shown")
    if x is not None and (sample_shape is not None or sample_dtype is not None):
        raise ValueError("sample_shape and sample_dtype are for requests without x")
    if (sample_shape is None) != (sample_dtype is None):
        raise ValueError("sample_shape and sample_dtype must come together")
    if y is None and classes is not None:
        raise ValueError("classes must not be given without y")
    check_choice("method", method, tuple(METHODS))
    if encoder is not None:
        if x is None or columns is not None:
            raise ValueError("encoder needs x, and names the columns by itself")
        x, columns = encoded("x", x, encoder), encoder.feature_names
    gaps = METHODS[method].table
    samples = None if x is None else as_samples("x", x, gaps=gaps)
    columns = names_of(x) if columns is None else columns
    vectors = None if features is None else as_vectors("features", features)
    labels = None if y is None else as_labels("y", y)
    if samples is not None:
        sample_shape, kind = samples.shape[1:], kind_of(samples)
    elif sample_shape is not None:
        try:
            kind = kind_of(np.empty(0, sample_dtype))
        except TypeError as error:
            raise TypeError(f"sample_dtype {error}") from error
    else:
        kind = None
    if labels is not None:
        all_labels = labels if classes is None else as_labels("classes", classes)
        known = tuple(np.unique(all_labels).tolist())
    else:
        known = None
    schema = Schema(
        sample_shape=None if sample_shape is None else tuple(sample_shape),
        sample_dtype=kind,
        n_features=None if vectors is None else vectors.shape[1],
        columns=None if columns is None else tuple(columns),
        classes=known,
        categories=categories_of(x) if x is not None and kind == "text" else None,
    )
    return Request(
        id=_random_id(key),
        budget=budget,
        method=method,
        schema=schema,
        x=samples,
        y=labels,
        features=vectors,
        encoder=encoder,
    )


def _random_id(key: jax.Array | None) -> str:
    if key is None:
        return os.urandom(16).hex()
    return (
        np.asarray(jax.random.bits(key, (4,), np.uint32)).astype("<u4").tobytes().hex()
    )
