"""Choice of the training checkpoint for gradient matching."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import along
from jaxsel._devices.typed import tree_map
from jaxsel._inputs.show import brief
from jaxsel.gradients import Gradient, squared_norm

from ._grad_match import check_alike, take
from ._inputs import Candidates, as_oracle, in_columns
from ._omp import omp
from ._resident import Resident, laid_out
from ._types import Match


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointChoice:
    """The chosen checkpoint, and the error of each.

    Attributes:
        index: Of the checkpoint with the smallest error; the earlier of equal ones.
        errors: `[T]`: squared distance of the match from the mean gradient of the
            held-out hard samples, relative to the squared length of that gradient. An
            empty match has 1.
    """

    index: int
    errors: np.ndarray


def choose_checkpoint(
    checkpoints: Sequence[tuple[Candidates, Candidates]],
    budget: int,
    *,
    l2: float = 0.5,
    positive: bool = True,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> CheckpointChoice:
    """Choose the checkpoint at which matches generalise best to held-out hard samples.

    At each checkpoint the candidates are matched to every second hard sample, and the
    match is compared with the mean gradient of the others. If you do not want to
    compare, take an early checkpoint: gradients of samples that the model has learnt
    vanish, so earlier ones tend to be more useful (Mycroft, Appendix E.1).

    Args:
        checkpoints: For each, in order of training, the gradients of the candidates and
            those of the same m >= 2 hard samples: oracles or arrays.
        budget: How many candidates to match with.
        l2: As in `omp`.
        positive: As in `omp`.
        mesh: As in `omp`; hard samples that are spread over it stay there, too.
        axis: As in `omp`.

    Returns:
        The index of the checkpoint with the smallest error, and all errors.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there is no checkpoint, or fewer than two hard samples.
    """
    mesh = along(mesh, axis)
    errors: list[jax.Array] = []
    for candidates, target in checkpoints:
        oracle = laid_out(as_oracle("candidates", candidates, mesh), mesh)
        hard = as_oracle("target", in_columns(candidates, target), mesh)
        check_alike(oracle, hard)
        if len(hard) < 2:
            raise ValueError(
                f"target must have at least 2 hard samples, got {len(hard)}"
            )
        halves = [take(hard, np.arange(i, len(hard), 2)).mean() for i in (0, 1)]
        match = omp(oracle, halves[0], budget, l2=l2, positive=positive, mesh=mesh)
        norm = squared_norm(halves[1])
        error = _error(oracle, match, halves[1]) / norm
        errors.append(jnp.where(norm > 0, error, jnp.inf))
    if not errors:
        raise ValueError("checkpoints must hold at least one checkpoint")
    values = np.asarray(jnp.stack(errors))
    return CheckpointChoice(index=int(np.argmin(values)), errors=values)


def _error(oracle: Any, match: Match, target: Gradient) -> jax.Array:
    """Return the squared distance of a match from a target."""
    w = match.weights
    if isinstance(oracle, Resident):
        weights = np.zeros(len(oracle))
        weights[np.asarray(match.indices)[: len(match)]] = w[: len(match)]
        sums = oracle.combine(weights)
        return squared_norm(tree_map(jnp.subtract, sums, target))
    atoms = oracle.take(match.indices)
    through = jnp.matmul(atoms.gram(atoms), w, precision="highest")
    fit = jnp.vdot(w, through - 2 * atoms.corr(target), precision="highest")
    return squared_norm(target) + fit
