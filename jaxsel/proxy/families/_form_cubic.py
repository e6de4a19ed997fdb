"""Cubic attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ._form import Form, Powers
from ._place import Place, Steps


class Cubic(Form):
    """`c0 + c1 t + c2 t² + c3 t³`: a squaring and a product an entry."""

    degree: ClassVar[int] = 3

    def fold(self, *terms: np.ndarray) -> Powers:
        """Return `(u + root) ((u + shift)² + offset)`, u the scores times a factor.

        A leading coefficient too small for fixed point is raised, as in `Quadratic`:
        below (c2 / 256)^1.5, (c1 / 256)³ or 2^-30.
        """
        c0, c1, c2, c3 = terms
        smallest = np.maximum((np.abs(c2) / 256) ** 1.5, (np.abs(c1) / 256) ** 3)
        c3 = np.where(c3 < 0, -1.0, 1.0) * np.maximum(
            np.abs(c3), np.maximum(smallest, 2.0**-30)
        )
        scale = np.cbrt(c3)
        p2, p1 = c2 / scale**2, c1 / scale
        operands: dict[str, list[float]] = {"root": [], "shift": [], "offset": []}
        for monic in zip(c0, p1, p2, np.ones_like(c3), strict=True):
            # Split off a real root and complete the square. Rounding leaves real roots
            # small imaginary parts; the root nearest 0 keeps operands small.
            roots = np.polynomial.polynomial.polyroots(monic)
            real = roots[np.abs(roots.imag) <= 1e-6 * (1 + np.abs(roots))].real
            root = -real[np.argmin(np.abs(real))]
            shift = (monic[2] - root) / 2
            operands["root"].append(root)
            operands["shift"].append(shift)
            operands["offset"].append(monic[1] - 2 * root * shift - shift**2)
        return {k: np.array(v) for k, v in operands.items()}, scale, np.ones_like(c3)

    def steps(self, at: Place, get: Callable[[str], Any], t: Any) -> Steps:
        square = yield at.call("square", "square", t + get("shift"))
        inner = square + get("offset")
        return (yield at.call("cube", "mul", t + get("root"), inner))

    def largest(self, terms: tuple[np.ndarray, ...], bound: float) -> float:
        operands, scale, _ = self.fold(*terms)
        root, shift, offset = (
            np.abs(operands[name]) for name in ("root", "shift", "offset")
        )
        u = bound * np.abs(scale)
        return float((((u + shift) ** 2 + offset) * (u + root)).max())
