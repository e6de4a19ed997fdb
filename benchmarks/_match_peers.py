"""Peers of matching: scikit-learn, loops in PyTorch and NumPy, `jax.grad`.

The solvers take a pool, write its gradients out before the clock starts, and return
the call to be timed, which returns indices and weights. Each has one thread.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ._matching import FLOOR, Pool, written_out

Call = Callable[[], tuple[np.ndarray, np.ndarray]]


def sklearn_omp(pool: Pool, *, floor: bool = False) -> Call:
    """Return scikit-learn's `orthogonal_mp`: no ridge, weights of both signs.

    With `floor` it stops where float32 does, or at the budget, whichever comes first
    in practice; without it only at the budget, or where atoms become dependent.
    """
    from sklearn.linear_model import orthogonal_mp

    matrix, target = written_out(pool).T, pool.target.reshape(-1)
    stop: Any = {"n_nonzero_coefs": min(pool.k, *matrix.shape)}
    if floor:
        stop = {"tol": FLOOR * pool.norm}

    def call() -> tuple[np.ndarray, np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # dependent atoms
            weights = np.asarray(orthogonal_mp(matrix, target, **stop))
        indices = np.flatnonzero(weights)
        return indices, weights[indices]

    return call


def torch_loop(pool: Pool, *, l2: float) -> Call:
    """Return non-negative matching as the authors' code does it, in PyTorch.

    Each step correlates all candidates with the residual and solves for the weights of
    all chosen; while one is negative, the most negative is dropped, for good unless it
    is chosen again. Unlike that code it never has a candidate twice.
    """
    import torch

    torch.set_num_threads(1)
    matrix = torch.from_numpy(written_out(pool))
    target = torch.from_numpy(pool.target.reshape(-1))

    def call() -> tuple[np.ndarray, np.ndarray]:
        chosen: list[int] = []
        residual, weights = target, target.new_zeros(0)
        for _ in range(pool.k):
            score = matrix @ residual
            score[chosen] = -torch.inf
            chosen.append(int(score.argmax()))
            while chosen:
                atoms = matrix[chosen]
                gram = atoms @ atoms.T + l2 * torch.eye(len(chosen))
                weights = torch.linalg.solve(gram, atoms @ target)
                if weights.min() >= 0:
                    break
                del chosen[int(weights.argmin())]
            residual = target - matrix[chosen].T @ weights
        return np.array(chosen), weights.numpy()

    return call


def numpy_nnls(pool: Pool, *, l2: float) -> Call:
    """Return non-negative matching with SciPy's `nnls` for the weights, in NumPy."""
    from scipy.optimize import nnls

    matrix, target = written_out(pool), pool.target.reshape(-1)

    def call() -> tuple[np.ndarray, np.ndarray]:
        chosen: list[int] = []
        residual, weights = target, np.empty(0)
        for _ in range(pool.k):
            score = matrix @ residual
            score[chosen] = -np.inf
            chosen.append(int(score.argmax()))
            size = len(chosen)
            ridge = np.sqrt(l2) * np.eye(size)
            tall = np.vstack([matrix[chosen].T, ridge])
            weights = nnls(tall, np.append(target, np.zeros(size)))[0]
            residual = target - weights.astype(np.float32) @ matrix[chosen]
        return np.array(chosen), weights

    return call


def grad_products(
    loss: Callable[[Any, Any], Any], params: Any, examples: Any, v: Any, *, chunk: int
) -> Callable[[], Any]:
    """Return inner products of all gradients with v: `vmap(grad)` in chunks."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def products(params: Any, examples: Any, v: Any) -> Any:
        def product(example: Any) -> Any:
            gradient = jax.grad(loss)(params, example)
            return sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, v)))

        return jax.lax.map(product, examples, batch_size=chunk)

    return functools.partial(products, params, examples, v)
