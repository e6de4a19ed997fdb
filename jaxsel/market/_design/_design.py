"""Experimental design: buying samples to predict at points without labels."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.alignment import align_columns
from jaxsel._inputs.checks import (
    as_array,
    check_count,
    check_features,
    check_finite,
    check_positive,
)
from jaxsel._results.types import Selection

from ._frank_wolfe import Weighed, frank_wolfe_design

# Directions in which samples vary less than this, beside the most, count as none.
_FLAT = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """Shares of the money for samples on offer.

    Attributes:
        shares: Array of shape `[n]`: the share of the money for each sample; sums to 1.
        gains: Array of shape `[n]`: how fast the objective falls in each one's share.
            At the best design no gain exceeds the objective.
        taken: Array of shape `[n]`: whether any step was towards it. Others hold the
            remainder of the equal shares at the start.
        prices: Array of shape `[n]`.
        objective: Array of shape `[steps + 1]`: the mean squared error of predictions
            by least squares that a unit of money leaves, in units of the noise's
            variance: of equal shares, and after each step.
        reach: The share of the validation points' squared length, each feature divided
            by its root mean square, that lies within the span of the samples. Beyond it
            nothing on offer can teach anything.
    """

    shares: np.ndarray
    gains: np.ndarray
    taken: np.ndarray
    prices: np.ndarray
    objective: np.ndarray
    reach: float

    def __len__(self) -> int:
        return len(self.shares)

    def __repr__(self) -> str:
        return (
            f"Design({int(self.taken.sum())} of {len(self)} samples, "
            f"{len(self.objective) - 1} steps: objective {self.objective[0]:.4g} to "
            f"{self.objective[-1]:.4g}, at least {self.efficiency:.1%} of the best)"
        )

    @property
    def efficiency(self) -> float:
        """A bound on how good it is: no design's objective is less than this times."""
        return float(min(1.0, self.objective[-1] / self.gains.max()))

    def buy(self, money: float) -> Selection:
        """Choose the samples to buy, each at most once.

        Samples are taken by their weight, the share over the price, largest first, and
        those that no step was towards after these, by their gain. Samples that cost
        more than the money left are skipped.

        Args:
            money: In the unit of the prices.

        Returns:
            A `Selection` in that order, with weights 1.

        Raises:
            ValueError: If `money` is not positive, or buys nothing.
        """
        money = check_positive("money", money)
        weight = np.where(self.taken, self.shares / self.prices, 0)
        order = np.lexsort((-self.gains, -weight))
        affordable = _within(self.prices[order], money)
        if not affordable.any():
            raise ValueError(
                f"money must pay for the cheapest sample, {self.prices.min():g}, got "
                f"{money:g}"
            )
        chosen = order[affordable]
        return Selection(
            indices=jnp.asarray(chosen, jnp.int32),
            weights=jnp.ones(len(chosen)),
            n_valid=jnp.int32(len(chosen)),
            method=f"optimal_design, money={money:g}",
        )


def optimal_design(
    x: npt.ArrayLike | jax.Array,
    x_val: npt.ArrayLike | jax.Array,
    *,
    prices: npt.ArrayLike | jax.Array | None = None,
    steps: int = 500,
    tolerance: float = 0.01,
    intercept: bool = False,
) -> Design:
    """Share money out among samples on offer, by features alone.

    The mean squared error of a linear model that is fitted to what is bought is, in
    units of the noise's variance, `E x₀ᵀ (Σ wᵢ xᵢ xᵢᵀ)⁻¹ x₀` over the validation points
    x₀: no label is needed to make it small. A sample's weight is its share of the money
    over its price, so that a cheap sample is bought sooner than a dear one that tells
    as much. `Design.buy` makes a purchase of it.

    Costs O(n·d) for each step and O(n·d²) now and then: 1.4 CPU seconds for 100,000
    samples of 30 features and 500 steps. Memory for three copies of the samples.

    Args:
        x: Samples on offer, `[n, d]`: features in which the target is about linear,
            such as those of a network's last layer.
        x_val: Points to predict at, `[m, d]`.
        prices: Price of each sample, `[n]`; 1 if None.
        steps: Frank-Wolfe steps at most. Each adds at most one sample, so that a
            purchase of more samples than steps goes on by `Design.gains`.
        tolerance: It stops once the objective is at most `1 + tolerance` times the
            best.
        intercept: Whether the model has a constant beside the features.

    Returns:
        A `Design`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a number is out of range or not finite, or the
            samples have nothing in common with the validation points.

    References:
        Lu, Huang and Karimireddy et al., Data acquisition via experimental design for
        data markets (DAVED), NeurIPS 2024. A price enters through the sample's length
        there as here, and steps move money; the line search follows the objective.
    """
    x_val = align_columns(x, x_val)
    candidates = np.asarray(check_features("x", x), np.float64)
    targets = np.asarray(check_features("x_val", x_val), np.float64)
    if candidates.shape[1] != targets.shape[1]:
        raise ValueError(
            f"x_val must have as many features as x, {candidates.shape[1]}, got "
            f"{targets.shape[1]}"
        )
    steps = check_count("steps", steps)
    tolerance = check_positive("tolerance", tolerance, zero=True)
    unit_prices = _prices(prices, len(candidates))
    if intercept:
        candidates, targets = (
            np.pad(a, ((0, 0), (0, 1)), constant_values=1)
            for a in (candidates, targets)
        )
    # Units of features have no effect but on the threshold of rounding.
    unit = _spread(candidates)
    unit = np.where(unit > 0, unit, _spread(targets))
    unit = np.where(unit > 0, unit, 1)
    targets = targets / unit
    rows = candidates / unit
    del candidates  # frees a copy
    rows /= np.sqrt(unit_prices)[:, None]
    # Whiten: a basis of the samples' span where equal shares have second moment I.
    moment = rows.T @ rows / len(rows)
    size, basis = np.linalg.eigh(moment)
    in_span = size > _FLAT**2 * max(size[-1], 0)
    basis, size = basis[:, in_span], size[in_span]
    projected = targets @ basis
    length, reach = np.sum(targets**2), 0.0
    if length > 0 and size.size:
        reach = float(min(1.0, np.sum(projected**2) / length))
    if reach <= _FLAT:
        raise ValueError(
            "x must have something in common with x_val, but no sample has any part "
            "along a validation point"
        )
    projected = projected / np.sqrt(size)
    rows = rows @ (basis / np.sqrt(size))
    weighed = _design(
        jnp.asarray(rows.astype(np.float32)),
        jnp.asarray(projected.T @ projected / len(projected), jnp.float32),
        jnp.float32(tolerance),
        steps=steps,
    )
    steps_made = int(weighed.steps)
    return Design(
        shares=np.asarray(weighed.shares),
        gains=np.asarray(weighed.gains),
        taken=np.asarray(weighed.taken),
        prices=unit_prices,
        objective=np.asarray(weighed.objective)[: steps_made + 1],
        reach=reach,
    )


@jit(static_argnames="steps")
def _design(
    x: jax.Array, moment: jax.Array, tolerance: jax.Array, *, steps: int
) -> Weighed:
    return frank_wolfe_design(x, moment, tolerance, steps=steps)


def _spread(x: np.ndarray) -> np.ndarray:
    """Return each feature's root mean square, `[d]`."""
    return np.sqrt(np.einsum("nd,nd->d", x, x) / len(x))


def _prices(prices: npt.ArrayLike | jax.Array | None, n: int) -> np.ndarray:
    if prices is None:
        return np.ones(n)
    values = np.asarray(as_array("prices", prices))
    if values.shape != (n,):
        raise ValueError(
            f"prices must have shape ({n},), one a sample, got {values.shape}"
        )
    check_finite("prices", values)
    values = values.astype(np.float64)
    if (values <= 0).any():
        first = int(np.argmax(values <= 0))
        raise ValueError(
            f"prices must be positive, but that of sample {first} is {values[first]:g}"
        )
    return values


def _within(prices: np.ndarray, money: float) -> np.ndarray:
    """Return which are bought, one after the other, as long as the money lasts."""
    bought = np.zeros(len(prices), bool)
    budget, cheapest = money, np.minimum.accumulate(prices[::-1])[::-1]
    # Nothing that comes later can be paid for once the cheapest of them cannot.
    for i, price in enumerate(prices):
        if cheapest[i] > budget:
            break
        if price <= budget:
            bought[i] = True
            budget -= price
    return bought
