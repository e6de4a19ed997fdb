"""The default model: logistic regression and neighbours, as suits the labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxsel.neighbors import METRICS, Metric

from ._columns import with_hinges
from ._logistic import tuned_logistic
from ._neighbours import Near, nearest_others, votes
from ._pool import pool

NEIGHBOURS = (5, 10, 20, 50, 100)
SHARPNESS = (0.0, 1.0, 3.0)
_TRIED = 1024  # samples on which metrics are compared


class Blended(NamedTuple):
    """Probabilities of the default model, and of the models that it combines.

    Attributes:
        probs: `[n, K]`.
        members: Probabilities by each model, `[n, K]`.
        about: Penalty, neighbours and powers, for people.
    """

    probs: np.ndarray
    members: tuple[np.ndarray, ...]
    about: str


def blend(
    x: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    near: Near | None,
) -> Blended:
    """Predict held-out probabilities by the default model.

    Logistic regression predicts each fold from the others, its penalty chosen by the
    held-out likelihood: of a table twice, with columns that bend (`with_hinges`) and
    without. Bends follow curves, but also the plateaus by which flipped labels are
    told from overlap. Neighbours vote on each sample, their number and weights chosen
    by the likelihood, too. All are pooled by powers of the greatest likelihood.

    Args:
        x: `[n, ...]`.
        codes: Labels, `[n]`.
        n_classes: Number of classes.
        fold: Of each sample, `[n]`.
        near: Each sample's nearest others; None leaves them out.
    """
    bent = with_hinges(x) if x.ndim == 2 else x
    tuned = tuned_logistic(bent, codes, n_classes, fold)
    about = f"logistic regression with l2={tuned.l2:.3g}"
    members = [tuned.log_probs]
    if bent.shape != x.shape:
        # With the bends set to zero, the compiled program serves again.
        straight = np.zeros_like(bent)
        straight[:, : x.shape[1]] = x
        tuned = tuned_logistic(straight, codes, n_classes, fold)
        about += f", without bends l2={tuned.l2:.3g},"
        members.append(tuned.log_probs)
    if near is not None:
        every = np.arange(len(codes))
        _, k, sharpness, voted = _best_votes(near, codes, n_classes, every)
        members.append(np.log(voted).astype(np.float32))
        about += f" and {k} neighbours of sharpness {sharpness:g}"
    probs, powers = pool(members, codes)
    weights = ", ".join(f"{power:.2f}" for power in powers)
    member_probs = tuple(np.exp(member) for member in members)
    return Blended(probs, member_probs, f"{about}, powers {weights}")


def likelier_metric(
    x: np.ndarray, codes: np.ndarray, n_classes: int
) -> tuple[Metric, Near | None]:
    """Choose the distance by which neighbours predict some of the labels better.

    Returns:
        The distance, and each sample's nearest others by it where all were tried.
    """
    rows = np.arange(len(codes))[:: -(-len(codes) // _TRIED)]
    tried: dict[Metric, tuple[float, Near]] = {}
    for metric in METRICS:
        near = nearest_others(x, max(NEIGHBOURS), metric=metric, rows=rows)
        tried[metric] = _best_votes(near, codes, n_classes, rows)[0], near
    best = min(tried, key=lambda metric: tried[metric][0])
    return best, tried[best][1] if len(rows) == len(codes) else None


def _best_votes(
    near: Near, codes: np.ndarray, n_classes: int, rows: np.ndarray
) -> tuple[float, int, float, np.ndarray]:
    """Return the loss of the likeliest votes, their parameters, and the votes."""
    best: tuple[float, int, float, np.ndarray] | None = None
    right = np.arange(len(rows)), codes[rows]
    for k in sorted({min(k, near.indices.shape[1]) for k in NEIGHBOURS}):
        for sharpness in SHARPNESS:
            voted = votes(near, codes, n_classes, k=k, sharpness=sharpness)
            loss = -float(np.mean(np.log(voted[right])))
            if best is None or loss < best[0]:
                best = loss, k, sharpness, voted
    assert best is not None
    return best
