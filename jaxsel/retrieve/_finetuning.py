"""Rows of a pool to fine-tune a network on, chosen for a target by their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._inputs.chunk import chunk_slices
from jaxsel._results.types import Selection
from jaxsel.match import herding, influence_topk, omp

from ._coordinates import TargetCoordinates, target_coordinates
from ._examples import Network
from ._round_robin import round_robin
from ._targeted import retrieve_targeted

Chooser = Literal[
    "round_robin", "omp", "herding", "facility_location", "mean_alignment"
]

# Inner products of candidates and target samples in memory at once.
_ENTRIES = 2**22


def select_for_finetuning(
    candidates: Any,
    target: Any,
    budget: int,
    *,
    network: Network = None,
    chooser: Chooser = "round_robin",
    rank: int = 64,
    normalise: bool = True,
    chunk_size: int | None = None,
    progress: bool = False,
) -> Selection:
    """Choose the rows of a pool to fine-tune a network on for a target task.

    Gradients of the pool are projected to the main directions of the target's
    gradients, `rank` numbers a sample, see `target_coordinates`. Rows that align with
    no target sample, which to first order raise the loss of each, are left out. Of the
    others a chooser takes `budget`, by inner products of these coordinates:

    - "round_robin": target samples take turns, in their order, to choose the row most
      alike to them. Of a budget below m, those have a turn whose mean is near that of
      all, by herding.
    - "omp": matching pursuit of the target's mean gradient, with weights; see `omp`.
      Once it stops, it matches again with rows that are not chosen yet.
    - "herding": kernel mean matching with equal weights; see `herding`.
    - "facility_location": covers the target samples, then repeats rows near them; see
      `retrieve_targeted`.
    - "mean_alignment": the rows most alike to the target's mean gradient.

    Costs one gradient a sample, m inner products each, and the chooser's own work, some
    budget·n·rank multiply-adds. To try choosers or budgets on the same gradients, call
    `target_coordinates` once, and pass its `candidates` and `target` with
    `normalise=False`.

    Args:
        candidates: The pool, as in `target_coordinates`.
        target: The target samples, m of them, as in `target_coordinates`.
        budget: How many rows to choose.
        network: How gradients are made, as in `target_coordinates`: a `models.Target`,
            a pair `(loss, params)`, a function, or None for gradients. A network that
            has learnt something of the task knows best; one with a fresh head will do.
        chooser: One of the names above.
        rank: How many directions to keep at most.
        normalise: Whether to scale gradients to length 1, as in `target_coordinates`.
        chunk_size: Pool samples at a time, or None to choose.
        progress: Whether to show a bar for the gradients.

    Returns:
        A `Selection`: distinct rows in the order of choice, and weights for a weighted
        loss, whose mean is 1. If fewer rows align with the target, or the matching
        pursuit finds no more, it has less than `budget`, and `n_valid` says how many.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a gradient is not finite, if all gradients of the target are 0,
            if no row aligns with a target sample, or if an option is unknown or out of
            range.

    References:
        Xia et al., LESS, ICML 2024; GIST, arXiv 2602.18584 (2026); a critical look at
        targeted instruction selection, arXiv 2602.14696 (2026), on round robin.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.1], [1.0, 0.0], [0.1, 2.0], [-1.0, -1.0]])
        >>> target = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> selection = jaxsel.select_for_finetuning(gradients, target, 2)
        >>> print(np.sort(selection.indices))  # one for each target sample
        [1 2]
    """
    budget = check_count("budget", budget)
    check_choice("chooser", chooser, tuple(_CHOOSERS))
    coordinates = target_coordinates(
        candidates,
        target,
        network=network,
        rank=rank,
        normalise=normalise,
        chunk_size=chunk_size,
        progress=progress,
    )
    rows = _aligned(coordinates)
    if not len(rows):
        raise ValueError(
            "candidates must have a row whose gradient aligns with that of a target "
            f"sample, but none of {len(coordinates)} has"
        )
    pool = coordinates.candidates[rows]
    goal = coordinates.target[np.any(coordinates.target != 0, axis=1)]
    # Of gradients that were not scaled, the longest gets length 1.
    longest = np.linalg.norm(pool, axis=1).max()
    pool, goal = pool / longest, goal / longest
    places, weights = _CHOOSERS[chooser](pool, goal, min(budget, len(rows)))
    return Selection(
        indices=jnp.asarray(rows[places], jnp.int32),
        weights=jnp.asarray(weights / weights.mean(), jnp.float32),
        n_valid=jnp.asarray(len(places), jnp.int32),
        method=f"select_for_finetuning(chooser={chooser!r}, rank={rank}, "
        f"normalise={normalise})",
    )


def _aligned(coordinates: TargetCoordinates) -> np.ndarray:
    """Return the rows with a positive inner product with a target sample."""
    size = max(1, _ENTRIES // len(coordinates.target))
    best = [
        coordinates.serves(np.arange(part.start, part.stop))[1]
        for part in chunk_slices(len(coordinates), size)
    ]
    return np.flatnonzero(np.concatenate(best) > 0)


_Choice = tuple[np.ndarray, np.ndarray]
"""Places in the pool, in the order of choice, and their weights."""


def _by_turns(pool: np.ndarray, goal: np.ndarray, budget: int) -> _Choice:
    if budget < len(goal):
        goal = goal[herding(goal, goal.mean(axis=0), budget).to_numpy()]
    chosen = _round_robin(jnp.asarray(pool), jnp.asarray(goal), budget=budget)
    return np.asarray(chosen), np.ones(budget)


_round_robin = jit(static_argnames=("budget",))(round_robin)


def _by_pursuit(pool: np.ndarray, goal: np.ndarray, budget: int) -> _Choice:
    mean, valid = goal.mean(axis=0), np.ones(len(pool), bool)
    places, weights = np.zeros(0, np.int32), np.zeros(0)
    while len(places) < budget and valid.any():
        match = omp(pool, mean, budget - len(places), valid=valid)
        if not len(match):
            break
        places = np.concatenate([places, match.to_numpy()])
        weights = np.concatenate([weights, match.weights])
        valid[places] = False
    return places, weights


def _by_herding(pool: np.ndarray, goal: np.ndarray, budget: int) -> _Choice:
    selection = herding(pool, goal.mean(axis=0), budget)
    return selection.to_numpy(), np.asarray(selection.weights)


def _by_facilities(pool: np.ndarray, goal: np.ndarray, budget: int) -> _Choice:
    # One more coordinate gives all rows length 1, and is 0 for the target samples: so
    # their cosine is the inner product of the others.
    rest = np.sqrt(np.maximum(1 - np.sum(pool**2, axis=1, keepdims=True), 0))
    features = np.concatenate([pool, rest], axis=1)
    hard = np.pad(goal, ((0, 0), (0, 1)))
    selection = retrieve_targeted(features, hard, budget)
    return selection.to_numpy(), np.ones(len(selection))


def _by_alignment(pool: np.ndarray, goal: np.ndarray, budget: int) -> _Choice:
    selection = influence_topk(pool, goal.mean(axis=0), budget)
    return selection.to_numpy(), np.ones(len(selection))


_CHOOSERS: dict[str, Callable[[np.ndarray, np.ndarray, int], _Choice]] = {
    "round_robin": _by_turns,
    "omp": _by_pursuit,
    "herding": _by_herding,
    "facility_location": _by_facilities,
    "mean_alignment": _by_alignment,
}
