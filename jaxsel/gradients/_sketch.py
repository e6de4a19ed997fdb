"""Gradients of layers between two small random projections, as a store keeps them."""

from __future__ import annotations

import dataclasses
import math
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.memory import activations
from jaxsel._devices.typed import fori_loop, jit, tree_map
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import Loss, Parameters

from ._dense import Dense
from ._factored import Factored, LayerFactors
from ._ghost import tapper
from ._oracle import Oracle
from ._rows import rows_of
from ._tapped import Tapped

# Steps to the largest singular vectors. Where two singular values are so near that
# more steps would be needed, the vectors of either serve as well.
_STEPS = 8

Projections = tuple[tuple[jax.Array | None, jax.Array | None], ...]
"""For each layer matrices `[in, p]` and `[out, q]`; None leaves an axis as it is."""


@dataclasses.dataclass(frozen=True)
class StoredLayer:
    """A layer in a store, and the sizes of its projection.

    Attributes:
        path: Path of its kernel, or of the parameter that is added to activations.
        inputs: Rows of its gradient: inputs, and one for the bias.
        outputs: Columns of its gradient.
        bias: Whether a bias counts.
        p: Numbers that the inputs are projected to.
        q: Numbers that the derivatives by the outputs are projected to.
        rank: Factors that stand for the product `[p, q]`; 0 for the product itself.
    """

    path: str
    inputs: int
    outputs: int
    bias: bool
    p: int
    q: int
    rank: int

    def __post_init__(self) -> None:
        counts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        path, bias = counts.pop("path"), counts.pop("bias")
        if not isinstance(path, str) or not isinstance(bias, bool):
            raise TypeError("path must be a text, and bias true or false")
        if not all(type(count) is int for count in counts.values()):
            raise TypeError(f"sizes must be whole numbers, got {counts}")
        fits = 1 <= self.p <= self.inputs and 1 <= self.q <= self.outputs
        if not fits or not 0 <= self.rank <= min(self.p, self.q):
            raise ValueError(
                "a layer must have p up to inputs, q up to outputs, and rank up to "
                f"both, got {counts}"
            )

    @property
    def size(self) -> int:
        """Numbers kept of each sample."""
        return self.rank * (self.p + self.q) if self.rank else self.p * self.q


def layers_of(
    loss: Loss, parameters: Parameters, example: Any, dim: int, rank: int | None
) -> tuple[StoredLayer, ...]:
    """Find the layers of a loss, and how far to project each.

    Args:
        loss: `loss(params, example) -> scalar`.
        parameters: Which count.
        example: One example, or its shapes.
        dim: Numbers to keep of each layer at most.
        rank: Factors for the product; None for the product itself.
    """
    layers: list[StoredLayer] = []

    def trace(example: Any) -> None:
        batch = tree_map(_alone, example)
        for layer in tapper(loss, parameters, batch)(example):
            inputs = layer.inputs.shape[1] + layer.bias
            outputs = layer.deltas.shape[1]
            # A sum over few positions has no more factors than these.
            few = None if rank is None else min(rank, len(layer.inputs))
            p, q = _sizes(inputs, outputs, dim, few)
            few = min(p, q, few or 0)
            facts = layer.path, inputs, outputs, layer.bias, p, q, few
            layers.append(StoredLayer(*facts))

    jax.eval_shape(trace, example)
    return tuple(layers)


def _alone(array: jax.Array) -> jax.Array:
    return jnp.asarray(array)[None]


def _sizes(inputs: int, outputs: int, dim: int, rank: int | None) -> tuple[int, int]:
    """Choose p and q, about equal, but no larger than the layer."""
    if rank is None:
        q = min(outputs, math.isqrt(dim))
        p = min(inputs, dim // q)
        return p, min(outputs, dim // p)
    both = dim // rank
    q = min(outputs, both // 2)
    p = min(inputs, both - q)
    return p, min(outputs, both - p)


def draw(layers: tuple[StoredLayer, ...], key: jax.Array) -> Projections:
    """Draw each layer's two projections: random subspaces, scaled.

    Inner products of projections estimate those of the gradients without bias, with a
    smaller error than under matrices of independent entries, and none once p and q are
    those of the layer.
    """
    return tuple(
        (
            _subspace(jax.random.fold_in(key, 2 * i), layer.inputs, layer.p),
            _subspace(jax.random.fold_in(key, 2 * i + 1), layer.outputs, layer.q),
        )
        for i, layer in enumerate(layers)
    )


def _subspace(key: jax.Array, full: int, kept: int) -> jax.Array | None:
    if kept == full:
        return None
    normal = np.asarray(jax.random.normal(key, (full, kept), jnp.float32), np.float64)
    basis, triangle = np.linalg.qr(normal)
    # Signs are a matter of the library: those of the diagonal make the basis unique.
    basis *= np.sign(np.diag(triangle)) * (full / kept) ** 0.5
    return jnp.asarray(basis, jnp.float32)


@jit(static_argnums=(0, 1))
def sketched(
    loss: Loss,
    layers: tuple[StoredLayer, ...],
    parameters: Parameters,
    projections: Projections,
    examples: Any,
) -> jax.Array:
    """Compute the rows that a store keeps of examples, `[n, numbers]`.

    All at once: each layer's inputs and deltas, `positions · (in + out)` numbers an
    example, are in memory, and no gradient is.
    """
    return jax.vmap(row_of(loss, layers, parameters, projections, examples))(examples)


def row_of(
    loss: Loss,
    layers: tuple[StoredLayer, ...],
    parameters: Parameters,
    projections: Projections,
    examples: Any,
) -> Any:
    """Return the function from an example to its row, `[numbers]`."""
    taps_of = tapper(loss, parameters, examples)

    def row(example: Any) -> jax.Array:
        parts = zip(layers, projections, taps_of(example), strict=True)
        return jnp.concatenate([_kept(*part) for part in parts])

    return row


def chunk_rows_of(row: Any, examples: Any, n: int, chunk_size: int | None) -> int:
    """Choose how many of n examples are computed at once.

    Args:
        row: From an example to its row.
        examples: One or more.
        n: How many there are.
        chunk_size: The caller's choice, or None.
    """
    numbers = activations(row, first_row(examples))
    return rows_of(np.broadcast_to(0, (n,)), numbers, chunk_size)


def _kept(
    layer: StoredLayer,
    pair: tuple[jax.Array | None, jax.Array | None],
    tapped: Tapped,
) -> jax.Array:
    inputs, deltas = tapped.inputs, tapped.deltas
    if layer.bias:
        ones = jnp.ones((len(inputs), 1), inputs.dtype)
        inputs = jnp.concatenate([inputs, ones], axis=1)
    inputs, deltas = _through(inputs, pair[0]), _through(deltas, pair[1])
    if layer.rank == 0:
        return _dot(inputs.T, deltas).reshape(-1)
    if len(inputs) > 1:
        inputs, deltas = _factors(_dot(inputs.T, deltas), layer.rank)
    # Both factors of a pair get one length, so that neither leaves the range of halves.
    longs, wides = (jnp.sqrt(jnp.sum(side**2, axis=1)) for side in (inputs, deltas))
    nonzero = (longs > 0) & (wides > 0)
    scale = jnp.sqrt(jnp.where(nonzero, wides, 0) / jnp.where(nonzero, longs, 1))
    inverse = jnp.where(nonzero, 1 / jnp.where(nonzero, scale, 1), 0)
    factors = scale[:, None] * inputs, inverse[:, None] * deltas
    return jnp.concatenate([factor.reshape(-1) for factor in factors])


def _through(rows: jax.Array, projection: jax.Array | None) -> jax.Array:
    if projection is None:
        return rows
    return _dot(rows, projection.astype(rows.dtype))


def _factors(product: jax.Array, rank: int) -> tuple[jax.Array, jax.Array]:
    """Return the main factors of a product `[p, q]`, `[rank, p]` and `[rank, q]`.

    By orthogonal iteration from the product's own longest rows: batches of small
    singular value decompositions take many times as long on a CPU.
    """
    lengths = jnp.sum(product**2, axis=1)
    right = product[jax.lax.top_k(lengths, rank)[1]].T

    def step(_: Any, right: jax.Array) -> jax.Array:
        return _orthonormal(_dot(product.T, _dot(product, _orthonormal(right))))

    right = _orthonormal(fori_loop(0, _STEPS, step, right))
    return _dot(product, right).T, right.T


def _orthonormal(columns: jax.Array) -> jax.Array:
    if columns.shape[1] > 1:
        return jnp.linalg.qr(columns)[0]
    length = jnp.sqrt(jnp.sum(columns**2))
    return columns / jnp.where(length > 0, length, 1)


def oracle_of(layers: tuple[StoredLayer, ...], rows: jax.Array) -> Oracle:
    """Return the oracle of rows of a store, `[n, numbers]`."""
    if not layers[0].rank:
        return Dense(rows)
    return Factored(
        tuple(LayerFactors(*factors, False) for factors in _split(layers, rows))
    )


def _split(
    layers: tuple[StoredLayer, ...], rows: jax.Array
) -> list[tuple[jax.Array, jax.Array]]:
    """Return each layer's deltas and inputs, `[n, rank, q]` and `[n, rank, p]`."""
    factors: list[tuple[jax.Array, jax.Array]] = []
    start = 0
    for layer in layers:
        middle, stop = start + layer.rank * layer.p, start + layer.size
        inputs, deltas = rows[:, start:middle], rows[:, middle:stop]
        if layer.rank > 1:
            inputs = inputs.reshape(len(rows), layer.rank, layer.p)
            deltas = deltas.reshape(len(rows), layer.rank, layer.q)
        factors.append((deltas, inputs))
        start = stop
    return factors


def products_of(layers: tuple[StoredLayer, ...], oracle: Any) -> list[jax.Array]:
    """Return each layer's products, written out, `[n, p · q]`."""
    if isinstance(oracle, Dense):
        rows: jax.Array = oracle.gradients
        stops = accumulate(layer.size for layer in layers)
        pairs = zip(layers, stops, strict=True)
        return [rows[:, stop - layer.size : stop] for layer, stop in pairs]
    factors: tuple[LayerFactors, ...] = oracle.layers
    written: list[jax.Array] = []
    for layer in factors:
        how = "np,nq->npq" if layer.inputs.ndim == 2 else "ncp,ncq->npq"
        sides = layer.inputs, layer.deltas
        product = jnp.einsum(how, *sides, precision="highest")
        written.append(product.reshape(len(product), -1))
    return written


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
