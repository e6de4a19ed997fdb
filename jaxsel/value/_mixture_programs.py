"""Compiled programs of a mixture's response: losses of scales, and predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import jit, lax_map, tree_map

from ._mixture_kernel import (
    MixtureModel,
    evidence,
    mixture_left_out,
    mixture_posterior,
    pointwise,
)


def scales_loss(
    scales: jax.Array,
    mixtures: jax.Array,
    metrics: jax.Array,
    centre: jax.Array,
    width: jax.Array,
    *,
    model: MixtureModel,
) -> jax.Array:
    """Return minus the log posterior of scales, up to a constant."""
    unlikely = jnp.sum(((scales - centre) / width) ** 2) / 2
    return unlikely - evidence(mixtures, metrics, scales, model=model)


loss_and_slope = jit(static_argnames="model")(jax.value_and_grad(scales_loss))
left_out = jit(static_argnames="model")(mixture_left_out)


@jit(static_argnames="model")
def joint(
    mixtures: jax.Array,
    metrics: jax.Array,
    points: jax.Array,
    draws: jax.Array,
    weights: jax.Array,
    *,
    model: MixtureModel,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return mean, covariance, and the mean's factors of metrics, over draws."""
    size, single = points.shape[0], jnp.eye(mixtures.shape[0])

    def add(total: Any, draw: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
        scales, weight = draw
        mean, part = mixture_posterior(mixtures, metrics, scales, points, model=model)
        by_run = pointwise(mixtures, single, scales, points, model=model)[0]
        terms = mean, part + mean[:, None] * mean[None], by_run
        return tree_map(lambda sums, term: sums + weight * term, total, terms), None

    zeros = jnp.zeros(size), jnp.zeros((size, size)), jnp.zeros((size, len(single)))
    (mean, squares, by_run), _ = jax.lax.scan(add, zeros, (draws, weights))
    return mean, squares - mean[:, None] * mean[None], by_run


@jit(static_argnames="model")
def pointwise_moments(
    mixtures: jax.Array,
    metrics: jax.Array,
    points: jax.Array,
    draws: jax.Array,
    weights: jax.Array,
    *,
    model: MixtureModel,
) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance at points, over draws."""

    def at_draw(scales: jax.Array) -> tuple[jax.Array, jax.Array]:
        return pointwise(mixtures, metrics, scales, points, model=model)

    means, variances = lax_map(at_draw, draws)
    weights = weights[:, None]
    mean = jnp.sum(weights * means, 0)
    return mean, jnp.sum(weights * (variances + (means - mean[None]) ** 2), 0)
