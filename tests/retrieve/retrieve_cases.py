"""What the tests of retrieval share."""

import numpy as np
import pytest

METRICS = pytest.mark.parametrize("metric", ["l2", "cosine"])
# Most tests share one shape, so that it is compiled once.
N, M, D, BUDGET = 240, 8, 6, 40


def points(n=N, m=M, d=D, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    return x, rng.normal(size=(m, d)).astype(np.float32)


def classes():
    rng = np.random.default_rng(1)
    return {"labels": rng.integers(4, size=N), "hard_labels": np.arange(M) % 3}


def chosen(selection):
    """Return the indices, of a selection that is well formed."""
    n_valid = int(selection.n_valid)
    filled = np.arange(len(selection.indices)) < n_valid
    np.testing.assert_array_equal(selection.weights, filled)
    indices = np.asarray(selection.indices)
    assert indices.dtype == np.int32
    assert not indices[n_valid:].any()
    return indices[:n_valid].tolist()


def hard_rows(d):
    rng = np.random.default_rng(7)
    return rng.normal(size=(M, d)).astype(np.float32), np.arange(M) % 3 * 2 - 1


def identical(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
