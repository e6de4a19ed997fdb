"""A small table whose kinds of positives are planted."""

import numpy as np

from experiments.mycroft.tabular.kinds import KindTable

SIZES = {"n_own": 60, "n_test": 20, "n_owner": 40}


def planted(n_kinds=2, n=300, seed=0):
    """Three columns of noise; each kind of positives stands out in one of its own."""
    rng = np.random.default_rng(seed)
    kind = np.repeat(np.arange(-1, n_kinds), [2 * n, *[n] * n_kinds])
    rng.shuffle(kind)
    x = rng.normal(size=(len(kind), n_kinds + 3))
    rows = np.flatnonzero(kind >= 0)
    x[rows, kind[rows]] += 4
    x[:, -1] = rng.integers(3, size=len(kind))
    return KindTable(
        x=x.astype(np.float32),
        categorical=(n_kinds + 2,),
        positive=kind >= 0,
        kind=kind,
        kinds=tuple(f"kind {i}" for i in range(n_kinds)),
    )
