"""The command line of the market: mistakes of users, and gains by chance, are told."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run
from market_cases import QUICK, RANK, ask, draw, files as files, normal, reply, save

from jaxsel._cli._checks import leaking_columns
from jaxsel.market import Answer, Request

YES = ("--label-column", "rich")


def people(n, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(40, 10, n), "pay": rng.lognormal(3, 1, n)})
    return frame.assign(
        rich=np.where(frame.age + rng.normal(0, 5, n) > 42, "yes", "no")
    )


def tables():
    val = people(120, 0)
    val["guess"] = np.where(normal(120) > 0.7, "no", "yes")
    val.to_csv("val.csv", index=False)
    people(60, 1).to_csv("own.csv", index=False)


REQUEST = ("market", "request", "val.csv", *YES, "--budget", 8, "--out", "r.npz")
WITH = ("--predictions", "val.csv", "--prediction-column", "guess")
WITH += ("--held-out-to", "held.npz")
OWN = ("market", "answer", "r.npz", "own.csv", *YES, "--owner", "o", "--out", "a.npz")


@pytest.mark.left_out
def test_the_prediction_column_is_no_feature(capsys):
    tables()
    run(*REQUEST, *WITH)
    assert Request.load("r.npz").schema.columns == ("age", "pay")
    said = "column 'guess' of val.csv holds the predictions, and is no feature"
    assert f"Check: {said}\n" in capsys.readouterr().err
    assert said in json.loads(Path("r.json").read_text())["checks"]
    run(*OWN)  # whose table has no predictions
    assert len(Answer.load("a.npz", Request.load("r.npz"))) == 8
    error = refuse(capsys, *REQUEST, *WITH, "--columns", "age,guess", "--force")
    assert "--columns must not name 'guess', the --prediction-column" in error


def leaks(y, /, **columns):
    return leaking_columns("val.csv", pd.DataFrame(columns), y, "--drop")


RNG = np.random.default_rng(0)
LABEL = np.array(["no", "yes"])[RNG.integers(0, 2, 200)]
ONE = (LABEL == "yes").astype(float)
TELLING = {
    "itself": LABEL,
    "a copy in capitals": np.char.upper(LABEL),
    "numbers": ONE,
    "noise": ONE + RNG.normal(0, 0.01, 200),
    "logits": 9 * ONE + RNG.random(200),
    "one error": np.where(np.arange(200) == 7, 1 - ONE, ONE),
    "categories": np.where(ONE == 1, RNG.choice(["a", "b"], 200), "c"),
}


@pytest.mark.parametrize("kind", TELLING)
def test_a_column_that_tells_the_label_is_told(kind):
    (line,) = leaks(LABEL, a=RNG.random(200), b=TELLING[kind])
    assert line.startswith(
        "column 'b' of val.csv alone tells the label of nearly every"
    )
    assert line.endswith("leave it out with --drop")


HONEST = {
    "independent": RNG.random(200),
    "a threshold": np.where(ONE == 1, 0.5, 0.0) + RNG.random(200) / 2,
    "good": ONE + RNG.normal(0, 1, 200),
    "right in 9 of 10": np.where(RNG.random(200) < 0.1, 1 - ONE, ONE),
    "distinct texts": [f"name {i}" for i in range(200)],
    "constant": np.zeros(200),
    "gaps": np.where(RNG.random(200) < 0.5, np.nan, 1.0),
}


@pytest.mark.parametrize("kind", HONEST)
def test_honest_columns_are_not(kind):
    assert leaks(LABEL, b=HONEST[kind]) == []
    rare = np.where(np.arange(200) < 5, "yes", "no")
    assert leaks(rare, b=HONEST[kind]) == []


@pytest.mark.parametrize(
    "name",
    ["pred", "Prediction", "y_pred", "y_hat", "predicted", "prob", "proba_1", "score"]
    + ["predicted_label", "model prediction", "probability", "label.pred"],
)
def test_a_column_called_like_a_prediction_is_told(name):
    for y in (LABEL, None):
        (line,) = leaks(y, **{name: RNG.random(200)})
        assert f"column {name!r} of val.csv is called like a prediction" in line


@pytest.mark.parametrize("name", ["predator", "problem", "scorer", "hatch", "age", "y"])
def test_other_names_are_not(name):
    assert leaks(LABEL, **{name: RNG.random(200)}) == []


@pytest.mark.left_out
def test_every_command_checks_features(capsys):
    people(120, 0).assign(copy=lambda t: t.rich.str.upper()).to_csv(
        "t.csv", index=False
    )
    run("errors", "t.csv", *YES, "--encode", "auto", "--out", "e.npz")
    assert "Check: column 'copy' of t.csv alone tells the label" in (
        capsys.readouterr().err
    )


@pytest.mark.left_out
def test_labels_in_another_case_are_an_error(capsys):
    tables()
    run(*REQUEST, "--drop", "guess")
    own = pd.read_csv("own.csv")
    for spell in (str.upper, str.title, " {}".format):
        own.assign(rich=own.rich.map(spell)).to_csv("own.csv", index=False)
        error = refuse(capsys, *OWN)
        classes = "labels of DATA must hold classes of the request, 'no', 'yes'"
        assert f"{classes}, but has only " in error
        assert "case or blanks only" in error
    own.assign(rich=(own.rich == "yes").astype(int)).to_csv("own.csv", index=False)
    error = refuse(capsys, *OWN)
    assert "texts as in the request ('no', 'yes')" in error
    assert "(0, 1)" in error
    assert not Path("a.npz").exists()
    own.loc[:4, "rich"] = "Yes"
    own.to_csv("own.csv", index=False)
    capsys.readouterr()
    run(*OWN)
    said = "Check: 5 of 60 labels ('Yes') are none of the request's classes"
    assert said in capsys.readouterr().err


def test_nothing_sent_is_told(capsys):
    ask()
    capsys.readouterr()
    assert len(reply("south")) == 0
    said = (
        "nothing is sent: there are no more samples of the classes asked, 2; DATA has "
    )
    said += "0, 1"
    assert capsys.readouterr().err == f"Check: {said}\n"
    assert json.loads(Path("from_south.json").read_text())["checks"] == [said]


@pytest.mark.left_out
def test_gains_by_chance_are_told(capsys):
    """An owner with shuffled labels, who may come first; and nobody gains."""
    ask()
    save("held", *draw(5, 5, 5))
    x, y = draw(30, 30, 30)
    save("shuffled", x, np.random.default_rng(0).permutation(y))
    for name in ("north", "shuffled"):
        reply(name)
    save("train", *draw(60, 60, 60))
    capsys.readouterr()
    files = ["from_north.npz", "from_shuffled.npz"]
    run(*RANK, *files, "--train", "train.npz", *QUICK, "--out", "ranking.json")
    shown = capsys.readouterr().out
    nobody = "no owner is better than without any answer by more than chance on 15"
    assert f"Check: {nobody}" in shown
    assert "cannot be told apart from" in shown
    ranking = json.loads(Path("ranking.json").read_text())
    assert ranking["conclusions"][0].startswith(nobody)
    first, second = ranking["ranking"]
    assert first["level_with"] == [second["owner"]]
    assert not first["beyond_chance"]
    assert first["p_value"] > 0.05


@pytest.mark.left_out
def test_a_gain_beyond_chance_is_told(capsys):
    ask()
    for name in ("north", "south"):
        reply(name)
    options = ["--train", "train.npz", "--without-shown", *QUICK]
    capsys.readouterr()
    run(*RANK, "from_north.npz", "from_south.npz", *options, "--out", "ranking.json")
    shown = capsys.readouterr().out
    assert (
        "'north' is better than without any answer by more than chance on 25" in shown
    )
    assert "Check" not in shown
    north, south = json.loads(Path("ranking.json").read_text())["ranking"]
    assert north["beyond_chance"]
    assert north["p_value"] < 0.01
    assert north["level_with"] == south["level_with"] == []


def test_a_prediction_column_needs_its_file(capsys):
    tables()
    error = refuse(capsys, *REQUEST, "--prediction-column", "guess")
    assert "--prediction-column guess is a column of --predictions: name that" in error
