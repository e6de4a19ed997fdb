"""Small symmetric systems, many at once: one lane each, on the last axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._typed import barrier, cholesky, map_rows, platform_dependent

UNROLLED = 16  # rows, above which LAPACK, one system after the other, is faster


def pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of a lower triangle, row by row."""
    return np.tril_indices(size)


def solve_packed(packed: jax.Array, right: jax.Array) -> jax.Array:
    """Solve A x = b by Cholesky's method.

    Args:
        packed: Lower triangles in the order of `pairs`, `[p (p + 1) / 2, B]`.
        right: `[p, B]`, or `[K, p, B]` for K right sides of each system.

    Returns:
        Of the shape of `right`. Costs p³ / 6 multiplications a system.
    """
    size = right.shape[-2]
    if size > UNROLLED:
        rows, columns = pairs(size)
        matrix = jnp.zeros((packed.shape[1], size, size), packed.dtype)
        matrix = matrix.at[:, rows, columns].set(packed.T)
        sides = right.reshape(-1, size, right.shape[-1]).transpose(2, 1, 0)

        # One after the other on CPUs: several batches of LAPACK calls at once, as of
        # several devices, wait for each other for ever in XLA's runtime.
        solved = platform_dependent(
            matrix,
            sides,
            cpu=_solve_in_turn,
            default=_solve,
        )
        return solved.transpose(2, 1, 0).reshape(right.shape)
    if right.ndim == 3:
        return jnp.stack([solve_packed(packed, side) for side in right])

    def packed_index(i: int, j: int) -> int:
        return i * (i + 1) // 2 + j

    factor: dict[tuple[int, int], jax.Array] = {}
    inverse: list[jax.Array] = []
    forward: list[jax.Array] = []
    # Column by column, with a barrier after each: XLA's fusions would compute a column
    # anew for each entry that makes use of it.
    for j in range(size):
        pivot, ahead = packed[packed_index(j, j)], right[j]
        for k in range(j):
            pivot = pivot - factor[j, k] ** 2
            ahead = ahead - factor[j, k] * forward[k]
        root = jax.lax.rsqrt(pivot)
        column = [root, ahead * root]
        for i in range(j + 1, size):
            entry = packed[packed_index(i, j)]
            for k in range(j):
                entry = entry - factor[i, k] * factor[j, k]
            column.append(entry * root)
        column = barrier(jnp.stack(column))
        inverse.append(column[0])
        forward.append(column[1])
        factor |= {(i, j): column[i - j + 1] for i in range(j + 1, size)}
    solution = [forward[0]] * size
    for i in reversed(range(size)):
        entry = forward[i]
        for k in range(i + 1, size):
            entry = entry - factor[k, i] * solution[k]
        solution[i] = entry * inverse[i]
    return barrier(jnp.stack(solution))


def _solve_in_turn(matrices: jax.Array, sides: jax.Array) -> jax.Array:
    return map_rows(lambda each: _solve(*each), (matrices, sides))


def _solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solve systems `[..., p, p]` of which the lower triangle is given."""
    lower = cholesky(matrix, symmetrize_input=False)
    return jax.scipy.linalg.cho_solve((lower, True), right)
