"""Attention by one hinge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from ._form import Form, Powers, Solution
from ._place import Arrays, Place, Steps

_KNOTS = np.arange(-0.5, 4.1, 0.5)  # standard deviations of the scores


class Hinge(Form):
    """`c0 + c1 t + slope · relu(t - knot)`: one ReLU an entry."""

    degree: ClassVar[int] = 1
    extra: ClassVar[tuple[str, ...]] = ("slope", "knot")

    def candidates(self, t: jax.Array) -> list[jax.Array]:
        return [jax.nn.relu(t - knot) for knot in _KNOTS]

    def fit(
        self, solve: Callable[[int, list[int]], Solution], spread: np.ndarray
    ) -> tuple[list[Solution], Arrays]:
        """Return the solutions with the best knot of a grid, and slopes and knots."""
        plain, heads = [*range(self.degree + 1)], range(len(spread))
        tries = [
            [solve(head, [*plain, len(plain) + i]) for head in heads]
            for i in range(len(_KNOTS))
        ]
        errors = np.array([[error for *_, error in row] for row in tries])
        best: list[int] = errors.argmin(axis=0).tolist()
        solutions = [tries[i][head] for head, i in enumerate(best)]
        slope = np.array([c[-1] for c, *_ in solutions]) / spread
        return solutions, {"slope": slope, "knot": _KNOTS[best] * spread}

    def apply(self, params: Mapping[str, jax.Array], t: jax.Array) -> jax.Array:
        bent = params["slope"] * jax.nn.relu(t - params["knot"])
        return super().apply(params, t) + bent

    def fold(self, *terms: np.ndarray) -> Powers:
        """Return `u + offset + slope · relu(u - knot)`, up to a sign; u as in others.

        On one side of the knot the slope is c1, on the other c1 + slope; the steeper
        one goes into the factor, and the ReLU bends the other. A factor below 2^-10 is
        raised to it: that changes the weight of a score t by less than |t| / 1024.
        """
        c0, c1, slope, knot = terms
        other = c1 + slope
        turned = np.abs(other) > np.abs(c1)  # relu(t - k) = t - k + relu(k - t)
        base = np.where(turned, other, c1)
        base = np.where(np.abs(base) < 2.0**-10, np.copysign(2.0**-10, base), base)
        constant = np.where(turned, c0 - slope * knot, c0)
        # u rises with t, or where the ReLU is turned falls with it.
        sign = np.where(turned, -1.0, 1.0) * np.sign(base)
        scale = np.where(turned, -1.0, 1.0) * np.abs(base)
        operands = {
            "offset": sign * constant,
            "knot": scale * knot,
            "slope": sign * slope / np.abs(base),
        }
        return operands, scale, sign

    def steps(self, at: Place, get: Callable[[str], Any], t: Any) -> Steps:
        bent = yield at.call("relu", "relu", t - get("knot"))
        bent = yield at.call("slope", "mul", bent, get("slope"))
        return t + bent + get("offset")

    def largest(self, terms: tuple[np.ndarray, ...], bound: float) -> float:
        operands, scale, _ = self.fold(*terms)
        operands = {name: np.abs(value) for name, value in operands.items()}
        u = bound * np.abs(scale)
        bent = operands["slope"] * (u + operands["knot"])
        return float((u + bent + operands["offset"]).max())
