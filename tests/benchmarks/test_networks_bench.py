"""Attributions of further networks: torch's twins, and what must be reached."""

import jax
import numpy as np
import pytest

from benchmarks import _dattri, _networks, networks
from benchmarks._setups import Data


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(_networks.cnn(), 64), (_networks.perceptron(5, 4, 10), 5)],
)
def test_twins_in_torch_have_the_same_losses(model, inputs):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, inputs)).astype(np.float32), np.arange(6)
    init, apply = model
    params = init(jax.random.key(0), x)
    losses = -jax.nn.log_softmax(apply(params, x))[np.arange(6), y]
    samples = Data(x, y, x, y)
    _dattri.Twins([params], samples, np.asarray(losses)[None])
    with pytest.raises(ValueError, match="torch's losses differ from jaxsel's by 1"):
        _dattri.Twins([params], samples, np.asarray(losses)[None] + 1)


def result(mean, error):
    return {"mean": mean, "errors": (error / 2, error)}


def test_verdicts_take_the_larger_errors_of_both():
    results = {"ours": result(0.6, 0.03), "a": result(0.5, 0.04), "b": result(0.4, 0)}
    (line,) = networks.verdicts(None, results, ["ours"], ["a", "b"])
    assert line.startswith("ours is above a by 0.100 ± 0.050")
    assert line.endswith("missed")
    results["a"] = result(0.49, 0.04)
    (line,) = networks.verdicts(None, results, ["ours"], ["a"])
    assert line.endswith("reached")
    (line,) = networks.verdicts(0.7, results, ["ours", "a"], [])
    assert line == "ours 0.600, must be ≥ 0.7: missed"


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(_networks.cnn(), 64), (_networks.perceptron(5, 4, 10), 5)],
)
def test_inputs_of_the_last_layer(model, inputs):
    x = np.random.default_rng(0).normal(size=(6, inputs)).astype(np.float32)
    init, apply = model
    params = init(jax.random.key(0), x)
    hidden = _networks.last_inputs(params, apply, x)
    last = params["out"] if isinstance(params, dict) else params[-1]
    assert hidden.shape == (6, len(last) - 1)
    outputs = hidden @ last[:-1] + last[-1]
    np.testing.assert_allclose(outputs, apply(params, x), rtol=1e-5, atol=1e-6)


def test_bm25_prefers_rare_words_in_common():
    pytest.importorskip("bm25s")
    texts = ["the engine and the orbit", "an orbit", "engines of hockey", "orbit orbit"]
    scores = _networks.bm25(texts, ["A hockey game in orbit", "nothing"])
    assert scores.shape == (2, 4)
    assert scores[0].argmax() == 2
    assert (scores[1] == 0).all()
