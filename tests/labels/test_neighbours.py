"""Neighbours, votes, duplicates and KNN-Shapley values, beside brute force."""

import numpy as np
import pytest
from sklearn.metrics import pairwise_distances

import jaxsel
from jaxsel import labels
from jaxsel._inputs import columns
from jaxsel.labels import _neighbours, _rank, _table
from jaxsel.labels._folds import deal_folds


def cloud(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(0, 3, n)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_nearest_others(metric, monkeypatch):
    x, _ = cloud()
    far = pairwise_distances(x, metric={"l2": "sqeuclidean"}.get(metric, metric))
    np.fill_diagonal(far, np.inf)
    order = np.argsort(far, axis=1, kind="stable")[:, :7]
    for entries in (1 << 22, 60 * 7):  # 60 is no multiple of 7
        monkeypatch.setattr(_neighbours, "_ENTRIES", entries)
        near = _neighbours.nearest_others(x, 7, metric=metric)
        np.testing.assert_array_equal(near.indices, order)
        wanted = np.take_along_axis(far, order, 1)
        np.testing.assert_allclose(near.distances, wanted, rtol=1e-5)


def test_near_neighbours_far_from_the_origin_are_in_order():
    """float32 distances from a matrix product cannot tell them apart."""
    x = np.random.default_rng(0).normal(size=(40, 3)) + 1e6
    near = _neighbours.nearest_others(x, 5)
    far = pairwise_distances(x - 1e6, metric="sqeuclidean")
    np.fill_diagonal(far, np.inf)
    wanted = np.sort(far, axis=1)[:, :5]
    np.testing.assert_allclose(near.distances, wanted, rtol=1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_neighbours_in_tight_clusters_are_in_order(metric):
    """Their distances are the rounding of float32 products, and some are equal."""
    rng = np.random.default_rng(0)
    x = np.repeat(100 * rng.normal(size=(6, 5)), 10, axis=0)
    x += 1e-3 * rng.normal(size=x.shape)
    x[::10] = x[1::10]
    near = _neighbours.nearest_others(x.astype(np.float32), 9, metric=metric)
    wide = x.astype(np.float32).astype(np.float64)
    if metric == "cosine":
        wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    far = np.square(wide[:, None] - wide).sum(-1)
    far /= 2 if metric == "cosine" else 1
    np.fill_diagonal(far, np.inf)
    np.testing.assert_array_equal(near.indices, np.argsort(far, kind="stable")[:, :9])
    np.testing.assert_allclose(near.distances, np.sort(far)[:, :9], rtol=1e-9)


def test_votes():
    x, y = cloud()
    near = _neighbours.nearest_others(x, 10)
    prior = np.bincount(y, minlength=3) / len(y)
    for k, sharpness in ((4, 0.0), (10, 3.0)):
        found = _neighbours.votes(near, y, 3, k=k, sharpness=sharpness)
        for i in range(len(y)):
            table = prior.copy()
            scale = near.distances[i, k - 1]
            for j, far in zip(near.indices[i, :k], near.distances[i, :k], strict=True):
                table[y[j]] += np.exp(-sharpness * far / scale)
            np.testing.assert_allclose(found[i], table / table.sum())


def test_neighbours_of_some():
    x, y = cloud()
    rows = np.arange(60)[::7]
    whole = _neighbours.nearest_others(x, 5)
    some = _neighbours.nearest_others(x, 5, rows=rows)
    np.testing.assert_array_equal(some.indices, whole.indices[rows])
    np.testing.assert_allclose(some.distances, whole.distances[rows])
    found = _neighbours.votes(some, y, 3, k=5, sharpness=1.0)
    wanted = _neighbours.votes(whole, y, 3, k=5, sharpness=1.0)
    np.testing.assert_allclose(found, wanted[rows])


def test_the_likelier_metric():
    """Classes that differ in direction, or in length alone."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    angle = y + 0.1 * rng.normal(size=120)
    length = np.exp(2 * rng.normal(size=120))
    rays = length[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    assert _neighbours.likelier_neighbours(rays, y, 2).metric == "cosine"
    rings = (1 + y)[:, None] * np.stack([np.cos(10 * length), np.sin(10 * length)], 1)
    assert _neighbours.likelier_neighbours(rings, y, 2).metric == "l2"


@pytest.mark.parametrize("k", [7, 110, 200])
@pytest.mark.parametrize("metric", [None, "cosine"])
def test_neighbours_of_a_table(k, metric):
    """As many as asked, although distances are compared by at most 100."""
    x, y = cloud(n=130)
    far = np.array([1e9, 0, 0, 0])
    options = _table.TableOptions(5, None, k, metric, progress=False)
    table = _table.Table.of(x + far, y, np.arange(3), options)
    # float64 has the digits that float32 loses.
    np.testing.assert_allclose(table.rows, columns.on_one_scale(x), atol=1e-6)
    wanted = _neighbours.nearest_others(table.rows, k, metric=table.metric)
    np.testing.assert_array_equal(table.near.indices, wanted.indices)
    assert table.near.indices.shape == (130, min(k, 129))
    assert table.near.metric == table.metric == (metric or table.metric)


def test_hinges():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.exponential(size=200), rng.integers(0, 2, 200), [3] * 200])
    found = columns.with_hinges(x)
    assert found.shape == (200, 3 + 6)  # of the first column alone
    np.testing.assert_array_equal(found[:, :3], x)
    np.testing.assert_allclose(found[:, 3:].std(0), x[:, 0].std())
    ranks = found[:, 3]
    assert (np.argsort(ranks) == np.argsort(x[:, 0])).all()
    np.testing.assert_allclose(np.diff(np.sort(ranks)), np.ptp(ranks) / 199)
    for place, share in enumerate((0.1, 0.25, 0.5, 0.75, 0.9), 4):
        flat = found[x[:, 0] <= np.quantile(x[:, 0], share), place]
        np.testing.assert_allclose(flat, flat[0])
        bent = np.maximum(x[:, 0] - np.quantile(x[:, 0], share), 0)
        assert np.corrcoef(found[:, place], bent)[0, 1] > 1 - 1e-9
    wide = rng.normal(size=(50, 33))
    assert columns.with_hinges(wide) is wide


def test_duplicates_that_disagree():
    x, y = cloud()
    y[:4] = 0, 1, 2, 2
    x[1] = x[0]  # equal
    x[3] = x[2]  # equal, and of one label
    x[5], y[4], y[5] = x[4] + 1e-3, 0, 1  # near
    found = labels.conflicting_duplicates(x, y)
    assert found.pairs.tolist() == [[0, 1], [4, 5]]
    far = pairwise_distances(x)
    np.fill_diagonal(far, np.inf)
    assert found.radius == pytest.approx(0.1 * np.median(far.min(1)))
    np.testing.assert_allclose(found.distances, [0, np.sqrt(4e-6)], atol=1e-12)
    assert labels.conflicting_duplicates(x, y, share=0).pairs.tolist() == [[0, 1]]
    wide = labels.conflicting_duplicates(x, y, share=1.0, k=59)
    row, column = np.nonzero(np.triu(far <= wide.radius) & (y[:, None] != y))
    pairs = sorted(zip(row.tolist(), column.tolist(), strict=True))
    assert sorted(map(tuple, wide.pairs.tolist())) == pairs
    assert (np.diff(wide.distances) >= 0).all()


def test_rows_that_are_all_equal():
    x, y = np.ones((6, 2)), np.array(["a", "b", "a", "b", "a", "b"])
    found = labels.conflicting_duplicates(x, y)
    assert len(found) == 9
    assert found.radius == 0
    assert len(labels.conflicting_duplicates(x, np.zeros(6, int))) == 0


def test_knn_shapley_between_folds():
    """Against values on each fold, averaged by hand."""
    x, y = cloud()
    fold = deal_folds(y, folds=3)
    found = _rank.between_folds(x, y, fold, "l2")
    wanted = np.zeros(len(y))
    for i in range(len(y)):
        total, count = 0.0, 0
        for f in {0, 1, 2} - {int(fold[i])}:
            rows, val = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            values = jaxsel.knn_shapley(x[rows], y[rows], x[val], y[val]).values
            mine = np.asarray(values)[np.flatnonzero(rows == i)[0]]
            total += float(mine) * len(rows) * len(val)
            count += len(val)
        wanted[i] = total / count
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (np.ones((1, 2)), [0], {}, "two samples or more"),
        (np.ones((3, 2)), [0, 1], {}, "same length"),
        (np.ones(3), [0, 1, 0], {}, r"x must have shape \[n, d\]"),
        (np.full((3, 2), np.nan), [0, 1, 0], {}, "x must be finite"),
        (np.ones((3, 2)), [0, 1, 0], {"share": -1}, "share must be"),
        (np.ones((3, 2)), [0, 1, 0], {"k": 0}, "k must be at least 1"),
        (np.ones((3, 2)), [0, 1, 0], {"metric": "l1"}, "metric must be one of"),
    ],
)
def test_what_is_refused(x, y, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        labels.conflicting_duplicates(x, y, **options)
