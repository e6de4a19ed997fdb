"""`jaxsel attribute`: what it reads, trains, measures, writes and refuses."""

import json
from pathlib import Path

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from commands import OUT, refuse, run

from jaxsel import Values, attribute, models

RNG = np.random.default_rng(0)
CENTRES = 3 * np.eye(3, 4)
Y, Y_VAL = RNG.integers(0, 3, 40), RNG.integers(0, 3, 12)
X, X_VAL = (RNG.normal(size=(len(y), 4)) + CENTRES[y] for y in (Y, Y_VAL))
SMALL = ("--hidden", 4, "--epochs", 5, "--batch-size", 10, "--networks", 1)
FILES = ("attribute", "train.npz", "val.npz")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("train.npz", x=X, y=Y)
    np.savez("val.npz", x=X_VAL, y=Y_VAL)


def config():
    return json.loads(Path("o.json").read_text())["config"]


def test_it_equals_the_function(capsys):
    run(*FILES, *OUT, *SMALL, "--seed", 3)
    recipe = attribute.Recipe(
        lambda rngs: models.MLP(4, 4, 3, rngs=rngs),
        optax.sgd(0.05, momentum=0.9),
        epochs=5,
        batch_size=10,
    )
    expected = attribute.network_influence(
        recipe, X, Y, X_VAL, Y_VAL, key=jax.random.key(3)
    )
    values = Values.load("o.npz")
    np.testing.assert_array_equal(values.values, expected.values)
    assert values.method == expected.method
    params = recipe.train(jax.random.fold_in(jax.random.key(3), 0), np.float32(X), Y)
    accuracy = np.mean(recipe.apply(params, np.float32(X_VAL)).argmax(1) == Y_VAL)
    assert config()["accuracy"] == pytest.approx(accuracy)
    out = capsys.readouterr().out
    assert f"classifies {accuracy:.1%} of VAL correctly" in out
    assert "least valuable" in out


@pytest.mark.parametrize("method", attribute.ATTRIBUTIONS)
@pytest.mark.every(8)
def test_scores_are_checked_beside_nearest_neighbours(method, capsys):
    options = ("--method", method, "--check", 8, "--reduce", "none")
    run(*FILES, *OUT, *SMALL, *options)
    assert Values.load("o.npz").values.shape == (12, 40)
    figures = config()["lds"]
    assert [*figures] == [method, "knn_shapley"]
    captured = capsys.readouterr()
    shown = "{:.2f} ± {:.2f}".format(*figures[method])
    part = "95%" if method == "metagradient" else "50%"
    assert f"8 parts of {part} of TRAIN: {method} {shown}" in captured.out
    worse = figures["knn_shapley"][0] >= figures[method][0]
    assert worse == ("cost less" in captured.err)


def test_tables_of_texts_and_their_ids(capsys):
    frame = pd.DataFrame(X, columns=[*"abcd"])
    frame["kind"] = np.array(["x", "y", "z"])[Y]
    frame["id"] = [f"r{i}" for i in range(40)]
    frame.to_csv("pool.csv", index=False)
    options = ("--label", "kind", "--id-column", "id", "--split", 0.3)
    run("attribute", "pool.csv", *options, *OUT, *SMALL, "--csv", "s.csv")
    table = pd.read_csv("s.csv")
    assert len(table) == 28
    assert set(table.iloc[:, 0]) < set(frame["id"])
    assert len(config()["split_rows"]["val_rows"]) == 12
    capsys.readouterr()
    refused = refuse(capsys, "attribute", "pool.csv", *options, *OUT)
    assert "--force" in refused


def test_images_for_a_cnn():
    rows = RNG.normal(size=(16, 8, 8))
    np.savez("images.npz", x=rows, y=np.arange(16) % 2)
    run("attribute", "images.npz", "images.npz", "--network", "cnn", *OUT, *SMALL)
    assert Values.load("o.npz").values.shape == (16,)


def test_labels_may_be_any_numbers():
    np.savez("train.npz", x=X, y=10 * Y - 5)
    np.savez("val.npz", x=X_VAL, y=10 * Y_VAL - 5)
    run(*FILES, *OUT, *SMALL)
    other = Values.load("o.npz").values
    files = {"train": (X, Y), "val": (X_VAL, Y_VAL)}
    for name, (x, y) in files.items():
        np.savez(f"{name}.npz", x=x, y=y)
    run(*FILES, *OUT, *SMALL, "--force")
    np.testing.assert_array_equal(Values.load("o.npz").values, other)


def test_numbers_of_classes_beside_gaps(capsys):
    """A gap makes floats of a column's whole numbers; an array's may be floats, too."""
    table = pd.DataFrame(X, columns=list("abcd")).assign(label=Y.astype(float))
    table.loc[3, "label"] = None
    table.to_csv("train.csv", index=False)
    np.savez("val.npz", x=X_VAL, y=Y_VAL.astype(float))
    command = ("attribute", "train.csv", "val.npz", "--label", "label")
    run(*command, "--drop-unlabelled", *OUT, *SMALL)
    assert len(Values.load("o.npz")) == 39


def test_a_network_that_has_not_learned_is_told(capsys):
    np.savez("val.npz", x=X_VAL, y=np.where(np.arange(12) < 9, 0, Y_VAL))
    run(*FILES, *OUT, *SMALL, "--rate", 1e-9)
    assert "has not learned" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--networks", 0], "--networks must be at least 1, got 0"),
        (["--check", 7], "--check must be at least 8, got 7"),
        (["--hidden", -1], "--hidden must be at least 0, got -1"),
        (["--rate", 0], "--rate must be above 0, got 0"),
        (["--momentum", 1], "--momentum must be in [0, 1), got 1.0"),
        (["--network", "cnn"], "--network cnn needs images"),
        (["--rate", 1e30], "lower --rate, or --standardize the columns of TRAIN"),
        (["--plot", "p.png", "--reduce", "none"], "--plot needs one value a sample"),
        (["--split", 0.2], "leave one of them out"),
    ],
)
def test_options_that_are_refused(options, expected, capsys):
    assert expected in refuse(capsys, *FILES, *OUT, *SMALL, *options)


def test_labels_that_are_refused(capsys):
    np.savez("train.npz", x=X, y=Y / 2)
    refused = refuse(capsys, *FILES, *OUT)
    assert "knn_regression_shapley" in refused
    np.savez("train.npz", x=X, y=np.array(["a", "b", "c"])[Y])
    assert "labels of one kind" in refuse(capsys, *FILES, *OUT)
    np.savez("val.npz", x=X_VAL, y=np.array(["A", "B", "C"])[Y_VAL])
    refused = refuse(capsys, *FILES, *OUT)
    assert "TRAIN and VAL must share a label" in refused
    assert "they differ in case or spaces" in refused
    for name, n in ("train", 40), ("val", 12):
        np.savez(f"{name}.npz", x=np.ones((n, 2)), y=np.zeros(n, int))
    assert "two classes or more" in refuse(capsys, *FILES, *OUT)
