"""Retrieval's bad input, and pseudo-labels."""

import jax
import numpy as np
import pytest
import slow_retrieval as slow
from retrieve_cases import BUDGET, METRICS, D, M, N, chosen, points

from jaxsel import make_mesh
from jaxsel.retrieve import pseudo_labels, retrieve_nearest


@METRICS
def test_pseudo_labels(metric):
    x, hard = points()
    names = np.array(list("abcabcab"))
    expected = names[slow.distances(x, hard, metric).argmin(axis=0)]
    for chunk_size in (None, 100):
        found = pseudo_labels(x, hard, names, metric=metric, chunk_size=chunk_size)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == names.dtype
    one_hot = np.eye(M)
    assert pseudo_labels(x, hard, one_hot).shape == (N, M)
    assert pseudo_labels(x, np.ones((M, D)), np.arange(M))[0] == 0


def test_what_float32_cannot_hold():
    x, hard = (np.asarray(a, np.float64) for a in points())
    hard[0, 0] = 1e39
    with pytest.raises(ValueError, match="hard_features in float32 must be finite"):
        retrieve_nearest(x, hard, BUDGET, metric="cosine")
    x[3, 0] = 1e39
    message = "fit float32, but row 3 has larger"
    with np.errstate(over="ignore"), pytest.raises(ValueError, match=message):
        retrieve_nearest(x, hard[1:], BUDGET, metric="cosine")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"budget": 0}, ValueError, "budget must be at least 1, got 0"),
        ({"budget": 2.5}, TypeError, "budget must be a whole number, got 2.5"),
        (
            {"metric": "l1"},
            ValueError,
            "metric must be one of 'l2', 'cosine', got 'l1'",
        ),
        ({"features": np.ones(3)}, ValueError, r"features must have shape \[n, d\]"),
        ({"features": np.ones((0, 2))}, ValueError, r"features .* got \(0, 2\)"),
        (
            {"features": np.ones((4, 3))},
            ValueError,
            "same number of columns, got 3 and 2",
        ),
        ({"features": [["a", "b"]]}, TypeError, "features must be numeric"),
        (
            {"features": [[1, 2], [3]]},
            TypeError,
            "features must be an array, got ragged",
        ),
        (
            {"hard_features": np.ones((0, 2))},
            ValueError,
            "hard_features must not be empty",
        ),
        ({"hard_features": [[np.nan, 1]]}, ValueError, "hard_features must be finite"),
        ({"labels": [0] * 9}, ValueError, "labels is given, so hard_labels must be"),
        ({"hard_labels": [0]}, ValueError, "hard_labels is given, so labels must be"),
        (
            {"labels": [0] * 8, "hard_labels": [0]},
            ValueError,
            r"labels must hold one class for each sample, shape \(9,\), got \(8,\)",
        ),
        (
            {"labels": [0] * 9, "hard_labels": ["a"]},
            TypeError,
            "labels and hard_labels must hold labels of one kind",
        ),
        (
            {"labels": np.array(["a", None, *"bcdefgh"]), "hard_labels": ["a"]},
            ValueError,
            r"labels must hold a label of each sample, but row 1 has none \(1 of 9",
        ),
        (
            {"labels": [0.0] * 8 + [np.nan], "hard_labels": [0]},
            ValueError,
            "labels must be finite, but row 8",
        ),
        ({"mesh": "all"}, ValueError, "mesh must be a mesh of devices"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        (
            {"hard_features": [[1e-20, 2e-20]], "metric": "l2"},
            ValueError,
            "hard_features must have squares that fit float32",
        ),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"features": np.eye(9)[:, :2], "hard_features": np.ones((1, 2))}
    with pytest.raises(error, match=message):
        retrieve_nearest(**{**arguments, "budget": 2, **change})


@pytest.mark.every(4)
@METRICS
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sharded", [False, True])
def test_candidates_that_are_not_finite(metric, value, sharded):
    """Found while they stream: they are read only once."""
    x, hard = points()
    x[231, 2] = value
    mesh = make_mesh() if sharded else None
    message = "features must be finite, but row 231 has NaN"
    with pytest.raises(ValueError, match=message):
        retrieve_nearest(x, hard, BUDGET, metric=metric, chunk_size=104, mesh=mesh)
    with pytest.raises(ValueError, match=message):
        pseudo_labels(x, hard, np.arange(M), metric=metric)


def test_candidates_that_overflow():
    x, hard = points()
    x[77] = 1e25
    with pytest.raises(ValueError, match="squares that fit float32.* row 77 has"):
        retrieve_nearest(x, hard, BUDGET, metric="l2")
    x[77] = hard[0] * np.float32(1e25)
    assert 77 in chosen(retrieve_nearest(x, hard, BUDGET))


def test_pseudo_labels_of_the_wrong_length():
    x, hard = points(5, 3)
    with pytest.raises(ValueError, match="one label for each of the 3 hard samples"):
        pseudo_labels(x, hard, [0, 1])


def test_inside_jit():
    x, hard = points(5, 3)
    with pytest.raises(TypeError, match="features is being traced"):
        jax.jit(lambda x: retrieve_nearest(x, hard, 2).indices)(x)
