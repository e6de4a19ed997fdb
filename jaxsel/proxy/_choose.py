"""Choosing by score, and if wanted samples unlike each other, or of every class."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int32

from jaxsel._devices.typed import fori_loop, jit
from jaxsel._inputs.checks import (
    as_array,
    check_count,
    check_features,
    check_finite,
    check_positive,
    check_same_length,
    to_float,
)
from jaxsel._inputs.labels import encode_labels
from jaxsel._results.types import Selection
from jaxsel.match import class_budgets
from jaxsel.neighbors import normalise


def choose(
    scores: npt.ArrayLike | jax.Array,
    budget: int,
    *,
    features: npt.ArrayLike | jax.Array | None = None,
    strength: float = 1.0,
    predicted: npt.ArrayLike | jax.Array | None = None,
) -> Selection:
    """Choose the samples with the highest scores.

    Args:
        scores: `[n]`, higher is better. Equal ones go by index.
        budget: How many to choose at most.
        features: Optional `[n, d]`: choose samples that are unlike each other. Each
            choice then has the highest `rank · distance^strength`, of its score's rank
            in (0, 1] and its cosine distance from the nearest one chosen before it.
        strength: How much the distance counts; 0 leaves the order of scores.
        predicted: Optional `[n]`, predicted classes: each gets the same share of the
            budget, or all it has.

    Returns:
        A `Selection`, classes taking turns. Diversity costs budget · n · d.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, or a score is not finite.
    """
    scores = np.asarray(as_array("scores", scores))
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"scores must have shape [n], got {scores.shape}")
    check_finite("scores", scores)
    scores = scores.astype(np.float64)  # unsigned ones would wrap when negated
    budget = check_count("budget", budget)
    strength = check_positive("strength", strength, zero=True)
    x = None
    if features is not None:
        x = normalise(to_float(check_features("features", features)))
        check_same_length("scores", scores, "features", x)
    n = len(scores)
    classes = np.zeros(n, np.int32)
    if predicted is not None:
        classes = encode_labels(predicted, predicted)[0]
        check_same_length("scores", scores, "predicted", classes)
    names, sizes = np.unique(classes, return_counts=True)
    shares = class_budgets(np.ones_like(sizes), sizes, budget)
    turns: list[tuple[int, int]] = []
    for name, share in zip(names, shares, strict=True):
        rows = np.flatnonzero(classes == name)
        order = np.argsort(-scores[rows], kind="stable")
        if x is not None and share:
            rank = np.empty(len(rows), np.float32)
            rank[order] = 1 - np.arange(len(rows)) / len(rows)
            worth = jnp.asarray(rank)
            order = np.asarray(_diverse(worth, x[rows], strength, budget=int(share)))
        turns += [(turn, int(row)) for turn, row in enumerate(rows[order[:share]])]
    turns.sort(key=lambda turn: turn[0])
    indices = np.array([row for _, row in turns], np.int32)
    shown = f"choose(budget={budget}"
    shown += f", strength={strength:g}" if x is not None else ""
    shown += ", by class)" if predicted is not None else ")"
    return Selection(
        indices=jnp.asarray(indices),
        weights=jnp.ones(len(indices), jnp.float32),
        n_valid=jnp.asarray(len(indices), jnp.int32),
        method=shown,
    )


def diverse(
    worth: Float[jax.Array, " n"],
    features: Float[jax.Array, "n d"],
    strength: float | Float[jax.Array, ""],
    *,
    budget: int,
) -> Int32[jax.Array, " budget"]:
    """Choose greedily by worth times distance from earlier choices: a pure kernel.

    Args:
        worth: `[n]`, above 0.
        features: `[n, d]`, rows of unit length.
        strength: Exponent of the distance.
        budget: How many, at most n: static.

    Returns:
        Indices `[budget]`, in the order of choice. Equal ones go by index.
    """

    def step(t: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        near, free, chosen = carry
        j = jnp.argmax(jnp.where(free, worth * near**strength, -1))
        cosine = jnp.matmul(features, features[j], precision="highest")
        near = jnp.minimum(near, jnp.maximum(1 - cosine, 0))
        return near, free.at[j].set(False), chosen.at[t].set(j.astype(jnp.int32))

    worth, features = jnp.asarray(worth), jnp.asarray(features)
    # Nothing is chosen at first: all start at the largest cosine distance.
    start = jnp.full_like(worth, 2), jnp.ones(worth.shape, bool)
    return fori_loop(0, budget, step, (*start, jnp.zeros(budget, jnp.int32)))[2]


_diverse = jit(static_argnames="budget")(diverse)
