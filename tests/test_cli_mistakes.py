"""Mistakes of new users: each message names the thing, and what to do about it."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import OUT, refuse, run
from waits import PATIENCE

RNG = np.random.default_rng(0)
N = 80
NUMBERS = ["--encode", "none"]
LABEL = ["--label", "income"]


def people(n=N):
    age = RNG.normal(45, 12, n)
    return pd.DataFrame(
        {
            "age": age,
            "work": RNG.choice(["private", "state"], n),
            "income": np.where(age > 45, ">50K", "<=50K"),
        }
    )


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = people()
    frame.to_csv("train.csv", index=False)
    people().to_csv("val.csv", index=False)
    frame[:0].to_csv("header.csv", index=False)
    frame.assign(income=frame.income.where(frame.index != 3, "none")).to_csv("lone.csv")
    frame.assign(income=frame.income.where(frame.index != 3)).to_csv("hole.csv")
    frame.assign(name=[f"n{i}" for i in range(N)]).to_csv("names.csv", index=False)
    frame.drop(columns="work").to_csv("narrow.csv", index=False)
    frame.assign(income="rich").to_csv("other.csv", index=False)
    Path("latin.csv").write_bytes("größe,y\nä,1\n".encode("latin1"))
    Path("book.xlsx").write_bytes(b"PK")
    Path("table.txt").write_text("a,b\n1,2\n")
    Path("cut.npz").write_bytes(b"PK\x03\x04 cut")
    np.save("x.npy", np.zeros((5, 2)))
    np.save("objects.npy", np.array([["a", None]], object), allow_pickle=True)


VALUE = ["value", "train.csv", "val.csv", *LABEL]
MISTAKES = {
    "command": (["vlaue"], ["'vlaue': did you mean value?", "jaxsel --help"]),
    "action": (["market", "reqest"], ["did you mean request?", "jaxsel market --help"]),
    "option": (
        [*VALUE, "--standardise", *OUT],
        ["no option --standardise", "mean --standardize?", "jaxsel value --help"],
    ),
    "choice": (
        [*VALUE, "--method", "tmc", *OUT],
        ["--method", "'tmc': did you mean tmc_shapley?"],
    ),
    "one argument too many": (
        [*VALUE[:3], "more.csv", *LABEL, *OUT],
        ["'more.csv' is one argument too many"],
    ),
    "no validation": (["value", "train.csv", *LABEL, *OUT], ["VAL", "--split 0.2"]),
    "both": ([*VALUE, "--split", "0.2", *OUT], ["--split", "leave one of them out"]),
    "percent": (
        ["value", "train.csv", *LABEL, "--split", "20", *OUT],
        ["--split must be a fraction", "such as 0.2, got 20"],
    ),
    "no label column": (
        ["value", "train.csv", "val.csv", *OUT],
        ["train.csv needs --label-column", "age, work, income"],
    ),
    "options of tables": (
        ["errors", "x.npy", "--labels", "x.npy", "--label", "a", "--drop", "b", *OUT],
        ["--label-column, --drop must be left out without a table, got x.npy"],
    ),
    "columns and drop": (
        ["market", "request", "train.csv", *LABEL, "--columns", "age", "--drop", "work"]
        + ["--budget", "5", *OUT],
        ["--columns names the features: leave out --drop"],
    ),
    "one of a class": (
        ["value", "lone.csv", *LABEL, "--split", "0.2", *OUT],
        ["--split 0.2 must", "of 'none' there is one sample: leave it out"],
    ),
    "labels twice": (
        [*VALUE, "--train-labels", "x.npy", *OUT],
        ["--label-column income or from x.npy", "leave one out"],
    ),
    "misspelt column": (
        ["value", "train.csv", "val.csv", "--label", "incme", *OUT],
        ["train.csv has no column 'incme'", "did you mean income?"],
    ),
    "missing file": (
        ["value", "trian.csv", "val.csv", *LABEL, *OUT],
        ["trian.csv is not there", "did you mean train.csv?"],
    ),
    "workbook": (
        ["value", "book.xlsx", "val.csv", *LABEL, *OUT],
        ["book.xlsx must be saved as CSV or parquet"],
    ),
    "suffix": (
        ["value", "table.txt", "val.csv", *LABEL, *OUT],
        ["table.txt must end in", ".csv", "rename it"],
    ),
    "header only": (
        ["value", "header.csv", "val.csv", *LABEL, *OUT],
        ["header.csv has no rows", "is it the right file?"],
    ),
    "latin1": (
        ["value", "latin.csv", "val.csv", "--label", "y", *OUT],
        ["latin.csv is not in UTF-8", "iconv"],
    ),
    "no label": (
        ["value", "hole.csv", "val.csv", *LABEL, *OUT],
        ["hole.csv must have a label in every row", "'income' is empty in row 3"],
    ),
    "names": (
        ["errors", "names.csv", *LABEL],
        ["names.csv: column 'name' has 80 different texts", "--drop", "--id-column"],
    ),
    "columns": (
        ["value", "train.csv", "narrow.csv", *LABEL, *OUT],
        ["narrow.csv has no column 'work'; it has 'age', 'income'"],
    ),
    "other labels": (
        ["value", "train.csv", "other.csv", *LABEL, *OUT],
        ["labels of TRAIN and labels of VAL must share a label", "'rich'"],
    ),
    "market": (
        [*("market", "request", "train.csv", *LABEL, "--budget", "3", *OUT), *NUMBERS],
        ["train.csv must have numeric features, but 'work'", "--drop"],
    ),
    "no labels of arrays": (
        ["value", "x.npy", "x.npy", *OUT],
        ["x.npy holds features only", "--train-labels"],
    ),
    "objects": (
        ["value", "objects.npy", "x.npy", "--train-labels", "x.npy", *OUT],
        ["objects.npy", "x.astype(str)"],
    ),
    "no values": (
        ["select", "train.csv", "--budget", "3", *OUT],
        ["train.csv must be an .npz file that `jaxsel value --out` wrote", "text"],
    ),
    "cut short": (
        ["select", "cut.npz", "--budget", "3", *OUT],
        ["cut.npz", "cut short or damaged"],
    ),
    "learner": (
        [*VALUE, "--learner", "ridge", *OUT],
        ["knn_shapley does not take --learner", "jaxsel value --help"],
    ),
    "neighbours": (
        [*VALUE, "--method", "loo", "--k", "3", *OUT],
        ["loo does not take --k: --k is for knn_shapley", "knn_regression_shapley"],
    ),
    "losses": (
        ["filter", "train.csv", "--benchmark", "val.csv", *OUT],
        ["train.csv needs --column", "age, work, income"],
    ),
    "folder": ([*VALUE, "--out", "no/o.npz"], ["no is not a folder: make it first"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_the_thing_and_the_remedy(name, capsys):
    arguments, parts = MISTAKES[name]
    message = refuse(capsys, *arguments)
    for part in parts:
        assert part in message


def test_gaps_are_named_where_nothing_is_encoded(capsys):
    frame = people()[["age", "income"]]
    frame.loc[7, "age"] = None
    frame.to_csv("gaps.csv", index=False)
    arguments = ["value", "gaps.csv", "val.csv", *LABEL, *OUT]
    message = refuse(capsys, *arguments, "--encode", "none")
    assert "gaps.csv has a gap in column 'age', row 7: do without --encode" in message


def test_what_is_probably_wrong_is_said(capsys):
    frame = people()[["age", "income"]]
    frame.insert(0, "id", np.arange(N) + 100)
    frame["account"] = 2**53 + 2 * RNG.integers(1, 99, N)
    frame.to_csv("ids.csv", index=False)
    run("value", "ids.csv", "ids.csv", *LABEL, *OUT)
    found = capsys.readouterr().err.splitlines()
    assert all(line.startswith("Check: ") for line in found)
    text = "\n".join(found)
    assert "column 'id' of ids.csv numbers the rows" in text
    assert "column 'account' of ids.csv has whole numbers beyond 2^53" in text
    assert "x_val and y_val are x and y" in text
    run("value", "ids.csv", "val.csv", *LABEL, "--drop", "account", "--id-column", "id",
        "--out", "p.npz")  # fmt: skip
    assert "Check: column" not in capsys.readouterr().err


def test_system_errors_name_the_file_that_the_user_knows(capsys, monkeypatch):
    def full(self, target):
        if not self.name.endswith(".npz"):
            return
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "replace", full)
    message = refuse(capsys, *VALUE, *OUT)
    assert "No space left on device: o.npz (free some space" in message


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
@pytest.mark.parametrize("program", [["-m", "jaxsel"], ["jaxsel"]], ids=str)
def test_ctrl_c_while_modules_load(program, tmp_path):
    """The import of jax is made to be interrupted, as by a hand that is quick."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise KeyboardInterrupt\n")
    root = Path(__file__).parents[1]
    if program == ["jaxsel"]:
        (tmp_path / "jaxsel").write_text("from jaxsel.cli import main\nmain()\n")
    done = subprocess.run(
        [sys.executable, *program],
        env={"PYTHONPATH": f"{tmp_path}:{root}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stderr == "jaxsel: interrupted\n"
    assert done.returncode in (130, -signal.SIGINT)
