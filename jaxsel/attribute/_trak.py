"""TRAK: attribution by random projections of the gradients of log-odds."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy import linalg

from jaxsel._devices.typed import finfo, jit, tree_map
from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._results.types import Values
from jaxsel.gradients import per_sample, projected

from ._inputs import Samples
from ._networks import trained_networks
from ._recipe import Output, Recipe, check_recipe, name_of_output

_PROJECTION = 2**31 - 4  # folded into the key of a run


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The output of one sample, as a function that is compiled once a recipe."""

    recipe: Recipe
    output: Output

    def __call__(self, params: Any, sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = sample
        outputs = self.recipe.apply(params, x[None])
        return self.recipe.measure(self.output, outputs, y[None])[0]


def trak(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    seeds: int = 1,
    params: Sequence[Any] | None = None,
    share: float = 1.0,
    dim: int | None = 512,
    kind: Literal["rademacher", "count_sketch"] = "rademacher",
    damping: float | None = None,
    output: Output = "log_odds",
    reduce: Literal["mean"] | None = "mean",
    chunk_size: int | None = None,
) -> Values:
    """Attribute a classifier's outputs by projected gradients of its log-odds.

    The network is replaced by a logistic regression on its gradients. With the samples'
    gradients of log-odds in Φ, `[n, dim]`, and the gradient of a target's output in φ,
    all projected at random, and the probability p of each sample's label,

        scores = (mean of φᵀ (ΦᵀΦ + damping n I)⁻¹ Φᵀ) · (mean of 1 - p),

    with means over networks, each with a projection of its own. For classes and the
    cross-entropy only.

    It takes no memory for a matrix of parameters, so that it is for networks that
    `network_influence` refuses, with as many seeds as there is time for; where that
    one works, it scores higher: see `benchmarks/ATTRIBUTE.md`.

    Args:
        recipe: The model and its training, with `loss=None`.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels, `[t]`.
        key: Key of projections and trainings; run s has `fold_in(key, s)`.
        seeds: Number of networks, trained in one program.
        params: Networks that are trained already, a pytree of parameters each.
        share: Share of the samples that each network is trained on, at random. The
            paper takes a half.
        dim: Numbers kept of each gradient; None keeps all P, without a projection.
        kind: Of projection: "rademacher", or "count_sketch", which costs P instead of P
            · dim; see `gradients.projected`.
        damping: Added to the diagonal of ΦᵀΦ / n, whose trace is about the mean squared
            length of a gradient. The paper has none; None takes what rounding needs.
        output: The output of a target: see `Recipe.measure`.
        reduce: "mean" over targets, or None: a row for each target.
        chunk_size: Samples whose gradients `[P]` are in memory at once; it changes
            speed and memory only. None chooses it by P.

    Returns:
        `Values`, `[n]` or `[t, n]`, in units of the output; `count` is the number of
        networks, and `stderr` the standard error between them by the jackknife, None
        for one.

    Costs the trainings and, for each network, a forward and a backward pass over
    samples and targets, `(n + t) P dim` additions or, with "count_sketch", `(n + t) P`,
    and `n dim (dim + t)` multiplications in float64 on the host. Memory: `(n + t) dim`
    numbers, and `seeds t n`.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, y has no labels, the
            recipe has a loss of its own, the model keeps statistics or draws, a
            training ends in NaN, or ΦᵀΦ is singular with the damping.

    References:
        S. M. Park et al., TRAK: attributing model behavior at scale, ICML 2023,
        equation 17 and algorithm 1, without the soft threshold; B. Efron, The
        jackknife, the bootstrap and other resampling plans, SIAM 1982, section 3.
    """
    check_recipe(recipe)
    samples = recipe.check(x, y, x_val, y_val)
    if recipe.loss is not None or not jnp.issubdtype(samples.y.dtype, jnp.integer):
        raise ValueError(
            "recipe must have loss=None, and y labels, for the log-odds of TRAK, got "
            f"loss={recipe.loss!r} and y of {samples.y.dtype}"
        )
    recipe.check_output(output, samples.y)
    check_choice("reduce", reduce, ("mean", None))
    check_choice("kind", kind, ("rademacher", "count_sketch"))
    check_count("seeds", seeds)
    if dim is not None:
        check_count("dim", dim)
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if damping is not None:
        check_positive("damping", damping, zero=True)
    n = len(samples.x)
    if check_positive("share", share) > 1 or round(share * n) < 1:
        raise ValueError(
            f"share must be at most 1, and of {n} samples at least one, got {share}"
        )
    trained = trained_networks(
        recipe, samples, key, seeds, params, size=round(share * n)
    )
    count = len(jax.tree.leaves(trained)[0])
    kernels, rests = [], []
    for run in range(count):
        network = tree_map(lambda leaf, run=run: leaf[run], trained)
        run_key = jax.random.fold_in(jax.random.fold_in(key, run), _PROJECTION)
        project = _Projection(run_key, dim, kind, chunk_size)
        features = project(recipe, "log_odds", network, samples.x, samples.y)
        of_targets = project(recipe, output, network, samples.x_val, samples.y_val)
        if reduce == "mean":
            of_targets = of_targets.mean(0, keepdims=True)
        kernels.append(_kernel(features, of_targets, damping))
        rests.append(_rest(recipe, network, samples.x, samples.y))
    return _ensemble(
        np.stack(kernels),
        np.stack(rests, dtype=np.float64),
        samples,
        reduce,
        f"trak(dim={dim}, kind={kind}, share={share:g}, damping={damping}, "
        f"output={name_of_output(output)}, networks={count})",
    )


class _Projection:
    """Projected gradients of the output of each sample, `[n, dim]`."""

    def __init__(
        self, key: jax.Array, dim: int | None, kind: Any, chunk_size: int | None
    ):
        self.key, self.dim, self.kind, self.chunk_size = key, dim, kind, chunk_size

    def __call__(
        self, recipe: Recipe, output: Output, params: Any, x: jax.Array, y: jax.Array
    ) -> np.ndarray:
        measured, size = _Measured(recipe, output), self.chunk_size
        if self.dim is None:
            oracle = per_sample(measured, params, (x, y), chunk_size=size)
        else:
            oracle = projected(
                measured,
                params,
                (x, y),
                dim=self.dim,
                key=self.key,
                kind=self.kind,
                chunk_size=size,
            )
        return np.asarray(oracle.rows_held())


def _kernel(
    features: np.ndarray, of_targets: np.ndarray, damping: float | None
) -> np.ndarray:
    """Return φᵀ (ΦᵀΦ + damping n I)⁻¹ Φᵀ, `[t, n]`, in float64."""
    rounding = finfo(features.dtype).eps
    features, of_targets = features.astype(np.float64), of_targets.astype(np.float64)
    n, dim = features.shape
    matrix = features.T @ features / n
    if damping is None:
        # Rounding of the features, and of this matrix, makes directions that no
        # gradient has: they are damped to nothing. The trace bounds the peak.
        least = max(rounding / dim, dim * finfo(np.float64).eps)
        damping = least * float(np.trace(matrix))
    matrix[np.diag_indices(dim)] += damping
    try:
        factor = linalg.cho_factor(matrix, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"damping must be larger for dim = {dim} numbers of the gradients of {n} "
            f"samples, whose products are singular, got {damping:.3g}; or take a "
            "smaller dim"
        ) from error
    return linalg.cho_solve(factor, of_targets.T).T @ features.T / n


@jit(static_argnames=("recipe",))
def _rest(recipe: Recipe, params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Return one minus the probability of each label, with all digits where small."""
    log_odds = recipe.measure("log_odds", recipe.apply(params, x), y)
    return jax.nn.sigmoid(-log_odds)


def _ensemble(
    kernels: np.ndarray,
    rests: np.ndarray,
    samples: Samples,
    reduce: Literal["mean"] | None,
    method: str,
) -> Values:
    """Multiply means over networks of kernels `[m, t, n]` and rests `[m, n]`."""
    count = len(kernels)
    if reduce == "mean":
        kernels = kernels[:, 0]
    else:
        rests = rests[:, None]
    scores = kernels.mean(0) * rests.mean(0)
    samples.check_finite("the solution", scores)
    m2 = None
    if count > 1:
        # The product of two means is not a mean of products: the jackknife's
        # pseudo-values take the place of the networks' own.
        total, rest = kernels.sum(0), rests.sum(0)
        without = (total - kernels) * (rest - rests) / (count - 1) ** 2
        m2 = (count - 1) ** 2 * count * without.var(0)
    kind = jnp.float64 if samples.x.dtype == jnp.float64 else jnp.float32
    return Values(
        values=jnp.asarray(scores, kind),
        count=jnp.asarray(count, jnp.int32),
        m2=None if m2 is None else jnp.asarray(m2, kind),
        method=method,
        reduce=reduce,
        index=samples.row_labels,
    )
