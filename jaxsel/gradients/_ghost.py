"""Per-sample gradients as layers' inputs and deltas, in any framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxsel._devices.memory import activations
from jaxsel._devices.typed import grad, jit
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import (
    Loss,
    Parameters,
    Wrt,
    check_examples,
    check_loss,
    example_loss,
    split,
)

from ._factored import Factored, LayerFactors
from ._jaxpr_tape import Tape, View
from ._rows import check_chunk_size, map_rows, n_rows, rows_of, vary
from ._shards import Shards, by_shards, everywhere, split_rows
from ._tapped import Tapped, tapped_layers, written_out


def ghost(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    wrt: Wrt = None,
    chunk_size: int | None = None,
) -> Factored:
    """Describe gradients by their layers' inputs and deltas (ghost gradients).

    One forward and one backward pass over all examples, whatever framework the model
    is written in: the loss is traced, and the parameters are followed through it. The
    gradient of a dense layer's kernel is the outer product of its input with its
    delta, summed over positions if the layer is applied to a sequence, in several
    places, or is a convolution. Gradients are exact.

    Followed are: a kernel in a product with activations (`dot_general`, or
    `conv_general_dilated` without groups), and a parameter added to activations; each
    also after a reshape, transpose, slice or conversion, within jitted or checkpointed
    functions, and several times; what is added also after a broadcast. Any other use is
    refused, among them kernels that a broadcast repeats, embeddings (gather), the
    scales of norms (mul), loops (scan) and functions with a derivative rule of their
    own.

    Each layer holds `positions · (in + out)` numbers for each example, or the
    gradient itself, `in · out`, where that is less: then its delta is 1. So do added
    parameters, except a bias added right after its kernel's product, which is a part
    of that layer. Layers come in the order of the parameters.

    Args:
        loss: `loss(params, example) -> scalar`. Pass the same function each time: it
            is compiled once for each.
        params: Any pytree: nested dicts, a Flax NNX module or state, Linen variables,
            an Equinox module. Layers must be in evaluation mode (`model.eval()`): with
            statistics over a batch, or dropout, one example has no gradient of its own.
            NNX models that are not are refused, also those that the loss closes over;
            arguments of Linen's `apply` can't be inspected.
        examples: A pytree of arrays `[n, ...]`, one entry a candidate. Where one is
            split over the devices of a mesh, each computes its own rows and keeps them.
        wrt: The parameters that count: None for all, globs on their paths such as
            `"*/kernel"`, or a predicate of path and leaf. A model with norms or
            embeddings needs one: in Flax `wrt="*/kernel"`, or with the biases
            `wrt=lambda path, leaf: not path.endswith(("scale", "embedding"))`.
        chunk_size: Examples computed at once; it changes speed and memory only.

    Returns:
        A `Factored` oracle.

    Raises:
        TypeError: If `loss` is no hashable function, or `wrt` is of another kind.
        ValueError: If a parameter is used in another way (the message names it), `wrt`
            selects nothing that the loss uses, the examples' lengths differ, the loss
            is not a scalar, or layers are in training mode.

    References:
        I. Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799
        (2015), section 4; X. Li et al., "Large language models can be strong
        differentially private learners", ICLR 2022, section 4 (sequences); Z. Bu, J.
        Mao, S. Xu, "Scalable and efficient training of large convolutional neural
        networks with differential privacy", NeurIPS 2022, section 4 (convolutions, and
        the choice between the two representations, which we make by memory).
    """
    check_loss(loss)
    parameters = split(params, wrt)
    examples, shards = split_rows(check_examples(examples))
    parameters = everywhere(parameters, shards)
    size = check_chunk_size(chunk_size)
    return Factored(_ghost(loss, parameters, examples, size, shards))


@jit(static_argnums=(0, 3, 4))
def _ghost(
    loss: Loss,
    parameters: Parameters,
    examples: Any,
    chunk_size: int | None,
    shards: Shards | None,
) -> tuple[LayerFactors, ...]:
    def of(parameters: Parameters, examples: Any) -> tuple[LayerFactors, ...]:
        return _traced(loss, parameters, examples, chunk_size)

    return by_shards(of, shards, rows=1)(parameters, examples)


def _traced(
    loss: Loss, parameters: Parameters, examples: Any, chunk_size: int | None
) -> tuple[LayerFactors, ...]:
    taps_of = tapper(loss, parameters, examples)

    def layers(example: Any) -> tuple[LayerFactors, ...]:
        return tuple(map(_compact, taps_of(example)))

    per_example = activations(layers, first_row(examples))
    rows = rows_of(examples, per_example, chunk_size)
    return map_rows(jax.vmap(layers), examples, rows)


def tapper(
    loss: Loss, parameters: Parameters, examples: Any
) -> Callable[[Any], tuple[Tapped, ...]]:
    """Return a function from one example to the layers of its gradient.

    Added parameters are layers of one position and one delta, of 1.
    """
    run = _tracer(loss, parameters, examples)
    selected = vary(parameters.selected, examples)

    # Zeros are added to each layer's output (taps): the loss's gradient by them is the
    # layer's delta. A first run, abstract, finds their shapes.
    def taps_of(example: Any) -> tuple[Tapped, ...]:
        plan = _plan(run, selected, example)

        def tapped(taps: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
            tape = Tape(taps)
            return run(tape, selected, example), [use.inputs for use in tape.products]

        zeros = [jnp.zeros(s.shape, s.dtype) for s in plan.shapes]
        zeros = vary(zeros, example)
        deltas, inputs_of = grad(tapped, has_aux=True)(zeros)
        return _assembled(parameters, plan, deltas, inputs_of)

    return taps_of


_Run = Callable[[Tape, dict[str, jax.Array], Any], jax.Array]
"""From a tape, the selected parameters and an example to its loss."""


def _tracer(loss: Loss, parameters: Parameters, examples: Any) -> _Run:
    def of(selected: Any, others: Any, example: Any) -> jax.Array:
        parts = Parameters(selected, others, parameters.form)
        return example_loss(loss, parts, selected, example)

    selected = vary(parameters.selected, examples)
    traced = jax.make_jaxpr(of)(selected, parameters.others, first_row(examples))

    def run(tape: Tape, selected: dict[str, jax.Array], example: Any) -> jax.Array:
        views = [View(k, v, (), v) for k, v in selected.items()]
        # Leaves of a dict come in the order of its sorted keys.
        views.sort(key=lambda view: view.path)
        args = [*views, *parameters.others, *jax.tree.leaves(example)]
        return tape.run(traced, args)[0]

    return run


def _plan(run: _Run, selected: dict[str, jax.Array], example: Any) -> Tape:
    plan = Tape()
    jax.eval_shape(partial(run, plan, selected), example)
    return plan


def _assembled(
    parameters: Parameters,
    plan: Tape,
    deltas: Sequence[jax.Array],
    inputs_of: Sequence[jax.Array],
) -> tuple[Tapped, ...]:
    # The plan's inputs are tracers of an abstract run that has ended.
    for product, inputs in zip(plan.products, inputs_of, strict=True):
        product.inputs = inputs
    for use in plan.uses:
        use.delta = deltas[use.tap]
    return tapped_layers(parameters.form.paths, plan.uses)


def grad_and_ghost(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    wrt: Wrt = None,
) -> tuple[Any, Factored]:
    """Compute a mean gradient and each example's factors in one backward pass.

    For training loops that also ask for inner products of the batch's gradients: the
    gradient of the mean loss follows from the factors. All examples are computed at
    once, on one device.

    Args:
        loss: `loss(params, example) -> scalar`, as for `ghost`.
        params: Any pytree, as for `ghost`.
        examples: A pytree of arrays `[n, ...]`, one entry an example.
        wrt: The parameters that count, as for `ghost`.

    Returns:
        The gradient of the mean loss, in the form of the parameters, with None where a
        leaf is not selected; and the oracle that `ghost` returns, of all examples.

    Raises:
        TypeError: As `ghost`.
        ValueError: As `ghost`.
    """
    check_loss(loss)
    return _grad_and_ghost(loss, split(params, wrt), check_examples(examples))


@jit(static_argnums=0)
def _grad_and_ghost(
    loss: Loss, parameters: Parameters, examples: Any
) -> tuple[Any, Factored]:
    n = n_rows(examples)
    run = _tracer(loss, parameters, examples)
    plan = _plan(run, parameters.selected, first_row(examples))

    def total(
        differentiated: tuple[dict[str, jax.Array], list[jax.Array]],
    ) -> tuple[jax.Array, list[jax.Array]]:
        selected, taps = differentiated

        def tapped(
            taps: list[jax.Array], example: Any
        ) -> tuple[jax.Array, list[jax.Array]]:
            tape = Tape(taps)
            return run(tape, selected, example), [use.inputs for use in tape.products]

        # Parameters are shared and taps are not: one backward pass from the sum gives n
        # times the mean's gradient by the parameters, and each example's deltas by the
        # taps.
        losses, inputs_of = jax.vmap(tapped)(taps, examples)
        return jnp.sum(losses), inputs_of

    taps = [jnp.zeros((n, *s.shape), s.dtype) for s in plan.shapes]
    sums, inputs_of = grad(total, has_aux=True)((parameters.selected, taps))
    gradient, deltas = sums

    def layers(
        deltas: list[jax.Array], inputs_of: list[jax.Array]
    ) -> tuple[LayerFactors, ...]:
        return tuple(map(_compact, _assembled(parameters, plan, deltas, inputs_of)))

    mean = {path: leaf / n for path, leaf in gradient.items()}
    factors = jax.vmap(layers)(deltas, inputs_of)
    return parameters.form.gradient(mean), Factored(factors)


def _compact(layer: Tapped) -> LayerFactors:
    """Return the exact representation of a layer that has the fewest numbers."""
    path, deltas, inputs, bias = layer
    if len(inputs) == 1:
        return LayerFactors(deltas[0], inputs[0], bias)
    if inputs.size + deltas.size < inputs.shape[1] * deltas.shape[1]:
        return LayerFactors(deltas, inputs, bias)
    gradient = jnp.matmul(inputs.T, deltas, precision="highest").reshape(-1)
    if bias:
        gradient = jnp.concatenate([gradient, jnp.sum(deltas, axis=0)])
    return _compact(written_out(path, gradient))
