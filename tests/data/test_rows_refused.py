"""Rows that are damaged, empty, mixed or changed: refused, naming where."""

import builtins
import os
import shutil

import numpy as np
import pytest
from row_cases import (
    D,
    N,
    arrays,
    make,
    write_columns,
    write_lists,
    write_records,
    write_zarr,
)

from jaxsel.data import Rows, open_rows


def whole(rows, **options):
    return np.concatenate([c.features for c in rows.chunks(20, **options)])


# What is not there, or not of a kind.


def test_no_source(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.npy is not there"):
        open_rows(tmp_path / "none.npy")
    with pytest.raises(ValueError, match="has no file to read: it must be an .npy"):
        open_rows(tmp_path)
    (tmp_path / "x.csv").write_text("1,2")
    with pytest.raises(ValueError, match="x.csv must be an .npy, .parquet"):
        open_rows(tmp_path / "x.csv")
    with pytest.raises(TypeError, match="source must be .* got int"):
        open_rows(3)
    with pytest.raises(TypeError, match="used up after one pass"):
        open_rows(iter([np.zeros(2)]))
    with pytest.raises(TypeError, match="open already"):
        open_rows(open_rows(np.eye(3)))


def test_files_of_several_kinds(tmp_path):
    x, y = arrays()
    np.save(tmp_path / "a.npy", x)
    write_columns(tmp_path / "b.parquet", x, y)
    for source in (tmp_path, [tmp_path / "a.npy", tmp_path / "b.parquet"]):
        with pytest.raises(ValueError, match="files of one kind, got npy, parquet"):
            open_rows(source)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            np.zeros((2, 3), np.float32),
            r"a.npy has row_shape \(4,\) and .*b.npy has \(3,\)",
        ),
        (np.zeros((2, 4)), "a.npy has dtype float32 and .*b.npy has float64"),
        (np.zeros((2, 4), np.float16), "b.npy has float16"),
    ],
)
def test_shards_that_differ(other, message, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4), np.float32))
    np.save(tmp_path / "b.npy", other)
    with pytest.raises(ValueError, match=message):
        open_rows(tmp_path)


def test_parquet_files_that_differ(tmp_path):
    x, y = arrays()
    write_lists(tmp_path / "a.parquet", x, y)
    write_lists(tmp_path / "b.parquet", x[:, :3], y)
    with pytest.raises(ValueError, match=r"b.parquet has \(3,\)"):
        open_rows(tmp_path, features="x")
    write_lists(tmp_path / "b.parquet", x, y.astype(str))
    with pytest.raises(
        ValueError, match="label_dtype int64 and .*b.parquet has string"
    ):
        open_rows(tmp_path, features="x", labels="y")


def test_empty_sources(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 3)))
    with pytest.raises(ValueError, match="x.npy must not be empty"):
        open_rows(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.zeros((3, 0)))
    with pytest.raises(
        ValueError, match=r"must not be empty, got rows of shape \(0,\)"
    ):
        open_rows(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.float32(3))
    with pytest.raises(ValueError, match="must hold rows, got a single number"):
        open_rows(tmp_path / "x.npy")
    write_lists(tmp_path / "t.parquet", np.zeros((0, 3), np.float32), np.zeros(0))
    with pytest.raises(ValueError, match="t.parquet must not be empty"):
        open_rows(tmp_path / "t.parquet", features="x")
    write_zarr(tmp_path / "z", np.zeros((0, 3)), np.zeros(0), 3)
    with pytest.raises(ValueError, match="z/x must not be empty"):
        open_rows(tmp_path / "z", features="x")
    for nothing in ([], {}.values(), np.zeros((0, 2))):
        with pytest.raises((ValueError, TypeError), match="empty|used up"):
            open_rows(nothing)


def test_one_row(tmp_path):
    for kind in ("npy", "columns", "zarr 3", "array_record", "grain batches"):
        folder = tmp_path / kind
        folder.mkdir()
        x, y = arrays(1)
        (chunk,) = make(kind, folder, x, y).chunks(10)
        np.testing.assert_array_equal(chunk.features, x)
        np.testing.assert_array_equal(chunk.labels, y)


def test_what_is_no_number(tmp_path):
    np.save(tmp_path / "text.npy", np.array([["a"], ["b"]]))
    with pytest.raises(TypeError, match="features must be numeric, got dtype <U1"):
        open_rows(tmp_path / "text.npy")
    np.save(tmp_path / "z.npy", np.zeros((2, 2), complex))
    with pytest.raises(TypeError, match="features must be real"):
        open_rows(tmp_path / "z.npy")
    np.save(tmp_path / "o.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(ValueError, match="o.npy holds Python objects"):
        open_rows(tmp_path / "o.npy")
    with pytest.raises(TypeError, match="must have elements that are arrays, got None"):
        open_rows([None, None])
    with pytest.raises(TypeError, match="elements of bytes: pass decode="):
        open_rows([b"ab", b"cd"])


# Labels.


def test_labels_that_do_not_fit(tmp_path):
    x, y = arrays()
    with pytest.raises(ValueError, match="same number of rows, got 103 and 102"):
        open_rows(x, labels=y[1:])
    with pytest.raises(ValueError, match=r"one number or text a row, .* \(5,\)"):
        open_rows(x, labels=x)
    with pytest.raises(TypeError, match=r"no labels: .*open_rows\(\.\.\., labels="):
        _ = open_rows(x).labels
    with pytest.raises(ValueError, match="whole rows, got a shard"):
        open_rows(x[:50], labels=open_rows(y).shard(0, 2))
    stream = make("grain iterator", tmp_path, x, y)
    with pytest.raises(
        TypeError, match="labels of an iterator must be in its elements"
    ):
        open_rows(x, labels=stream)


def test_keys_that_elements_lack():
    records = [{"a": np.zeros(2), "b": 1}] * 3
    with pytest.raises(ValueError, match=r"which has \['a', 'b'\]: pass features="):
        open_rows(records)
    with pytest.raises(
        ValueError, match=r"features must be a key .* \['a', 'b'\], got 'x'"
    ):
        open_rows(records, features="x")
    with pytest.raises(ValueError, match="labels must be a key"):
        open_rows(records, features="a", labels="y")
    with pytest.raises(ValueError, match="features must be None for an array, got 'a'"):
        open_rows(np.eye(2), features="a")
    with pytest.raises(TypeError, match="batched must be True or False, got 3"):
        open_rows(records, features="a", batched=3)
    with pytest.raises(ValueError, match="one label a row"):
        open_rows(
            _Again([(np.zeros((4, 2)), np.zeros(3))]),
            features=0,
            labels=1,
            batched=True,
        )


class _Again:
    def __init__(self, elements):
        self.elements = elements

    def __iter__(self):
        return iter(self.elements)


@pytest.mark.parametrize("wrap", [list, _Again], ids=["records", "iterator"])
def test_elements_that_differ(wrap):
    with pytest.raises(ValueError, match=r"\(2,\) as the first, but row 2 has \(3,\)"):
        whole(open_rows(wrap([np.zeros(2), np.zeros(2), np.zeros(3)])))
    with pytest.raises(ValueError, match="one type, float64 as the first, but row 2"):
        whole(open_rows(wrap([np.zeros(2), np.zeros(2), np.zeros(2, int)])))
    with pytest.raises(TypeError, match="ragged"):
        whole(open_rows(wrap([np.zeros(2), [np.zeros(2), np.zeros(3)]])))


# NaN and infinity.


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["npy folder", "lists", "zarr 2", "grain batches"])
def test_rows_that_are_not_finite_are_named(kind, value, tmp_path):
    x, y = arrays()
    x[77, 2] = value
    rows = make(kind, tmp_path, x, y)
    place = r" \(row 36 of .*part-3.npy\)" if kind == "npy folder" else "$"
    with pytest.raises(ValueError, match=f"row 77 has NaN or infinity{place}"):
        whole(rows)
    np.testing.assert_array_equal(whole(rows, check=False), x)
    if rows.n is not None:  # rows of a shard have numbers of their own
        with pytest.raises(ValueError, match="row 26 has NaN"):
            whole(rows.shard(1, 2))


def test_nulls_in_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    values = [float(i) for i in range(100)]
    path = tmp_path / "t.parquet"
    table = {"a": values, "b": [None if i == 61 else i for i in range(100)]}
    table["v"] = [None if i == 70 else [1.0, 2.0] for i in range(100)]
    table["w"] = [[1.0, None if i == 80 else 2.0] for i in range(100)]
    table["u"] = [[1.0] * (2 + (i == 90)) for i in range(100)]
    pq.write_table(pa.table(table), path, row_group_size=13)
    for options, message in (
        ({"features": ["a", "b"]}, "'b' is null in row 61"),
        ({"features": "a", "labels": "b"}, "'b' is null in row 61"),
        ({"features": "v"}, "'v' is null in row 70"),
        ({"features": "w"}, "column 'w' is null in row 80"),
        ({"features": "u"}, "of one length, 2, in column 'u', but row 90 has 3"),
    ):
        with pytest.raises(ValueError, match=rf"t.parquet must have .*{message}"):
            whole(open_rows(path, **options))


# Files that are damaged, or change.


def test_truncated_files(tmp_path):
    x, y = arrays()
    np.save(tmp_path / "x.npy", x)
    write_lists(tmp_path / "x.parquet", x, y)
    write_records(tmp_path / "x.array_record", x)
    for name, cut, message in (
        ("x.npy", 10, r"is cut short: an array of shape \(103, 5\)"),
        ("x.npy", N * D * 4 + 100, "is no .npy file, or is damaged"),
        ("x.parquet", 300, "is no parquet file, or is damaged"),
        ("x.array_record", 70_000, "is no array_record file, or is damaged"),
    ):
        path = tmp_path / name
        data = path.read_bytes()
        path.write_bytes(data[: max(5, len(data) - cut)])
        with pytest.raises(ValueError, match=f"{name} {message}"):
            open_rows(path, decode=None if "rec" not in name else np.frombuffer)
        path.write_bytes(data)


def test_damaged_pages_of_parquet(tmp_path):
    x, y = arrays(5000)
    path = tmp_path / "x.parquet"
    write_lists(path, x, y, row_group_size=1000, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)
    with pytest.raises(ValueError, match="x.parquet is no parquet file, or is damaged"):
        whole(open_rows(path, features="x"))


def test_damaged_chunks_of_zarr(tmp_path):
    write_zarr(tmp_path / "z", *arrays(), 3)
    chunk = tmp_path / "z" / "x" / "c" / "3" / "0"
    chunk.write_bytes(chunk.read_bytes()[:20])
    rows = open_rows(tmp_path / "z", features="x")
    with pytest.raises(ValueError, match="z/x: rows 40 to 59 cannot be read"):
        whole(rows)


KINDS = ("npy", "npy folder", "columns", "parquet folder", "zarr 2", "zarr 3", "memmap")


def file_of(kind, folder):
    """Return a file that is read late in a pass."""
    name = {
        "npy": "x.npy",
        "memmap": "x.npy",
        "npy folder": "x/part-3.npy",
        "columns": "t.parquet",
        "parquet folder": "t/part-3.parquet",
        "zarr 2": "z/x/6.0",
        "zarr 3": "z/x/c/6/0",
    }[kind]
    assert (folder / name).is_file()
    return folder / name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["touch", "remove", "rewrite"])
def test_files_that_change_while_they_are_read(kind, change, tmp_path):
    rows = make(kind, tmp_path, *arrays())
    path = file_of(kind, tmp_path)
    with pytest.raises(ValueError, match=r"changed|vanished|no longer|be read"):  # noqa: PT012
        for chunk in rows.chunks(10, ahead=0):
            if chunk.start == 50:
                if change == "touch":
                    os.utime(path, ns=(1, 1))
                elif change == "remove":
                    path.unlink()
                else:
                    data = path.read_bytes()
                    path.unlink()
                    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_a_file_that_shrinks_during_a_read(tmp_path, monkeypatch):
    rows = make("npy", tmp_path, *arrays())
    path = tmp_path / "x.npy"
    path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr("jaxsel.data._row_files.Stamp.check", lambda stamp: None)
    np.testing.assert_array_equal(rows[: N - 1], arrays()[0][:-1])
    with pytest.raises(ValueError, match="x.npy was cut short while it was read"):
        rows[90:]


def test_a_file_that_changed_is_opened_anew(tmp_path):
    rows = make("npy", tmp_path, *arrays())
    other = arrays(seed=1)[0]
    np.save(tmp_path / "x.npy", other)
    with pytest.raises(ValueError, match="x.npy has changed since it was opened"):
        rows[0]
    np.testing.assert_array_equal(open_rows(tmp_path / "x.npy")[:], other)


def test_descriptions_tell_data_apart(tmp_path):
    x, y = arrays()
    known = []
    for kind in ("npy", "columns", "zarr 3", "grain map", "grain iterator", "memmap"):
        folder = tmp_path / kind
        folder.mkdir()
        first = make(kind, folder, x, y)
        again = make(kind, folder, x, y) if kind.startswith("grain") else first
        assert first.about == again.about
        shutil.rmtree(folder)
        folder.mkdir()
        changed = make(kind, folder, x + 1, y)
        assert first.about != changed.about
        assert first.about not in known
        known.append(first.about)
    rows = open_rows(x)
    assert rows.shard(0, 2).about != rows.shard(1, 2).about
    assert rows.about == open_rows(x.copy()).about


# Arguments.


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda r: next(r.chunks(0)),
            ValueError,
            "chunk_size must be at least 1, got 0",
        ),
        (lambda r: next(r.chunks(2.5)), TypeError, "chunk_size must be a whole number"),
        (lambda r: next(r.chunks(1, ahead=-1)), ValueError, "ahead must be at least 0"),
        (
            lambda r: next(r.chunks(1, start=104)),
            ValueError,
            "at most n = 103, got 104",
        ),
        (lambda r: next(r.chunks(1, start=-1)), ValueError, "start must be at least 0"),
        (
            lambda r: next(r.chunks(1, start={})),
            ValueError,
            r"start must be .* got \{\}",
        ),
        (lambda r: r.read(3, 2), ValueError, "0 to 103, in this order, got 3 and 2"),
        (
            lambda r: r.read(0, 104),
            ValueError,
            "0 to 103, in this order, got 0 and 104",
        ),
        (lambda r: r[103], IndexError, "rows from 0 to 102, got 103"),
        (lambda r: r[[0, -104]], IndexError, "got -104"),
        (lambda r: r["x"], TypeError, "indexed by a slice, a number"),
        (lambda r: r[np.ones(5, bool)], TypeError, r"mask of shape \(103,\)"),
        (lambda r: r[0, 1], TypeError, "indexed by|rows from"),
        (lambda r: r.shard(2, 2), ValueError, "index must be below count = 2, got 2"),
        (lambda r: r.shard(-1, 2), ValueError, "index must be at least 0, got -1"),
        (lambda r: r.shard(0, 0), ValueError, "count must be at least 1, got 0"),
        (lambda r: r.shard(0, 104), ValueError, "count must be at most 103"),
    ],
)
def test_bad_arguments(ask, error, message):
    rows = open_rows(arrays()[0])
    assert isinstance(rows, Rows)
    with pytest.raises(error, match=message):
        ask(rows)


@pytest.mark.parametrize(
    ("package", "name", "says"),
    [
        (
            "pyarrow",
            "x.parquet",
            "x.parquet needs pyarrow: pip install 'jaxsel.stream.'",
        ),
        ("array_record", "x.array_record", "needs array_record: pip install 'jaxsel"),
    ],
)
def test_what_to_install(package, name, says, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(b"something")
    real = builtins.__import__

    def absent(module, *arguments, **options):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return real(module, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=says):
        open_rows(tmp_path / name)


def test_numbers_in_names_of_files_count_as_numbers(tmp_path):
    """A folder without zeros in front: part10 is not the second of twelve."""
    x, y = np.arange(30.0)[:, None], np.arange(30)
    sizes = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
    parts = np.split(np.arange(30), np.cumsum(sizes)[:-1])
    for folder, rows in (("x", x), ("y", y)):
        (tmp_path / folder).mkdir()
        for i, part in enumerate(parts):
            np.save(tmp_path / folder / f"part{i}.npy", rows[part])
    doubted = pytest.warns(
        UserWarning, match=r"part0.npy, part1.npy, part2.npy, \.\.\."
    )
    with doubted:
        one_array = open_rows(tmp_path / "x", labels=y)
    files = open_rows(tmp_path / "x", labels=tmp_path / "y")
    for rows in (one_array, files):
        np.testing.assert_array_equal(rows.source.read(0, 30).features[:, 0], y)
        np.testing.assert_array_equal(rows.source.read_labels(0, 30), y)
    listed = [tmp_path / "x" / f"part{i}.npy" for i in range(12)]
    open_rows(listed, labels=y)  # in the caller's order: no doubt
    np.save(tmp_path / "y" / "part10.npy", y[:4])
    np.save(tmp_path / "y" / "part11.npy", y[:3])
    with pytest.raises(
        ValueError, match=r"got 4 in .*part10.npy for 3 in .*part10.npy"
    ):
        open_rows(tmp_path / "x", labels=tmp_path / "y")
