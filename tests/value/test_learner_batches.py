"""Coalitions in batches: what is computed with which changes nothing."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxsel
from jaxsel import value
from jaxsel.value import _utility

from . import retrain_cases as cases

pytestmark = pytest.mark.slow

N = 24
LEARNERS = {
    "logistic": value.LogisticRegression(l2=0.7),
    "ridge": value.RidgeRegression(l2=0.7),
    "bayes": value.GaussianNB(),
    "knn": value.KNN(k=3),
    "centroid": value.NearestCentroid(),
}
METRICS = {"ridge": "r2", "centroid": "accuracy"}
each_learner = pytest.mark.parametrize("name", LEARNERS)


def task_for(name):
    return cases.line(N) if name == "ridge" else cases.blobs(3, N)


def utility_of(name, *arrays, metric: Any = None):
    arrays = arrays or task_for(name).arrays()
    metric = metric or METRICS.get(name, "likelihood")
    return value.ModelUtility(LEARNERS[name], *arrays, metric=metric)


def close(found, expected, atol=1e-4):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


@each_learner
def test_points_outside_a_coalition_have_no_influence(name):
    task, weights = task_for(name), cases.varied(N)
    found = predictions(LEARNERS[name], task, weights)
    for row in (8, 14, 20, 27):
        out = weights[row] == 0
        x, y = task.x.copy(), task.y.copy()
        x[out] = -2 * x[out] + 5
        y[out] = y[out][::-1]
        other = cases.Task(x, y, task.x_val, task.y_val, task.classes)
        close(predictions(LEARNERS[name], other, weights)[row], found[row], 2e-4)


def predictions(learner, task, weights):
    if task.classes:
        return cases.probabilities(learner, task, weights)
    return cases.scores(learner, task, weights)[0]


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("logistic", "likelihood"),
        ("logistic", "accuracy"),
        ("ridge", "r2"),
        ("bayes", "likelihood"),
        ("knn", "likelihood"),
        ("centroid", "accuracy"),
    ],
)
def test_coalitions_alone_and_in_a_batch(name, metric):
    utility = utility_of(name, metric=metric)
    weights = cases.varied(N)
    weights[0] = 0
    together = np.asarray(utility(weights, cases.KEY))
    assert together.shape == (len(weights),)
    assert together.dtype == np.float32
    tolerance = {"rtol": 0, "atol": 0 if metric == "accuracy" else 1e-6}
    if metric == "r2":
        tolerance["rtol"] = 1e-5  # as low as -100 for the smallest
    backwards = np.asarray(utility(weights[::-1].copy(), cases.KEY))[::-1]
    np.testing.assert_allclose(backwards, together, **tolerance)
    for row in (0, 1, 8, 20, 30):
        alone = np.asarray(utility(weights[[row]], cases.KEY))
        np.testing.assert_allclose(alone, together[[row]], **tolerance)


@pytest.mark.parametrize("name", ["logistic", "knn"])
def test_coalitions_in_chunks(name, monkeypatch):
    utility, weights = utility_of(name), cases.varied(N)
    whole, params = utility.evaluate(weights, cases.KEY)
    # Room for five coalitions at once, which do not divide the number of all.
    monkeypatch.setattr("jaxsel.value._utility._GROUP", 0)
    monkeypatch.setattr("jaxsel.value._utility._LANES", 5)
    _utility._kernel.cache_clear()
    parts, same = utility.evaluate(weights, cases.KEY)
    assert parts.shape == whole.shape
    close(parts, whole, 1e-6)
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(params), strict=True):
        assert a.shape == b.shape
        close(a, b)
    assert all(len(leaf) == len(weights) for leaf in jax.tree.leaves(params))
    warm, after = utility.evaluate(weights, cases.KEY, start=params)
    close(warm, whole)
    assert jax.tree.structure(after) == jax.tree.structure(params)


@each_learner
def test_arrays_of_either_kind_and_any_type_of_mask(name):
    masks = (cases.varied(N) > 0).astype(np.float32)
    arrays = task_for(name).arrays()
    results = [
        np.asarray(utility_of(name, *some)(given, cases.KEY))
        for some in (arrays, tuple(map(jnp.asarray, arrays)))
        for given in (masks, jnp.asarray(masks), masks > 0, masks.astype(int))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def model(name):
    """The scores of coalitions: what vmap, shard_map and export are given."""
    learner, task = LEARNERS[name], task_for(name)
    data = cases.examples(learner, task)

    def scores(weights, key):
        return learner.predict(learner.fit(data, weights, key), task.x_val)

    return scores


@each_learner
def test_vmap_and_shard_map(name):
    function, weights = model(name), cases.varied(N)
    weights[0] = 1
    together = jax.jit(function)(weights, cases.KEY)
    alone = jax.vmap(lambda row: function(row[None], cases.KEY)[0])
    np.testing.assert_allclose(jax.jit(alone)(weights), together, rtol=1e-4, atol=1e-4)
    mesh = jaxsel.make_mesh()
    split = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(jax.P("data"), jax.P()),
        out_specs=jax.P("data"),
    )
    found = jax.jit(split)(weights, cases.KEY)
    np.testing.assert_allclose(found, together, rtol=1e-4, atol=1e-4)


@each_learner
def test_lowers_to_accelerators(name):
    platforms = ("tpu", "cuda")
    exported = export.export(jax.jit(model(name)), platforms=platforms)
    lowered = exported(cases.varied(N), cases.KEY)
    assert lowered.platforms == platforms
    called = re.findall(r"custom_call @(\w+)", lowered.mlir_module())
    assert not [t for t in called if t.startswith(("jaxsel", "lapack"))]


@each_learner
def test_second_call_traces_nothing(name):
    weights = cases.varied(N)
    utility_of(name)(weights, cases.KEY)
    again, key = utility_of(name), jax.random.key(1)
    with jax.no_tracing(True):
        found = again(weights[::-1].copy(), key)
    assert np.isfinite(found).all()


def test_learners_are_values():
    assert value.LogisticRegression() == value.LogisticRegression(l2=1.0)
    assert value.LogisticRegression() != value.LogisticRegression(l2=2.0)
    for learner in LEARNERS.values():
        assert isinstance(hash(learner), int)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: value.LogisticRegression(l2=0.0), "l2 must be .* above zero, got 0"),
        (lambda: value.LogisticRegression(l2=-1.0), "l2 must be .* above zero, got -1"),
        (lambda: value.RidgeRegression(l2=float("nan")), "l2 must be finite"),
        (lambda: value.KNN(k=0), "k must be at least 1, got 0"),
        (lambda: value.KNN(metric="l1"), "metric must be one of 'l2'"),  # type: ignore
    ],
)
def test_bad_hyperparameters(make, names):
    with pytest.raises(ValueError, match=names):
        make()
