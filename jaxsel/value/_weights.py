"""Rank weights: the only thing in which the KNN semivalues differ.

A semivalue weights the marginal contribution of a point by how likely a random
coalition is; for a KNN utility all that matters is the chance that fewer than K nearer
points have joined before. With the inclusion probability t drawn from a distribution,
the point of rank r = 1..n has the weight

    w_r = (1/K) E_t P(Bin(r-1, t) <= K-1)

All functions here return w as float64 NumPy, computed once per call on the host.

References:
    Jia et al., Efficient task-specific data valuation for nearest neighbor algorithms,
    VLDB 2019 (Shapley). Kwon and Zou, Beta Shapley, AISTATS 2022. Wang and Jia, Data
    Banzhaf, AISTATS 2023. Wang and Jia, A note on "Efficient task-specific data
    valuation for nearest neighbor algorithms", 2023 (soft-label form).
"""

import dataclasses
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxsel._inputs.checks import check_positive
from jaxsel._inputs.show import brief

_LARGEST = 1e9  # parameter of a Beta distribution whose logarithms have digits enough


def shapley_weights(n: int, k: int) -> np.ndarray:
    """Return the weights of the Shapley value, t uniform: `1 / max(r, K)`, `[n]`.

    Args:
        n: Number of training points.
        k: Number of neighbours.
    """
    return 1 / np.maximum(np.arange(1, n + 1), k)


def banzhaf_weights(n: int, k: int) -> np.ndarray:
    """Return the weights of the Banzhaf value, t = 1/2, `[n]`.

    They are tiny beyond a few times K.

    Args:
        n: Number of training points.
        k: Number of neighbours.
    """
    # `bdtr` is NaN for more successes than draws, where the chance is 1: cut them.
    draws = np.arange(n)
    return _descending(special.bdtr(np.minimum(k - 1, draws), draws, 0.5) / k)


def loo_weights(n: int, k: int) -> np.ndarray:
    """Return the weights of leave-one-out, t = 1, `[n]`: `1/K` up to rank K, else 0.

    Args:
        n: Number of training points.
        k: Number of neighbours.
    """
    return np.where(np.arange(1, n + 1) <= k, 1 / k, 0.0)


def beta_weights(n: int, k: int, *, alpha: float, beta: float) -> np.ndarray:
    """Return the weights of the Beta(alpha, beta) semivalue, `[n]`.

    In the convention of Kwon and Zou, and of pyDVL: Beta(16, 1) favours small
    coalitions, Beta(1, 1) is the Shapley value. Costs n operations.

    Args:
        n: Number of training points.
        k: Number of neighbours.
        alpha: First parameter, above zero.
        beta: Second parameter, above zero.
    """
    weights = np.full(n, 1 / k)  # as long as fewer than K points are nearer
    if n <= k:
        return weights
    # P(BetaBin(n-1; beta, alpha) = i) for i < K, by the ratio of one to the next.
    draws, i = n - 1, np.arange(k - 1)
    # The log of P(no draw joins), Π (alpha + i) / (alpha + beta + i).
    none = -np.log1p(beta / (alpha + np.arange(draws))).sum()
    ratio = np.log(draws - i) - np.log(i + 1) + np.log(beta + i)
    ratio -= np.log(draws - i - 1 + alpha)
    farthest = np.exp(none + np.concatenate([[0.0], np.cumsum(ratio)])).sum() / k
    # The weight falls by the chance that the point in between joins as the K-th.
    rank = np.arange(k, n - 1, dtype=np.float64)
    ratio = np.log1p((k - 1) / (rank - k + 1)) - np.log1p(
        (beta + k) / (alpha + rank - k)
    )
    first = special.betaln(beta + k, alpha) - special.betaln(beta, alpha) - np.log(k)
    fall = np.exp(first + np.concatenate([[0.0], np.cumsum(ratio)]))
    # Positive terms from the far end on: small weights keep their digits, which they
    # would lose in 1 / k less a forward sum.
    weights[k - 1 : -1] = farthest + np.cumsum(fall[::-1])[::-1]
    weights[-1] = farthest
    # The sum comes to 1 / k at rank k only up to rounding.
    weights[:k] = 1 / k
    return _descending(weights)


def soft_shapley_weights(n: int, k: int) -> np.ndarray:
    """Return the weights of the soft-label KNN-Shapley value, `[n]`.

    The value is the semivalue of these weights, plus `soft_shapley_offset`.

    Args:
        n: Number of training points.
        k: Number of neighbours.
    """
    if n == 1:
        return np.ones(1)
    rank = np.arange(1, n + 1)
    most = min(k, n - 1)
    harmonic = cast(float, special.digamma(most + 1)) + np.euler_gamma
    shared = (n - 1) * np.minimum(rank, k) / rank - most
    return _descending((harmonic + shared / k) / (n - 1))


def soft_shapley_offset(n: int, k: int, n_classes: int) -> tuple[float, float]:
    """Return the soft-label form's offset of every point, as constant and slope.

    The values of a validation point are from `soft_shapley_weights`, plus
    `constant + slope * sum(gains)`.

    Args:
        n: Number of training points.
        k: Number of neighbours.
        n_classes: Number of classes.
    """
    if n == 1:
        return -1 / n_classes, 0.0
    harmonic = cast(float, special.digamma(min(k, n) + 1)) + np.euler_gamma
    return -1 / (n_classes * n), -(harmonic - 1) / (n * (n - 1))


@brief
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight", "drop", "level", "total", "bend"],
    meta_fields=[],
)
@dataclasses.dataclass(frozen=True)
class RankTable:
    """Rank weights and their running sums, as the kernels take them.

    Differences of nearby entries matter at large n, so drops are computed in float64,
    and running sums are split in two float32 parts, `[2, n + 1]`.

    Attributes:
        weight: `[n]`: w_r.
        drop: `[n]`: `w_{r-1} - w_r`, 0 for the first.
        level: `[2, n + 1]`: w_r, with w_0 = w_1.
        total: `[2, n + 1]`: `-(w_{r+1} + ... + w_n)`, from the far end, where weights
            are small.
        bend: `[2, n + 1]`: `|drop_2 - drop_1| + ... + |drop_r - drop_{r-1}|`.
    """

    weight: jax.Array
    drop: jax.Array
    level: Any
    total: Any
    bend: Any


def rank_table(weights: np.ndarray, *, running: bool = True) -> RankTable:
    """Prepare rank weights for the kernels.

    Args:
        weights: Array of shape `[n]`, float64, the nearest point's weight first.
        running: Whether to make the running sums, which `semivalue_tied` and
            `semivalue_hybrid` need, and `semivalue` does not; else they are None.

    Returns:
        A `RankTable` of float32 arrays. Costs n operations.

    Raises:
        TypeError: If the weights are not real numbers.
        ValueError: If they are not `[n]` finite numbers.
    """
    weights = check_weights("weights", weights)
    drop = np.concatenate([[0.0], weights[:-1] - weights[1:]])
    if not running:
        return RankTable(
            weight=jnp.asarray(weights.astype(np.float32)),
            drop=jnp.asarray(drop.astype(np.float32)),
            level=None,
            total=None,
            bend=None,
        )
    bend = np.abs(np.diff(drop, prepend=0.0))
    bend[:1] = 0.0
    return RankTable(
        weight=jnp.asarray(weights, jnp.float32),
        drop=jnp.asarray(drop, jnp.float32),
        level=_split(np.concatenate([weights[:1], weights])),
        total=_split(-np.append(np.cumsum(weights[::-1])[::-1], 0.0)),
        bend=_split(np.concatenate([[0.0], np.cumsum(bend)])),
    )


def check_table(table: RankTable, n: int, *, running: bool) -> None:
    """Refuse a table for another number of points, or without the sums needed.

    Raises:
        ValueError: If it is.
    """
    for name in ("weight", "drop"):
        shape = jnp.shape(getattr(table, name))
        if shape != (n,):
            raise ValueError(
                f"table must hold n = {n} rank weights, one a point, but its {name} "
                f"has shape {shape}"
            )
    if running and (table.level is None or jnp.shape(table.level) != (2, n + 1)):
        raise ValueError("table must have running sums: rank_table(..., running=True)")


def difference(table: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Return `table[b] - table[a]` of a split table, without cancellation."""
    # High parts within a factor of two differ without rounding (Sterbenz's lemma); the
    # low parts then restore the digits that these lack.
    high, low = table
    return (high[b] - high[a]) + (low[b] - low[a])


def check_weights(name: str, weights: Any, n: int | None = None) -> np.ndarray:
    """Return rank weights as float64, `[n]`, zeros positive.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they have another shape, or are not finite, as float32 sums too.
    """
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf":
        try:  # numbers as objects; complex ones and texts would be cut or parsed
            if array.dtype.kind != "O":
                raise TypeError
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError(
                f"{name} must be real numbers, or a function that returns them, got "
                f"{array.dtype if array.dtype.kind != 'O' else repr(weights)}"
            ) from None
    array = array.astype(np.float64) + 0.0
    if array.ndim != 1 or not len(array) or len(array) != (n or len(array)):
        size = "[n]" if n is None else f"[n] = [{n}]"
        raise ValueError(
            f"{name} must have shape {size}, one for each rank, got {array.shape}"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(
            f"{name} must be finite, got {array[bad[0]]} for rank {bad[0] + 1}"
        )
    most = float(np.finfo(np.float32).max) / 4
    if np.abs(array).sum() > most:
        raise ValueError(
            f"{name} must be finite in float32, their sum at most {most:.2g}, got "
            f"{np.abs(array).max():.2g} for rank {np.abs(array).argmax() + 1}"
        )
    return array


def check_beta(alpha: float, beta: float) -> None:
    for name, value in (("alpha", alpha), ("beta", beta)):
        if check_positive(name, value) > _LARGEST:
            raise ValueError(f"{name} must be at most {_LARGEST:g}, got {value:g}")


def _descending(weights: np.ndarray) -> np.ndarray:
    """Make the weights non-increasing where rounding raised one."""
    return np.minimum.accumulate(weights)


def _split(values: np.ndarray) -> jax.Array:
    # `low` is the rounding error of `high`: together they hold 48 of float64's 53 bits.
    high = values.astype(np.float32)
    return jnp.asarray(np.stack([high, (values - high).astype(np.float32)]))
