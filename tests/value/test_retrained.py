"""Every public value that retrains models is registered, and does what all must do."""

import inspect

import jax
import numpy as np
import pytest

from jaxsel import Values, value
from jaxsel.value._retrained import ESTIMATORS

from .games import Game, enumerate_values

KEY, N = jax.random.key(4), 5
NOT_RETRAINED = {"from_pydvl", "streamed_values", "max_shapley", "mmd_values"}
"""These convert values, add up those of chunks, or value points without a model."""
X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
Y = np.arange(16) % 2
GIVEN = {
    "trainings": 2**N,
    "learner": value.LogisticRegression(),
    "x": X[:8],
    "y": Y[:8],
    "x_val": X[8:],
    "y_val": Y[8:],
    "key": KEY,
    "stop": value.MaxSamples(2048),
}


def each_with(*arguments):
    """Take all that have these arguments."""
    names = [n for n, v in ESTIMATORS.items() if v.arguments.issuperset(arguments)]
    assert names
    return pytest.mark.parametrize("name", names)


def test_each_is_registered():
    signatures = {
        name: inspect.signature(function)
        for name, function in vars(value).items()
        if inspect.isfunction(function)
    }
    values = {
        name
        for name, signature in signatures.items()
        if signature.return_annotation in ("Values", Values)
    }
    nearest = {name for name in values if "ties" in signatures[name].parameters}
    assert ESTIMATORS.keys() == values - nearest - NOT_RETRAINED
    for name, entry in ESTIMATORS.items():
        assert entry.function is getattr(value, name)


@each_with("utility")
def test_semivalues_equal_enumeration(name):
    entry, game = ESTIMATORS[name], Game(N, seed=3)
    if entry.kind == "loo":
        everything = list(range(N))
        rest = [[i for i in everything if i != j] for j in everything]
        exact = [game.of(everything) - game.of(some) for some in rest]
    else:
        parameters = (4, 2) if entry.kind == "beta" else ()
        exact = enumerate_values(game, entry.kind, *parameters)
    found = entry.bound(utility=game, alpha=4, beta=2, **GIVEN)(**entry.unbiased)
    error = np.abs(np.asarray(found.values) - exact)
    stderr = 0 if found.m2 is None else np.nan_to_num(found.stderr)
    assert (error <= 4.5 * stderr + 1e-5).all()
    assert np.max(stderr) < 0.1


@each_with("utility")
def test_utilities_that_are_no_numbers_are_refused(name):
    game = value.as_utility(lambda masks, key: np.full(len(masks), np.nan), N)
    with pytest.raises(ValueError, match="utility must return finite numbers, got nan"):
        ESTIMATORS[name].bound(utility=game, **GIVEN)()


@each_with("x")
def test_samples_that_are_no_numbers_are_refused(name):
    x = GIVEN["x"].copy()
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="x must be finite, but row "):
        ESTIMATORS[name].bound(**{**GIVEN, "x": x})()


@each_with("batch_size")
def test_batches_set_no_results(name):
    given = {**GIVEN, "utility": Game(N), "learning_rate": 0.3}
    call = ESTIMATORS[name].bound(**{**given, "stop": value.MaxSamples(20)})
    for a, b in zip(
        jax.tree.leaves(call(batch_size=3)), jax.tree.leaves(call()), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
