"""Peers of the KNN values: pyDVL, a torch loop, `argsort` in JAX.

Each takes the points and how many of the validation points to use, and returns the call
to be timed, which returns the mean KNN-Shapley values of the training points.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable

import numpy as np

from ._knn import Points


def pydvl(points: Points, m: int) -> Callable[[], np.ndarray]:
    """Return pyDVL's KNNShapleyValuation, in one process."""
    from joblib import parallel_config
    from sklearn.neighbors import KNeighborsClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        from pydvl.valuation.dataset import Dataset
        from pydvl.valuation.methods.knn_shapley import KNNShapleyValuation

    train = Dataset(points.x, points.y)
    test = Dataset(points.x_val[:m], points.y_val[:m])
    model = KNeighborsClassifier(n_neighbors=points.k)

    def call() -> np.ndarray:
        valuation = KNNShapleyValuation(model, test, progress=False)
        with parallel_config(n_jobs=1):
            return valuation.fit(train).result.values

    return call


def torch_loop(points: Points, m: int) -> Callable[[], np.ndarray]:
    """Return a loop over validation points in PyTorch, everything else vectorised.

    On the GPU if torch has one; else on one thread, which takes less CPU time than two
    and less time too.
    """
    import torch

    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, y, x_val, y_val = (
        torch.from_numpy(a).to(device)
        for a in (points.x, points.y, points.x_val[:m], points.y_val[:m])
    )
    n, m, k = len(x), len(x_val), points.k
    weights = 1 / torch.arange(1, n + 1, device=device).clamp(min=k)

    def call() -> np.ndarray:
        total = torch.zeros(n, device=device)
        for q, label in zip(x_val, y_val, strict=True):
            order = torch.cdist(q[None], x)[0].argsort(stable=True)
            match = torch.nn.functional.pad((y[order] == label).float(), (0, 1))
            steps = weights * (match[:-1] - match[1:])
            total[order] += steps.flip(0).cumsum(0).flip(0)
        return (total / m).cpu().numpy()

    return call


def jax_argsort(points: Points, m: int) -> Callable[[], object]:
    """Return the textbook form in JAX: `argsort`, in chunks of validation points."""
    import jax
    import jax.numpy as jnp

    arrays = jax.device_put((points.x, points.y, points.x_val[:m], points.y_val[:m]))
    n, m, k = len(points.x), len(arrays[2]), points.k
    batch = next(b for b in range(min(64, m), 0, -1) if m % b == 0)

    @jax.jit
    def values(x, y, x_val, y_val):
        weights = 1 / jnp.maximum(jnp.arange(1, n + 1), k)
        norms = jnp.sum(x * x, axis=1)

        def of_point(point):
            q, label = point
            order = jnp.argsort(norms - 2 * jnp.dot(x, q, precision="highest"))
            match = (y[order] == label).astype(x.dtype)
            steps = weights * (match - jnp.append(match[1:], 0))
            return jnp.zeros(n).at[order].set(jnp.cumsum(steps[::-1])[::-1])

        def add(total, chunk):
            return total + jnp.sum(jax.vmap(of_point)(chunk), axis=0), None

        chunks = (x_val.reshape(m // batch, batch, -1), y_val.reshape(-1, batch))
        return jax.lax.scan(add, jnp.zeros(n), chunks)[0] / m

    return functools.partial(values, *arrays)
