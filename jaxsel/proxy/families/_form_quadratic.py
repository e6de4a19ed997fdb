"""Quadratic attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ._form import Form, Powers
from ._place import Place, Steps


class Quadratic(Form):
    """`c0 + c1 t + c2 t²`: one squaring an entry."""

    degree: ClassVar[int] = 2

    def fold(self, *terms: np.ndarray) -> Powers:
        """Return `(u + shift)² + offset`, u the scores times a factor, up to a sign.

        A curvature below (c1 / 128)² is raised to it, and any to 2^-20: else a large
        shift would leave the scores no digits in fixed point. That changes the weight
        of a score t by less than c1² t² / 16384, or t² / 2^20.
        """
        c0, c1, c2 = terms
        # The square is completed: u = scale t, and (u + shift)² + offset = sign f(t).
        sign = np.where(c2 < 0, -1.0, 1.0)
        smallest = np.maximum(np.abs(c1) / 128, 2.0**-10) ** 2
        scale = np.sqrt(np.maximum(np.abs(c2), smallest))
        shift = sign * c1 / (2 * scale)
        return {"shift": shift, "offset": sign * c0 - shift**2}, scale, sign

    def steps(self, at: Place, get: Callable[[str], Any], t: Any) -> Steps:
        square = yield at.call("square", "square", t + get("shift"))
        return square + get("offset")

    def largest(self, terms: tuple[np.ndarray, ...], bound: float) -> float:
        operands, scale, _ = self.fold(*terms)
        shift, offset = np.abs(operands["shift"]), np.abs(operands["offset"])
        return float(((bound * np.abs(scale) + shift) ** 2 + offset).max())
