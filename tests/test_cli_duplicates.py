"""`jaxsel duplicates`: what it reads, finds, writes and refuses."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import refuse, run

from jaxsel import retrieve

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
X[50:] = X[:10] + 0.01 * RNG.normal(size=(10, 8))
TEST = np.concatenate([RNG.normal(size=(7, 8)), X[20:23]])


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.savez("test.npz", x=TEST)
    for name, rows in ("x", X), ("test", TEST):
        frame = pd.DataFrame(rows, columns=[f"f{i}" for i in range(8)])
        frame["id"] = [f"{name}{i}" for i in range(len(rows))]
        frame["label"] = "a"
        frame.to_csv(f"{name}.csv", index=False)


def facts():
    return json.loads(Path("duplicates/manifest.json").read_text())


def test_one_table(capsys):
    run("duplicates", "x.npy")
    table = pd.read_csv("duplicates/duplicates.csv")
    assert table.row.tolist() == [row for i in range(10) for row in (i, 50 + i)]
    assert table.partner.tolist() == [row for i in range(10) for row in (50 + i, i)]
    result = retrieve.NearDuplicates.load("duplicates/duplicates.npz")
    assert repr(result) == repr(retrieve.duplicates(X, threshold=0.95))
    assert "10 groups of 20 rows" in capsys.readouterr().out
    page = Path("duplicates/report.html").read_text()
    assert "10 of 60 rows are near-duplicates of others" in page
    numbers = json.loads(Path("duplicates/report.json").read_text())["chapters"][0]
    assert numbers["data"]["keep"] == list(range(50))
    assert len(numbers["tables"][0]["rows"]) == 20
    assert facts()["config"]["threshold"] == 0.95


def test_leaks_of_tables(capsys):
    options = ("--label", "label", "--id-column", "id", "--groups", 2)
    run("duplicates", "x.csv", "--against", "test.csv", *options)
    table = pd.read_csv("duplicates/duplicates.csv", keep_default_na=False)
    leaks = table[table["table"] == "x_val"]
    assert leaks.row.tolist() == [7, 8, 9]
    assert leaks.partner.tolist() == [20, 21, 22]
    assert leaks.id.tolist() == ["test7", "test8", "test9"]
    assert leaks.partner_id.tolist() == ["x20", "x21", "x22"]
    assert "3 leaked [7, 8, 9]" in capsys.readouterr().out
    page = Path("duplicates/report.html").read_text()
    assert "3 of 10 rows of the second table leak" in page
    assert "1 more groups are not shown" in page
    assert "x20" in page
    assert [entry["role"] for entry in facts()["inputs"]] == ["table", "test"]


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_options(metric):
    threshold = 0.999 if metric == "cosine" else 0.05
    options = ("--metric", metric, "--threshold", threshold, "--no-report")
    run("duplicates", "x.npy", "--against", "test.npz", *options)
    result = retrieve.NearDuplicates.load("duplicates/duplicates.npz")
    expected = retrieve.duplicates(X, TEST, threshold=threshold, metric=metric)
    assert repr(result) == repr(expected)
    assert not Path("duplicates/report.html").exists()


def test_columns_on_one_scale(capsys):
    frame = pd.DataFrame(X)
    frame[8] = 1e6 * RNG.normal(size=60)
    frame.to_csv("raw.csv", index=False)
    run("duplicates", "raw.csv", "--metric", "l2", "--threshold", 1, "--no-report")
    assert "Check: column 8 of TABLE varies by" in capsys.readouterr().err
    options = ("--standardize", "--metric", "l2", "--threshold", 0.1, "--force")
    run("duplicates", "raw.csv", *options)
    assert "Check" not in capsys.readouterr().err


def test_pictures_are_shown():
    pictures = RNG.random((30, 6, 5)).astype(np.float32)
    pictures[20:] = pictures[:10]
    np.save("pictures.npy", pictures)
    run("duplicates", "pictures.npy", "--threshold", 1)
    assert "image/png" in Path("duplicates/report.html").read_text()


def test_nothing_found(capsys):
    np.save("x.npy", np.eye(6))
    run("duplicates", "x.npy")
    assert "0 groups of 0 rows" in capsys.readouterr().out
    assert "0 of 6 rows" in Path("duplicates/report.html").read_text()
    assert len(pd.read_csv("duplicates/duplicates.csv")) == 0


def test_mistakes(capsys):
    for arguments, message in (
        (("x.npy", "--metric", "l2"), "needs --threshold"),
        (("x.npy", "--threshold", "2"), "threshold must be at most 1"),
        (("x.npy", "--groups", "0"), "--groups must be at least 1, got 0"),
        (("none.npy",), "none.npy"),
        (("x.npy", "--out", "test.npz"), "is a file: --out names a folder"),
        (("x.npy", "--metric", "l1"), "must be one of"),
    ):
        assert message in refuse(capsys, "duplicates", *arguments)
    run("duplicates", "x.npy", "--no-report")
    assert "--force replaces it" in refuse(capsys, "duplicates", "x.npy")


def test_a_chapter_refuses_columns_of_other_lengths():
    result = retrieve.duplicates(X, threshold=0.9)
    with pytest.raises(ValueError, match="name must have one entry for each of the 60"):
        result.chapter({"name": np.arange(59)})
    with pytest.raises(ValueError, match="images must have one entry"):
        result.chapter(images=np.zeros((3, 4, 4)))
    with pytest.raises(ValueError, match="budget must be at least 1"):
        result.chapter(budget=0)
    chapter = result.chapter(pd.DataFrame({"text": ["long " * 100] * 60}), budget=3)
    assert len(chapter.blocks[-1].rows) == 6
    assert max(len(row[-1]) for row in chapter.blocks[-1].rows) == 200
