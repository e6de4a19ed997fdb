"""Errors name options, files and positionals, not the arguments of functions."""

import argparse

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel._cli._messages import explain_error

RNG = np.random.default_rng(0)
N, N_VAL = 60, 20


def points(n):
    x = RNG.normal(size=(n, 4)).astype(np.float32)
    return x, np.where(x[:, 0] > 0, "up", "down")


def probabilities(n, classes):
    return RNG.dirichlet(np.ones(classes), n)


def mixtures(n):
    frame = pd.DataFrame(probabilities(n, 3), columns=["a", "b", "c"])
    return frame.assign(loss=frame.a**2 + 0.01 * RNG.normal(size=n))


@pytest.fixture(scope="module", autouse=True)
def _files(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("names"))
        (x, y), (x_val, y_val) = points(N), points(N_VAL)
        for name, array in {"x": x, "y": y, "xv": x_val, "yv": y_val}.items():
            np.save(f"{name}.npy", array)
        np.savez("tr.npz", x=x, y=y)
        np.savez("va.npz", x=x_val, y=y_val)
        np.savez("numbers.npz", x=x, y=x[:, 0])
        np.savez("gap.npz", x=np.where(np.arange(N)[:, None] == 7, np.nan, x), y=y)
        np.savez("gap_val.npz", x=np.where(x_val == x_val[7], np.nan, x_val), y=y_val)
        for rows, columns in ((N, 2), (N, 3), (2 * N, 2)):
            np.save(f"p{rows}_{columns}.npy", probabilities(rows, columns))
        np.savez("probs.npz", probs=probabilities(N, 2))
        np.save("losses.npy", np.where(np.arange(N) == 3, np.nan, 1.0))
        frame = pd.DataFrame(x[:, :3], columns=["age", "spend", "visits"])
        frame.assign(segment=y).to_csv("pool.csv", index=False)
        wrong = np.arange(N) < 4
        frame.assign(segment=(y == "up") != wrong).to_csv("bool.csv", index=False)
        mixtures(3).to_csv("mix3.csv", index=False)
        mixtures(20).to_csv("mix.csv", index=False)
        run("value", "tr.npz", "va.npz", "--reduce", "none", "--out", "rows.npz")
        yield


VALUE = "value tr.npz va.npz --out o.npz"
ERRORS = "errors pool.csv --label segment --no-report --out o"
SELECT = "select x.npy --like xv.npy --budget 5 --per-class --out o.npz"
ATTRIBUTE = "attribute tr.npz va.npz --networks 1 --epochs 2 --out o.npz"
ASK = "market value ask va.npz --radius 1 --out o.npz --owners"
MIXTURE = "--metric loss --out o.csv"
# A command, what its error says, and what it must not say.
CASES = [
    (f"{ERRORS} --rank-by data_oob", "--seed must be given for --rank-by", "key"),
    (
        f"{ERRORS} --pred-probs p60_3.npy",
        "--pred-probs must have a column of each label, in sorted order, but has 3 "
        "columns, and TABLE 2 labels, 'down', 'up'",
        "classes must",
    ),
    (
        f"{ERRORS} --pred-probs p60_2.npy --rank-by knn_shapley",
        "--features must be given for --rank-by 'knn_shapley'",
        "TABLE",
    ),
    (f"{ERRORS} --pred-probs probs.npz", "--pred-probs must be called so", "-key"),
    (f"{ERRORS} --pred-probs p120_2.npy", "--pred-probs and labels of TABLE", "_"),
    (f"{ERRORS} --features xv.npy", "--features and labels of TABLE must", "x and"),
    (f"{ERRORS} --folds 1", "--folds must be at least 2", " folds"),
    (f"{ERRORS} --folds 99", "--folds must be at most the 60 samples", " folds"),
    (f"{ERRORS} --min-per-class -1", "--min-per-class must be at least 0", "min_"),
    ("errors gap.npz --no-report", "TABLE must be finite, but row 7", "x must"),
    (
        "errors numbers.npz --no-report",
        "see jaxsel value --method knn_regression_shapley",
        "y must",
    ),
    (
        f"{VALUE} --method tmc_shapley --score r2 --samples 3",
        "--score 'r2' is for numeric targets, and --learner logistic predicts classes",
        "metric",
    ),
    (
        f"{VALUE} --method loo --learner ridge --score roc_auc",
        "--score 'roc_auc' needs probabilities, which --learner ridge does not give",
        "metric",
    ),
    (
        "value numbers.npz va.npz --method loo --out o.npz",
        "for numeric targets use --score r2 and --learner ridge",
        "metric",
    ),
    (f"{VALUE} --k 0", "error: --k must be at least 1, got 0", " k "),
    (f"{VALUE} --chunk-size 0", "--chunk-size must be at least 1", "chunk_size"),
    (
        f"{VALUE} --method soft_knn_shapley --n-classes 1",
        "--n-classes must be at least 2, the number of classes in labels of TRAIN and "
        "labels of VAL",
        "y_val",
    ),
    (
        f"{VALUE} --method knn_regression_shapley",
        "labels of TRAIN must be numeric, got dtype <U4, ",
        "t_val",
    ),
    ("value gap.npz va.npz --out o.npz", "TRAIN must be finite, but row 7", "x must"),
    (
        "select rows.npz --budget 3 --out o.npz",
        "rows.npz has a value for each sample of VAL: write one of each sample of "
        "TRAIN with `jaxsel value --reduce mean`",
        "reduce=",
    ),
    (
        f"{SELECT} --labels y.npy --like-labels y.npy",
        "--like-labels must hold one class for each sample, shape (20,), got (60,)",
        "hard_labels",
    ),
    (f"{SELECT} --labels y.npy", "labels of xv.npy: see --like-labels", "--labels"),
    (
        "select tr.npz --like va.npz --budget 5 --per-class --labels yv.npy --out "
        "o.npz",
        "--labels must hold one class for each sample, shape (60,), got (20,)",
        " labels",
    ),
    (
        "select pool.csv --like x.npy --label segment --budget 5 --out o.npz",
        "POOL and HARD must have the same number of features, got 3 and 4",
        "TRAIN",
    ),
    (
        "select gap.npz --like va.npz --budget 5 --out o.npz",
        "POOL must be finite, but row 7",
        "features",
    ),
    (
        "select tr.npz --like gap_val.npz --budget 5 --out o.npz",
        "HARD must be finite, but row 7",
        "features",
    ),
    (
        "select gap.npz --method log_det --budget 5 --out o.npz",
        "POOL must be finite, but row 7",
        "oracle",
    ),
    (
        "select tr.npz --like va.npz --method retrieve_targeted --metric l2 --budget 5 "
        "--out o.npz",
        "retrieve_targeted compares cosines: leave out --metric l2",
        "lambda",
    ),
    (
        f"{ASK} a,b",
        "--needed must be 3 or more, got --needed 2 of 2 owners: with two, each sees "
        "the other's counts in the sums; set --allow-two to accept that",
        "True",
    ),
    (f"{ASK} a,a,b", "--owners must be two or more distinct names", " owners must"),
    (f"mixture mix3.csv {MIXTURE}", "metrics of RUNS must have 4 runs", "metrics must"),
    (
        f"mixture mix.csv {MIXTURE} --upper a=.1 --upper b=.1 --upper c=.1",
        "--upper must sum to 1 or more",
        " upper",
    ),
    (
        f"{ATTRIBUTE} --rate 1e9",
        "lower --rate, or --standardize the columns of TRAIN",
        "recipe",
    ),
    (
        "duplicates x.npy --threshold 1.5 --no-report",
        "--threshold must be at most 1 with --metric cosine, got 1.5",
        "=",
    ),
    ("duplicates gap.npz --no-report", "TABLE must be finite, but row 7", "x must"),
    (
        "duplicates x.npy --against gap_val.npz --no-report",
        "TEST must be finite, but row 7",
        "x_val",
    ),
    (
        "filter losses.npy --benchmark losses.npy --out o.npz",
        "--benchmark must be finite",
        "benchmark_losses",
    ),
    (
        "market request va.npz --budget 0 --out o.npz",
        "--budget must be at least 1",
        " budget",
    ),
    (
        "market request va.npz --budget 3 --predictions y.npy --held-out-to h.npz "
        "--out o.npz",
        "--predictions and labels of DATA must have the same length, got 60 and 20",
        "predictions and labels must",
    ),
    (
        f"{VALUE} --n-classes 3",
        "knn_shapley does not take --n-classes: --n-classes is for soft_knn_shapley, "
        "threshold_knn_shapley;",
        "learner",
    ),
    (
        f"{VALUE} --method knn_regression_shapley --hybrid",
        "--hybrid is for knn_shapley, knn_banzhaf, ",
        "learner",
    ),
    (
        f"{VALUE} --method loo --samples 3",
        "loo does not take --samples: --samples is for tmc_shapley, ",
        "loo,",
    ),
    ("value digits:tset digits:test --out o.npz", "digits:tset: split must", "--split"),
    ("value digits:train[9:9] va.npz --out o.npz", "split must hold samples", "--"),
]


@pytest.mark.parametrize(
    ("command", "says", "never"), CASES, ids=[command for command, *_ in CASES]
)
def test_errors_name_what_the_user_typed(command, says, never, capsys):
    message = refuse(capsys, *command.split())
    assert says in message
    assert never not in message


def explained(message, *, module="jaxsel.value._knn", **options):
    """Explain an error that a function of a module raises."""
    parser = argparse.ArgumentParser()
    for name in options:
        parser.add_argument(f"--{name.replace('_', '-')}")
    words = {"x": "TRAIN", "the step of x": "--step"}
    args = argparse.Namespace(parser=parser, words=words, **options)
    scope = {"__name__": module}
    exec("def fail(message): raise ValueError(message)", scope)
    try:
        scope["fail"](message)
    except ValueError as error:
        return explain_error(error, args)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("k must be 1, got k = 0", "--k must be 1, got --k 0"),
        ("k and x must be 1", "--k and TRAIN must be 1"),
        ("pass metric='l2' with 2 of k", "pass --metric l2 with 2 of k"),
        ("set chunk_size, the metric or k", "set --chunk-size, the metric or k"),
        ("lower the step of x of x", "lower --step of TRAIN"),
        ("'the step of x' of the step of xs", None),
        # Words of files and users, shapes, and options without a value.
        ("x.npy, a/x and x/a of 'x' or \"k must\"", None),
        ("column 'k must' has shape [x, 4], index has x_axis", None),
        ("budget must be 1", None),
        ("metric=None is for mean k", None),
    ],
)
def test_words_are_translated_where_they_are_arguments(message, shown):
    options = {"k": 0, "metric": "l2", "chunk_size": 3, "budget": None}
    assert explained(message, **options) == (shown or message)


def test_only_messages_of_functions_are_translated():
    for module in ("jaxsel._cli._read", "numpy", "experiments.run"):
        assert explained("k must be 1", module=module, k=0) == "k must be 1"


def test_a_path_is_no_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    assert explained("x must hold .npy files", k=0) == "x must hold .npy files"


def test_labels_keep_the_values_of_the_table(capsys):
    run("errors", "bool.csv", "--label", "segment", "--no-report", "--out", "kinds")
    table = pd.read_csv("kinds/errors.csv", dtype=str)
    assert len(table)
    assert {*table.given} | {*table.suggested} == {"False", "True"}


def test_slices_of_digits(capsys):
    run("value", "digits:train[:100]", "digits:test[-10%:]", "--out", "digits.npz")
    assert "n=100, count=36," in capsys.readouterr().out
