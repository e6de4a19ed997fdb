"""Tables as inputs: columns by name, rows by label; and samples that are the same."""

import warnings

import numpy as np
import pandas as pd
import pytest

import jaxsel

from . import cases

K = 3
each_function = pytest.mark.parametrize(
    "name", ["knn_shapley", "threshold_knn_shapley", "knn_regression_shapley"]
)


@pytest.fixture
def data():
    return cases.random(7)


def frames(data, order=("a", "b", "c"), index=None):
    x = pd.DataFrame(data.x, columns=list("abc"), index=index)
    return x, pd.DataFrame(data.x_val, columns=list("abc"))[list(order)]


def call(name, data, **arrays):
    other = cases.dataclasses.replace(data, **arrays)
    return cases.BY_NAME[name].call(other, K)


@each_function
def test_columns_are_matched_by_name(name, data):
    x, x_val = frames(data, order="cab")
    values = call(name, data, x=x, x_val=x_val)
    np.testing.assert_array_equal(values.values, call(name, data).values)
    assert values.index is None
    # One table beside an array goes by position.
    values = call(name, data, x=x, x_val=data.x_val)
    np.testing.assert_array_equal(values.values, call(name, data).values)


@each_function
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (list("abd"), "x has 'a', 'b', 'c' and x_val has 'a', 'b', 'd'.*lacks 'c'; x"),
        (list("ab"), "x_val lacks 'c':"),
        (list("abb"), "x_val lacks 'c'"),
        (range(3), "x_val has 0, 1, 2.*select them by name, or pass to_numpy"),
    ],
)
def test_other_columns_are_refused(name, data, names, message):
    x_val = pd.DataFrame(data.x_val[:, : len(names)], columns=names)
    with pytest.raises(ValueError, match=f"same columns.*{message}"):
        call(name, data, x=frames(data)[0], x_val=x_val)


@each_function
def test_the_index_is_kept(name, data):
    labels = ["s", "t", "u", "v", "w", "x", "y"]
    order = np.random.default_rng(0).permutation(7)
    x = frames(data, index=labels)[0].iloc[order]
    t, y = (pd.Series(a, index=labels).iloc[order] for a in (data.t, data.y))
    values = call(name, data, x=x, y=y, t=t)
    expected = np.asarray(call(name, data).values)[order]
    np.testing.assert_allclose(values.values, expected, atol=1e-6)
    table = values.to_pandas()
    assert table.index.tolist() == x.index.tolist()
    worst = values.bottom(1)
    assert x.loc[table["value"].idxmin()].tolist() == x.iloc[worst[0]].tolist()
    assert values.index == tuple(x.index)


def test_dates_and_pairs_as_index(data):
    for index in (
        pd.date_range("2026-11-22", periods=7),
        pd.MultiIndex.from_product([["a"], range(7)]),
    ):
        x, _ = frames(data, index=index)
        table = call("knn_shapley", data, x=x).to_pandas()
        assert x.loc[[table["value"].idxmin()]].shape == (1, 3)
        assert table.index.tolist() == index.tolist()


@each_function
def test_rows_in_two_orders(name, data):
    x, _ = frames(data, index=list("stuvwxy"))
    names = ("t", "t_val") if name == "knn_regression_shapley" else ("y", "y_val")
    y = pd.Series(getattr(data, names[0]), index=x.index)
    message = rf"x and {names[0]} must have.*{names[0]}.loc\[x.index\], or "
    with pytest.raises(ValueError, match=message):
        call(name, data, **{"x": x, names[0]: y.iloc[::-1]})
    # By position where the labels say nothing about the order.
    other = pd.Series(y.to_numpy(), index=range(7))
    values = call(name, data, **{"x": x, names[0]: other})
    np.testing.assert_array_equal(values.values, call(name, data).values)
    x_val = pd.DataFrame(data.x_val)
    y_val = pd.Series(getattr(data, names[1])).iloc[::-1]
    with pytest.raises(ValueError, match=f"x_val and {names[1]} must have their rows"):
        call(name, data, **{"x_val": x_val, names[1]: y_val})


@each_function
def test_validation_samples_that_are_the_training_samples(name, data):
    same = {"x_val": data.x, "y_val": data.y, "t_val": data.t}
    with pytest.warns(UserWarning, match="x_val and y_val are x and y") as caught:
        call(name, data, **same)
    assert caught[0].filename == cases.__file__
    with pytest.warns(UserWarning, match="x_val and y_val are x and y"):
        call(name, data, **{key: value.copy() for key, value in same.items()})
    # The same places under other, trusted labels are something else.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(name, data, x_val=data.x, y_val=(data.y + 1) % 3, t_val=data.t + 1)
        call(name, data, x_val=data.x[::-1], y_val=data.y[::-1], t_val=data.t[::-1])


def test_a_warning_names_the_callers_line(data):
    with pytest.warns(UserWarning, match="x_val and y_val are") as caught:
        jaxsel.knn_loo(data.x, data.y, data.x, data.y)
    assert caught[0].filename == __file__
