"""Suspected labels, with estimates of how many of them are wrong."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from ._joint import ConfidentJoint
from ._neighbours import Duplicates
from ._noise_model import Confusion, NoiseModel, fit_noise

_MOST_WRONG = 0.5  # expected share of suspects from which they count as mostly wrong
_NEARLY_ALL = 0.75  # share of suspects, if wrong, from which overlap is in doubt


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Suspects:
    """Fields and estimates of `LabelErrors`, which documents them."""

    indices: np.ndarray
    scores: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    pred_probs: np.ndarray
    members: tuple[np.ndarray, ...] | None = None
    joint: ConfidentJoint
    duplicates: Duplicates | None = None
    method: str = ""
    index: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def summary(self) -> tuple[str, ...]:
        """Sentences that say how many labels are wrong, and how surely."""
        n, (low, high) = len(self.given), self.interval
        first = (
            f"About {self.n_errors} of {n} labels are wrong (95 % interval: {low} to "
            f"{high})"
        )
        if not len(self):
            return first, f"None of {n} labels is suspected"
        suspected = f"{len(self)} are" if len(self) > 1 else "1 is"
        lines = (
            first,
            f"{suspected} suspected, of which about {self.precision:.0%} are wrong; "
            f"held-out accuracy is {self.accuracy:.0%}",
        )
        if self.precision >= _MOST_WRONG:
            return lines
        if high >= _NEARLY_ALL * len(self):  # flips may explain them, too
            why = "Classes overlap, or labels are wrong: the samples can't tell which"
            return *lines, why
        return *lines, "Classes overlap: most suspects are hard to tell, not wrong"

    @property
    def mask(self) -> np.ndarray:
        """True where a label is suspected, `[n]`."""
        mask = np.zeros(len(self.given), bool)
        mask[self.indices] = True
        return mask

    @functools.cached_property
    def _model(self) -> NoiseModel:
        return fit_noise(self.members or [self.pred_probs], self._codes)

    @functools.cached_property
    def _codes(self) -> np.ndarray:
        numbers = {label: i for i, label in enumerate(self.joint.classes.tolist())}
        return np.array([numbers[label] for label in self.given.tolist()], np.intp)

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Probability that each suspected label is wrong, `[k]`.

        See `labels.estimate_noise`.
        """
        members = self.members or [self.pred_probs]
        rows = self.indices
        return self._model.wrong([m[rows] for m in members], self._codes[rows])

    @property
    def precision(self) -> float:
        """Expected share of the suspected labels that are wrong; NaN of none."""
        return float(self.wrong.mean()) if len(self) else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of the labels that models predict which have not seen them."""
        return float((self.suggested == self.given).mean())

    @property
    def n_errors(self) -> int:
        """Expected number of wrong labels among all, suspected or not."""
        return round(self._model.n_errors)

    @property
    def interval(self) -> tuple[int, int]:
        """The number of wrong labels lies between these with probability 0.95."""
        low, high = self._model.interval
        return int(low), math.ceil(high)

    @property
    def confused(self) -> list[Confusion]:
        """Classes that are labelled as others, the most frequent first."""
        counts = self._model.confusion
        off = counts - np.diag(counts.diagonal())
        size = np.maximum(counts.sum(axis=1), 1)
        order = np.argsort(-off, axis=None, kind="stable")[: np.count_nonzero(off)]
        return [
            Confusion(
                self.joint.classes[i].item(),
                self.joint.classes[j].item(),
                float(off[i, j]),
                float(off[i, j] / size[i]),
            )
            for i, j in zip(*np.unravel_index(order, off.shape), strict=True)
        ]
