"""The effect of removing top samples: against loops, and errors of crossed effects."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute, tasks
from jaxsel.tasks import _removal_effect

KEY = jax.random.key(0)
N, T, CLASSES = 40, 6, 3
SOFTMAX = (lambda key, x: jax.random.normal(key, (4, CLASSES)), lambda w, x: x @ w)
LINE = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])


def samples(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, N + T)
    x = rng.normal(size=(N + T, 4)) + 2 * np.eye(CLASSES, 4)[y]
    x = x.astype(np.float32)
    return x[:N], y[:N], x[N:], y[N:]


def recipe_of(pair=SOFTMAX):
    return attribute.Recipe(pair, optax.sgd(0.2, momentum=0.9), epochs=3, batch_size=7)


def changes(sets, seeds):
    """Rises of losses and flips of classes by one training after the other."""
    recipe = recipe_of()
    x, y, x_val, y_val = map(jnp.asarray, samples())

    def run(seed, weights):
        params = recipe.train(jax.random.fold_in(KEY, seed), x, y, weights)
        outputs = recipe.apply(params, x_val)
        return np.asarray(recipe.losses(outputs, y_val)), np.asarray(outputs.argmax(1))

    rises, flips = np.zeros((2, len(sets), seeds, T))
    for seed in range(seeds):
        loss, classes = run(seed, jnp.ones(N))
        for i, rows in enumerate(sets):
            lower, others = run(seed, jnp.ones(N).at[rows].set(0))
            rises[i, seed], flips[i, seed] = lower - loss, others != classes
    return rises, flips


@pytest.mark.parametrize("by", ["target", "sum"])
@pytest.mark.every(2)
@pytest.mark.left_out
def test_effects_are_those_of_a_loop(by):
    scores = np.random.default_rng(2).normal(size=(T, N))
    result = tasks.removal_effect(
        scores, recipe_of(), *samples(), key=KEY, share=0.2, by=by, seeds=2, draws=3
    )
    rows = scores if by == "target" else scores.sum(0, keepdims=True)
    top = [np.argsort(-row)[:8] for row in rows]
    keys = jax.random.split(jax.random.fold_in(KEY, _removal_effect._DRAWS), 3)
    random = [np.asarray(jax.random.permutation(key, N))[:8] for key in keys]
    for effect, sets in ((result.top, top), (result.random, random)):
        rises, flips = changes(sets, 2)
        if by == "target" and effect is result.top:
            rises, flips = (
                np.stack([c[i, :, i] for i in range(T)], 1)[None]
                for c in (rises, flips)
            )
        assert effect.rise == pytest.approx(rises.mean(), abs=1e-5)
        assert effect.flipped == pytest.approx(flips.mean(), abs=1e-9)
        error = _removal_effect.mean_and_error(rises)[1]
        assert effect.rise_stderr == pytest.approx(error, abs=1e-5)
        if effect is result.top:
            np.testing.assert_allclose(result.by_target, rises.mean((0, 1)), atol=1e-5)
    assert result.removed == 8
    assert "8 removed by" in repr(result)


def test_samples_that_matter_raise_the_loss():
    """Scores of a metagradient: their top samples matter more than random ones."""
    recipe, arrays = recipe_of(), samples()
    values = attribute.metagradient(recipe, *arrays, key=KEY, reduce=None)
    result = tasks.removal_effect(values, recipe, *arrays, key=KEY, share=0.1)
    assert result.top.rise > result.random.rise + 3 * result.random.rise_stderr
    mean = attribute.metagradient(recipe, *arrays, key=KEY)
    a, b = (
        tasks.removal_effect(v, recipe, *arrays, key=KEY, share=0.1, by="sum")
        for v in (values, mean)
    )
    assert a.top.rise == pytest.approx(b.top.rise, abs=1e-6)


def test_regressions_have_no_flips():
    x, _, x_val, _ = samples()
    scores = np.random.default_rng(0).normal(size=N)
    result = tasks.removal_effect(
        scores,
        recipe_of(LINE),
        x,
        x[:, 0],
        x_val,
        x_val[:, 0],
        key=KEY,
        by="sum",
        share=0.1,
    )
    assert np.isfinite(result.top.rise)
    assert np.isnan(result.top.flipped)


def test_errors_cover_crossed_effects():
    """Effects of sets, runs and targets: the error is theirs, and a little more."""
    rng = np.random.default_rng(0)
    means, errors = [], []
    for _ in range(2000):
        parts = [rng.normal(size=s) for s in ((4, 1, 1), (1, 5, 1), (1, 1, 30))]
        noise = rng.normal(size=(4, 5, 30))
        mean, error = _removal_effect.mean_and_error(sum(parts) + noise)
        means.append(mean)
        errors.append(error)
    ratio = np.mean(np.square(errors)) ** 0.5 / np.std(means)
    assert 0.97 < ratio < 1.1
    assert _removal_effect.mean_and_error(np.ones((1, 1, 1))) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        (np.zeros((T, N - 1)), {}, ValueError, r"values must have shape \(6, 40\)"),
        (np.zeros(N), {}, ValueError, r"values must have shape \(6, 40\) with by"),
        (np.full((T, N), np.nan), {}, ValueError, "values must be finite"),
        (np.zeros((T, N)), {"by": "mean"}, ValueError, "by must be one of"),
        (np.zeros((T, N)), {"share": 0.001}, ValueError, "share must be above 0"),
        (np.zeros((T, N)), {"seeds": 0}, ValueError, "seeds must be at least 1"),
        (np.zeros((T, N)), {"draws": 0}, ValueError, "draws must be at least 1"),
        (np.zeros((T, N)), {"recipe": 3}, TypeError, "recipe must be an attribute"),
    ],
)
def test_bad_arguments_are_refused(values, options, error, message):
    options = {"recipe": recipe_of(), "key": KEY} | options
    with pytest.raises(error, match=message):
        tasks.removal_effect(values, options.pop("recipe"), *samples(), **options)


def test_a_run_that_diverges_is_refused():
    x, _, x_val, _ = samples()
    arrays = x * 1e6, x[:, 0], x_val * 1e6, x_val[:, 0]
    recipe = attribute.Recipe(LINE, optax.sgd(0.2), epochs=9, batch_size=7)
    with pytest.raises(ValueError, match="a run has NaN or infinity: lower the"):
        tasks.removal_effect(np.zeros((T, N)), recipe, *arrays, key=KEY, share=0.1)
