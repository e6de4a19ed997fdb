"""Metagradients: against retraining, against plain reverse mode, and refusals."""

import functools

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute
from jaxsel._runs.checkpoints import Checkpoints
from jaxsel.attribute import _metagradient

KEY = jax.random.key(0)

OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "nesterov": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": optax.adam(0.02, eps_root=1e-8),
    "adamw with a schedule": optax.adamw(
        optax.cosine_decay_schedule(0.02, 16), weight_decay=1e-2, eps_root=1e-8
    ),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.3)),
}


def of(optimizer, epochs=4):
    pair = cases.init, cases.apply
    return attribute.Recipe(pair, optimizer, epochs=epochs, batch_size=7)


def wide():
    x, y, x_val, y_val = cases.samples()
    return x.astype(np.float64), y, x_val.astype(np.float64), y_val


def outputs_of(recipe, weights, output="loss", run=0):
    x, y, x_val, y_val = wide()
    params = recipe.train(jax.random.fold_in(KEY, run), x, y, weights)
    measured = recipe.apply(params, x_val)
    return recipe.measure(output, measured, jnp.asarray(y_val))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.every(6)
def test_derivative_is_that_of_retraining(name):
    """Central differences of whole trainings in float64, for each target."""
    recipe = of(OPTIMIZERS[name])
    with jax.enable_x64(True):
        values = attribute.metagradient(recipe, *wide(), key=KEY, reduce=None)
        train = jax.jit(functools.partial(outputs_of, recipe))
        step, mean = 1e-5, jnp.full(cases.N, 0.95)
        for i in (0, 5, 23):
            up, down = (train(mean.at[i].add(s)) for s in (step, -step))
            right = np.asarray(up - down) / (2 * step)
            tolerance = 1e-6 * np.abs(values.values).max()
            np.testing.assert_allclose(values.values[:, i], right, atol=tolerance)


@pytest.mark.parametrize("segments", [None, 1, 3, 5, 16])
@pytest.mark.every(6)
def test_segments_change_nothing(segments):
    """16 steps: 3 and 5 do not divide them."""
    recipe = of(OPTIMIZERS["momentum"])
    with jax.enable_x64(True):
        weights = jnp.asarray(np.random.default_rng(0).random(cases.N) + 0.5)
        right = jax.jacrev(functools.partial(outputs_of, recipe))(weights)
        values = attribute.metagradient(
            recipe, *wide(), key=KEY, weights=weights, reduce=None, segments=segments
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("output", ["margin", "log_odds"])
@pytest.mark.every(2)
@pytest.mark.left_out
def test_other_outputs_the_mean_and_several_runs(output):
    recipe = of(OPTIMIZERS["momentum"])
    with jax.enable_x64(True):
        ones = jnp.ones(cases.N)
        each = [
            jax.jacrev(lambda w, run=run: outputs_of(recipe, w, output, run))(ones)
            for run in range(3)
        ]
        options = {"key": KEY, "output": output, "seeds": 3, "chunk_size": 4}
        options["drop_share"] = 0
        rows = attribute.metagradient(recipe, *wide(), reduce=None, **options)
        mean = attribute.metagradient(recipe, *wide(), **options)
        stderr = np.asarray(rows.stderr)
    np.testing.assert_allclose(rows.values, np.mean(each, 0), rtol=1e-8, atol=1e-12)
    right = np.mean(each, (0, 1))
    np.testing.assert_allclose(mean.values, right, rtol=1e-8, atol=1e-12)
    error = np.std(each, 0, ddof=1) / 3**0.5
    np.testing.assert_allclose(stderr, error, rtol=1e-6, atol=1e-12)
    assert int(rows.count) == 3


def test_random_drops_are_averaged():
    recipe = of(OPTIMIZERS["momentum"])
    options = {"key": KEY, "reduce": None}
    with jax.enable_x64(True):
        draws = KEY, cases.N, 3, 0.25, np.float64
        kept = np.asarray(_metagradient._points(None, *draws))
        each = [
            attribute.metagradient(
                recipe, *wide(), weights=row.astype(float), **options
            )
            for row in kept
        ]
        mean = attribute.metagradient(
            recipe, *wide(), drops=3, drop_share=0.25, **options
        )
        halved = _metagradient._points(np.full(cases.N, 0.5), *draws)
    np.testing.assert_array_equal(halved, kept / 2)
    assert (kept.sum(axis=1) == round(0.75 * cases.N)).all()
    assert len(np.unique(kept, axis=0)) == 3
    right = np.mean([values.values for values in each], axis=0)
    np.testing.assert_allclose(mean.values, right, rtol=1e-8, atol=1e-12)
    assert "drops=3 of 0.25" in mean.method


def test_one_step_in_closed_form():
    """One step from 0: its derivative is the samples' gradients."""
    line = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])
    recipe = attribute.Recipe(line, optax.sgd(0.1), epochs=1, batch_size=24)
    with jax.enable_x64(True):
        x, _, x_val, _ = wide()
        y, y_val = x.sum(1), x_val.sum(1)
        values = attribute.metagradient(
            recipe, x, y, x_val, y_val, key=KEY, reduce=None
        )
    moves = 0.1 * 2 * y[:, None] * x / 24
    w = 0.95 * moves.sum(0)
    assert "drop_share=0.05" in values.method
    slopes = -2 * (x_val @ w - y_val)[:, None] * x_val
    np.testing.assert_allclose(values.values, slopes @ moves.T, rtol=1e-10)


def test_float32_is_near_float64():
    """The same run, whose draws would be others in x64 mode."""
    recipe = of(OPTIMIZERS["momentum"])
    x, y, x_val, y_val = cases.samples()
    narrow = attribute.metagradient(recipe, x, y, x_val, y_val, key=KEY, reduce=None)
    plan = recipe.plan(jax.random.fold_in(KEY, 0), x)
    with jax.enable_x64(True):
        shares = there(plan.shares)
        wide_plan = plan._replace(
            params=jax.tree.map(lambda a: a.astype(np.float64), plan.params),
            shares=jnp.asarray(shares / shares.sum(1, keepdims=True)),
        )

        def outputs(weights):
            params = recipe.follow(wide_plan, wide()[0], y, weights)
            return -recipe.losses(recipe.apply(params, wide()[2]), jnp.asarray(y_val))

        right = jax.jacrev(outputs)(jnp.full(cases.N, 0.95))
    scale = np.abs(right).max()
    np.testing.assert_allclose(narrow.values, right, atol=1e-4 * scale)
    assert narrow.values.dtype == np.float32


def there(shares):
    return (np.asarray(shares) > 0).astype(np.float64)


def test_near_root():
    assert [_metagradient._near_root(n) for n in (1, 7, 16, 600)] == [1, 7, 4, 24]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"segments": 17}, ValueError, "segments must be at most 16"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"drops": -1}, ValueError, "drops must be at least 0"),
        ({"drop_share": 1}, ValueError, "drop_share must be below 1, got 1"),
        ({"drop_share": -0.1}, ValueError, "drop_share must be finite and zero or mor"),
        (
            {"drop_share": 0, "drops": 1},
            ValueError,
            "drop_share must be finite and above zero",
        ),
        (
            {"weights": np.ones(3)},
            ValueError,
            r"weights must have shape \[n\] = \[24\]",
        ),
        ({"weights": np.full(24, np.nan)}, ValueError, "weights must be finite"),
        ({"output": "logit"}, ValueError, "output must be one of"),
        ({"reduce": "max"}, ValueError, "reduce must be one of"),
        ({"recipe": 3}, TypeError, r"recipe must be an attribute\.Recipe"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    options = {"recipe": of(OPTIMIZERS["sgd"]), "key": KEY} | options
    with pytest.raises(error, match=message):
        attribute.metagradient(options.pop("recipe"), *cases.samples(), **options)


def test_an_optimizer_without_a_derivative_is_refused():
    """A column of zeros has no gradient, and Adam divides by its root."""
    x, y, x_val, y_val = cases.samples()
    x = x * np.float32([1, 1, 1, 0])
    with pytest.raises(ValueError, match="pass eps_root"):
        attribute.metagradient(of(optax.adam(0.02)), x, y, x_val, y_val, key=KEY)
    fine = of(OPTIMIZERS["adam"])
    values = attribute.metagradient(fine, x, y, x_val, y_val, key=KEY)
    assert np.isfinite(values.values).all()


def test_raw_columns_that_diverge_are_refused():
    line = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])
    recipe = attribute.Recipe(line, optax.sgd(0.1), epochs=20, batch_size=7)
    x, _, x_val, _ = cases.samples()
    arrays = x * 1e4, x[:, 0], x_val * 1e4, x_val[:, 0]
    with pytest.raises(ValueError, match="run 0 has NaN or infinity: lower the"):
        attribute.metagradient(recipe, *arrays, key=KEY)


def test_goes_on_after_a_kill(tmp_path, monkeypatch):
    options = {"key": KEY, "seeds": 2, "drops": 2, "drop_share": 0.2, "reduce": None}
    whole = attribute.metagradient(of(OPTIMIZERS["sgd"]), *cases.samples(), **options)
    save, done = Checkpoints.save, []

    def killed(self, step, state):
        save(self, step, state)
        done.append(step)
        if step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", killed)
    options["checkpoint"] = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        attribute.metagradient(of(OPTIMIZERS["sgd"]), *cases.samples(), **options)
    assert done == [1, 2, 3]
    again = attribute.metagradient(of(OPTIMIZERS["sgd"]), *cases.samples(), **options)
    assert done == [1, 2, 3, 4]
    np.testing.assert_array_equal(again.values, whole.values)
    np.testing.assert_array_equal(again.m2, whole.m2)
    for change in ({"drop_share": 0.3}, {"key": jax.random.key(9)}):
        with pytest.raises(ValueError, match="choose another folder"):
            attribute.metagradient(
                of(OPTIMIZERS["sgd"]), *cases.samples(), **options | change
            )
    with pytest.raises(ValueError, match="choose another folder"):
        attribute.metagradient(
            of(OPTIMIZERS["sgd"], epochs=5), *cases.samples(), **options
        )
