"""The registry of KNN values: it is whole, and each value is its definition."""

import inspect
import math
from typing import Unpack

import jax
import numpy as np
import pytest
import references as ref

import jaxsel
from jaxsel import Values, value
from jaxsel.value import VALUES, shapley_weights
from jaxsel.value._linear import linear_values
from jaxsel.value._options import KnnOptions, Options, knn_value
from jaxsel.value._registry import KnnValue
from jaxsel.value._weights import banzhaf_weights

from . import cases

K = 3
each_value = pytest.mark.parametrize("name", VALUES)


def unregistered(public):
    """Return the KNN values among public names that the registry lacks."""
    registered = {id(item.function) for item in VALUES.values()}
    return [
        name
        for name, thing in public.items()
        if not name.startswith("_")
        and inspect.isfunction(inspect.unwrap(thing))
        and {"k", "ties"} & {*(parameters := inspect.signature(thing).parameters)}
        and any(p.endswith("_val") for p in parameters)
        and inspect.unwrap(thing).__annotations__.get("return") in (Values, "Values")
        and id(thing) not in registered
    ]


def check_definition(name, registered):
    """Compare a value with the enumeration of all coalitions, and name it if wrong."""
    method, data = cases.Method(name, registered), cases.random(6)
    for k in (1, K, 8):
        np.testing.assert_allclose(
            method.call(data, k, reduce=None).values,
            method.enumerate(data, k),
            rtol=0,
            atol=2e-6,
            err_msg=f"{name} is not the value by `by_size` and `utility`",
        )


def test_every_public_value_is_registered_under_its_name():
    assert unregistered(vars(value)) == []
    for name, registered in VALUES.items():
        assert registered.function is getattr(value, name)
    assert {*VALUES} <= {*cases.BY_NAME}


@each_value
def test_values_are_their_definition(name):
    check_definition(name, VALUES[name])


@each_value
@pytest.mark.parametrize("n", [1, 2, 7])
def test_weights_of_coalitions_are_a_distribution(name, n):
    by_size = VALUES[name].by_size(n)
    of_size = [math.comb(n - 1, s) for s in range(n)]
    assert np.dot(by_size, of_size) == pytest.approx(1, abs=1e-12)
    is_shapley = np.allclose(by_size, ref.shapley_weights(n), rtol=1e-12)
    assert is_shapley or not VALUES[name].efficient


@each_value
def test_choices_are_those_of_the_function(name):
    method, data = cases.BY_NAME[name], cases.random(4)
    for option, choices, all_choices in (
        ("ties", method.value.ties, ("stable", "average")),
        ("method", method.value.methods, ("exact", "hybrid")),
    ):
        for choice in all_choices:
            if choice in choices:
                method.call(data, K, **{option: choice})
            else:
                with pytest.raises(ValueError, match=f"{option} must be one of"):
                    method.call(data, K, **{option: choice})


@each_value
def test_strict_promotion_changes_nothing(name):
    method, data = cases.BY_NAME[name], cases.grid(9)
    expected = method.call(data, K, reduce=None).values
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        values = method.call(data, K, reduce=None).values
    np.testing.assert_array_equal(values, expected)


@each_value
def test_other_validation_points_change_no_value(name):
    method, data = cases.BY_NAME[name], cases.random(7)
    expected = np.asarray(method.call(data, K, reduce=None).values)
    rows = np.random.default_rng(0).permutation(np.r_[:12, :12])
    values = {f: getattr(data, f)[rows] for f in ("x_val", "y_val", "t_val")}
    twice = cases.changed(data, **values)
    found = method.call(twice, K, reduce=None, chunk_size=5).values
    cases.close(found, expected[rows], 2e-7)


@each_value
def test_columns_of_raw_scales(name):
    method, data = cases.BY_NAME[name], cases.random(6)
    raw = lambda x: np.column_stack([x, 1e9 + np.arange(len(x)) % 2]).astype(float)
    data = cases.changed(data, x=raw(data.x), x_val=raw(data.x_val))
    values = method.call(data, K, reduce=None).values
    cases.close(values, method.enumerate(data, K))


def new_value(rank_weights):
    """Return a value as `extending.md` says to write one."""

    @knn_value
    def knn_new(
        x, y, x_val, y_val, *, k: int = 5, **options: Unpack[KnnOptions]
    ) -> Values:
        weights = rank_weights, x, y, x_val, y_val
        return linear_values("knn_new", *weights, k=k, options=Options(**options))

    return knn_new


def test_a_new_value_passes():
    new = new_value(lambda n, k: 1 / np.maximum(np.arange(1, n + 1), k))
    check_definition("knn_new", KnnValue(new))


def test_a_value_that_is_not_registered_is_named():
    new = new_value(shapley_weights)
    assert unregistered({**vars(value), "knn_new": new}) == ["knn_new"]


@pytest.mark.parametrize(
    "registered",
    [
        KnnValue(new_value(lambda n, k: shapley_weights(n, k)[::-1])),
        KnnValue(new_value(banzhaf_weights)),
        KnnValue(jaxsel.knn_loo, VALUES["knn_banzhaf"].by_size),
        KnnValue(jaxsel.soft_knn_shapley),
    ],
    ids=["reversed weights", "not efficient", "other sizes", "other utility"],
)
def test_a_wrong_value_is_named(registered):
    with pytest.raises(AssertionError, match="knn_new is not the value by"):
        check_definition("knn_new", registered)


def test_a_value_of_weights_that_are_nan_is_refused():
    new = KnnValue(new_value(lambda n, k: np.full(n, np.nan)))
    with pytest.raises(ValueError, match="rank_weights must be finite, got nan"):
        check_definition("knn_new", new)
