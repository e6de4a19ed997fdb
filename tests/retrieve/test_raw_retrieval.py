"""Retrieval among raw tables: equal to float64 references."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import slow_retrieval as slow

from jaxsel.retrieve import nearest, pseudo_labels, retrieve_nearest, retrieve_targeted

N, M, D, K = 90, 6, 5, 10


def table(name):
    rng = np.random.default_rng(11)
    x = rng.normal(size=(N + M, D))
    x = {
        "offset": x + 1e4,
        "far": x + 1e6,
        "constant column": np.where(np.arange(D) == 1, 12345.678, x),
        "clusters": x + 1e4 * np.sign(rng.normal(size=(N + M, 1))),
        "unlike scales": x * np.array([1, 1e4, 1e-3, 1, 10]),
        "outlier": np.where(np.arange(N + M)[:, None] == 50, 1e5, x),
    }[name]
    return x[M:], x[:M]


each_table = pytest.mark.parametrize(
    "name",
    ["offset", "clusters"]
    + [
        pytest.param(name, marks=pytest.mark.left_out)
        for name in ("far", "constant column", "unlike scales", "outlier")
    ],
)
each_metric = pytest.mark.parametrize("metric", ["l2", "cosine"])


def distances(x, hard, metric):
    """By differences of rows, `[m, n]`: no digits cancel."""
    if metric == "cosine":
        x, hard = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, hard))
    squares = ((hard[:, None] - x[None]) ** 2).sum(-1)
    return squares / (2 if metric == "cosine" else 1)


def covered(near, budget):
    """Choose rank by rank (Algorithm 3)."""
    order, chosen = np.argsort(near, axis=1, kind="stable"), []
    for rank in range(near.shape[1]):
        at = order[:, rank]
        for h in np.argsort(near[np.arange(len(near)), at], kind="stable"):
            if at[h] not in chosen:
                chosen.append(int(at[h]))
    return chosen[:budget]


@each_table
@each_metric
@pytest.mark.every(12)
def test_nearest_of_raw_tables(name, metric):
    x, hard = table(name)
    near = distances(x, hard, metric)
    found = nearest(x, hard, 3, metric=metric)
    assert found.distances.dtype == np.float32
    np.testing.assert_array_equal(found.indices, np.argsort(near, axis=1)[:, :3])
    nearest_few = np.sort(near, axis=1)[:, :3]
    np.testing.assert_allclose(found.distances, nearest_few, rtol=2e-3, atol=1e-15)
    chosen = retrieve_nearest(x, hard, K, metric=metric)
    assert np.asarray(chosen).tolist() == covered(near, K)
    labels = pseudo_labels(x, hard, np.arange(M), metric=metric)
    np.testing.assert_array_equal(labels, near.argmin(axis=0))


def _facilities(alike, budget):
    best, chosen = np.zeros(len(alike)), []
    for _ in range(budget):
        gains = np.maximum(alike - best[:, None], 0).sum(0) + alike.max(0)
        gains[chosen] = -np.inf
        chosen.append(int(np.argmax(gains)))
        best = np.maximum(best, alike[:, chosen[-1]])
    return chosen


@each_table
@pytest.mark.every(2)
def test_targeted_choices_of_raw_tables(name):
    x, hard = table(name)
    near = distances(x, hard, "l2")
    scale = float(np.median(near))
    found = retrieve_targeted(
        x, hard, K, metric="l2", similarity=lambda d: jnp.exp(-d / scale)
    )
    assert np.asarray(found).tolist() == _facilities(np.exp(-near / scale), K)
    alike = np.maximum(1 - distances(x, hard, "cosine"), 0)
    found = retrieve_targeted(x, hard, K, objective="gcmi")
    best = np.argsort(-alike.sum(0), kind="stable")[:K]
    np.testing.assert_array_equal(found.indices, best)


def test_float32_stays_where_it_does():
    """Tidy features are computed as before; wide ones only where that matters."""
    rng = np.random.default_rng(0)
    x, hard = rng.normal(size=(N, D)), rng.normal(size=(M, D))
    assert not jax.config.read("jax_enable_x64")
    chosen = np.asarray(retrieve_nearest(x.astype(np.float32), hard, K))
    assert chosen.tolist() == slow.retrieve(x, hard, K, "cosine")
