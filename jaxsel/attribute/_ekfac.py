"""EK-FAC of networks: passes over the samples to moments, bases and squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxsel._devices.typed import tree_map
from jaxsel.gradients import FollowedLayers

from ._ekfac_matrix import Block, Ekfac, product
from ._recipe import Recipe


def ekfac(recipe: Recipe, params: Any, chunks: tuple[jax.Array, ...]) -> Ekfac:
    """Approximate the Gauss-Newton matrix of the mean loss: a pure kernel.

    A sample's part of the matrix is the sum of `g gᵀ` over the roots of the loss's
    curvature by the outputs, with g a root's derivative by the parameters. In a dense
    or convolution layer, g is the product of inputs a and deltas d, summed over
    positions. The block of a layer is taken as diagonal in the eigenvectors of

        Σ |d|² a aᵀ   and   Σ |a|² d dᵀ

    over samples, positions and roots, and its eigenvalues are the mean squares of g in
    that basis, so that the block has the trace and the diagonal, in that basis, of the
    exact one. Blocks between layers are 0. The weights |d|² and |a|² are not of the
    papers on EK-FAC: with them, the factors are those of one power iteration towards
    the nearest Kronecker product, and samples that the network is sure of count less.
    A layer's bias is a last row, with input 1. Parameters that `FollowedLayers` leaves
    out have the exact diagonal.

    Nothing is drawn: all roots are followed, not labels of the network's own.

    Args:
        recipe: The model and its loss.
        params: Trained parameters.
        chunks: Samples `[c, b, ...]`, labels `[c, b]`, and marks of those that count.

    Returns:
        An `Ekfac`. Costs twice K backward passes over all samples, the products that
        turn inputs and deltas, `positions · (in² + K out²)` a sample, and eigenvectors
        of `[in, in]` and `[out, out]`. Memory holds the inputs and one root's deltas of
        a chunk; where a layer has several positions, also one root's gradients.

    References:
        T. George et al., Fast approximate natural gradient descent in a
        Kronecker-factored eigenbasis, NeurIPS 2018, section 3; R. Grosse et al.,
        Studying large language model generalization with influence functions,
        arXiv:2308.03296, section 2.2; D. Morwani et al., A new perspective on
        Shampoo's preconditioner, ICLR 2025, section 3 (the weights).
    """
    return ekfac_mean(recipe, tree_map(lambda leaf: leaf[None], params), chunks)


def ekfac_mean(recipe: Recipe, networks: Any, chunks: tuple[jax.Array, ...]) -> Ekfac:
    """Approximate the mean of several networks' matrices in one basis a layer.

    Args:
        recipe: The model and its loss.
        networks: Parameters, each leaf with a leading axis, one entry a network.
        chunks: As of `ekfac`.

    Returns:
        An `Ekfac`, of the sums of moments and of squares over the networks. Costs those
        of `ekfac` for each network, but the eigenvectors once.
    """
    x, _, real = chunks
    count = len(jax.tree.leaves(networks)[0])

    def outputs(params: Any, x: jax.Array) -> jax.Array:
        return recipe.apply(params, x[None])[0]

    def followed(params: Any) -> FollowedLayers:
        return FollowedLayers(outputs, params, x[0, 0])

    def moments(params: Any) -> Any:
        flat = ravel_pytree(params)[0]
        return _Passes(recipe, followed(params), chunks).moments(flat)

    def squares(params: Any) -> list[jax.Array]:
        return _Passes(recipe, followed(params), chunks).squares(bases)

    def total(of_each: Any) -> Any:
        return tree_map(lambda leaf: leaf.sum(0), of_each)

    first = tree_map(lambda leaf: leaf[0], networks)
    flat, unravel = ravel_pytree(first)
    n = jnp.sum(real).astype(flat.dtype) * count
    pairs, diagonal, convexity = jax.lax.map(moments, networks)
    bases = [
        tuple(jnp.linalg.eigh(moment)[1] for moment in pair) for pair in total(pairs)
    ]
    blocks = [
        Block(inputs, deltas, square / n)
        for (inputs, deltas), square in zip(
            bases, total(jax.lax.map(squares, networks)), strict=True
        )
    ]
    layers = followed(first)
    of_layers = layers.tree([jnp.ones_like(block.eigenvalues) for block in blocks])
    others = 1 - ravel_pytree(of_layers)[0]
    return Ekfac(
        layers, unravel, blocks, total(diagonal) / n, others, jnp.min(convexity)
    )


class _Chunk(NamedTuple):
    inputs: list[jax.Array]  # of each layer, [b, positions, in]
    back: Callable[[jax.Array], Any]  # see `FollowedLayers.vjp`
    roots: jax.Array  # [r, b, K]
    convexity: jax.Array


class _Passes:
    """Passes over all samples, back from the roots of the loss's curvature."""

    def __init__(
        self, recipe: Recipe, layers: FollowedLayers, chunks: tuple[jax.Array, ...]
    ):
        self.recipe, self.layers, self.chunks = recipe, layers, chunks
        y = chunks[1]
        # The curvature of the cross-entropy is 0 along one direction, its first.
        is_classes = recipe.loss is None and jnp.issubdtype(y.dtype, jnp.integer)
        self.first = int(is_classes)

        def shapes(x: jax.Array) -> Any:
            values, inputs, back = layers.vjp(x)
            return inputs, back(values)[0]

        inputs, deltas = jax.eval_shape(shapes, chunks[0][0])
        self.sizes = [
            (a.shape[2], d.shape[2], d.dtype)
            for a, d in zip(inputs, deltas, strict=True)
        ]

    def moments(self, flat: jax.Array) -> tuple[list[Any], jax.Array, jax.Array]:
        """Return layers' second moments, all others' diagonal, and the convexity."""
        start = (
            [
                (jnp.zeros((a, a), dtype), jnp.zeros((d, d), dtype))
                for a, d, dtype in self.sizes
            ],
            jnp.zeros_like(flat),
            jnp.array(jnp.inf, flat.dtype),
        )

        def add(total: Any, chunk: _Chunk) -> Any:
            moments, diagonal, convexity = total
            lengths = [jnp.sum(a * a, axis=2) for a in chunk.inputs]

            def of_root(carry: Any, root: jax.Array) -> tuple[Any, None]:
                weights, seconds, diagonal = carry
                deltas, others = chunk.back(root)
                weights = [
                    w + jnp.sum(d * d, axis=2)
                    for w, d in zip(weights, deltas, strict=True)
                ]
                seconds = [
                    s + _second(d, length)
                    for s, d, length in zip(seconds, deltas, lengths, strict=True)
                ]
                squares = tree_map(lambda g: jnp.sum(g * g, axis=0), others)
                return (weights, seconds, diagonal + ravel_pytree(squares)[0]), None

            weights = [jnp.zeros_like(length) for length in lengths]
            carry = weights, [second for _, second in moments], diagonal
            carry, _ = jax.lax.scan(of_root, carry, chunk.roots)
            weights, seconds, diagonal = carry
            firsts = [
                first + _second(a, w)
                for (first, _), a, w in zip(moments, chunk.inputs, weights, strict=True)
            ]
            convexity = jnp.minimum(convexity, chunk.convexity)
            return [*zip(firsts, seconds, strict=True)], diagonal, convexity

        return self._over(add, start)

    def squares(self, bases: Sequence[tuple[jax.Array, jax.Array]]) -> list[jax.Array]:
        """Return sums of the squares of roots' gradients in layers' bases."""
        start = [jnp.zeros((a, d), dtype) for a, d, dtype in self.sizes]

        def add(totals: list[jax.Array], chunk: _Chunk) -> list[jax.Array]:
            pairs = zip(chunk.inputs, bases, strict=True)
            inputs = [product(a, basis[0]) for a, basis in pairs]

            def of_root(
                totals: list[jax.Array], root: jax.Array
            ) -> tuple[list[jax.Array], None]:
                deltas, _ = chunk.back(root)
                pairs = zip(deltas, bases, strict=True)
                deltas = [product(d, basis[1]) for d, basis in pairs]
                return [
                    total + _squares(a, d)
                    for total, a, d in zip(totals, inputs, deltas, strict=True)
                ], None

            return jax.lax.scan(of_root, totals, chunk.roots)[0]

        return self._over(add, start)

    def _over(self, add: Callable[[Any, _Chunk], Any], start: Any) -> Any:
        def of_chunk(total: Any, chunk: Any) -> tuple[Any, None]:
            x, y, real = chunk
            values, inputs, back = self.layers.vjp(x)
            roots, convexity = jax.vmap(self._roots)(values, y)
            # Samples that fill up the last chunk have no roots.
            roots = jnp.where(real[:, None, None], roots, 0)
            chunk = _Chunk(inputs, back, jnp.moveaxis(roots, 2, 0), convexity.min())
            return add(total, chunk), None

        return jax.lax.scan(of_chunk, start, self.chunks)[0]

    def _roots(self, values: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return a root of the curvature, in columns, and its least eigenvalue."""

        def loss(outputs: jax.Array) -> jax.Array:
            return self.recipe.losses(outputs[None], y[None])[0]

        squares, vectors = jnp.linalg.eigh(jax.hessian(loss)(values))
        roots = vectors * jnp.sqrt(jnp.maximum(squares, 0))[None]
        return roots[:, self.first :], squares[0]


def _second(rows: jax.Array, weights: jax.Array) -> jax.Array:
    """Return the weighted second moment of rows `[b, positions, m]`, `[m, m]`."""
    flat = rows.reshape(-1, rows.shape[2])
    return product((flat * weights.reshape(-1, 1)).T, flat)


def _squares(inputs: jax.Array, deltas: jax.Array) -> jax.Array:
    """Return the sum over samples of squared gradients, `[in, out]`."""
    if inputs.shape[1] == 1:
        return product((inputs[:, 0] ** 2).T, deltas[:, 0] ** 2)
    gradients = product(inputs.swapaxes(1, 2), deltas)
    return jnp.sum(gradients * gradients, axis=0)
