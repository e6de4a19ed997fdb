"""Values that retrain models against scikit-learn and pyDVL."""

import warnings

import jax
import numpy as np
import pytest

from jaxsel import value
from jaxsel.value._exact import exact_semivalue
from jaxsel.value._oob import data_oob
from jaxsel.value._sampling import bootstrap_counts
from jaxsel.value._stopping import MaxSamples

from .games import Game, honest_stderr

KEY = jax.random.key(7)
SAMPLING, _ = jax.random.split(KEY)


@pytest.mark.parametrize("targets", [False, True])
@pytest.mark.every(2)
def test_out_of_bag_values_are_those_of_scikit_learn(targets):
    neighbors, linear = (
        pytest.importorskip(f"sklearn.{name}") for name in ("neighbors", "linear_model")
    )
    rng = np.random.default_rng(0)
    n, count = 15, 40
    x = rng.normal(size=(n, 2)).astype(np.float32)
    y = x[:, 0] + 0.5 * rng.normal(size=n).astype(np.float32)
    if not targets:
        y = np.where(y > 0, "up", "down")
    learner = value.RidgeRegression(l2=1.0) if targets else value.NearestCentroid()
    found = data_oob(learner, x, y, key=KEY, stop=MaxSamples(count), batch_size=16)

    bags = np.asarray(bootstrap_counts(SAMPLING, 0, count=count, n=n)).astype(int)
    told = [[] for _ in range(n)]
    for bag in bags:
        assert bag.sum() == n
        rows, out = np.repeat(np.arange(n), bag), np.flatnonzero(bag == 0)
        if targets:
            model = linear.Ridge(alpha=1.0).fit(x[rows], y[rows])
            score = -((model.predict(x[out]) - y[out]) ** 2)
        else:
            model = neighbors.NearestCentroid().fit(x[rows], y[rows])
            score = model.predict(x[out]) == y[out]
        for i, one in zip(out, score, strict=True):
            told[i].append(float(one))
    np.testing.assert_array_equal(found.count, [len(some) for some in told])
    mean = [np.mean(some) for some in told]
    np.testing.assert_allclose(found.values, mean, rtol=1e-4, atol=1e-5)
    if not targets:  # where all agree, another share may be unseen
        agreed = [len(set(some)) == 1 for some in told]
        assert any(agreed)
        assert not all(agreed)
    column = lambda some: np.array(some, float)[:, None]
    error = [honest_stderr(column(some), float(not targets))[0] for some in told]
    assert min(error) > 0
    np.testing.assert_allclose(found.stderr, error, rtol=1e-3, atol=1e-6)


def test_out_of_bag_values_point_to_wrong_labels():
    rng = np.random.default_rng(1)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 3)) + 3 * y[:, None]
    y[:6] = 1 - y[:6]
    found = data_oob(value.NearestCentroid(), x, y, key=KEY, stop=MaxSamples(64))
    assert set(found.bottom(6)) == set(range(6))


@pytest.mark.parametrize(
    "kind", [("shapley",), ("banzhaf",), ("beta", 16, 1), ("beta", 1, 4)]
)
def test_pydvl_agrees(kind):
    with warnings.catch_warnings():
        # pyDVL uses old names of pyDeprecate's arguments when it is imported.
        warnings.filterwarnings("ignore", category=FutureWarning)
        peer = pytest.importorskip("pydvl.valuation")
    from pydvl.valuation.utility.base import UtilityBase

    game = Game(5, seed=5)

    class Theirs(UtilityBase):
        def __call__(self, sample):
            return 0.0 if sample is None else game.of(np.asarray(sample.subset))

    game.table[0] = 0.0  # what theirs takes the empty set to be
    sampler = peer.DeterministicUniformSampler()
    options = {"sampler": sampler, "is_done": peer.NoStopping(sampler)}
    make = {
        "shapley": lambda: peer.ShapleyValuation(Theirs(), **options),
        "banzhaf": lambda: peer.BanzhafValuation(Theirs(), **options),
        "beta": lambda: peer.BetaShapleyValuation(
            Theirs(), alpha=kind[1], beta=kind[2], **options
        ),
    }
    theirs = make[kind[0]]()
    theirs.fit(peer.Dataset(np.zeros((5, 1)), np.zeros(5)))
    expected = np.asarray(theirs.result.values)
    parameters = dict(zip(("kind", "alpha", "beta"), kind, strict=False))
    found = exact_semivalue(game, **parameters)
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
