"""Retrieval from rows of a source goes on where it was cut off."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from retrieve_cases import M, chosen, hard_rows, identical
from row_cases import D, N, arrays, make
from waits import PATIENCE

import jaxsel
from jaxsel.data import open_rows
from jaxsel.retrieve import nearest, retrieve_nearest

BUDGET = 40


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
@pytest.mark.every(3)
def test_a_pass_that_was_cut_off_goes_on(after, mesh, tmp_path):
    x, _ = arrays()
    queries, _ = hard_rows(D)
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
    identical(nearest(rows, queries, 9, **options), expected)
    if after > 3:  # one chunk is read ahead
        assert min(source.read) > min(read)
    source.read.clear()
    identical(nearest(rows, queries, 9, **options), expected)
    assert not source.read  # all was found before


@pytest.mark.parametrize("kind", ["grain iterator", "grain batches", "grain loader"])
@pytest.mark.left_out
def test_an_iterator_goes_on(kind, tmp_path):
    x, y = arrays()
    queries, names = hard_rows(D)
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
    identical(nearest(rows, queries, 9, **options), expected)
    identical(nearest(rows, queries, 9, **options), expected)


@pytest.mark.left_out
def test_several_passes_are_kept(tmp_path):
    x, _ = arrays()
    queries, _ = hard_rows(D)
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
@pytest.mark.left_out
def test_the_slower_method_goes_on(lists, after, tmp_path, monkeypatch):
    x, _ = arrays()
    queries, _ = hard_rows(D)
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


@pytest.mark.left_out
def test_the_slower_method_visits_hard_samples_in_their_order(monkeypatch):
    """Though it computes the distances of three at a time."""
    queries = np.eye(M, D + 3, dtype=np.float32)
    x = np.concatenate([queries[::-1], queries + 1])
    expected = chosen(retrieve_nearest(x, queries, M, metric="l2"))
    assert expected == [*range(M)][::-1]
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 3 * len(x))
    monkeypatch.setattr("jaxsel.retrieve._retrieve._SPARE", N)
    assert chosen(retrieve_nearest(x, queries, M, metric="l2")) == expected


@pytest.mark.left_out
def test_the_slower_method_keeps_classes(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)
    x, y = arrays()
    queries, names = hard_rows(D)
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
    queries, names = hard_rows(D)
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
    queries, names = hard_rows(D)
    np.save(tmp_path / "x.npy", x)
    rows = open_rows(tmp_path / "x.npy")
    options = {"hard_labels": names, "checkpoint": tmp_path / "c"}
    nearest(rows, queries, 9, labels=kind(y), **options)
    with pytest.raises(ValueError, match="holds a run with other data"):
        nearest(rows, queries, 9, labels=kind((y + 1) % 4), **options)


@pytest.mark.parametrize("kind", ["npy", "grain iterator"])
def test_more_neighbours_than_candidates(kind, tmp_path):
    x, y = arrays()
    queries, _ = hard_rows(D)
    found = nearest(make(kind, tmp_path, x, y), queries, N + 9, chunk_size=N)
    assert found.indices.shape == (M, N)
    identical(found, nearest(x, queries, N + 9, chunk_size=N))


def test_checkpoints_of_arrays_on_devices_are_refused(tmp_path):
    mesh = jaxsel.make_mesh()
    import jax

    x = jax.device_put(
        np.ones((16, D), np.float32), jax.NamedSharding(mesh, jax.P("data"))
    )
    with pytest.raises(ValueError, match="checkpoint must be None for candidates that"):
        nearest(x, hard_rows(D)[0], 3, mesh=mesh, checkpoint=tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jaxsel.retrieve._retrieve._LISTS", 1)  # the slower method
        with pytest.raises(ValueError, match="checkpoint must be None for candidates"):
            retrieve_nearest(x, hard_rows(D)[0], 3, mesh=mesh, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="checkpoint_every must be at least 1, got 0"):
        nearest(
            np.asarray(x), hard_rows(D)[0], 3, checkpoint=tmp_path, checkpoint_every=0
        )


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
    np.save(tmp_path / "hard.npy", hard_rows(D)[0])
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(KILLED))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def start(what, pause):
        command = [sys.executable, str(script), str(tmp_path), what, str(pause)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        )

    with start("whole", 0) as process:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    kills = 0
    for _ in range(3):
        with start("keep", 0.3) as process:
            lines = 0
            while lines < 8 and process.stdout.readline():
                lines += 1
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
    assert kills >= 2
    with start("keep", 0) as process:
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    assert not output or int(output.split()[0]) > 0  # not from the beginning
    whole, kept = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "keep"))
    identical([whole[k] for k in whole.files], [kept[k] for k in kept.files])
