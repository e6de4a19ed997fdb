"""The binning distance against a slow reference: modes, gaps, categories, edges."""

import jax
import numpy as np
import pandas as pd
import pytest
import slow_retrieval as slow
from hypothesis import given, settings, strategies as st

from jaxsel.data import open_rows
from jaxsel.retrieve import binning_distance, retrieve_binned
from jaxsel.retrieve._binning import MODES, fewest_mismatches

each_mode = pytest.mark.parametrize("mode", MODES)


def numbers(n=60, m=8, columns=5, seed=0):
    """Whole and other numbers, with long tails, on very different scales."""
    rng = np.random.default_rng(seed)
    rows = np.exp(2 * rng.standard_normal((n + m, columns)))
    rows[:, 0] = rng.integers(0, 21, n + m)  # on the edges of 20 and 10 bins
    rows[:, 1] *= 1e12
    rows[:, 2] = rng.choice([-3.5, 0, 7], n + m)
    return rows[:n], rows[n:]


def mixed(n=60, m=8, seed=0):
    """Return two tables with gaps: a number, text, a number, a boolean."""
    rng = np.random.default_rng(seed)
    rows = np.empty((n + m, 4), object)
    rows[:, 0] = rng.standard_normal(n + m)
    rows[:, 1] = rng.choice(["red", "green", "blue", ""], n + m)
    rows[:, 2] = rng.integers(0, 12, n + m)
    rows[:, 3] = rng.choice([True, False], n + m)
    rows[rng.random((n + m, 4)) < 0.1] = None
    rows[rng.random(n + m) < 0.1, 0] = np.nan
    return rows[:n], rows[n:]


@each_mode
@pytest.mark.parametrize("bins", [None, 1, 7, 200])
def test_numbers_as_the_reference(mode, bins):
    table, hard = numbers()
    found = binning_distance(table, hard, mode=mode, bins=bins)
    assert found.dtype == np.int32
    assert found.tolist() == slow.binning_distance(table, hard, mode=mode, bins=bins)


@each_mode
def test_mixed_columns_with_gaps(mode):
    table, hard = mixed()
    expected = slow.binning_distance(table, hard, mode=mode, categorical=[1])
    assert binning_distance(table, hard, mode=mode).tolist() == expected
    assert max(expected) > 0
    # A column of numbers that stand for categories.
    expected = slow.binning_distance(table, hard, mode=mode, categorical=[1, 2])
    found = binning_distance(table, hard, mode=mode, categorical=[1, 2])
    assert found.tolist() == expected


@each_mode
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_table(mode, data):
    value = st.one_of(
        st.none(),
        st.just(float("nan")),
        st.integers(-50, 50),
        st.floats(-1e300, 1e300, width=64),
        st.sampled_from([0.1 * i for i in range(31)]),
    )
    row = st.tuples(value, st.sampled_from(["a", "b", "", None]), value)
    table = data.draw(st.lists(row, min_size=5, max_size=5))
    hard = data.draw(st.lists(row, min_size=2, max_size=2))
    bins = data.draw(st.sampled_from([None, 1, 3, 200]))
    arrays = np.array(table, object), np.array(hard, object)
    found = binning_distance(*arrays, mode=mode, bins=bins, categorical=[1])
    expected = slow.binning_distance(table, hard, mode=mode, bins=bins, categorical=[1])
    assert found.tolist() == expected


@each_mode
def test_edges_from_some_of_the_rows(mode):
    table, hard = numbers()
    rows = [3, 5, 41]
    expected = slow.binning_distance(table, hard, mode=mode, edge_rows=rows)
    assert expected != slow.binning_distance(table, hard, mode=mode)
    mask = np.isin(np.arange(len(table)), rows)
    for edges_from in (rows, np.array(rows), mask):
        found = binning_distance(table, hard, mode=mode, edges_from=edges_from)
        assert found.tolist() == expected
    expected = slow.binning_distance(table, hard, mode=mode, edge_rows=[])
    found = binning_distance(table, hard, mode=mode, edges_from=[])
    assert found.tolist() == expected


@each_mode
def test_forms_of_a_table(mode):
    table, hard = mixed()
    expected = binning_distance(table, hard, mode=mode).tolist()
    names = ["size", "colour", "count", "new"]
    frames = [pd.DataFrame(t, columns=names) for t in (table, hard)]
    typed = [
        frame.astype(
            {"size": float, "colour": "category", "count": "Int64", "new": "boolean"}
        )
        for frame in frames
    ]
    for pair in (frames, typed, (typed[0], frames[1]), (table.tolist(), typed[1])):
        assert binning_distance(*pair, mode=mode).tolist() == expected
    found = binning_distance(*typed, mode=mode, categorical=["colour"])
    assert found.tolist() == expected
    kind = [("size", float), ("colour", "U5"), ("count", float), ("new", float)]
    records = []
    for t in (table, hard):
        record = np.zeros(len(t), kind)
        for j, name in enumerate(names):
            gap = np.nan if name != "colour" else ""
            record[name] = [gap if v is None else v for v in t[:, j]]
        records.append(record)
    assert binning_distance(*records, mode=mode).tolist() == expected
    with pytest.raises(ValueError, match="same columns in the same order"):
        binning_distance(frames[0], frames[1][names[::-1]])


def test_numbers_as_text():
    table, hard = numbers(columns=3)
    text, hard_text = table.astype(str), hard.astype(str)
    expected = binning_distance(table, hard).tolist()
    assert binning_distance(text, hard_text, categorical=[]).tolist() == expected
    # By itself, text is categories.
    found = binning_distance(text, hard_text)
    expected = slow.binning_distance(
        text, hard_text, mode="hamming", categorical=range(3)
    )
    assert found.tolist() == expected


def test_nested_lists_keep_numbers_apart_from_texts():
    table, hard = [["tcp", 1.0], ["tcp", 1.01], ["udp", 9.0]], [["tcp", 1.02]]
    found = binning_distance(table, hard, bins=2).tolist()
    arrays = (np.array(rows, object) for rows in (table, hard))
    assert found == binning_distance(*arrays, bins=2).tolist() == [0, 0, 2]


def test_more_kinds_of_hard_samples_than_a_byte_holds():
    rng = np.random.default_rng(0)
    table, hard = rng.integers(0, 900, (500, 2)), np.stack([np.arange(400)] * 2, axis=1)
    found = binning_distance(table, hard, categorical=[0, 1])
    expected = slow.binning_distance(
        table.tolist(), hard.tolist(), mode="hamming", categorical=[0, 1]
    )
    assert found.tolist() == expected


def test_blocks_of_rows(monkeypatch):
    table, hard = numbers()
    expected = binning_distance(table, hard).tolist()
    monkeypatch.setattr("jaxsel.retrieve._binning._ROWS", 25)
    assert binning_distance(table, hard).tolist() == expected


def test_what_a_gap_is_worth():
    """One bin, in either mode: it is a kind of its own without a place among bins."""
    table = np.array([[np.nan, 0.0], [5.0, 0.0], [9.0, 0.0]])
    hard = np.array([[np.nan, 0.0], [0.0, 10.0]])
    found = binning_distance(table, hard, mode="hamming", bins=10)
    assert found.tolist() == [0, 1, 1]
    found = binning_distance(table, hard, mode="per_feature", bins=10)
    assert found.tolist() == [0, 1, 1]
    found = binning_distance(table, hard[1:], mode="per_feature", bins=10)
    assert found.tolist() == [1 + 9, 5 + 9, 9 + 9]


@each_mode
def test_retrieve_binned(mode):
    table, hard = mixed()
    near = np.array(slow.binning_distance(table, hard, mode=mode, categorical=[1]))
    order = np.argsort(near, kind="stable")  # many ties
    found = retrieve_binned(table, hard, 20, mode=mode)
    assert found.indices.tolist() == order[:20].tolist()
    assert found.weights.tolist() == [1] * 20
    assert int(found.n_valid) == 20
    assert mode in found.method
    found = retrieve_binned(table, hard, 70, mode=mode)
    assert found.indices.tolist() == order.tolist()
    assert found.weights.tolist() == [1] * 60
    assert len(found) == 60


def covering(table, hard, budget, **options):
    """Return the reference's choice with coverage."""
    near = slow.binning_distance(table, hard, mode="each", **options)
    return slow.cover(np.array(near), budget)


@pytest.mark.parametrize("budget", [1, 5, 20, 60, 70])
def test_coverage_as_algorithm_3(budget):
    table, hard = mixed()
    found = retrieve_binned(table, hard, budget, coverage=True)
    expected = covering(table, hard, budget, categorical=[1])
    assert found.indices.tolist() == expected
    assert int(found.n_valid) == len(found) == min(budget, 60)
    assert found.weights.tolist() == [1] * len(expected)
    assert "coverage=True" in found.method
    least = retrieve_binned(table, hard, budget)
    assert "coverage" not in least.method
    assert (least.indices.tolist() == expected) == (budget == 1)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.left_out
def test_coverage_of_any_table(data):
    row = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]), st.just(1))
    # Of few sizes: a program is compiled for each.
    n, m = data.draw(st.sampled_from([(1, 1), (7, 1), (9, 4)]))
    table = data.draw(st.lists(row, min_size=n, max_size=n))
    hard = data.draw(st.lists(row, min_size=m, max_size=m))
    budget = data.draw(st.sampled_from([1, 4, 14]))
    options = {"bins": data.draw(st.sampled_from([None, 2])), "categorical": [1]}
    arrays = np.array(table, object), np.array(hard, object)
    found = retrieve_binned(*arrays, budget, coverage=True, **options)
    assert found.indices.tolist() == covering(table, hard, budget, **options)
    # It is a choice of distinct rows, and begins with the nearest of all.
    near = slow.binning_distance(table, hard, mode="hamming", **options)
    assert len(set(found.indices.tolist())) == min(budget, len(table))
    assert near[found.indices[0]] == min(near)


def test_rows_that_only_come_first_are_told():
    table = pd.DataFrame({"a": np.repeat(["x", "y"], [2, 98]), "b": "u"})
    hard = table[:1]
    with pytest.warns(UserWarning, match="18 of the 20 rows .* as 80 others"):
        retrieve_binned(table, hard, 20)
    retrieve_binned(table, hard, 9)  # few
    retrieve_binned(table, hard, 100)  # all


def test_coverage_reaches_every_hard_sample():
    """Without it, the many rows near the first hard sample take the whole budget."""
    hard = np.array([[0, 0, 0], [9, 9, 9]])
    table = np.array([[0, 0, 0]] * 5 + [[9, 9, 1]] * 2)
    options = {"categorical": [0, 1, 2]}
    assert retrieve_binned(table, hard, 2, **options).indices.tolist() == [0, 1]
    found = retrieve_binned(table, hard, 4, coverage=True, **options)
    assert found.indices.tolist() == [0, 5, 1, 6]


def test_coverage_in_blocks_and_of_many_columns(monkeypatch):
    rng = np.random.default_rng(0)
    table, hard = rng.integers(0, 2, (90, 300)), rng.integers(0, 2, (6, 300))
    options = {"categorical": range(300)}
    expected = covering(table.tolist(), hard.tolist(), 30, **options)
    for pairs in (2**22, 6 * 7, 1):
        monkeypatch.setattr("jaxsel.retrieve._binning._PAIRS", pairs)
        found = retrieve_binned(table, hard, 30, coverage=True, **options)
        assert found.indices.tolist() == expected


def test_coverage_needs_distances_from_single_hard_samples():
    table, hard = numbers()
    with pytest.raises(ValueError, match="coverage must be False with mode='per_feat"):
        retrieve_binned(table, hard, 5, coverage=True, mode="per_feature")


def test_an_own_row_is_first():
    table, hard = mixed(n=40, m=1)
    table[23] = hard[0]
    assert retrieve_binned(table, hard, 1).indices[0] == 23


def test_the_kernel():
    rng = np.random.default_rng(0)
    codes, hard = rng.integers(0, 3, (30, 6)), rng.integers(0, 3, (5, 6))
    found = jax.jit(fewest_mismatches)(codes, hard)
    expected = (codes[:, None] != hard).sum(axis=2).min(axis=1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mode": "l1"}, ValueError, "mode must be one of 'hamming', 'per_feature'"),
        ({"bins": 0}, ValueError, "bins must be at least 1, got 0"),
        ({"bins": 2.5}, TypeError, "bins must be a whole number, got 2.5"),
        ({"table": np.ones(3)}, ValueError, r"table must have shape \[n, columns\]"),
        ({"table": np.ones((0, 2))}, ValueError, "table must not be empty, got 0 rows"),
        ({"table": [[1, 2], [3]]}, TypeError, "table must be a table, got ragged"),
        ({"hard_table": np.ones((4, 3))}, ValueError, "same columns, got 2 and 3"),
        (
            {"table": np.array([[1.0, np.inf]])},
            ValueError,
            "column 1 must hold finite numbers",
        ),
        (
            {"table": np.array([[-1e308, 0], [1e308, 0]])},
            ValueError,
            "column 0 must hold finite numbers whose range fits float64",
        ),
        (
            {"table": np.array([[1j, 2]])},
            TypeError,
            "table must hold numbers or categories, but column 0 has dtype complex128",
        ),
        (
            {"table": pd.DataFrame({"a": [0], "b": pd.to_datetime(["2024-01-01"])})},
            TypeError,
            "column 'b' has dtype datetime64",
        ),
        (
            {"table": np.array([["x", "1"]]), "categorical": []},
            TypeError,
            "column 0 must hold numbers, got .*list it in `categorical`",
        ),
        (
            {"table": np.array([[[1], 2]], object)},
            TypeError,
            "column 0 must hold categories that can be compared",
        ),
        ({"categorical": "a"}, TypeError, "categorical must be a list of column names"),
        ({"categorical": [2]}, ValueError, r"columns of \[0, 1\], got 2"),
        (
            {"edges_from": [9]},
            ValueError,
            "edges_from must hold row numbers from 0 to 8",
        ),
        ({"edges_from": [True]}, ValueError, r"a mask of shape \(9,\)"),
        ({"edges_from": [0.5]}, ValueError, "edges_from must hold row numbers"),
    ],
)
def test_bad_input(change, error, message):
    arguments = {"table": np.eye(9)[:, :2], "hard_table": np.ones((1, 2)), **change}
    with pytest.raises(error, match=message):
        binning_distance(**arguments)


def test_a_bad_budget():
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        retrieve_binned([[1.0]], [[2.0]], 0)


@each_mode
@pytest.mark.parametrize("first", [2**60, -(2**60) - 7, 2**62 + 12345])
@pytest.mark.parametrize("kind", ["int64", "uint64", "object", "frame", "rows"])
def test_whole_numbers_beyond_float64(mode, first, kind):
    rng = np.random.default_rng(3)
    small, few = rng.integers(0, 40, (70, 3)), rng.integers(0, 40, (6, 3))
    expected = binning_distance(small, few, mode=mode, bins=20)
    assert len(np.unique(expected)) > 2
    if kind == "uint64" and first < 0:
        first = 2**63 + 5  # beyond int64, too
    dtype = {"object": object, "uint64": np.uint64}.get(kind, np.int64)
    table, hard = (
        np.array([[int(v) + first for v in row] for row in rows], dtype)
        for rows in (small, few)
    )
    if kind == "frame":
        table, hard = (pd.DataFrame(rows).astype("Int64") for rows in (table, hard))
    if kind == "rows":
        table = open_rows(table)
    found = binning_distance(table, hard, mode=mode, bins=20)
    np.testing.assert_array_equal(found, expected)


def test_floats_beside_whole_numbers_beyond_float64():
    table = np.array([[2.0**60], [2.0**60 + 4096], [2.0**60 + 8192]])
    hard = np.array([[2**60 + 4096 + 1]])
    found = binning_distance(table, hard, bins=8, mode="per_feature")
    np.testing.assert_array_equal(found, [4, 0, 3])
