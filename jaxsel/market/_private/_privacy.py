"""Noise on sums of counts, and how private it makes them.

A data set's neighbours have one point more or less, of one owner. In the sums each
validation point has two counts, of points of its label and of others, and a point lies
in one of them at most: so up to m of the 2 m counts change, by 1. Each owner adds noise
of the discrete Gaussian to its own counts before they are masked, whole numbers in
fact, so that no rounding has to be accounted for.

References:
    Canonne, Kamath and Steinke, The discrete Gaussian for differential privacy, NeurIPS
    2020: the distribution, and algorithms 1 to 3, which draw from it exactly.
    Kairouz, Liu and Steinke, The distributed discrete Gaussian mechanism for federated
    learning with secure aggregation, ICML 2021: sums of such noise.
"""

from __future__ import annotations

import math
import secrets
from importlib import import_module
from typing import Any

import numpy as np

from jaxsel._inputs.checks import check_count, check_positive

_BINS = 100  # of privacy losses, for each standard deviation of one count's
_MOST = 10**12  # variance of a sum: its distribution is an array


def privacy_epsilon(variance: int, n_val: int, *, delta: float, honest: int) -> float:
    """Return the epsilon of sums of counts to which owners have added noise.

    The mechanism is (epsilon, delta) differentially private: adding or removing one
    point of one owner changes the probability of any outcome by a factor of at most
    exp(epsilon), but for delta. It is computed from the distribution of the privacy
    loss, by the package dp-accounting, and rounded up. Here that is the loss of
    `n_val` discrete Gaussians whose means differ by 1, and the little by which a sum of
    discrete Gaussians differs from one.

    Args:
        variance: The parameter of each owner's noise, a whole number; it is all but
            equal to the variance.
        n_val: Number of validation points.
        delta: Above 0 and below 1.
        honest: Number of owners who stay to the end and don't collude: only their
            noise counts.

    Raises:
        ImportError: If dp-accounting is not installed.
        TypeError: If a count is no whole number.
        ValueError: If an argument is out of range.
    """
    accounting = _accounting()
    variance = check_count("variance", variance)
    n_val, honest = check_count("n_val", n_val), check_count("honest", honest)
    delta = _check_delta(delta)
    if honest * variance > _MOST:
        raise ValueError(
            f"variance must be at most {_MOST // honest} where {honest} owners' noise "
            f"counts, got {variance}"
        )
    sigma = math.sqrt(honest * variance)
    far = _sum_distance(variance, honest) * n_val
    single = accounting.from_discrete_gaussian_mechanism(
        sigma,
        sensitivity=1,
        value_discretization_interval=1 / (_BINS * sigma),
        use_connect_dots=True,
    )
    composed = single.self_compose(n_val)
    return float(composed.get_epsilon_for_delta(delta * math.exp(-far))) + 2 * far


def noise_variance(epsilon: float, n_val: int, *, delta: float, honest: int) -> int:
    """Return the variance of each owner's noise that suffices for an epsilon.

    Args:
        epsilon: Above 0.
        n_val: Number of validation points.
        delta: Above 0 and below 1.
        honest: As for `privacy_epsilon`, which is at most `epsilon` then.

    Raises:
        ImportError: If dp-accounting is not installed.
        TypeError: If a count is no whole number.
        ValueError: If an argument is out of range.
    """
    from scipy import stats

    epsilon, delta = check_positive("epsilon", epsilon), _check_delta(delta)
    n_val, honest = check_count("n_val", n_val), check_count("honest", honest)

    def excess(log_ratio: float) -> float:
        """Balle and Wang, ICML 2018, theorem 8: of the Gaussian mechanism."""
        ratio = math.exp(log_ratio)
        near = stats.norm.cdf(ratio / 2 - epsilon / ratio)
        far = stats.norm.logcdf(-ratio / 2 - epsilon / ratio)
        return float(near - np.exp(epsilon + far)) - delta

    low, high = -30.0, 10.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    ratio = math.exp(low)
    variance = max(1, math.ceil(n_val / ratio**2 / honest))
    while privacy_epsilon(variance, n_val, delta=delta, honest=honest) > epsilon:
        variance += max(1, variance // 10_000)
    return variance


def discrete_gaussian(variance: int, n: int) -> np.ndarray:
    """Draw n whole numbers from the discrete Gaussian of mean 0.

    A number z has a probability in proportion to exp(-z² / (2 variance)), exactly. The
    randomness is the operating system's.

    Args:
        variance: A whole number, 1 or more.
        n: How many.

    Returns:
        Array of shape `[n]`, int64.
    """
    variance = check_count("variance", variance)
    scale = math.isqrt(variance) + 1
    drawn: list[int] = []
    while len(drawn) < n:
        z = _discrete_laplace(scale)
        # exp of minus (|z| - variance / scale)² / (2 variance)
        gap = abs(z) * scale - variance
        if _bernoulli_exp(gap * gap, 2 * variance * scale * scale):
            drawn.append(z)
    return np.array(drawn, np.int64)


def _discrete_laplace(scale: int) -> int:
    """Draw z with a probability in proportion to exp(-|z| / scale)."""
    while True:
        low = secrets.randbelow(scale)
        if not _bernoulli_exp(low, scale):
            continue
        high = 0
        while _bernoulli_exp(1, 1):
            high += 1
        size, negative = low + scale * high, secrets.randbits(1)
        if size or not negative:
            return -size if negative else size


def _bernoulli_exp(top: int, bottom: int) -> bool:
    """Return True with the probability exp(-top / bottom)."""
    while top > bottom:
        if not _bernoulli_exp(1, 1):
            return False
        top -= bottom
    trial = 1
    while secrets.randbelow(bottom * trial) < top:
        trial += 1
    return trial % 2 == 1


def _sum_distance(variance: int, honest: int) -> float:
    """Bound the log ratio of a sum of discrete Gaussians to the one of their variance.

    Kairouz et al., for variances of 1/4 or more.
    """
    terms = range(1, honest)
    return 10 * sum(math.exp(-2 * math.pi**2 * variance * k / (k + 1)) for k in terms)


def _check_delta(delta: float) -> float:
    if check_positive("delta", delta) >= 1:
        raise ValueError(f"delta must be below 1, got {delta}")
    return float(delta)


def _accounting() -> Any:
    try:
        return import_module("dp_accounting.pld.privacy_loss_distribution")
    except ImportError as error:
        raise ImportError(
            "differentially private values need the package dp-accounting: "
            "pip install 'jaxsel[private]'"
        ) from error
