"""Simpler thresholds, to compare with."""

from __future__ import annotations

import math

import jax
import numpy as np
import numpy.typing as npt

from ._inputs import as_losses


def quantile_threshold(
    benchmark_losses: npt.ArrayLike | jax.Array, level: float = 0.95
) -> float:
    """Return a quantile of the benchmark's losses.

    It is the least loss at or below which a share `level` of them lies. It does not
    depend on the samples to choose from: clean ones are dropped at the rate
    `1 - level`, with or without noise.

    Args:
        benchmark_losses: Losses of clean samples, `[m]`.
        level: The share, in (0, 1].

    Raises:
        ValueError: If there are no losses, one is not finite, or `level` lies outside.
    """
    losses = as_losses("benchmark_losses", benchmark_losses)
    if not len(losses):
        raise ValueError("benchmark_losses must hold at least one loss")
    if not 0 < level <= 1:
        raise ValueError(f"level must lie above 0 and up to 1, got {level}")
    # Rounded first: .07 of 100 is a little above 7 in binary.
    rank = math.ceil(round(level * len(losses), 9))
    return float(np.sort(losses)[max(rank, 1) - 1])


def mixture_threshold(losses: npt.ArrayLike | jax.Array) -> float:
    """Fit two Gaussians to the losses, and return where the second gets more likely.

    Needs no benchmark losses, but assumes two clusters: small losses of clean samples,
    and large ones of noise. Uses scikit-learn's `GaussianMixture` with five starts.

    Args:
        losses: Losses of the samples to choose from, `[n]`.

    Returns:
        The largest loss between both means that belongs to the lower Gaussian with
        probability 1/2 or more; the lower mean where there is none.

    Raises:
        ValueError: If fewer than two losses are distinct, or one is not finite.

    References:
        Arazo et al., Unsupervised Label Noise Modeling and Loss Correction, ICML 2019;
        Li, Socher and Hoi, DivideMix, ICLR 2020 (with Gaussians).
    """
    from sklearn.mixture import GaussianMixture

    x = np.sort(as_losses("losses", losses).astype(np.float64))
    if not len(x) or x[0] == x[-1]:
        raise ValueError("losses must hold at least two distinct losses")
    mixture = GaussianMixture(2, n_init=5, reg_covar=1e-4, random_state=0)
    # On a scale of 0 to 1, as its smallest variance and its tolerance expect.
    scaled = ((x - x[0]) / (x[-1] - x[0]))[:, None]
    mixture.fit(scaled)
    means = np.asarray(mixture.means_)[:, 0]
    low, high = np.sort(means)
    between = (scaled[:, 0] >= low) & (scaled[:, 0] <= high)
    first = mixture.predict_proba(scaled)[:, int(np.argmin(means))] >= 0.5
    kept = x[between & first]
    return float(kept[-1] if len(kept) else x[0] + low * (x[-1] - x[0]))
