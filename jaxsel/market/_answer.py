"""Answers of owners, as objects and files."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxsel._files.wire import (
    HEAD_BYTES,
    MAX_BYTES,
    check_fields,
    check_id,
    check_text,
    reading,
    write,
)
from jaxsel._inputs.checks import check_choice, check_count, check_same_length

from ._methods import METHODS
from ._names import check_owner
from ._request import FORMAT, Request
from ._schema import check_rows

STATUSES = ("complete", "short", "capped", "refused")

_FIELDS = ("request_id", "owner", "method", "status", "reason", "pseudo_labels")
_ARRAYS = ("features", "weights", "x", "y")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """Owner's answer to a request: at most as many samples as the budget.

    Attributes:
        request_id: The request's `id`.
        owner: The owner's name: at most 100 printable characters, in Unicode's normal
            form NFKC, letters of one script, and no blanks at the ends.
        method: How the samples were chosen.
        status: "complete" if there are as many as the budget; "capped" if the
            owner's own limits allow no more; "short" if there are fewer for
            another reason; "refused" if the owner declines.
        reason: Why, in words; empty if complete.
        weights: Array of shape `[k]`, float32: training weights, not negative. In the
            order of choice, as the other arrays.
        x: Samples, `[k, ...]`; None if the schema has features only.
        features: Features, `[k, d]`, float32; None if the schema has samples.
        y: Labels, `[k]`; None if neither side has any.
        pseudo_labels: Whether the labels are those of the nearest hard samples.
    """

    request_id: str
    owner: str
    method: str
    status: str
    reason: str = ""
    weights: np.ndarray
    x: np.ndarray | None = None
    features: np.ndarray | None = None
    y: np.ndarray | None = None
    pseudo_labels: bool = False

    def __post_init__(self) -> None:
        check_id("request_id", self.request_id)
        check_owner("owner", self.owner)
        check_choice("method", self.method, tuple(METHODS))
        check_choice("status", self.status, STATUSES)
        check_text("reason", self.reason, empty=True)
        if not isinstance(self.pseudo_labels, bool):
            raise TypeError(f"pseudo_labels must be a bool, got {self.pseudo_labels!r}")
        weights = self.weights
        if not (
            isinstance(weights, np.ndarray)
            and weights.ndim == 1
            and weights.dtype == np.float32
            and np.all(np.isfinite(weights) & (weights >= 0))
        ):
            about = f"{getattr(weights, 'dtype', type(weights).__name__)}"
            raise ValueError(
                "weights must be finite, not negative, float32 and of shape [k], got "
                f"{about} of shape {np.shape(weights)}, or other values"
            )
        if (self.x is None) == (self.features is None):
            raise ValueError("an answer must hold samples or features, and not both")
        if self.status == "refused" and len(weights):
            raise ValueError("status must not be 'refused' where samples are sent")
        for name in ("x", "features", "y"):
            array = getattr(self, name)
            if array is not None:
                check_rows(name, array, gaps=name == "x")
                check_same_length(name, array, "weights", weights)
        if self.y is not None and (self.y.ndim != 1 or self.y.dtype.kind not in "iU"):
            raise ValueError("y must hold labels of shape [k], integers or texts")

    def __len__(self) -> int:
        """Return the number of samples sent."""
        return len(self.weights)

    def __repr__(self) -> str:
        return (
            f"Answer({self.owner!r} to {self.request_id[:8]}, {len(self)} samples, "
            f"method={self.method!r}, status={self.status!r})"
        )

    def check(self, request: Request) -> None:
        """Raise unless this is an answer to the request.

        Raises:
            ValueError: If it answers another request, exceeds the budget, holds NaN or
                infinity, labels of no class, or samples of another form.
        """
        if self.request_id != request.id:
            raise ValueError(
                f"request_id must be {request.id}, got {self.request_id}: it answers "
                "another request"
            )
        if len(self) > request.budget:
            raise ValueError(
                f"weights must be within the budget of {request.budget} samples, got "
                f"{len(self)}"
            )
        if self.status == "complete" and len(self) < request.budget:
            raise ValueError(
                f"status must not be 'complete' with {len(self)} samples of a budget "
                f"of {request.budget}"
            )
        schema = request.schema
        if schema.sample_shape is not None and self.x is None:
            raise ValueError("x must be there: the request asks for samples")
        if self.x is not None:
            schema.check_samples("x", self.x, gaps=request.gaps)
        if self.features is not None:
            schema.check_features("features", self.features)
        if schema.classes is not None:
            if self.y is None:
                raise ValueError("y must be there: the request has labels")
            schema.check_labels("y", self.y)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file in one step, and return its path."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return write(FORMAT, path, "answer", fields, arrays)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        request: Request,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> Answer:
        """Read an answer to the request from a file that `save` wrote.

        Args:
            path: The file.
            request: The request that it must answer.
            max_bytes: Largest file to read.

        Raises:
            FileNotFoundError: If there is no such file.
            TypeError: If `max_bytes` is no whole number.
            ValueError: If it holds anything else, is damaged or too large, or does not
                pass `check`; the message names the file and the field. If `max_bytes`
                is less than 1.
        """
        check_count("max_bytes", max_bytes)
        _check_size(path, request)
        with reading(FORMAT, path, "answer", _ARRAYS, max_bytes) as (fields, arrays):
            check_fields("fields", fields, set(_FIELDS))
            if "weights" not in arrays:
                raise ValueError("weights are missing")
            values: dict[str, Any] = {**fields, **arrays}
            answer = cls(**values)
            answer.check(request)
            return answer


def _check_size(path: str | os.PathLike[str], request: Request) -> None:
    """Raise, before reading it, if a file is too large for an answer in the budget."""
    schema, file = request.schema, Path(path)
    texts = schema.classes is None or isinstance(schema.classes[0], str)
    if schema.sample_dtype == "text" or texts or not file.is_file():
        return  # texts have any length
    if schema.sample_shape is None:
        sample = 4 * (schema.n_features or 0)
    else:
        sample = math.prod(schema.sample_shape) * np.dtype(schema.sample_dtype).itemsize
    most = HEAD_BYTES + request.budget * (sample + 4 + 8)  # weight and label
    size = file.stat().st_size
    if size > most:
        raise ValueError(
            f"{os.fspath(path)} is refused: it has {size} bytes, more than the {most} "
            f"that an answer of {request.budget} samples can have"
        )
