"""Estimated probability that a given label is wrong, by Bayes' rule and the noise."""

from __future__ import annotations

import numpy as np

_STEPS = 3
_TINY = 1e-12


def wrong_probability(
    probs: np.ndarray, codes: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """Return the probability that each given label is wrong, `[m]`.

    Models that are trained on noisy labels predict these. Which mixture of true classes
    the noise turns into what they predict is found by some steps of Richardson and
    Lucy's deconvolution; Bayes' rule then says how likely the given label is right.

    Args:
        probs: Of the given labels, `[m, K]`.
        codes: The given labels, `[m]`.
        noise: P(given | true), `[K, K]`, whose columns add up to 1.

    References:
        Lucy, An iterative technique for the rectification of observed distributions,
        The Astronomical Journal 79, 1974.
    """
    given = np.maximum(np.asarray(probs, np.float32), _TINY)
    given /= given.sum(axis=1, keepdims=True)
    noise = noise.astype(np.float32)
    # Begins with two terms of the inverse's series, which saves many steps.
    true = np.maximum(2 * given - given @ noise.T, _TINY)
    true /= true.sum(axis=1, keepdims=True)
    for _ in range(_STEPS):
        mixed = np.maximum(true @ noise.T, _TINY)
        true *= (given / mixed) @ noise
        true /= true.sum(axis=1, keepdims=True)
    rows = np.arange(len(codes))
    mixed = np.maximum((true @ noise.T)[rows, codes], _TINY)
    right = true[rows, codes] * noise[codes, codes] / mixed
    return 1 - np.clip(right.astype(np.float64), 0, 1)
