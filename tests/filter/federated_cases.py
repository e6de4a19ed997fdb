"""Clients' losses in the tests of filtering across clients."""

import dataclasses

import numpy as np
from references_filter import threshold

from jaxsel.filter import count_losses

NAMES = ("ada", "bo", "cy", "di")


def draw(seed, n=None, clients=NAMES):
    """Draw benchmark losses and those of each client; half of the seeds have ties."""
    rng = np.random.default_rng(seed)
    if seed % 2:
        one = lambda n: (rng.integers(-2, 9, n) / 3).astype(np.float32)
    else:
        one = lambda n: rng.gamma(1, 1, n).astype(np.float32)
    sizes = rng.integers(0, 12, len(clients)) if n is None else [n] * len(clients)
    sizes[0] += 1
    own = {name: one(k) for name, k in zip(clients, sizes, strict=True)}
    return one(int(rng.integers(1, 10))), own


def check(server, v, own):
    """Compare with the central solver on the losses of those who are left."""
    dtype = server.benchmark.edges.dtype
    p = np.concatenate([own[name] for name in server.clients])
    v, p = np.asarray(v, dtype), p.astype(dtype)
    value, distance = threshold(v, p)
    found = server.threshold
    assert found.distance == float(distance)
    assert (server.verdict.keeps(p) == (p <= value)).all()
    assert (found.n_kept, found.n) == (np.sum(p <= value), len(p))


def answers(question, own, names):
    return [count_losses(question, own[name], client=name) for name in names]


def spoil(counted, **values):
    return dataclasses.replace(counted, **values)
