"""Influence by the damped Gauss-Newton matrix, solved exactly: a pure kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import cholesky

from ._recipe import Output, Recipe

_STRIPS = 8  # of a symmetric product, whose lower part is not computed


class Influence(NamedTuple):
    """Scores of a Gauss-Newton solve, with bounds of the matrices in it.

    Attributes:
        scores: `[t, n]`.
        peak: At least the largest eigenvalue of the matrix without its damping.
        convexity: The least eigenvalue of the loss by the outputs, over all samples:
            negative if the loss is not convex in them.
    """

    scores: jax.Array
    peak: jax.Array
    convexity: jax.Array


class _Sample(NamedTuple):
    gradient: jax.Array  # [P], of the loss
    roots: jax.Array  # [r, P]: their products sum to its Gauss-Newton matrix
    convexity: jax.Array


def gauss_newton(
    recipe: Recipe,
    params: Any,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    damping: Float[jax.Array, ""] | float,
    *,
    output: Output = "loss",
    chunk_size: int = 64,
) -> Influence:
    """Solve for the influence of each sample on each target: a pure kernel.

    With J the derivatives of the outputs by P parameters, A the second derivative of
    the loss by the outputs, g the gradient of a sample's loss and h that of the output
    of a target,

        score = -1/n hᵀ (1/n Σ JᵀAJ + damping · I)⁻¹ g,

    by Cholesky in the space of parameters, `[P, P]`, or of the samples' outputs,
    `[nK, nK]`, whichever is smaller.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        damping: Above 0.
        output: The output of a target: see `Recipe.measure`.
        chunk_size: Samples whose derivatives `[K, P]` are in memory at once.

    Returns:
        A named tuple: `scores`, `[t, n]`; `peak`, at least the largest eigenvalue of
        the matrix without its damping; `convexity`, the least eigenvalue of the loss by
        the outputs over all samples, negative if the loss is not convex in them.
    """
    flat, unravel = ravel_pytree(params)
    n, size = x.shape[0], flat.size

    def outputs(flat: jax.Array, x: jax.Array) -> jax.Array:
        return recipe.apply(unravel(flat), x[None])[0]

    def loss(outputs: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.losses(outputs[None], y[None])[0]

    def measured(flat: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.measure(output, outputs(flat, x)[None], y[None])[0]

    of_sample = _sample_function(recipe, params)
    shape = jax.eval_shape(of_sample, x[0], y[0]).roots.shape
    targets = jax.vmap(jax.grad(measured), (None, 0, 0))(flat, x_val, y_val)
    chunks = _Chunks(x, y, min(chunk_size, n), jax.vmap(of_sample))
    if size <= n * shape[0]:
        matrix, convexity = chunks.square(size)
        factor = cholesky(matrix / n + damping * jnp.eye(size, dtype=matrix.dtype))
        right = jax.scipy.linalg.cho_solve((factor, True), targets.T)
        gradient = jax.grad(lambda flat, x, y: loss(outputs(flat, x), y))
        scores = chunks.products(jax.vmap(gradient, (None, 0, 0)), flat, right.T)
    else:
        # By Woodbury's identity, in the space of the samples' outputs.
        samples = chunks.all()
        roots = samples.roots.reshape(-1, size) / n**0.5
        matrix = n * _product(roots, roots.T)
        inner = matrix / n + damping * jnp.eye(len(roots), dtype=roots.dtype)
        factor = cholesky(inner)
        of_targets = _product(roots, targets.T)
        of_samples = _product(roots, samples.gradient.T)
        solved = jax.scipy.linalg.cho_solve((factor, True), of_samples)
        scores = _product(targets, samples.gradient.T)
        # (RᵀR + λI)⁻¹ = (I − Rᵀ (RRᵀ + λI)⁻¹ R) / λ, between targets and samples.
        scores = (scores - _product(of_targets.T, solved)) / damping
        convexity = samples.convexity.min()
    # The largest absolute row sum bounds all eigenvalues, and the matrices of both
    # spaces have the same ones above zero.
    peak = jnp.abs(matrix).sum(1).max() / n
    return Influence(-scores / n, peak, convexity)


def gauss_newton_matrix(
    recipe: Recipe, params: Any, x: jax.Array, y: jax.Array, chunk_size: int
) -> tuple[jax.Array, jax.Array]:
    """Return the Gauss-Newton matrix of the mean loss, `[P, P]`, and the convexity.

    Args:
        recipe: The model and its loss.
        params: Parameters at which to differentiate.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        chunk_size: As of `gauss_newton`.
    """
    n, size = x.shape[0], sum(leaf.size for leaf in jax.tree.leaves(params))
    of_samples = jax.vmap(_sample_function(recipe, params))
    matrix, convexity = _Chunks(x, y, min(chunk_size, n), of_samples).square(size)
    return matrix / n, convexity


def _sample_function(
    recipe: Recipe, params: Any
) -> Callable[[jax.Array, jax.Array], _Sample]:
    """Return the function from a sample and its label to its derivatives."""
    flat, unravel = ravel_pytree(params)

    def of_sample(x: jax.Array, y: jax.Array) -> _Sample:
        def outputs(flat: jax.Array) -> jax.Array:
            return recipe.apply(unravel(flat), x[None])[0]

        def loss(outputs: jax.Array) -> jax.Array:
            return recipe.losses(outputs[None], y[None])[0]

        # The curvature of the cross-entropy is 0 along one direction, its first.
        classes = recipe.loss is None and jnp.issubdtype(y.dtype, jnp.integer)
        # K backward passes give all derivatives, where forward mode would take P.
        values, pull = jax.vjp(outputs, flat)
        derivatives = jax.vmap(pull)(jnp.eye(values.size, dtype=values.dtype))[0]
        # A root of A, for JᵀAJ = rootsᵀ roots. Negative curvature, of a loss that is
        # not convex in the outputs, has none and is left out: see `convexity`.
        squares, vectors = jnp.linalg.eigh(jax.hessian(loss)(values))
        roots = vectors * jnp.sqrt(jnp.maximum(squares, 0))[None]
        return _Sample(
            pull(jax.grad(loss)(values))[0],
            _product(roots[:, 1 if classes else 0 :].T, derivatives),
            squares[0],
        )

    return of_sample


class _Chunks:
    """Samples in chunks of one shape, and sums over them.

    Args:
        x: `[n, ...]`.
        y: `[n]`.
        chunk_size: Samples of a chunk.
        function: Of a chunk's samples and labels.
    """

    def __init__(
        self,
        x: jax.Array,
        y: jax.Array,
        chunk_size: int,
        function: Callable[[jax.Array, jax.Array], _Sample],
    ):
        self.n, self.function = x.shape[0], function
        self.chunks = chunks_of(x, y, chunk_size)

    def square(self, size: int) -> tuple[jax.Array, jax.Array]:
        """Return the sum of all samples' `rootsᵀ roots`, and the least convexity."""
        x, y, _ = self.chunks
        dtype = jax.eval_shape(self.function, x[0], y[0]).roots.dtype
        width = -(-size // _STRIPS)
        cuts = range(0, size, width)

        def add(carry: Any, chunk: Any) -> tuple[Any, None]:
            strips, least = carry
            x, y, real = chunk
            samples = self.function(x, y)
            roots = jnp.where(real[:, None, None], samples.roots, 0).reshape(-1, size)
            strips = [
                # 9/16 of all entries: the part left of each strip follows by symmetry.
                strip + _product(roots[:, cut : cut + width].T, roots[:, cut:])
                for strip, cut in zip(strips, cuts, strict=True)
            ]
            return (strips, jnp.minimum(least, samples.convexity.min())), None

        start = [jnp.zeros((min(width, size - cut), size - cut), dtype) for cut in cuts]
        carry = start, jnp.array(jnp.inf, dtype)
        (strips, least), _ = jax.lax.scan(add, carry, self.chunks)
        padded = [
            jnp.pad(strip, ((0, 0), (cut, 0)))
            for strip, cut in zip(strips, cuts, strict=True)
        ]
        upper = jnp.triu(jnp.concatenate(padded))
        return upper + jnp.triu(upper, 1).T, least

    def products(self, gradient: Any, flat: jax.Array, right: jax.Array) -> jax.Array:
        """Return the products of `right`, `[t, P]`, with all gradients, `[t, n]`."""

        def of_chunk(chunk: Any) -> jax.Array:
            x, y, _ = chunk
            return _product(gradient(flat, x, y), right.T)

        parts = jax.lax.map(of_chunk, self.chunks)
        return parts.reshape(-1, len(right))[: self.n].T

    def all(self) -> _Sample:
        """Return the function of all samples."""
        parts = jax.lax.map(lambda chunk: self.function(*chunk[:2]), self.chunks)

        def whole(part: jax.Array) -> jax.Array:
            return part.reshape(-1, *part.shape[2:])[: self.n]

        return jax.tree.map(whole, parts)


def chunks_of(x: jax.Array, y: jax.Array, size: int) -> tuple[jax.Array, ...]:
    """Split samples into chunks of one size, with marks of those that count."""
    n = x.shape[0]
    rows = jnp.arange(n + -n % size)
    # The last chunk is filled up with samples from the start, as zeros might have no
    # finite derivative.
    x, y = (a[rows % n].reshape(-1, size, *a.shape[1:]) for a in (x, y))
    return x, y, (rows < n).reshape(-1, size)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
