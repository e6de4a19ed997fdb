"""The binning distance of rows of a source: that of the whole array, to the bit."""

import threading

import numpy as np
import pandas as pd
import pytest
import slow_retrieval as slow
from hypothesis import given, settings, strategies as st
from row_cases import KINDS, N, arrays, make
from test_binning import each_mode, numbers

from jaxsel.data import open_rows
from jaxsel.retrieve import binning_distance, retrieve_binned
from jaxsel.retrieve._table import BINS


class Counted:
    """An array that remembers from where on it was read."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.read = x, x.shape, x.dtype, []

    def __getitem__(self, rows):
        self.read.append(rows.start)
        return self.x[rows]


def gappy(n=90, m=7, seed=0):
    """Numbers with gaps, long tails, columns of gaps only, and of one number."""
    table, hard = numbers(n, m, 7, seed)
    rng = np.random.default_rng(seed)
    for rows in (table, hard):
        rows[rng.random(rows.shape) < 0.15] = np.nan
        rows[:, 3], rows[:, 4] = np.nan, 5
        rows[:, 5] = rng.integers(0, 4, len(rows))
    hard[:, 6] = np.nan  # known in the table alone
    return table, hard


def same(rows, table, hard, **options):
    chunk_size = options.pop("chunk_size", 13)
    found = binning_distance(rows, hard, **options, chunk_size=chunk_size)
    expected = binning_distance(table, hard, **options)
    assert found.dtype == expected.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    hard = x[5:9] + np.float32(0.1)
    for mode in ("hamming", "per_feature"):
        found = same(rows, x, hard, mode=mode)
        assert len(np.unique(found)) > 2
    assert len(found) == N


@pytest.mark.every(4)
@each_mode
@pytest.mark.parametrize("bins", [None, 1, 7, 200])
@pytest.mark.parametrize("chunk_size", [1, 40, None])
def test_gaps_and_tails(mode, bins, chunk_size):
    table, hard = gappy()
    options = {"mode": mode, "bins": bins, "chunk_size": chunk_size}
    same(open_rows(table), table, hard, **options)
    same(open_rows(table), table, hard, **options, categorical=[0, 5])
    same(open_rows(table), table, hard, **options, categorical=[*range(7)])
    for rows in ([3, 5, 41, 5], np.arange(90) % 7 == 0, []):
        same(open_rows(table), table, hard, **options, edges_from=rows)


def test_each_number_of_bins_is_chosen():
    """Though the first chunks leave several open."""
    chosen = set()
    for bins in BINS:
        # With so many bins they fill the first five and the last, with more others.
        column = np.r_[np.zeros(600), np.linspace(0, 4.5 / bins, 60), 1]
        chosen.add(slow.choose_bins(column))
        table = np.stack([column, column[::-1]], axis=1)
        same(open_rows(table), table, table[-3:], chunk_size=100, mode="per_feature")
    assert chosen == {*BINS}, chosen


@each_mode
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_numbers(mode, data):
    value = st.one_of(
        st.just(float("nan")),
        st.just(-0.0),
        st.floats(-1e300, 1e300, width=64),
        st.sampled_from([0.1 * i for i in range(31)]),
    )
    row = st.tuples(value, value)
    table = np.array(data.draw(st.lists(row, min_size=5, max_size=5)))
    hard = np.array(data.draw(st.lists(row, min_size=2, max_size=2)))
    options = {"bins": data.draw(st.sampled_from([None, 1, 3, 200])), "mode": mode}
    options["categorical"] = data.draw(st.sampled_from([None, [1]]))
    same(open_rows(table), table, hard, **options, chunk_size=2)


@each_mode
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, bool])
def test_types(mode, dtype):
    table, hard = (np.clip(t[:, [0, 2]], 0, 200) for t in numbers())
    table, hard = table.astype(dtype), hard.astype(dtype)
    same(open_rows(table), table, hard, mode=mode)
    same(open_rows(table), table, hard, mode=mode, categorical=[1])


def test_hard_samples_of_other_types():
    table = np.array([[1.0, 2], [3, 4], [1, 5]])
    frame = pd.DataFrame({"a": [1, None], "b": ["2", "x"]})  # a column of texts
    found = same(open_rows(table), table, frame, chunk_size=2)
    assert found.tolist() == [1, 2, 1]
    frame["b"] = pd.Series([2, 7]).astype("category")
    assert same(open_rows(table), table, frame).tolist() == [0, 2, 1]
    same(open_rows(table), table, [[1.0, None], [3, 4]])
    same(open_rows(table), table, open_rows(table[:1]))


def test_passes():
    """As many as are said: none for edges of categories, or bins that are given."""
    table, hard = gappy()
    for options, passes in (
        ({}, 3),
        ({"bins": 7}, 2),
        ({"categorical": [*range(7)]}, 1),
    ):
        source = Counted(table)
        rows = open_rows(source)
        source.read.clear()
        same(rows, table, hard, chunk_size=30, **options)
        assert source.read == [0, 30, 60] * passes
    # Once too many bins are filled in every column, the second pass has its answer.
    wide = np.random.default_rng(0).random((90, 2))
    source = Counted(wide)
    rows = open_rows(source)
    source.read.clear()
    same(rows, wide, wide[:2], chunk_size=9)
    assert len(source.read) < 25


def test_retrieve_binned(tmp_path):
    x, y = arrays()
    rows = make("npy folder", tmp_path, x, y)
    found = retrieve_binned(rows, x[:3], 20, chunk_size=40)
    expected = retrieve_binned(x, x[:3], 20)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.method == expected.method


def test_progress(capsys):
    table, hard = gappy()
    binning_distance(open_rows(table), hard, chunk_size=30, progress=True)
    shown = capsys.readouterr().err
    for what in ("edges", "bins", "distances"):
        assert f"binning, {what}" in shown


@pytest.mark.parametrize("edges_from", [None, [0, 1]])
def test_infinity_is_refused_by_row_and_file(edges_from, tmp_path):
    x, y = arrays()
    x[77, 2] = np.inf
    rows = make("npy folder", tmp_path, x, y)
    message = r"column 2 must hold finite numbers, but row 77 has inf \(row 36 of .*"
    with pytest.raises(ValueError, match=f"{message}part-3.npy"):
        binning_distance(rows, x[:3], chunk_size=20, edges_from=edges_from)
    with pytest.raises(ValueError, match="column 2 must hold finite numbers"):
        binning_distance(rows, x[76:78], chunk_size=20)
    threads = [t for t in threading.enumerate() if t.name.startswith("jaxsel-read")]
    assert not threads
    # Infinity may be a category.
    same(rows, x, x[76:78], categorical=[2])


def test_what_changes_between_the_passes_is_refused(tmp_path):
    table, hard = gappy()
    np.save(tmp_path / "x.npy", table)
    rows = open_rows(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", table + 1)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        binning_distance(rows, hard)


def test_bad_input(tmp_path):
    x, y = arrays()
    rows, stream = open_rows(x), make("grain iterator", tmp_path, x, y)
    for error, message, table, hard, options in (
        (ValueError, "same columns, got 5 and 4", rows, x[:, :4], {}),
        (ValueError, r"shape \[n, columns\]", open_rows(y), x, {}),
        (ValueError, r"columns of \[0, 1, 2, 3, 4\], got 5", rows, x, {"c": [5]}),
        (ValueError, "chunk_size must be at least 1, got 0", rows, x, {"n": 0}),
        (ValueError, "edges_from must be None for rows of an", stream, x, {"e": [1]}),
        (ValueError, "row numbers from 0 to 102", rows, x, {"e": [103]}),
        (ValueError, "range fits float64", rows, [[1e308] * 5, [-1e308] * 5], {}),
        (TypeError, "column 0 must hold numbers", rows, [["a"] * 5], {"c": []}),
    ):
        names = {"c": "categorical", "n": "chunk_size", "e": "edges_from"}
        options = {names[name]: value for name, value in options.items()}
        with pytest.raises(error, match=message):
            binning_distance(table, hard, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_coverage_of_every_kind(kind, tmp_path):
    x, y = arrays()
    hard = x[5:9] + np.float32(0.1)
    expected = retrieve_binned(x, hard, 11, coverage=True).indices.tolist()
    rows = make(kind, tmp_path, x, y)
    found = retrieve_binned(rows, hard, 11, coverage=True, chunk_size=13)
    assert found.indices.tolist() == expected
    assert expected != retrieve_binned(x, hard, 11).indices.tolist()
