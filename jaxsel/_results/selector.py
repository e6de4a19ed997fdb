"""`Selector`: a function that chooses samples, as the registries of rooms list it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from jaxsel._inputs.show import brief

from .selection import Selection


@brief
@dataclasses.dataclass(frozen=True)
class Selector:
    """A function that chooses samples of a pool, and how it is called.

    Attributes:
        function: Returns a `Selection`.
        compares: What it compares the pool with: "mean" (the mean of the hard samples),
            "each" (every hard sample), or None (the pool itself).
        features: Whether it takes features beside gradients.
        command: Whether `jaxsel select --method` has it.
    """

    function: Callable[..., Selection]
    compares: Literal["mean", "each"] | None = None
    features: bool = False
    command: bool = True

    @property
    def arguments(self) -> frozenset[str]:
        """Names of the function's arguments."""
        return frozenset(inspect.signature(self.function).parameters)

    @property
    def classes(self) -> bool:
        """True if it can choose class by class."""
        return "hard_labels" in self.arguments

    @property
    def tables(self) -> bool:
        """True if samples are rows of tables, with columns of text among them."""
        return "table" in self.arguments

    def __call__(self, pool: Any, hard: Any, budget: int, **options: Any) -> Selection:
        """Choose `budget` samples of a pool.

        Args:
            pool: Candidates: features or gradients `[n, d]`, or a table.
            hard: Hard samples, `[m, d]` or a table. Not used if `compares` is None.
            budget: How many to choose at most.
            **options: As for the function.
        """
        if self.compares is None:
            return self.function(pool, budget, **options)
        if self.compares == "mean":
            target = np.asarray(hard, np.float64).mean(axis=0)
            return self.function(pool, target, budget, **options)
        if self.features:
            return self.function(pool, hard, pool, hard, budget, **options)
        return self.function(pool, hard, budget, **options)
