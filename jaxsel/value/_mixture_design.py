"""Mixtures of domains to try: points spread over a simplex with upper bounds."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_count, check_numeric

TOLERANCE = 1e-5
"""How far the sum of a mixture may be from 1: float32 sums of hundreds of weights."""

_POOL = 10  # points drawn for each one chosen
_CONCENTRATIONS = (0.3, 1.0, 3.0)  # of Dirichlet draws: near faces, even, central


def mixture_design(
    key: jax.Array, count: int, upper: npt.ArrayLike | int
) -> npt.NDArray[np.float64]:
    """Choose mixtures for a first round of runs, spread over all that are allowed.

    Each is the one of ten draws that is farthest from those before, in square roots of
    weights (Hellinger's distance). The draws come from Dirichlet distributions of
    concentrations .3, 1 and 3, cut at the bounds. The farthest of all mixtures would be
    single domains, which say little of the best mixture. Costs O(10 · count² · D).

    Args:
        key: Key of the draws.
        count: Number of mixtures.
        upper: Upper bound of each weight, `[D]`; or D, for bounds of 1.

    Returns:
        `[count, D]` float64, rows that sum to 1.

    Raises:
        TypeError: If `count` is no whole number.
        ValueError: If it is below 1, or no mixture keeps the bounds.

    Examples:
        >>> import jax
        >>> from jaxsel import value
        >>> mixtures = value.mixture_design(jax.random.key(0), 64, [1.0, 0.5, 0.2])
        >>> mixtures.shape, mixtures[:, 2].max() <= 0.2
        ((64, 3), np.True_)
    """
    check_count("count", count)
    bounds = check_upper(upper)
    rng = generator(key)
    pool = draw_mixtures(rng, _POOL * count, bounds, faces=0.0)
    roots = np.sqrt(pool).reshape(count, _POOL, -1)
    chosen = np.zeros(count, int)
    nearest = np.full((count, _POOL), np.inf)
    for i in range(1, count):
        last = roots[i - 1, chosen[i - 1]]
        distances = ((roots[i:] - last) ** 2).sum(2)
        nearest[i:] = np.minimum(nearest[i:], distances)
        chosen[i] = int(np.argmax(nearest[i]))
    return pool.reshape(count, _POOL, -1)[np.arange(count), chosen]


def draw_mixtures(
    rng: np.random.Generator, count: int, upper: np.ndarray, faces: float = 0.5
) -> np.ndarray:
    """Draw mixtures within upper bounds, `[count, D]`, a share of them on faces."""
    domains = len(upper)
    concentration = rng.choice(_CONCENTRATIONS, size=(count, 1))
    weights = rng.gamma(np.broadcast_to(concentration, (count, domains)))
    weights = np.maximum(weights, 1e-12)
    share = rng.random((count, 1)) * (rng.random((count, 1)) < faces)
    absent = rng.random((count, domains)) < share
    # A face is a part of the bounds' polytope only if the other domains can fill it.
    absent &= (np.where(absent, 0, upper).sum(1) >= 1)[:, None]
    return capped(np.where(absent, 0, weights), upper)


def capped(weights: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Scale rows to `min(c · weights, upper)` with c at which they sum to 1.

    Args:
        weights: `[n, D]`, 0 or more; positive ones must have bounds that sum to 1 or
            more.
        upper: `[D]`.
    """
    present = weights > 0
    ratio = np.where(present, upper / np.where(present, weights, 1), np.inf)
    order = np.argsort(ratio, axis=1)
    w = np.take_along_axis(weights, order, 1)
    u = np.take_along_axis(np.where(present, upper, 0), order, 1)
    # With the first k domains at their bounds, c fills up the rest; the first k that
    # leaves the others below their bounds is right.
    filled = np.cumsum(u, 1) - u
    rest = np.cumsum(w[:, ::-1], 1)[:, ::-1]
    scale = (1 - filled) / np.where(rest > 0, rest, 1)
    fits = scale * w <= u * (1 + 1e-12)
    first = np.argmax(fits, 1)
    # No k fits only if all bounds together are 1, up to rounding.
    factor = np.where(
        fits.any(1), np.take_along_axis(scale, first[:, None], 1)[:, 0], np.inf
    )
    with np.errstate(invalid="ignore"):
        mixtures = np.where(present, np.minimum(factor[:, None] * weights, upper), 0)
    return mixtures / mixtures.sum(1, keepdims=True)


def check_upper(upper: Any, domains: int | None = None) -> np.ndarray:
    """Return upper bounds of weights, `[D]`; ones for a number of domains or None."""
    if upper is None and domains is not None:
        return np.ones(domains)
    if isinstance(upper, int):
        return np.ones(check_count("upper", upper))
    bounds = np.asarray(as_array("upper", upper))
    check_numeric("upper", bounds)
    bounds = bounds.astype(np.float64)
    expected = "D" if domains is None else str(domains)
    if bounds.ndim != 1 or not len(bounds) or domains not in (None, len(bounds)):
        raise ValueError(
            f"upper must have shape [{expected}], a bound for each domain, got "
            f"{bounds.shape}"
        )
    if not (bounds >= 0).all():
        raise ValueError(f"upper must be at least 0, got {bounds.tolist()}")
    bounds = np.minimum(bounds, 1)
    if bounds.sum() < 1 - TOLERANCE:
        raise ValueError(
            "upper must sum to 1 or more, or no mixture keeps the bounds, got a sum of "
            f"{bounds.sum():.4g}"
        )
    return bounds


def check_mixtures(
    name: str,
    mixtures: Any,
    domains: int | None = None,
    upper: np.ndarray | None = None,
) -> np.ndarray:
    """Return mixtures `[R, D]` as float64 rows that sum to 1.

    Raises:
        TypeError: If they are not numeric.
        ValueError: If the shape is another, a weight is negative, NaN or above its
            bound, or a row does not sum to 1.
    """
    array = np.asarray(as_array(name, mixtures))
    check_numeric(name, array)
    array = array.astype(np.float64)
    expected = "D" if domains is None else str(domains)
    if array.ndim != 2 or 0 in array.shape or domains not in (None, array.shape[1]):
        raise ValueError(
            f"{name} must have shape [R, {expected}], a row for each mixture, got "
            f"{array.shape}"
        )
    for i, row in enumerate(array):
        if not (row >= 0).all():
            raise ValueError(
                f"{name} must hold weights of 0 or more, got {row.min():.4g} in row {i}"
            )
        if not abs(row.sum() - 1) <= TOLERANCE:
            raise ValueError(
                f"{name} must have rows that sum to 1, but row {i} sums to "
                f"{row.sum():.6g}: divide each row by its sum"
            )
        if upper is not None and (row > upper + TOLERANCE).any():
            j = int(np.argmax(row - upper))
            raise ValueError(
                f"{name} must be at most upper, but row {i} has {row[j]:.4g} of domain "
                f"{j}, whose bound is {upper[j]:.4g}"
            )
    return array / array.sum(1, keepdims=True)


def generator(key: jax.Array) -> np.random.Generator:
    """Return NumPy's generator of a key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
