"""Rows of every kind of source: read whole, by chunks, by number, and in shards."""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from row_cases import ITERATORS, KINDS, D, N, Table, arrays, make, write_lists
from waits import PATIENCE, until

from jaxsel._inputs.read_ahead import read_ahead
from jaxsel._runs.saved_stream import SavedStream
from jaxsel.data import Rows, open_rows

every_kind = pytest.mark.parametrize("kind", KINDS)
with_length = pytest.mark.parametrize("kind", [k for k in KINDS if k not in ITERATORS])


@every_kind
@pytest.mark.parametrize("chunk_size", [1, 7, 50, N, 1000])
@pytest.mark.every(3)
def test_chunks_are_the_array(kind, chunk_size, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    assert rows.dtype == np.float32
    with closing(rows.chunks(chunk_size)) as chunks:
        found = list(chunks)
    starts = list(range(0, N, chunk_size))
    assert [chunk.start for chunk in found] == starts
    assert [chunk.stop for chunk in found] == [*starts[1:], N]
    np.testing.assert_array_equal(np.concatenate([c.features for c in found]), x)
    np.testing.assert_array_equal(np.concatenate([c.labels for c in found]), y)
    assert np.asarray(rows).tobytes() == x.tobytes()


@pytest.mark.every(5)
@every_kind
@pytest.mark.parametrize("chunk_size", [3, 14, 60])
def test_a_pass_goes_on_from_its_state(kind, chunk_size, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    for chunk in list(rows.chunks(chunk_size)):
        state = json.loads(json.dumps(chunk.state))
        rest = list(rows.chunks(chunk_size, start=state))
        assert [r.start for r in rest] == list(range(chunk.stop, N, chunk_size))
        features = [np.empty((0, D), np.float32), *(r.features for r in rest)]
        np.testing.assert_array_equal(np.concatenate(features), x[chunk.stop :])
        labels = [np.empty(0, int), *(r.labels for r in rest)]
        np.testing.assert_array_equal(np.concatenate(labels), y[chunk.stop :])


@every_kind
def test_a_pass_begins_at_a_row(kind, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    for start in (0, 1, 41, N - 1):
        found = list(rows.chunks(20, start=start))
        assert found[0].start == start
        np.testing.assert_array_equal(
            np.concatenate([c.features for c in found]), x[start:]
        )


@with_length
def test_rows_by_number(kind, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    assert rows.shape == x.shape
    assert len(rows) == rows.n == N
    assert rows.ndim == 2
    mask = np.arange(N) % 3 == 1
    wanted = [
        *(
            3,
            -1,
            np.int64(41),
            slice(None),
            slice(38, 43),
            slice(5, 2),
            slice(-9, None),
        ),
        *(slice(None, None, 9), slice(None, None, -1), [], mask),
        *([5, 4, 99, -1, 4, 50, 51], np.array([102, 0])),
    ]
    for index in wanted:
        expected = (
            x[np.asarray(index, int) if index == [] else index]
            if isinstance(index, list)
            else x[index]
        )
        np.testing.assert_array_equal(rows[index], expected)
        assert rows[index].dtype == x.dtype
    np.testing.assert_array_equal(rows.labels[35:50], y[35:50])
    np.testing.assert_array_equal(np.asarray(rows.labels), y)
    assert rows.labels.shape == (N,)
    assert (
        rows.labels.dtype
        == np.asarray(y[:1] if kind != "array_record" else np.int32(0)).dtype
    )


@pytest.mark.every(4)
@with_length
def test_shards_cover_each_row_once(kind, tmp_path):
    x, y = arrays()
    rows = make(kind, tmp_path, x, y)
    for count in (1, 2, 4, 7, N):
        parts = [rows.shard(index, count) for index in range(count)]
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        seen = np.concatenate([c.features for part in parts for c in part.chunks(10)])
        np.testing.assert_array_equal(seen, x)
        assert [part.begin for part in parts] == np.cumsum([0, *map(len, parts)])[
            :-1
        ].tolist()
    part = rows.shard(1, 3).shard(1, 2)
    assert (part.begin, part.end) == (51, 68)
    np.testing.assert_array_equal(part[:], x[34:68][17:])
    np.testing.assert_array_equal(part.labels[:], y[part.begin : part.end])
    assert rows.shard().shape == x.shape  # the only process


@pytest.mark.parametrize("kind", ITERATORS)
def test_iterators_do_not_know_their_length(kind, tmp_path):
    rows = make(kind, tmp_path, *arrays())
    assert rows.n is None
    for ask in (len, Rows.shard, lambda rows: rows[0], lambda rows: rows.read(0, 1)):
        with pytest.raises(TypeError, match="how many rows"):
            ask(rows)


def test_a_state_of_grain_is_used(tmp_path):
    """The iterator goes on by its own state: it does not read again."""
    grain = pytest.importorskip("grain")
    read = []

    class Source:
        def __len__(self):
            return 1000

        def __getitem__(self, row):
            read.append(int(row))
            return np.full(2, row, np.float32)

    stream = grain.MapDataset.source(Source()).to_iter_dataset(
        grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    )
    rows = open_rows(stream)
    with closing(rows.chunks(100, ahead=0)) as chunks:
        state = [next(chunks) for _ in range(5)][-1].state
    read.clear()
    with closing(rows.chunks(100, start=state, ahead=0)) as chunks:
        assert next(chunks).features[0, 0] == 500
    assert min(read) >= 499


def test_an_iterator_without_a_state_is_read_again():
    class Squares:
        def __iter__(self):
            return (np.array([i, i * i], float) for i in range(10))

    rows = open_rows(Squares())
    (first, *_) = rows.chunks(4)
    assert first.state == {"row": 4}
    found = np.concatenate([c.features for c in rows.chunks(4, start=first.state)])
    np.testing.assert_array_equal(found[:, 0], np.arange(4, 10))
    with pytest.raises(
        ValueError, match="start must be a row of Squares, got 12: .* 10"
    ):
        list(rows.chunks(4, start=12))


def test_an_iterator_that_is_not_the_same_again():
    rng = np.random.default_rng(0)

    class Shuffled:
        def __iter__(self):
            return iter(rng.permutation(100)[:, None].astype(float))

    rows = open_rows(Shuffled())
    with pytest.raises(
        ValueError, match="Shuffled must give the same elements in each"
    ):
        list(rows.chunks(4))


def test_columns_are_chosen_and_named(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    table = {
        "a": np.arange(6),
        "b": np.arange(6, dtype=np.float32) / 4,
        "name": list("xyzxyz"),
        "kind": pa.array(list("uvuvuv")).dictionary_encode(),
        "v": pa.array([[1.0, i] for i in range(6)]),
    }
    pq.write_table(pa.table(table), path)
    both = open_rows(path, features=["b", "a"], labels="name")
    assert both.dtype == np.float64  # holds both columns
    np.testing.assert_array_equal(both[1], [0.25, 1])
    assert both.labels[:].tolist() == list("xyzxyz")
    assert open_rows(path, features="a").shape == (6,)
    assert open_rows(path, features=["a"]).shape == (6, 1)
    assert open_rows(path, features="v").shape == (6, 2)
    assert open_rows(path, features=["a", "v"])[5].tolist() == [5, 1, 5]
    assert open_rows(path, features="a", labels="kind").labels[1] == "v"
    with pytest.raises(TypeError, match="column 'name' holds string: name the columns"):
        open_rows(path)
    with pytest.raises(ValueError, match="no column 'c'; it has a, b, name"):
        open_rows(path, features=["c"])
    with pytest.raises(TypeError, match=r"features must be names of columns, got \[\]"):
        open_rows(path, features=[])


def test_rows_in_files_come_in_the_order_of_names(tmp_path):
    for name in ("b", "a", "c"):
        np.save(tmp_path / f"{name}.npy", np.full((2, 1), ord(name)))
    names = [chr(row[0]) for row in open_rows(tmp_path)[:]]
    assert names == list("aabbcc")
    given = [tmp_path / f"{name}.npy" for name in "cab"]
    assert [chr(row[0]) for row in open_rows(given)[::2]] == list("cab")


def test_a_random_read_of_parquet_does_not_begin_at_the_first_row(tmp_path):
    pytest.importorskip("pyarrow")
    x, y = arrays(400)
    write_lists(tmp_path / "t.parquet", x, y, row_group_size=50)
    rows = open_rows(tmp_path / "t.parquet", features="x", labels="y")
    order = np.random.default_rng(0).permutation(400)
    for start in order[:60]:
        np.testing.assert_array_equal(rows[start : start + 9], x[start : start + 9])
    np.testing.assert_array_equal(rows[order], x[order])


# Reading ahead.


def threads():
    return [t.name for t in threading.enumerate() if t.name.startswith("jaxsel-read")]


def wait_for_no_thread():
    until(lambda: not threads(), lambda: f"{threads()} end")


def test_what_comes_next_is_read_meanwhile():
    read = []

    def numbers():
        for i in range(6):
            read.append(i)
            yield i

    found = read_ahead(numbers(), 2)
    assert next(found) == 0
    until(lambda: len(read) == 3, "two more are read")
    time.sleep(0.05)
    assert read == [0, 1, 2]  # as many as may wait, and no more
    assert list(found) == [1, 2, 3, 4, 5]
    wait_for_no_thread()


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_the_thread_ends_on_early_exit(ahead):
    closed = []

    def numbers():
        try:
            yield from range(100)
        finally:
            closed.append(threading.current_thread().name)

    items = numbers()  # kept: not closed because nobody has it any more
    with closing(read_ahead(items, ahead)) as found:
        assert next(found) == 0
        assert bool(threads()) == bool(ahead)
    assert len(closed) == 1
    assert not threads()


def test_closing_waits_for_a_read_that_is_under_way():
    """Whatever is read from may be closed then."""
    done = []

    def numbers():
        for i in range(10):
            time.sleep(0.2)
            done.append(i)
            yield i

    items = numbers()
    with closing(read_ahead(items, 1)) as found:
        assert next(found) == 0
    seen = done.copy()
    time.sleep(0.5)
    assert done == seen


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_errors_surface_where_they_happen(ahead):
    def numbers():
        yield 0
        yield 1
        raise OSError("the disk is gone")

    found = read_ahead(numbers(), ahead)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    wait_for_no_thread()


def test_passes_may_run_side_by_side(tmp_path):
    """Each with its own thread and position, over the same files."""
    x, y = arrays()
    for kind in ("npy folder", "parquet folder", "zarr 3"):
        folder = tmp_path / kind
        folder.mkdir()
        rows = make(kind, folder, x, y)
        pairs = zip(rows.chunks(10), rows.chunks(10), rows.chunks(10), strict=True)
        for some in pairs:
            for chunk in some:
                np.testing.assert_array_equal(
                    chunk.features, x[chunk.start : chunk.stop]
                )
    wait_for_no_thread()


MEASURE = """
import resource, sys
import numpy as np
from jaxsel.data import open_rows
rows = open_rows(sys.argv[1], **eval(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = 0.0
for chunk in rows.chunks(8192):
    total += float(chunk.features.sum(dtype=np.float64))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, total)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "lists", "zarr"])
def test_memory_of_a_pass_is_that_of_chunks(kind, tmp_path):
    n, d = 400_000, 256  # 410 MB; a chunk has 8 MB
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (n, d), np.int8).astype(np.float32)
    y = np.zeros(n, np.int32)
    path, options = tmp_path / "x", {}
    if kind == "npy":
        path = tmp_path / "x.npy"
        np.save(path, x)
    elif kind == "lists":
        # One row group: reading it whole would take all of it.
        write_lists(path.with_suffix(".parquet"), x, y, row_group_size=n)
        path, options = path.with_suffix(".parquet"), {"features": "x"}
    else:
        zarr = pytest.importorskip("zarr")
        made = zarr.create_array(
            str(path), shape=x.shape, dtype="f4", chunks=(8192, d), compressors=None
        )
        made[:] = x
    expected = float(x.sum(dtype=np.float64))
    del x
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path), repr(options)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    megabytes, total = map(float, done.stdout.split())
    assert total == expected
    assert megabytes < 120


def test_index_arrays_are_what_such_objects_get(tmp_path):
    rows = open_rows(Table(*arrays()), features="x", batched=True)
    with pytest.raises(TypeError, match="no labels"):
        _ = rows.labels
    assert rows[[3, 1]].shape == (2, D)


def test_a_save_counts_from_the_one_before(tmp_path):
    for total in (1, 2, 3):
        saved = SavedStream(tmp_path / "c", 100, {})
        saved.load()
        assert not saved.count()
        saved.save({"a": np.array(total)}, {"row": total})
        arrays, rest = SavedStream(tmp_path / "c", 100, {}).load()
        assert (int(arrays["a"]), rest) == (total, {"row": total})


def test_an_encoder_reads_parquet(tmp_path):
    pd = pytest.importorskip("pandas")
    from jaxsel.tables import TableEncoder

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "work": rng.choice(["u", "v", "w"], 50),
            "age": np.where(rng.random(50) < 0.3, np.nan, rng.normal(size=50)),
            "label": np.arange(50),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=9)
    encoder = TableEncoder().fit(frame[["age", "work"]][:30])
    rows = open_rows(tmp_path / "t.parquet", features=encoder, labels="label")
    expected = encoder.transform(frame[["age", "work"]])
    assert rows.shape == expected.shape
    assert rows.dtype == expected.dtype
    for chunk in (slice(0, 50), slice(17, 31), slice(3, 4)):
        np.testing.assert_allclose(rows[chunk], expected[chunk])
    with pytest.raises(ValueError, match="fitted: call fit"):
        open_rows(tmp_path / "t.parquet", features=TableEncoder())
    np.save(tmp_path / "x.npy", expected)
    for other in (tmp_path / "x.npy", expected):
        with pytest.raises(ValueError, match="for parquet files only"):
            open_rows(other, features=encoder)
