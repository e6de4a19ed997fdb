"""A round of federated averaging: a kernel."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ._fit import Params

_FINEST = 1 << 28


def federated_round(
    graphdef: nnx.GraphDef,
    params: Params,
    x: jax.Array,
    y: jax.Array,
    rows: jax.Array,
    sizes: jax.Array,
    key: jax.Array,
    *,
    optimizer: optax.GradientTransformation,
    local_steps: int,
    batch_share: float,
    batch_size: int,
    targets: tuple[jax.Array, jax.Array] | None = None,
) -> Any:
    """Train every client from the same parameters, and average: a kernel.

    All clients at once, under `vmap`: shard `rows` and `sizes` over their first axis,
    and each device trains its part. A step takes `batch_size` samples of each client,
    of which the first `ceil(batch_share * sizes)` count.

    Args:
        graphdef: Static part of the model.
        params: Parameters that all start from.
        x: All samples, `[n, ...]`.
        y: Their classes, `[n]`.
        rows: Each client's samples, `[C, R]`; entries from its size on are not read.
        sizes: How many it has, `[C]`. Clients without any have no weight.
        key: Of the minibatches.
        optimizer: Of the clients; its state begins anew in each round.
        local_steps: Steps of each client.
        batch_share: Share of a client's samples in a minibatch, a Python number: .3 is
            taken for 3/10 exactly.
        batch_size: The largest client's, at least.
        targets: Validation examples `[m, ...]` and their classes `[m]`, or None.

    Returns:
        The mean of the clients' parameters, weighted by their sizes; with targets, a
        pair of this and the clients' shares in the fall of each target's loss,
        `[C, m]`; see `fed_avg`.

    References:
        McMahan, Moore, Ramage, Hampson and Agüera y Arcas, Communication-efficient
        learning of deep networks from decentralized data, AISTATS 2017, Algorithm 1.
    """
    x, y, rows, sizes = (jnp.asarray(array) for array in (x, y, rows, sizes))
    share = as_fraction(batch_share)

    def loss(params: Params, at: jax.Array, weights: jax.Array) -> jax.Array:
        scores = nnx.merge(graphdef, params)(x[at])
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, y[at])
        return jnp.sum(weights * losses)

    def client(own: jax.Array, size: jax.Array, key: jax.Array) -> Params:
        counted = jnp.minimum(_share_of(share, size), batch_size)
        weights = (jnp.arange(batch_size) < counted) / jnp.maximum(counted, 1)

        def step(i: jax.Array, carry: tuple[Params, Any]) -> tuple[Params, Any]:
            params, state = carry
            drawn = jax.random.randint(
                jax.random.fold_in(key, i), (batch_size,), 0, jnp.maximum(size, 1)
            )
            gradient = jax.grad(loss)(params, own[drawn], weights)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        begin = params, optimizer.init(params)
        return jax.lax.fori_loop(0, local_steps, step, begin)[0]

    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(len(sizes)))
    trained = jax.vmap(client)(rows, sizes, keys)
    weights = sizes / jnp.sum(sizes)
    mean = functools.partial(jnp.tensordot, weights, axes=1, precision="highest")
    averaged = jax.tree.map(mean, trained)
    if targets is None:
        return averaged

    def losses(params: Params) -> jax.Array:
        scores = nnx.merge(graphdef, params)(targets[0])
        return optax.softmax_cross_entropy_with_integer_labels(scores, targets[1])

    def fall(place: float) -> jax.Array:
        point = jax.tree.map(lambda a, b: a + place * (b - a), params, averaged)
        _, along = jax.linearize(losses, point)

        def of_client(client: tuple[Params, jax.Array]) -> jax.Array:
            return -client[1] * along(jax.tree.map(jnp.subtract, client[0], params))

        return jax.lax.map(of_client, (trained, weights))

    # Gauss and Legendre's rule for the mean over the way.
    return averaged, (fall(0.5 - 12**-0.5) + fall(0.5 + 12**-0.5)) / 2


def as_fraction(share: float) -> Fraction:
    """Return the fraction that a share was meant to be: 3/10 for .3."""
    return max(Fraction(str(share)).limit_denominator(_FINEST), Fraction(1, _FINEST))


def _share_of(share: Fraction, size: jax.Array) -> jax.Array:
    """Return how many of a client's samples are a share of them, rounded up: exactly.

    Rounded floats would take 7 for .3 of 20. Their guess is off by one at most; the
    error is a small number, which 32 bits hold though the products wrap around.
    """
    guess = jnp.ceil(float(share) * size).astype(jnp.int32)
    top, bottom = jnp.int32(share.numerator), jnp.int32(share.denominator)
    above = bottom * guess - top * size.astype(jnp.int32)
    return guess + (above < 0) - (above >= bottom)
