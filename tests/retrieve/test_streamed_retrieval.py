"""Retrieval from rows of a source: equal to that from arrays, bit for bit."""

import threading

import numpy as np
import pytest
from retrieve_cases import METRICS, chosen, hard_rows, identical
from row_cases import ITERATORS, KINDS, D, N, arrays, make, write_lists

import jaxsel
from jaxsel.data import open_rows
from jaxsel.retrieve import nearest, pseudo_labels, retrieve_nearest

BUDGET = 40


@pytest.mark.parametrize("kind", KINDS)
@METRICS
@pytest.mark.every(3)
def test_nearest_of_every_kind(kind, metric, tmp_path):
    x, y = arrays()
    queries, _ = hard_rows(D)
    rows = make(kind, tmp_path, x, y)
    # An iterator's chunks have the size asked for; an array's are of even sizes.
    chunk_size = N if kind in ITERATORS else 30
    expected = nearest(x, queries, 9, metric=metric, chunk_size=chunk_size)
    identical(nearest(rows, queries, 9, metric=metric, chunk_size=chunk_size), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_of_every_kind(kind, tmp_path):
    x, y = arrays()
    queries, names = hard_rows(D)
    rows = make(kind, tmp_path, x, y)
    options = {"chunk_size": N if kind in ITERATORS else 30, "metric": "l2"}
    expected = nearest(x, queries, 9, labels=y, hard_labels=names, **options)
    found = nearest(rows, queries, 9, labels=rows.labels, hard_labels=names, **options)
    identical(found, expected)
    if kind not in ITERATORS:  # labels in memory, and of another source
        for features, labels in ((rows, y), (rows, open_rows(y)), (x, rows.labels)):
            found = nearest(
                features, queries, 9, labels=labels, hard_labels=names, **options
            )
            identical(found, expected)


@pytest.mark.parametrize("kind", ["npy folder", "lists", "grain iterator"])
@pytest.mark.parametrize("budget", [1, BUDGET, N, 2 * N])
@pytest.mark.every(12)
def test_coverage(kind, budget, tmp_path):
    """Some budgets take several passes."""
    x, y = arrays()
    queries, names = hard_rows(D)
    rows = make(kind, tmp_path, x, y)
    for mine, theirs in (({}, {}), ({"labels": rows.labels}, {"labels": y})):
        more = {"hard_labels": names} if mine else {}
        found = retrieve_nearest(rows, queries, budget, **mine, **more)
        assert chosen(found) == chosen(
            retrieve_nearest(x, queries, budget, **theirs, **more)
        )


@pytest.mark.parametrize("kind", ["npy folder", "columns", "grain batches"])
def test_devices_share_the_chunks(kind, tmp_path):
    x, y = arrays()
    queries, _ = hard_rows(D)
    rows = make(kind, tmp_path, x, y)
    options = {"mesh": jaxsel.make_mesh(), "chunk_size": 104}
    identical(nearest(rows, queries, 9, **options), nearest(x, queries, 9, **options))


def test_the_slower_method(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)
    x, y = arrays()
    queries, _ = hard_rows(D)
    expected = chosen(retrieve_nearest(x, queries, BUDGET))
    rows = make("npy folder", tmp_path, x, y)
    assert chosen(retrieve_nearest(rows, queries, BUDGET)) == expected
    (tmp_path / "i").mkdir()
    stream = make("grain iterator", tmp_path / "i", x, y)
    with pytest.raises(ValueError, match="budget must be at most 0 for candidates of"):
        retrieve_nearest(stream, queries, BUDGET)


@pytest.mark.parametrize("kind", ["npy folder", "grain batches"])
def test_pseudo_labels(kind, tmp_path):
    x, y = arrays()
    queries, names = hard_rows(D)
    rows = make(kind, tmp_path, x, y)
    found = pseudo_labels(rows, queries, names)
    np.testing.assert_array_equal(found, pseudo_labels(x, queries, names))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int64, bool])
def test_types(dtype, tmp_path):
    x = (arrays()[0] * 4).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    queries = (hard_rows(D)[0] * 4).astype(dtype)
    queries[:, 0] = 1
    for metric in ("l2", "cosine"):
        found = nearest(open_rows(tmp_path / "x.npy"), queries, 9, metric=metric)
        expected = nearest(x, queries, 9, metric=metric)
        if (dtype, metric) == (np.uint8, "cosine"):
            # So near that an array, but no file, is searched in float64.
            np.testing.assert_allclose(found.distances, expected.distances, atol=3e-7)
        else:
            identical(found, expected)


def test_room_that_no_candidate_fills_is_no_data(tmp_path, monkeypatch):
    x, y = arrays()
    queries, _ = hard_rows(D)
    rows = make("npy folder", tmp_path, x, y)
    expected = nearest(x, queries, 9, chunk_size=30)
    real = np.empty

    def dirty(shape, dtype=float, **options):
        array = real(shape, dtype, **options)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", dirty)
    identical(nearest(rows, queries, 9, chunk_size=30), expected)


def test_large_numbers_far_from_zero(tmp_path):
    """Float64 is centred before it becomes float32."""
    x = arrays()[0].astype(np.float64) + 1e6
    np.save(tmp_path / "x.npy", x)
    queries = hard_rows(D)[0].astype(np.float64) + 1e6
    found = nearest(open_rows(tmp_path / "x.npy"), queries, 9, metric="l2")
    identical(found, nearest(x, queries, 9, metric="l2"))
    right = ((x[None] - queries[:, None]) ** 2).sum(-1).argsort(1)[:, :9]
    np.testing.assert_array_equal(found.indices, right)


def test_text_labels(tmp_path):
    x, y = arrays()
    queries, names = hard_rows(D)
    write_lists(tmp_path / "t.parquet", x, np.char.add("class ", y.astype(str)))
    rows = open_rows(tmp_path / "t.parquet", features="x", labels="y")
    texts = np.char.add("class ", names.astype(str))
    found = nearest(
        rows, queries, 9, labels=rows.labels, hard_labels=texts, chunk_size=20
    )
    identical(
        found,
        nearest(x, queries, 9, labels=y, hard_labels=names, chunk_size=20),
    )
    with pytest.raises(TypeError, match=r"labels of one kind.* \(in rows 0 to "):
        nearest(rows, queries, 9, labels=rows.labels, hard_labels=names)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_merge_to_the_whole(count, tmp_path):
    """What each process of a job finds in its own part."""
    x, y = arrays()
    queries, _ = hard_rows(D)
    rows = make("npy folder", tmp_path, x, y)
    near, index = [], []
    for place in range(count):
        part = rows.shard(place, count)
        found = nearest(part, queries, 9)
        near.append(found.distances)
        index.append(found.indices + part.begin)
    near, index = np.concatenate(near, 1), np.concatenate(index, 1)
    order = np.lexsort((index, near))[:, :9]
    expected = nearest(x, queries, 9)
    np.testing.assert_array_equal(
        np.take_along_axis(index, order, axis=1), expected.indices
    )


@METRICS
@pytest.mark.parametrize("kind", ["npy folder", "lists", "grain batches"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_candidates_that_are_not_finite(kind, value, metric, tmp_path):
    x, y = arrays()
    x[77, 2] = value
    rows = make(kind, tmp_path, x, y)
    place = r" \(row 36 of .*part-3.npy\)" if kind == "npy folder" else ""
    with pytest.raises(ValueError, match=f"row 77 has NaN or infinity{place}"):
        nearest(rows, hard_rows(D)[0], 9, metric=metric, chunk_size=20)
    threads = [t for t in threading.enumerate() if t.name.startswith("jaxsel-read")]
    assert not threads


def test_bad_input(tmp_path):
    x, y = arrays()
    queries, names = hard_rows(D)
    rows = open_rows(x, labels=y)
    stream = make("grain iterator", tmp_path, x, y)
    for features, labels, message in (
        (rows, y[1:], r"shape \(103,\), got \(102,\)"),
        (rows, open_rows(y[1:]), "one class for each sample, such as rows.labels"),
        (rows, rows, "one class for each sample"),
        (stream, y, "labels must be rows.labels of the iterator's rows"),
        (stream, rows.labels, "one class for each sample"),
        (rows, stream.labels, "one class for each sample"),
        (x, open_rows(y[1:]), r"shape \(103,\), got \(102,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            nearest(features, queries, 3, labels=labels, hard_labels=names)
    with pytest.raises(ValueError, match="same number of columns, got 5 and 4"):
        nearest(rows, queries[:, :4], 3)
    with pytest.raises(ValueError, match="same number of columns, got 5 and 4"):
        nearest(stream, queries[:, :4], 3)
    with pytest.raises(ValueError, match=r"shape \[n, d\]"):
        nearest(rows.labels, queries, 3)
    with pytest.raises(ValueError, match="at most 2147483647 rows, got 3000000000"):
        nearest(_Long(), queries, 3)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        nearest(stream, queries, 3, chunk_size=0)


def _Long():
    class Long:
        shape, dtype = (3_000_000_000, D), np.dtype(np.float32)

        def __getitem__(self, rows):
            return np.zeros((rows.stop - rows.start, D), np.float32)

    return open_rows(Long())
