"""Options of the value functions, and the errors for those that are refused."""

import dataclasses
import inspect
import re
import typing

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsel
from jaxsel.value import _linear, _options, shapley_weights
from jaxsel.value._options import KnnOptions

from . import cases
from .cases import changed, close

pytestmark = pytest.mark.every(3)

SHAPLEY = cases.BY_NAME["knn_shapley"]
K = 3


@pytest.fixture
def data():
    return cases.random(7)


# Refused: each message names the argument.


OPTIONS = [
    ({"metric": "l1"}, ValueError, "metric must be one of 'l2', 'cosine'.*'l1'"),
    ({"reduce": "sum"}, ValueError, "reduce must be one of.*'sum'"),
    ({"ties": "first"}, ValueError, "ties must be one of.*'first'"),
    ({"method": "fast"}, ValueError, "method must be one of.*'fast'"),
    ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1, got 0"),
    ({"chunk_size": 2.0}, TypeError, "chunk_size must be a whole number.*2.0"),
    ({"mesh": "all"}, ValueError, "mesh must be.*'all'"),
]


@cases.each_method
@pytest.mark.parametrize(
    ("options", "error", "message"), OPTIONS, ids=[next(iter(o[0])) for o in OPTIONS]
)
def test_options(method, data, options, error, message):
    with pytest.raises(error, match=message):
        method.call(data, K, **options)


@pytest.mark.parametrize(
    "method",
    [m for m in cases.METHODS if m.value.utility != "ball"],
    ids=lambda m: m.name,
)
def test_k(method, data):
    for k in (0, -1):
        with pytest.raises(ValueError, match=f"k must be at least 1, got {k}"):
            method.call(data, k)
    for k in (2.0, 2.5, True, "5", None):
        with pytest.raises(TypeError, match=f"k must be a whole number, got {k!r}"):
            method.call(data, k)
    close(method.call(data, np.int64(3)).values, method.call(data, 3).values, 0)


def test_radius_is_a_distance(data):
    call = lambda radius: jaxsel.threshold_knn_shapley(*data.classes(), radius=radius)
    for radius in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="radius must be"):
            call(radius)
    with pytest.raises(TypeError, match="radius must be a number"):
        call("wide")
    assert not np.asarray(call(0.0).values).any()
    data = changed(data, x_val=data.x[[2] * 12])
    assert np.flatnonzero(np.asarray(call(0.0).values)).tolist() == [2]


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_beta_parameters_are_positive(data, name):
    for value in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=f"{name} must be"):
            jaxsel.knn_beta_shapley(*data.classes(), **{name: value})


def test_fewer_classes_than_there_are(data):
    with pytest.raises(ValueError, match="n_classes must be at least"):
        jaxsel.soft_knn_shapley(*data.classes(), n_classes=2)


def test_more_columns_than_classes(data):
    bad = changed(data, y=np.full((7, 3), 1 / 3), y_val=data.y_val % 3)
    with pytest.raises(ValueError, match="n_classes must be at least 3.*columns.*2"):
        jaxsel.soft_knn_shapley(*bad.classes(), n_classes=2)


def test_distance_weights_must_be_finite(data):
    twin = changed(data, x_val=data.x[:1], y_val=data.y[:1])
    with pytest.raises(ValueError, match="weights"):
        SHAPLEY.call(twin, K, weights=lambda distance: 1 / distance)


def test_rank_weights_have_one_entry_a_point(data):
    with pytest.raises(ValueError, match=r"rank_weights.*\[n\].*7.*\(6,\)"):
        jaxsel.knn_semivalue(*data.classes(), k=K, rank_weights=np.ones(6))
    with pytest.raises(ValueError, match="rank_weights must be finite"):
        jaxsel.knn_semivalue(*data.classes(), k=K, rank_weights=np.full(7, np.nan))


@pytest.mark.parametrize(
    ("rank_weights", "message"),
    [
        (lambda n, k: np.nan * shapley_weights(n, k), "finite, got nan for rank 1"),
        (lambda n, k: shapley_weights(n + 1, k), r"shape \[n\] = \[7\].*got \(8,\)"),
        (lambda n, k: shapley_weights(n - 1, k), r"shape \[n\] = \[7\].*got \(6,\)"),
    ],
    ids=["nan", "one more", "one fewer"],
)
def test_rank_weights_of_a_new_value_are_checked(data, rank_weights, message):
    options = _options.Options()
    with pytest.raises(ValueError, match=f"rank_weights must .*{message}"):
        _linear.linear_values(
            "new", rank_weights, *data.classes(), k=K, options=options
        )


# Accepted.


def test_method_names_what_matters(data):
    method = SHAPLEY.call(data, K, metric="cosine", ties="average").method
    assert re.search(r"knn_shapley.*k=3.*cosine.*average", method)


def test_filled_in_options_are_the_documented_ones():
    filled_in = {f.name: f.type for f in dataclasses.fields(_options.Options)}
    assert filled_in == typing.get_type_hints(KnnOptions)


def test_options_are_in_the_signature():
    for function in (jaxsel.knn_shapley, jaxsel.value.knn_regression_shapley):
        parameters = inspect.signature(function).parameters
        assert parameters["metric"].default == "l2"
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    with pytest.raises(TypeError, match=r"knn_loo\(\) got .* 'kk'; .* k, metric"):
        jaxsel.knn_loo([[1.0]], [1], [[1.0]], [1], kk=3)
    with pytest.raises(ValueError, match="weights must be None"):
        jaxsel.knn_regression_shapley([[1.0]], [1], [[2.0]], [1], weights=jnp.exp)
