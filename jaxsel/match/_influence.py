"""Influence over training: alignment of samples' gradients with the target's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import along
from jaxsel._inputs.checks import check_count, widen
from jaxsel._results.types import Selection
from jaxsel.gradients import Gradient, squared_norm

from ._inputs import Candidates, as_oracle, check_target, in_columns, one_of
from ._resident import Resident, laid_out
from ._usable import check_products, correlations, usable


def influence_scores(
    candidates: Candidates | Sequence[Candidates],
    target: Gradient | Sequence[Gradient],
    *,
    learning_rates: Sequence[float] | None = None,
    normalise: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> jax.Array:
    """Return the fall of the target's loss by a training step on each sample.

    To first order: the sum over checkpoints of `rate · <g_i, b>`. With several targets
    at a checkpoint, stacked along a leading axis (one for each task or class), a sample
    gets its highest score.

    Args:
        candidates: At each checkpoint an oracle of the same n gradients, or an array
            `[n, p]`. A single one need not be in a list.
        target: At each checkpoint the target's gradient, in the oracle's form.
        learning_rates: The learning rate at each checkpoint; 1 if None.
        normalise: Whether to use the cosine instead of the inner product, as LESS does
            for texts of different lengths; pass `projected` gradients for it.
        mesh: Devices to share the candidates among, at each checkpoint. Those whose
            arrays are spread over these stay there, and every process gets their
            scores. Must be None for candidates in files.
        axis: Which axis of the mesh; its only one, or "data", if None.

    Returns:
        Array of shape `[n]`, higher is better; NaN where a gradient of an oracle has
        one. Costs one `corr` for each checkpoint and target, and with `normalise` one
        `diag` for each checkpoint, which for `jvp` is ten times as expensive.

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
    pools: Any = candidates
    oracles: list[Any] = [pools] if single else list(pools)
    targets: list[Any] = [target] if single else list(target)
    try:
        rates = [1.0] * len(oracles) if learning_rates is None else learning_rates
        steps = [float(rate) for rate in rates]
    except (TypeError, ValueError) as error:
        raise TypeError(
            "learning_rates must be a sequence of numbers, one a checkpoint, got "
            f"{learning_rates!r}"
        ) from error
    if not oracles or not len(oracles) == len(targets) == len(steps):
        raise ValueError(
            "candidates, target and learning_rates must have one entry for each "
            f"checkpoint, got {len(oracles)}, {len(targets)} and {len(steps)}"
        )
    if not np.isfinite(steps).all():
        raise ValueError(f"learning_rates must be finite, got {steps}")
    mesh = along(mesh, axis)
    total: Any = None
    for rate, pool, b in zip(steps, oracles, targets, strict=True):
        oracle = laid_out(as_oracle("candidates", pool, mesh), mesh)
        wanted, several = check_target(oracle, in_columns(pool, b))
        if several:
            parts = [one_of(wanted, t) for t in range(len(jax.tree.leaves(wanted)[0]))]
        else:
            parts = [wanted]
        lengths = None
        if normalise:
            squares = widen(jnp.asarray(oracle.diag()))
            check_products(squares)
            lengths = jnp.sqrt(squares)
        scores: list[jax.Array] = []
        for part in parts:
            if isinstance(oracle, Resident):
                score = jnp.asarray(oracle.corr(part))
            else:
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
    learning_rates: Sequence[float] | None = None,
    normalise: bool = False,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Selection:
    """Choose the samples of highest influence on a target.

    Unlike `omp` it looks at each sample alone: duplicates of the best are all chosen.
    Samples whose influence is NaN are not.

    Args:
        candidates: As in `influence_scores`.
        target: As in `influence_scores`.
        budget: How many to choose at most.
        learning_rates: As in `influence_scores`.
        normalise: As in `influence_scores`.
        mesh: As in `influence_scores`.
        axis: As in `influence_scores`.

    Returns:
        A `Selection`, best first, ties by index; weights 1.

    Raises:
        TypeError: As `influence_scores`.
        ValueError: As `influence_scores`, or if the budget is below 1.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> selection = jaxsel.influence_topk(gradients, np.array([1.0, 0.2]), 2)
        >>> print(selection.indices)
        [0 1]
    """
    k = check_count("budget", budget)
    scores = np.asarray(
        influence_scores(
            candidates,
            target,
            learning_rates=learning_rates,
            normalise=normalise,
            mesh=mesh,
            axis=axis,
        )
    )
    order = np.argsort(-scores, kind="stable")[:k]  # NaN comes last
    count = min(len(order), int(np.sum(usable(jnp.asarray(scores)))))
    filled = np.arange(len(order)) < count
    return Selection(
        indices=jnp.asarray(np.where(filled, order, 0), jnp.int32),
        weights=jnp.asarray(filled, scores.dtype),
        n_valid=jnp.asarray(count, jnp.int32),
        method=f"influence_topk(budget={budget}, normalise={normalise})",
    ).unpadded()
