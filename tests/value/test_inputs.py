"""Features that callers may pass in, and the errors for others."""

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
REGRESSION = cases.BY_NAME["knn_regression_shapley"]
K = 3


@pytest.fixture
def data():
    return cases.random(7)


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
    method = REGRESSION if name.startswith("t") else SHAPLEY
    close(method.call(bare, K).values, method.call(data, K).values, 0)
    with pytest.raises(ValueError, match=rf"\b{name} has \d masked entr.*filled"):
        method.call(bad, K)


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


def test_features_must_be_real_numbers(data):
    for x in (np.full((7, 3), "a"), data.x + 1j):
        with pytest.raises(TypeError, match=r"\bx must be (numeric|real)"):
            SHAPLEY.call(changed(data, x=x), K)


def test_ragged_rows(data):
    with pytest.raises(TypeError, match=r"\bx must be an array"):
        SHAPLEY.call(changed(data, x=[[1.0], [1.0, 2.0]], y=[0, 1]), K)


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
@pytest.mark.every(4)
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


@pytest.mark.left_out
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


@pytest.mark.parametrize("k", [2**40, 10**30])
def test_numbers_of_neighbours_beyond_all_counts(data, k):
    with pytest.raises(ValueError, match="k must be at most 2147483647, got 1"):
        SHAPLEY.call(data, k)
