"""`jaxsel market sources`: the table of candidates, values, and refusals."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

import jaxsel

ROWS = [
    ("q1", "a", 0.9, "wiki"),
    ("q1", "b", 0.9, "wiki"),
    ("q1", "NA", 0.2, "news"),
    ("q2", "NA", 0.8, "news"),
    ("q2", "d", 0.7, "forum"),
    ("q3", "d", -1.0, "forum"),
]
FRAME = pd.DataFrame(ROWS, columns=["query", "document", "score", "owner"])
SCORES = np.array(
    [
        [0.9, 0.9, 0.2, np.nan],
        [np.nan, np.nan, 0.8, 0.7],
        [np.nan, np.nan, np.nan, -1.0],
    ]
)
COMMAND = ("market", "sources", "t.csv")
OUT = ("--out", "v.csv")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.sample(frac=1, random_state=0).to_csv("t.csv", index=False)


def table():
    return pd.read_csv("v.csv", index_col=0, keep_default_na=False)


def test_documents_share_the_best_scores(capsys):
    run(*COMMAND, *OUT)
    expected = jaxsel.max_shapley(SCORES)
    found = table().loc[["a", "b", "NA", "d"]]
    np.testing.assert_allclose(found["value"], expected.values, rtol=1e-6)
    np.testing.assert_allclose(found["stderr"], expected.stderr, rtol=1e-6)
    assert found["value"].sum() == pytest.approx((0.9 + 0.8) / 3)
    assert table()["rank"].tolist() == [0, 1, 2, 3]
    out = capsys.readouterr().out
    assert "3 queries, mean best score 0.5667, shared by 4 documents" in out
    assert json.loads(Path("v.json").read_text())["config"]["by_owner"] is False


def test_owners_gain_nothing_by_copies():
    run(*COMMAND, "--by-owner", *OUT)
    expected = jaxsel.max_shapley(SCORES, owners=["wiki", "wiki", "news", "forum"])
    found = table().loc[list(expected.index)]
    np.testing.assert_allclose(found["value"], expected.values, rtol=1e-6)


def test_columns_of_other_names():
    FRAME.rename(columns=str.upper).rename(columns={"SCORE": "s"}).to_csv(
        "t.csv", index=False
    )
    run(*COMMAND, "--score", "s", *OUT)
    assert len(table()) == 4


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({}, ["--out", "v.npz"], "--out must end in .csv"),
        ({}, [*OUT, "--query", "x"], "has no column 'x'; it has 'query', 'document'"),
        ({"score": "high"}, OUT, "in column 'score', but row 0 has 'high'"),
        ({"score": None}, OUT, "must have no gaps"),
        ({"score": np.inf}, OUT, "scores"),
        ({"document": "a"}, [*OUT, "--by-owner"], "one owner for each document"),
    ],
)
def test_refusals(change, options, expected, capsys):
    FRAME.assign(**change).to_csv("t.csv", index=False)
    assert expected in refuse(capsys, *COMMAND, *options)


def test_documents_with_leading_zeros_are_not_numbers():
    Path("t.csv").write_text(
        "query,document,score\n1,01,.5\n1,02,.2\n2,01,.1\n2,1,0.9\n"
    )
    run(*COMMAND, *OUT)
    assert sorted(pd.read_csv("v.csv", dtype=str)["index"]) == ["01", "02", "1"]
