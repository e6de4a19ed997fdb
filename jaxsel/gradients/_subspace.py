"""The subspace that a target's gradients span, from their inner products alone."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel._devices.typed import diagonal, finfo

_eigh: Callable[[jax.Array], tuple[jax.Array, jax.Array]] = jnp.linalg.eigh


def target_subspace(
    products: Float[jax.Array, "m m"], rank: int
) -> tuple[Float[jax.Array, "m r"], Float[jax.Array, " r"]]:
    """Find the main directions of m gradients by their inner products: a pure kernel.

    If the gradients are the rows of T = U S Vᵀ, then T Tᵀ = U S² Uᵀ, and a gradient g
    has the coordinates Vᵀ g = S⁻¹ Uᵀ (T g). So inner products with the m gradients
    suffice, and no direction of the length of the parameters is written out. Costs
    O(m³) time and O(m²) memory.

    Args:
        products: Inner products of the gradients, `[m, m]`.
        rank: How many directions to keep at most; r = min(rank, m).

    Returns:
        The matrix B = U S⁻¹, `[m, r]`: a gradient whose inner products with the m are
        p `[m]` has the coordinates `p @ B`. And each direction's share of the sum of
        squared lengths, `[r]`, descending. Directions that rounding can't tell from
        none, those with a squared singular value up to m·eps of the largest, have
        zeros in both.

    References:
        GIST: targeted data selection by the subspace of the target's gradients,
        arXiv 2602.18584 (2026), in place of the random projections of LESS.
    """
    m = products.shape[0]
    r = min(rank, m)
    squares, vectors = _eigh(products)
    squares, vectors = squares[::-1][:r], vectors[:, ::-1][:, :r]
    kept = squares > m * finfo(products.dtype).eps * squares[0]
    lengths = jnp.sqrt(jnp.where(kept, squares, 1))
    basis = jnp.where(kept[None], vectors / lengths[None], 0)
    total = jnp.sum(diagonal(products))
    shares = jnp.where(kept, squares, 0) / jnp.where(total > 0, total, 1)
    return basis, shares
