"""Layers' inputs that no parameter changes: their products are computed once a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxsel import gradients
from jaxsel._inputs.chunk import first_row
from jaxsel._inputs.parameters import Loss, split

Known = tuple[jax.Array | None, ...]
"""For each layer of `gradients.ghost` products of inputs, or None where they change."""


def input_products(loss: Loss, params: Any, examples: Any, targets: Any) -> Known:
    """Return `[n, targets]` products of inputs for layers with the same all the time.

    Such as the first layer of a network. Others, and layers that are applied at several
    positions, have None.

    Args:
        loss: Whose parameters `gradients.ghost` follows.
        params: Any of the run.
        examples: All examples, a pytree of arrays `[n, ...]`.
        targets: A pytree of arrays `[targets, ...]`.
    """
    parameters = split(params)

    def inputs(selected: dict[str, jax.Array], examples: Any) -> list[jax.Array]:
        factors = gradients.ghost(loss, parameters.merge(selected), examples)
        return [layer.inputs for layer in factors.layers]

    single = jax.tree.map(lambda leaf: leaf[None], first_row(targets))
    traced = jax.make_jaxpr(inputs)(parameters.selected, single)
    count = len(jax.tree.leaves(parameters.selected))
    arguments = [place < count for place in range(len(traced.jaxpr.invars))]
    changing = _changing(traced.jaxpr, arguments)
    # At positions an inner product is a sum over their pairs: inputs have no factor of
    # it.
    flat = [len(v.aval.shape) == 2 for v in traced.jaxpr.outvars]
    same = [f and not c for f, c in zip(flat, changing, strict=True)]
    if not any(same):
        return tuple(None for _ in same)

    def fixed(examples: Any) -> list[jax.Array]:
        rows = inputs(parameters.selected, examples)
        return [a for a, kept in zip(rows, same, strict=True) if kept]

    pairs = zip(jax.jit(fixed)(examples), jax.jit(fixed)(targets), strict=True)
    products = iter([jnp.matmul(a, b.T, precision="highest") for a, b in pairs])
    return tuple(next(products) if kept else None for kept in same)


def _changing(jaxpr: Jaxpr, arguments: Sequence[bool]) -> list[bool]:
    """Return for each output whether it may depend on arguments that are marked."""
    marked = {v for v, mark in zip(jaxpr.invars, arguments, strict=True) if mark}

    def is_marked(v: Any) -> bool:
        return not isinstance(v, Literal) and v in marked

    for eqn in jaxpr.eqns:
        flags = [is_marked(v) for v in eqn.invars]
        inner = eqn.params.get("jaxpr")
        if eqn.primitive.name == "jit" and isinstance(inner, ClosedJaxpr):
            outputs = _changing(inner.jaxpr, flags)
        else:
            # Other inner functions count as a whole: too many outputs may be marked,
            # never too few.
            outputs = [any(flags)] * len(eqn.outvars)
        marked |= {v for v, mark in zip(eqn.outvars, outputs, strict=True) if mark}
    return [is_marked(v) for v in jaxpr.outvars]


def gram(
    of_batch: gradients.Factored, aims: gradients.Factored, known: Known | None
) -> jax.Array:
    """Return inner products `[batch, targets]`, with products of inputs `[batch, ...]`.

    Args:
        of_batch: Gradients of the batch.
        aims: Gradients of the targets.
        known: Products of inputs, or None.
    """
    if known is None:
        return aims.gram(of_batch)
    total = jnp.zeros((), of_batch.dtype)
    for layer, aim, inputs in zip(of_batch.layers, aims.layers, known, strict=True):
        if inputs is None:
            part = gradients.Factored((aim,)).gram(gradients.Factored((layer,)))
        else:
            deltas = jnp.matmul(layer.deltas, aim.deltas.T, precision="highest")
            part = deltas * (inputs + float(aim.bias))
        total = total + part
    return total
