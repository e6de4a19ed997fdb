"""`cond` and `while_loop` with one predicate for all vmapped rows and devices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsel._devices.typed import psum

# The name that `jax.vmap` gives the rows of a device, where devices work together: what
# one row wants all take part in, so that no loop has to choose row by row.
ROWS = "rows of a device"


def once(
    wanted: jax.Array,
    compute: Callable[[Any], Any],
    state: Any,
    *,
    axis: str | None = None,
) -> Any:
    """Return `compute(state)` if wanted, else the state, under vmap too.

    There a `lax.cond` computes both sides for every row; a loop that no row enters
    computes nothing, unless what it computes does not depend on its state: XLA moves
    that out of the loop.

    Args:
        wanted: Whether to compute.
        compute: From state to state.
        state: Any pytree of arrays.
        axis: An axis of a mesh, if `compute` has collectives over it: all devices then
            compute, and take the result, if any device wants it for any of its `ROWS`.
    """
    if axis is not None:
        wanted = _any_wants(wanted, axis)
    return lax.while_loop(
        lambda loop: loop[0],
        lambda loop: (jnp.zeros_like(loop[0]), compute(loop[1])),
        (wanted, state),
    )[1]


def repeat(
    more: Callable[[Any], jax.Array],
    body: Callable[[Any], Any],
    state: Any,
    *,
    axis: str | None,
) -> Any:
    """Return `lax.while_loop(more, body, state)`; over an axis, while any wants more.

    Devices that are done take the steps of the others, too: a step that finds nothing
    to do must change nothing.
    """
    if axis is None:
        return lax.while_loop(more, body, state)

    def step(loop: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        state = body(loop[1])
        return _any_wants(more(state), axis), state

    start = _any_wants(more(state), axis), state
    return lax.while_loop(lambda loop: loop[0], step, start)[1]


def _any_wants(wanted: jax.Array, axis: str) -> jax.Array:
    return psum(wanted.astype(jnp.int32), (axis, ROWS)) > 0
