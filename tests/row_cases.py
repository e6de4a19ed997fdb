"""One small data set as every kind of source."""

import numpy as np
import pytest

from jaxsel.data import open_rows

N, D = 103, 5
KINDS = (
    "npy",
    "fortran",
    "npy folder",
    "npy list",
    "columns",
    "lists",
    "parquet folder",
    "zarr 2",
    "zarr 3",
    "zarr.Array",
    "array_record",
    "grain map",
    "grain iterator",
    "grain batches",
    "grain loader",
    "records",
    "index arrays",
    "memmap",
)
ITERATORS = ("grain iterator", "grain batches", "grain loader")
CUTS = (0, 40, 40, 41, N)  # one file is empty, and one has a single row


def arrays(n=N, d=D, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.integers(0, 4, n)


class Table:
    """Reads rows by an array of their numbers, and nothing else."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, rows):
        assert isinstance(rows, np.ndarray)
        return {"x": self.x[rows], "y": self.y[rows]}


def write_folder(folder, x, suffix, write):
    folder.mkdir()
    for i, (start, stop) in enumerate(zip(CUTS, CUTS[1:], strict=False)):
        write(folder / f"part-{i}{suffix}", x[start:stop])


def write_lists(path, x, y, **options):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    flat = pa.array(x.reshape(-1))
    columns = {"x": pa.FixedSizeListArray.from_arrays(flat, x.shape[1]), "y": y}
    pq.write_table(pa.table(columns), path, **options)


def write_columns(path, x, y, **options):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {f"c{j}": x[:, j] for j in range(x.shape[1])}
    pq.write_table(pa.table({**columns, "y": y}), path, **options)


def write_zarr(path, x, y, version):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    for name, array in (("x", x), ("y", y)):
        chunks = (16, *array.shape[1:])
        made = group.create_array(
            name, shape=array.shape, dtype=array.dtype, chunks=chunks
        )
        made[:] = array
    return group


def write_records(path, x):
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for row in x:
        writer.write(row.tobytes())
    writer.close()


def make(kind, folder, x, y):
    """Return rows of a kind, with labels."""
    keys = {"features": "x", "labels": "y"}
    if kind == "npy":
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", y)
        return open_rows(folder / "x.npy", labels=folder / "y.npy")
    if kind == "fortran":
        np.save(folder / "x.npy", np.asfortranarray(x))
        return open_rows(str(folder / "x.npy"), labels=y)
    if kind in ("npy folder", "npy list"):
        write_folder(folder / "x", x, ".npy", np.save)
        write_folder(folder / "y", y, ".npy", np.save)
        if kind == "npy folder":
            return open_rows(folder / "x", labels=folder / "y")
        return open_rows(sorted((folder / "x").iterdir()), labels=y)
    if kind == "columns":
        write_columns(folder / "t.parquet", x, y, row_group_size=17)
        return open_rows(folder / "t.parquet", labels="y")
    if kind == "lists":
        write_lists(folder / "t.parquet", x, y, row_group_size=30)
        return open_rows(folder / "t.parquet", **keys)
    if kind == "parquet folder":
        both = np.arange(len(x))
        write_folder(
            folder / "t", both, ".parquet", lambda p, i: write_columns(p, x[i], y[i])
        )
        return open_rows(folder / "t", labels="y")
    if kind.startswith("zarr"):
        version = 2 if kind.endswith("2") else 3
        group = write_zarr(folder / "z", x, y, version)
        if kind == "zarr.Array":
            return open_rows(group["x"], labels=y)
        return open_rows(folder / "z", **keys)
    if kind == "array_record":
        both = np.concatenate([x.view(np.int32), y.astype(np.int32)[:, None]], axis=1)
        write_records(folder / "r.array_record", both)
        decode = lambda text: (
            np.frombuffer(text[:-4], np.float32),
            np.frombuffer(text[-4:], np.int32)[0],
        )
        path = folder / "r.array_record"
        return open_rows(path, features=0, labels=1, decode=decode)
    records = [{"x": row, "y": label} for row, label in zip(x, y, strict=True)]
    if kind == "records":
        return open_rows(records, **keys)
    if kind == "index arrays":
        return open_rows(Table(x, y), **keys, batched=True)
    if kind == "memmap":
        np.save(folder / "x.npy", x)
        return open_rows(np.load(folder / "x.npy", mmap_mode="r"), labels=y)
    grain = pytest.importorskip("grain")
    if kind == "grain map":
        return open_rows(grain.MapDataset.source(records), **keys)
    if kind == "grain loader":
        sampler = grain.samplers.IndexSampler(len(x), shuffle=False, num_epochs=1)
        loader = grain.DataLoader(data_source=records, sampler=sampler, worker_count=0)
        return open_rows(loader, **keys)
    stream = grain.MapDataset.source(records).to_iter_dataset()
    if kind == "grain batches":
        return open_rows(stream.batch(7), **keys, batched=True)
    return open_rows(stream, **keys)
