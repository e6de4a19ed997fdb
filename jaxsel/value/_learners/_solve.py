"""Small symmetric systems, many at once: one lane each, on the last axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import (
    cholesky,
    fori_loop,
    lax_map,
    optimization_barrier,
    platform_dependent,
)

UNROLLED = 16  # rows, above which LAPACK, one system after the other, is faster


def pairs(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of a lower triangle, row by row."""
    return np.tril_indices(size)


def solve_packed(packed: jax.Array, right: jax.Array) -> jax.Array:
    """Solve A x = b for positive definite A.

    Args:
        packed: Lower triangles in the order of `pairs`, `[p (p + 1) / 2, B]`.
        right: `[p, B]`, or `[K, p, B]` for K right sides of each system.

    Returns:
        Of the shape of `right`, not finite where A is found not to be definite. Costs
        p³ / 2 multiplications a system up to `UNROLLED` rows, p³ / 6 above.
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
    rows, columns = pairs(size)
    places = np.zeros((size, size), int)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    sides = right.reshape(-1, size, right.shape[-1]).transpose(1, 0, 2)
    solved = eliminate(jnp.concatenate([packed[places], sides], axis=1))
    return solved.transpose(1, 0, 2).reshape(right.shape)


def eliminate(matrix: jax.Array) -> jax.Array:
    """Solve positive definite systems by Gauss-Jordan elimination without pivoting.

    Args:
        matrix: A beside K right sides, `[p, p + K, B]`.

    Returns:
        `[p, K, B]`, not finite where a pivot is not positive. Costs p³ / 2
        multiplications a system up to `UNROLLED` rows, and p³ above.
    """
    size, width, _ = matrix.shape

    def step(matrix: jax.Array) -> jax.Array:
        # The pivot's row goes last, so that every step is one loop without branches;
        # the barriers keep XLA from computing it anew for each entry that uses it.
        # NaN where the pivot is negative, as in a step of Cholesky's method.
        inverse = jnp.square(jax.lax.rsqrt(matrix[0, 0]))
        pivot = optimization_barrier(matrix[0, 1:] * inverse[None])
        others = matrix[1:, 1:] - matrix[1:, :1] * pivot[None]
        return optimization_barrier(jnp.concatenate([others, pivot[None]]))

    if size <= UNROLLED:
        matrix = optimization_barrier(matrix)
        for _ in range(size):
            matrix = step(matrix)
        return matrix

    # In place of the column that a step removes comes one of zeros: one program.
    def shifted(_: jax.Array, matrix: jax.Array) -> jax.Array:
        return jnp.pad(step(matrix), ((0, 0), (0, 1), (0, 0)))

    return fori_loop(0, size, shifted, matrix)[:, : width - size]


def _solve_in_turn(matrices: jax.Array, sides: jax.Array) -> jax.Array:
    return lax_map(lambda each: _solve(*each), (matrices, sides))


def _solve(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solve systems `[..., p, p]` of which the lower triangle is given."""
    lower = cholesky(matrix, symmetrize_input=False)
    return jax.scipy.linalg.cho_solve((lower, True), right)
