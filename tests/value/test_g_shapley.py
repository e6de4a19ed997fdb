"""G-Shapley against a plain loop over steps, and the rate that it finds."""

import jax
import numpy as np
import optax
import pytest
from scipy.stats import f_oneway

from jaxsel import models, value
from jaxsel.data import flip_labels, load
from jaxsel.value import _rates
from jaxsel.value._rates import RATES, TRIED, choose_rate, marginals, reliability
from jaxsel.value._sampling import permutation_ranks

from .games import honest_stderr
from .retrain_cases import blobs

KEY = jax.random.key(11)
DRAWN, _, TRIAL = jax.random.split(KEY, 3)


def loop(task, order, rate, metric):
    """The metric before and after each step of softmax regression, in float64."""
    mean, deviation = task.x.astype(float).mean(0), task.x.astype(float).std(0)
    to = lambda x: np.append((x - mean) / deviation, np.ones((len(x), 1)), axis=1)
    x, x_val = to(task.x), to(task.x_val)
    weights = np.zeros((x.shape[1], task.classes))
    found = [1 / task.classes]
    for i in order:
        z = np.exp(x[i] @ weights)
        error = z / z.sum() - (np.arange(task.classes) == task.y[i])
        # Two classes have one weight vector, that of their difference.
        step = 0.5 if task.classes == 2 else 1.0
        weights -= step * rate * np.outer(x[i], error)
        scores = x_val @ weights
        if metric == "accuracy":
            found.append(np.mean(scores.argmax(1) == task.y_val))
        else:
            p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            found.append(p[np.arange(len(p)), task.y_val].mean())
    return np.array(found)


def loops(task, key, count, rate, metric):
    """Each point's change in each pass, and the metric at the end of each."""
    ranks = np.asarray(permutation_ranks(key, 0, count=count, n=task.n))
    rows, ends = np.zeros((count, task.n)), []
    for t, rank in enumerate(ranks):
        order = np.argsort(rank)
        found = loop(task, order, rate, metric)
        for place, i in enumerate(order):
            rows[t, i] = found[place + 1] - found[place]
        ends.append(found[-1])
    return rows, np.array(ends)


def test_what_is_no_mesh_is_refused():
    with pytest.raises(ValueError, match=r"mesh must be.*'all'"):
        value.g_shapley(
            value.LogisticRegression(), *blobs(2, 8).arrays(), key=KEY, mesh="all"
        )


@pytest.mark.parametrize(("classes", "metric"), [(2, "accuracy"), (3, "likelihood")])
@pytest.mark.every(2)
def test_values_are_those_of_a_loop(classes, metric):
    task = blobs(classes, 20)
    found = value.g_shapley(
        value.LogisticRegression(),
        *task.arrays(),
        key=KEY,
        metric=metric,
        learning_rate=0.3,
        stop=value.MaxSamples(24),
    )
    rows, _ = loops(task, DRAWN, 24, 0.3, metric)
    np.testing.assert_allclose(found.values, rows.mean(0), atol=1e-5)
    np.testing.assert_allclose(found.stderr, honest_stderr(rows), atol=1e-5)


def within(rows, y):
    """The share of variance within classes that is no sampling error, in loops."""
    count, n = rows.shape
    squares, free = 0.0, n
    for k in np.unique(y):
        members = rows[:, y == k].mean(0)
        squares += sum((v - members.mean()) ** 2 for v in members)
        free -= 1
    noise = np.mean([np.var(column, ddof=1) / count for column in rows.T])
    return 1 - noise / (squares / free)


@pytest.mark.parametrize("side", ["x", "x_val"])
def test_the_row_that_is_not_finite_is_named(side):
    arrays = dict(zip(("x", "y", "x_val", "y_val"), blobs(2, 20).arrays(), strict=True))
    arrays[side] = np.array(arrays[side])
    arrays[side][5, 1] = np.nan
    message = rf"^{side} must be finite, but row 5 has NaN or infinity \(1 of \d+ rows"
    with pytest.raises(ValueError, match=message):
        value.g_shapley(value.LogisticRegression(), *arrays.values(), key=KEY)


@pytest.mark.left_out
def test_the_rate_is_that_of_a_loop():
    task = blobs(3, 20)
    ends, marks = [], []
    for rate in RATES:
        rows, end = loops(task, TRIAL, TRIED, rate, "likelihood")
        ends.append(end.mean() - 1 / 3)
        marks.append(within(rows, task.y))
    learns = [end >= max(ends) / 2 for end in ends]
    assert 0 < sum(learns) < len(RATES)  # so that both conditions decide
    expected = RATES[int(np.where(learns, marks, -np.inf).argmax())]
    given = value.LogisticRegression(), *task.arrays()
    options = {"key": KEY, "metric": "likelihood", "stop": value.MaxSamples(8)}
    found = value.g_shapley(*given, **options)
    assert f"learning_rate={expected:g}" in found.method
    again = value.g_shapley(*given, **options, batch_size=8)
    assert again.method == found.method
    fixed = value.g_shapley(*given, **options, learning_rate=expected)
    np.testing.assert_allclose(found.values, fixed.values, atol=1e-6)


def test_reliability_is_a_variance_ratio():
    """Of values that are all their own group's it follows from F of an ANOVA."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 9)) + rng.normal(size=9)
    ratio = f_oneway(*rows.T).statistic
    one = np.zeros(9, int)
    assert reliability(rows, one) == pytest.approx(1 - 1 / ratio)
    groups = np.arange(9) % 3
    assert reliability(rows + 100 * groups, groups) == pytest.approx(
        within(rows, groups)
    )
    assert reliability(np.ones((4, 9)), groups) == 0
    assert reliability(rows, np.arange(9)) == reliability(rows, one)
    assert reliability(rows[:, :1], one[:1]) == 0


def scripted(monkeypatch, **by):
    """Choose among three rates whose passes are scripted, of 40 points."""
    monkeypatch.setattr(_rates, "RATES", tuple(range(len(by))))
    rng = np.random.default_rng(3)
    count, n = TRIED, 40
    ranks = np.stack([rng.permutation(n) for _ in range(count)])
    groups, taught = np.arange(n) % 2, rng.normal(size=n)
    names = list(by)

    def passes(rate):
        gain, signal, other = by[names[int(rate)]]
        rows = signal * taught + other * groups + rng.normal(size=(count, n))
        rows += (gain - rows.sum(1, keepdims=True)) / n
        steps = np.take_along_axis(rows, np.argsort(ranks, axis=1), axis=1)
        found = np.append(np.zeros((count, 1)), steps, axis=1).cumsum(1)
        np.testing.assert_allclose(marginals(found, ranks), rows, atol=1e-9)
        return 0.5 + found

    return names[choose_rate(passes, ranks, groups, 0.5)]


def test_a_rate_must_learn_and_tell_points_of_a_class_apart(monkeypatch):
    choose = lambda **by: scripted(monkeypatch, **by)
    # gain, spread within classes, difference between the classes
    assert choose(noisy=(0.4, 0.1, 0), good=(0.3, 1.0, 0), idle=(0.1, 5.0, 0)) == "good"
    assert choose(classes=(0.4, 0, 50), good=(0.4, 0.5, 0)) == "good"
    assert choose(diverged=(np.nan, 9.0, 0), good=(0.4, 0.1, 0)) == "good"
    assert choose(worse=(-0.2, 9.0, 0), bad=(-0.1, 0.1, 0)) == "bad"
    with pytest.raises(ValueError, match="learning_rate must be given: from 0 to 1"):
        choose(one=(np.nan, 1, 0), other=(np.nan, 1, 0))


def wrong_digits(n, m, seed):
    digits = load("digits", split="all")
    x, y = digits.as_features(), np.asarray(digits.y)
    order = np.random.default_rng(seed).permutation(len(y))[: n + m]
    x, y = x[order], y[order]
    given, wrong = flip_labels(jax.random.key(seed), y[:n], 0.2, n_classes=10)
    return (x[:n], np.asarray(given), x[n:], y[n:]), np.asarray(wrong)


def area(values, wrong):
    """The chance that a wrong label is worth less than a right one."""
    worth = np.asarray(values.values)
    less = worth[wrong][:, None] - worth[~wrong]
    return np.mean(less < 0) + np.mean(less == 0) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "n"),
    [
        (value.LogisticRegression(), 200),
        (
            value.FlaxLearner(
                lambda rngs: models.MLP(64, 32, 10, rngs=rngs), optax.sgd(0.1), steps=1
            ),
            120,
        ),
    ],
    ids=["linear", "network"],
)
def test_the_rate_found_points_to_wrong_labels_as_the_best_one_does(learner, n):
    arrays, wrong = wrong_digits(n, n, 0)
    options = {"key": KEY, "stop": value.MaxSamples(64), "batch_size": 64}
    areas = [
        area(value.g_shapley(learner, *arrays, **options, learning_rate=rate), wrong)
        for rate in RATES[::2]
    ]
    assert max(areas) > min(areas) + 0.1  # it matters
    found = value.g_shapley(learner, *arrays, **options)
    assert area(found, wrong) > max(areas) - 0.03
