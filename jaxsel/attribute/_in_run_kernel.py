"""Values of one step: the kernel of in-run Data Shapley."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel import gradients
from jaxsel._devices.typed import lax_map, tree_map
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import (
    Loss,
    Parameters,
    check_examples,
    check_loss,
    example_loss,
    split,
)

from ._in_run_inputs import Known, gram

Order = Literal[1, 2]

# Numbers of the directions that are followed at once.
ENTRIES = 4_000_000


def in_run_step(
    loss: Loss,
    params: Any,
    examples: Any,
    targets: Any,
    *,
    step: Any,
    order: Order = 1,
) -> Float[jax.Array, "targets batch"]:
    """Return each example's Shapley value in one step of training: a pure kernel.

    The game of a step: the examples S of a batch B move the parameters w by
    -(1/|B|) Σ_{i in S} s ∘ g_i, with their gradients g_i and the step s, and a
    target's loss l falls. To second order in the step, the value of example i is

        (1/|B|) <s ∘ g_i, ∇l> - 1/(2|B|²) <s ∘ g_i, ∇²l Σ_{j in B} s ∘ g_j>

    and the first term alone to first order: a positive value lowers the loss. They sum
    over the batch to the fall of the loss, up to second or third order.

    With a single number as step, and parameters that `gradients.ghost` follows, the
    inner products come from layers' inputs and deltas: O(in + out) for each layer and
    pair, after one forward and backward pass over the batch and the targets. Otherwise
    each target's direction s ∘ ∇l costs one forward-mode pass over the batch. The
    second order takes one more forward-mode pass over the targets.

    Args:
        loss: `loss(params, example) -> scalar`, as for `gradients.ghost`: the same
            function for examples and targets. It must have no dropout, and no
            statistics over a batch, under which an example has no gradient of its own.
        params: Any pytree.
        examples: The batch, a pytree of arrays `[batch, ...]`.
        targets: A pytree of arrays `[targets, ...]`.
        step: The rate, or rates in the form of the parameters, as of Adam.
        order: 1 or 2.

    Returns:
        Values in the units of the loss, `[targets, batch]`.

    Raises:
        TypeError: If `loss` is no hashable function.
        ValueError: If `order` is neither 1 nor 2, lengths differ, the loss is no
            scalar, or layers are in training mode.

    References:
        Wang, Mittal, Song, Jia, "Data Shapley in One Training Run", ICLR 2025,
        arXiv:2406.11011, Theorems 3 and 4, with the opposite sign: there a step's
        utility is the rise of the loss.

    Examples:
        >>> import jax.numpy as jnp
        >>> from jaxsel import attribute
        >>> def loss(w, example):
        ...     return 0.5 * (w - example) ** 2
        >>> batch, targets = jnp.array([2.0, -2.0]), jnp.array([1.0])
        >>> print(attribute.in_run_step(loss, jnp.array(0.0), batch, targets, step=0.5))
        [[ 0.5 -0.5]]
    """
    check_order(order)
    check_loss(loss)
    examples, targets = check_examples(examples), check_examples(targets)
    check_alike(examples, targets)
    scalar = is_number(step)
    if scalar and follows(loss, params, first_row(targets)):
        mean, factors = factors_of(loss, params, examples, targets)
        return by_factors(loss, params, targets, mean, factors, step, order).T
    mean = mean_gradient(loss, params, examples)
    return by_directions(loss, params, examples, targets, mean, step, order).T


def check_alike(examples: Any, targets: Any) -> None:
    """Raise unless a target has the form of an example."""
    forms = [jax.tree.structure(tree) for tree in (examples, targets)]
    shapes = [[a.shape[1:] for a in jax.tree.leaves(t)] for t in (examples, targets)]
    if forms[0] != forms[1] or shapes[0] != shapes[1]:
        raise ValueError(
            "targets must have the form and shapes of the examples, for one loss, got "
            f"{shapes[1]} for one target and {shapes[0]} for one example"
        )


def is_number(step: Any) -> bool:
    return jax.tree.structure(step) == jax.tree.structure(0) and not jnp.ndim(step)


def check_order(order: Any) -> None:
    if isinstance(order, bool) or order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {order!r}")


def follows(loss: Loss, params: Any, example: Any) -> bool:
    """Return whether `gradients.ghost` can follow all parameters; nothing is computed.

    Raises:
        ValueError: If the loss of an example is no scalar, or takes layers in training
            mode.
    """
    example = tree_map(lambda leaf: leaf[None], example)
    parameters = split(params)
    jax.eval_shape(
        lambda selected, example: example_loss(
            loss, parameters, selected, first_row(example)
        ),
        parameters.selected,
        example,
    )
    try:
        jax.eval_shape(
            lambda selected, example: gradients.grad_and_ghost(
                loss, parameters.merge(selected), example
            ),
            parameters.selected,
            example,
        )
    except ValueError:  # the loss itself is sound: a parameter that ghost refuses
        return False
    return True


def mean_gradient(loss: Loss, params: Any, examples: Any) -> dict[str, jax.Array]:
    """Return the gradient of the mean loss, by paths."""
    parameters = split(params)

    def mean_loss(selected: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean(losses_of(loss, parameters, selected, examples))

    return jax.grad(mean_loss)(parameters.selected)


def factors_of(
    loss: Loss, params: Any, examples: Any, targets: Any
) -> tuple[dict[str, jax.Array], tuple[gradients.Factored, gradients.Factored]]:
    """Return the examples' mean gradient, by paths, and the factors of both."""
    mean, of_batch = gradients.grad_and_ghost(loss, params, examples)
    aims = gradients.ghost(loss, params, targets)
    return split(params).form.pick(mean), (of_batch, aims)


def by_factors(
    loss: Loss,
    params: Any,
    targets: Any,
    mean: dict[str, jax.Array],
    factors: tuple[gradients.Factored, gradients.Factored],
    step: Any,
    order: Order,
    known: Known | None = None,
) -> jax.Array:
    """Return values `[batch, targets]` from layers' factors, for a step of one number.

    Args:
        loss: Of examples and targets.
        params: Parameters before the step.
        targets: A pytree of arrays `[targets, ...]`.
        mean: The batch's mean gradient, by paths.
        factors: The gradients of examples and targets.
        step: The rate.
        order: 1 or 2.
        known: Products of inputs, `[batch, targets]`, of layers that have them.
    """
    of_batch, aims = factors
    batch = of_batch.layers[0].deltas.shape[0]
    share = jnp.asarray(step, of_batch.dtype) / batch
    if order == 1:
        return share * gram(of_batch, aims, known)
    parameters = split(params)
    move = {path: step * leaf for path, leaf in mean.items()}

    def aimed(selected: dict[str, jax.Array]) -> gradients.Factored:
        return gradients.ghost(loss, parameters.merge(selected), targets)

    # The gradient after half the step, ∇l - ½ ∇²l u: the derivative of an outer
    # product x δᵀ along u is ẋ δᵀ + x δ̇ᵀ. No bias has an input that changes.
    _, changes = jax.jvp(aimed, (parameters.selected,), (move,))
    straight, turned = [], []
    for layer, change in zip(aims.layers, changes.layers, strict=True):
        deltas = layer.deltas - change.deltas / 2
        straight.append(dataclasses.replace(layer, deltas=deltas))
        inputs = -change.inputs / 2
        turned.append(dataclasses.replace(layer, inputs=inputs, bias=False))
    straight, turned = (
        gradients.Factored(tuple(layers)) for layers in (straight, turned)
    )
    return share * (gram(of_batch, straight, known) + turned.gram(of_batch))


def by_directions(
    loss: Loss,
    params: Any,
    examples: Any,
    targets: Any,
    mean: dict[str, jax.Array],
    step: Any,
    order: Order,
) -> jax.Array:
    """Return values `[batch, targets]` by one forward-mode pass for each target.

    Arguments as for `by_factors`; a step may be rates by parameter.
    """
    parameters = split(params)
    if jax.tree.structure(step) == jax.tree.structure(0):
        step = dict.fromkeys(parameters.selected, step)
    else:
        step = parameters.form.pick(step)
    move = {path: step[path] * leaf for path, leaf in mean.items()}

    def of_batch(selected: dict[str, jax.Array]) -> jax.Array:
        return losses_of(loss, parameters, selected, examples)

    # Linearised once: the forward pass over the batch is the same for all targets.
    losses, along = jax.linearize(of_batch, parameters.selected)
    batch = losses.shape[0]

    def value(target: Any) -> jax.Array:
        def fall(selected: dict[str, jax.Array]) -> dict[str, jax.Array]:
            return jax.grad(lambda s: example_loss(loss, parameters, s, target))(
                selected
            )

        if order == 1:
            slope = fall(parameters.selected)
        else:
            # ∇²l is symmetric: both orders are one product of s ∘ g_i, with the slope
            # half a step ahead, ∇l - ½ ∇²l u.
            slope, change = jax.jvp(fall, (parameters.selected,), (move,))
            slope = {path: leaf - change[path] / 2 for path, leaf in slope.items()}
        return along({path: step[path] * leaf for path, leaf in slope.items()}) / batch

    rows = max(1, ENTRIES // max(1, parameters.size))
    return lax_map(value, targets, batch_size=rows).T


def losses_of(
    loss: Loss, parameters: Parameters, selected: dict[str, jax.Array], examples: Any
) -> jax.Array:
    return jax.vmap(lambda e: example_loss(loss, parameters, selected, e))(examples)
