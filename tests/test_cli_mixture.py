"""`jaxsel mixture`: the best mixture of a table of runs, the next ones, refusals."""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel import value

NAMES = ["web", "code", "noise"]
MIXTURES = value.mixture_design(jax.random.key(0), 16, 3)
LOSSES = 1 / (0.1 + MIXTURES[:, 0]) + 1 / (0.1 + MIXTURES[:, 1])
FRAME = pd.DataFrame(MIXTURES, columns=NAMES).assign(loss=LOSSES)
COMMAND = ("mixture", "runs.csv")
OUT = ("--metric", "loss", "--out", "best.csv")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("runs.csv", index=False)


def test_tables_are_those_of_the_response(capsys):
    """Also with a column that is no domain, bounds, and a run that diverged."""
    frame = FRAME.assign(run=[f"r{i}" for i in range(16)])
    frame.loc[3, "loss"] = np.nan
    frame.to_csv("runs.csv", index=False)
    extra = ("--drop", "run", "--upper", "web=0.4", "--upper", "noise=.9")
    extra += ("--next", "3", "--next-out", "next.csv", "--plot", "response.svg")
    run(*COMMAND, *extra, *OUT)
    losses = np.where(np.arange(16) == 3, np.nan, LOSSES)
    with pytest.warns(UserWarning, match="1 of 16 runs have a metric of NaN"):
        response = value.mixture_response(
            MIXTURES, losses, upper=[0.4, 1, 0.9], names=NAMES
        )
    best = response.best()
    table = pd.read_csv("best.csv", index_col="domain")
    assert list(table.index) == NAMES
    np.testing.assert_allclose(table["weight"], best.mixture, atol=1e-6)
    assert table["weight"]["web"] <= 0.4
    np.testing.assert_allclose(table[["low", "high"]], best.weight_intervals, atol=1e-6)
    np.testing.assert_allclose(table["without"], best.without, atol=1e-6)
    np.testing.assert_allclose(table["without_stderr"], best.without_error, atol=1e-6)
    dispensable = table.index[table["dispensable"]]
    assert tuple(dispensable) == best.dispensable == ("noise",)
    proposed = pd.read_csv("next.csv")
    assert list(proposed.columns) == [*NAMES, "loss"]
    np.testing.assert_allclose(proposed[NAMES], response.next_design(3), atol=1e-6)
    assert proposed["loss"].isna().all()
    assert Path("response.svg").stat().st_size > 1000

    manifest = json.loads(Path("best.json").read_text())
    fit = manifest["config"]["response"]
    assert (fit["runs"], fit["diverged"], fit["model"]) == (15, 1, response.model)
    np.testing.assert_allclose(fit["interval"], best.interval, rtol=1e-6)
    assert "1 of 16 runs have a metric of NaN" in manifest["checks"][0]
    said = capsys.readouterr()
    assert said.err.startswith("Check: 1 of 16 runs")
    low, high = best.interval
    assert f"{best.metric:.4g}, 95 % interval {low:.4g} to {high:.4g}" in said.out
    assert "3 mixtures to run next:" in said.out


def test_rounded_weights_are_divided_by_their_sum(capsys):
    FRAME.round(dict.fromkeys(NAMES, 2)).to_csv("runs.csv", index=False)
    run(*COMMAND, *OUT)
    said = capsys.readouterr().err
    assert "runs.csv are rounded to 2 digits, and sum to 0.99 to 1.01" in said
    weight = pd.read_csv("best.csv", index_col="domain").weight
    FRAME.to_csv("runs.csv", index=False)
    run(*COMMAND, *OUT, "--force")
    exact = pd.read_csv("best.csv", index_col="domain").weight
    np.testing.assert_allclose(weight, exact, atol=0.1)


def test_goal_max_finds_the_highest():
    FRAME.assign(loss=-LOSSES).to_csv("runs.csv", index=False)
    run(*COMMAND, "--goal", "max", "--model", "quadratic", *OUT)
    table = pd.read_csv("best.csv", index_col="domain")
    assert table["weight"]["noise"] < 0.1
    assert not Path("next.csv").exists()
    fit = json.loads(Path("best.json").read_text())["config"]["response"]
    assert (fit["model"], fit["log"]) == ("quadratic", False)


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({}, ["--out", "best.npz"], "--out must end in .csv, got 'best.npz'"),
        ({}, [*OUT, "--next-out", "n.txt"], "--next-out must end in .csv"),
        ({}, [*OUT, "--plot", "p.gif"], "--plot must end in .png"),
        ({}, [*OUT, "--next", "0"], "--next must be at least 1, got 0"),
        ({}, [*OUT, "--next-out", "best.csv"], "must not be written twice"),
        ({}, [*OUT, "--metric", "x"], "has no column 'x'; it has 'web', 'code'"),
        ({}, [*OUT, "--drop", "loss"], "must have a column 'loss' and two domains"),
        ({}, [*OUT, "--drop", "web", "--drop", "code"], "two domains or more, got 'no"),
        ({}, [*OUT, "--upper", "web=high"], "--upper must be DOMAIN=WEIGHT with one"),
        ({}, [*OUT, "--upper", "wiki=.2"], "one of web, code, noise, got 'wiki=.2'"),
        ({}, [*OUT, "--upper", "web=-1"], "weights from 0 to 1, got 'web=-1'"),
        ({}, [*OUT, "--upper", "web=2"], "weights from 0 to 1, got 'web=2'"),
        ({}, [*OUT, "--goal", "low"], "must be one of min, max, got 'low'"),
        ({"loss": "low"}, OUT, "in column 'loss', but row 0 has 'low': correct it"),
        ({"site": "a"}, OUT, "in column 'site', but row 0 has 'a': correct it, or"),
        (
            {"run": range(16)},
            OUT,
            "must have weights that sum to 1 in each row, but row 1 sums to 2 over "
            "'web', 'code', 'noise', 'run': leave columns that are no domains out",
        ),
        ({"web": None}, OUT, "sum to 1 in each row, but row 0 sums to nan"),
        ({"web": FRAME.web - 2, "code": FRAME.code + 2}, OUT, "weights of 0 or more"),
        ({"loss": None}, OUT, "metrics of RUNS must have 4 runs or more"),
        ({"loss": 1.0}, OUT, "metrics of RUNS must differ between runs"),
    ],
)
def test_refusals(change, options, expected, capsys):
    FRAME.assign(**change).to_csv("runs.csv", index=False)
    assert expected in refuse(capsys, *COMMAND, *options)
