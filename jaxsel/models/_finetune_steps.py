"""Blocks of fine-tuning's steps, compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxsel._inputs.parameters import Parameters

from ._fit import Params, Recorder

Schedule = Callable[[Any], jax.Array]
"""From the step to the learning rate."""

Loss = Callable[[Params, Any, Any], jax.Array]
"""From parameters, inputs and targets of some examples to their mean loss. Hashable, as
a frozen dataclass is: equal losses share a compiled program."""


@functools.partial(
    jax.jit,
    static_argnames=("loss", "decay", "half", "recorder"),
    donate_argnames="state",
)
def run_block(
    loss: Loss,
    params: Params,
    state: Any,
    inputs: Any,
    y: Any,
    count: jax.Array,
    recipe: dict[str, float],
    *,
    frozen: Parameters | None,
    rows: jax.Array,
    recorded: Any,
    decay: str,
    half: bool,
    recorder: Recorder | None,
) -> tuple[Params, Any, Any, jax.Array, jax.Array, jax.Array]:
    """Do `count` steps of a block of examples, `[block, accumulate, m, ...]`.

    `params` are trained, and `merge` puts them among those that are `frozen`.

    Returns:
        Parameters, states of optimiser and recorder, the block's losses, how many steps
        were done, and whether the last one was finite: after one that isn't, it stops.
    """
    optimizer = optimizer_of(recipe, decay)

    block, accumulate = jax.tree.leaves(y)[0].shape[:2]

    def value(params: Params, inputs: Any, y: Any) -> jax.Array:
        params = merge(params, frozen)
        if half:
            params, inputs = jax.tree.map(_halve, (params, inputs))
        return loss(params, inputs, y).astype(jnp.float32)

    def gradient(params: Params, batch: Any) -> tuple[jax.Array, Params]:
        """Return loss and gradient of one step, averaged over its parts."""
        if accumulate == 1:
            part = jax.tree.map(lambda a: a[0], batch)
            return jax.value_and_grad(value)(params, *part)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            loss_and_gradient = jax.value_and_grad(value)(params, *part)
            return jax.tree.map(jnp.add, total, loss_and_gradient), None

        zero = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(add, zero, batch)
        return jax.tree.map(lambda a: a / accumulate, total)

    def step(carry: Any) -> Any:
        i, _, params, state, recorded, losses = carry
        batch = jax.tree.map(lambda a: a[i], (inputs, y))
        if recorder is None:
            loss_value, grads = gradient(params, batch)
        else:
            whole = jax.tree.map(lambda a: a[0], batch)
            loss_value = value(params, *whole)
            grads, recorded = recorder.step(recorded, params, state, whole, rows[i])
        updates, state = optimizer.update(grads, state, params)
        finite = jnp.isfinite(loss_value) & jnp.isfinite(optax.tree.norm(grads))
        return (
            i + 1,
            finite,
            optax.apply_updates(params, updates),
            state,
            recorded,
            losses.at[i].set(loss_value),
        )

    def go_on(carry: Any) -> jax.Array:
        return (carry[0] < count) & carry[1]

    losses = jnp.full(block, jnp.nan)
    start = jnp.int32(0), jnp.array(True), params, state, recorded, losses
    done, finite, params, state, recorded, losses = jax.lax.while_loop(
        go_on, step, start
    )
    return params, state, recorded, losses, done, finite


def merge(params: Params, frozen: Parameters | None) -> Params:
    """Return all parameters, `params` in the place of those that are trained."""
    return params if frozen is None else frozen.merge(params)


def schedule_of(recipe: dict[str, float], decay: str) -> Schedule:
    def rate(i: jax.typing.ArrayLike) -> jax.Array:
        i = jnp.asarray(i)
        warmup, steps = recipe["warmup"], recipe["steps"]
        remaining = (steps - i) / jnp.maximum(steps - warmup, 1)
        if decay == "cosine":
            remaining = 0.5 - 0.5 * jnp.cos(jnp.pi * remaining)
        up = (i + 1) / jnp.maximum(warmup, 1)
        return recipe["learning_rate"] * jnp.where(i < warmup, up, remaining)

    return rate


def optimizer_of(recipe: dict[str, float], decay: str) -> optax.GradientTransformation:
    def is_matrix(params: Params) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    return optax.chain(
        optax.clip_by_global_norm(recipe["clip"]),
        optax.adamw(
            schedule_of(recipe, decay),
            weight_decay=recipe["weight_decay"],
            mask=is_matrix,
        ),
    )


def _halve(leaf: jax.Array) -> jax.Array:
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(jnp.bfloat16) if is_float else leaf
