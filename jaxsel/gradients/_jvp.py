"""Correlations with a gradient in one forward pass, for any loss and parameters."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel._devices.memory import activations
from jaxsel._devices.typed import jit, lax_map, tree_map, vjp
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

from ._oracle import Gradient, Oracle
from ._per_sample import gradients
from ._rows import (
    check_chunk_size,
    map_rows,
    rows_of,
    sum_rows,
    vary,
)
from ._shards import Shards, by_shards, everywhere, shards_of, split_rows

# Atoms whose columns are computed together: they share the forward pass.
_ATOMS = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class Jvp(Oracle):
    """Gradients known only through directional derivatives; `jvp` makes it.

    A gradient has the form of the parameters, with None where a leaf is not selected.

    Attributes:
        examples: A pytree of arrays `[n, ...]`.
        parameters: Those of the model, shared by all.
        loss: `loss(params, example) -> scalar`.
        chunk_size: Examples computed at once, or None.
    """

    examples: Any
    parameters: Parameters
    loss: Loss = dataclasses.field(metadata={"static": True})
    chunk_size: int | None = dataclasses.field(metadata={"static": True}, default=None)

    shared: ClassVar[tuple[str, ...]] = ("parameters",)

    @property
    def dtype(self) -> Any:
        return self.parameters.dtype

    def diag(self) -> Float[jax.Array, " n"]:
        return _ask(_diag, self)

    def corr(self, v: Gradient) -> Float[jax.Array, " n"]:
        return _ask(_corr, self, self.parameters.form.pick(v))

    def gram(self, atoms: Jvp) -> Float[jax.Array, "m n"]:
        # The kernel has candidates first, the axis that `by_shards` splits and joins.
        return _ask(_gram, self, atoms).T

    def combine(self, weights: Float[jax.Array, " n"]) -> Gradient:
        return self.parameters.form.gradient(_ask(_combine, self, weights=weights))


def jvp(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    wrt: Wrt = None,
    chunk_size: int | None = None,
) -> Jvp:
    """Describe gradients of any loss by any parameters without computing them.

    The inner product of an example's gradient with a direction v is the directional
    derivative of its loss along v: one forward-mode pass over all examples gives all
    correlations, at two to three times the cost of the forward pass.

    Cost: `corr` one such pass and O(n) memory; a column one backward pass for its
    atom and one `corr`; `combine` one backward pass. `diag` alone computes
    the gradients themselves, a chunk at a time, and costs about ten times more than
    `corr`.

    Args:
        loss: `loss(params, example) -> scalar`. Pass the same function each time: it
            is compiled once for each.
        params: Any pytree: nested dicts, a Flax NNX module or state, Linen variables,
            an Equinox module. Layers must be in evaluation mode (`model.eval()`): with
            statistics over a batch, or dropout, one example has no gradient of its own.
            NNX models that are not are refused, also those that the loss closes over;
            arguments of Linen's `apply` can't be inspected.
        examples: A pytree of arrays `[n, ...]`, one entry a candidate. Where one is
            split over the devices of a mesh, each computes for its own rows.
        wrt: The parameters that count: None for all, globs on their paths such as
            `"*/kernel"`, or a predicate of path and leaf.
        chunk_size: Examples computed at once; by default such that the activations
            stay in cache. It changes speed and memory only.

    Returns:
        A `Jvp` oracle, which holds the parameters and the examples.

    Raises:
        TypeError: If `loss` is no hashable function, or `wrt` is of another kind.
        ValueError: If `wrt` selects nothing, the examples' lengths differ, the loss is
            not a scalar, or layers are in training mode.

    References:
        B. A. Pearlmutter, "Fast exact multiplication by the Hessian", Neural
        Computation 6 (1994), for the forward pass along a direction.
    """
    check_loss(loss)
    examples, shards = split_rows(check_examples(examples))
    oracle = Jvp(
        examples,
        everywhere(split(params, wrt), shards),
        loss,
        check_chunk_size(chunk_size),
    )
    jax.eval_shape(_first_loss, oracle)  # refuses what is no scalar; computes nothing
    return oracle


def _ask(kernel: Any, oracle: Jvp, *same: Any, weights: Any = None) -> Any:
    """Run a kernel where the examples are: rows, or with weights a sum over rows."""
    shards = shards_of(oracle.examples)
    if shards is not None:
        same = everywhere(same, shards)
    return _computed(kernel, oracle, same, weights, shards)


@jit(static_argnums=(0, 4))
def _computed(
    kernel: Any, oracle: Jvp, same: Any, weights: Any, shards: Shards | None
) -> Any:
    def on_shard(parameters: Parameters, same: Any, *rows: Any) -> Any:
        part = dataclasses.replace(oracle, parameters=parameters, examples=rows[0])
        return kernel(part, *same, *rows[1:])

    rows = (oracle.examples,) if weights is None else (oracle.examples, weights)
    total = weights is not None
    run = by_shards(on_shard, shards, rows=len(rows), total=total)
    return run(oracle.parameters, same, *rows)


@jit()
def _first_loss(oracle: Jvp) -> jax.Array:
    parameters, example = oracle.parameters, first_row(oracle.examples)
    return example_loss(oracle.loss, parameters, parameters.selected, example)


def _losses(oracle: Jvp, selected: dict[str, Any], examples: Any) -> jax.Array:
    loss = functools.partial(example_loss, oracle.loss, oracle.parameters, selected)
    return jax.vmap(loss)(examples)


def _rows(oracle: Jvp) -> int:
    parameters = oracle.parameters
    loss = functools.partial(example_loss, oracle.loss, parameters, parameters.selected)
    per_example = activations(loss, first_row(oracle.examples))
    return rows_of(oracle.examples, per_example, oracle.chunk_size)


def _corr(oracle: Jvp, v: dict[str, Any]) -> jax.Array:
    selected = vary(oracle.parameters.selected, oracle.examples)
    v = {path: jnp.asarray(v[path], leaf.dtype) for path, leaf in selected.items()}
    v = vary(v, oracle.examples)

    def along(examples: Any) -> jax.Array:
        # One direction for all examples: <g_i, v> is the derivative of loss i along v.
        losses = functools.partial(_losses, oracle, examples=examples)
        return jax.jvp(losses, (selected,), (v,))[1]

    return map_rows(along, oracle.examples, _rows(oracle))


def _gram(oracle: Jvp, atoms: Jvp) -> jax.Array:
    """Return inner products `[n, m]`."""

    def column(example: Any) -> jax.Array:
        batch = tree_map(lambda leaf: leaf[None], example)
        return _corr(oracle, _weighted(atoms, batch, jnp.ones(1, oracle.dtype)))

    return lax_map(column, atoms.examples, batch_size=_ATOMS).T


def _combine(oracle: Jvp, weights: jax.Array) -> dict[str, Any]:
    return sum_rows(
        functools.partial(_weighted, oracle), oracle.examples, weights, _rows(oracle)
    )


def _weighted(oracle: Jvp, examples: Any, weights: jax.Array) -> dict[str, Any]:
    """Return the gradient of the weighted sum of the examples' losses."""
    losses, pullback = vjp(
        lambda s: _losses(oracle, s, examples),
        vary(oracle.parameters.selected, examples),
    )
    return pullback(weights.astype(losses.dtype))[0]


def _diag(oracle: Jvp) -> jax.Array:
    parameters = oracle.parameters

    def squares(examples: Any) -> jax.Array:
        leaves = gradients(oracle.loss, parameters, examples).values()
        return sum(
            (jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in leaves),
            jnp.zeros((), oracle.dtype),
        )

    rows = rows_of(oracle.examples, parameters.size, oracle.chunk_size)
    return map_rows(squares, oracle.examples, rows)
