"""`jaxsel value` with a VAL that is read a chunk at a time."""

import hashlib
import inspect
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import OUT, X_VAL, Y_VAL, X, Y, refuse, run, write_samples
from row_cases import write_records, write_zarr

import jaxsel
from jaxsel import Values
from jaxsel.value._registry import KnnValue

NAMES = list("abcd")
DECODE = """
import numpy as np

def record(text):
    row = np.frombuffer(text, np.float64)
    return row[:-1], np.int64(row[-1])

number = 7
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("/nowhere")  # what is put in front of it goes again
    write_samples()


def write_parts(folder, array):
    Path(folder).mkdir()
    for i, part in enumerate(np.array_split(array, 3)):
        np.save(Path(folder, f"{i}.npy"), part)


def write_frames():
    frame = pd.DataFrame(X, columns=NAMES).assign(kind=Y, id=range(len(Y)))
    frame.to_csv("train.csv", index=False)
    Path("frames").mkdir()
    order = ["kind", *"dbca", "id"]  # by name, whatever their order
    frame = pd.DataFrame(X_VAL, columns=NAMES).assign(kind=Y_VAL, id=range(len(Y_VAL)))
    frame[order].iloc[:6].to_parquet("frames/0.parquet", index=False)
    frame[order].iloc[6:].to_parquet("frames/1.parquet", index=False)


def make(kind):
    """Write VAL of a kind, and return what follows `jaxsel value`."""
    np.save("labels.npy", Y_VAL)
    if kind == "npy folder":
        write_parts("val", X_VAL)
        write_parts("val_y", Y_VAL)
        return ["train.npz", "val", "--val-labels", "val_y"]
    if kind == "npy":
        np.save("val.npy", X_VAL)
        labels = ["--val-labels", "val.npz"]  # array y of it
        return ["train.npz", "val.npy", *labels, "--checkpoint", "kept"]
    if kind.startswith("parquet"):
        pytest.importorskip("pyarrow")
        write_frames()
        more = ["--drop", "id", "--label-column", "kind"]
        if kind == "parquet, train arrays":  # the columns have no names to go by
            frame = pd.read_parquet("frames")[[*NAMES, "kind", "id"]]
            for file in Path("frames").iterdir():
                file.unlink()
            frame.to_parquet("frames/0.parquet", index=False)
            return ["train.npz", "frames", *more]
        return ["train.csv", "frames", *more]
    if kind.startswith("zarr"):
        write_zarr("val.zarr", X_VAL, Y_VAL, 3)
        if kind == "zarr array":
            return ["train.npz", "val.zarr/x", "--val-labels", "labels.npy"]
        return ["train.npz", "val.zarr"]
    both = np.concatenate([X_VAL, Y_VAL[:, None]], axis=1)
    Path("decoding.py").write_text(DECODE)
    write_records("val.array_record", both)
    return ["train.npz", "val.array_record", "--decode", "decoding:record"]


KINDS = (
    "npy folder",
    "npy",
    "parquet",
    "parquet, train arrays",
    "zarr",
    "zarr array",
    "array_record",
)


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_one_file(kind):
    expected = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL)
    run("value", *make(kind), "--out", "o.npz", "--chunk-size", 4, "--devices", 1)
    found = Values.load("o.npz")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.m2, expected.m2, rtol=1e-4, atol=1e-6)
    assert (int(found.count), found.method) == (len(X_VAL), expected.method)
    facts = json.loads(Path("o.json").read_text())
    val = next(entry for entry in facts["inputs"] if entry["role"] == "val")
    assert val["x_shape"] == [*X_VAL.shape]
    assert val["y_shape"] == [*Y_VAL.shape]
    assert len(val["sha256"]) == 64
    assert val["array"] == ("x" if kind == "zarr" else None)


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "knn_banzhaf", "--k", 2],
        ["--reduce", "max"],
        ["--hybrid"],
        ["--method", "threshold_knn_shapley", "--radius", 1.5],
        ["--standardize"],
        [],
    ],
    ids=str,
)
def test_options(options):
    """As one file gives, on all devices."""
    np.savez("train.npz", x=X * [1, 10, 1, 0] + 3, y=Y)
    val = X_VAL * [1, 10, 1, 0] + 3
    np.savez("val.npz", x=val, y=Y_VAL)
    run("value", "train.npz", "val.npz", *options, "--out", "whole.npz")
    write_parts("val", val)
    arguments = ["train.npz", "val", "--val-labels", "val.npz", *options]
    run("value", *arguments, *OUT)
    found, expected = Values.load("o.npz"), Values.load("whole.npz")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-6)
    assert found.method == expected.method
    assert found.reduce == expected.reduce


def test_columns_are_encoded_chunk_by_chunk(capsys):
    """As if VAL were read whole: categories, dates and gaps."""
    pytest.importorskip("pyarrow")

    def people(n, seed):
        rng = np.random.default_rng(seed)
        return pd.DataFrame(
            {
                "work": rng.choice(["private", "state", "self"], n),
                "joined": pd.Timestamp("2020-01-01")
                + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
                "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 9, n)),
                "rich": rng.choice(["yes", "no"], n),
            }
        )

    people(60, 0).to_csv("train.csv", index=False)
    val = people(31, 1)
    val.loc[20, "work"] = "new"
    val.to_csv("val.csv", index=False)
    Path("parts").mkdir()
    order = ["age", "rich", "joined", "work"]
    first = val.iloc[:12].assign(work=val.work.iloc[:12].astype("category"))
    first[order].to_parquet("parts/0.parquet")
    val[order].iloc[12:].to_parquet("parts/1.parquet", row_group_size=7)
    rich = ["--label-column", "rich", "--k", 3]
    run("value", "train.csv", "val.csv", *rich, "--out", "whole.npz")
    streamed = ["value", "train.csv", "parts", *rich, "--chunk-size", 5]
    run(*streamed, "--out", "o.npz")
    expected, found = Values.load("whole.npz"), Values.load("o.npz")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-7)
    facts = json.loads(Path("o.json").read_text())
    assert facts["config"]["encoded"] == {
        "work": "3 categories",
        "joined": "date",
        "age": f"number, {int(people(60, 0).age.isna().sum())} gaps",
    }
    val.assign(age="old").to_parquet("parts/1.parquet")
    error = refuse(capsys, *streamed, "--out", "p.npz")
    assert "1.parquet" in error
    assert "column 'age' must hold numbers" in error
    write_parts("arrays", X_VAL)
    error = refuse(capsys, "value", "train.csv", "arrays", *rich[:2], "--out", "q.npz")
    assert "arrays is npy, but TRAIN has columns that must be encoded" in error


def test_hashes_of_all_files():
    run("value", *make("npy folder"), *OUT)
    val, labels = json.loads(Path("o.json").read_text())["inputs"][1:]
    for entry, folder in ((val, "val"), (labels, "val_y")):
        sums = []
        for i, shard in enumerate(entry["shards"]):
            text = Path(folder, f"{i}.npy").read_bytes()
            sums.append(hashlib.sha256(text).hexdigest())
            wanted = {"file": f"{i}.npy", "bytes": len(text), "sha256": sums[-1]}
            assert shard == wanted
        assert entry["bytes"] == sum(shard["bytes"] for shard in entry["shards"])
        joined = hashlib.sha256("\n".join(sums).encode()).hexdigest()
        assert entry["sha256"] == joined
    assert [entry["role"] for entry in (val, labels)] == ["val", "val_labels"]


def test_files_too_large_to_hash(monkeypatch):
    monkeypatch.setattr("jaxsel._cli._output.HASH_LIMIT", 250)
    run("value", *make("npy folder"), *OUT)
    _, val, labels = json.loads(Path("o.json").read_text())["inputs"]
    assert val["sha256"] is None
    assert "not hashed" in val["note"]
    assert val["shards"][0]["sha256"] is None
    assert labels["sha256"] is not None


def test_merge():
    """Values of other files merge, and those of the same files are refused."""
    run("value", "train.npz", *make("npy folder")[1:], "--out", "first.npz")
    np.savez("more.npz", x=X_VAL[::-1] + 1, y=Y_VAL)
    run("value", "train.npz", "more.npz", "--merge", "first.npz", "--out", "both.npz")
    both = np.concatenate([X_VAL, X_VAL[::-1] + 1]), np.concatenate([Y_VAL, Y_VAL])
    expected = jaxsel.knn_shapley(X, Y, *both)
    found = Values.load("both.npz")
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-4, atol=1e-6)


def test_the_same_files_are_not_merged(capsys):
    arguments = make("npy folder")
    run("value", *arguments, "--out", "first.npz")
    capsys.readouterr()
    message = refuse(capsys, "value", *arguments, "--merge", "first.npz", *OUT)
    assert "first.npz has counted VAL already" in message


def test_a_run_that_was_cut_off_goes_on(monkeypatch):
    arguments = make("npy folder")
    options = ["--chunk-size", 2, "--checkpoint", "kept", "--checkpoint-every", 1]
    calls, real = [], jaxsel.knn_shapley

    def dies(*given, **more):
        calls.append(len(given[2]))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*given, **more)

    dies.__signature__ = inspect.signature(real)
    monkeypatch.setitem(jaxsel.value.VALUES, "knn_shapley", KnnValue(dies))
    from jaxsel.cli import main

    assert main(["value", *map(str, [*arguments, *options, *OUT])]) == 130
    assert Path("kept").is_dir()
    assert not Path("o.npz").exists()
    run("value", *arguments, *options, *OUT)
    assert calls == [2, 2, 2, 2, 2, 2, 1]  # the last three after three were kept
    monkeypatch.undo()


def test_progress(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    arguments = make("npy folder")
    run("value", *arguments, *OUT)
    assert "streamed_values" in capsys.readouterr().err
    run("value", *arguments, *OUT, "--force", "--no-progress")
    assert not capsys.readouterr().err


def test_repeated_warnings_are_said_once(capsys):
    names = np.array(["up", "down", "Up", "up"] * 3)[: len(Y_VAL)]
    np.savez("train.npz", x=X, y=np.array(["up", "down"])[Y % 2])
    write_parts("val", X_VAL)
    write_parts("val_y", names)
    arguments = ["train.npz", "val", "--val-labels", "val_y", "--chunk-size", 4]
    run("value", *arguments, *OUT)
    assert capsys.readouterr().err.count("Check:") <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--reduce", "none"], "VAL must fit in memory"),
        (["--checkpoint-every", 3], "--checkpoint-every needs --checkpoint"),
        (["--checkpoint", "train.npz"], "--checkpoint must be a folder"),
        (["--checkpoint", "k", "--checkpoint-every", 0], "--checkpoint-every must be"),
        (["--decode", "a:b"], "--decode is for array_record, but val is npy"),
        (["--chunk-size", 0], "--chunk-size must be at least 1, got 0"),
    ],
    ids=str,
)
def test_options_that_are_refused(change, message, capsys):
    arguments = make("npy folder")
    assert message in refuse(capsys, "value", *arguments, *change, *OUT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.npz", "val"], "val holds features only: give --val-labels"),
        (["val", "val.npz"], "val must be one file that fits in memory"),
        (["digits:train", "val", "--val-labels", "val_y"], "must both be files, or"),
        (["train.npz", "val.npz", "--checkpoint", "k"], "got 'val.npz', which is read"),
        (["train.npz", "val.npz", "--checkpoint-every", 2], "needs --checkpoint"),
        (["train.npz", "val.npz", "--decode", "a:b"], "--decode needs array_record"),
        (["train.npz", "empty"], "empty has no file to read"),
        (["train.npz", "mixed"], "files of one kind, got npy, parquet"),
        (["train.npz", "wide", "--val-labels", "val_y"], "features, got 4 and 5"),
        (["train.npz", "cube", "--val-labels", "val_y"], "shape [n, d] to be read a"),
        (["train.npz", "nan", "--val-labels", "val_y"], "row 5 has NaN or infinity"),
        (["train.npz", "val", "--val-labels", "few"], "number of rows, got 11 and 4"),
        (["train.npz", "no.array_record"], "no.array_record is not there"),
        (["train.npz", "no.zarr"], "no.zarr is not there"),
    ],
    ids=str,
)
def test_sources_that_are_refused(arguments, message, capsys):
    make("npy folder")
    Path("empty").mkdir()
    write_parts("mixed", X_VAL)
    Path("mixed/x.parquet").write_bytes(b"")
    write_parts("wide", np.ones((11, 5)))
    write_parts("cube", np.ones((11, 2, 2)))
    write_parts("nan", np.where(np.arange(44).reshape(11, 4) == 20, np.nan, X_VAL))
    write_parts("few", Y_VAL[:4])
    assert message in refuse(capsys, "value", *arguments, *OUT)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ("record", "--decode must be MODULE:FUNCTION, got 'record'"),
        ("nowhere:record", "--decode nowhere:record cannot be imported"),
        ("decoding:other", "--decode decoding:other cannot be imported"),
        ("decoding:number", "--decode decoding:number must be a function, got 7"),
        (None, "val.array_record needs --decode"),
    ],
    ids=str,
)
def test_decoders_that_are_refused(decode, message, capsys, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    *arguments, option, _ = make("array_record")
    given = [] if decode is None else [option, decode]
    assert message in refuse(capsys, "value", *arguments, *given, *OUT)


def test_zarr_and_parquet_that_are_refused(capsys):
    make("zarr")
    options = ["train.npz", "val.zarr", "--y-key", "z"]
    assert "has no array 'z', but x, y" in refuse(capsys, "value", *options, *OUT)
    arguments = make("parquet")
    message = refuse(capsys, "value", *arguments, "--val-labels", "labels.npy", *OUT)
    assert "and not from both" in message
    options = ["train.npz", "frames", "--label-column", "kind", "--drop", "no"]
    message = refuse(capsys, "value", *options, *OUT)
    assert "no column 'no'" in message


def test_other_commands_refuse_folders(capsys):
    write_parts("val", X_VAL)
    for arguments in (
        ["market", "request", "val", "--budget", 3, *OUT],
        ["select", "values.npz", "--budget", 2, "--per-class", "--from", "val", *OUT],
    ):
        if arguments[0] == "select":
            run("value", "train.npz", "val.npz", "--out", "values.npz")
            capsys.readouterr()
        message = refuse(capsys, *arguments)
        assert "val must be one file that fits in memory" in message


def test_lists_of_numbers_in_parquet_files():
    for name, x, y in (("train", X, Y), ("val", X_VAL, Y_VAL)):
        Path(name).mkdir()
        frame = pd.DataFrame({"kind": y, "emb": [*x], "a": x[:, 0]})
        frame.to_parquet(f"{name}/0.parquet", index=False)
    run("value", "train/0.parquet", "val", "--label-column", "kind", *OUT)
    wide, wide_val = (np.column_stack([x, x[:, 0]]) for x in (X, X_VAL))
    expected = jaxsel.knn_shapley(wide, Y, wide_val, Y_VAL)
    found = Values.load("o.npz").values
    np.testing.assert_allclose(found, expected.values, rtol=1e-5, atol=1e-7)
