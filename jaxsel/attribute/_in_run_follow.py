"""Values that follow each gradient through the momentum, in a second pass backwards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxsel._devices.typed import lax_map, tree_map
from jaxsel._inputs.parameters import Loss, Parameters, example_loss, split

from ._in_run_kernel import ENTRIES, losses_of, mean_gradient
from ._in_run_rules import Adam, Rule, kept, preconditioner


def followed(
    loss: Loss,
    rule: Rule,
    params: Any,
    examples: Any,
    targets: Any,
    rows: jax.Array,
    rates: jax.Array,
    segments: int,
) -> tuple[Any, jax.Array]:
    """Train, then go back through the run and return values: a pure kernel.

    A gradient g of step s enters the updates of the steps t >= s with weights
    r_t m^(t-s), and lowers a target's loss by Σ_t r_t m^(t-s) <∇l(w_t), P_t ∘ g>: the
    inner product of g with D_s = r_s P_s ∘ ∇l(w_s) + m D_{s+1}.

    Args:
        loss: Of examples and targets.
        rule: The optimizer.
        params: Parameters to start from.
        examples: A pytree of arrays `[n, ...]`.
        targets: A pytree of arrays `[targets, ...]`.
        rows: Rows of each step, `[steps, batch]`.
        rates: `[steps]`.
        segments: Parts of the run: parameters are kept at the start of each, and of one
            part at a time at each step.

    Returns:
        The parameters after the last step, and the values, `[n, targets]`.
    """
    optimizer = rule.optimizer()
    count, n = (jax.tree.leaves(tree)[0].shape[0] for tree in (targets, examples))
    steps = rows.shape[0]
    padding = -steps % segments
    rows, rates = (
        jnp.pad(a, [(0, padding)] + [(0, 0)] * (a.ndim - 1)) for a in (rows, rates)
    )
    number = jnp.arange(steps + padding)
    parts = tree_map(
        lambda a: a.reshape(segments, -1, *a.shape[1:]), (rows, rates, number)
    )
    parameters = split(params)

    def batch_of(step_rows: jax.Array) -> Any:
        return tree_map(lambda leaf: leaf[step_rows], examples)

    def step(carry: Any, xs: Any) -> tuple[Any, Any]:
        params, state = carry
        step_rows, _, number = xs
        mean = mean_gradient(loss, params, batch_of(step_rows))
        gradient = parameters.form.gradient(mean)
        scale = dict.fromkeys(mean, jnp.ones((), parameters.dtype))
        if isinstance(rule, Adam):
            scale = parameters.form.pick(preconditioner(rule, state, gradient))
        updates, after = optimizer.update(gradient, state, params)
        moved = optax.apply_updates(params, updates), after
        # Padding steps have batches of row 0, and would move the parameters.
        carry = tree_map(
            lambda old, new: jnp.where(number < steps, new, old), carry, moved
        )
        return carry, (split(params).selected, scale)

    def forward(carry: Any, part: Any) -> tuple[Any, Any]:
        return jax.lax.scan(lambda c, xs: (step(c, xs)[0], None), carry, part)[0], carry

    begin = params, optimizer.init(params)
    (trained, _), starts = jax.lax.scan(forward, begin, parts)
    at_once = max(1, ENTRIES // max(1, parameters.size))

    def back(carry: Any, xs: Any) -> tuple[Any, None]:
        ahead, values = carry
        (step_rows, rate, number), (selected, scale) = xs
        before = Parameters(selected, parameters.others, parameters.form)
        directions, ahead = _directions(
            loss, rule, before, targets, (rate, scale, number + 1), ahead
        )
        batch = batch_of(step_rows)
        losses, along = jax.linearize(
            lambda selected: losses_of(loss, before, selected, batch), selected
        )
        part = lax_map(along, directions, batch_size=at_once).T / losses.shape[0]
        # A step beyond the last has nothing ahead, and rate 0: its values are 0.
        return (ahead, values.at[step_rows].add(part)), None

    def backward(carry: Any, xs: Any) -> tuple[Any, None]:
        start, part = xs
        _, passed = jax.lax.scan(step, start, part)
        return jax.lax.scan(back, carry, (part, passed), reverse=True)

    ahead = tree_map(
        lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), parameters.selected
    )
    carry = ahead, jnp.zeros((n, count), parameters.dtype)
    (_, values), _ = jax.lax.scan(backward, carry, (starts, parts), reverse=True)
    return trained, values


def _directions(
    loss: Loss,
    rule: Rule,
    parameters: Parameters,
    targets: Any,
    update: tuple[jax.Array, dict[str, jax.Array], jax.Array],
    ahead: dict[str, jax.Array],
) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    """Return D_s `[targets, ...]`, and the sums that the step before adds to.

    Args:
        loss: Of targets.
        rule: The optimizer.
        parameters: Before the step.
        targets: A pytree of arrays `[targets, ...]`.
        update: Rate and preconditioner of the step, and its number, from 1 on.
        ahead: These sums, from the step after it.
    """
    rate, scale, number = update
    keep = kept(rule)

    def slope(target: Any) -> dict[str, jax.Array]:
        return jax.grad(
            lambda selected: example_loss(loss, parameters, selected, target)
        )(parameters.selected)

    slopes = jax.vmap(slope)(targets)
    moved = {path: rate * scale[path] * leaf for path, leaf in slopes.items()}
    if isinstance(rule, Adam):
        # To divide by 1 - b1^t is update t's alone: the mean goes on without.
        power = jnp.asarray(keep, parameters.dtype) ** number.astype(parameters.dtype)
        share = (1 - keep) / (1 - power)
        ahead = tree_map(lambda new, old: share * new + keep * old, moved, ahead)
        return ahead, ahead
    if rule.nesterov:
        # Nesterov's update is g plus m times the buffer: `ahead` holds the buffer's
        # part, and the gradient enters its step once more.
        ahead = tree_map(lambda new, old: keep * new + keep * old, moved, ahead)
        return tree_map(lambda new, old: new + old, moved, ahead), ahead
    ahead = tree_map(lambda new, old: new + keep * old, moved, ahead)
    return ahead, ahead
