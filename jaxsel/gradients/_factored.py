"""Gradients of dense layers as outer products, never written out."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel._devices.typed import lax_map
from jaxsel._inputs.checks import widen
from jaxsel._inputs.show import brief

from ._oracle import Gradient, Oracle, products

# Entries of the temporary arrays of one chunk, where layers are applied at positions.
_ENTRIES = 2_000_000


@brief
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LayerFactors:
    """Per-sample factors of the gradients of a dense layer `y = x W + b`.

    The gradient of W is the outer product of input and delta, summed over the positions
    at which the layer is applied; that of b is the sum of the deltas.

    Attributes:
        deltas: The loss's derivative by the layer's output y, `[n, out]`, or
            `[n, positions, out]`.
        inputs: The layer's input x, `[n, in]`, or `[n, positions, in]`.
        bias: Whether b counts.
    """

    deltas: jax.Array
    inputs: jax.Array
    bias: bool = dataclasses.field(default=True, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Factored(Oracle):
    """Gradients of one or several dense layers, through their factors.

    Two candidates' inner product is the sum over layers of the inner product of their
    deltas times that of their inputs (plus 1 for the bias): O(in + out) instead of
    O(in · out). A gradient has the form of a tuple with an array of shape `[in, out]`
    for each layer, `[in + 1, out]` with a bias, which comes last.

    Attributes:
        layers: One or more.
    """

    layers: tuple[LayerFactors, ...]

    def diag(self) -> Float[jax.Array, " n"]:
        return _sum([_diag(_wide(layer)) for layer in self.layers])

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        pairs = zip(self.layers, v, strict=True)
        return _sum([_corr(_wide(layer), m) for layer, m in pairs])

    def gram(self, atoms: Factored) -> Float[jax.Array, "m n"]:
        pairs = zip(atoms.layers, self.layers, strict=True)
        return _sum([_gram(_wide(a), _wide(b)) for a, b in pairs])

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        return tuple(_combine(_wide(layer), weights) for layer in self.layers)

    def group(self, rows: jax.Array, shares: jax.Array) -> Factored:
        return Factored(tuple(_group(layer, rows, shares) for layer in self.layers))


def _wide(layer: LayerFactors) -> LayerFactors:
    return LayerFactors(widen(layer.deltas), widen(layer.inputs), layer.bias)


def _sum(terms: list[jax.Array]) -> jax.Array:
    # Not from jnp.zeros(()), which is float64 in x64 mode and would widen the sum.
    return sum(terms[1:], terms[0])


def _diag(layer: LayerFactors) -> jax.Array:
    if layer.deltas.ndim == 2:
        deltas = jnp.sum(layer.deltas**2, axis=-1)
        return deltas * (jnp.sum(layer.inputs**2, axis=-1) + float(layer.bias))
    positions = layer.deltas.shape[1]

    # ‖Σ_t x_t δ_tᵀ‖² = Σ_st (x_s · x_t) (δ_s · δ_t): two matrices of positions.
    def squared_length(sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        deltas, inputs = sample
        alike = _dot(inputs, inputs.T) + float(layer.bias)
        return jnp.sum(_dot(deltas, deltas.T) * alike)

    batch = max(1, _ENTRIES // (positions * positions))
    return lax_map(squared_length, (layer.deltas, layer.inputs), batch_size=batch)


def _corr(layer: LayerFactors, v: jax.Array) -> jax.Array:
    # <x δᵀ, V> = (xᵀ V) · δ; the last row of V belongs to the bias, with input 1.
    rows = layer.inputs.shape[-1]
    through = _dot(layer.inputs, v[:rows])
    if layer.bias:
        through = through + v[rows]
    return jnp.sum(through * layer.deltas, axis=tuple(range(1, layer.deltas.ndim)))


def _gram(atoms: LayerFactors, layer: LayerFactors) -> jax.Array:
    if layer.deltas.ndim == 2:
        inputs = products(atoms.inputs, layer.inputs)
        return products(atoms.deltas, layer.deltas) * (inputs + float(layer.bias))

    def column(atom: tuple[jax.Array, jax.Array]) -> jax.Array:
        # Through the atom's gradient: n · positions · in · out a column.
        return _corr(layer, _outer(layer, *atom))

    return lax_map(column, (atoms.deltas, atoms.inputs))


def _combine(layer: LayerFactors, weights: jax.Array) -> jax.Array:
    shape = (-1,) + (1,) * (layer.deltas.ndim - 1)
    # A weight scales one factor of an outer product: with samples and positions as
    # rows, the whole sum is a single product, and no gradient is written out.
    deltas = (weights.reshape(shape) * layer.deltas).reshape(-1, layer.deltas.shape[-1])
    return _outer(layer, deltas, layer.inputs.reshape(-1, layer.inputs.shape[-1]))


def _group(layer: LayerFactors, rows: jax.Array, shares: jax.Array) -> LayerFactors:
    """Return the layer of groups of samples: a group has its members' positions."""
    scale = shares.reshape(*shares.shape, *[1] * (layer.deltas.ndim - 1))
    deltas, inputs = layer.deltas[rows] * scale, layer.inputs[rows]
    deltas = deltas.reshape(len(rows), -1, deltas.shape[-1])
    inputs = inputs.reshape(len(rows), -1, inputs.shape[-1])
    return LayerFactors(deltas, inputs, layer.bias)


def _outer(layer: LayerFactors, deltas: jax.Array, inputs: jax.Array) -> jax.Array:
    """Return the sum of outer products of inputs and deltas, then the sum of deltas."""
    gradient = _dot(inputs.T, deltas)
    if not layer.bias:
        return gradient
    return jnp.concatenate([gradient, jnp.sum(deltas, axis=0, keepdims=True)])


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
