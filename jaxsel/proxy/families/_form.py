"""The base of the forms of `PowerAttention`."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from ._place import Arrays, Place, Steps

Powers = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]
"""Operands by name, the factor of the scores, and a sign, each by head."""

Solution = tuple[np.ndarray, np.ndarray | None, float]
"""Coefficients, table of positions, and squared error of one head."""


class Form(abc.ABC):
    """A function of the scores, with coefficients fitted by head.

    A form must write `fold`, `steps` and `largest`; one with more than powers also
    `candidates`, `fit` and `apply`.

    Attributes:
        degree: Of its polynomial, with coefficients from the constant up.
        extra: Further parameters, one a head.
    """

    degree: ClassVar[int]
    extra: ClassVar[tuple[str, ...]] = ()

    def candidates(self, t: jax.Array) -> list[jax.Array]:
        """Return further features of scores, in units of their spread, to choose of."""
        del t
        return []

    def fit(
        self, solve: Callable[[int, list[int]], Solution], spread: np.ndarray
    ) -> tuple[list[Solution], Arrays]:
        """Return the solution of every head, and further parameters.

        Args:
            solve: Fit a head, by its number, to the features of these numbers: powers
                from 0, then candidates.
            spread: The scores' unit by head.
        """
        powers = [*range(self.degree + 1)]
        return [solve(head, powers) for head in range(len(spread))], {}

    def apply(self, params: Mapping[str, jax.Array], t: jax.Array) -> jax.Array:
        """Return the function of scores `[..., heads, rows, L]`.

        Args:
            params: `[1, ..., heads, 1, 1]` each, with as many axes as `t`;
                "coefficients" has an axis more at the end, of length degree + 1.
            t: The scores, centred where they are to be.
        """
        c = params["coefficients"]
        value = c[..., -1]
        for power in reversed(range(self.degree)):
            value = value * t + c[..., power]
        return value

    def terms(self, params: Arrays) -> tuple[np.ndarray, ...]:
        """Return the arguments of `fold`, `[heads]` each."""
        return (*params["coefficients"].T, *(params[name] for name in self.extra))

    @abc.abstractmethod
    def fold(self, *terms: np.ndarray) -> Powers:
        """Return operands, a factor that goes into the query, a sign into values."""

    @abc.abstractmethod
    def steps(self, at: Place, get: Callable[[str], Any], t: Any) -> Steps:
        """Return the function of scores in secret; `get` gives operands of `fold`."""

    @abc.abstractmethod
    def largest(self, terms: tuple[np.ndarray, ...], bound: float) -> float:
        """Return how large the function gets, of scores up to a bound."""
