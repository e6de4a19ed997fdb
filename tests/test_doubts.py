"""What is allowed, and most often a mistake, is warned of; what is usual is not."""

import warnings

import numpy as np
import pandas as pd
import pytest

import jaxsel
from jaxsel import value
from jaxsel.labels._folds import deal_folds
from jaxsel.labels._inputs import number_labels

N, M = 200, 60


def samples(seed=0):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(N + M, 4)), columns=list("abcd"))
    y = rng.integers(0, 2, N + M)
    return x[:N], y[:N], x[N:].reset_index(drop=True), y[N:]


def values(x, y, x_val, y_val, k=5):
    return jaxsel.knn_shapley(x, y, x_val, y_val, k=k)


def with_column(column, column_val, name="e"):
    x, y, x_val, y_val = samples()
    return x.assign(**{name: column}), y, x_val.assign(**{name: column_val}), y_val


def far(factor):
    rng = np.random.default_rng(1)
    return rng.normal(size=N) * factor, rng.normal(size=M) * factor


def shuffled(n, start=1000):
    return np.random.default_rng(2).permutation(np.arange(start, start + n))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (with_column(np.arange(N), np.arange(M)), "column 'e' of x seems to number"),
        (with_column(shuffled(N), shuffled(M)), "column 'e' of x seems to number"),
        (with_column(*far(1e4)), "column 'e' of x varies by .*standardise"),
        ((*samples(), N // 2 + 1), f"k = 101 is more than half of the {N} training"),
    ],
)
def test_doubts(arguments, message):
    with pytest.warns(UserWarning, match=message):
        values(*arguments)


def test_two_columns_of_unlike_scales():
    x, y, x_val, y_val = samples()
    x, x_val = (part[["a", "b"]] * [10, 3e4] for part in (x, x_val))
    with pytest.warns(UserWarning, match="column 'b' of x varies by .*standardise"):
        values(x, y, x_val, y_val)


@pytest.mark.parametrize("kind", [float, int])
def test_numbers_to_predict_for_labels(kind):
    x, _, x_val, _ = samples()
    rng = np.random.default_rng(0)
    high = 60 if kind is float else 400
    y, y_val = (rng.integers(0, high, n).astype(kind) for n in (N, M))
    message = "y has .* labels in 200 rows, such as .*: are they ids, or numbers to"
    with pytest.warns(UserWarning, match=message):
        values(x, y, x_val, y_val)
    with pytest.warns(UserWarning, match=message):
        value.ModelUtility(value.KNN(k=5), x, y, x_val, y_val)


def test_targets_far_from_zero():
    x, _, x_val, _ = samples()
    t, t_val = 2015 + 5 * x["a"], 2015 + 5 * x_val["a"]
    with pytest.warns(UserWarning, match="t lies around 2015 .*: subtract the mean"):
        jaxsel.knn_regression_shapley(x, t, x_val, t_val)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxsel.knn_regression_shapley(x, t - 2015, x_val, t_val - 2015)


def test_large_whole_numbers():
    rng = np.random.default_rng(0)
    x = rng.integers(2**54, 2**54 + 100, (N, 2))
    y = rng.integers(0, 2, N)
    with pytest.warns(
        UserWarning, match=r"column 0 of x has whole numbers beyond 2\*\*53"
    ):
        values(x[:150], y[:150], x[150:], y[150:])


def test_values_that_are_all_equal():
    x, _, x_val, _ = samples()
    with pytest.warns(UserWarning, match="all 200 values are .*one class only"):
        values(x, np.zeros(N, int), x_val, np.zeros(M, int))


@pytest.mark.left_out
def test_of_wrong_labels():
    """Scales don't matter there: samples are standardised."""
    x, y, *_ = with_column(np.arange(N), np.arange(M))
    with pytest.warns(UserWarning, match="column 'e' of x seems to number"):
        jaxsel.find_label_errors(x, y)
    x, y, *_ = with_column(*far(1e4))
    jaxsel.find_label_errors(x, y)


@pytest.mark.parametrize(
    "arguments",
    [
        samples(),
        (*samples(), N // 2),
        with_column(*far(900)),
        with_column(*np.split(shuffled(5 * (N + M))[: N + M], [N])),  # too sparse
        with_column(*np.split(np.arange(N + M) // 2, [N])),  # years: not distinct
        tuple(part[:40] for part in with_column(np.arange(N), np.arange(M))),  # few
    ],
)
def test_what_is_usual_is_not_warned_of(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values(*arguments)


@pytest.mark.left_out
def test_labels_that_differ_only_in_case_or_spaces():
    x, y, x_val, y_val = samples()
    names = np.array(["no", "yes", "NO", "yes "])
    message = (
        "y has the labels 'NO', 'no', which differ only .*, and 1 more such groups"
    )
    spelt = names[y + 2 * (np.arange(N) % 3 == 0)]
    with pytest.warns(UserWarning, match=message):
        values(x, spelt, x_val, names[y_val])
    with pytest.warns(UserWarning, match=message):
        jaxsel.find_label_errors(x, spelt.astype(object))


def test_labels_that_are_ids_or_of_small_classes():
    x, y, *_ = samples()
    few = "60 of 61 classes have fewer samples than the 5 folds, the smallest 1"
    with pytest.warns(UserWarning, match=few) as caught:
        deal_folds(np.arange(N) // 2 * (np.arange(N) > 80))
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="y has 150 different labels in 200 rows"):
        number_labels(np.maximum(np.arange(N) - 50, 0))


def test_the_caller_is_named():
    with pytest.warns(UserWarning, match="seems to number") as caught:
        values(*with_column(np.arange(N), np.arange(M)))
    assert {warning.filename for warning in caught} == {__file__}
