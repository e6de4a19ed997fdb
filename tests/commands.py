"""What the tests of the command line share."""

from pathlib import Path

import numpy as np

import experiments.__main__
from jaxsel.cli import main

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(40, 4)), RNG.normal(size=(11, 4))
Y, Y_VAL = RNG.integers(0, 3, 40), RNG.integers(0, 3, 11)

OUT = ["--out", "o.npz"]


def write_samples():
    np.savez("train.npz", x=X, y=Y)
    np.savez("val.npz", x=X_VAL, y=Y_VAL)


def run(*arguments, main=main):
    assert main([str(a) for a in arguments]) == 0


def refuse(capsys, *arguments, main=main):
    """Run into an error, and return the one line that reports it."""
    before = sorted(Path().rglob("*"))
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as error:
        status = error.code
    assert status == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len([line for line in lines if not line.startswith("Check: ")]) == 1, lines
    assert "error: " in captured.err
    assert sorted(Path().rglob("*")) == before, "something was left behind"
    return captured.err


def experiment(*arguments):
    run(*arguments, main=experiments.__main__.main)


def refuse_experiment(capsys, *arguments):
    return refuse(capsys, *arguments, main=experiments.__main__.main)
