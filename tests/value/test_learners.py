"""Each learner on many coalitions at once against scikit-learn on one at a time."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import value
from jaxsel.value._learners import _curvature, _softmax

from . import retrain_cases as cases

pytest.importorskip("sklearn")
from sklearn import linear_model, naive_bayes, neighbors

pytestmark = pytest.mark.every(3)

N = 24
L2 = 0.7
K = 3


def logistic(n, *, l2=L2):
    # The optimum is that of every solver; this one is the fastest to reach it.
    return linear_model.LogisticRegression(
        C=1 / l2, tol=1e-8, max_iter=10000, solver="newton-cholesky"
    )


def ridge(n):
    return linear_model.Ridge(alpha=L2)


LOGISTIC = value.LogisticRegression(l2=L2)
RIDGE = value.RidgeRegression(l2=L2)
# Closed forms, and scikit-learn's estimator for so many rows.
CLOSED = {
    "bayes": (value.GaussianNB(), lambda n: naive_bayes.GaussianNB()),
    "knn": (value.KNN(k=K), lambda n: neighbors.KNeighborsClassifier(min(K, n))),
    "centroid": (value.NearestCentroid(), lambda n: neighbors.NearestCentroid()),
}
CLASSIFIERS = {
    "logistic": LOGISTIC,
    **{name: learner for name, (learner, _) in CLOSED.items()},
}


def close(found, expected, atol=1e-4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


def same_classes(found, expected, sure=1e-3):
    """Probabilities are close, and classes the same where these do not all but tie."""
    close(found, expected)
    ordered = np.sort(expected, axis=-1)
    clear = ordered[..., -1] - ordered[..., -2] > sure
    assert clear.mean() > 0.9
    equal = found.argmax(-1) == expected.argmax(-1)
    assert equal[clear].all()


# Logistic regression.


@pytest.mark.parametrize(
    ("classes", "n", "d"), [(2, N, 3), (3, N, 3), (10, 40, 3), (2, N, 20)]
)
@pytest.mark.every(4)
def test_logistic_on_coalitions_of_every_size_and_bags(classes, n, d):
    task = cases.blobs(classes, n, d=d)
    weights = cases.varied(n)
    found = cases.probabilities(LOGISTIC, task, weights)
    same_classes(found, cases.expected_probabilities(logistic, task, weights))


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_fractional_weights(classes):
    task = cases.blobs(classes, N)
    weights = (cases.varied(N) + 0.25) / 2
    found = cases.probabilities(LOGISTIC, task, weights)
    for row, some in list(zip(found, weights, strict=True))[-8:]:
        model = cases.fit(logistic(N), task.x, task.y, sample_weight=some)
        close(row, model.predict_proba(task.x_val))


@pytest.mark.left_out
def test_logistic_on_coalitions_that_lack_classes():
    # Exactly two classes have one penalty on the difference of their weights, in a
    # task of four as well: a softmax with a penalty on each would be less certain.
    task = cases.blobs(4, 28)
    kept = [c for size in (1, 2, 3) for c in itertools.combinations(range(4), size)]
    masks = cases.of_classes(task.y, kept)
    found = cases.probabilities(LOGISTIC, task, masks)
    same_classes(found, cases.expected_probabilities(logistic, task, masks))
    for some, row in zip(kept, found, strict=True):
        assert not row[:, np.setdiff1d(np.arange(4), some)].any()


@pytest.mark.parametrize(
    ("classes", "l2"),
    [(2, 1e-2), (3, 1e-2), pytest.param(3, 30.0, marks=pytest.mark.slow)],
)
@pytest.mark.left_out
def test_logistic_penalties_and_separable_classes(classes, l2):
    learner, make = value.LogisticRegression(l2=l2), functools.partial(logistic, l2=l2)
    weights = cases.varied(N)
    for distance in (1.5, 12.0):
        task = cases.blobs(classes, N, distance=distance)
        found = cases.probabilities(learner, task, weights)
        same_classes(found, cases.expected_probabilities(make, task, weights))


@pytest.mark.parametrize(("classes", "d"), [(2, 3), (3, 3), (2, 20)])
@pytest.mark.left_out
def test_logistic_of_badly_scaled_features(classes, d):
    scale, offset = np.geomspace(0.1, 30, d), np.resize([50.0, -50.0, 0.0], d)
    task = cases.blobs(classes, N, d=d).scaled(scale, offset)
    weights = cases.varied(N)
    found = cases.probabilities(LOGISTIC, task, weights)
    same_classes(found, cases.expected_probabilities(logistic, task, weights))


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_of_a_feature_that_never_changes(classes):
    task = cases.blobs(classes, N).scaled([1.0, 0.0, 1.0], [0.0, 7.0, 0.0])
    weights = cases.varied(N)
    found = cases.probabilities(LOGISTIC, task, weights)
    same_classes(found, cases.expected_probabilities(logistic, task, weights))


@pytest.mark.parametrize(
    ("classes", "permutations", "tol"),
    [
        (2, 3, 1e-4),
        (3, 3, 1e-4),
        pytest.param(2, 30, 1e-4, marks=pytest.mark.slow),
        # Of so many predictions one is 1e-5 from the border, within the default.
        pytest.param(3, 30, 1e-6, marks=pytest.mark.slow),
    ],
)
def test_logistic_accuracies_of_all_prefixes(classes, permutations, tol):
    task = cases.blobs(classes, N)
    learner = value.LogisticRegression(l2=L2, tol=tol)
    utility = value.ModelUtility(learner, *task.arrays())
    for seed in range(permutations):
        masks = cases.prefixes(N, seed=seed)
        right = np.asarray(utility(masks, cases.KEY)) * len(task.y_val)
        close(right, np.round(right))
        expected = cases.expected_predictions(logistic, task, masks) == task.y_val
        np.testing.assert_array_equal(np.round(right), expected.sum(1))


@pytest.mark.parametrize(("classes", "d"), [(2, 3), (3, 3), (2, 20)])
@pytest.mark.parametrize("distance", [1.5, 12.0])
@pytest.mark.parametrize("start", ["same", "neighbour", "disjoint", "far"])
@pytest.mark.every(24)
def test_logistic_warm_starts_change_nothing(classes, d, distance, start):
    task = cases.blobs(classes, N, d=d, distance=distance)
    weights = cases.varied(N)
    before = {"neighbour": np.roll(weights, 1, axis=0), "disjoint": weights == 0}
    cold = cases.probabilities(LOGISTIC, task, weights)
    _, params = cases.scores(LOGISTIC, task, before.get(start, weights))
    if start == "far":
        floats = lambda a: jnp.issubdtype(a.dtype, jnp.floating)
        params = jax.tree.map(lambda a: a * 100 if floats(a) else a, params)
    close(cases.probabilities(LOGISTIC, task, weights, start=params), cold)


# Closed forms.


@pytest.mark.parametrize("d", [3, 20])
def test_ridge(d):
    task, weights = cases.line(N, d=d), cases.varied(N)
    found, _ = cases.scores(RIDGE, task, weights)
    assert found.shape == (len(weights), len(task.x_val), 1)
    close(found[..., 0], cases.expected_predictions(ridge, task, weights), 5e-4)


def test_ridge_fractional_weights():
    task, weights = cases.line(N), (cases.varied(N) + 0.25) / 2
    found, _ = cases.scores(RIDGE, task, weights)
    for row, some in zip(found, weights, strict=True):
        model = ridge(N).fit(task.x, task.y, sample_weight=some)
        close(row[:, 0], model.predict(task.x_val), 2e-4)


def test_ridge_of_badly_scaled_features():
    task = cases.line(N).scaled([0.1, 1, 30], [50, -50, 0])
    weights = cases.varied(N)
    found, _ = cases.scores(RIDGE, task, weights)
    expected = cases.expected_predictions(ridge, task, weights)
    # Small coalitions extrapolate to some hundreds.
    np.testing.assert_allclose(found[..., 0], expected, rtol=2e-4, atol=2e-3)


def test_ridge_of_classes_is_the_ridge_classifier():
    task, weights = cases.blobs(3, N), cases.varied(N)
    found, _ = cases.scores(RIDGE, task, weights)
    make = lambda n: linear_model.RidgeClassifier(alpha=L2)
    expected = cases.expected_predictions(make, task, weights)
    np.testing.assert_array_equal(found.argmax(-1), expected)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize(("classes", "n"), [(2, N), (3, N), (10, 40)])
@pytest.mark.every(3)
def test_closed_forms(name, classes, n):
    learner, make = CLOSED[name]
    task = cases.blobs(classes, n)
    weights = cases.varied(n)
    weights[:3] = cases.of_classes(task.y, [[1], [0, 1], range(1, classes)])
    found, _ = cases.scores(learner, task, weights)
    expected = cases.expected_predictions(make, task, weights)
    np.testing.assert_array_equal(found.argmax(-1), expected)
    sizes = (weights > 0) @ np.eye(classes)[task.y]
    assert np.isneginf(found.transpose(0, 2, 1)[sizes == 0]).all()
    if learner.probabilistic:
        # A class of one point has no variance, so that rounding decides.
        some = (sizes != 1).all(1) if name == "bayes" else slice(None)
        assert len(weights[some]) > 5
        found = cases.probabilities(learner, task, weights)[some]
        close(found, cases.expected_probabilities(make, task, weights[some]))


def test_bayes_fractional_weights():
    task, weights = cases.blobs(3, N), (cases.varied(N) + 0.25) / 2
    found = cases.probabilities(value.GaussianNB(), task, weights)
    for row, some in zip(found, weights, strict=True):
        model = naive_bayes.GaussianNB().fit(task.x, task.y, sample_weight=some)
        close(row, model.predict_proba(task.x_val))


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_far_from_the_origin(name):
    learner, make = CLOSED[name]
    task = cases.blobs(3, N).scaled([0.1, 1, 3], [50, -50, 0])
    weights = cases.varied(N)
    weights[0] = 1
    found, _ = cases.scores(learner, task, weights)
    expected = cases.expected_predictions(make, task, weights)
    # Of 1600 predictions float32 may turn the closest.
    assert np.mean(found.argmax(-1) == expected) > 0.998


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_one_point_and_equal_points_predict_their_class(name):
    task = cases.blobs(3, N)
    x, y = task.x.copy(), task.y.copy()
    x[:4], y[:4] = x[0], 2
    task = cases.Task(x, y, task.x_val, task.y_val, 3)
    weights = cases.varied(N)
    weights[:24] = np.eye(N)
    weights[24] = np.arange(N) < 4
    found, _ = cases.scores(CLASSIFIERS[name], task, weights)
    expected = np.append(y, 2)[:, None] == np.arange(3)
    np.testing.assert_array_equal(
        np.isfinite(found[:25]), np.broadcast_to(expected[:, None], (25, 50, 3))
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_equal_points_of_two_classes(name):
    task = cases.blobs(3, N)
    task.x[:4], task.y[:4] = task.x[0], [1, 2, 1, 2]
    weights = cases.varied(N)
    weights[0] = np.arange(N) < 4
    found, _ = cases.scores(CLASSIFIERS[name], task, weights)
    assert np.isfinite(found[0, :, 1:]).all()
    assert np.isneginf(found[0, :, 0]).all()


def test_ridge_of_many_classes_and_features_comes_to_an_end():
    # Ten calls of LAPACK side by side used to wait for each other for ever.
    task = cases.blobs(10, 200, d=64)
    utility = value.ModelUtility(value.RidgeRegression(), *task.arrays())
    masks = np.random.default_rng(0).random((200, utility.n)) < 0.5
    assert np.asarray(utility(masks)).mean() > 0.2


def test_curvature_is_that_of_the_hessian():
    # More coefficients than vectors: the largest eigenvalues, and the sum of all.
    classes, n, d, l2 = 4, 120, 40, 1.0
    task = cases.blobs(classes, n, d=d)
    x = np.append(task.x, np.ones((n, 1)), axis=1).astype(np.float64)
    found = value.curvature(x, np.eye(classes)[:, task.y], l2)

    def loss(theta):
        logits = jnp.matmul(theta.reshape(classes, -1), x.T)
        chance = jax.nn.log_softmax(logits, axis=0)[task.y, np.arange(n)]
        return -chance.sum() + l2 * theta @ theta / 2

    from scipy import optimize, special

    slope = jax.jit(jax.value_and_grad(loss))
    best = optimize.minimize(slope, np.zeros(classes * (d + 1)), jac=True).x
    p = special.softmax(best.reshape(classes, -1) @ x.T, axis=0).T
    each = p[:, :, None] * (np.eye(classes) - p[:, None])
    hessian = np.einsum("nij,nk,nl->ikjl", each, x, x).reshape(2 * [best.size]) / n
    expected = np.linalg.eigvalsh(hessian)[::-1]
    r = len(found.values)
    assert r < len(expected)
    largest = np.sort(np.asarray(found.values))[::-1]
    np.testing.assert_allclose(largest[:20], expected[:20], rtol=0.1)
    close(found.trace, np.trace(hessian), atol=0.05 * np.trace(hessian))
    close(found.trace, largest.sum() + (len(expected) - r) * found.rest)
    vectors = np.asarray(found.vectors).reshape(r, -1)
    close(vectors @ vectors.T, np.eye(r))


def test_curvature_has_the_largest_eigenvalues_right(monkeypatch):
    """Of 484 coefficients, by 128 vectors: the first 20 are those of many sweeps."""
    classes, n = 4, 300
    task = cases.blobs(classes, n, d=120)
    x = np.append(task.x, np.ones((n, 1)), axis=1).astype(np.float64)
    largest = lambda: np.sort(value.curvature(x, onehot, 1.0).values)[:-21:-1]
    onehot = np.eye(classes)[:, task.y]
    found = largest()
    monkeypatch.setattr(_curvature, "_SWEEPS", 9)
    np.testing.assert_allclose(found, largest(), rtol=2e-3)


def test_a_line_search_goes_on_until_all_steps_are_short_enough():
    """The first row's is at once, the second's after three halvings."""
    fall = lambda t: jnp.stack([-t[0], jnp.where(t[1] > 0.2, 1.0, -t[1])])
    lengths = _softmax._line_search(
        fall, jnp.ones(2), jnp.full(2, 1e3), jnp.ones(2) > 0
    )
    np.testing.assert_array_equal(lengths, [1, 1 / 8])
