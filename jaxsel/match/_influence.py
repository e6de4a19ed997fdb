"""Which samples' gradients point the way the target's do, over training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._checks import check_count, widen
from jaxsel._types import Selection
from jaxsel.gradients import Gradient, squared_norm

from ._omp import Candidates, as_oracle, check_target, one_of
from ._usable import check_products, correlations, usable


def influence(
    candidates: Candidates | Sequence[Candidates],
    target: Gradient | Sequence[Gradient],
    *,
    rates: Sequence[float] | None = None,
    normalise: bool = False,
) -> jax.Array:
    """Return how far a step on each sample moves the loss that a target belongs to.

    The sum over checkpoints of `rate · <g_i, b>`. With several targets at a checkpoint
    (stacked along a leading axis: one for each task or class) a sample counts by the
    one it serves most.

    Args:
        candidates: At each checkpoint an oracle of the same n gradients, or an array
            `[n, p]`. A single one need not be in a list.
        target: At each checkpoint the target's gradient, in the oracle's form.
        rates: The learning rate at each checkpoint; 1 if None.
        normalise: Whether gradients count by direction only (cosine), as LESS has it
            for gradients of long and short texts; pass `projected` gradients for it.

    Returns:
        Array of shape `[n]`, higher is better; NaN where a gradient of an oracle has
        one. One `corr` a checkpoint and target, and
        with `normalise` one `diag` a checkpoint, which costs `jvp` ten times as much.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, the lists differ in length, or products of
            gradients overflow.

    References:
        Pruthi et al., Estimating Training Data Influence by Tracing Gradient Descent
        (TracIn), NeurIPS 2020. Xia et al., LESS: Selecting Influential Data for
        Targeted Instruction Tuning, ICML 2024.
    """
    single = not isinstance(candidates, (list, tuple))
    oracles: list[Any] = [candidates] if single else list(candidates)
    targets: list[Any] = [target] if single else list(target)
    try:
        steps = [1.0] * len(oracles) if rates is None else [float(r) for r in rates]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"rates must be a sequence of numbers, one a checkpoint, got {rates!r}"
        ) from error
    if not oracles or not len(oracles) == len(targets) == len(steps):
        raise ValueError(
            "candidates, target and rates must have one entry for each checkpoint, got "
            f"{len(oracles)}, {len(targets)} and {len(steps)}"
        )
    if not np.isfinite(steps).all():
        raise ValueError(f"rates must be finite, got {steps}")
    total: Any = None
    for rate, pool, b in zip(steps, oracles, targets, strict=True):
        oracle = as_oracle("candidates", pool)
        wanted, several = check_target(oracle, b)
        if several:
            parts = [one_of(wanted, t) for t in range(len(jax.tree.leaves(wanted)[0]))]
        else:
            parts = [wanted]
        lengths = None
        if normalise:
            squares = widen(oracle.diag())
            check_products(squares)
            lengths = jnp.sqrt(squares)
        scores = []
        for part in parts:
            score = correlations(oracle, part)
            if lengths is not None:
                length = lengths * jnp.sqrt(squared_norm(part))
                score = jnp.where(length == 0, 0, score / length)
            scores.append(rate * score)
        term = jnp.stack(scores)
        if total is not None and term.shape != total.shape:
            raise ValueError(
                "candidates and target must have the same numbers at every checkpoint, "
                f"got scores of shape {total.shape} and {term.shape}"
            )
        total = term if total is None else total + term
    check_products(total)
    return jnp.max(total, axis=0)


def influence_topk(
    candidates: Candidates | Sequence[Candidates],
    target: Gradient | Sequence[Gradient],
    budget: int,
    *,
    rates: Sequence[float] | None = None,
    normalise: bool = False,
) -> Selection:
    """Choose the samples of highest influence on a target.

    Unlike `omp` it looks at each sample alone: duplicates of the best are all chosen.
    Samples whose influence is NaN are not.

    Args:
        candidates: As in `influence`.
        target: As in `influence`.
        budget: How many to choose at most.
        rates: As in `influence`.
        normalise: As in `influence`.

    Returns:
        A `Selection`, best first, ties by index; weights 1.

    Raises:
        TypeError: As `influence`.
        ValueError: As `influence`, or if the budget is below 1.
    """
    k = check_count("budget", budget)
    scores = np.asarray(influence(candidates, target, rates=rates, normalise=normalise))
    order = np.argsort(-scores, kind="stable")[:k]  # NaN comes last
    count = min(len(order), int(np.sum(usable(jnp.asarray(scores)))))
    filled = np.arange(len(order)) < count
    return Selection(
        indices=jnp.asarray(np.where(filled, order, 0), jnp.int32),
        weights=jnp.asarray(filled, scores.dtype),
        n_valid=jnp.asarray(count, jnp.int32),
        method=f"influence_topk(budget={budget}, normalise={normalise})",
    )
