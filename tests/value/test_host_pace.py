"""Utilities of the host: how many coalitions a call has, and what time leaves."""

import types
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from jaxsel import value
from jaxsel.value import _evaluator, _group_testing, _run

from .games import Compiled, Game

KEY, N, FIT = jax.random.key(3), 8, 0.0625  # seconds, a power of two


@pytest.fixture
def now(monkeypatch):
    """A clock that only the fits of a test move."""
    now = [0.0]
    read = lambda: now[0]
    clock = types.SimpleNamespace(perf_counter=read, monotonic=read, thread_time=read)
    for module in (_evaluator, _group_testing):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(_run, "_clock", lambda: now[0])
    return now


class Slow(Game):
    """A game in which each coalition of some points takes a fit."""

    def __init__(self, now, n=N, *, fit=FIT, **options):
        super().__init__(n, **options)
        self._now, self._fit, self.lengths = now, fit, []

    def __call__(self, masks, key):
        self.lengths.append(len(masks))
        self._now[0] += self._fit * int(np.asarray(masks).any(1).sum())
        return super().__call__(masks, key)


def same(a, b):
    np.testing.assert_allclose(a.values, b.values, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(a.m2, b.m2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(a.count, b.count)


SAMPLED = {
    "tmc": (value.tmc_shapley, {"tolerance": 0}, N - 1),
    "beta": (value.beta_shapley, {"alpha": 1.0}, N - 1),
    "banzhaf": (value.banzhaf, {}, 1),
    "groups": (value.group_testing_shapley, {}, 1),
    "adjusted": (value.adjusted_semivalue, {}, 2),
}


@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.every(6)
def test_time_costs_at_most_the_sample_that_is_unfinished(name, now):
    estimate, options, fits = SAMPLED[name]
    before = 16 if name == "groups" else 0  # fits that the first sample needs
    allowed = (26 + before) * FIT
    found = estimate(Slow(now), key=KEY, stop=value.MaxTime(allowed), **options)
    count = int(found.count)
    assert count == 26 // fits
    # All points are evaluated twice, to leave out compilation, before the clock starts.
    assert now[0] == allowed + 2 * FIT
    expected = estimate(
        Game(N), key=KEY, stop=value.MaxSamples(count), batch_size=1024, **options
    )
    same(found, expected)


def test_permutations_are_completed_one_by_one(now):
    game = Slow(now)
    with_all = value.tmc_shapley(game, key=KEY, stop=value.MaxSamples(3), tolerance=0)
    assert game.lengths == [2, 2] + [1] * (3 * (N - 1))
    assert int(with_all.count) == 3


@pytest.mark.parametrize(
    ("fit", "lengths"),
    [
        (2**-11, [2, 56]),  # too fast to matter: all at once
        (2**-8, [2, 2] + [8] * 8),  # two permutations together, four sizes of each
        (2**-4, [2, 2] + [1] * 56),
    ],
)
def test_slower_functions_have_smaller_calls(fit, lengths, now):
    game = Slow(now, fit=fit)
    value.tmc_shapley(game, key=KEY, stop=value.MaxSamples(8), tolerance=0)
    assert game.lengths == lengths


def test_functions_on_devices_and_a_given_batch_size_are_not_timed(now):
    class Counted(Compiled):
        lengths = ()

        def __call__(self, masks, key):
            now[0] += 10
            self.lengths = (*self.lengths, len(masks))
            return super().__call__(masks, key)

    game = Counted(N)
    value.tmc_shapley(game, key=KEY, stop=value.MaxSamples(8), tolerance=0)
    assert game.lengths == (2, 8 * (N - 1))
    slow = Slow(now)
    value.tmc_shapley(slow, key=KEY, stop=value.MaxSamples(8), batch_size=64)
    assert slow.lengths[0] == 2
    assert max(slow.lengths) > 8


def test_owners_and_executors_are_paced_too(now):
    owners = np.arange(N) // 2
    options = {"key": KEY, "stop": value.MaxSamples(5), "tolerance": 0}
    game = Slow(now)
    alone = value.tmc_shapley(game, owners=owners, **options)
    assert max(game.lengths) == 2
    with ThreadPoolExecutor(2) as executor:
        same(
            value.tmc_shapley(Slow(now), owners=owners, executor=executor, **options),
            alone,
        )


def test_an_unfinished_permutation_is_resumed(tmp_path, now):
    options = {"key": KEY, "tolerance": 0, "checkpoint": tmp_path}
    first, rest, whole = Slow(now), Slow(now), Slow(now)
    value.tmc_shapley(first, stop=value.MaxTime(26 * FIT), **options)
    found = value.tmc_shapley(rest, stop=value.MaxSamples(5), **options)
    expected = value.tmc_shapley(
        whole, stop=value.MaxSamples(5), **(options | {"checkpoint": None})
    )
    same(found, expected)
    ends = 2
    assert first.asked + rest.asked == whole.asked + ends


def test_an_interrupt_keeps_complete_permutations(tmp_path, now):
    class Interrupted(Slow):
        def __call__(self, masks, key):
            if self.asked > 26:
                raise KeyboardInterrupt
            return super().__call__(masks, key)

    options = {"key": KEY, "tolerance": 0, "checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        value.tmc_shapley(Interrupted(now), stop=value.MaxSamples(9), **options)
    rest = Slow(now)
    found = value.tmc_shapley(rest, stop=value.MaxSamples(4), **options)
    del options["checkpoint"]
    same(found, value.tmc_shapley(Slow(now), stop=value.MaxSamples(4), **options))
    assert rest.asked == 2 + (N - 1)  # the ends, and the fourth permutation


def test_too_little_time_is_told(now):
    with pytest.warns(UserWarning, match="all values are NaN: allow more time$"):
        found = value.tmc_shapley(Slow(now), key=KEY, stop=value.MaxTime(3 * FIT))
    assert int(found.count) == 0
    message = r"\d of 8 values are NaN, since the 2 samples that banzhaf took"
    with pytest.warns(UserWarning, match=message):
        value.banzhaf(Slow(now), key=KEY, stop=value.MaxTime(2 * FIT))


@pytest.fixture
def ticking(now):
    tree = pytest.importorskip("sklearn.tree")

    class Ticking(tree.DecisionTreeClassifier):
        fits = 0

        def fit(self, X, y, sample_weight=None):
            now[0] += FIT
            type(self).fits += 1
            return super().fit(X, y, sample_weight)

    return Ticking


def task(n=N):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2 * n, 2))
    return x[:n], np.arange(n) % 2, x[n:], np.arange(n) % 2


def test_estimators_of_scikit_learn_are_paced(ticking, now):
    utility = value.ModelUtility(ticking(random_state=0), *task())
    run = lambda stop, **options: value.tmc_shapley(
        utility, key=KEY, stop=stop, tolerance=0, **options
    )
    found = run(value.MaxTime(20 * FIT))
    # Coalitions of one class take no fit, so that three to four are complete.
    assert 3 <= int(found.count) <= 5
    assert ticking.fits <= 20 + 3
    same(found, run(value.MaxSamples(int(found.count)), batch_size=1024))
    ticking.fits = 0
    value.loo(utility)
    assert ticking.fits <= N + 2


def test_bags_are_paced(ticking, now):
    x, y, _, _ = task()
    with pytest.warns(UserWarning, match="2 of 4 values are NaN, since the 2 samples"):
        few = value.data_oob(
            ticking(random_state=0), x[:4], y[:4], key=KEY, stop=value.MaxTime(2 * FIT)
        )
    assert np.isnan(few.values).any()
    ticking.fits = 0
    found = value.data_oob(
        ticking(random_state=0), x, y, key=KEY, stop=value.MaxTime(20 * FIT)
    )
    assert ticking.fits <= 21
    count = 20  # at least, where a bag has one class
    assert int(found.count.max()) <= count
    more = value.data_oob(
        ticking(random_state=0),
        x,
        y,
        key=KEY,
        stop=value.MaxSamples(20),
        batch_size=256,
    )
    same(found, more)


def test_the_bar_tells_of_a_permutation_that_has_begun(now, capfd, monkeypatch):
    monkeypatch.setattr(_run, "_SHOW", 0.0)
    value.tmc_shapley(
        Slow(now), key=KEY, stop=value.MaxSamples(2), tolerance=0, progress=True
    )
    shown = capfd.readouterr().err
    assert "43% of the next" in shown
    assert "2/2" in shown
