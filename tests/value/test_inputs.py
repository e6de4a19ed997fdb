"""What callers may pass in, and what they are told when they may not."""

import dataclasses
import inspect
import re

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import references as ref

import jaxsel

from . import cases

SHAPLEY = cases.BY_NAME["shapley"]
K = 3


@pytest.fixture
def data():
    return cases.random(7)


def changed(data, **arrays):
    return dataclasses.replace(data, **arrays)


def spoilt(array, row, value):
    array = np.array(array, np.float32)
    array[row] = value
    return array


def close(actual, expected, atol=2e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


# Refused: each message names the argument.


@cases.each_method
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("name", "row"), [("x", 2), ("x_val", 5)])
def test_features_must_be_finite(method, data, name, row, value):
    for kind in (np.asarray, jnp.asarray):
        bad = changed(data, **{name: kind(spoilt(getattr(data, name), row, value))})
        with pytest.raises(ValueError, match=rf"\b{name} must be finite.*row {row}\b"):
            method.call(bad, K)


def test_infinities_of_both_signs_and_later_rows(data):
    bad = spoilt(spoilt(data.x, 4, np.inf), 6, -np.inf)
    with pytest.raises(ValueError, match=r"x must be finite.*row 4\b.*2 of 7"):
        SHAPLEY.call(changed(data, x=bad), K)


@pytest.mark.parametrize("size", [1e16, 1e-16, 3e38])
def test_features_whose_squares_do_not_fit(size):
    # Finite, though their sum may overflow; l2 would find all distances equal.
    x = size * np.array([[-1, -1], [1, 1], [1, 1], [1, 1]], np.float32)
    with pytest.raises(ValueError, match=r"x must have features.*1e-15 to 1e\+15"):
        jaxsel.knn_shapley(x, [0, 1, 1, 1], x[:1], [0], k=1)


@pytest.mark.parametrize("size", [1e16, 1e-16, 1e-30, 3e38])
def test_cosine_of_features_whose_squares_do_not_fit(size):
    # Were their lengths infinite or zero, all would be at distance 1.
    x = np.array([[-1, -0.9], [0.2, -1], [1, 1], [1, -0.5]]) * size
    x_val, y, y_val = x[2:] * [1, 0.9], np.array([0, 1, 2, 2]), np.array([2, 1])
    distance, gains = ref.distances(x, x_val, "cosine"), ref.matches(y, y_val)
    omega = ref.rank_weights(4, 1, ref.uniform(4))
    for kind in (np.float64, np.float32):
        values = jaxsel.knn_shapley(
            x.astype(kind),
            y,
            x_val.astype(kind),
            y_val,
            k=1,
            metric="cosine",
            reduce=None,
        )
        close(values.values, ref.sorted_values(distance, gains, omega))


@pytest.mark.parametrize("name", ["x", "y", "x_val", "y_val", "t", "t_val"])
def test_masked_entries_are_no_data(data, name):
    # Under the mask lies a number that is as finite as any other.
    array = getattr(data, name)
    bare = changed(data, **{name: np.ma.masked_array(array, mask=False)})
    bad = np.ma.masked_array(array, mask=False)
    bad.mask[2] = True
    bad = changed(data, **{name: bad})
    method = cases.BY_NAME["regression"] if name.startswith("t") else SHAPLEY
    close(method.call(bare, K).values, method.call(data, K).values, 0)
    with pytest.raises(ValueError, match=rf"\b{name} has \d masked entr.*filled"):
        method.call(bad, K)


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


@cases.each_method
def test_nothing_to_value_or_to_validate_on(method, data):
    empty = np.zeros((0, 3), np.float32), np.zeros(0, int), np.zeros(0, np.float32)
    train = changed(data, **dict(zip(("x", "y", "t"), empty, strict=True)))
    with pytest.raises(ValueError, match=r"\bx must not be empty"):
        method.call(train, K)
    val = changed(data, **dict(zip(("x_val", "y_val", "t_val"), empty, strict=True)))
    with pytest.raises(ValueError, match=r"\bx_val must not be empty"):
        method.call(val, K)
    with pytest.raises(ValueError, match=r"\bx must not be empty"):
        method.call(changed(data, x=data.x[:, :0], x_val=data.x_val[:, :0]), K)


@cases.each_method
def test_shapes_must_match(method, data):
    for bad, message in (
        (changed(data, x=data.x[:, 0]), r"x must have shape \[n, d\].*\(7,\)"),
        (changed(data, x_val=data.x_val[None]), r"x_val must have shape.*\(1, 12, 3\)"),
        (changed(data, x_val=data.x_val[:, :2]), r"\bx\b.*\bx_val\b.*3.*2"),
        (changed(data, y=data.y[:5], t=data.t[:5]), r"\bx\b.*\b[yt]\b.*7.*5"),
        (
            changed(data, y_val=data.y_val[:5], t_val=data.t_val[:5]),
            r"\bx_val\b.*\b[yt]_val\b.*12.*5",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            method.call(bad, K)


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
    if method.name == "threshold":
        method = dataclasses.replace(method, call=threshold)
    with pytest.raises(error, match=message):
        method.call(data, K, **options)


def threshold(data, k, **options):
    return jaxsel.threshold_knn_shapley(*data.classes(), radius=1.0, **options)


@pytest.mark.parametrize(
    "method",
    [m for m in cases.METHODS if m.name != "threshold"],
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


def test_more_columns_than_classes(data):
    bad = changed(data, y=np.full((7, 3), 1 / 3), y_val=data.y_val % 3)
    with pytest.raises(ValueError, match="n_classes must be at least 3.*columns.*2"):
        jaxsel.soft_knn_shapley(*bad.classes(), n_classes=2)


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


def test_features_must_be_real_numbers(data):
    for x in (np.full((7, 3), "a"), data.x + 1j):
        with pytest.raises(TypeError, match=r"\bx must be (numeric|real)"):
            SHAPLEY.call(changed(data, x=x), K)


def test_ragged_rows(data):
    with pytest.raises(TypeError, match=r"\bx must be an array"):
        SHAPLEY.call(changed(data, x=[[1.0], [1.0, 2.0]], y=[0, 1]), K)


def test_distance_weights_must_be_finite(data):
    twin = changed(data, x_val=data.x[:1], y_val=data.y[:1])
    with pytest.raises(ValueError, match="weights"):
        SHAPLEY.call(twin, K, weights=lambda distance: 1 / distance)


def test_rank_weights_have_one_entry_a_point(data):
    with pytest.raises(ValueError, match=r"rank_weights.*\[n\].*7.*\(6,\)"):
        jaxsel.knn_semivalue(*data.classes(), k=K, rank_weights=np.ones(6))
    with pytest.raises(ValueError, match="rank_weights must be finite"):
        jaxsel.knn_semivalue(*data.classes(), k=K, rank_weights=np.full(7, np.nan))


def test_inside_jit_the_kernels_are_named(data):
    import jax

    call = jax.jit(lambda x: jaxsel.knn_shapley(x, *data.classes()[1:]).values)
    with pytest.raises(TypeError, match=r"\bx is being traced.*kernel"):
        call(data.x)


# Accepted.


@cases.each_method
@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int64, np.float16, ml_dtypes.bfloat16, np.float64]
)
def test_features_of_any_number_type(method, dtype):
    data = cases.grid(7, size=4)
    data = changed(data, x=data.x * 5, x_val=data.x_val * 5)
    other = changed(data, x=data.x.astype(dtype), x_val=data.x_val.astype(dtype))
    expected = method.enumerate(data, K)
    for kind in (np.asarray, jnp.asarray):
        if kind is jnp.asarray and other.x.dtype.itemsize == 8:
            continue
        typed = changed(other, x=kind(other.x), x_val=kind(other.x_val))
        values = method.call(typed, K, reduce=None).values
        assert values.dtype == jnp.float32
        close(values, expected)


def test_unsigned_features_do_not_wrap_around():
    x = np.array([[250], [3], [200]], np.uint8)
    x_val = np.array([[5]], np.uint8)
    values = jaxsel.knn_shapley(x, [1, 0, 1], x_val, [0], k=1)
    close(values.values, [0, 1, 0])


def test_half_precision_is_not_rounded_again():
    # Distances of float16 features need more than float16.
    x = np.arange(1, 7)[:, None].astype(np.float16) * 300
    data = changed(cases.random(6), x=x, x_val=np.zeros((12, 1), np.float16))
    values = SHAPLEY.call(data, 2, reduce=None).values
    close(values, SHAPLEY.enumerate(data, 2))


def test_lists_and_mixed_containers(data):
    lists = [np.asarray(a).tolist() for a in data.classes()]
    close(jaxsel.knn_shapley(*lists, k=K).values, SHAPLEY.call(data, K).values, atol=0)


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
    "method", [m for m in cases.METHODS if m.name != "regression"], ids=lambda m: m.name
)
def test_labels_of_any_type(method, data, convert):
    other = changed(data, y=convert(data.y), y_val=convert(data.y_val))
    close(method.call(other, K, reduce=None).values, method.enumerate(data, K))


def test_boolean_labels(data):
    data = changed(data, y=data.y % 2, y_val=data.y_val % 2)
    other = changed(data, y=data.y == 1, y_val=data.y_val == 1)
    close(SHAPLEY.call(other, K, reduce=None).values, SHAPLEY.enumerate(data, K))


def test_integer_targets(data):
    method = cases.BY_NAME["regression"]
    data = changed(data, t=np.arange(7) - 3, t_val=np.arange(12) - 6)
    close(method.call(data, K, reduce=None).values, method.enumerate(data, K), 3e-5)


@cases.each_tied
def test_constant_features_are_all_ties(method, ties):
    data = cases.random(6)
    data = changed(data, x=np.full((6, 3), 0.3), x_val=np.full((12, 3), 0.3))
    values = method.call(data, 2, ties=ties, reduce=None).values
    close(values, method.enumerate(data, 2, ties=ties))


@pytest.mark.parametrize("offset", [3000, -3000, 1e5])
@pytest.mark.parametrize("ties", ["stable", "average"])
def test_a_large_offset(offset, ties):
    data = cases.grid(40, size=5)
    far = changed(data, x=data.x + offset, x_val=data.x_val + offset)
    distance, gains = ref.distances(data.x, data.x_val), ref.matches(data.y, data.y_val)
    omega = ref.rank_weights(40, K, ref.uniform(40))
    values = SHAPLEY.call(far, K, ties=ties, reduce=None).values
    close(values, ref.sorted_values(distance, gains, omega, ties))


def test_an_offset_that_float32_cannot_hold():
    data = cases.random(40)
    far = changed(
        data,
        x=data.x.astype(np.float64) + 1e9,
        x_val=data.x_val.astype(np.float64) + 1e9,
    )
    values = SHAPLEY.call(far, K, reduce=None).values
    close(values, SHAPLEY.call(data, K, reduce=None).values)


def test_inputs_are_left_as_they_were(data):
    before = [np.array(a) for a in data.classes()]
    SHAPLEY.call(data, K)
    for old, new in zip(before, data.classes(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_method_names_what_matters(data):
    method = SHAPLEY.call(data, K, metric="cosine", ties="average").method
    assert re.search(r"knn_shapley.*k=3.*cosine.*average", method)


def test_options_are_in_the_signature():
    for function in (jaxsel.knn_shapley, jaxsel.value.knn_regression_shapley):
        parameters = inspect.signature(function).parameters
        assert parameters["metric"].default == "l2"
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    with pytest.raises(TypeError, match=r"knn_loo\(\) got .* 'kk'; .* k, metric"):
        jaxsel.knn_loo([[1.0]], [1], [[1.0]], [1], kk=3)
    with pytest.raises(ValueError, match="weights must be None"):
        jaxsel.knn_regression_shapley([[1.0]], [1], [[2.0]], [1], weights=jnp.exp)
