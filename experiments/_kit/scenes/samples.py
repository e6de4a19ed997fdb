"""Samples to value, and others of the same source."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsel.data import load


@dataclasses.dataclass(frozen=True)
class Part:
    """Samples to value, and other ones of the same source.

    Attributes:
        x: `[n, ...]`.
        y: `[n]`.
        other_x: Samples that embeddings may be made of, none of them among `x`.
        other_y: Their classes.
    """

    x: np.ndarray
    y: np.ndarray
    other_x: np.ndarray
    other_y: np.ndarray


def digits() -> Part:
    """Return all digits, 8x8 pixels in 0..1; there are no others."""
    data = load("digits", split="all")
    x = np.asarray(data.as_features(), np.float32).reshape(-1, 8, 8, 1)
    return Part(x / x.max(), np.asarray(data.y), x[:0], np.asarray(data.y)[:0])
