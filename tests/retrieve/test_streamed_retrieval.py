"""Retrieval from rows of a source: equal to that from arrays, bit for bit."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from retrieve_cases import METRICS, M, chosen
from row_cases import ITERATORS, KINDS, D, N, arrays, make, write_lists

import jaxsel
from jaxsel.data import open_rows
from jaxsel.retrieve import nearest, pseudo_labels, retrieve_nearest

BUDGET = 40


def hard():
    rng = np.random.default_rng(7)
    return rng.normal(size=(M, D)).astype(np.float32), np.arange(M) % 3 * 2 - 1


def same(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize("kind", KINDS)
@METRICS
def test_nearest_of_every_kind(kind, metric, tmp_path):
    x, y = arrays()
    queries, _ = hard()
    rows = make(kind, tmp_path, x, y)
    # An iterator's chunks have the size asked for; an array's are of even sizes.
    chunk_size = N if kind in ITERATORS else 30
    expected = nearest(x, queries, 9, metric=metric, chunk_size=chunk_size)
    same(nearest(rows, queries, 9, metric=metric, chunk_size=chunk_size), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_of_every_kind(kind, tmp_path):
    x, y = arrays()
    queries, names = hard()
    rows = make(kind, tmp_path, x, y)
    options = {"chunk_size": N if kind in ITERATORS else 30, "metric": "l2"}
    expected = nearest(x, queries, 9, labels=y, hard_labels=names, **options)
    found = nearest(rows, queries, 9, labels=rows.labels, hard_labels=names, **options)
    same(found, expected)
    if kind not in ITERATORS:  # labels in memory, and of another source
        for features, labels in ((rows, y), (rows, open_rows(y)), (x, rows.labels)):
            found = nearest(
                features, queries, 9, labels=labels, hard_labels=names, **options
            )
            same(found, expected)


@pytest.mark.parametrize("kind", ["npy folder", "lists", "grain iterator"])
@pytest.mark.parametrize("budget", [1, BUDGET, N, 2 * N])
def test_coverage(kind, budget, tmp_path):
    """Some budgets take several passes."""
    x, y = arrays()
    queries, names = hard()
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
    queries, _ = hard()
    rows = make(kind, tmp_path, x, y)
    options = {"mesh": jaxsel.make_mesh(), "chunk_size": 104}
    same(nearest(rows, queries, 9, **options), nearest(x, queries, 9, **options))


def test_the_slower_method(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)
    x, y = arrays()
    queries, _ = hard()
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
    queries, names = hard()
    rows = make(kind, tmp_path, x, y)
    found = pseudo_labels(rows, queries, names)
    np.testing.assert_array_equal(found, pseudo_labels(x, queries, names))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8, np.int64, bool])
def test_types(dtype, tmp_path):
    x = (arrays()[0] * 4).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    queries = (hard()[0] * 4).astype(dtype)
    queries[:, 0] = 1
    for metric in ("l2", "cosine"):
        found = nearest(open_rows(tmp_path / "x.npy"), queries, 9, metric=metric)
        same(found, nearest(x, queries, 9, metric=metric))


def test_room_that_no_candidate_fills_is_no_data(tmp_path, monkeypatch):
    x, y = arrays()
    queries, _ = hard()
    rows = make("npy folder", tmp_path, x, y)
    expected = nearest(x, queries, 9, chunk_size=30)
    real = np.empty

    def dirty(shape, dtype=float, **options):
        array = real(shape, dtype, **options)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", dirty)
    same(nearest(rows, queries, 9, chunk_size=30), expected)


def test_large_numbers_far_from_zero(tmp_path):
    """Float64 is centred before it becomes float32."""
    x = arrays()[0].astype(np.float64) + 1e6
    np.save(tmp_path / "x.npy", x)
    queries = hard()[0].astype(np.float64) + 1e6
    found = nearest(open_rows(tmp_path / "x.npy"), queries, 9, metric="l2")
    same(found, nearest(x, queries, 9, metric="l2"))
    right = ((x[None] - queries[:, None]) ** 2).sum(-1).argsort(1)[:, :9]
    np.testing.assert_array_equal(found.indices, right)


def test_text_labels(tmp_path):
    x, y = arrays()
    queries, names = hard()
    write_lists(tmp_path / "t.parquet", x, np.char.add("class ", y.astype(str)))
    rows = open_rows(tmp_path / "t.parquet", features="x", labels="y")
    texts = np.char.add("class ", names.astype(str))
    found = nearest(
        rows, queries, 9, labels=rows.labels, hard_labels=texts, chunk_size=20
    )
    same(
        found,
        nearest(x, queries, 9, labels=y, hard_labels=names, chunk_size=20),
    )
    with pytest.raises(TypeError, match=r"labels of one kind.* \(in rows 0 to "):
        nearest(rows, queries, 9, labels=rows.labels, hard_labels=names)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_merge_to_the_whole(count, tmp_path):
    """What each process of a job finds in its own part."""
    x, y = arrays()
    queries, _ = hard()
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
        nearest(rows, hard()[0], 9, metric=metric, chunk_size=20)
    threads = [t for t in threading.enumerate() if t.name.startswith("jaxsel-read")]
    assert not threads


def test_bad_input(tmp_path):
    x, y = arrays()
    queries, names = hard()
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


# Checkpoints.


class Dies(Exception):
    pass


class Mortal:
    """An array that fails at a read, when told to."""

    def __init__(self, x):
        self.x, self.shape, self.dtype, self.left = x, x.shape, x.dtype, None
        self.read = []

    def __getitem__(self, rows):
        if self.left is not None and self.left <= 0:
            raise Dies
        if rows.stop - rows.start > 1:  # not for the description
            self.read.append(rows.start)
            if self.left is not None:
                self.left -= 1
        return self.x[rows]


@pytest.mark.parametrize("mesh", [False, True])
@pytest.mark.parametrize("after", [1, 3, 5])
def test_a_pass_that_was_cut_off_goes_on(after, mesh, tmp_path):
    x, _ = arrays()
    queries, _ = hard()
    source = Mortal(x)
    rows = open_rows(source)
    options = {"chunk_size": 9, "metric": "l2"}
    options["mesh"] = jaxsel.make_mesh() if mesh else None
    expected = nearest(x, queries, 9, **options)
    options |= {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
    source.left = after
    with pytest.raises(Dies):
        nearest(rows, queries, 9, **options)
    read, source.left = source.read.copy(), None
    source.read.clear()
    same(nearest(rows, queries, 9, **options), expected)
    if after > 3:  # one chunk is read ahead
        assert min(source.read) > min(read)
    source.read.clear()
    same(nearest(rows, queries, 9, **options), expected)
    assert not source.read  # all was found before


@pytest.mark.parametrize("kind", ["grain iterator", "grain batches", "grain loader"])
def test_an_iterator_goes_on(kind, tmp_path):
    x, y = arrays()
    queries, names = hard()
    rows = make(kind, tmp_path, x, y)
    options = {"labels": rows.labels, "hard_labels": names, "chunk_size": 10}
    expected = nearest(rows, queries, 9, **options)
    options |= {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    seen, block = [], type(rows.source).block

    def counted(self, element, row):
        seen.append(row)
        if len(seen) == 55 // (7 if kind == "grain batches" else 1):
            raise Dies
        return block(self, element, row)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(rows.source), "block", counted)
        with pytest.raises(Dies):
            nearest(rows, queries, 9, **options)
    same(nearest(rows, queries, 9, **options), expected)
    same(nearest(rows, queries, 9, **options), expected)


def test_several_passes_are_kept(tmp_path):
    x, _ = arrays()
    queries, _ = hard()
    queries[:] = queries[0]  # lists overlap
    source = Mortal(x)
    rows = open_rows(source)
    expected = chosen(retrieve_nearest(x, queries, BUDGET, chunk_size=9))
    source.read.clear()
    options = {"chunk_size": 9, "checkpoint": tmp_path / "c", "checkpoint_every": 3}
    assert chosen(retrieve_nearest(rows, queries, BUDGET, **options)) == expected
    assert source.read.count(0) > 1
    source.read.clear()
    assert chosen(retrieve_nearest(rows, queries, BUDGET, **options)) == expected
    assert not source.read


@pytest.mark.parametrize("lists", [1, 3 * N])  # one hard sample a pass, or three
@pytest.mark.parametrize("after", [2, 9, 13, 17])
def test_the_slower_method_goes_on(lists, after, tmp_path, monkeypatch):
    x, _ = arrays()
    queries, _ = hard()
    queries[4:] = queries[:4]  # of equal distances the first hard sample's counts
    expected = chosen(retrieve_nearest(x, queries, BUDGET))
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", lists)
    monkeypatch.setattr("jaxsel.retrieve._retrieve._SPARE", N)
    source = Mortal(x)
    rows = open_rows(source)
    source.read.clear()
    assert chosen(retrieve_nearest(rows, queries, BUDGET, chunk_size=18)) == expected
    total = len(source.read)

    options = {"chunk_size": 18, "checkpoint": tmp_path / "c", "checkpoint_every": 4}
    for kept in (after // 4 * 4, after // 4 * 4 * 2):
        source.left = after
        with pytest.raises(Dies):
            retrieve_nearest(rows, queries, BUDGET, **options)
        source.left = None
        if kept + after >= total:
            break
    source.read.clear()
    assert chosen(retrieve_nearest(rows, queries, BUDGET, **options)) == expected
    assert len(source.read) == total - kept
    source.read.clear()
    assert chosen(retrieve_nearest(rows, queries, BUDGET, **options)) == expected
    assert not source.read
    with pytest.raises(ValueError, match="holds a run with other data"):
        retrieve_nearest(rows, queries[::-1], BUDGET, **options)
    with pytest.raises(ValueError, match="holds a run with other data"):
        retrieve_nearest(rows, queries, BUDGET, **options | {"chunk_size": 9})


def test_the_slower_method_visits_hard_samples_in_their_order(monkeypatch):
    """Though it computes the distances of three at a time."""
    queries = np.eye(M, D + 3, dtype=np.float32)
    x = np.concatenate([queries[::-1], queries + 1])
    expected = chosen(retrieve_nearest(x, queries, M, metric="l2"))
    assert expected == [*range(M)][::-1]
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 3 * len(x))
    monkeypatch.setattr("jaxsel.retrieve._retrieve._SPARE", N)
    assert chosen(retrieve_nearest(x, queries, M, metric="l2")) == expected


def test_the_slower_method_keeps_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)
    x, y = arrays()
    queries, names = hard()
    expected = chosen(retrieve_nearest(x, queries, BUDGET, labels=y, hard_labels=names))
    source = Mortal(x)
    rows = open_rows(source, labels=y)
    options = {"labels": rows.labels, "hard_labels": names, "chunk_size": 18}
    options |= {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    source.left = 15
    with pytest.raises(Dies):
        retrieve_nearest(rows, queries, BUDGET, **options)
    source.left = None
    assert chosen(retrieve_nearest(rows, queries, BUDGET, **options)) == expected


@pytest.mark.parametrize(
    "change",
    ["data", "array", "queries", "k", "chunk_size", "metric", "labels", "shard"],
)
def test_a_checkpoint_of_another_search_is_refused(change, tmp_path):
    x, y = arrays()
    queries, names = hard()
    np.save(tmp_path / "x.npy", x)
    rows = open_rows(tmp_path / "x.npy", labels=y)
    options = {"features": x if change == "array" else rows, "hard_features": queries}
    options |= {"k": 9, "chunk_size": 30, "metric": "l2"}
    options |= {"checkpoint": tmp_path / "c"}
    nearest(**options)
    if change == "data":
        np.save(tmp_path / "x.npy", x + 1)
        options["features"] = open_rows(tmp_path / "x.npy", labels=y)
    elif change == "array":
        options["features"] = x + np.eye(N, D, dtype=np.float32)
    elif change == "queries":
        options["hard_features"] = queries[::-1]  # their mean is the same
    elif change == "labels":
        options |= {"labels": rows.labels, "hard_labels": names}
    elif change == "shard":
        options["features"] = rows.shard(0, 1).shard(0, 2)
    else:
        options[change] = {"k": 8, "chunk_size": 20, "metric": "cosine"}[change]
    with pytest.raises(ValueError, match="holds a run with other data"):
        nearest(**options)


@pytest.mark.parametrize("kind", [open_rows, np.asarray])
def test_a_checkpoint_with_other_labels_is_refused(kind, tmp_path):
    x, y = arrays()
    queries, names = hard()
    np.save(tmp_path / "x.npy", x)
    rows = open_rows(tmp_path / "x.npy")
    options = {"hard_labels": names, "checkpoint": tmp_path / "c"}
    nearest(rows, queries, 9, labels=kind(y), **options)
    with pytest.raises(ValueError, match="holds a run with other data"):
        nearest(rows, queries, 9, labels=kind((y + 1) % 4), **options)


@pytest.mark.parametrize("kind", ["npy", "grain iterator"])
def test_more_neighbours_than_candidates(kind, tmp_path):
    x, y = arrays()
    queries, _ = hard()
    found = nearest(make(kind, tmp_path, x, y), queries, N + 9, chunk_size=N)
    assert found.indices.shape == (M, N)
    same(found, nearest(x, queries, N + 9, chunk_size=N))


def test_checkpoints_of_arrays_on_devices_are_refused(tmp_path):
    mesh = jaxsel.make_mesh()
    import jax

    x = jax.device_put(
        np.ones((16, D), np.float32), jax.NamedSharding(mesh, jax.P("data"))
    )
    with pytest.raises(ValueError, match="checkpoint must be None for candidates that"):
        nearest(x, hard()[0], 3, mesh=mesh, checkpoint=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)  # the slower method
        with pytest.raises(ValueError, match="checkpoint must be None for candidates"):
            retrieve_nearest(x, hard()[0], 3, mesh=mesh, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        nearest(np.asarray(x), hard()[0], 3, checkpoint=tmp_path, checkpoint_every=0)


KILLED = """
import sys, time
import numpy as np
from jaxsel import retrieve
from jaxsel.data import open_rows

class Slow:
    def __init__(self, path):
        self.x = np.load(path)
        self.shape, self.dtype = self.x.shape, self.x.dtype
    def __getitem__(self, rows):
        if rows.stop - rows.start > 1:
            print(rows.start, flush=True)
            time.sleep(float(sys.argv[3]))
        return self.x[rows]

folder = sys.argv[1]
queries = np.load(folder + "/hard.npy")
near = retrieve.nearest(
    open_rows(Slow(folder + "/x.npy")), queries, 9, chunk_size=5,
    checkpoint=folder + "/c" if sys.argv[2] == "keep" else None, checkpoint_every=2,
)
np.savez(folder + f"/{sys.argv[2]}.npz", *near)
"""


@pytest.mark.slow
def test_a_killed_pass_goes_on(tmp_path):
    np.save(tmp_path / "x.npy", arrays()[0])
    np.save(tmp_path / "hard.npy", hard()[0])
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(KILLED))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start(what, pause):
        command = [sys.executable, str(script), str(tmp_path), what, str(pause)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )

    with start("whole", 0) as process:
        process.communicate(timeout=120)
        assert process.returncode == 0
    kills = 0
    for _ in range(3):
        with start("keep", 0.3) as process:
            stop = time.monotonic() + 120
            lines = 0
            while lines < 8 and time.monotonic() < stop and process.stdout.readline():
                lines += 1
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
    assert kills >= 2
    with start("keep", 0) as process:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
    assert not output or int(output.split()[0]) > 0  # not from the beginning
    whole, kept = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "keep"))
    same([whole[k] for k in whole.files], [kept[k] for k in kept.files])
