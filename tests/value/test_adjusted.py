"""Regression-adjusted semivalues: exact, unbiased, honest, and the same everywhere."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import jaxsel
from jaxsel import value
from jaxsel.value import _evaluator, _run
from jaxsel.value._strata import Strata
from jaxsel.value._surrogate import (
    _LINEAR,
    Covariance,
    _known,
    _models,
    adjusted as adjusted_values,
)

from .games import Compiled, Game, enumerate_values, saturating, weight

KEY = jax.random.key(5)
KINDS = [("shapley",), ("banzhaf",), ("beta", 4, 2), ("beta", 16, 1), ("beta", 2, 2)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def options(kind):
    return dict(zip(("kind", "alpha", "beta"), kind, strict=False))


def adjusted(game, kind, samples, *, key=KEY, **more):
    stop = more.pop("stop", value.MaxSamples(samples))
    return jaxsel.adjusted_semivalue(game, key=key, stop=stop, **options(kind), **more)


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)
    assert a.method == b.method


def airport(n):
    """Costs of runways: the dearest of a coalition. Its Shapley value is known."""
    cost = np.arange(1, n + 1) ** 1.5
    steps = np.diff(np.append(0.0, cost)) / np.arange(n, 0, -1)
    worth = lambda masks, key: np.where(masks, cost, 0).max(1)
    return value.as_utility(worth, n), np.cumsum(steps)


@each_kind
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.every(9)
def test_all_coalitions_give_exact_values(n, kind, monkeypatch):
    # A utility that takes long is timed again, and trained twice for that.
    monkeypatch.setattr(_evaluator, "_SLOW", np.inf)
    game = Game(n)
    found = adjusted(game, kind, 200)
    np.testing.assert_allclose(found.values, enumerate_values(game, *kind), atol=2e-6)
    np.testing.assert_allclose(found.stderr, 0, atol=1e-6)
    assert game.asked == 2**n - 1  # none is trained twice


@each_kind
@pytest.mark.every(5)
def test_unbiased_with_honest_standard_errors(kind):
    seeds, samples = 200, 40
    for game in (Game(8, seed=1), saturating(8)):
        runs = [
            adjusted(game, kind, samples, key=jax.random.key(s)) for s in range(seeds)
        ]
        error = np.stack([r.values for r in runs]) - enumerate_values(game, *kind)
        claimed = np.stack([r.stderr for r in runs]).astype(np.float64)
        # The mean of 200 runs, of 8 points: 4.5 of its own standard errors.
        bias = np.abs(error.mean(0)) * np.sqrt(seeds) / error.std(0)
        assert bias.max() < 4.5
        z = error / claimed
        # Beta(16, 1) has few coalitions that count, and 40 samples are few for these.
        assert 0.6 < z.var() < (2.0 if kind == ("beta", 16, 1) else 1.5)
        assert 0.6 < np.sum(error**2) / np.sum(claimed**2) < 1.3
        assert np.mean(np.abs(z) < 1.96) > 0.88


@pytest.mark.parametrize("n", [24, 60])
@pytest.mark.left_out
def test_coalitions_drawn_anew(n):
    game, exact = airport(n)
    runs = [adjusted(game, ("shapley",), 150, key=jax.random.key(s)) for s in range(12)]
    error = np.stack([r.values for r in runs]) - exact
    claimed = np.stack([r.stderr for r in runs])
    assert 0.5 < np.sum(error**2) / np.sum(claimed**2) < 2
    assert (np.abs(error.mean(0)) < 5 * np.sqrt((claimed**2).mean(0) / 12)).all()


@pytest.mark.parametrize("n", [14, 24, 140])
def test_shapley_values_sum_to_the_utility_of_all(n):
    game, _ = airport(n)
    found = adjusted(game, ("shapley",), 120)
    total = np.asarray(found.values, np.float64).sum()
    assert abs(total - n**1.5) < 1e-5 * n**1.5


@each_kind
def test_constant_and_additive_games(kind):
    n, worth = 9, np.linspace(-1, 2, 9)
    members = np.arange(2**n)[:, None] >> np.arange(n) & 1
    found = adjusted(Game(n, table=np.full(2**n, 3.5)), kind, 30)
    np.testing.assert_allclose(found.values, 0, atol=1e-6)
    if kind[0] != "beta":  # the model of pairs is exact
        found = adjusted(Game(n, table=members @ worth + 3), kind, 60)
        np.testing.assert_allclose(found.values, worth, atol=1e-4)


def test_no_model_fits_by_chance():
    """Weighted majority, ten trainings a player: one run in ten was far off."""
    n = 14
    votes = np.random.default_rng(0).integers(1, 20, n)
    members = np.arange(2**n)[:, None] >> np.arange(n) & 1
    game = Game(n, table=(members @ votes > votes.sum() / 2) * 2.0)
    exact = enumerate_values(game, "shapley")
    # Seeds whose halves a linear model of no noise fits best.
    for seed in (1, 12, 23):
        found = adjusted(game, ("shapley",), 5 * n, key=jax.random.key(seed))
        assert np.mean((found.values - exact) ** 2) < 0.025


def test_less_error_than_permutations_at_equal_cost():
    # What it is for: a game of ever smaller gains, and one without any structure.
    n, seeds = 10, 12
    for game, times in ((saturating(n), 4), (Game(n), 2)):
        exact = enumerate_values(game, "shapley")
        squares = np.zeros(2)
        for s in range(seeds):
            key = jax.random.key(s)
            ours = adjusted(game, ("shapley",), 90, key=key)
            stop = value.MaxSamples(20)  # 180 utilities, as 90 pairs have
            theirs = value.tmc_shapley(game, key=key, stop=stop, tolerance=0)
            squares += [np.sum((v.values - exact) ** 2) for v in (ours, theirs)]
        assert squares[1] > times * squares[0]


@pytest.mark.parametrize("n", [2, 5, 6])
@each_kind
def test_weights_of_coalitions(n, kind):
    strata = Strata(n, *kind)
    inside, outside = strata.weights
    for size in range(n + 1):
        p = lambda s: weight(kind[0], n, s, *kind[1:]) if 0 <= s < n else 0.0
        np.testing.assert_allclose(inside[size], math.comb(n, size) * p(size - 1))
        np.testing.assert_allclose(outside[size], math.comb(n, size) * p(size))


@pytest.mark.parametrize("covariance", [Covariance(0, 0.2), Covariance(3.0, 0.0)])
@pytest.mark.parametrize("kind", [("shapley",), ("beta", 4, 2)], ids=str)
def test_semivalues_of_models_are_known(covariance, kind, monkeypatch):
    n = 6
    strata = Strata(n, *kind)
    for wide in (128, 2) if not covariance.decay else (128,):
        monkeypatch.setattr("jaxsel.value._surrogate._WIDE", wide)
        _known.cache_clear()
        for r, one in itertools.product((1, 3, 5), (0, 5)):
            other = set(range(r))
            like = lambda some, other=other, r=r: covariance(
                n, len(other & set(some)), len(some), r, paired=strata.paired
            )
            total = 0.0
            for size in range(n):
                p = weight(kind[0], n, size, *kind[1:])
                for some in itertools.combinations({*range(n)} - {one}, size):
                    # Of no points and of all, utilities are known: no model is asked.
                    total += p * like((*some, one)) * (size + 1 < n)
                    total -= p * like(some) * (size > 0)
            sizes = tuple(range(1, n // 2 + 1 if strata.paired else n))
            found = _known(strata, covariance, sizes)[int(one in other), r]
            np.testing.assert_allclose(found, total, atol=1e-10)
    _known.cache_clear()


@each_kind
def test_each_coalition_is_left_out_by_fitting_again(kind):
    """The closed form against as many fits as there are samples."""
    n, count = 6, 14  # too few to choose a model by
    game, strata = Game(n, seed=6), Strata(n, *kind)
    group = strata.order(count)[0]
    masks = strata.masks(KEY, 0, count, count)
    like = lambda a, b: _LINEAR[0](
        n,
        a.astype(float) @ b.T.astype(float),
        a.sum(1)[:, None],
        b.sum(1)[None],
        paired=strata.paired,
    )

    def worth(masks):
        own = game(masks, None)
        return (own - game(~masks, None)) / 2 if strata.paired else own

    def weights(masks):
        size = masks.sum(1)
        p = np.array([weight(kind[0], n, s, *kind[1:]) for s in range(n)])
        each = np.where(masks, p[size - 1, None], -p[size % n, None])
        return each * (2 if strata.paired else 1)

    expected = np.zeros(n)
    every = np.array([*itertools.product([False, True], repeat=n)])
    for g, one in enumerate(strata.groups):
        units = every[np.isin(every.sum(1), one.sizes)]
        if strata.paired:  # of half the points, one of each pair
            units = units[(2 * units.sum(1) < n) | ~units[:, -1]]
        assert len(units) == one.total
        here = np.flatnonzero(group == g)
        told = np.zeros(n)
        for out in here:
            rest = np.delete(np.arange(count), out)
            fitted = like(masks[rest], masks[rest]) + np.eye(count - 1)
            solved = np.linalg.solve(fitted, worth(masks[rest]))
            apart = lambda some, rest=rest, solved=solved: (
                worth(some) - like(some, masks[rest]) @ solved
            )
            others = masks[here[here != out]]
            told += weights(units).T @ (like(units, masks[rest]) @ solved)
            told += weights(others).T @ apart(others)
            left = masks[out : out + 1]
            told += (one.total - len(here) + 1) * weights(left)[0] * apart(left)
        expected += told / len(here)
    found = adjusted_values(strata, group, worth(masks), masks)
    np.testing.assert_allclose(found.values, expected, atol=1e-10)


def test_models_are_chosen_by_the_other_half():
    strata, count = Strata(10), 120
    masks = strata.masks(KEY, 0, count, count)
    given = masks.astype(np.float64), masks.sum(1)
    game = saturating(10)
    y = (game(masks, None) - game(~masks, None)) / 2
    noise = np.random.default_rng(0).normal(size=count)
    for half in (0, 1):
        other = np.where(np.arange(count) % 2 == half, noise, y)
        before, after = (_models(strata, some, *given) for some in (y, other))
        assert before[half].covariance == after[half].covariance
        assert before[1 - half].covariance != after[1 - half].covariance


@each_kind
@pytest.mark.parametrize("n", [5, 6, 30])
def test_samples_are_the_same_in_any_batches(n, kind):
    strata, count = Strata(n, *kind), 60
    whole = strata.masks(KEY, 0, count, count)
    parts = [strata.masks(KEY, first, 7, 7) for first in range(0, count, 7)]
    np.testing.assert_array_equal(np.concatenate(parts)[:count], whole)
    there = int(min(count, strata.total))
    seen = {row.tobytes() for row in whole[:there]}
    if n == 5 and strata.paired:
        seen |= {(~row).tobytes() for row in whole[:there]}
        assert there == 15
        assert len(seen) == 30
    assert not whole[there:].any()
    assert whole[:there].any(1).all()
    assert not whole[:there].all(1).any()


@pytest.mark.left_out
def test_runs_do_not_depend_on_batches_executors_or_interruptions(tmp_path):
    game = saturating(11)
    expected = adjusted(game, ("shapley",), 600)
    identical(adjusted(game, ("shapley",), 600, batch_size=96), expected)
    with ThreadPoolExecutor(2) as pool:
        found = adjusted(game, ("shapley",), 600, batch_size=96, executor=pool)
    identical(found, expected)
    stopped = Game(11, table=game.table, fails_at=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run, "SAVE_EVERY", 0.0)
        with pytest.raises(InterruptedError):
            adjusted(stopped, ("shapley",), 600, batch_size=96, checkpoint=tmp_path)
    again = Game(11, table=game.table)
    found = adjusted(again, ("shapley",), 600, batch_size=96, checkpoint=tmp_path)
    identical(found, expected)
    assert 0 < again.asked < 1200 - 200
    with pytest.raises(ValueError, match="holds another run"):
        adjusted(again, ("banzhaf",), 600, checkpoint=tmp_path)


def test_stopping_rules():
    game = saturating(13)
    rule = value.StandardError(0.02, minimum=100) | value.MaxSamples(2000)
    found = adjusted(game, ("shapley",), 1, stop=rule)
    assert int(found.count) % 256 == 0
    assert found.stderr.max() <= 0.02
    both = value.StandardError(0.5, minimum=1) & value.RankStability(0.9, rounds=2)
    found = adjusted(game, ("shapley",), 1, stop=both)
    assert int(found.count) >= 3 * 256


def test_merged_runs_are_unbiased_and_more_exact():
    game = saturating(12)
    exact = enumerate_values(game, "shapley")
    runs = [adjusted(game, ("shapley",), 60, key=jax.random.key(s)) for s in range(8)]
    merged = runs[0].merge(*runs[1:])
    assert int(merged.count) == 8 * 60
    assert merged.stderr.max() < max(r.stderr.max() for r in runs) / 2
    assert (np.abs(merged.values - exact) < 5 * merged.stderr).all()
    with pytest.raises(ValueError, match="the samples of key"):
        runs[0].merge(runs[0])


def test_too_few_samples_to_say():
    found = adjusted(Game(13), ("shapley",), 3)
    assert np.isnan(found.values).all()
    assert np.isnan(found.stderr).all()
    assert int(found.count) == 3
    found = adjusted(Game(13), ("shapley",), 7)
    assert np.isfinite(found.values).all()


def test_utilities_that_are_not_numbers_are_refused():
    game = Game(6)
    game.table[13] = np.nan
    with pytest.raises(ValueError, match="got nan for a coalition of 3"):
        adjusted(game, ("shapley",), 100)
    for wrong, message in (
        ({"kind": "loo"}, "kind must be"),
        ({"alpha": 0}, "alpha must be"),
        ({"stop": 3}, "stop must be a rule"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            jaxsel.adjusted_semivalue(Game(4), key=KEY, **wrong)


def test_learners_that_fail_count_as_told():
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)), np.arange(12) % 2
    learner = value.SklearnLearner(KNeighborsClassifier(5))
    utility = value.ModelUtility(learner, x, y, x, y)
    with pytest.warns(UserWarning, match="failed on"):
        found = adjusted(utility, ("shapley",), 40)
    assert np.isfinite(found.values).all()
    assert utility.failures.failed > 0


def test_eight_devices_and_no_second_trace():
    game = Compiled(9, table=saturating(9).table)
    expected = adjusted(game, ("shapley",), 64)
    mesh = jaxsel.make_mesh()
    found = adjusted(game, ("shapley",), 64, mesh=mesh, batch_size=24)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5, atol=1e-6)
    with jax.no_tracing(True):
        adjusted(game, ("shapley",), 64, key=jax.random.key(8))


def test_double_precision_changes_nothing():
    game = saturating(9)
    expected = adjusted(game, ("shapley",), 70)
    with jax.enable_x64(True):
        identical(adjusted(game, ("shapley",), 70), expected)
