"""The default model: logistic regression and neighbours, as suits the labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._logistic import tuned_logistic
from ._neighbours import Near, votes
from ._pool import pool

NEIGHBOURS = (5, 10, 20, 50)
SHARPNESS = (0.0, 1.0, 3.0)


class Blended(NamedTuple):
    """Probabilities, and how they came about.

    Attributes:
        probs: `[n, K]`.
        about: Penalty, neighbours and powers, for people.
    """

    probs: np.ndarray
    about: str


def blend(
    x: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    near: Near | None,
) -> Blended:
    """Return held-out probabilities of the default model.

    Logistic regression predicts each fold from the others, its penalty being that of
    the greatest held-out likelihood. Neighbours vote on each sample, their number and
    weights chosen likewise. Both are pooled by powers of the greatest likelihood.

    Args:
        x: `[n, ...]`.
        codes: Labels, `[n]`.
        n_classes: Number of classes.
        fold: Of each sample, `[n]`.
        near: Each sample's nearest others; None leaves them out.
    """
    tuned = tuned_logistic(x, codes, n_classes, fold)
    about = f"logistic regression with l2={tuned.l2:.3g}"
    members = [tuned.log_probs]
    if near is not None:
        k, sharpness, voted = _best_votes(near, codes, n_classes)
        members.append(voted)
        about += f" and {k} neighbours of sharpness {sharpness:g}"
    probs, powers = pool(members, codes)
    weights = ", ".join(f"{power:.2f}" for power in powers)
    return Blended(probs, f"{about}, powers {weights}")


def _best_votes(
    near: Near, codes: np.ndarray, n_classes: int
) -> tuple[int, float, np.ndarray]:
    best: tuple[float, int, float, np.ndarray] | None = None
    rows = np.arange(len(codes))
    for k in sorted({min(k, near.indices.shape[1]) for k in NEIGHBOURS}):
        for sharpness in SHARPNESS:
            voted = votes(near, codes, n_classes, k=k, sharpness=sharpness)
            loss = -float(np.mean(np.log(voted[rows, codes])))
            if best is None or loss < best[0]:
                best = loss, k, sharpness, voted
    assert best is not None
    return best[1], best[2], np.log(best[3]).astype(np.float32)
