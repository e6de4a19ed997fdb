"""The study's instance watermark at any size, without retraining."""

import numpy as np
import pytest

from experiments._kit.scenes.valuations import MAX
from experiments.values import large
from experiments.values.large import METHODS, LargeSizes, main, planted_digits
from jaxsel.data import Dataset

RNG = np.random.default_rng(0)
SMALL = ("--n", "60", "--n-val", "20", "--side", "4", "--passes", "4")


def made_up(name, split):
    """Digits whose class is a bright row, a tenth mislabelled, and bright clothes."""
    n = 200 if name == "mnist" else large._FOREIGN
    y = RNG.integers(0, 4, n)
    x = RNG.integers(0, 60, (n, 8, 8, 1))
    if name == "mnist":
        x[np.arange(n), 2 * y] += 150
        y[::10] = RNG.integers(0, 4, len(y[::10]))
    else:
        x += 190
    return Dataset(x=x.astype(np.uint8), y=y, name=name)


@pytest.fixture(autouse=True)
def _data(monkeypatch):
    monkeypatch.setattr(large, "load", made_up)


def test_a_tenth_is_foreign():
    x, y, x_val, y_val, foreign = planted_digits(LargeSizes(100, 50, 4, 4), 0)
    assert foreign.sum() == 10
    assert x.shape == (100, 16)
    assert x_val.shape == (50, 16)
    assert x[foreign].min() > 0.7 > x_val.min()
    assert len(y_val) == 50
    assert set(y) <= set(range(10))
    with pytest.raises(ValueError, match=r"n \+ n_val must be at most 200, .* got 201"):
        planted_digits(LargeSizes(200, 1, 4, 4), 0)


def test_the_command_resumes(tmp_path, capsys, monkeypatch):
    made = []
    real = large.large_value

    def count(sizes, method, seed):
        if method != MAX:
            made.append(method)
            return {"auc": np.array(0.5), "seconds": np.array(2.0)}
        return real(sizes, method, seed)

    monkeypatch.setattr(large, "large_value", count)
    for _ in range(2):
        main([*SMALL, "--out", str(tmp_path)])
    assert made == list(METHODS[1:])
    printed = capsys.readouterr().out
    auc = float(printed.split("max-KNN-Shapley: AUC ")[1].split(" ")[0])
    assert auc > 0.9
    assert "G-Shapley: AUC 0.500 in 2.0 s" in printed
    with pytest.raises(SystemExit):
        main(["--passes", "0"])
    assert "--passes must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_values(method):
    result = large.large_value(LargeSizes(60, 30, 4, 4), method, 0)
    assert 0 <= result["auc"] <= 1
    assert result["seconds"] > 0
