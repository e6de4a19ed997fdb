"""Several models' probabilities as one: a product of powers that suits the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from scipy import special

_ROWS = 20_000  # that powers are fitted to


def pool(
    members: Sequence[np.ndarray], codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Combine held-out log probabilities by powers of the greatest likelihood.

    Powers are not negative and need not add up to 1, so a member that is too sure is
    toned down. The likelihood is concave in them.

    Args:
        members: Log probabilities `[n, K]` each, finite.
        codes: Labels, `[n]`.

    Returns:
        Probabilities `[n, K]` float64, and the powers.

    References:
        Genest and Zidek, Combining probability distributions: a critique and an
        annotated bibliography, Statistical Science 1(1), 1986: logarithmic pools.
    """
    from scipy import optimize

    every = -(-len(codes) // _ROWS)
    sample = np.stack([m[::every] for m in members]).astype(np.float64)
    y = codes[::every]
    right = sample[:, np.arange(len(y)), y]

    def loss(powers: np.ndarray) -> tuple[float, np.ndarray]:
        # Mean cross-entropy of softmax(Σ powers · log p); logsumexp is its normaliser.
        z = np.tensordot(powers, sample, 1)
        whole = np.asarray(special.logsumexp(z, axis=1))
        chance = np.exp(z - whole[:, None])
        mean = np.einsum("nk,mnk->m", chance, sample) / len(y)
        return float(np.mean(whole) - powers @ right.mean(1)), mean - right.mean(1)

    start = np.full(len(members), 1 / len(members))
    bounds = [(0, None)] * len(members)
    fitted = cast(
        np.ndarray,
        optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x,
    )
    powers = fitted if fitted.any() else start
    total = sum(p * m for p, m in zip(powers, members, strict=True))
    return special.softmax(np.asarray(total, np.float64), axis=1), powers
