"""Near-duplicates, compared with all pairs in float64."""

import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csgraph

from jaxsel import retrieve
from jaxsel.data import open_rows
from jaxsel.retrieve import _near_pairs as near_pairs

METRICS = ("cosine", "l2")


def near(x, y, threshold, metric):
    """Return which rows of two tables are near, `[n, m]`, by the definition."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if metric == "l2":
        far = np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1))
        return far <= threshold
    lengths = np.sqrt((x * x).sum(1)[:, None] * (y * y).sum(1))
    products = (x[:, None] * y[None]).sum(-1)
    cosines = np.divide(
        products, lengths, out=np.zeros_like(lengths), where=lengths > 0
    )
    equal = (x[:, None] == y[None]).all(-1)
    return (cosines >= threshold) | equal


def check(result, x, threshold, metric, x_val=None):
    """Compare every field with the definition."""
    two = x_val is not None
    pairs = near(x, x_val if two else x, threshold, metric)
    if not two:
        np.fill_diagonal(pairs, False)
    assert result.n_pairs == pairs.sum() // (1 if two else 2)
    first = np.where(pairs.any(1), pairs.argmax(1), -1)
    np.testing.assert_array_equal(result.partner, first)
    graph = pairs
    if two:
        first = np.where(pairs.any(0), pairs.argmax(0), -1)
        np.testing.assert_array_equal(result.partner_val, first)
        n, m = pairs.shape
        graph = np.block([[np.zeros((n, n)), pairs], [pairs.T, np.zeros((m, m))]])
    labels = csgraph.connected_components(graph, directed=False)[1]
    labels = np.where(graph.any(1), labels, -1)
    number = {-1: -1}
    for label in labels:
        number.setdefault(label, len(number) - 1)
    groups = [result.group, *([result.group_val] if two else [])]
    np.testing.assert_array_equal(np.concatenate(groups), [number[a] for a in labels])
    assert len(result) == len(number) - 1


def clusters(seed, n=300, d=12, spread=0.2, dtype=np.float32):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n // 5, d))
    x = centres[rng.integers(0, len(centres), n)] + spread * rng.normal(size=(n, d))
    x[::17] = x[3]
    return x.astype(dtype)


def threshold_of(metric, d):
    return 0.95 if metric == "cosine" else 0.28 * np.sqrt(d)


@pytest.fixture(params=["whole", "tiles", "bounds", "full"])
def paths(request, monkeypatch):
    """Small tiles, a bound by two coordinates, or all coordinates in float32."""
    if request.param != "whole":
        monkeypatch.setattr(near_pairs, "TILE", 32)
        monkeypatch.setattr(near_pairs, "_SETTLED", 50)
    if request.param in ("bounds", "full"):
        choose = {
            "bounds": lambda search, _: min(2, search.d),
            "full": lambda search, _: search.d,
        }
        monkeypatch.setattr(near_pairs.Search, "_choose_dims", choose[request.param])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("d", [1, 12, 90])
def test_all_pairs_of_one_table(metric, d, paths):
    x, threshold = clusters(0, d=d), threshold_of(metric, d)
    if d == 1:
        threshold = threshold if metric == "cosine" else 0.003
    result = retrieve.duplicates(x, threshold=threshold, metric=metric)
    check(result, x, threshold, metric)


@pytest.mark.parametrize("metric", METRICS)
def test_all_pairs_of_two_tables(metric, paths):
    x = clusters(1, n=400)
    x, x_val, threshold = x[:290], x[290:], threshold_of(metric, 12)
    result = retrieve.duplicates(x, x_val, threshold=threshold, metric=metric)
    check(result, x, threshold, metric, x_val)
    leaked = near(x, x_val, threshold, metric)
    np.testing.assert_array_equal(result.leaked, np.flatnonzero(leaked.any(0)))
    np.testing.assert_array_equal(result.keep, np.flatnonzero(~leaked.any(1)))


@pytest.mark.parametrize("metric", METRICS)
def test_tiles_are_left_out_and_no_pair_is(metric, monkeypatch):
    monkeypatch.setattr(near_pairs, "TILE", 16)
    x = clusters(2, d=5)
    x[:, 0] *= 20  # in order along this column
    threshold, calls = 0.999 if metric == "cosine" else 0.5, []
    tile = near_pairs.Search._tile
    monkeypatch.setattr(
        near_pairs.Search, "_tile", lambda *a: calls.append(1) or tile(*a)
    )
    result = retrieve.duplicates(x, threshold=threshold, metric=metric)
    check(result, x, threshold, metric)
    blocks = -(-len(np.unique(x, axis=0)) // 16)
    if metric == "l2":
        assert len(calls) < blocks * (blocks + 1) // 4


def test_representatives_and_rows_to_keep():
    x = np.array([[1.0, 0], [0, 1], [0.99, 0.1], [-1, 0], [0.1, 0.9], [0.98, 0.15]])
    result = retrieve.duplicates(x, threshold=0.9)
    assert result.group.tolist() == [0, 1, 0, -1, 1, 0]
    assert [rows.tolist() for rows in result.groups] == [[0, 2, 5], [1, 4]]
    assert result.representatives.tolist() == [0, 1]
    assert result.keep.tolist() == [0, 1, 3]
    assert result.partner.tolist() == [2, 4, 0, -1, 1, 0]
    cosine = 0.99 / np.hypot(0.99, 0.1)
    np.testing.assert_allclose(result.closeness[[0, 2]], cosine, rtol=1e-12)
    assert np.isnan(result.closeness[3])
    assert len(result) == 2


def test_a_group_is_a_chain():
    angle = np.arange(5) * 0.3
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    result = retrieve.duplicates(x, threshold=0.95)  # cos 0.3 = 0.955
    assert result.group.tolist() == [0] * 5
    assert result.n_pairs == 4
    assert result.partner.tolist() == [1, 0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_float64_decides_at_the_threshold(dtype):
    x = np.array([[3, 4], [4, 3]], dtype)  # cosine 24 / 25
    for threshold, pairs in ((0.96, 1), (np.nextafter(0.96, 1), 0)):
        assert retrieve.duplicates(x, threshold=threshold).n_pairs == pairs
    x = np.array([[1000, 1000], [1003, 1004]], dtype)
    for threshold, pairs in ((5.0, 1), (np.nextafter(5.0, 0), 0)):
        result = retrieve.duplicates(x, threshold=threshold, metric="l2")
        assert result.n_pairs == pairs


@pytest.mark.parametrize("count", [2, 200])
def test_cosines_that_float32_cannot_tell_from_the_threshold(count, paths):
    angles = np.linspace(0, 3, count // 2)
    gaps = np.arccos(0.9) + np.where(np.arange(count // 2) % 2, 1e-10, -1e-10)
    both = np.concatenate([angles, angles + gaps])
    x = np.zeros((count, 12))
    x[:, 0], x[:, 1] = np.cos(both), np.sin(both)
    result = retrieve.duplicates(x, threshold=0.9)
    check(result, x, 0.9, "cosine")


def test_equal_rows_and_zeros():
    x = np.zeros((6, 3))
    x[1], x[4], x[5] = 1, 1, -0.0  # rows 0, 2, 3 and 5 are zeros
    result = retrieve.duplicates(x, threshold=1.0)
    assert result.group.tolist() == [0, 1, 0, 0, 1, 0]
    assert result.n_pairs == 6 + 1
    assert result.closeness.tolist() == [1] * 6
    result = retrieve.duplicates(x[:2], x[1:], threshold=1.0)
    assert result.partner_val.tolist() == [1, 0, 0, 1, 0]
    assert result.n_pairs == 3 + 2
    assert result.closeness_val.tolist() == [1] * 5
    result = retrieve.duplicates(x, threshold=0.0, metric="l2")
    assert result.n_pairs == 7
    assert not result.closeness.any()


def test_all_rows_equal():
    n = 30_000
    result = retrieve.duplicates(np.ones((n, 4), np.float32), threshold=0.9)
    assert result.n_pairs == n * (n - 1) // 2
    assert result.keep.tolist() == [0]
    assert result.partner[:3].tolist() == [1, 0, 0]
    two = retrieve.duplicates(np.ones((n, 2)), np.ones((9, 2)), threshold=0.9)
    assert two.n_pairs == 9 * n
    assert len(two.leaked) == 9


@pytest.mark.parametrize("metric", METRICS)
def test_all_rows_near_need_no_quadratic_memory(metric, monkeypatch):
    monkeypatch.setattr(near_pairs, "TILE", 256)
    rng = np.random.default_rng(0)
    n = 4000
    x = (1 + 1e-3 * rng.normal(size=(n, 16))).astype(np.float32)
    retrieve.duplicates(x[:300], threshold=0.9, metric=metric)
    tracemalloc.start()
    result = retrieve.duplicates(x, threshold=0.9, metric=metric)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.n_pairs == n * (n - 1) // 2  # a list of them would take 128 MB
    assert result.keep.tolist() == [0]
    assert peak < 30e6


@pytest.mark.parametrize("metric", METRICS)
def test_copies_count_as_often_as_they_occur(metric, monkeypatch):
    monkeypatch.setattr(near_pairs, "TILE", 32)
    x = np.concatenate([clusters(3, n=60), clusters(3, n=60), clusters(3, n=60)[:30]])
    x = x[np.random.default_rng(0).permutation(len(x))]
    threshold = threshold_of(metric, 12)
    result = retrieve.duplicates(x, threshold=threshold, metric=metric)
    check(result, x, threshold, metric)


def test_rows_and_files(tmp_path):
    x = clusters(4)
    expected = retrieve.duplicates(x, threshold=0.95)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for source in (mapped, open_rows(tmp_path / "x.npy"), jnp.asarray(x)):
        assert retrieve.duplicates(source, threshold=0.95) == expected
    two = retrieve.duplicates(x[:200], x[200:], threshold=0.95)
    rows = open_rows(x[:200]), open_rows(x[200:])
    assert retrieve.duplicates(*rows, threshold=0.95) == two
    with jax.enable_x64(True):
        assert retrieve.duplicates(x, threshold=0.95) == expected


def test_frames_are_matched_by_column():
    x = clusters(5, d=3)
    frame = pd.DataFrame(x, columns=[*"abc"])
    two = retrieve.duplicates(frame[:100], frame[100:][[*"cab"]], threshold=0.95)
    assert two == retrieve.duplicates(x[:100], x[100:], threshold=0.95)
    table = two.to_pandas()
    assert [*table] == ["group", "table", "row", "partner", "closeness"]
    assert len(table) == (two.group >= 0).sum() + (two.group_val >= 0).sum()
    row = table[table.table == "x_val"].iloc[0]
    assert two.partner_val[row.row] == row.partner


@pytest.mark.parametrize("two", [False, True])
def test_files(tmp_path, two):
    x = clusters(6, n=80)
    tables = (x[:50], x[50:]) if two else (x,)
    result = retrieve.duplicates(*tables, threshold=0.95)
    loaded = retrieve.NearDuplicates.load(result.save(tmp_path / "groups.npz"))
    assert repr(loaded) == repr(result)
    np.testing.assert_array_equal(loaded.partner, result.partner)
    np.testing.assert_allclose(loaded.closeness, result.closeness, rtol=1e-6)
    np.testing.assert_array_equal(loaded.keep, result.keep)


def test_nothing_is_near():
    result = retrieve.duplicates(np.eye(4), threshold=0.5)
    assert (len(result), result.n_pairs, result.groups) == (0, 0, [])
    assert result.keep.tolist() == [0, 1, 2, 3]
    assert len(result.to_pandas()) == 0
    assert len(retrieve.duplicates(np.ones((1, 2)), threshold=0.5)) == 0


def test_rows_of_any_length():
    x = clusters(7, dtype=np.float64)
    scaled = x * 10.0 ** np.random.default_rng(0).integers(-200, 200, len(x))[:, None]
    expected = retrieve.duplicates(x, threshold=0.95)
    result = retrieve.duplicates(scaled, threshold=0.95)
    np.testing.assert_array_equal(result.partner, expected.partner)


@pytest.mark.parametrize("offset", [0, 1e6])
def test_raw_columns(offset):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(200, 3)) * [1, 1e5, 1e-2] + offset
    x[100:] = x[:100] + rng.normal(size=(100, 3)) * [0.1, 0.1, 0.01]
    with pytest.warns(UserWarning, match="column 1 of x varies by"):
        result = retrieve.duplicates(x, threshold=0.2, metric="l2")
    check(result, x, 0.2, "l2")
    assert len(result) > 10


X = clusters(9, n=20)
BAD = {
    "NaN": ((np.where(X > 1, np.nan, X),), {}, "x must be finite"),
    "infinity": ((X, np.where(X > 1, np.inf, X)), {}, "x_val must be finite"),
    "NaN in rows": ((open_rows(np.where(X > 1, np.nan, X)),), {}, "must be finite"),
    "threshold": ((X,), {"threshold": 1.5}, "at most 1 with metric='cosine', got 1.5"),
    "zero": ((X,), {"threshold": 0}, "threshold must be finite and above zero"),
    "negative": ((X,), {"threshold": -1, "metric": "l2"}, "zero or more, got -1"),
    "metric": ((X,), {"metric": "l1"}, "metric must be one of"),
    "columns": ((X, X[:, :3]), {}, "same number of features, got 12 and 3"),
    "shape": ((X[0],), {}, r"x must have shape \[n, d\]"),
    "empty": ((X[:0],), {}, "x must not be empty"),
    "huge": ((X * 1e20,), {"metric": "l2"}, "at most 1e\\+15"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case):
    tables, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        retrieve.duplicates(*tables, **{"threshold": 0.9, **options})


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="x must be numeric"):
        retrieve.duplicates(np.array([["a", "b"]]), threshold=0.9)
    with pytest.raises(TypeError, match="threshold must be a number"):
        retrieve.duplicates(X, threshold="0.9")
    with pytest.raises(TypeError, match=r"x is being traced by jit.*kernel"):
        jax.jit(lambda x: retrieve.duplicates(x, threshold=0.9).n_pairs)(X)
    with pytest.raises(ValueError, match="leaked needs a second table"):
        _ = retrieve.duplicates(X, threshold=0.9).leaked
