"""G-Shapley against a plain loop, and influence against retraining."""

import jax
import numpy as np
import optax
import pytest
from flax import linen
from scipy import special

from jaxsel import value
from jaxsel.value._sampling import permutation_ranks

from . import retrain_cases as cases
from .games import honest_stderr

KEY = jax.random.key(5)
N, RATE, PASSES = 15, 0.3, 6


def measure(metric, logits, y):
    """Accuracy or likelihood, in float64."""
    if metric == "accuracy":
        return np.mean(logits.argmax(1) == y)
    return special.softmax(logits, axis=1)[np.arange(len(y)), y].mean()


def loop(x, y, x_val, y_val, metric, weight, bias, two, before):
    """Marginals of a softmax, or of a sigmoid for two classes, `[PASSES, n]`."""
    sampling = jax.random.split(KEY, 3)[0]
    places = np.asarray(permutation_ranks(sampling, 0, count=PASSES, n=len(x)))
    found = np.zeros((PASSES, len(x)))
    for row, place in zip(found, places, strict=True):
        w, b, last = weight.copy(), bias.copy(), before
        for i in np.argsort(place):
            z = x[i] @ w + b
            if two:
                p, target = special.expit(z), np.array([float(y[i])])
            else:
                p, target = special.softmax(z), np.arange(len(b)) == y[i]
            w = w - RATE * np.outer(x[i], p - target)
            b = b - RATE * (p - target)
            logits = x_val @ w + b
            if two:
                logits = np.append(np.zeros_like(logits), logits, axis=1)
            now = measure(metric, logits, y_val)
            row[i], last = now - last, now
    return found


def close(found, marginals):
    np.testing.assert_allclose(found.values, marginals.mean(0), rtol=0, atol=1e-6)
    expected = honest_stderr(marginals)
    np.testing.assert_allclose(found.stderr, expected, rtol=1e-4, atol=1e-6)
    assert int(found.count) == PASSES


@pytest.mark.parametrize(
    ("classes", "metric"),
    [
        (3, "likelihood"),
        pytest.param(2, "likelihood", marks=pytest.mark.slow),
        pytest.param(2, "accuracy", marks=pytest.mark.slow),
        pytest.param(3, "accuracy", marks=pytest.mark.slow),
    ],
)
def test_g_shapley_of_logistic_regression_is_a_loop(classes, metric):
    task = cases.blobs(classes, N)
    found = value.g_shapley(
        value.LogisticRegression(),
        *task.arrays(),
        key=KEY,
        metric=metric,
        learning_rate=RATE,
        stop=value.MaxSamples(PASSES),
    )
    x, x_val = task.x.astype(np.float64), task.x_val.astype(np.float64)
    x, x_val = ((a - x.mean(0)) / x.std(0) for a in (x, x_val))
    outputs = 1 if classes == 2 else classes
    given = np.zeros((x.shape[1], outputs)), np.zeros(outputs), classes == 2
    marginals = loop(x, task.y, x_val, task.y_val, metric, *given, 1 / classes)
    close(found, marginals)


@pytest.mark.slow
def test_g_shapley_of_a_flax_model_is_a_loop():
    task = cases.blobs(3, N)
    learner = value.FlaxLearner(linen.Dense(3), optax.adam(1.0))
    found = value.g_shapley(
        learner,
        *task.arrays(),
        key=KEY,
        metric="likelihood",
        learning_rate=RATE,
        stop=value.MaxSamples(PASSES),
    )
    own = jax.random.split(KEY, 3)[1]
    start = learner.init(own, task.x[:1])["params"]
    weight, bias = (np.asarray(start[name], np.float64) for name in ("kernel", "bias"))
    x, x_val = task.x.astype(np.float64), task.x_val.astype(np.float64)
    before = measure("likelihood", x_val @ weight + bias, task.y_val)
    marginals = loop(
        x, task.y, x_val, task.y_val, "likelihood", weight, bias, False, before
    )
    close(found, marginals)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("l2", [0.7, 5.0])
def test_influence_is_the_slope_of_retraining(classes, l2):
    linear_model = pytest.importorskip("sklearn.linear_model")
    task, step = cases.blobs(classes, N, m=9), 1e-3

    def losses(weights):
        model = linear_model.LogisticRegression(
            C=1 / l2, tol=1e-12, max_iter=10000, solver="newton-cholesky"
        )
        model = cases.fit(model, task.x, task.y, sample_weight=weights)
        p = model.predict_log_proba(task.x_val.astype(np.float64))
        return -p[np.arange(len(p)), task.y_val]

    slopes = np.stack(
        [
            (losses(1 - step * here) - losses(1 + step * here)) / (2 * step)
            for here in np.eye(N)
        ],
        axis=1,
    )
    found = value.influence(*task.arrays(), l2=l2)
    assert np.abs(slopes.mean(0)).max() > 0.01
    np.testing.assert_allclose(found.values, slopes.mean(0), rtol=1e-4, atol=1e-6)
    error = slopes.std(0, ddof=1) / np.sqrt(len(slopes))
    np.testing.assert_allclose(found.stderr, error, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_influence_approximates_leaving_out():
    stats = pytest.importorskip("scipy.stats")
    task = cases.blobs(2, 60)
    found = value.influence(*task.arrays())
    utility = value.ModelUtility(
        value.LogisticRegression(tol=1e-6), *task.arrays(), metric="neg_log_loss"
    )
    exact = value.loo(utility)
    assert stats.spearmanr(found.values, exact.values)[0] > 0.95
    np.testing.assert_allclose(found.values, exact.values, rtol=0.3, atol=1e-3)


def test_influence_refuses_labels_that_nothing_was_trained_on():
    x, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"labels that occur in y, got .*\b7\b"):
        value.influence(x, y, x, np.array([0, 1, 7, 1]))
