"""Guarantee of the greedy choice against the best one: Theorem 3.1, for given data."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.mesh import along
from jaxsel._inputs.checks import check_count, check_positive, widen

from ._inputs import Candidates, as_oracle, penalty_diagonal
from ._resident import laid_out
from ._usable import check_products, usable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submodularity:
    """Bounds on the matching objective, and the guarantee that they give for OMP.

    Attributes:
        concavity: m, the restricted strong concavity: l2 + penalty_l2 · min ψ².
        smoothness: M, the restricted smoothness:
            l2 + penalty_l2 · max ψ² + k · max ‖g‖².
        gamma: The submodularity ratio is at least this: m / M.
        paper_gamma: The paper's ratio, which has the largest ψ in m instead of the
            smallest. It is too large unless all ψ are equal.
        guarantee: `score="omp"` reaches at least this share of the best choice's gain:
            1 − exp(−γ).
    """

    concavity: float
    smoothness: float
    gamma: float
    paper_gamma: float
    guarantee: float


def submodularity(
    candidates: Candidates,
    budget: int,
    *,
    l2: float = 0.5,
    penalty: npt.ArrayLike | jax.Array | None = None,
    penalty_l2: float = 1.0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Submodularity:
    """Compute the weak submodularity of matching for given candidates.

    The paper bounds strong concavity from below by the largest distance (the spectral
    norm of Ψ). The inequality needs the smallest, which is used here. The bound is for
    the worst case: long gradients or a small ridge make it weak, and the choice is
    usually far better.

    Args:
        candidates: An oracle of n gradients, or an array `[n, p]`; one call of `diag`.
        budget: k.
        l2: As in `omp`.
        penalty: Optional ψ, `[n]`.
        penalty_l2: As in `omp`.
        mesh: As in `omp`.
        axis: As in `omp`.

    Returns:
        Bounds on the objective, the submodularity ratio, and OMP's guarantee by it.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit or a number is out of range.

    References:
        Sarwar et al., Mycroft, 2024, Theorem 3.1 and Appendix B. Elenberg et al.,
        Restricted strong convexity implies weak submodularity, 2016.
    """
    mesh = along(mesh, axis)
    oracle = laid_out(as_oracle("candidates", candidates, mesh), mesh)
    k = check_count("budget", budget)
    l2 = check_positive("l2", l2, zero=True)
    extra = penalty_diagonal(penalty, penalty_l2, len(oracle))
    squares = widen(jnp.asarray(oracle.diag()))
    check_products(squares)
    # Candidates with a NaN are never chosen.
    longest = float(np.max(np.asarray(squares)[np.asarray(usable(squares))], initial=0))
    m, paper = l2 + float(extra.min()), l2 + float(extra.max())
    smooth = paper + k * longest
    gamma = m / smooth if smooth else 1.0
    return Submodularity(
        concavity=m,
        smoothness=smooth,
        gamma=gamma,
        paper_gamma=paper / smooth if smooth else 1.0,
        guarantee=float(-np.expm1(-gamma)),
    )
