"""The loop of estimators: batches, devices, checkpoints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel
from jaxsel import value
from jaxsel._results.types import Values
from jaxsel.value import _run
from jaxsel.value._exact import exact_semivalue
from jaxsel.value._group_testing import group_testing_shapley
from jaxsel.value._loo import loo
from jaxsel.value._msr import banzhaf
from jaxsel.value._oob import data_oob
from jaxsel.value._permutation import beta_shapley, tmc_shapley
from jaxsel.value._stopping import MaxSamples, RankStability

from .games import Compiled, Game, saturating

pytestmark = pytest.mark.every(2)

KEY = jax.random.key(3)
N = 5


def out_of_bag(game, **options):
    """Stands in for a game: it has none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    learner = value.NearestCentroid()
    return data_oob(learner, x, [0, 1, 0, 1, 1], **options)


ESTIMATORS = {
    "tmc": tmc_shapley,
    "beta": beta_shapley,
    "banzhaf": banzhaf,
    "groups": group_testing_shapley,
}
each = pytest.mark.parametrize("name", ESTIMATORS)
each_sampled = pytest.mark.parametrize("name", [*ESTIMATORS, "bags"])


def estimate(name, game, **options):
    function = out_of_bag if name == "bags" else ESTIMATORS[name]
    return function(game, **{"key": KEY, **options})


def same(a, b):
    np.testing.assert_allclose(a.values, b.values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(a.stderr, b.stderr, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(a.count, b.count)
    assert a.method == b.method


def identical(a, b):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.every(8)
@each_sampled
def test_stops_after_exactly_so_many(name):
    for count in (1, 70):
        found = estimate(name, Game(N), stop=MaxSamples(count))
        assert int(np.max(found.count)) <= count
        if name != "bags":
            assert int(found.count) == count


@pytest.mark.every(6)
@each_sampled
def test_batches_change_nothing(name):
    call = lambda size: estimate(name, Game(N), stop=MaxSamples(150), batch_size=size)
    for size in (1, 48):
        same(call(size), call(None))


@pytest.mark.left_out
@each_sampled
def test_eight_devices_equal_one(name):
    mesh = jaxsel.make_mesh()
    assert mesh.size == 8
    call = lambda mesh: estimate(
        name, Compiled(N), stop=MaxSamples(150), batch_size=44, mesh=mesh
    )
    same(call(mesh), call(None))


@pytest.mark.parametrize("function", [loo, exact_semivalue])
def test_eight_devices_equal_one_without_samples(function):
    one, eight = (function(Compiled(N), mesh=m) for m in (None, jaxsel.make_mesh()))
    identical(one, eight)


@pytest.mark.left_out
def test_models_start_from_others_on_eight_devices():
    @jax.jit
    def foreign(masks, start):  # not of a prefix; rows without points are free
        return (start & ~masks).any(1) & masks.any(1)

    class Warm(Compiled):
        def evaluate(self, masks, key, start=None):
            start = masks if start is None else start
            return self(masks, key) + 100 * foreign(masks, start), masks

    game = saturating(9)
    call = lambda kind, mesh: tmc_shapley(
        kind(9, table=game.table),
        key=KEY,
        tolerance=0.2,
        patience=2,
        stop=MaxSamples(40),
        batch_size=60,
        mesh=mesh,
    )
    same(call(Warm, jaxsel.make_mesh()), call(Compiled, None))


@each
def test_second_run_traces_nothing(name):
    game = Compiled(N)
    options = {"tolerance": 0} if name == "tmc" else {}
    call = lambda key: estimate(name, game, key=key, stop=MaxSamples(64), **options)
    first, other = call(KEY), jax.random.key(4)
    with jax.no_tracing(True):
        second = call(other)
    assert np.abs(first.values - second.values).max() > 0.01


@each
@pytest.mark.every(4)
def test_resumes_bit_by_bit(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "SAVE_EVERY", 0.0)
    options = {"stop": MaxSamples(2500 if name in ("banzhaf", "groups") else 250)}
    whole = Game(N)
    expected = estimate(name, whole, **options, batch_size=128)
    options["checkpoint"] = tmp_path / "run"
    broken = Game(N, fails_at=whole.calls - 1)
    with pytest.raises(InterruptedError):
        estimate(name, broken, **options, batch_size=128)
    rest = Game(N)
    identical(estimate(name, rest, **options, batch_size=128), expected)
    assert 2 < rest.calls <= whole.calls / 2
    again = Game(N)
    identical(estimate(name, again, **options), expected)
    assert again.calls <= 2  # it had finished


def test_bags_resume_and_go_on(tmp_path):
    call = lambda count, **options: estimate(
        "bags", None, stop=MaxSamples(count), **options
    )
    call(256, checkpoint=tmp_path)
    identical(call(300, checkpoint=tmp_path), call(300))
    with pytest.raises(ValueError, match="choose another folder"):
        call(300, checkpoint=tmp_path, key=jax.random.key(9))


def test_rank_stability_resumes(tmp_path):
    stop = RankStability(0.95, rounds=4)
    expected = tmc_shapley(Game(N), key=KEY, stop=stop)
    assert int(expected.count) > 128
    options = {"key": KEY, "checkpoint": tmp_path}
    tmc_shapley(Game(N), stop=MaxSamples(128), **options)
    identical(tmc_shapley(Game(N), stop=stop, **options), expected)


def test_foreign_checkpoints_are_refused(tmp_path):
    options = {"stop": MaxSamples(10), "checkpoint": tmp_path}
    tmc_shapley(Game(N), key=KEY, **options)
    for call, message in [
        (
            lambda: tmc_shapley(Game(N), key=jax.random.key(8), **options),
            r"key=\[0, 3\].*key=\[0, 8\]",
        ),
        (lambda: tmc_shapley(Game(N), key=KEY, tolerance=0.5, **options), "0.5"),
        (lambda: beta_shapley(Game(N), key=KEY, **options), "tmc_shapley.*beta_sh"),
        (lambda: tmc_shapley(Game(4), key=KEY, **options), "n=5.*n=4"),
        (lambda: tmc_shapley(Game(N, seed=1), key=KEY, **options), "utility of no"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_progress_is_shown_on_demand(capfd):
    quiet = tmc_shapley(Game(N), key=KEY, stop=MaxSamples(100))
    assert capfd.readouterr() == ("", "")
    loud = tmc_shapley(Game(N), key=KEY, stop=MaxSamples(100), progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "100/100" in shown.err
    assert "stderr=" in shown.err
    identical(quiet, loud)


def test_one_key_for_all_coalitions():
    seen = []

    def remember(masks, key):
        seen.append(np.asarray(jax.random.key_data(key)).tolist())
        return np.zeros(len(masks))

    utility = value.as_utility(remember, 4)
    tmc_shapley(utility, key=KEY, stop=MaxSamples(70), batch_size=16)
    assert len(seen) > 10
    assert all(key == seen[0] for key in seen)


def test_truncation_saves_calls():
    short, full = saturating(13), saturating(13)
    for game, tolerance in ((short, 0.2), (full, 0)):
        options = {"tolerance": tolerance, "patience": 2, "stop": MaxSamples(64)}
        tmc_shapley(game, key=KEY, batch_size=64, **options)
    assert full.asked == 64 * 12 + 1
    assert short.asked < 0.8 * full.asked


@pytest.mark.parametrize("kind", [tmc_shapley, banzhaf])
def test_one_point(kind):
    found = kind(Game(1, table=[0.25, 1.0]), key=KEY, stop=MaxSamples(64))
    np.testing.assert_allclose(found.values, 0.75)


def test_merged_runs_are_one_of_more_samples():
    keys = jax.random.split(KEY, 2)
    runs = [
        tmc_shapley(Game(N), key=key, stop=MaxSamples(count))
        for key, count in zip(keys, (64, 100), strict=True)
    ]
    merged = runs[0].merge(runs[1])
    assert int(merged.count) == 164
    mean = (64 * runs[0].values + 100 * runs[1].values) / 164
    np.testing.assert_allclose(merged.values, mean, rtol=1e-5)
    with pytest.raises(ValueError, match=r"both counted the samples of key \["):
        merged.merge(tmc_shapley(Game(N), key=keys[1], stop=MaxSamples(3)))


@pytest.mark.left_out
def test_runs_of_other_utilities_are_not_merged():
    x, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2

    def call(seed, learner, y=y, metric="accuracy"):
        utility = value.ModelUtility(learner, x, y, x, y, metric=metric)
        return banzhaf(utility, key=jax.random.key(seed), stop=MaxSamples(4))

    one = call(0, value.KNN(1))
    assert int(one.merge(call(1, value.KNN(1))).count) == 8
    for other, message in [
        (call(1, value.KNN(2)), "computed from other learner"),
        (call(1, value.KNN(1), 1 - y), "computed from other y, y_val"),
        (call(1, value.KNN(1), metric="likelihood"), "computed from other metric"),
    ]:
        with pytest.raises(ValueError, match=message):
            one.merge(other)


def test_counts_of_each_point():
    rng = np.random.default_rng(0)
    parts = [[rng.normal(size=k) for k in row] for row in [(3, 0, 2), (4, 5, 0)]]

    def values(samples):
        mean = [s.mean() if len(s) else np.nan for s in samples]
        return Values(
            values=jnp.asarray(mean, jnp.float32),
            count=jnp.asarray([len(s) for s in samples], jnp.int32),
            m2=jnp.asarray([len(s) * s.var() if len(s) else 0 for s in samples]),
        )

    one, two = map(values, parts)
    best = ", ".join(f"{i}: {one.values[i]:.4g}" for i in one.top(2))
    shown = (
        f"Values(unnamed, n=3, count=0..3, reduce='mean', best={{{best}}}, 1 unknown)"
    )
    assert repr(one) == shown
    assert np.isnan(one.stderr).tolist() == [False, True, False]
    joined = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
    for merged in (one.merge(two), two.merge(one)):
        np.testing.assert_array_equal(merged.count, [7, 5, 2])
        np.testing.assert_allclose(merged.values, [s.mean() for s in joined], rtol=1e-5)
        error = [s.std(ddof=1) / np.sqrt(len(s)) for s in joined]
        np.testing.assert_allclose(merged.stderr, error, rtol=1e-5)
    nothing = one.merge(one)
    assert np.isnan(nothing.values).tolist() == [False, True, False]
    with jax.no_tracing(True):
        assert "0..6" in repr(nothing)
