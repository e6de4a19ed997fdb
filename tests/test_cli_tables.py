"""Real tables through the command line: separators, ids, splits, encoding, learners."""

import csv
import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from commands import OUT, refuse, run
from sklearn.model_selection import train_test_split

import jaxsel
from jaxsel import Selection, Values, value
from jaxsel._cli._tables import read_frame
from jaxsel.tables import TableEncoder

RNG = np.random.default_rng(0)
N = 60
AGE = RNG.normal(45, 12, N).round(2)
PEOPLE = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(N)],
        "age": AGE,
        "work": RNG.choice(["private", "state"], N),
        "income": np.where(AGE > 45, ">50K", "<=50K"),
    }
)
PEOPLE.loc[5, "age"] = np.nan
NAMED = ["--label", "income", "--id-column", "id"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    PEOPLE.to_csv("all.csv", index=False)
    PEOPLE[:40].to_csv("train.csv", index=False)
    PEOPLE[40:].to_csv("val.csv", index=False)


def same(found, expected):
    """Assert equality up to the order of sums, which devices have of their own."""
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-7)


def manifest(path="o.json"):
    return json.loads(Path(path).read_text())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t.csv", {}),
        ("t.csv", {"encoding": "utf-8-sig"}),
        ("t.csv", {"sep": ";"}),
        ("t.csv", {"sep": ";", "decimal": ","}),
        ("t.csv", {"sep": "|"}),
        ("t.csv", {"quoting": csv.QUOTE_ALL}),
        ("t.tsv", {"sep": "\t"}),
    ],
    ids=str,
)
def test_separators(name, options):
    PEOPLE.to_csv(name, index=False, **options)
    pd.testing.assert_frame_equal(read_frame(name), PEOPLE)


def test_one_column_and_a_comma_in_a_name():
    Path("one.csv").write_text("a;b\n1;x,y\n2;z\n")
    assert read_frame("one.csv").to_dict("list") == {"a": [1, 2], "b": ["x,y", "z"]}
    Path("one.tsv").write_text("a\n1,5\n2\n")
    assert read_frame("one.tsv").a.tolist() == ["1,5", "2"]


@pytest.mark.left_out
def test_tables_are_encoded_as_by_the_library(capsys):
    run("value", "train.csv", "val.csv", *NAMED, *OUT)
    features, y = PEOPLE[["age", "work"]], PEOPLE.income.to_numpy(object)
    encoder = TableEncoder().fit(features[:40])
    x, x_val = encoder.transform(features[:40]), encoder.transform(features[40:])
    expected = jaxsel.knn_shapley(x, y[:40], x_val, y[40:])
    found = Values.load("o.npz")
    same(found, expected)
    assert found.index == tuple(PEOPLE.id[:40])
    assert manifest()["config"]["encoded"] == encoder.plan
    best = PEOPLE.id[expected.top(1)[0]]
    assert f"most valuable:  {best} " in capsys.readouterr().out


@pytest.mark.left_out
def test_numbers_without_gaps_stay_as_they_are():
    numbers = PEOPLE.assign(age=AGE)[["age", "income"]]
    numbers[:40].to_csv("a.csv", index=False)
    numbers[40:].to_csv("b.csv", index=False)
    for encode in "auto", "none":
        run("value", "a.csv", "b.csv", "--label", "income", "--encode", encode,
            "--force", *OUT)  # fmt: skip
        y = PEOPLE.income.to_numpy(object)
        expected = jaxsel.knn_shapley(AGE[:40, None], y[:40], AGE[40:, None], y[40:])
        same(Values.load("o.npz"), expected)
        assert manifest()["config"]["encoded"] is None


@pytest.mark.left_out
def test_split():
    run("value", "all.csv", *NAMED, "--split", "0.25", "--seed", "3", "--csv", "o.csv",
        *OUT)  # fmt: skip
    train, val = train_test_split(
        np.arange(N), test_size=0.25, random_state=3, stratify=PEOPLE.income
    )
    train, val = np.sort(train), np.sort(val)
    rows = manifest()["config"]["split_rows"]
    assert rows == {"seed": 3, "stratified": True, "val_rows": val.tolist()}
    assert manifest()["seeds"] == [3]
    features, y = PEOPLE[["age", "work"]], PEOPLE.income.to_numpy(object)
    encoder = TableEncoder().fit(features.iloc[train])
    x, x_val = (encoder.transform(features.iloc[rows]) for rows in (train, val))
    expected = jaxsel.knn_shapley(x, y[train], x_val, y[val])
    same(Values.load("o.npz"), expected)
    table = pd.read_csv("o.csv", index_col=0)
    assert table.index.tolist() == PEOPLE.id[train].tolist()
    run("select", "o.npz", "--budget", 4, "--out", "s.npz", "--csv", "s.csv")
    chosen = pd.read_csv("s.csv", index_col=0)
    assert chosen.index.tolist() == PEOPLE.id[train[expected.top(4)]].tolist()


@pytest.mark.left_out
def test_split_of_arrays_counts_rows_of_the_file():
    x, y = RNG.normal(size=(40, 3)), np.arange(40) % 2
    np.savez("a.npz", x=x, y=y)
    run("value", "a.npz", "--split", "0.2", *OUT)
    val = manifest()["config"]["split_rows"]["val_rows"]
    rest = np.setdiff1d(np.arange(40), val)
    assert Values.load("o.npz").index == tuple(rest.tolist())
    expected = jaxsel.knn_shapley(x[rest], y[rest], x[val], y[val])
    same(Values.load("o.npz"), expected)


@pytest.mark.left_out
def test_ids_of_other_kinds(capsys):
    for ids in np.arange(N) * 7 + 3, pd.date_range("2020-01-01", periods=N), AGE:
        PEOPLE.assign(id=ids).to_parquet("ids.parquet")
        run("value", "ids.parquet", "val.csv", *NAMED, "--force", *OUT)
        found = Values.load("o.npz").index
        assert len(found) == N
        assert str(found[1]).startswith(str(ids[1])[:10])
    PEOPLE.assign(id=PEOPLE.id.where(PEOPLE.index != 4)).to_csv("gap.csv")
    message = refuse(capsys, "value", "gap.csv", "val.csv", *NAMED, "--out", "p.npz")
    assert "gap.csv must have an id in every row, but 'id' is empty in row 4" in message


def test_arrays_cannot_say_how_a_table_is_encoded(capsys):
    np.savez("a.npz", x=np.zeros((9, 2)), y=np.array(["<=50K"] * 9))
    message = refuse(capsys, "value", "a.npz", "val.csv", "--label", "income",
                     "--drop", "id", *OUT)  # fmt: skip
    assert "val.csv must have numeric features, but 'work' hold others" in message


def test_small_classes_cannot_be_split(capsys):
    np.savez("a.npz", x=np.zeros((5, 2)), y=np.arange(5))
    message = refuse(capsys, "value", "a.npz", "--split", "0.2", *OUT)
    assert "--split 0.2 must leave some of each class on both sides" in message


@pytest.mark.parametrize("method", ["tmc_shapley", "loo", "data_oob"])
@pytest.mark.left_out
def test_learners_are_retrained_as_by_the_library(method):
    x = RNG.normal(size=(20, 2)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    np.savez("a.npz", x=x[:12], y=y[:12])
    np.savez("b.npz", x=x[12:], y=y[12:])
    options = ["--method", method, "--learner", "nearest_centroid", "--seed", 1]
    options += [] if method == "loo" else ["--samples", 5]
    run("value", "a.npz", *([] if method == "data_oob" else ["b.npz"]), *options, *OUT)
    learner, key = value.NearestCentroid(), jax.random.key(1)
    stop = value.MaxSamples(5)
    if method == "data_oob":
        expected = jaxsel.data_oob(learner, x[:12], y[:12], key=key, stop=stop)
    else:
        utility = value.ModelUtility(learner, x[:12], y[:12], x[12:], y[12:])
        some = {} if method == "loo" else {"stop": stop}
        expected = getattr(jaxsel, method)(utility, key=key, **some)
    same(Values.load("o.npz"), expected)
    config = manifest()["config"]
    assert (config["learner"], config["seed"]) == ("nearest_centroid", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "data_oob"], "leave out VAL and --split"),
        (["--method", "loo", "--samples", "3"], "loo does not take --samples"),
        (["--method", "banzhaf", "--samples", "0"], "--samples must be at least 1"),
        (["--method", "banzhaf", "--hybrid"], "banzhaf does not take --hybrid"),
        (["--seed", "3"], "knn_shapley does not take --seed"),
    ],
)
def test_options_that_do_not_fit(options, message, capsys):
    given = ["value", "train.csv", "val.csv", *NAMED, *options, *OUT]
    assert message in refuse(capsys, *given)


def test_unknown_values_are_counted_and_all_of_them_refused(capsys):
    options = [*NAMED, *OUT, "--samples", 1]
    banzhaf = ["train.csv", "val.csv", "--method", "banzhaf", *options]
    message = refuse(capsys, "value", *banzhaf)
    assert "values are unknown (NaN): take more --samples" in message
    run("value", "train.csv", "--method", "data_oob", *options)
    unknown = int(np.isnan(Values.load("o.npz").values).sum())
    assert unknown
    printed = capsys.readouterr().out
    assert f"below zero, {unknown} unknown" in printed
    assert "nan" not in printed
    n = len(Values.load("o.npz"))
    run("select", "o.npz", "--budget", n, "--out", "s.npz")
    printed = capsys.readouterr()
    assert printed.err.startswith(f"Check: {unknown} of the {n} chosen samples have")
    assert "nan" not in printed.out
    assert manifest("s.json")["checks"]


def test_errors_of_a_table_name_the_ids():
    run("errors", "all.csv", *NAMED, "--out", "e", "--no-report")
    table = pd.read_csv("e/errors.csv")
    assert table.id.tolist() == PEOPLE.id[table.row].tolist()
    config = manifest("e/manifest.json")["config"]
    assert config["encoded"] == {"age": "number, 1 gaps", "work": "2 categories"}


def test_filter(capsys):
    clean, noise = RNG.gamma(1, 0.3, 300), RNG.gamma(4, 1, 100)
    losses, benchmark = np.concatenate([clean, noise]), RNG.gamma(1, 0.3, 200)
    np.save("benchmark.npy", benchmark)
    ids = [f"s{i}" for i in range(400)]
    pd.DataFrame({"id": ids, "loss": losses}).to_csv("l.csv", index=False)
    named = ["--column", "loss", "--id-column", "id", "--csv", "kept.csv"]
    run("filter", "l.csv", "--benchmark", "benchmark.npy", *named, *OUT)
    expected = jaxsel.loss_threshold(benchmark, losses)
    kept = np.flatnonzero(expected.keeps(losses))
    selection = Selection.load("o.npz")
    assert sorted(np.asarray(selection.indices).tolist()) == kept.tolist()
    assert selection.indices[0] == losses.argmin()
    table = pd.read_csv("kept.csv", index_col="id")
    assert np.flatnonzero(table.kept).tolist() == kept.tolist()
    assert manifest()["config"]["threshold"] == expected.value
    assert f"{len(kept)} of 400 samples kept" in capsys.readouterr().out
