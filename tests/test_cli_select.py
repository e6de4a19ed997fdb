"""`jaxsel select POOL`: choosers of `match` and `retrieve` on files and data sets."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel import Selection
from jaxsel._cli._choose import SELECTORS
from jaxsel._results.selector import Selector
from jaxsel.neighbors import METRICS

N, M, D, BUDGET = 40, 6, 4, 7
RNG = np.random.default_rng(0)
POOL, HARD = RNG.normal(size=(N, D)), RNG.normal(1, 1, size=(M, D))
LABELS, HARD_LABELS = np.arange(N) % 2, np.arange(M) % 2
CITIES = np.array(["Rome", "Oslo", "Bern"])


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("pool.npz", x=POOL, y=LABELS)
    np.savez("hard.npz", x=HARD, y=HARD_LABELS)
    np.save("hard.npy", HARD)
    frame = pd.DataFrame(POOL.round(3), columns=list("abcd"))
    frame["city"] = CITIES[np.arange(N) % 3]
    frame["id"] = [f"c{i}" for i in range(N)]
    frame["label"] = np.where(LABELS, "yes", "no")
    frame.to_csv("pool.csv", index=False)
    frame.iloc[[3, 8, 20], [4, 2, 0, 1, 3]].to_csv("hard.csv", index=False)


def choose(*arguments):
    run("select", *arguments, "--budget", BUDGET, "--out", "s.npz", "--force")
    return Selection.load("s.npz")


def facts():
    return json.loads(Path("s.json").read_text())


@pytest.mark.parametrize("name", SELECTORS)
def test_every_registered_chooser_is_a_method(name):
    like = () if SELECTORS[name].compares is None else ("--like", "hard.npy")
    choice = choose("pool.npz", *like, "--method", name)
    expected = SELECTORS[name](POOL, HARD, BUDGET)
    assert list(choice) == list(expected)
    np.testing.assert_allclose(choice.weights, expected.weights, rtol=1e-5)
    assert facts()["config"]["method"] == name
    assert [entry["role"] for entry in facts()["inputs"]] == ["pool", "hard"][
        : 1 + bool(like)
    ]


def test_a_new_chooser_needs_no_line_of_the_command(monkeypatch):
    spy = Selector(SELECTORS["herding"].function, "mean")
    monkeypatch.setitem(SELECTORS, "newest", spy)
    choice = choose("pool.npz", "--like", "hard.npz", "--method", "newest")
    assert list(choice) == list(spy(POOL, HARD, BUDGET))


@pytest.mark.parametrize("metric", METRICS)
def test_nearest_of_each_class(metric):
    choice = choose("pool.npz", "--like", "hard.npz", "--per-class", "--metric", metric)
    function = SELECTORS["retrieve_nearest"]
    labels = {"labels": LABELS, "hard_labels": HARD_LABELS}
    assert list(choice) == list(function(POOL, HARD, BUDGET, **labels, metric=metric))
    np.save("y.npy", LABELS)
    np.save("hard_y.npy", HARD_LABELS)
    apart = ("--labels", "y.npy", "--like-labels", "hard_y.npy", "--metric", metric)
    again = choose("pool.npz", "--like", "hard.npy", "--per-class", *apart)
    assert list(again) == list(choice)


def test_tables_are_matched_by_name():
    options = ("--label", "label", "--id-column", "id", "--csv", "s.csv")
    choice = choose("pool.csv", "--like", "hard.csv", *options)
    assert {3, 8, 20} <= set(choice)
    table = pd.read_csv("s.csv")
    assert table["index"].tolist() == [f"c{i}" for i in choice]
    assert table["label"].tolist() == ["yes" if LABELS[i] else "no" for i in choice]
    assert facts()["config"]["encoded"]["city"]
    binned = choose(
        "pool.csv", "--like", "hard.csv", "--method", "retrieve_binned", *options
    )
    assert set(list(binned)[:3]) == {3, 8, 20}


def test_columns_of_raw_scales_are_told_and_standardised(capsys):
    scales = np.array([1e5, 1, 1, 1])
    np.save("raw.npy", np.r_[POOL, POOL] * scales)
    np.save("raw_hard.npy", HARD * scales)
    raw = choose("raw.npy", "--like", "raw_hard.npy", "--metric", "l2")
    printed = " ".join(capsys.readouterr().err.split())
    assert "Check: column 0 of POOL varies by" in printed
    even = choose(
        "raw.npy", "--like", "raw_hard.npy", "--metric", "l2", "--standardize"
    )
    assert "Check:" not in capsys.readouterr().err
    deviation = np.r_[POOL, POOL].std(axis=0)
    expected = SELECTORS["retrieve_nearest"](
        np.r_[POOL, POOL] / deviation, HARD / deviation, BUDGET, metric="l2"
    )
    assert list(even) == list(expected) != list(raw)


def test_prepared_data_sets():
    choice = choose("digits:train", "--like", "digits:test", "--per-class")
    assert len(choice) == BUDGET


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pool.npz", "--like", "hard.npy"], "select needs --budget"),
        (
            ["pool.npz", "--like", "hard.npy", "--budget", "41"],
            "--budget must be from 1 to 40, the number of samples, got 41",
        ),
        (["pool.npz", "--method", "omp", "--budget", "3"], "omp needs --like"),
        (
            ["pool.npz", "--method", "log_det", "--like", "hard.npy", "--budget", "3"],
            "log_det compares the pool with itself: leave out --like",
        ),
        (
            ["pool.npz", "--like", "hard.npy", "--budget", "3", "--per-class"],
            "--per-class needs labels of hard.npy",
        ),
        (
            [
                *("pool.npz", "--like", "hard.npz", "--budget", "3"),
                *("--per-class", "--method", "herding"),
            ],
            "herding does not take --per-class; grad_match, retrieve_nearest",
        ),
        (
            [
                *("pool.npz", "--like", "hard.npz", "--budget", "3"),
                *("--metric", "l2", "--method", "omp"),
            ],
            "omp does not take --metric",
        ),
        (
            ["pool.npz", "--like", "hard.npz", "--budget", "3", "--above", "0"],
            "--above and --from are for VALUES",
        ),
        (
            ["pool.npz", "--like", "hard.npz", "--budget", "3", "--labels", "y.npy"],
            "--labels and --like-labels are for --per-class",
        ),
        (
            ["pool.npz", "--metric", "l2", "--budget", "3"],
            "--metric is for samples of a pool: add --like HARD, or --method",
        ),
        (
            ["hard.npy", "--budget", "3"],
            "to choose from samples add --like HARD, or --method",
        ),
        (
            ["digits:train", "--like", "hard.npz", "--budget", "3"],
            "POOL and HARD must both be files, or both prepared data sets",
        ),
        (
            ["pool.npz", "--like", "hard.npz", "--method", "omb", "--budget", "3"],
            "did you mean omp?",
        ),
    ],
)
def test_mistakes_are_named(arguments, message, capsys):
    before = sorted(Path().iterdir())
    assert message in refuse(capsys, "select", *arguments, "--out", "s.npz")
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("ids", [False, True])
def test_labels_of_values_are_found_by_row_or_id(ids, capsys):
    """After --split, without some labels, and in a table of another order."""
    table = pd.read_csv("pool.csv").drop(columns="city")
    table.loc[[2, 9], "label"] = None
    table.to_csv("gaps.csv", index=False)
    names = ["--id-column", "id"] if ids else ["--drop", "id"]
    run(
        *("value", "gaps.csv", "--label", "label", "--split", 0.3, *names),
        *("--drop-unlabelled", "--out", "v.npz"),
    )
    made = ("select", "v.npz", "--per-class", "--budget", 6, "--label", "label")
    run(*made, "--from", "gaps.csv", "--out", "s.npz", "--csv", "s.csv")
    chosen = pd.read_csv("s.csv")
    of_label = table.set_index("id").label if ids else table.label
    assert chosen.label.value_counts().tolist() == [3, 3]
    assert (of_label[chosen["index"]].to_numpy() == chosen.label).all()
    config = json.loads(Path("s.json").read_text())["config"]
    assert config["chosen"] == chosen["index"].tolist()
    table.iloc[[1, 0, *range(2, N)]].to_csv("other.csv", index=False)
    capsys.readouterr()
    run(*made, "--from", "other.csv", "--out", "t.npz", "--csv", "t.csv")
    if ids:
        assert Path("t.csv").read_text() == Path("s.csv").read_text()
        table.drop(index=int(chosen["index"][0][1:])).to_csv("fewer.csv", index=False)
        message = refuse(capsys, *made, "--from", "fewer.csv", "--out", "u.npz")
        assert f"has no id {chosen['index'][0]!r}" in message
    else:
        assert "gaps.csv, another file" in capsys.readouterr().err
