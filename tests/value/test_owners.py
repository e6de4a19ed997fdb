"""Owners as players, and sums over their points."""

import functools
import itertools

import jax
import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel import Values, value
from jaxsel.value._retrained import ESTIMATORS

from . import cases
from .games import Game, enumerate_values

pytestmark = pytest.mark.every(2)

KEY = jax.random.key(2)
OWNERS = np.array(["b", "a", "b", "c", "a", "b", "d"])
NAMES = ("b", "a", "c", "d")
BETA = {"alpha": 4, "beta": 2}
SAMPLED = [n for n, e in ESTIMATORS.items() if {"owners", "stop"} <= e.arguments]
KNN = {
    "knn_shapley": jaxsel.knn_shapley,
    "knn_banzhaf": jaxsel.knn_banzhaf,
    "knn_loo": jaxsel.knn_loo,
    "knn_beta_shapley": jaxsel.knn_beta_shapley,
    "soft_knn_shapley": jaxsel.soft_knn_shapley,
    "threshold": lambda *a, k, **o: jaxsel.threshold_knn_shapley(*a, radius=1.0, **o),
    "hybrid": lambda *a, **o: jaxsel.knn_shapley(*a, method="hybrid", **o),
}


def game_of_owners(game, owners=OWNERS):
    """The table of the game of owners, from that of points: by brute force."""
    names = list(dict.fromkeys(owners.tolist()))
    table = []
    for index in range(2 ** len(names)):
        some = {name for i, name in enumerate(names) if index >> i & 1}
        table.append(game.of([i for i, o in enumerate(owners) if o in some]))
    return Game(len(names), table=table)


def knn_game(data, k, owners):
    """The same of the utility of KNN values, by sorting anew for every coalition."""
    names = list(dict.fromkeys(owners))
    table = []
    for index in range(2 ** len(names)):
        some = [i for i, o in enumerate(owners) if index >> names.index(o) & 1]
        total = 0.0
        for x, y in zip(data.x_val, data.y_val, strict=True):
            apart = ((data.x[some].astype(float) - x.astype(float)) ** 2).sum(1)
            near = np.argsort(apart, kind="stable")[:k]
            total += (data.y[some][near] == y).sum() / k
        table.append(total / len(data.y_val))
    return Game(len(names), table=table)


def sampled(name, utility, count):
    entry = ESTIMATORS[name]
    options = {"key": KEY, "stop": value.MaxSamples(count), **BETA}
    return functools.partial(entry.bound(utility=utility, **options), **entry.unbiased)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_values_of_owners(name):
    game, kind = Game(7, seed=3), ESTIMATORS[name].kind
    options = BETA if kind == "beta" else {}
    exact = enumerate_values(game_of_owners(game), kind, **options)
    found = sampled(name, game, 2048)(owners=OWNERS)
    assert found.index == NAMES
    error = np.abs(found.values - exact)
    assert (error <= 4.5 * np.asarray(found.stderr) + 1e-5).all()
    assert found.stderr.max() < 0.1


@pytest.mark.parametrize("kind", [("shapley",), ("banzhaf",), ("beta", 4, 2)], ids=str)
def test_exact_values_of_owners(kind):
    game = Game(7, seed=4)
    options = dict(zip(("kind", "alpha", "beta"), kind, strict=False))
    found = value.exact_semivalue(game, owners=OWNERS, **options)
    exact = enumerate_values(game_of_owners(game), *kind)
    np.testing.assert_allclose(found.values, exact, atol=1e-6)
    assert found.index == NAMES
    assert found.to_pandas().loc["c", "value"] == found.values[2]


def test_leaving_out_an_owner():
    game = Game(7, seed=5)
    found = value.loo(game, owners=OWNERS)
    table = game_of_owners(game).table
    np.testing.assert_allclose(
        found.values, [table[-1] - table[15 - (1 << i)] for i in range(4)], atol=1e-6
    )
    assert found.index == NAMES


def test_twenty_owners_are_few_enough():
    worth = np.arange(20.0)
    utility = value.as_utility(lambda masks, key: np.asarray(masks) @ worth, 20)
    found = value.exact_shapley(utility, batch_size=1 << 16)
    np.testing.assert_allclose(found.values, worth, atol=1e-4)
    with pytest.raises(ValueError, match="at most 20 points"):
        value.exact_shapley(value.as_utility(lambda masks, key: masks, 21))


@pytest.mark.parametrize("name", SAMPLED)
def test_every_point_its_own_owner(name):
    alone = sampled(name, Game(6), 64)()
    owned = sampled(name, Game(6), 64)(owners=range(6))
    np.testing.assert_array_equal(owned.values, alone.values)
    np.testing.assert_array_equal(owned.stderr, alone.stderr)
    assert owned.index == tuple(range(6))


def test_one_owner_has_all():
    game = Game(5)
    for found in (
        value.exact_shapley(game, owners=["me"] * 5),
        value.tmc_shapley(game, key=KEY, owners=["me"] * 5, stop=value.MaxSamples(3)),
        value.adjusted_semivalue(game, key=KEY, owners=["me"] * 5),
    ):
        np.testing.assert_allclose(
            found.values, [game.table[-1] - game.table[0]], atol=1e-6
        )
        assert found.index == ("me",)


@pytest.mark.parametrize("name", KNN)
@pytest.mark.parametrize("reduce", ["mean", None])
@pytest.mark.every(5)
def test_knn_values_are_sums(name, reduce):
    data = cases.random(7, n_val=9, seed=1)
    call = KNN[name]
    found = call(*data.classes(), k=2, owners=OWNERS, reduce=reduce)
    rows = np.asarray(call(*data.classes(), k=2, reduce=None).values, np.float64)
    rows = np.stack([rows[:, o == OWNERS].sum(1) for o in NAMES], axis=1)
    assert found.index == NAMES
    if reduce is None:
        np.testing.assert_allclose(found.values, rows, atol=3e-6)
        return
    np.testing.assert_allclose(found.values, rows.mean(0), atol=3e-6)
    np.testing.assert_allclose(found.stderr, rows.std(0, ddof=1) / 3, atol=3e-6)
    points = call(*data.classes(), k=2).by_owner(OWNERS)
    np.testing.assert_allclose(points.values, rows.mean(0), atol=3e-6)
    assert points.index == NAMES
    assert points.stderr is None


@pytest.mark.left_out
def test_regression_values_and_merging():
    data = cases.random(7, n_val=10, seed=2)
    call = lambda part, **o: jaxsel.knn_regression_shapley(
        data.x, data.t, data.x_val[part], data.t_val[part], k=2, owners=OWNERS, **o
    )
    whole, a, b = call(slice(None)), call(slice(6)), call(slice(6, None))
    merged = a.merge(b)
    np.testing.assert_allclose(merged.values, whole.values, atol=1e-5)
    np.testing.assert_allclose(merged.stderr, whole.stderr, atol=1e-5)
    assert merged.index == NAMES
    assert "owners=4" in whole.method
    other = jaxsel.knn_regression_shapley(
        data.x, data.t, data.x_val[6:], data.t_val[6:], k=2, owners=OWNERS[::-1]
    )
    with pytest.raises(ValueError, match="cannot merge"):
        a.merge(other)


def test_saved_with_their_names(tmp_path):
    found = value.exact_shapley(Game(7), owners=OWNERS)
    loaded = Values.load(found.save(tmp_path / "owners.npz"))
    assert loaded.index == NAMES
    np.testing.assert_array_equal(loaded.values, found.values)


@pytest.mark.parametrize("k", [1, 3, 9])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.every(6)
def test_games_of_knn(k, metric):
    data = cases.random(7, n_val=9, seed=3)
    utility = value.knn_utility(*data.classes(), k=k, metric=metric)
    points = value.exact_shapley(utility)
    expected = jaxsel.knn_shapley(*data.classes(), k=k, metric=metric)
    np.testing.assert_allclose(points.values, expected.values, atol=3e-6)
    if metric == "l2":
        owners = value.exact_shapley(utility, owners=OWNERS)
        game = knn_game(data, k, OWNERS.tolist())
        exact = enumerate_values(game, "shapley")
        np.testing.assert_allclose(owners.values, exact, atol=3e-6)
        assert owners.index == NAMES
        # Owners' candidates are few: the same utility without leaving any out.
        plain = value.as_utility(utility, 7)
        same = value.exact_shapley(plain, owners=OWNERS)
        np.testing.assert_allclose(owners.values, same.values, atol=1e-6)


def test_games_of_knn_with_probabilities_and_ties():
    rng = np.random.default_rng(0)
    x, x_val = rng.integers(0, 3, (8, 2)), rng.integers(0, 3, (6, 2))
    y, y_val = rng.dirichlet(np.ones(3), 8), rng.integers(0, 3, 6)
    y_val[:3] = 0, 1, 2
    utility = value.knn_utility(x, y, x_val, y_val, k=2)
    found = value.exact_shapley(utility).values
    expected = jaxsel.knn_shapley(x, y, x_val, y_val, k=2).values
    np.testing.assert_allclose(found, expected, atol=3e-6)


def test_order_of_points_and_labels_does_not_matter():
    data = cases.random(7, n_val=9, seed=5)
    values = {}
    for seed in range(3):
        turn = np.random.default_rng(seed).permutation(7)
        owners = OWNERS[turn] if seed else pd.Series(OWNERS, index=range(7, 14))
        turn = turn if seed else np.arange(7)
        utility = value.knn_utility(
            data.x[turn], data.y[turn], data.x_val, data.y_val, k=2
        )
        found = value.exact_shapley(utility, owners=owners)
        values[seed] = dict(zip(found.index, np.asarray(found.values), strict=True))
    for a, b in itertools.pairwise(values.values()):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name] == pytest.approx(b[name], abs=1e-6)


@pytest.mark.left_out
def test_models_start_from_those_of_fewer_owners():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 2
    x[:, 0] += y
    learner = value.LogisticRegression()
    utility = value.ModelUtility(learner, x, y, x, y, metric="likelihood")
    owners = np.arange(60) // 12
    found = value.tmc_shapley(
        utility, key=KEY, owners=owners, tolerance=0, stop=value.MaxSamples(64)
    )
    exact = value.exact_shapley(utility, owners=owners)
    assert (np.abs(found.values - exact.values) < 5 * found.stderr + 1e-3).all()
    ends = utility(np.stack([np.zeros(60, bool), np.ones(60, bool)]))
    assert exact.values.sum() == pytest.approx(float(ends[1] - ends[0]), abs=1e-5)


def test_what_is_refused(tmp_path):
    game, data = Game(7), cases.random(7)
    for owners, error, message in (
        (
            OWNERS[:6],
            ValueError,
            "one label for each of the 7 points",
        ),
        (OWNERS[:, None], ValueError, "owners must have one label"),
        ("abcdefg", ValueError, "owners must have one label"),
        ([1.0] * 6 + [np.nan], ValueError, "must all be named, got nan at position 6"),
        ([None, *"abcdef"], ValueError, "must all be named, got None at position 0"),
    ):
        with pytest.raises(error, match=message):
            value.exact_shapley(game, owners=owners)
        with pytest.raises(error, match=message):
            jaxsel.knn_shapley(*data.classes(), owners=owners)
    labels = np.empty(7, object)
    labels[:] = [[1]] * 7
    with pytest.raises(TypeError, match="owners must be labels"):
        value.exact_shapley(game, owners=labels)
    with pytest.raises(TypeError, match="utility must be a ModelUtility"):
        value.by_owner(3, OWNERS)
    with pytest.raises(ValueError, match="maxima over validation points"):
        jaxsel.knn_shapley(*data.classes(), reduce="max").by_owner(OWNERS)
    options = {"key": KEY, "stop": value.MaxSamples(64), "checkpoint": tmp_path}
    value.banzhaf(game, owners=OWNERS, **options)
    with pytest.raises(ValueError, match="holds another run, with .*owners"):
        value.banzhaf(game, owners=OWNERS[::-1], **options)
