"""Clients and runs that tests of federated averaging share."""

import jax
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from jaxsel.models import MLP, accuracy, fed_avg

SGD = optax.sgd(0.3)


def problem(sizes, seed=0):
    """Return clients whose samples are all alike, so that no draw matters."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.normal(size=(len(sizes), 4)).astype(np.float32), sizes, axis=0)
    y = np.repeat(rng.integers(0, 3, len(sizes)), sizes)
    model = nnx.Linear(4, 3, rngs=nnx.Rngs(seed))
    return *nnx.split(model, nnx.Param), x, y, np.repeat(np.arange(len(sizes)), sizes)


def by_hand(params, x, y, clients, steps, rate, rounds=1):
    """Average SGD by the formula of its gradient."""
    w, b = (np.asarray(params[name].get_value(), float) for name in ("kernel", "bias"))
    for _ in range(rounds):
        total, new = 0, (np.zeros_like(w), np.zeros_like(b))
        for c in np.unique(clients[clients >= 0]):
            rows = clients == c
            own_w, own_b = w.copy(), b.copy()
            for _ in range(steps):
                scores = x[rows] @ own_w + own_b
                p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
                p[np.arange(len(p)), y[rows]] -= 1
                own_w -= rate * x[rows].T @ p / len(p)
                own_b -= rate * p.mean(0)
            new = new[0] + rows.sum() * own_w, new[1] + rows.sum() * own_b
            total += rows.sum()
        w, b = (part / total for part in new)
    return w, b


def digits():
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    clients = np.random.default_rng(0).integers(0, 20, len(y))
    return x, y, np.where(np.arange(len(y)) < 1200, clients, -1)


def digits_run(**options):
    x, y, clients = digits()
    graphdef, params = nnx.split(MLP(64, 32, 10, rngs=nnx.Rngs(0)), nnx.Param)
    test = x[1200:], y[1200:]
    given = {
        "key": jax.random.key(0),
        "rounds": 12,
        "batch_share": 0.2,
        "optimizer": SGD,
        "evaluate": lambda params: accuracy(graphdef, params, *test),
        "evaluate_every": 5,
    }
    return fed_avg(graphdef, params, x, y, clients, **given | options)


def same(a, b, **tolerance):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, other, **tolerance)
