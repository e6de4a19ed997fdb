"""Linearity of a training in its weights: exact cases, errors, and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from jaxsel import attribute, tasks
from jaxsel.tasks import _linearity

KEY = jax.random.key(0)
LINE = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])
N, T = 40, 5


def samples(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N + T, 3)).astype(np.float32)
    y = (x.sum(1) + rng.normal(size=N + T)).astype(np.float32)
    return x[:N], y[:N], x[N:], y[N:]


def prediction(outputs, y):
    return outputs[:, 0]


def recipe_of(epochs=1, batch_size=N, learning_rate=0.1):
    optimizer = optax.sgd(learning_rate, momentum=0.9)
    return attribute.Recipe(LINE, optimizer, epochs=epochs, batch_size=batch_size)


def test_one_step_of_least_squares_is_linear():
    """Predictions after one step from 0 are linear in the weights of the samples."""
    recipe, arrays = recipe_of(), samples()
    values = attribute.metagradient(
        recipe, *arrays, key=KEY, output=prediction, reduce=None
    )
    result = tasks.linearity(values, recipe, *arrays, key=KEY, output=prediction)
    assert result.pearson.mean == pytest.approx(1, abs=1e-5)
    assert result.pearson.stderr < 1e-5
    np.testing.assert_allclose(result.predicted, result.measured, atol=1e-5)
    assert result.advice is None
    assert result.measured.shape == (8, T)
    assert "advice" not in repr(result)
    mean = tasks.linearity(
        np.asarray(values.values).mean(0), recipe, *arrays, key=KEY, output=prediction
    )
    np.testing.assert_allclose(mean.measured[:, 0], result.measured.mean(1), atol=1e-5)
    assert mean.pearson.mean == pytest.approx(1, abs=1e-5)


def test_changes_are_those_of_retraining_several_runs():
    recipe, arrays = recipe_of(epochs=3, batch_size=7), samples()
    x, y, x_val, y_val = map(jnp.asarray, arrays)
    scores = np.random.default_rng(1).normal(size=(T, N))
    result = tasks.linearity(
        scores, recipe, *arrays, key=KEY, seeds=2, drops=4, drop_share=0.1
    )
    draws = jax.random.split(jax.random.fold_in(KEY, _linearity._DRAWS), 4)

    def outputs(weights):
        runs = [
            recipe.train(jax.random.fold_in(KEY, run), x, y, weights) for run in (0, 1)
        ]
        return np.mean([-recipe.losses(recipe.apply(p, x_val), y_val) for p in runs], 0)

    whole = outputs(jnp.ones(N))
    for i, draw in enumerate(draws):
        dropped = np.asarray(jax.random.permutation(draw, N))[:4]
        change = outputs(jnp.ones(N).at[dropped].set(0)) - whole
        np.testing.assert_allclose(result.measured[i], change, atol=1e-5)
        np.testing.assert_allclose(result.predicted[i], -scores[:, dropped].sum(1))
    pairs = [*zip(result.predicted.T, result.measured.T, strict=True)]
    pearson = np.mean([stats.pearsonr(a, b).statistic for a, b in pairs])
    spearman = np.mean([stats.spearmanr(a, b).statistic for a, b in pairs])
    assert result.pearson.mean == pytest.approx(pearson, abs=1e-6)
    assert result.spearman.mean == pytest.approx(spearman, abs=1e-6)


def test_random_scores_get_advice():
    scores = np.random.default_rng(1).normal(size=(T, N))
    result = tasks.linearity(scores, recipe_of(), *samples(), key=KEY)
    assert result.pearson.mean < 0.8
    assert "rectifiers, momentum and small batches" in result.advice
    assert result.advice in repr(result)


@pytest.mark.parametrize("ranks", [False, True])
@pytest.mark.every(2)
def test_errors_over_drops_are_calibrated(ranks):
    """2,000 times 8 drops, 30 targets that share noise: the spread is the error."""
    rng = np.random.default_rng(0)
    results = []
    for _ in range(2000):
        signal, common = rng.normal(size=(8, 30)), rng.normal(size=(8, 1))
        noise = rng.normal(size=(8, 30)) + common
        both = signal + 0.5 * common, signal + noise
        results.append(_linearity._correlation(*both, ranks=ranks))
    spread = np.std([r.mean for r in results])
    error = np.mean([r.stderr**2 for r in results]) ** 0.5
    # The jackknife of a few drops is wide rather than narrow.
    assert 0.95 < error / spread < 1.35


def test_constant_changes_count_as_0():
    result = _linearity._correlation(np.zeros((4, 2)), np.eye(4)[:, :2], ranks=False)
    assert result == (0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        (np.zeros((T, N - 1)), {}, ValueError, "values must have a score for each"),
        (np.zeros((T - 1, N)), {}, ValueError, "values must have a row for each of"),
        (np.full((T, N), np.nan), {}, ValueError, "values must be finite"),
        (np.zeros((T, N)), {"drops": 2}, ValueError, "drops must be at least 3"),
        (np.zeros((T, N)), {"drop_share": 1}, ValueError, "drop_share must be above 0"),
        (np.zeros((T, N)), {"seeds": 0}, ValueError, "seeds must be at least 1"),
        (np.zeros((T, N)), {"output": "margin"}, ValueError, "output must be 'loss'"),
    ],
)
def test_bad_arguments_are_refused(values, options, error, message):
    with pytest.raises(error, match=message):
        tasks.linearity(values, recipe_of(), *samples(), key=KEY, **options)
