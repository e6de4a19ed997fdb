"""Models of utilities with known semivalues, and their residuals.

A model is the mean of a Gaussian process: its covariance of two coalitions depends on
their sizes and on how many points they share. The sum of such a function over all
coalitions of a size, weighted as in a semivalue, is a sum over the numbers of shared
points (hypergeometric), so the semivalue of a model is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ._strata import Strata

MOST = 1024  # units that a model is fitted to
_TUNED = 512  # units by which it is chosen
_FEW = 8
_CHUNK = 4096
_BORROWED = 2.0
_WIDE = 128  # points beyond which models are linear
_NOISE = 10.0 ** np.array([-6, -4, -3, -2, -1, 0, 1])
_ENOUGH = 4  # units a point to fit a linear model of any noise
_STEADY = 0.1  # noise of a linear model of fewer
_EXACT = 1e-3  # or share of the spread that it leaves
_OFFSET = 4.0


class Covariance(NamedTuple):
    """A covariance of utilities.

    Attributes:
        decay: It falls by exp(-decay d / n) where coalitions differ in d points; 0: it
            is linear in d.
        length: It also falls with the difference in size, at this share of n; 0: not.
    """

    decay: float
    length: float

    def __call__(self, n: int, shared: Any, s: Any, r: Any, *, paired: bool) -> Any:
        """Return it for coalitions of s and of r points, `shared` of them in both.

        Of pairs: of half the difference between a coalition and its complement.
        """
        apart = s + r - 2 * shared
        if not paired:
            return self._one(n, apart, s - r) + _OFFSET
        other = self._one(n, n - apart, n - s - r)
        return (self._one(n, apart, s - r) - other) / 2

    def _one(self, n: int, apart: Any, larger: Any) -> Any:
        near = np.exp(-self.decay * apart / n) if self.decay else 1 - 2 * apart / n
        if not self.length:
            return near
        return (near + 0.5) * np.exp(-((larger / (self.length * n)) ** 2) / 2)


_LINEAR = (Covariance(0.0, 0.0), Covariance(0.0, 1 / 6))
_CURVED = (
    *(Covariance(decay, 0.0) for decay in (2.4, 7.5, 16.0)),
    *(Covariance(decay, 1 / 6) for decay in (2.4, 7.5)),
)


class Model(NamedTuple):
    """A fitted model.

    Attributes:
        covariance: Of which it is the mean.
        inverse: Of the covariance of the units it is fitted to, noise included.
        coefficients: Of these units.
    """

    covariance: Covariance
    inverse: np.ndarray
    coefficients: np.ndarray


class Estimate(NamedTuple):
    """An estimate of a semivalue: values and variances, `[n]` each; NaN if unknown."""

    values: np.ndarray
    variances: np.ndarray


def adjusted(
    strata: Strata, groups: np.ndarray, y: Any, masks: Any, gap: float = 0.0
) -> Estimate:
    """Estimate the contribution of all units to a semivalue from a sample.

    Each group is estimated by the model's own sum over it, plus the mean of weighted
    residuals. The residual of a unit is that of a model fitted to all others, and which
    of the models is taken is decided by the other half, so that estimates are unbiased;
    units already taken are not drawn again, which the sums account for.

    Args:
        strata: The semivalue.
        groups: Group of each unit, `[m]`.
        y: Utility of each, `[m]`; of pairs, half the difference.
        masks: Their coalitions, `[m, n]`.
        gap: Between the utility of no points and of all.
    """
    n, count = strata.n, len(y)
    members = masks.astype(np.float64)
    sizes = masks.sum(1)
    values, variances = np.zeros(n), np.zeros(n)
    parity = np.arange(count) % 2
    models = _models(strata, y, members, sizes)
    predicted = [_Predicted(strata, model, y, members, sizes) for model in models]
    apart = np.where(parity == 0, predicted[0].apart, predicted[1].apart)
    typical, largest = _nearby(apart**2, groups, len(strata.groups))
    if count and np.ptp(y) == 0:  # the gap stems from units not sampled
        largest = largest + gap**2
    inside, outside = strata.weights
    for g, group in enumerate(strata.groups):
        rows = np.flatnonzero(groups == g)
        taken = len(rows)
        if not taken:
            return Estimate(np.full(n, np.nan), np.full(n, np.nan))
        size = sizes[rows]
        chance = group.chance[np.searchsorted(group.sizes, size)]
        weight = np.where(masks[rows], inside[size, None], -outside[size, None])
        weight *= (strata.factor[size] / chance)[:, None]
        unsampled = 1 - taken / group.total
        for half, prediction in enumerate(predicted):
            values += prediction.sums(
                group.sizes, rows, weight, group.total, parity == half
            )
        spread = weight * apart[rows, None]
        values += unsampled * spread.mean(0)
        # A few samples may miss rare residuals: add _BORROWED with the mean square of
        # groups nearby, and one with their largest.
        squares = ((spread - spread.mean(0)) ** 2).sum(0)
        squares += (_BORROWED * typical[g] + largest[g]) * (weight**2).mean(0)
        if unsampled > 0:
            known = taken > 1 or np.nan
            variances += known * unsampled * squares / (taken * (taken + _BORROWED))
    return Estimate(values, variances)


def _nearby(
    squares: np.ndarray, groups: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the largest square about each group, `[count]` each.

    Squares of a group count for a quarter as much in the next one, and so on, since
    residuals of similar sizes are similar.

    Args:
        squares: Of the residual of each unit, `[m]`.
        groups: Group of each unit, `[m]`.
        count: How many groups there are.
    """
    group = np.arange(count)
    share = 4.0 ** -np.abs(group[:, None] - group)
    of_unit = share[:, groups]
    mean = of_unit @ squares / np.maximum(of_unit.sum(1), np.finfo(float).tiny)
    return mean, (of_unit * squares).max(1, initial=0.0)


class _Predicted:
    """Predictions of a model for all units taken.

    Attributes:
        apart: Residual of each under a model of the others, `[m]`.
    """

    def __init__(self, strata: Strata, model: Model, y: Any, members: Any, sizes: Any):
        self._strata, self._model = strata, model
        self._fitted = len(model.coefficients)
        self._members: np.ndarray = members
        self._sizes: np.ndarray = sizes
        self._worth: np.ndarray = y
        predictions = [
            near @ model.coefficients for _, near in self._near(np.arange(len(y)))
        ]
        self._residual = y - np.concatenate([*predictions, np.zeros(0)])
        # Leave-one-out residuals, as in `_models`; units not fitted have their own.
        left_out = model.coefficients / np.diag(model.inverse)
        self.apart = np.append(left_out, self._residual[self._fitted :])

    def sums(
        self,
        over: np.ndarray,
        units: np.ndarray,
        weight: np.ndarray,
        total: float,
        half: np.ndarray,
    ) -> np.ndarray:
        """Return the mean over units of one half of the sums by models of the others.

        Each is the model's sum over a group, corrected by the residuals of the units
        that were taken, times the share of units that are of this half.
        """
        model, taken = self._model, len(units)
        half_units = units[half[units]]
        known = _known(self._strata, model.covariance, tuple(over.tolist()))
        members, size = self._members[: self._fitted], self._sizes[: self._fitted]
        inside = members.T > 0
        remaining = np.asarray(
            np.where(inside, known[1][size], known[0][size]), np.float64
        )
        if np.isfinite(total):
            for rows, near in self._near(units):
                remaining = remaining - np.asarray(
                    weight[rows].T @ near / total, np.float64
                )
        # Without unit i the coefficients are c - inverse[:, i] * apart_i: `moved` holds
        # the mean of these corrections over the half.
        moved = np.zeros(self._fitted)
        fitted = half_units[half_units < self._fitted]
        moved[fitted] = self.apart[fitted] / taken
        # Predictions for units not taken, utilities of those taken.
        worth = np.asarray(weight.T @ self._worth[units] / total, np.float64)
        estimate = (remaining @ model.coefficients + worth) * (len(half_units) / taken)
        return np.asarray(estimate - remaining @ (model.inverse @ moved), np.float64)

    def _near(self, units: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield covariances of some units with those fitted to, a chunk at a time."""
        basis = self._members[: self._fitted], self._sizes[: self._fitted]
        for first in range(0, len(units), _CHUNK):
            rows = slice(first, first + _CHUNK)
            unit = self._members[units[rows]], self._sizes[units[rows]]
            yield rows, _covariances(self._model.covariance, self._strata, unit, basis)


def _models(strata: Strata, y: Any, members: Any, sizes: Any) -> list[Model]:
    """Return the model for units of even numbers, and the one for odd numbers."""
    options = [*_LINEAR, *(_CURVED if strata.n <= _WIDE else ())]
    chosen: list[tuple[Covariance, float]] = []
    for half in (1, 0):
        rows = np.arange(half, min(len(y), _TUNED), 2)
        unit = members[rows], sizes[rows]
        best, least = (_LINEAR[0], 1.0), np.inf
        spread = float(np.var(y[rows])) * len(rows) if len(rows) else 0.0
        for option in options if len(rows) >= _FEW else ():
            roots, vectors = np.linalg.eigh(_covariances(option, strata, unit, unit))
            turned = vectors.T @ y[rows]
            # A linear model of about as many coefficients as units fits these without
            # an error, and may be far off all others. Pairs are half as many.
            enough = len(rows) >= _ENOUGH * strata.n
            steady = option.decay > 0 or enough or not strata.paired
            for noise in _NOISE:
                inverse = 1 / (np.maximum(roots, 0) + noise)
                # Leave-one-out residuals in closed form, (A⁻¹ y)_i / (A⁻¹)_ii with
                # A = K + noise I: Rasmussen and Williams, Gaussian processes for
                # machine learning, 2006, eq. 5.12.
                left_out = vectors @ (turned * inverse) / (vectors**2 @ inverse)
                error = float(left_out @ left_out)
                sure = steady or noise >= _STEADY or error <= _EXACT * spread
                if sure and error < least:
                    best, least = (option, float(noise)), error
        chosen.append(best)
    fitted = min(len(y), MOST)
    unit = members[:fitted], sizes[:fitted]
    models: list[Model] = []
    for covariance, noise in chosen:
        matrix = _covariances(covariance, strata, unit, unit)
        inverse = np.linalg.inv(matrix + noise * np.eye(fitted))
        models.append(Model(covariance, inverse, inverse @ y[:fitted]))
    return models


def _covariances(
    covariance: Covariance, strata: Strata, rows: Any, columns: Any
) -> np.ndarray:
    """Return the covariances of units, each given by members and sizes."""
    return covariance(
        strata.n,
        rows[0] @ columns[0].T,
        rows[1][:, None],
        columns[1][None],
        paired=strata.paired,
    )


@functools.lru_cache(maxsize=512)
def _known(
    strata: Strata, covariance: Covariance, sizes: tuple[int, ...]
) -> np.ndarray:
    """Sum the covariance with a unit R, weighted as in a semivalue, over some sizes.

    Returns:
        `[2, n + 1]`: of points outside and inside R, by its size.
    """
    n, (inside, outside) = strata.n, strata.weights
    sums = np.zeros((2, n + 1))
    for s in sizes:
        for of_r in (0, 1):
            r = np.arange(of_r, n + of_r)
            for of_s, chance in ((1, inside[s] * s), (0, -outside[s] * (n - s))):
                expected = _expected(
                    strata, covariance, s, r, s - of_s, r - of_r, of_s * of_r
                )
                sums[of_r, r] += strata.factor[s] * chance / n * expected
    return sums


def _expected(
    strata: Strata,
    covariance: Covariance,
    s: int,
    r: np.ndarray,
    drawn: int,
    marked: np.ndarray,
    known: int,
) -> np.ndarray:
    """Return the mean covariance where `drawn` of n - 1 points are random, `[n]`.

    `marked` of the n - 1 points are in R; `known` more are shared.
    """
    from scipy import stats

    n, paired = strata.n, strata.paired
    if n > _WIDE:  # linear in the number that is shared
        return covariance(n, marked * drawn / (n - 1) + known, s, r, paired=paired)
    shared = np.arange(n)
    chance = stats.hypergeom.pmf(shared, n - 1, marked[:, None], drawn)
    covariances = covariance(n, shared + known, s, r[:, None], paired=paired)
    return (chance * covariances).sum(1)
