"""`jaxsel value`: what it computes, reads, writes, merges and refuses."""

import hashlib
import inspect
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from commands import OUT, X_VAL, Y_VAL, X, Y, refuse, run, write_samples

import jaxsel
from jaxsel import Values
from jaxsel._cli import _output
from jaxsel._cli._value_options import METHODS
from jaxsel.data import load
from jaxsel.value import VALUES
from jaxsel.value._registry import KnnValue


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    write_samples()


def value(*arguments):
    run("value", "train.npz", "val.npz", "--out", "values.npz", *arguments)
    return Values.load("values.npz")


def assert_same(a, b, rtol=0.0, atol=0.0):
    np.testing.assert_allclose(a.values, b.values, rtol, atol)
    assert (a.method, a.reduce, int(a.count)) == (b.method, b.reduce, int(b.count))
    for one, other in ((a.m2, b.m2), (a.error_bound, b.error_bound)):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol, atol)


def flags(options):
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]


@pytest.mark.every(12)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--k", 3, "--metric", "cosine", "--ties", "average"], {"k": 3}),
        (["--reduce", "max"], {"reduce": "max"}),
        (["--reduce", "none", "--chunk-size", 2], {"reduce": None}),
        (["--hybrid"], {"method": "hybrid"}),
        (["--method", "knn_banzhaf", "--k", 2], {"k": 2}),
        (
            ["--method", "knn_beta_shapley", "--alpha", 4, "--beta", 2],
            {"alpha": 4.0, "beta": 2.0},
        ),
        (["--method", "soft_knn_shapley", "--n-classes", 5], {"n_classes": 5}),
        *(
            (["--method", name, *flags(registered.needs)], registered.needs)
            for name, registered in VALUES.items()
            if registered.command
        ),
    ],
    ids=str,
)
def test_values_equal_those_of_the_function(options, expected):
    if "cosine" in options:
        expected = {**expected, "metric": "cosine", "ties": "average"}
    name = options[1] if "--method" in options else "knn_shapley"
    assert name in METHODS
    values = VALUES[name].function(X, Y, X_VAL, Y_VAL, **expected)
    assert_same(value(*options, "--devices", 1), values, rtol=1e-5, atol=1e-7)
    assert_same(value(*options, "--force"), values, rtol=1e-4, atol=1e-6)  # 8 devices
    assert json.loads(Path("values.json").read_text())["device"]["used"] == 8


@pytest.mark.left_out
def test_every_format_gives_the_same_values():
    for name, x, y in (("train", X, Y), ("val", X_VAL, Y_VAL)):
        np.save(f"{name}.npy", x)
        np.save(f"{name}_y.npy", y)
        frame = pd.DataFrame(x, columns=list("abcd")).assign(kind=y, id=range(len(y)))
        order = list("abcd") if name == "train" else list("dbca")
        frame[[*order, "kind", "id"]].to_csv(f"{name}.csv", index=False)
        frame[["id", "kind", *order]].to_parquet(f"{name}.parquet")
    np.savez("all.npz", x=X, y=Y, x_val=X_VAL, y_val=Y_VAL)
    labels = ["--train-labels", "train_y.npy", "--val-labels", "val_y.npy"]
    column = ["--label-column", "kind", "--drop", "id"]
    expected = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL)
    for arguments in (
        ["train.npy", "val.npy", *labels],
        ["train.csv", "val.parquet", *column],
        ["train.parquet", "val.csv", *column],
        ["train.npy", "val.csv", *labels[:2], *column],
        ["all.npz", "all.npz", "--val-x-key", "x_val", "--val-y-key", "y_val"],
    ):
        if arguments[:2] == ["train.npy", "val.csv"]:
            frame = pd.read_csv("val.csv")[["a", "b", "c", "d", "kind", "id"]]
            frame.to_csv("val.csv", index=False)  # nothing tells the order but itself
        run("value", *arguments, "--out", "v.npz", "--devices", 1, "--force")
        assert_same(Values.load("v.npz"), expected, rtol=1e-5, atol=1e-7)


def test_texts_and_probabilities_as_labels():
    names = np.array(["ant", "bee", "cow"])
    np.savez("train.npz", x=X, y=names[Y])
    np.savez("val.npz", x=X_VAL, y=names[Y_VAL])
    expected = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL)
    assert_same(value("--devices", 1), expected, rtol=1e-5, atol=1e-7)
    np.save("soft.npy", np.eye(3)[Y])
    np.save("hard.npy", Y_VAL)
    options = ["--train-labels", "soft.npy", "--val-labels", "hard.npy"]
    values = value(*options, "--devices", 1, "--csv", "t.csv", "--force")
    np.testing.assert_allclose(values.values, expected.values, rtol=1e-5, atol=1e-7)
    assert "label" not in pd.read_csv("t.csv")


def test_standardize():
    scale = np.array([1, 10, 100, 1000])
    np.savez("train.npz", x=X * scale, y=Y)
    np.savez("val.npz", x=X_VAL * scale, y=Y_VAL)
    mean, deviation = X.mean(0), X.std(0)
    x, x_val = (X - mean) / deviation, (X_VAL - mean) / deviation
    expected = jaxsel.knn_shapley(x, Y, x_val, Y_VAL)
    assert_same(value("--standardize", "--devices", 1), expected, 1e-4, 1e-6)


def test_data_sets():
    run("value", "digits:train", "digits:test", "--out", "v.npz", "--devices", 1)
    train, val = load("digits"), load("digits", split="test")
    arrays = (train.as_features(), train.y, val.as_features(), val.y)
    assert_same(Values.load("v.npz"), jaxsel.knn_shapley(*arrays), 1e-5, 1e-7)
    entry = json.loads(Path("v.json").read_text())["inputs"][0]
    digest = hashlib.sha256(train.x.tobytes() + train.y.tobytes()).hexdigest()
    assert entry["sha256"] == digest
    assert entry["x_shape"] == [1442, 8, 8, 1]


@pytest.mark.left_out
def test_table_and_picture():
    values = value("--csv", "values.csv", "--plot", "values.svg")
    table = pd.read_csv("values.csv", index_col="index")
    pd.testing.assert_frame_equal(
        table, values.to_pandas(labels=Y), rtol=1e-5, check_dtype=False
    )
    picture = Path("values.svg").read_text()
    assert "standard error" in picture
    assert "Class" in picture
    regression = ["--method", "knn_regression_shapley", "--plot", "r.svg", "--force"]
    value(*regression)
    assert "Class" not in Path("r.svg").read_text()


def test_manifest():
    value("--k", 3, "--csv", "values.csv")
    facts = json.loads(Path("values.json").read_text())
    assert facts["command"] == (
        "jaxsel value train.npz val.npz --out values.npz --k 3 --csv values.csv"
    )
    config = facts["config"]
    assert (
        config.items()
        >= {
            "function": "knn_shapley",
            "k": 3,
            "metric": "l2",
            "ties": "stable",
            "reduce": "mean",
            "method": "exact",
            "chunk_size": None,
            "standardize": False,
        }.items()
    )
    canonical = json.dumps(config, sort_keys=True).encode()
    assert facts["config_sha256"] == hashlib.sha256(canonical).hexdigest()
    train, val = facts["inputs"]
    assert (train["role"], train["source"]) == ("train", "train.npz")
    assert (train["x_shape"], train["y_shape"]) == ([40, 4], [40])
    assert (val["role"], val["source"]) == ("val", "val.npz")
    assert [entry["file"] for entry in facts["outputs"]] == ["values.csv", "values.npz"]
    for entry in facts["inputs"] + facts["outputs"]:
        content = Path(entry.get("source") or entry["file"]).read_bytes()
        assert entry["bytes"] == len(content)
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
    assert facts["seeds"] is None
    assert facts["versions"]["jaxsel"] == jaxsel.__version__
    assert facts["versions"]["jax"] == jax.__version__
    assert facts["versions"]["numpy"] == np.__version__
    assert facts["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["device"] == {"platform": "cpu", "kind": "cpu", "used": 8}
    assert 0 < facts["seconds"] < 600
    # The hash tells configurations apart, and nothing else.
    value("--k", 3, "--out", "again.npz")
    again = json.loads(Path("again.json").read_text())
    assert again["config_sha256"] == facts["config_sha256"]
    value("--k", 4, "--out", "other.npz")
    other = json.loads(Path("other.json").read_text())
    assert other["config_sha256"] != facts["config_sha256"]


def test_labels_in_files_are_in_the_manifest():
    np.save("labels.npy", Y)
    value("--train-labels", "labels.npy")
    inputs = json.loads(Path("values.json").read_text())["inputs"]
    assert [entry["role"] for entry in inputs] == ["train", "train_labels", "val"]
    content = Path("labels.npy").read_bytes()
    assert inputs[1]["sha256"] == hashlib.sha256(content).hexdigest()


def test_large_files_are_not_hashed(monkeypatch, capsys):
    monkeypatch.setattr(_output, "HASH_LIMIT", 100)
    value()
    facts = json.loads(Path("values.json").read_text())
    size = Path("train.npz").stat().st_size
    assert (
        facts["inputs"][0].items()
        >= {
            "bytes": size,
            "sha256": None,
            "note": "not hashed: above 1 GiB",
        }.items()
    )
    run("value", "digits:train", "digits:test", "--out", "v.npz")
    assert json.loads(Path("v.json").read_text())["inputs"][0]["sha256"] is None
    # The values themselves tell what they counted.
    again = ["value", "train.npz", "val.npz", "--merge", "values.npz"]
    again += ["--out", "c.npz"]
    assert "they would count twice" in refuse(capsys, *again)


def test_what_is_hardly_meant_is_said(capsys):
    value("--k", 3)
    assert "Check" not in capsys.readouterr().err
    assert json.loads(Path("values.json").read_text())["checks"] == []
    run("value", "train.npz", "train.npz", "--k", 30, "--out", "same.npz")
    lines = capsys.readouterr().err.splitlines()
    assert [line[:6] for line in lines] == ["Check:"] * 2
    assert "x_val and y_val are x and y" in lines[0]
    assert "x_val, y_val, t_val: VAL" in lines[0]
    assert "--k 30 is more than half of the 40 samples" in lines[1]
    checks = json.loads(Path("same.json").read_text())["checks"]
    assert [f"Check: {check}" for check in checks] == lines


def test_labels_that_do_not_meet(capsys):
    names = np.array(["benign", "malign", "none"])
    np.savez("train.npz", x=X, y=names[Y])
    np.savez("val.npz", x=X_VAL, y=np.char.upper(names)[Y_VAL])
    command = ["value", "train.npz", "val.npz", *OUT]
    assert "'BENIGN', 'MALIGN', 'NONE': they differ in" in refuse(capsys, *command)
    np.savez("val.npz", x=X_VAL, y=Y_VAL)
    assert "must hold labels of one kind" in refuse(capsys, *command)


@pytest.mark.parametrize("existing", ["values.npz", "values.json", "values.csv"])
def test_what_exists_is_kept_unless_forced(existing, capsys):
    Path(existing).write_text("precious")
    command = ["value", "train.npz", "val.npz", "--out", "values.npz"]
    command += ["--csv", "values.csv"]
    assert f"{existing} exists: --force replaces it" in refuse(capsys, *command)
    assert Path(existing).read_text() == "precious"
    run(*command, "--force")
    assert Path(existing).read_text(errors="replace") != "precious"
    assert len(list(Path().iterdir())) == 5  # inputs and outputs, nothing else


def test_inputs_are_never_replaced(capsys):
    command = ["value", "train.npz", "val.npz", "--out", "./train.npz", "--force"]
    assert "must not be written twice, nor over an input" in refuse(capsys, *command)
    np.testing.assert_array_equal(np.load("train.npz")["x"], X)
    command[4] = "values.npz"
    for twice in ("values.npz", "values.json"):
        assert "must not be written twice" in refuse(capsys, *command, "--csv", twice)


@pytest.mark.parametrize("broken", ["_write", "replace"])
def test_a_failed_run_leaves_the_old_result(broken, capsys, monkeypatch):
    value()
    old = Path("values.npz").read_bytes(), Path("values.json").read_text()
    run_again = ["value", "train.npz", "val.npz", "--out", "values.npz", "--force"]

    def fail(*_):
        raise OSError("disk full")

    if broken == "_write":
        monkeypatch.setattr(_output.Record, "manifest", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    assert "disk full" in refuse(capsys, *run_again, "--k", "2")
    assert old == (Path("values.npz").read_bytes(), Path("values.json").read_text())


def test_the_result_appears_last(monkeypatch):
    moved = []
    replace = Path.replace

    def note(self, target):
        if not Path(target).name.startswith("."):
            moved.append(Path(target).name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", note)
    value("--csv", "values.csv", "--plot", "values.png")
    assert moved == ["values.png", "values.csv", "values.json", "values.npz"]


@pytest.mark.left_out
def test_merging_equals_one_run():
    np.savez("first.npz", x=X_VAL[:4], y=Y_VAL[:4])
    np.savez("second.npz", x=X_VAL[4:9], y=Y_VAL[4:9])
    np.savez("third.npz", x=X_VAL[9:], y=Y_VAL[9:])
    run("value", "train.npz", "first.npz", "--out", "a.npz")
    run("value", "train.npz", "second.npz", "--merge", "a.npz", "--out", "b.npz")
    run("value", "train.npz", "third.npz", "--merge", "b.npz", "--out", "c.npz")
    assert_same(Values.load("c.npz"), value(), rtol=1e-4, atol=1e-6)
    merged = json.loads(Path("c.json").read_text())["inputs"][2]
    assert (merged["role"], merged["source"]) == ("merge", "b.npz")
    earlier = [entry["source"] for entry in merged["inputs"]]
    assert earlier == ["train.npz", "second.npz", "a.npz"]
    # In place, too.
    run(
        "value", "train.npz", "val.npz", "--merge", "c.npz", "--out", "c.npz", "--force"
    )
    assert int(Values.load("c.npz").count) == 22


def test_nothing_is_counted_twice(capsys):
    np.savez("first.npz", x=X_VAL[:4], y=Y_VAL[:4])
    np.savez("both.npz", x=X_VAL[4:8], y=Y_VAL[4:8], u=X_VAL[8:], v=Y_VAL[8:])
    np.savez("other.npz", x=X[::-1], y=Y)
    run("value", "train.npz", "first.npz", "--out", "a.npz")
    run("value", "train.npz", "both.npz", "--merge", "a.npz", "--out", "b.npz")
    again = ["value", "train.npz", "first.npz", "--merge", "b.npz", "--out", "c.npz"]
    assert "b.npz has counted VAL already, says b.json" in refuse(capsys, *again)
    other = ["value", "other.npz", "val.npz", "--merge", "b.npz", "--out", "c.npz"]
    assert "b.npz values other samples than TRAIN" in refuse(capsys, *other)
    # Other arrays of the same file are other samples.
    keys = ["--val-x-key", "u", "--val-y-key", "v"]
    run("value", "train.npz", "both.npz", "--merge", "b.npz", "--out", "c.npz", *keys)
    assert_same(Values.load("c.npz"), value(), rtol=1e-4, atol=1e-6)
    # Without its manifest, or beside that of something else, the values tell it.
    Path("b.json").write_text(Path("a.json").read_text())
    assert "they would count twice" in refuse(capsys, *again, "--force")
    Path("b.json").unlink()
    assert "they would count twice" in refuse(capsys, *again, "--force")
    Path("b.json").write_text("[]")
    assert "b.json is not a manifest of jaxsel" in refuse(capsys, *again, "--force")


def test_merging_refuses_other_values(capsys):
    value()
    merge = [
        "value",
        "train.npz",
        "more.npz",
        "--merge",
        "values.npz",
        "--out",
        "o.npz",
    ]
    np.savez("more.npz", x=X_VAL + 1, y=Y_VAL)
    assert "the same --reduce" in refuse(capsys, *merge, "--reduce", "max")
    assert "whose method differs" in refuse(capsys, *merge, "--k", "2")
    np.savez("train.npz", x=X[:9], y=Y[:9])
    assert "n=40, " in refuse(capsys, *merge)
    merge[4] = "train.npz"
    assert "was not written by jaxsel" in refuse(capsys, *merge)
    merge[4] = "gone.npz"
    assert "gone.npz is not there" in refuse(capsys, *merge)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.npz", "val.npz", *OUT], "gone.npz is not there"),
        (["train.npz", "val.npz"], "the following arguments are required: --out"),
        (["train.npz", "val.npz", "--out", "o"], "--out must end in .npz, got 'o'"),
        (["train.npz", "val.npz", "--out", "no/o.npz"], "no is not a folder"),
        (["train.npz", "narrow.npz", *OUT], "number of features, got 4 and 3"),
        (["train.npz", "digits:test", *OUT], "TRAIN and VAL must both be files"),
        (["train.npz", "nan.npz", *OUT], "VAL must be finite, but row 2 has NaN"),
        (["train.npz", "val.npz", "--k", "0", *OUT], "k must be at least 1, got 0"),
        (
            ["train.npz", "val.npz", "--k", "a", *OUT],
            "argument --k: must be a whole number, got 'a'",
        ),
        (
            ["train.npz", "val.npz", "--metric", "l1", *OUT],
            "must be one of l2, cosine, got 'l1'",
        ),
        (["train.npz", "val.npz", "--radius", "1", *OUT], "does not take --radius"),
        (
            ["train.npz", "val.npz", "--method", "threshold_knn_shapley", *OUT],
            "threshold_knn_shapley needs --radius",
        ),
        (
            ["train.npz", "val.npz", "--method", "knn_regression_shapley", *OUT]
            + ["--alpha", "1", "--n-classes", "2", "--hybrid"],
            "knn_regression_shapley does not take --alpha, --n-classes, --hybrid",
        ),
        (["train.npz", "val.npz", "--devices", "9", *OUT], "from 1 to 8, the number"),
        (["train.npz", "val.npz", "--devices", "x", *OUT], "a number of devices, or"),
        (
            ["train.npz", "val.npz", "--reduce", "none", "--csv", "t.csv", *OUT],
            "--csv needs one value a sample, not --reduce none",
        ),
        (
            ["train.npz", "val.npz", "--plot", "p.txt", *OUT],
            "--plot must end in .png, .svg, .pdf, got 'p.txt'",
        ),
        (["t.csv", "t.csv", *OUT], "needs --label-column"),
        (
            ["t.csv", "t.csv", "--label-column", "y", *OUT],
            "t.csv has no column 'y'; it has 'a', 'kind'",
        ),
        (
            ["t.csv", "t.csv", "--encode", "none", "--label-column", "a", *OUT],
            "numeric features, but 'kind' hold others",
        ),
        (["mnist:train", "mnist:test", *OUT], "run `jaxsel data prepare mnist`"),
    ],
    ids=lambda item: " ".join(item[:4]) if isinstance(item, list) else "",
)
def test_value_refuses(arguments, message, capsys):
    np.savez("narrow.npz", x=X_VAL[:, :3], y=Y_VAL)
    np.savez("nan.npz", x=np.where(X_VAL[2, 1] == X_VAL, np.nan, X_VAL), y=Y_VAL)
    Path("t.csv").write_text("a,kind\n1,b\n2,c\n")
    assert message in refuse(capsys, "value", *arguments)


def test_missing_packages_are_named(capsys, monkeypatch):
    command = ["value", "train.npz", "val.npz", "--plot", "p.png", *OUT]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'jaxsel[data,report,text]'" in refuse(capsys, *command)
    command = ["value", "t.parquet", "val.npz", "--label-column", "y", *OUT]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "t.parquet needs pandas and pyarrow" in refuse(capsys, *command)
    monkeypatch.setitem(sys.modules, "pandas", None)
    command = ["value", "t.csv", "t.csv", "--label-column", "y", *OUT]
    assert "needs pandas: pip install 'jaxsel[data]'" in refuse(capsys, *command)


def test_progress_on_terminals_only(monkeypatch):
    shown = []

    def spy(*arrays, progress, **options):
        shown.append(progress)
        return knn_loo(*arrays, **options)

    knn_loo = jaxsel.knn_loo
    spy.__signature__ = inspect.signature(knn_loo)
    monkeypatch.setitem(VALUES, "knn_loo", KnnValue(spy))
    for tty in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda tty=tty: tty)
        value("--method", "knn_loo", "--force")
    value("--method", "knn_loo", "--force", "--no-progress")
    assert shown == [False, True, False]
