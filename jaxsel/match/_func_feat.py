"""FuncFeat: gradient matching with a penalty on distances in feature space."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Real

from jaxsel._devices.mesh import along, gather, is_on, replicate, whole
from jaxsel._devices.typed import finfo, fori_loop, jit, lax_map, norm
from jaxsel._inputs.alignment import align_columns
from jaxsel._inputs.checks import check_choice, check_count, check_features, to_float
from jaxsel.neighbors import normalise

from ._grad_match import Labels, by_class, check_alike, filled_up, mean_of, take
from ._inputs import Candidates, as_oracle, in_columns
from ._omp import omp
from ._pursuit import Score
from ._resident import Resident
from ._types import Match

Distances = Literal["median", "all"]
_DISTANCES = ("median", "all")


def func_feat(
    candidates: Candidates,
    target: Candidates,
    features: npt.ArrayLike | jax.Array,
    hard_features: npt.ArrayLike | jax.Array,
    budget: int,
    *,
    labels: Labels | None = None,
    hard_labels: Labels | None = None,
    distances: Distances = "median",
    l2: float = 0.5,
    penalty_l2: float = 2.0,
    positive: bool = True,
    score: Score = "ols",
    tol: float = 0.0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
    progress: bool = False,
) -> Match:
    """Match a hard set's mean gradient, preferring samples near it in feature space.

    Minimises `‖Σ w_i g_i − b‖² + l2 ‖w‖² + penalty_l2 ‖ψ w‖²`, where ψ_i is the
    distance of candidate i's features from the geometric median of the hard samples'
    (of its class, with labels), all at unit length: a diagonal, as in the authors'
    code. With the default score this penalty affects the choice. With "omp", as in the
    authors' code, it affects the weights only. With `distances="all"` the penalty is
    `penalty_l2 ‖D w‖²`, as in the paper's Eq. 2, where `D_hi` is the distance of
    candidate i from hard sample h. It affects the choice with every score.

    Args:
        candidates: An oracle of n gradients, or an array `[n, p]`.
        target: The hard set's gradients: an oracle made alike, or an array `[m, p]`.
        features: Array of shape `[n, d]`.
        hard_features: Array of shape `[m, d]`.
        budget: How many samples to choose at most.
        labels: Optional `[n]`: match class by class, as `grad_match` does.
        hard_labels: `[m]`; needed with `labels`.
        distances: "median", from the geometric median of the hard samples, or "all",
            from each of them: m·n numbers, on every process, as the `penalty` of `omp`.
        l2: As in `omp`.
        penalty_l2: Weight λ₂ of the distances; the authors use 2 and 200.
        positive: As in `omp`.
        score: As in `omp`.
        tol: As in `omp`, for each class.
        mesh: As in `omp`.
        axis: As in `omp`.
        progress: Whether to show bars.

    Returns:
        A `Match`, as from `grad_match`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, or labels are given for one side only.

    References:
        Sarwar et al., Mycroft: Towards Effective and Efficient External Data
        Augmentation, 2024, Eq. 2 and Theorem 3.1 (`submodularity`).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
        >>> hard = np.array([[1.0, 0.1], [0.9, 0.0]])  # gradients of the hard samples
        >>> features = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> hard_features = np.array([[1.0, 0.1], [1.0, 0.0]])
        >>> match = jaxsel.func_feat(gradients, hard, features, hard_features, 1)
        >>> print(match.indices)  # row 0 matches, too, but looks unlike them
        [1]
    """
    mesh = along(mesh, axis)
    check_choice("distances", distances, _DISTANCES)
    oracle = as_oracle("candidates", candidates, mesh)
    hard = as_oracle("target", in_columns(candidates, target), mesh)
    check_alike(oracle, hard)
    budget = check_count("budget", budget)
    x: Any = features
    names = "features", "hard_features"
    hard_features = align_columns(x, hard_features, names=names)
    if is_on(x, mesh):
        x = as_oracle("features", x, mesh, hint="")
        width = x.oracle.gradients.shape[1]
    else:
        x = to_float(check_features("features", whole(x)))
        width = x.shape[1]
    x_hard = to_float(check_features("hard_features", whole(hard_features)))
    for name, shape, wanted in (
        ("features", (len(x), width), (len(oracle), width)),
        ("hard_features", x_hard.shape, (len(hard), width)),
    ):
        if shape != wanted:
            raise ValueError(f"{name} must have shape {wanted}, got {shape}")
    options: Any = {"l2": l2, "penalty_l2": penalty_l2, "positive": positive}
    options |= {"score": score, "tol": tol, "progress": progress}
    options["mesh"] = mesh

    def match(rows: np.ndarray | None, hard_rows: np.ndarray | None, k: int) -> Match:
        pool = oracle if rows is None else take(oracle, rows)
        if hard_rows is None:
            hard_rows = np.arange(len(x_hard))
        theirs, weights = filled_up(hard_rows)
        penalty = _psi(x, rows, x_hard[theirs], jnp.asarray(weights), distances)
        if distances == "all":
            penalty = np.asarray(penalty)[:, : len(hard_rows)].T
        return omp(pool, mean_of(hard, hard_rows), k, penalty=penalty, **options)

    return by_class(
        match, len(oracle), len(hard), budget, labels, hard_labels, name="func_feat"
    )


def _psi(
    x: Any,
    rows: np.ndarray | None,
    x_hard: jax.Array,
    weights: jax.Array,
    distances: Distances,
) -> np.ndarray | jax.Array:
    """Compute the distances of some candidates, or of all, on every process."""
    if not isinstance(x, Resident):
        subset = x if rows is None else x[rows]
        if distances == "all":
            return _all_distances(subset, x_hard)
        return _distance(subset, x_hard, weights)
    subset = x if rows is None else x.take(rows)
    features = subset.oracle.gradients
    if distances == "all":
        psi = _all_distances(features, replicate(x_hard, x.mesh))
    else:
        psi = _distance(features, *replicate((x_hard, weights), x.mesh))
    return gather(psi)[subset.places >= 0]


@jit()
def _all_distances(features: jax.Array, hard_features: jax.Array) -> jax.Array:
    """Compute the distances between vectors of unit length, `[n, m]`."""
    unit = normalise(features)

    def of(hard: jax.Array) -> jax.Array:
        return norm(unit - hard[None], axis=-1)

    return lax_map(of, normalise(hard_features)).T


@jax.jit
def median_distance(
    features: Float[jax.Array, "n d"], hard_features: Float[jax.Array, "m d"]
) -> Float[jax.Array, " n"]:
    """Return distances from the hard samples' geometric median: a pure kernel.

    Args:
        features: Array of shape `[n, d]`.
        hard_features: Array of shape `[m, d]`.

    Returns:
        ψ, `[n]`: the distance between vectors of unit length, from 0 to 2.
    """
    return _distance(features, hard_features)


@jit()
def _distance(
    features: jax.Array, hard_features: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    median = geometric_median(normalise(hard_features), weights=weights)
    return norm(normalise(features) - normalise(median[None]), axis=-1)


def geometric_median(
    points: Float[jax.Array, "m d"],
    *,
    weights: Real[jax.Array, " m"] | None = None,
    steps: int = 100,
) -> Float[jax.Array, " d"]:
    """Return the point with the least sum of distances to given points: a pure kernel.

    Weiszfeld's iteration, with a lower bound on the distances.

    Args:
        points: Floating-point array of shape `[m, d]`.
        weights: Optional `[m]`, not negative: weight of each distance.
        steps: Number of iterations; each costs O(m·d).

    Returns:
        Array of shape `[d]`.

    Raises:
        TypeError: If points are not floating-point numbers.

    References:
        Vardi and Zhang, The multivariate L1-median and associated data depth, PNAS 97,
        2000.
    """
    if not jnp.issubdtype(points.dtype, jnp.floating):
        raise TypeError(f"points must be floating-point numbers, got {points.dtype}")
    m = points.shape[0]
    share = jnp.full(m, 1 / m, points.dtype) if weights is None else weights
    share = (share / jnp.sum(share)).astype(points.dtype)
    mean = jnp.matmul(share, points, precision="highest")
    spread = jnp.sqrt(jnp.sum(share * jnp.sum((points - mean[None]) ** 2, axis=-1)))
    # Weiszfeld's weights 1 / distance are infinite where an iterate meets a point.
    least = 1e-6 * spread + finfo(points.dtype).tiny

    def step(_: jax.Array, median: jax.Array) -> jax.Array:
        distance = norm(points - median[None], axis=-1)
        weight = share / jnp.maximum(distance, least)
        total = jnp.matmul(weight, points, precision="highest")
        return total / jnp.sum(weight)

    return fori_loop(0, steps, step, mean)
