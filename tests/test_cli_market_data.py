"""The command line of the market: features, tables, and data sets of every kind."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run
from market_cases import QUICK, RANK, ask, draw, files as files, normal, reply, save

from jaxsel import market
from jaxsel.data import load
from jaxsel.market import Answer, Request
from jaxsel.tables import TableEncoder


@pytest.mark.left_out
def test_data_without_labels():
    asked = ask()
    x = draw(20, 20, 20)[0].astype(np.float32)
    expected = market.answer(asked, x, owner="bare")
    assert expected.pseudo_labels
    np.savez("own.npz", x=x, y=np.zeros(60))  # not to be used
    np.save("own.npy", x)
    frame = pd.DataFrame(x, columns=list("abcdef"))
    frame.to_csv("own.csv", index=False)
    frame.to_parquet("own.parquet")
    frame.assign(kind=["up", None] * 30).to_csv("own_kinds.csv", index=False)
    column = {"own_kinds.csv": ["--label-column", "kind"]}
    for file in ("own.npz", "own.npy", "own.csv", "own.parquet", *column):
        run(
            *("market", "answer", "request.npz", file, "--unlabelled", "--force"),
            *("--owner", "bare", "--out", "from_bare.npz", *column.get(file, ())),
        )
        found = Answer.load("from_bare.npz", asked)
        assert found.pseudo_labels
        for name in ("x", "y", "weights"):
            expected_array = getattr(expected, name)
            np.testing.assert_array_equal(getattr(found, name), expected_array, file)


@pytest.mark.left_out
def test_features_only(capsys):
    """The samples stay at home, on both sides."""
    encode = normal(6, 3)
    for name in ("val", "train", "north"):
        np.save(f"{name}_f.npy", np.load(f"{name}.npz")["x"] @ encode)
    asked = ask("--features", "val_f.npy", "--hide-samples")
    assert asked.x is None
    assert np.load("held.npz")["x"].shape == (25, 3)
    for name in ("train", "north"):
        save(f"{name}_f", np.load(f"{name}_f.npy"), np.load(f"{name}.npz")["y"])
    found = reply("north_f")
    assert found.x is None
    assert found.features.shape == (16, 3)
    options = ["--train", "train_f.npz", "--out", "ranking.json", *QUICK]
    run(*RANK, "from_north_f.npz", *options)
    # Samples with features beside them: features decide, samples are sent.
    ask("--features", "val_f.npy", "--force")
    found = reply("north", "--features", "north_f.npy")
    assert found.x.shape == (16, 6)


@pytest.mark.parametrize("form", ["npz", "csv"])
@pytest.mark.parametrize("options", [(), ("--method", "retrieve"), ("--unlabelled",)])
def test_a_request_that_hides_samples_gets_the_features_of_the_option(
    form, options, capsys
):
    """DATA, which may have texts, stays at home: it has the labels only."""
    encode = normal(6, 3)
    for name in ("val", "north"):
        np.save(f"{name}_f.npy", np.load(f"{name}.npz")["x"] @ encode)
    asked = ask("--features", "val_f.npy", "--hide-samples")
    north = np.load("north.npz")
    data = f"north.{form}"
    frame = pd.DataFrame(north["x"]).assign(city="Bern", label=north["y"])
    frame.to_csv("north.csv", index=False)
    labelled = ["--label-column", "label"] if form == "csv" else []
    made = ("market", "answer", "request.npz", data, "--owner", "north", *labelled)
    run(*made, "--features", "north_f.npy", *options, "--out", "a.npz")
    answered = Answer.load("a.npz", asked)
    assert answered.x is None
    features = np.load("north_f.npy").astype(answered.features.dtype)
    for row in answered.features:
        assert (features == row).all(1).any()
    np.save("short.npy", features[1:])
    message = refuse(capsys, *made, "--features", "short.npy", "--out", "b.npz")
    assert "--features must have a row for each of the 60 samples, got 59" in message


def test_tables_with_texts_as_labels(capsys):
    for name in ("val", "train", "north"):
        file = np.load(f"{name}.npz")
        frame = pd.DataFrame(file["x"], columns=list("abcdef"))
        frame["kind"] = np.array(["lo", "mid", "up"])[file["y"]]
        frame.to_csv(f"{name}.csv", index=False)
    predicted = np.array(["lo", "mid", "up"])[np.load("predicted.npy")]
    np.save("predicted.npy", predicted)
    kind = ["--label-column", "kind"]
    run(
        *("market", "request", "val.csv", "--predictions", "predicted.npy", *kind),
        *("--method", "binned", "--budget", 8),
        *("--held-out-to", "held.npz", "--out", "request.npz"),
    )
    asked = Request.load("request.npz")
    assert asked.schema.columns == tuple("abcdef")
    assert asked.schema.classes == ("lo", "mid", "up")
    run(
        *("market", "answer", "request.npz", "north.csv", "--owner", "north", *kind),
        *("--out", "from_north.npz"),
    )
    options = ["--train", "train.csv", *kind, "--out", "ranking.json", *QUICK]
    options.append("--without-shown")
    run(*RANK, "from_north.npz", *options)
    ranking = json.loads(Path("ranking.json").read_text())
    assert ranking["ranking"][0]["gain"] > 0.05
    assert ranking["ranking"][0]["score"] > 0.9


@pytest.mark.left_out
def test_columns_in_another_order(capsys):
    x, y = draw(10, 10, 20)
    names = [f"c{i}" for i in range(6)]
    table = pd.DataFrame(x.astype(np.float32), columns=names).assign(label=y)
    table.to_csv("val.csv", index=False)
    column = ("--label-column", "label")
    made = ("market", "request", "val.csv", *column, "--out", "request.npz")
    run(*made, "--budget", "8", "--method", "retrieve")
    answers = []
    for order in (names, names[::-1]):
        table[[*order, "label"]].to_csv("own.csv", index=False)
        run(
            *("market", "answer", "request.npz", "own.csv", "--owner", "north"),
            *(*column, "--out", "a.npz", "--force"),
        )
        answers.append(Answer.load("a.npz", Request.load("request.npz")).x)
    np.testing.assert_array_equal(*answers)
    table.rename(columns={"c0": "other"}).to_csv("own.csv", index=False)
    error = refuse(
        capsys,
        *("market", "answer", "request.npz", "own.csv", "--owner", "north", *column),
        *("--out", "b.npz"),
    )
    assert "DATA must have the columns of the request, c0" in error


@pytest.mark.left_out
def test_columns_of_tables_can_be_left_out(capsys):
    """As the index that pandas writes, of which it is told."""
    x, y = draw(10, 10, 20)
    names = [f"c{i}" for i in range(6)]
    frame = pd.DataFrame(x.astype(np.float32), columns=names).assign(label=y)
    frame["id"] = [f"row {i}" for i in range(40)]
    frame.to_csv("val.csv")
    wrong = np.where(y == 2, 0, y)
    pd.DataFrame({"guess": wrong, "note": "none"}).to_csv("predicted.csv", index=False)
    made = ("market", "request", "val.csv", "--label-column", "label", "--budget", 8)
    made += ("--predictions", "predicted.csv", "--prediction-column", "guess")
    made += ("--held-out-to", "held.npz", "--out", "request.npz", "--force")
    run(*made, "--drop", "id")
    warning = (
        "Check: column 'Unnamed: 0' of val.csv is an index, which names the rows, and "
        "is left out: rename it if it is a feature\n"
    )
    assert capsys.readouterr().err == warning
    assert Request.load("request.npz").schema.columns == tuple(names)
    for options in (
        ("--drop", "id", "--drop", "Unnamed: 0"),
        ("--columns", ",".join(names)),
    ):
        run(*made, *options)
        assert capsys.readouterr().err == ""
        asked = Request.load("request.npz")
        assert asked.schema.columns == tuple(names)
        assert set(asked.y) == {2}
        assert len(asked) == 10
    reply = ("market", "answer", "request.npz", "val.csv", "--owner", "o", "--force")
    columns = ("--columns", ",".join(names[::-1]))
    for labels in (("--label-column", "label"), ("--unlabelled",)):
        run(*reply, *labels, *columns, "--out", "a.npz")
        assert Answer.load("a.npz", asked).x.shape == (8, 6)
    assert "must name the column of --predictions" in refuse(
        capsys, *made, "--columns", "c0", "--predictions", "predicted.npy"
    )
    assert "has no column 'guess'" in refuse(
        capsys, *made, "--columns", "c0", "--predictions", "val.csv"
    )


@pytest.mark.left_out
def test_columns_of_other_scale(capsys):
    """With one in thousands, raw distances see nothing else."""
    x, y = draw(30, 30, 30)
    x[:, 5] = 1000 * normal(90)
    np.savez("val.npz", x=x[::2], y=y[::2])
    np.savez("own.npz", x=x[1::2], y=y[1::2])
    run("market", "request", "val.npz", "--budget", 12, "--out", "request.npz")
    right = []
    for options in ((), ("--standardize",)):
        run(
            *("market", "answer", "request.npz", "own.npz", "--unlabelled"),
            *("--method", "random", "--metric", "l2", "--owner", "o"),
            *("--out", "a.npz", "--force", *options),
        )
        found = Answer.load("a.npz", Request.load("request.npz"))
        rows = [np.flatnonzero((x == row).all(axis=1))[0] for row in found.x]
        right.append(np.mean(found.y == y[rows]))
    assert right[1] > 0.9 > right[0]
    for options in (("--method", "grad_match"), ("--method", "random")):
        error = refuse(
            capsys,
            *("market", "answer", "request.npz", "own.npz", "--standardize"),
            *("--owner", "o", "--out", "b.npz", *options),
        )
        assert "--standardize must not be given" in error


@pytest.mark.left_out
def test_features_that_are_forgotten(capsys):
    np.save("val_f.npy", np.load("val.npz")["x"][:, :2])
    ask("--features", "val_f.npy", "--method", "random")
    reply("north")
    assert capsys.readouterr().err == ""
    reply("north", "--method", "retrieve", "--force")
    assert "the request has features, but --features is not given: samples are" in (
        capsys.readouterr().err
    )


def sha256_of(name, split):
    data = load(name, split=split)
    return hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest()


@pytest.mark.left_out
def test_prepared_data_sets(monkeypatch):
    run("market", "request", "digits:test", "--budget", 4, "--out", "request.npz")
    asked = Request.load("request.npz")
    assert asked.x.shape == (355, 8, 8, 1)
    run(
        *("market", "answer", "request.npz", "digits:train", "--owner", "me"),
        *("--out", "a.npz"),
    )
    assert Answer.load("a.npz", asked).x.dtype == np.uint8
    manifest = json.loads(Path("a.json").read_text())
    hashes = {split: sha256_of("digits", split) for split in ("train", "test")}
    assert manifest["inputs"][1]["sha256"] == hashes["train"]
    run(
        *("market", "answer", "request.npz", "digits:train", "--owner", "other"),
        *("--out", "b.npz", "--unlabelled"),
    )
    assert Answer.load("b.npz", asked).pseudo_labels
    monkeypatch.setattr(market.Trainer, "score", lambda self, answer: [0.5])
    run(
        *("market", "rank", "request.npz", "digits:test", "a.npz", "b.npz"),
        *("--train", "digits:train", "--out", "r.json"),
    )
    inputs = json.loads(Path("r.json").read_text())["inputs"]
    assert [entry["sha256"] for entry in inputs[1:3]] == [*hashes.values()][::-1]


def people(n, seed, work):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "work": rng.choice(work, n),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(3, 1, n)),
        }
    )
    frame["rich"] = np.where((frame.age > 40) ^ (frame.work == "state"), "yes", "no")
    return frame


@pytest.mark.left_out
def test_tables_with_categories_and_gaps(capsys):
    """The request tells owners how to encode theirs; TRAIN is encoded alike."""
    kinds = ["private", "state", "self"]
    val = people(90, 0, kinds).assign(guess="no")
    val.to_csv("val.csv", index=False)
    people(90, 1, kinds).to_parquet("train.parquet")
    north = people(60, 2, ["state", "abroad"])
    north[["rich", "pay", "work", "age"]].to_csv("north.csv", index=False)
    rich = ["--label-column", "rich"]
    shared = [*("--predictions", "val.csv", "--prediction-column", "guess"), *rich]
    ask_ = ("market", "request", "val.csv", *shared, "--drop", "guess", "--budget", 8)
    ask_ += ("--held-out-to", "held.npz", "--out", "request.npz")
    assert "gap in column 'pay'" in refuse(capsys, *ask_, "--encode=none")
    run(*ask_)
    assert "the request tells owners the medians" in capsys.readouterr().out
    assert json.loads(Path("request.json").read_text())["config"]["encoded"] == {
        "age": "number",
        "work": "3 categories",
        "pay": f"number, {int(val.pay.isna().sum())} gaps",
    }
    asked = Request.load("request.npz")
    encoder = TableEncoder().fit(val[["age", "work", "pay"]])
    assert asked.encoder.to_json() == encoder.to_json()
    reply_ = ("market", "answer", "request.npz", "north.csv", *rich, "--owner", "north")
    run(*reply_, "--out", "from_north.npz")
    check = "Check: column 'work' has categories in 50% of 60 rows"
    assert check in capsys.readouterr().err
    found = Answer.load("from_north.npz", asked)
    with pytest.warns(UserWarning, match="'work' has categories in 50% of 60 rows"):
        x = encoder.transform(north[["age", "work", "pay"]])
    expected = market.answer(asked, x, north.rich.to_numpy(str), owner="north")
    np.testing.assert_array_equal(found.x, expected.x)
    message = refuse(capsys, *reply_, "--drop", "age", "--out", "no.npz")
    assert "must have the columns age, work, pay; got pay, work (leave" in message
    run(
        *RANK,
        "from_north.npz",
        "--train",
        "train.parquet",
        *rich,
        *QUICK,
        "--out=r.json",
    )
    assert json.loads(Path("r.json").read_text())["ranking"][0]["owner"] == "north"
    run(*reply_, "--unlabelled", "--out", "bare.npz")
    assert Answer.load("bare.npz", asked).pseudo_labels


@pytest.mark.left_out
def test_a_table_of_numbers_and_dates():
    """Whose features are called like its columns."""

    def write(path, seed):
        dates = pd.date_range("2020-01-01", periods=40).astype(str)
        table = people(40, seed, ["self"])[["age", "rich"]].assign(joined=dates)
        table.to_csv(path, index=False)
        return table

    for name, seed in (("val", 0), ("train", 1), ("held", 2)):
        write(f"{name}.csv", seed)
    own = write("own.csv", 3)
    rich = ["--label-column", "rich"]
    run(
        *("market", "request", "val.csv", *rich, "--budget", 4),
        *("--out", "request.npz"),
    )
    asked = Request.load("request.npz")
    run(
        *("market", "answer", "request.npz", "own.csv", *rich, "--owner", "north"),
        *("--out", "from_north.npz"),
    )
    x = asked.encoder.transform(own[["age", "joined"]])
    expected = market.answer(asked, x, own.rich.to_numpy(str), owner="north")
    found = Answer.load("from_north.npz", asked)
    np.testing.assert_array_equal(found.x, expected.x)
    run(
        *("market", "rank", "request.npz", "held.csv", "from_north.npz", *rich),
        *("--train", "train.csv", "--seeds", 1, "--steps", 20, "--out", "r.json"),
    )
