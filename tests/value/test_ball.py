"""The closed ball of the threshold values: who lies on its border."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import references as ref
from scipy.spatial import distance as scipy_distance

import jaxsel
from jaxsel.value import _ball

from . import cases

# Each point's own ball shows best who else lies in it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:x_val and y_val are x and y"),
    pytest.mark.every(2),
]


def inside(x, x_val, radius, **options):
    """Which points have a value: with three classes, all that lie in the ball do."""
    y, y_val = np.zeros(len(x), int), np.zeros(len(x_val), int)
    values = jaxsel.threshold_knn_shapley(
        x, y, x_val, y_val, radius=radius, n_classes=3, reduce=None, **options
    )
    return np.asarray(values.values) != 0


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.every(4)
def test_points_at_exactly_the_radius(dtype, steps):
    x = (np.arange(-5, 6)[:, None] * 0.1).astype(dtype)
    expected = np.abs(np.arange(-5, 6)) <= steps
    for kind in (np.asarray, jnp.asarray):
        found = inside(kind(x), kind(x[5:6]), steps * 0.1)
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("offset", [0, 1e6])
@pytest.mark.parametrize("metric", ["l2", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.every(4)
def test_exact_copies_are_within_radius_zero(offset, metric, dtype):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(50, 7)) + offset).astype(dtype)
    found = inside(x, x, 0.0, metric=metric)
    np.testing.assert_array_equal(found, np.eye(50, dtype=bool))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_a_lattice_far_from_the_origin(dtype):
    # Each coordinate is exact, and the squares of them are not in float32.
    offset = 2**20 if np.dtype(dtype).kind == "f" else 2**30 + 1
    step = 0.125 if np.dtype(dtype).kind == "f" else 1
    place = np.stack(np.meshgrid(*[np.arange(6)] * 3), -1).reshape(-1, 3)
    x = (place * step + offset).astype(dtype)
    squares = ((place[:, None] - place) ** 2).sum(-1)
    for radius in (1.0, 2.0, 3.0):
        found = inside(x, x, radius * step)
        np.testing.assert_array_equal(found, squares <= radius**2)


@pytest.mark.parametrize("apart", [1 - 1e-12, 1, 1 + 1e-12])
def test_float64_features_are_told_apart_in_float64(apart):
    x = np.array([[0.1 * apart, 0.0], [0.0, 0.1], [-0.1 / apart, 0.0]])
    found = inside(x, np.zeros((1, 2)), 0.1)
    assert found[0].tolist() == [apart <= 1, True, apart >= 1]


def test_rows_of_zeros_are_at_one():
    x = np.array([[0, 0], [3, 0], [0, 2], [-1, 0]])
    for radius, expected in ((1, [1, 1, 1, 0]), (0.99, [0, 1, 0, 0])):
        found = inside(x, x[1:2], radius, metric="cosine")
        assert found[0].tolist() == [bool(e) for e in expected]
        assert inside(x, x[:1], radius, metric="cosine").all() == (radius == 1)


def test_parallel_rows_are_within_radius_zero():
    x = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    found = inside(3 * x, x, 0.0, metric="cosine")
    np.testing.assert_array_equal(found, np.eye(9, dtype=bool))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_a_radius_that_is_the_distance_of_a_pair(metric):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 6))
    x_val = rng.normal(size=(9, 6)) + 3
    name = {"l2": "euclidean"}.get(metric, metric)
    distance = scipy_distance.cdist(x_val, x, name)
    for place in (0, 2000, 4000):
        radius = np.sort(distance.ravel())[place]
        # SciPy's last bit and ours may differ: the pair itself, and no other.
        found = inside(x, x_val, radius * (1 + 1e-13), metric=metric)
        np.testing.assert_array_equal(found, distance <= radius)


@pytest.mark.left_out
def test_devices_and_x64_mode_agree_on_the_border():
    x = np.stack(np.meshgrid(*[np.arange(5) * 0.1] * 2), -1).reshape(-1, 2)
    expected = inside(x, x, 0.2)
    assert 0 < expected.mean() < 1
    np.testing.assert_array_equal(inside(x, x, 0.2, mesh=jaxsel.make_mesh()), expected)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(inside(x, x, 0.2), expected)
        found = inside(jnp.asarray(x), jnp.asarray(x), 0.2)
        np.testing.assert_array_equal(found, expected)


def test_values_on_the_border():
    data = cases.grid(9, 12, size=3)
    far = 1e6 + 0.25 * data.x.astype(float), 1e6 + 0.25 * data.x_val.astype(float)
    values = jaxsel.threshold_knn_shapley(
        far[0], data.y, far[1], data.y_val, radius=0.25, reduce=None
    ).values
    distance = ref.distances(data.x, data.x_val)
    expected = ref.threshold_values(
        distance, ref.matches(data.y, data.y_val), 1.0, data.n_classes
    )
    np.testing.assert_allclose(values, expected, atol=2e-6)


@pytest.mark.parametrize("wide", [False, True])
def test_values_where_float32_is_on_the_wrong_side(wide):
    """A radius between each pair: about half of them are on the wrong side of it."""
    rng = np.random.default_rng(1)
    x, x_val = rng.normal(size=(300, 4)) + 1e3, rng.normal(size=(40, 4)) + 1e3
    if not wide:
        x, x_val = x.astype(np.float32), x_val.astype(np.float32)
    y, y_val = rng.integers(0, 2, 300), rng.integers(0, 2, 40)
    distance = scipy_distance.cdist(x_val.astype(float), x.astype(float))
    gains = ref.matches(y, y_val)
    epsilon = 2 * np.finfo(x.dtype).eps
    for place in range(1000, 9000, 1000):
        pair = np.sort(distance.ravel())[place]
        for radius in (pair, pair * (1 - 4 * epsilon)):
            # The ball is closed, and two epsilons wider than the radius.
            limit = radius * (1 + epsilon)
            expected = ref.threshold_values(distance, gains, limit, 2)
            values = jaxsel.threshold_knn_shapley(
                x, y, x_val, y_val, radius=radius, reduce=None
            ).values
            np.testing.assert_allclose(values, expected, atol=2e-6)


def test_the_border_is_looked_at_a_few_points_at_a_time(steps_of, monkeypatch):
    """The path of accelerators: ten points on the border, of thirty."""
    steps = steps_of(_ball)
    monkeypatch.setattr(_ball, "_FEW", 4)
    apart = np.r_[1 + 1e-7 * np.arange(-5, 5), np.full(20, 5.0)]
    x, query = 1e4 + apart[:, None], np.array([1e4])
    near, exact = cases.computed_for_one(x, query)
    found = _ball.in_ball(near, _ball.make_ball(x, query[None], 1.0, "l2"), exact)
    assert steps == [3]
    np.testing.assert_array_equal(found, apart <= 1)
