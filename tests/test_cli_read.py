"""Reading samples: every format, what is mapped, and every refusal."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jaxsel import Values
from jaxsel._cli._read import (
    paired_features,
    read_array,
    read_samples,
    read_table,
    read_values,
)
from jaxsel.data import Dataset, load

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 1, 2, 0, 1, 2])
FRAME = pd.DataFrame({"a": X[:, 0], "class": Y, "b": X[:, 1], "c": X[:, 2]})


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, x=X, y=Y):
    """Write samples in the format of the suffix, and return how to read them."""
    if name.endswith(".npy"):
        np.save(name, x)
        np.save("labels.npy", y)
        return {"labels": "labels.npy"}
    if name.endswith(".npz"):
        np.savez(name, x=x, y=y)
        return {}
    frame = pd.DataFrame({"a": x[:, 0], "class": y, "b": x[:, 1], "c": x[:, 2]})
    if name.endswith(".csv"):
        frame.to_csv(name, index=False)
    else:
        frame.to_parquet(name)
    return {"label_column": "class"}


@pytest.mark.parametrize("name", ["s.npz", "s.npy", "s.csv", "s.parquet"])
@pytest.mark.parametrize("y", [Y, np.array(list("abcabc"))], ids=["int", "text"])
def test_every_format_gives_the_same_samples(name, y):
    data = read_samples(name, **write(name, y=y))
    np.testing.assert_allclose(data.x, X, rtol=1e-15)
    assert data.y.tolist() == y.tolist()
    is_table = name.endswith(("csv", "parquet"))
    assert data.y.dtype == (object if is_table and y is not Y else y.dtype)
    assert data.name == ""


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, "U3", bool])
def test_arrays_are_mapped_where_they_lie(order, dtype):
    array = np.asarray(X * 9 + 50, dtype=np.uint8).astype(dtype, order=order)
    np.savez("many.npz", first=Y, second=array, third=X)
    np.save("one.npy", array)
    for path in ("many.npz", "one.npy"):
        read = read_array(path, "second")
        assert isinstance(read, np.memmap)
        np.testing.assert_array_equal(read, array, strict=True)
        with pytest.raises(ValueError, match="read-only"):
            read[0] = read[1]


@pytest.mark.parametrize(
    "array", [np.array(3.0), np.zeros((0, 3)), np.zeros((2, 0))], ids=str
)
def test_what_cannot_be_mapped_is_read(array):
    np.savez("odd.npz", x=array)
    np.testing.assert_array_equal(read_array("odd.npz", "x"), array, strict=True)
    np.savez_compressed("packed.npz", x=X)
    packed = read_array("packed.npz", "x")
    assert not isinstance(packed, np.memmap)
    np.testing.assert_array_equal(packed, X)


def test_large_arrays_of_a_large_archive_are_mapped():
    # Beyond the sizes at which NumPy and zipfile change the form of their headers.
    names = {f"array_{i}": np.full((300, 200), i, np.float32) for i in range(20)}
    np.savez("large.npz", **names)
    for i, name in enumerate(names):
        read = read_array("large.npz", name)
        assert isinstance(read, np.memmap)
        assert (read == i).all()


def test_labels_in_a_file_of_their_own_come_first():
    np.savez("s.npz", x=X, y=Y)
    np.savez("soft.npz", y=np.full((6, 3), 1 / 3), t=Y)
    assert read_samples("s.npz", labels="soft.npz").y.shape == (6, 3)
    assert read_samples("s.npz", labels="soft.npz", y_key="t").y.tolist() == [*Y]
    FRAME.drop(columns="class").to_csv("x.csv", index=False)
    data = read_samples("x.csv", labels="soft.npz", y_key="t")
    np.testing.assert_allclose(data.x, X, rtol=1e-15)
    assert data.feature_names == ("a", "b", "c")


def test_suffixes_in_capitals():
    np.savez("s.npz", x=X, y=Y)
    FRAME.to_csv("S.CSV", index=False)
    Path("s.npz").rename("S.NPZ")
    np.testing.assert_array_equal(read_samples("S.NPZ").x, X)
    assert len(read_samples("S.CSV", label_column="class")) == 6


def test_names_of_arrays():
    np.savez("split.npz", x_val=X, y_val=Y)
    data = read_samples("split.npz", x_key="x_val", y_key="y_val")
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.y, Y)


def test_columns_of_a_table():
    frame = FRAME.assign(id=np.arange(6), name=list("uvwxyz"))
    frame.to_csv("s.csv", index=False)
    data = read_samples("s.csv", label_column="class", drop=["id", "name"])
    assert data.feature_names == ("a", "b", "c")
    # Chosen by name: order and further columns do not matter.
    data = read_samples("s.csv", label_column="class", columns=["c", "a"])
    np.testing.assert_allclose(data.x, X[:, [2, 0]], rtol=1e-15)
    assert read_samples("s.csv", label_column="name", columns=()).x.shape == (6, 0)


def test_ids_and_labels_with_leading_zeros():
    Path("t.csv").write_text("zip,a,label\n00001,1.5,01\n00020,2,1\n00300,07,1\n")
    table = read_table("t.csv", label_column="label", id_column="zip")
    assert table.ids.tolist() == ["00001", "00020", "00300"]
    assert table.y.tolist() == ["01", "1", "1"]
    np.testing.assert_array_equal(table.x[:, 0], [1.5, 2, 7])


def test_types_of_columns():
    frame = pd.DataFrame(
        {
            "whole": np.arange(4, dtype=np.int8),
            "flag": [True, False, True, False],
            "gap": pd.array([1, 2, None, 4], dtype="Int64"),
            "class": pd.Categorical([3, 1, 3, 1]),
            "target": [0.5, 1.5, 2.5, 3.5],
            "truth": [True, False, True, False],
        }
    )
    frame.to_parquet("s.parquet")
    kept = ["whole", "flag", "gap"]
    data = read_samples("s.parquet", label_column="class", columns=kept)
    expected = [[0, 1, 1], [1, 0, 2], [2, 1, np.nan], [3, 0, 4]]
    np.testing.assert_array_equal(data.x, expected)
    assert data.y.tolist() == [3, 1, 3, 1]
    assert data.y.dtype == np.int64
    for column, dtype in (("target", np.float64), ("truth", np.int64)):
        y = read_samples("s.parquet", label_column=column, columns=kept).y
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, frame[column])


def test_prepared_data_sets():
    data, expected = read_samples("digits:test"), load("digits", split="test")
    np.testing.assert_array_equal(data.x, expected.x)
    assert (data.name, data.split) == ("digits", "test")


@pytest.mark.parametrize(
    ("source", "name", "split"),
    [
        ("mnist:train[:1000]", "mnist", "train[:1000]"),
        ("some/config:1.0.0:train+test", "some/config:1.0.0", "train+test"),
    ],
)
def test_names_and_splits(source, name, split, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "jaxsel._cli._read.load",
        lambda name, *, split, **_: asked.append((name, split)),
    )
    read_samples(source)
    assert asked == [(name, split)]


def write_broken():
    """Files with one thing wrong in each."""
    np.savez("s.npz", x=X, y=Y)
    np.savez("short.npz", x=X, y=Y[:-1])
    np.savez("flat.npz", x=X[:, 0], y=Y)
    np.savez("objects.npz", x=X, y=np.array([1, "a"] * 3, dtype=object))
    np.save("s.npy", X)
    with open("s.npz", "rb") as file:
        half = file.read()[:400]
    for name, content in {
        "half.npz": half,
        "empty.npz": b"",
        "text.npy": b"no array",
        "empty.csv": b"",
        "bytes.csv": b"a,class\n\xff\xfe,1\n",
        "text.parquet": b"no table",
    }.items():
        with open(name, "wb") as file:
            file.write(content)
    FRAME.to_csv("s.csv", index=False)
    FRAME.assign(city="X", day="Y").to_csv("city.csv", index=False)
    FRAME.assign(**{"class": [0, 1, None, 1, None, 1]}).to_csv("gaps.csv", index=False)


LABELS = {"label_column": "class"}


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("gone.npz", {}, FileNotFoundError, "gone.npz is not there"),
        ("gone.csv", LABELS, FileNotFoundError, "gone.csv is not there"),
        ("s.txt", {}, ValueError, r"'s.txt' is neither a file ending in \.npz, \.npy"),
        ("digits", {}, ValueError, "'digits' is neither .* nor NAME:SPLIT"),
        ("digits:train", {"labels": "s.npz"}, ValueError, "digits:train has labels"),
        ("digits:rest", {}, ValueError, "split must be one of"),
        ("no_such_set:train", {}, FileNotFoundError, "'no_such_set' is not prepared"),
        ("s.npz", {"x_key": "z"}, ValueError, "s.npz has no array 'z', but x, y: see"),
        ("s.npz", {"y_key": "z"}, ValueError, "s.npz has no array 'z', but x, y: see"),
        ("s.npz", {"labels": "s.csv"}, ValueError, r"s\.csv must be a file ending in"),
        ("short.npz", {}, ValueError, "short.npz: y must have one entry for each of"),
        ("flat.npz", {}, ValueError, r"flat.npz must have features of shape .* \(6,\)"),
        ("objects.npz", {}, ValueError, "objects.npz .* texts with x.astype"),
        ("half.npz", {}, ValueError, "half.npz .* cut short or damaged"),
        ("empty.npz", {}, ValueError, "empty.npz .* it is empty"),
        (
            "text.npy",
            {"labels": "s.npz"},
            ValueError,
            "text.npy .* text, perhaps a table",
        ),
        ("s.npy", {}, ValueError, "s.npy holds features only"),
        ("s.csv", {}, ValueError, "s.csv needs --label-column, .*: a, class, b"),
        (
            "s.csv",
            {**LABELS, "labels": "s.npz"},
            ValueError,
            "class or from s.npz, not from both",
        ),
        (
            "s.csv",
            {"label_column": "klass"},
            ValueError,
            "s.csv has no column 'klass'; it has 'a', 'class', 'b', 'c'",
        ),
        ("s.csv", {**LABELS, "drop": ["id"]}, ValueError, "has no column 'id'; it has"),
        ("s.csv", {**LABELS, "columns": ["a", "z"]}, ValueError, "has no column 'z'"),
        (
            "city.csv",
            LABELS,
            TypeError,
            "numeric features, but 'city', 'day' hold others",
        ),
        ("gaps.csv", LABELS, ValueError, r"'class' is empty in row 2 \(2 of 6 rows\)"),
        ("empty.csv", LABELS, ValueError, "empty.csv cannot be read"),
        ("bytes.csv", LABELS, ValueError, "bytes.csv is not in UTF-8"),
        ("text.parquet", LABELS, ValueError, "text.parquet cannot be read"),
    ],
)
def test_refuses(source, options, error, message, monkeypatch, tmp_path):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    write_broken()
    with pytest.raises(error, match=message):
        read_samples(source, **options)


def test_refuses_values_that_are_damaged():
    write_broken()
    values = Values(values=jnp.arange(5.0), count=jnp.int32(1), method="none")
    values.save("v.npz")
    assert read_values("v.npz").method == "none"
    content = Path("v.npz").read_bytes()
    place = content.index(np.arange(5, dtype=np.float32).tobytes())
    Path("flip.npz").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    for name, what in ("half.npz", "cut short"), ("empty.npz", "empty"):
        with pytest.raises(ValueError, match=f"{name} must be an .npz file .*{what}"):
            read_values(name)
    for name in ("s.npz", "flip.npz"):
        with pytest.raises(ValueError, match=f"{name}' was not written by jaxsel"):
            read_values(name)
    with pytest.raises(FileNotFoundError, match="gone.npz is not there"):
        read_values("gone.npz")


def samples(x, **more):
    return Dataset(x=x, y=np.arange(len(x)), **more)


def test_features_of_files_are_taken_as_they_are():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 4, 1), dtype=np.uint8)
    x, x_val = paired_features(samples(images), samples(images[:2]))
    np.testing.assert_array_equal(x, images.reshape(5, 16), strict=True)
    np.testing.assert_array_equal(x_val, images[:2].reshape(2, 16), strict=True)


def test_features_standardized_by_train():
    x_val = 3 * X[:4] + 1
    x, x_val = paired_features(samples(X * 1000), samples(x_val), standardize=True)
    scale = 1000 * X.std(axis=0)
    np.testing.assert_allclose(x, (1000 * X - 1000 * X.mean(0)) / scale, rtol=1e-5)
    expected = (3 * X[:4] + 1 - 1000 * X.mean(0)) / scale
    np.testing.assert_allclose(x_val, expected, rtol=1e-5)


def test_features_of_data_sets_come_from_the_data_set():
    table, other = samples(X * 7, name="a"), samples(X[:2], name="a")
    x, x_val = paired_features(table, other)
    np.testing.assert_array_equal(x, table.as_features())
    np.testing.assert_array_equal(x_val, other.as_features(fit_on=table))


@pytest.mark.parametrize(
    ("train", "val", "options", "message"),
    [
        (samples(X), samples(X, name="b"), {}, "both be files, or both prepared"),
        (samples(X), samples(X[:, :2]), {}, "number of features, got 3 and 2"),
        (*[samples(X, name="a")] * 2, {"standardize": True}, "--standardize is for"),
    ],
)
def test_refuses_features_that_do_not_pair(train, val, options, message):
    with pytest.raises(ValueError, match=message):
        paired_features(train, val, **options)
