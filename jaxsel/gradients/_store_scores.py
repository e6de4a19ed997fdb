"""Questions to a store of gradients: inner products, and Gauss-Newton by layer."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit

from ._oracle import Oracle
from ._sketch import StoredLayer, oracle_of, products_of

Ask = Callable[[Oracle], jax.Array]
"""From an oracle of b rows to scores `[t, b]`."""

_Layers = tuple[StoredLayer, ...]

# By `id`: oracles are equal by their arrays, which have no hash.
_origins: dict[int, Hashable] = {}


def with_origin(targets: Oracle, origin: Hashable) -> Oracle:
    """Remember which store's parameters and projections made these targets."""
    _origins[id(targets)] = origin
    weakref.finalize(targets, _origins.pop, id(targets), None)
    return targets


def check_targets(layers: _Layers, targets: Any, origin: Hashable) -> None:
    """Refuse targets that a store did not project.

    Args:
        layers: Of the store.
        targets: An oracle; one that no store made is judged by its form alone.
        origin: Of the store, see `with_origin`.

    Raises:
        TypeError: If they are another oracle, or none.
        ValueError: If their shapes differ, or another store projected them.
    """
    numbers = sum(layer.size for layer in layers)
    like = oracle_of(layers, jnp.zeros((1, numbers)))
    if type(targets) is not type(like):
        raise TypeError(
            f"targets must be a {type(like).__name__} oracle, as the store's project "
            f"returns it, got {type(targets).__name__}"
        )
    shapes, expected = (
        [leaf.shape[1:] for leaf in jax.tree.leaves(oracle)]
        for oracle in (targets, like)
    )
    if shapes != expected:
        raise ValueError(
            f"targets must be projected by this store, to arrays of shape {expected}, "
            f"got {shapes}"
        )
    if _origins.get(id(targets), origin) != origin:
        raise ValueError(
            "targets must be projected by this store, got those of a store with other "
            "parameters or another key: their inner products mean nothing"
        )


def by_products(targets: Any, *, of_mean: bool) -> Ask:
    """Ask for inner products with targets, or with their mean."""
    if of_mean:
        mean = targets.mean()
        return lambda part: _corr(part, mean)[None]
    return lambda part: _gram(part, targets)


def by_directions(layers: _Layers, directions: list[jax.Array]) -> Ask:
    """Ask for inner products with gradients that are written out, `[t, pq]` a layer."""
    return lambda part: _through(layers, part, directions)


def squares_of(
    layers: _Layers, parts: Iterable[Oracle], n: int
) -> tuple[np.ndarray, ...]:
    """Return 1/n GᵀG of each layer's n gradients, `[pq, pq]`, summed in float64."""
    total = tuple(np.zeros((layer.p * layer.q,) * 2) for layer in layers)
    for part in parts:
        for square, more in zip(total, _squares(layers, part), strict=True):
            square += np.asarray(more, np.float64) / n
    return total


def solved_targets(
    layers: _Layers,
    targets: Oracle,
    squares: Sequence[np.ndarray],
    damping: float,
    n: int,
    *,
    of_mean: bool,
) -> list[jax.Array]:
    """Return 1/n (square + damping · mean eigenvalue · I)⁻¹ h, `[t, pq]` a layer.

    Args:
        layers: Of the store.
        targets: t gradients h.
        squares: Of `squares_of`.
        damping: Above 0.
        n: Number of samples.
        of_mean: Whether to take the mean of the targets, t = 1.
    """
    products = _products(layers, targets)
    right = [np.asarray(rows, np.float64) for rows in products]
    if of_mean:
        right = [rows.mean(axis=0, keepdims=True) for rows in right]
    pairs = zip(squares, right, strict=True)
    return [_solved(square, rows, damping) / n for square, rows in pairs]


def _solved(square: np.ndarray, right: np.ndarray, damping: float) -> jax.Array:
    from scipy import linalg

    mean = float(np.trace(square)) / len(square)
    if mean == 0:  # no sample moves this layer
        return jnp.zeros(right.shape, jnp.float32)
    # Divided by its mean: squares of the gradients of learnt samples are tiny.
    damped = square / mean + damping * np.eye(len(square))
    factor = np.linalg.cholesky(damped), True
    return jnp.asarray(linalg.cho_solve(factor, right.T).T / mean, jnp.float32)


_products = jit(static_argnums=0)(products_of)


@jit()
def _corr(part: Oracle, v: Any) -> jax.Array:
    return part.corr(v)


@jit()
def _gram(part: Oracle, targets: Any) -> jax.Array:
    return part.gram(targets)


@jit(static_argnums=0)
def _squares(layers: _Layers, part: Oracle) -> list[jax.Array]:
    return [_dot(rows.T, rows) for rows in products_of(layers, part)]


@jit(static_argnums=0)
def _through(layers: _Layers, part: Oracle, directions: list[jax.Array]) -> jax.Array:
    pairs = zip(directions, products_of(layers, part), strict=True)
    terms = [_dot(direction, rows.T) for direction, rows in pairs]
    return sum(terms[1:], terms[0])


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision="highest")
