"""Per-sample gradients written out, as rows of a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxsel._devices.typed import grad, jit
from jaxsel._inputs.parameters import (
    Form,
    Loss,
    Parameters,
    Wrt,
    check_examples,
    check_loss,
    example_loss,
    split,
)

from ._dense import Dense
from ._rows import check_chunk_size, map_rows, rows_of, vary
from ._shards import Shards, by_shards, everywhere, split_rows


def per_sample(
    loss: Loss,
    params: Any,
    examples: Any,
    *,
    wrt: Wrt = None,
    chunk_size: int | None = None,
) -> Dense:
    """Compute every example's gradient, one forward and backward pass each.

    For small models, and as a reference for the other oracles: it needs memory for
    n·p numbers, where p counts the selected parameters.

    Args:
        loss: `loss(params, example) -> scalar`. Pass the same function each time: it
            is compiled once for each.
        params: Any pytree, as for `jvp`: layers must be in evaluation mode.
        examples: A pytree of arrays `[n, ...]`, one entry a candidate. Where one is
            split over the devices of a mesh, each computes its own rows and keeps them.
        wrt: The parameters that count: None for all, globs on their paths such as
            `"*/kernel"`, or a predicate of path and leaf.
        chunk_size: Examples computed at once; changes speed and memory only.

    Returns:
        An oracle over `[n, p]`: the selected leaves, flattened, one after the other in
        the order of the pytree.

    Raises:
        TypeError: If `loss` is no hashable function, or `wrt` is of another kind.
        ValueError: If `wrt` selects nothing, the examples' lengths differ, the loss is
            not a scalar, or layers are in training mode.
    """
    check_loss(loss)
    parameters = split(params, wrt)
    examples, shards = split_rows(check_examples(examples))
    parameters = everywhere(parameters, shards)
    size = check_chunk_size(chunk_size)
    return Dense(_per_sample(loss, parameters, examples, size, shards))


@jit(static_argnums=(0, 3, 4))
def _per_sample(
    loss: Loss,
    parameters: Parameters,
    examples: Any,
    chunk_size: int | None,
    shards: Shards | None,
) -> jax.Array:
    def of(parameters: Parameters, examples: Any) -> jax.Array:
        return map_rows(
            lambda part: flatten(parameters.form, gradients(loss, parameters, part), 1),
            examples,
            rows_of(examples, parameters.size, chunk_size),
        )

    return by_shards(of, shards, rows=1)(parameters, examples)


def gradients(loss: Loss, parameters: Parameters, examples: Any) -> dict[str, Any]:
    """Return each example's gradient: arrays `[n, ...]` under the selected paths."""
    selected = vary(parameters.selected, examples)

    def of_example(example: Any) -> dict[str, jax.Array]:
        def of(selected: dict[str, jax.Array]) -> jax.Array:
            return example_loss(loss, parameters, selected, example)

        return grad(of)(selected)

    return jax.vmap(of_example)(examples)


def flatten(form: Form, selected: Mapping[str, jax.Array], axes: int) -> jax.Array:
    """Write leaves one after the other, keeping their first `axes` axes."""
    leaves = (selected[path] for path in form.paths)  # jit sorts a dict's keys
    return jnp.concatenate(
        [leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=-1
    )
