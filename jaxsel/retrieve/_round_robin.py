"""Round robin: target samples take turns to choose their most alike candidate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int32

from jaxsel._devices.typed import fori_loop


def round_robin(
    candidates: Float[jax.Array, "n r"], target: Float[jax.Array, "m r"], budget: int
) -> Int32[jax.Array, " {budget}"]:
    """Choose candidates by turns of the target samples: a pure kernel.

    In each turn the next target sample takes the candidate of the largest inner product
    with it that is not taken yet; of equal ones the lower index. So each target sample
    gets the same number of candidates, give or take one. In `coverage` a target sample
    whose next neighbour is taken loses its turn. Costs budget·n·r multiply-adds and
    O(n) memory.

    Args:
        candidates: Array of shape `[n, r]`.
        target: Array of shape `[m, r]`, in the order of their turns.
        budget: How many to choose, at most n.

    Returns:
        The indices chosen, in order, `[budget]` int32.

    References:
        A critical look at targeted instruction selection, arXiv 2602.14696 (2026).
    """
    candidates, target = jnp.asarray(candidates), jnp.asarray(target)
    m, n = target.shape[0], candidates.shape[0]

    def choose(
        turn: jax.Array, state: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        chosen, taken = state
        alike = jnp.matmul(candidates, target[turn % m], precision="highest")
        best = jnp.argmax(jnp.where(taken, -jnp.inf, alike)).astype(jnp.int32)
        return chosen.at[turn].set(best), taken.at[best].set(True)

    start = jnp.zeros(budget, jnp.int32), jnp.zeros(n, bool)
    return fori_loop(0, budget, choose, start)[0]
