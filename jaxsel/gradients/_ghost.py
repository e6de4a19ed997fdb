"""Per-sample gradients as layers' inputs and deltas, in any framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
from ._jaxpr_tape import Product, Sum, Tape, View, refusal
from ._rows import check_chunk_size, map_rows, n_rows, rows_of, vary
from ._shards import Shards, by_shards, everywhere, split_rows


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
    run = _tracer(loss, parameters, examples)
    selected = vary(parameters.selected, examples)

    # Zeros are added to each layer's output (taps): the loss's gradient by them is the
    # layer's delta. A first run, abstract, finds their shapes.
    def layers(example: Any) -> tuple[LayerFactors, ...]:
        plan = _plan(run, selected, example)

        def tapped(taps: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
            tape = Tape(taps)
            return run(tape, selected, example), [use.inputs for use in tape.products]

        zeros = [jnp.zeros(s.shape, s.dtype) for s in plan.shapes]
        zeros = vary(zeros, example)
        deltas, inputs_of = grad(tapped, has_aux=True)(zeros)
        return _assembled(parameters, plan, deltas, inputs_of)

    per_example = activations(layers, first_row(examples))
    rows = rows_of(examples, per_example, chunk_size)
    return map_rows(jax.vmap(layers), examples, rows)


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
) -> tuple[LayerFactors, ...]:
    # The plan's inputs are tracers of an abstract run that has ended.
    for product, inputs in zip(plan.products, inputs_of, strict=True):
        product.inputs = inputs
    for use in plan.uses:
        use.delta = deltas[use.tap]
    return _layers(parameters.form.paths, plan.uses)


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
        return _assembled(parameters, plan, deltas, inputs_of)

    mean = {path: leaf / n for path, leaf in gradient.items()}
    factors = jax.vmap(layers)(deltas, inputs_of)
    return parameters.form.gradient(mean), Factored(factors)


def _layers(
    paths: Sequence[str], uses: Sequence[Product | Sum]
) -> tuple[LayerFactors, ...]:
    """Assemble the layers of one example from all uses of the parameters."""
    groups: dict[str, list[_Group]] = {}
    sums: dict[str, list[Sum]] = {}
    for path in paths:
        of_path = [use for use in uses if use.view.path == path]
        groups[path] = _groups([use for use in of_path if isinstance(use, Product)])
        sums[path] = [use for use in of_path if isinstance(use, Sum)]
        if groups[path] and sums[path]:
            raise refusal(path, "into a product and elsewhere")
    kernels = _kernels(groups, sums)
    layers: list[LayerFactors] = []
    for path in paths:
        layers += [_layer(group, path in kernels.values()) for group in groups[path]]
        if sums[path] and path not in kernels:
            terms = [use.gradient() for use in sums[path]]
            layers.append(_written_out(sum(terms[1:], terms[0])))
    if not layers:
        raise ValueError(
            f"the loss must depend on a selected parameter, got {', '.join(paths)}"
        )
    return tuple(layers)


_Group = list[tuple[Product, bool]]
"""Uses of one kernel, and whether each has it transposed."""


def _groups(products: Sequence[Product]) -> list[_Group]:
    """Group the uses of one parameter by the part of it that is the kernel."""
    if len(products) == 1:
        return [[(products[0], False)]]
    groups: list[tuple[np.ndarray, _Group]] = []
    for product in products:
        # Equal arrays of indices: the same kernel, used twice, or transposed, as tied
        # weights are. Positions are then concatenated; partial overlap is refused.
        index = product.index()
        for other, group in groups:
            if np.array_equal(index, other):
                group.append((product, False))
                break
            if np.array_equal(index.T, other):
                group.append((product, True))
                break
            if np.intersect1d(index, other).size:
                raise refusal(
                    product.view.path, "into products that arrange it differently"
                )
        else:
            groups.append((index, [(product, False)]))
    return [group for _, group in groups]


def _kernels(
    groups: dict[str, list[_Group]], sums: dict[str, list[Sum]]
) -> dict[str, str]:
    """Return the path of the kernel for each bias added to all of its products."""
    kernels: dict[str, str] = {}
    for path, uses in sums.items():
        products = [use.product for use in uses if use.product is not None]
        if not products or len(products) < len(uses):
            continue
        kernel = products[0].view.path
        added = {id(product) for product in products}
        if len(groups[kernel]) == 1 and kernel not in kernels.values():
            group = groups[kernel][0]
            used = {id(product) for product, turned in group if not turned}
            # A layer adds all its deltas to its bias: if a product lacks the bias, or
            # has the kernel transposed, their sum is not the bias's gradient.
            if added == used and len(used) == len(group):
                kernels[path] = kernel
    return kernels


def _layer(group: _Group, bias: bool) -> LayerFactors:
    pairs = [(product.inputs, product.errors()) for product, _ in group]
    pairs = [
        pair[::-1] if turned else pair
        for pair, (_, turned) in zip(pairs, group, strict=True)
    ]
    inputs = jnp.concatenate([inputs for inputs, _ in pairs])
    deltas = jnp.concatenate([deltas for _, deltas in pairs])
    if len(inputs) == 1:
        return LayerFactors(deltas[0], inputs[0], bias)
    # Of two exact representations the one with fewer numbers.
    if inputs.size + deltas.size < inputs.shape[1] * deltas.shape[1]:
        return LayerFactors(deltas, inputs, bias)
    gradient = jnp.matmul(inputs.T, deltas, precision="highest").reshape(-1)
    if bias:
        gradient = jnp.concatenate([gradient, jnp.sum(deltas, axis=0)])
    return _written_out(gradient)


def _written_out(gradient: jax.Array) -> LayerFactors:
    """Return a layer with one delta, of 1: its input is the gradient itself."""
    return LayerFactors(vary(jnp.ones(1, gradient.dtype), gradient), gradient, False)
