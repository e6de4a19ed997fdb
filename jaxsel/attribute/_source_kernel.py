"""SOURCE: the response of a training, segment by segment, as a pure kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import tree_map

from ._ekfac import ekfac_mean
from ._ekfac_matrix import product
from ._gauss_newton import Influence, chunks_of, gauss_newton_matrix
from ._recipe import Output, Recipe
from ._solutions import solution_scores, target_gradients


@dataclasses.dataclass(frozen=True)
class Spectrum:
    """The eigenvectors of a Gauss-Newton matrix, within one trace.

    Attributes:
        eigenvalues: `[P]`, rising.
        vectors: In columns, `[P, P]`.
        convexity: The least eigenvalue of the loss by the outputs, over all samples.
    """

    eigenvalues: jax.Array
    vectors: jax.Array
    convexity: jax.Array

    @property
    def peak(self) -> jax.Array:
        """Return the largest eigenvalue."""
        return self.eigenvalues[-1]

    def multiply(
        self, rows: jax.Array, function: Callable[[jax.Array, jax.Array], jax.Array]
    ) -> jax.Array:
        """Multiply rows `[t, P]` by a function of the matrix, as `Ekfac.multiply`."""
        turned = function(product(rows, self.vectors), self.eigenvalues[None])
        return product(turned, self.vectors.T)


def source_scores(
    recipe: Recipe,
    networks: Any,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    times: Float[jax.Array, " L"],
    decays: Float[jax.Array, " L"],
    *,
    solver: Literal["exact", "ekfac"] = "exact",
    output: Output = "loss",
    of_mean: bool = False,
    chunk_size: int = 64,
) -> Influence:
    """Sum the responses of a training's segments to each sample: a pure kernel.

    With h the gradient of a target's output at the last network, and of each segment l
    the mean Gauss-Newton matrix H_l of its networks, a sample's mean gradient g_l, the
    time t_l and the decay d_l,

        score = -1/n Σ_l hᵀ exp(-A_L) ... exp(-A_(l+1)) t_l φ(A_l) g_l,
        A_l = t_l H_l + d_l I,   φ(a) = (1 - exp(-a)) / a.

    The product is applied to h from the last segment on, so that no matrix is
    multiplied with another.

    Args:
        recipe: The model and its loss.
        networks: Parameters at c checkpoints of each segment, leaves `[L, c, ...]`, in
            the order of the training.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        times: Of each segment: learning rate / (1 - momentum), times steps.
        decays: Of each segment: its time, times the weight decay.
        solver: "exact", by the eigenvectors of each `[P, P]`; or "ekfac".
        output: The output of a target: see `Recipe.measure`.
        of_mean: Whether to take the mean over targets, `[1, n]`.
        chunk_size: Samples whose derivatives are in memory at once.

    Returns:
        As `gauss_newton`; `peak` is the largest eigenvalue of any segment's matrix.
    """
    n = x.shape[0]
    chunks = chunks_of(x, y, min(chunk_size, n))
    last = tree_map(lambda leaf: leaf[-1, -1], networks)
    targets = target_gradients(recipe, last, x_val, y_val, output, of_mean=of_mean)

    def segment(carry: Any, segment: Any) -> tuple[Any, Any]:
        (rows, total), (networks, time, decay) = carry, segment
        if solver == "ekfac":
            matrix: Any = ekfac_mean(recipe, networks, chunks)
        else:
            matrix = _spectrum(recipe, networks, x, y, chunk_size)

        def exponents(eigenvalues: jax.Array) -> jax.Array:
            # Rounding makes some of the many zeros negative, and a long time would
            # let them grow.
            return time * jnp.maximum(eigenvalues, 0) + decay

        solution = matrix.multiply(
            rows, lambda part, s: part * (time * _mean_exp(exponents(s)))
        )
        # The mean of gradients at the checkpoints: of products, as these are cheaper
        # than gradients of all samples, `[n, P]`.
        scores = jax.lax.map(
            lambda params: solution_scores(recipe, params, chunks, solution), networks
        )
        rows = matrix.multiply(rows, lambda part, s: part * jnp.exp(-exponents(s)))
        return (rows, total + scores.mean(0)), (matrix.peak, matrix.convexity)

    start = targets, jnp.zeros((targets.shape[0], chunks[2].size), targets.dtype)
    (_, total), (peaks, convexity) = jax.lax.scan(
        segment, start, (networks, times, decays), reverse=True
    )
    return Influence(-total[:, :n] / n, peaks.max(), convexity.min())


def _spectrum(
    recipe: Recipe, networks: Any, x: jax.Array, y: jax.Array, chunk_size: int
) -> Spectrum:
    """Decompose the mean of the networks' Gauss-Newton matrices."""
    count = len(jax.tree.leaves(networks)[0])

    def add(total: Any, params: Any) -> tuple[Any, None]:
        matrix, convexity = gauss_newton_matrix(recipe, params, x, y, chunk_size)
        return (total[0] + matrix, jnp.minimum(total[1], convexity)), None

    # A sum, not a map: memory holds one matrix beside it.
    first = tree_map(lambda leaf: leaf[0], networks)
    shapes = jax.eval_shape(lambda p: gauss_newton_matrix(recipe, p, x, y, 1), first)
    start = tuple(
        jnp.full(shape.shape, fill, shape.dtype)
        for shape, fill in zip(shapes, (0, jnp.inf), strict=True)
    )
    (total, convexity), _ = jax.lax.scan(add, start, networks)
    eigenvalues, vectors = jnp.linalg.eigh(total / count)
    return Spectrum(eigenvalues, vectors, convexity)


def _mean_exp(exponents: jax.Array) -> jax.Array:
    """Return (1 - exp(-a)) / a, the mean of exp(-s) over s in [0, a]; 1 at 0."""
    positive = exponents > 0
    safe = jnp.where(positive, exponents, 1)
    return jnp.where(positive, -jnp.expm1(-safe) / safe, 1)
