"""The curvature of logistic regression on all data, to precondition that on subsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from jaxsel._devices.platform import one_thread
from jaxsel._inputs.show import brief

from ._arrays import to_single as to

_RANK = 128
_ROWS = 2048  # data that the curvature is taken from
_SWEEPS = 3
_STEPS = 30
_ENTRIES = 1 << 25


@brief
class Curvature(NamedTuple):
    """Largest eigenvalues of the Hessian of the mean cross-entropy, and their vectors.

    Attributes:
        vectors: Orthonormal, `[r, C, p]`.
        values: `[r]`.
        rest: The mean of all others.
        trace: Sum of all.
    """

    vectors: jax.Array
    values: jax.Array
    rest: jax.Array
    trace: jax.Array

    def inverse(
        self, trace: jax.Array, l2: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        """Return a preconditioner of subsets by the trace of their curvature, `[B]`.

        It solves systems of the curvature on all data, scaled to the trace, with l2
        `[B, 1]`; outside its vectors all eigenvalues are taken for their mean there.
        """
        scale = trace[:, None] / jnp.where(self.trace > 0, self.trace, 1)
        outside = 1 / (l2 + scale * self.rest)
        inside = 1 / (l2 + scale * self.values[None]) - outside
        vectors = self.vectors.reshape(len(self.values), -1)

        def apply(right: jax.Array) -> jax.Array:
            flat = right.reshape(len(right), -1)
            # Preconditioners need not be exact, but positive definite: `inside` all but
            # cancels `outside`, which fails in fewer digits, the default on GPUs.
            along = jnp.matmul(flat, vectors.T, precision="highest")
            solution = outside * flat
            solution += jnp.matmul(inside * along, vectors, precision="highest")
            return solution.reshape(right.shape)

        return apply


@one_thread()
def curvature(x: np.ndarray, onehot: np.ndarray, l2: float) -> Curvature:
    """Return the curvature near the optimum on all data, by subspace iteration.

    Args:
        x: Features with a column of ones, `[n, p]` float64; at most 2048 rows are
            looked at.
        onehot: Classes, `[C, n]`.
        l2: The penalty.
    """
    from scipy import optimize

    every = -(-len(x) // _ROWS)
    share = len(x[::every]) / len(x)
    x, onehot = x[::every], onehot[:, ::every]
    (n, p), classes = x.shape, len(onehot)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        theta = flat.reshape(classes, p)
        z = theta @ x.T
        top = cast(np.ndarray, special.logsumexp(z, axis=0))
        # By `share` the loss of the sampled rows stands for the loss on all rows, to
        # which l2 is relative.
        loss = (top - (onehot * z).sum(0)).sum() / share + l2 * (flat @ flat) / 2
        slope = (np.exp(z - top) - onehot) @ x / share + l2 * theta
        return loss, slope.ravel()

    zero = np.zeros(classes * p)
    # A rough optimum will do: it serves a preconditioner, which changes no result.
    theta = cast(
        np.ndarray,
        optimize.minimize(
            objective, zero, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}
        ).x,
    )
    x = x.astype(np.float32)
    chance = special.softmax(theta.reshape(classes, p) @ x.T, axis=0)
    chance = chance.astype(np.float32)

    def product(vectors: np.ndarray) -> np.ndarray:
        u = vectors.reshape(-1, p) @ x.T
        u = u.reshape(-1, classes, n)
        u = chance * (u - (chance * u).sum(1, keepdims=True))
        return (u.reshape(-1, n) @ x).reshape(len(vectors), -1) / n

    size = classes * p
    rank = min(size, _RANK, max(1, _ENTRIES // (classes * n)))
    trace = float(((chance * (1 - chance)).sum(0) * (x * x).sum(1)).sum() / n)
    rng = np.random.default_rng(0)
    basis = np.eye(size, dtype=np.float32)
    if rank < size:
        basis = rng.normal(size=(rank, size)).astype(np.float32)
        for _ in range(_SWEEPS):
            # Orthonormal after each sweep: else all rows turn to one eigenvector.
            basis = np.linalg.qr(product(basis).T)[0].T
    values, turn = np.linalg.eigh(basis @ product(basis).T)
    # Rounding may leave one below 0, and a preconditioner must be definite.
    values = np.maximum(values, 0)
    rest = max(trace - values.sum(), 0) / max(size - rank, 1)
    vectors = (turn.T @ basis).reshape(rank, classes, p)
    return Curvature(to(vectors), to(values), to(rest), to(trace))
