"""Labels and targets that callers may pass in, and the errors for others."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import references as ref

import jaxsel

from . import cases
from .cases import changed, close, spoilt

pytestmark = pytest.mark.every(3)

SHAPLEY = cases.BY_NAME["knn_shapley"]
K = 3


@pytest.fixture
def data():
    return cases.random(7)


# Refused: each message names the argument.


@pytest.mark.parametrize(("name", "row"), [("t", 1), ("t_val", 3)])
def test_targets_must_be_finite(data, name, row):
    bad = changed(data, **{name: spoilt(getattr(data, name), row, np.nan)})
    with pytest.raises(ValueError, match=rf"\b{name} must be finite.*row {row}\b"):
        jaxsel.knn_regression_shapley(*bad.targets(), k=K)


@pytest.mark.parametrize(("name", "row"), [("y", 1), ("y_val", 3)])
@pytest.mark.parametrize("soft", [False, True])
def test_labels_must_be_finite(data, name, row, soft):
    y = np.eye(8)[getattr(data, name)] if soft else getattr(data, name)
    bad = changed(data, **{name: spoilt(y, row, np.nan)})
    with pytest.raises(ValueError, match=rf"\b{name} must be finite.*row {row}\b"):
        SHAPLEY.call(bad, K)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["y", "y_val"])
def test_fractions_are_targets_not_classes(data, name, dtype):
    bad = changed(data, **{name: np.full(len(getattr(data, name)), 0.5, dtype)})
    with pytest.raises(ValueError, match=f"{name} .*0.5.*knn_regression_shapley"):
        SHAPLEY.call(bad, K)


@pytest.mark.parametrize("name", ["y", "y_val"])
def test_a_column_of_labels_is_no_probability(data, name):
    bad = changed(data, **{name: getattr(data, name)[:, None]})
    with pytest.raises(ValueError, match=rf"\b{name} .*1\).*np.ravel\({name}\)"):
        SHAPLEY.call(bad, K)


@pytest.mark.parametrize("name", ["y", "y_val"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.5, -0.5], "row 2 has -0.5"),
        ([2.0, 0.5], r"row 2 sums to 2.5 \(1 of"),
        ([0.5, 0.49], "row 2 sums to 0.99"),
        ([0, 0], "row 2 sums to 0 .*divide rows by their sums"),
        ([30.0, 70.0], "row 2 sums to 100"),
    ],
)
def test_rows_that_are_no_probabilities(data, name, row, message):
    soft = np.full((len(getattr(data, name)), 2), 0.5)
    soft[2] = row
    other = {"y": "y_val", "y_val": "y"}[name]
    bad = changed(data, **{name: soft, other: getattr(data, other) % 2})
    for kind in (np.asarray, jnp.asarray):
        with pytest.raises(ValueError, match=rf"\b{name} must hold class.*{message}"):
            SHAPLEY.call(changed(bad, **{name: kind(soft)}), K)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16, "decimals"]
)
@pytest.mark.parametrize("classes", [2, 3, 1000])
def test_probabilities_of_few_digits(data, dtype, classes):
    rng = np.random.default_rng(classes)
    soft = rng.dirichlet(np.ones(classes), 7)
    if dtype == "decimals":
        soft = np.round(soft, 3 if classes < 4 else 5)
    else:
        soft = soft.astype(dtype)
    y_val = rng.integers(0, classes, 12)
    values = SHAPLEY.call(changed(data, y=soft, y_val=y_val), K, reduce=None).values
    distance, gains = ref.distances(data.x, data.x_val), soft.astype(float)[:, y_val].T
    omega = ref.rank_weights(7, K, ref.uniform(7))
    close(values, ref.sorted_values(distance, gains, omega))


@pytest.mark.parametrize(
    ("names", "names_val", "message"),
    [
        (["benign", "malign"], ["BENIGN", "MALIGN"], "'BENIGN', 'MALIGN': they differ"),
        (["a", "b"], [" a", "b "], "in case or spaces"),
        ([0, 1], [1000, 1001], "y has 0, 1 and y_val has 1000, 1001: give both"),
        (
            list("abcdef") * 9,
            ["x" * 99],
            "'a', 'b', 'c', 'd' and 2 more.*'xxx.*x[.]{3}",
        ),
    ],
)
@pytest.mark.parametrize("function", ["knn_shapley", "threshold_knn_shapley"])
def test_labels_that_do_not_meet(function, names, names_val, message):
    arrays = np.eye(len(names)), names, np.ones((len(names_val), len(names))), names_val
    options = {"radius": 1.0} if function.startswith("threshold") else {}
    with pytest.raises(ValueError, match=f"y and y_val must share a label.*{message}"):
        getattr(jaxsel, function)(*arrays, **options)


def test_a_label_spelt_in_two_ways_is_named(data):
    names = np.array(["ant", "bee", "cat"])
    bad = changed(data, y=names[data.y], y_val=names[data.y_val % 3].astype("U9"))
    bad.y_val[-1] = f" {names[data.y[0]].upper()}"
    with pytest.warns(UserWarning, match="y_val has the label .*case and") as caught:
        SHAPLEY.call(bad, K)
    assert caught[0].filename == cases.__file__  # who called, not jaxsel


@pytest.mark.parametrize(
    ("y", "label", "expected"),
    [
        (np.array([2**60 + 1, 2**60]), np.uint64(2**60), [0, 1]),
        (np.array([2**60 + 1, 2**60]), np.float64(2**60), [0, 1]),
        (np.array([2**63 + 1, 2**63], np.uint64), np.float64(2**63), [0, 1]),
        (np.array([1.0, 2.0**60]), np.int64(2**60), [0, 1]),
    ],
    ids=["uint64", "float", "uint64-float", "float-int"],
)
def test_labels_of_many_digits_are_compared_exactly(y, label, expected):
    values = jaxsel.knn_shapley([[0.0], [0.0]], y, [[0.0]], np.array([label]), k=2)
    close(values.values, np.array(expected) / 2)


def test_labels_of_two_kinds(data):
    with pytest.raises(TypeError, match="y and y_val"):
        SHAPLEY.call(changed(data, y=data.y.astype(str)), K)


def test_soft_labels_of_two_widths(data):
    y, y_val = np.full((7, 3), 1 / 3), np.full((12, 4), 1 / 4)
    with pytest.raises(ValueError, match=r"\by\b.*\by_val\b.*3.*4"):
        SHAPLEY.call(changed(data, y=y, y_val=y_val), K)


# Accepted.


@pytest.mark.parametrize(
    "convert",
    [
        lambda y: np.array(["ant", "bee", "cat", "", "", "", "", "dog"])[y],
        lambda y: np.array(["ant", "bee", "cat", "", "", "", "", "dog"], object)[y],
        lambda y: np.array([-(2**62), 0, 2**62, 0, 0, 0, 0, 5])[y],
        lambda y: y.astype(np.float32),
        lambda y: y.astype(np.uint8),
        lambda y: jnp.asarray(y),
        lambda y: y.tolist(),
    ],
    ids=["text", "object", "int64", "float", "uint8", "jax", "list"],
)
@pytest.mark.parametrize(
    "method", [m for m in cases.METHODS if not m.value.targets], ids=lambda m: m.name
)
def test_labels_of_any_type(method, data, convert):
    other = changed(data, y=convert(data.y), y_val=convert(data.y_val))
    close(method.call(other, K, reduce=None).values, method.enumerate(data, K))


def test_boolean_labels(data):
    data = changed(data, y=data.y % 2, y_val=data.y_val % 2)
    other = changed(data, y=data.y == 1, y_val=data.y_val == 1)
    close(SHAPLEY.call(other, K, reduce=None).values, SHAPLEY.enumerate(data, K))


def test_integer_targets(data):
    method = cases.BY_NAME["knn_regression_shapley"]
    data = changed(data, t=np.arange(7) - 3, t_val=np.arange(12) - 6)
    close(method.call(data, K, reduce=None).values, method.enumerate(data, K), 3e-5)
