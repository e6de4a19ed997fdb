"""Labels and probabilities, at random and at their worst."""

import numpy as np

KINDS = (
    "random",
    "ties and rows of zeros",
    "all equal",
    "a class without samples",
    "tenths, float32",
    "one-hot",
    "float32",
    "a class that is never predicted",
    "one label of a class",
    "many classes",
)


def draw(kind, seed):
    """Return labels `[n]` and probabilities `[n, K]` of one of `KINDS`."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    classes, n = int(rng.integers(2, 7)), int(rng.integers(8, 120))
    if kind == "many classes":
        classes, n = 25, 400
    y = rng.integers(0, classes, n)
    z = 2 * rng.normal(size=(n, classes))
    z[np.arange(n), y] += rng.choice([0, 2, 3], p=[0.3, 0.4, 0.3], size=n)
    probs = np.exp(z)
    probs /= probs.sum(1, keepdims=True)
    if kind == "ties and rows of zeros":
        probs = np.round(probs * 4) / 4
    elif kind == "all equal":
        probs[:] = 1 / classes
    elif kind == "a class without samples":
        y[y == classes - 1] = 0
    elif kind == "tenths, float32":
        probs = np.round(probs, 1).astype(np.float32)
    elif kind == "one-hot":
        probs = np.eye(classes)[rng.integers(0, classes, n)]
    elif kind == "float32":
        probs = probs.astype(np.float32)
    elif kind == "a class that is never predicted":
        probs[:, -1] = 0
    elif kind == "one label of a class":
        y[:], y[0] = 0, 1
    if (y == y[0]).all():
        y[0] = 1 - min(y[0], 1)
    return y, probs
