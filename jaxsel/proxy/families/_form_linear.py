"""Linear attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ._form import Form, Powers
from ._place import Place, Steps


class Linear(Form):
    """`c0 + c1 t`: no operation at all."""

    degree: ClassVar[int] = 1

    def fold(self, *terms: np.ndarray) -> Powers:
        c0, c1 = terms
        return {"offset": c0}, c1, np.ones_like(c0)

    def steps(self, at: Place, get: Callable[[str], Any], t: Any) -> Steps:
        yield from ()  # no operation communicates
        return t + get("offset")

    def largest(self, terms: tuple[np.ndarray, ...], bound: float) -> float:
        c0, c1 = terms
        return float((np.abs(c0) + bound * np.abs(c1)).max())
