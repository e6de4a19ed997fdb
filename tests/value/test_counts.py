"""Threshold values of a part of the training data, from counts of all parts."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import references as ref

import jaxsel
from jaxsel.value import threshold_counts
from jaxsel.value._threshold_kernel import counted_shapley

from . import cases

PARTS = np.array([0, 0, 1, 1, 1, 2, 0, 2])


def counts_by_hand(data, metric):
    near = ref.distances(data.x, data.x_val, metric) <= cases.RADIUS[metric]
    right = ref.matches(data.y, data.y_val) > 0
    return np.stack([(near & right).sum(1), (near & ~right).sum(1)], axis=1)


def in_parts(data, parts, metric="l2", **options):
    """Value each part by the sum of the counts of all, each counted on its own."""
    radius = cases.RADIUS[metric]
    common = {"radius": radius, "metric": metric}
    split = [np.flatnonzero(parts == part) for part in np.unique(parts)]
    total = sum(
        threshold_counts(data.x[own], data.y[own], data.x_val, data.y_val, **common)
        for own in split
    )
    np.testing.assert_array_equal(total, counts_by_hand(data, metric))
    values = np.empty(len(data.x))
    for own in split:
        found = jaxsel.threshold_knn_shapley(
            data.x[own],
            data.y[own],
            data.x_val,
            data.y_val,
            counts=total,
            n_classes=data.n_classes,
            **common,
            **options,
        )
        values[own] = found.values
    return values


def labelled_alike(data):
    """Every part has a label of the validation points: parts without are refused."""
    y = data.y.copy()
    y[[0, 2, 5]] = data.y_val[0]
    return cases.changed(data, y=y)


@pytest.mark.parametrize(
    ("make", "metric"),
    [(cases.random, "l2"), (cases.random, "cosine"), (cases.grid, "l2")],
)
@pytest.mark.left_out
def test_parts_are_the_enumeration_of_the_whole(make, metric):
    data = labelled_alike(make(8))
    method = cases.BY_NAME["threshold_knn_shapley"]
    expected = method.enumerate(data, 1, metric=metric).mean(0)
    cases.close(in_parts(data, PARTS, metric), expected)


@pytest.mark.left_out
def test_many_parts_are_the_whole():
    rng = np.random.default_rng(0)
    x, x_val = (rng.normal(size=(m, 3)).astype(np.float32) for m in (300, 40))
    y, y_val = rng.integers(0, 3, 300), rng.integers(0, 4, 40)
    data = cases.changed(cases.random(8), x=x, y=y, x_val=x_val, y_val=y_val)
    whole = jaxsel.threshold_knn_shapley(*data.classes(), radius=cases.RADIUS["l2"])
    parts = rng.permutation(300) % 3  # of one size: fewer programs
    cases.close(in_parts(data, parts), whole.values, atol=1e-7)
    for chunk_size in (1, 7):
        chunked = in_parts(data, parts, chunk_size=chunk_size)
        cases.close(chunked, whole.values, atol=1e-7)


def test_large_counts_are_exact_to_rounding():
    """Beyond 2^24, where float32 has no whole numbers any more."""
    size, right = 3_000_001, 1_200_000
    harmonic = np.sum(1 / np.arange(1, size + 1, dtype=np.float64))
    inside = np.array([True, True, False])
    found = counted_shapley(inside, np.array([1.0, 0.0, 1.0]), size, right, 0.25)
    for gain, value in zip((1, 0), np.asarray(found), strict=False):
        share = (right - gain) / (size - 1)
        expected = ((gain - 0.25) + (gain - share) * (harmonic - 1)) / size
        assert abs(value - expected) < 1e-6 * abs(expected)
    assert found[2] == 0


@pytest.mark.left_out
def test_counting_in_blocks(monkeypatch):
    data = cases.random(50, 20)
    radius = cases.RADIUS["l2"]
    monkeypatch.setattr("jaxsel.value._threshold._COUNTED", 150)
    found = threshold_counts(*data.classes(), radius=radius)
    np.testing.assert_array_equal(found, counts_by_hand(data, "l2"))
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.zeros((12, 2), int)}, "include the points of x"),
        ({"counts": -np.ones((12, 2), int)}, "between 0 and 2"),
        ({"counts": np.full((12, 2), 1 << 30)}, "between 0 and 2"),
        ({"counts": np.ones((12, 2))}, "whole numbers of shape"),
        ({"counts": np.ones((11, 2), int)}, "whole numbers of shape"),
        ({"n_classes": None}, "counts need n_classes"),
        ({"weights": lambda d: 1 / (1 + d)}, "counts need n_classes"),
    ],
)
def test_refused(change, message):
    data = cases.random(8)
    options = {"counts": np.full((12, 2), 8), "n_classes": 4} | change
    with pytest.raises(ValueError, match=message):
        jaxsel.threshold_knn_shapley(*data.classes(), radius=2.0, **options)


def test_one_count_too_few_is_refused():
    data = cases.random(8)
    counts = counts_by_hand(data, "l2")
    options = {"radius": cases.RADIUS["l2"], "n_classes": 4}
    for place in zip(*np.nonzero(counts), strict=True):
        fewer = counts.copy()
        fewer[place] -= 1
        fewer[place[0], 1 - place[1]] += 5
        with pytest.raises(ValueError, match="include the points of x"):
            jaxsel.threshold_knn_shapley(*data.classes(), counts=fewer, **options)


def test_soft_labels_have_no_counts():
    data = cases.random(8)
    votes = np.eye(3)[data.y]
    with pytest.raises(ValueError, match="must be labels"):
        threshold_counts(data.x, votes, data.x_val, np.zeros(12, int), radius=2.0)


@pytest.mark.left_out
def test_merges_and_tables():
    data = cases.random(30, 12)
    x = pd.DataFrame(data.x, columns=[*"abc"])
    counts = 2 * counts_by_hand(data, "l2")
    common = {"radius": cases.RADIUS["l2"], "n_classes": 4}

    def value(rows):
        x_val = pd.DataFrame(data.x_val[rows], columns=[*"abc"])[[*"cab"]]
        return jaxsel.threshold_knn_shapley(
            x, data.y, x_val, data.y_val[rows], counts=counts[rows], **common
        )

    both = value(slice(0, 5)).merge(value(slice(5, 12)))
    cases.close(both.values, value(slice(0, 12)).values, atol=1e-7)
    with pytest.raises(ValueError, match="method"):
        both.merge(
            jaxsel.threshold_knn_shapley(
                x, data.y, data.x_val[:3], data.y_val[:3], **common
            )
        )


def test_kernel_checks_shapes():
    with pytest.raises(ValueError, match="gains"):
        counted_shapley(jnp.ones(3, bool), jnp.ones(2), 3, 1, 0.5)
