"""Exact means exact: neighbours in their true order where float32 distances cancel.

Everything is compared with sums of squared differences in float64, on the compiled path
and on that of accelerators.
"""

import dataclasses

import jax
import numpy as np
import pytest
import references as ref

import jaxsel
from jaxsel import _native, neighbors
from jaxsel.neighbors import _distance, _exact, _order
from jaxsel.neighbors._distance import prepare_exact
from jaxsel.value import _linear
from jaxsel.value._weights import loo_weights

from . import cases

pytestmark = [
    pytest.mark.every(3),
    pytest.mark.filterwarnings("ignore:column . of x varies by"),
]

N, M, D, K = 600, 30, 20, 5
AVAILABLE = _native.available
SCENES = "timestamps", "outlier", "clusters", "far", "line", "copies", "offset"


@pytest.fixture(scope="module", params=["compiled", "jax"])
def path(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "jax":
            patch.setattr(_native, "available", lambda: False)
            # The compiled path's programs must not serve this one.
            jax.clear_caches()
        elif not _native.available():
            pytest.skip("the compiled operations are not built")
        yield request.param
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _built(request, monkeypatch):
    """Give other tests the compiled path: `path` lasts until the module ends."""
    if "path" not in request.fixturenames and _native.available is not AVAILABLE:
        monkeypatch.setattr(_native, "available", AVAILABLE)
        jax.clear_caches()


slow = pytest.mark.slow
# Compiling takes the time. One path of each is enough where the other shares its code.
mostly_compiled = pytest.mark.parametrize(
    "path", ["compiled", pytest.param("jax", marks=slow)], indirect=True
)
mostly_jax = pytest.mark.parametrize(
    "path", [pytest.param("compiled", marks=slow), "jax"], indirect=True
)


def scene(name, n, rng):
    """Draw features whose near neighbours float32 distances cannot order."""
    normal = rng.normal(size=(n, 3))
    sides = rng.choice([-1.0, 1.0], (n, 1))
    if name == "timestamps":
        return np.c_[rng.uniform(1.6e9, 1.63e9, n), normal]
    if name == "outlier":
        income = np.c_[rng.lognormal(10, 1, n), rng.integers(18, 90, n), normal]
        income[0, 0] = 1e9
        return income
    if name == "clusters":
        return 1000 * sides + 0.3 * normal
    if name == "far":
        # One cluster is so dense that all of it is one group for the other.
        return 1e4 * sides + np.where(sides > 0, 1e-3, 1) * normal
    if name == "line":
        return rng.normal(size=(n, 1))
    if name == "copies":
        each = rng.normal(size=(n // 10 + 1, D))
        return 1e5 + 1e3 * np.repeat(each, 10, axis=0)[:n]
    return 1e3 + rng.normal(size=(n, D))


def draw(name, dtype=np.float64, n=N, m=M, seed=0):
    """Return x, y, x_val and y_val; features padded, so that programs are shared."""
    rng = np.random.default_rng(seed)
    x = rng.permutation(scene(name, n + m, rng))
    x = np.pad(x, ((0, 0), (0, D - x.shape[1]))).astype(dtype)
    y = rng.integers(0, 2, n + m)
    return x[:n], y[:n], x[n:], y[n:]


def squared(x, x_val):
    x, x_val = x.astype(np.float64), x_val.astype(np.float64)
    return np.stack([((x - q) ** 2).sum(1) for q in x_val])


def expected(arguments, omega, ties="stable"):
    x, y, x_val, y_val = arguments
    gains = ref.matches(y, y_val)
    return ref.sorted_values(squared(x, x_val), gains, omega, ties)


def agree(values, exact):
    error = np.abs(np.asarray(values, np.float64) - exact).max()
    assert error < 1e-5 * np.abs(exact).max()


@pytest.mark.every(36)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SCENES)
def test_all_ranks(path, name, dtype):
    arguments = draw(name, dtype)
    exact = expected(arguments, jaxsel.value.shapley_weights(N, K)).mean(0)
    agree(jaxsel.knn_shapley(*arguments, k=K).values, exact)


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.every(14)
def test_the_nearest(path, name):
    arguments = draw(name)
    exact = expected(arguments, loo_weights(N, K)).mean(0)
    agree(jaxsel.knn_loo(*arguments, k=K).values, exact)


@mostly_compiled
@pytest.mark.parametrize("name", ["copies", "clusters"])
def test_averages_over_ties(path, name):
    x, y, x_val, y_val = draw(name, m=8)
    near = squared(x, x_val).astype(np.float32)  # that is what a tie is
    omega = jaxsel.value.shapley_weights(N, K)
    exact = ref.sorted_values(near, ref.matches(y, y_val), omega, "average").mean(0)
    agree(jaxsel.knn_shapley(x, y, x_val, y_val, k=K, ties="average").values, exact)


@mostly_compiled
@pytest.mark.parametrize("name", ["clusters", "far"])
def test_regression(path, name):
    x, _, x_val, _ = draw(name, m=4)
    rng = np.random.default_rng(1)
    t, t_val = rng.normal(size=N), rng.normal(size=4)
    exact = ref.regression_values(squared(x, x_val), t, t_val, K).mean(0)
    agree(jaxsel.knn_regression_shapley(x, t, x_val, t_val, k=K).values, exact)


@mostly_compiled
def test_directions(path):
    # Rows that hardly differ in direction, of all lengths; and one of zeros.
    rng = np.random.default_rng(2)
    x = (1 + 1e-5 * rng.normal(size=(N + M, D))) * rng.uniform(0.1, 10, (N + M, 1))
    x[7] = 0
    y = rng.integers(0, 2, N + M)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, length, out=np.full_like(x, np.nan), where=length > 0)
    near = np.nan_to_num(squared(unit[:N], unit[N:]) / 2, nan=1.0)
    omega = jaxsel.value.shapley_weights(N, K)
    exact = ref.sorted_values(near, ref.matches(y[:N], y[N:]), omega).mean(0)
    values = jaxsel.knn_shapley(x[:N], y[:N], x[N:], y[N:], k=K, metric="cosine")
    agree(values.values, exact)


@mostly_compiled
def test_distance_weights_get_true_distances(path):
    x, y, x_val, y_val = draw("clusters")
    near = np.sqrt(squared(x, x_val))
    gains = ref.matches(y, y_val) / (0.1 + near)
    exact = ref.sorted_values(near, gains, jaxsel.value.shapley_weights(N, K)).mean(0)
    weights = lambda distance: 1 / (0.1 + distance)
    agree(jaxsel.knn_shapley(x, y, x_val, y_val, k=K, weights=weights).values, exact)


def test_distances_of_small_whole_numbers_are_exact_but_for_cosines():
    x, x_val = np.random.default_rng(0).integers(0, 4, (2, 9, 3)).astype(np.float32)
    assert prepare_exact(x, x_val, metric="l2")[1] is None
    assert prepare_exact(x + 1, x_val + 1, metric="cosine")[1] is not None


@pytest.mark.parametrize("name", ["timestamps", "clusters"])
@pytest.mark.left_out
def test_repaired_distances_keep_their_digits(path, name):
    x, _, x_val, _ = draw(name)
    near, exact = cases.computed(x, x_val)
    true = squared(x, x_val)
    assert (np.abs(near - true) / true).max() > 100 * _exact.TRUST
    repaired = _exact.repair(near, exact)
    assert (np.abs(repaired - true) / true).max() < 1.1 * _exact.TRUST
    # How far they may still be off, and no more is looked at again for it.
    each = dataclasses.replace(exact, **_exact.BY_QUERY)
    slack = jax.vmap(_exact.slacks, in_axes=(0, each))(repaired, exact)
    assert (np.abs(repaired - true) <= slack).all()
    assert (slack <= 1.1 * _exact.TRUST * repaired).all()


def settled(near, gains, drop, exact):
    order = lambda *rows: _order.settled_argsort(*rows[:3], exact=rows[3])
    return jax.jit(order)(near, gains, drop, exact).tolist()


# Points at one distance to float32, the last of which is the nearest.
ALIKE = 1e4 - 1e-7 * np.arange(200)[:, None]


@pytest.mark.left_out
def test_more_points_at_one_distance_than_are_looked_at_first(monkeypatch):
    monkeypatch.setattr(_native, "available", lambda: False)
    near, exact = cases.computed_for_one(ALIKE, [0.0])
    assert len(set(near.tolist())) == 1
    find = lambda near, exact: neighbors.top_k(near, 3, exact=exact)
    _, index = jax.jit(find)(near, exact)
    assert index.tolist() == [199, 198, 197]


@pytest.mark.left_out
def test_a_point_left_out_at_first_may_still_be_the_nearest(monkeypatch):
    """Distances off by all that they may be: one too near, another too far."""
    monkeypatch.setattr(_native, "available", lambda: False)
    x = np.full((200, 1), 1000.1)
    near, exact = cases.computed_for_one(x, [0.0])
    room = float(_exact.slacks(near, exact)[0])
    assert room > 0.4  # some digits of 1e6
    true = np.full(200, 1e6 + 1.5 * room)
    true[0], true[150] = 1e6, 1e6 - room / 10
    points = np.sqrt(true)[:, None].view(np.uint32)
    stated = true.copy()
    stated[0], stated[150] = 1e6 - 0.8 * room, 1e6 + 0.8 * room
    stated[1:100] = 1e6 + 0.75 * room
    assert np.abs(stated - true).max() < room
    exact = dataclasses.replace(exact, points=points, query=np.zeros(1).view(np.uint32))
    find = lambda near, exact: neighbors.top_k(near, 1, exact=exact)
    _, index = jax.jit(find)(stated.astype(np.float32), exact)
    assert index.tolist() == [150]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.left_out
def test_multiples_of_the_query_are_ties_by_cosine(built, monkeypatch):
    """Rounding sets their unit rows apart: still the first point comes first."""
    if not built:
        monkeypatch.setattr(_native, "available", lambda: False)
    rng = np.random.default_rng(0)
    query = rng.normal(size=5)
    x = rng.uniform(0.1, 10, (40, 1)) * query
    (points, asked), of = prepare_exact(x, query[None], metric="cosine")
    units = np.asarray(of[0]).view(np.float64)
    assert len(np.unique(((units - of[1].view(np.float64)) ** 2).sum(1))) > 3
    y = np.arange(40) % 2
    values = jaxsel.knn_loo(x, y, query[None], np.ones(1, int), k=1, metric="cosine")
    expected = np.zeros(40)
    expected[0] = -1
    np.testing.assert_allclose(values.values, expected)


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.left_out
def test_gains_of_both_signs_are_worth_settling(built, monkeypatch):
    if not built:
        monkeypatch.setattr(_native, "available", lambda: False)
    near, exact = cases.computed_for_one(ALIKE[:2], [0.0])
    gains, drop = np.array([1.0, -1.0]), np.array([0.0, 0.5])
    assert settled(near, gains, drop, exact) == [1, 0]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.left_out
def test_sums_of_the_same_squares_are_ties(built, monkeypatch):
    """Whatever the order in which they are summed: the first point comes first."""
    if not built:
        monkeypatch.setattr(_native, "available", lambda: False)
    rng = np.random.default_rng(0)
    x = rng.permuted(np.tile(rng.normal(size=5), (40, 1)), axis=1)
    assert len(set(squared(x, np.zeros((1, 5)))[0])) > 2
    near, exact = cases.computed_for_one(x, np.zeros(5))
    assert settled(near, rng.normal(size=40), near + 1, exact) == list(range(40))


@pytest.mark.parametrize("d", [1, 100, 7000])
def test_no_distance_beyond_the_bound_has_lost_its_digits(d):
    """Of points in the query's direction, which are the nearest of their length."""
    length = np.geomspace(1e-3, 1e3, 100_001)
    distance = (length - 1) ** 2
    error, (of_query,) = _exact.errors(length**2, np.ones(1), d)
    furthest = distance[distance * _exact.TRUST < error + of_query[0]].max()
    assert furthest <= of_query[2] <= 1.1 * furthest


@mostly_jax
@pytest.mark.parametrize("name", SCENES)
@pytest.mark.every(14)
def test_bounds_hold_for_true_distances(path, name, monkeypatch):
    monkeypatch.setattr(_linear, "sorts_faster", lambda: False)
    arguments = draw(name, n=2 * N)
    exact = expected(arguments, jaxsel.value.shapley_weights(2 * N, K))
    hybrid = jaxsel.knn_shapley(*arguments, k=K, method="hybrid", reduce=None)
    error = np.abs(np.asarray(hybrid.values, np.float64) - exact)
    assert (error <= hybrid.error_bound).all()
    assert "hybrid" in hybrid.method


@mostly_jax
def test_three_points(path):
    x, x_val = [[-1000.0], [1000.0], [1000.02]], [[1000.03]]
    for method in "exact", "hybrid":
        values = jaxsel.knn_shapley(x, [0, 0, 1], x_val, [1], k=1, method=method)
        np.testing.assert_array_equal(values.values, [0, 0, 1])


def test_groups_among_thousands_of_ranks():
    """Ranks whose weights hardly drop are settled where many points are open."""
    if not _native.available():
        pytest.skip("the compiled operations are not built")
    n, size = 9000, 600
    rng = np.random.default_rng(5)
    distance = np.sqrt(np.arange(1.0, n + 1)) * 100
    gain = rng.random(n) < 0.5
    for first in (2000, 6000, 7003, n - size):  # float32 can't order such a group
        group = slice(first, first + size)
        distance[group] = distance[first] + 1e-5 * np.arange(size)
        gain[group] = np.arange(size) < size / 2
    mixed = rng.permutation(n)
    x, y = 1e4 + distance[mixed, None], gain[mixed].astype(int)
    values = jaxsel.knn_shapley(x, y, [[1e4]], [1], k=K).values
    omega = jaxsel.value.shapley_weights(n, K)
    exact = ref.sorted_values(distance[mixed][None] ** 2, y[None], omega)[0]
    np.testing.assert_allclose(values, exact, rtol=0, atol=3e-7)


@pytest.fixture
def few(monkeypatch):
    """The path of accelerators, with room for few open points at a time."""
    monkeypatch.setattr(_native, "available", lambda: False)
    monkeypatch.setattr(_exact, "_FEW", 16)
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize("name", ["far", "copies", "clusters"])
def test_more_open_points_than_are_settled_at_once(few, name):
    arguments = draw(name, n=N + 1)  # of a shape of its own: nothing is compiled yet
    shapley = expected(arguments, jaxsel.value.shapley_weights(N + 1, K)).mean(0)
    agree(jaxsel.knn_shapley(*arguments, k=K).values, shapley)
    loo = expected(arguments, loo_weights(N + 1, K)).mean(0)
    agree(jaxsel.knn_loo(*arguments, k=K).values, loo)


@pytest.mark.left_out
def test_a_group_beyond_the_ranks_of_weight(few):
    few.setattr(_exact, "NEAR", 64)
    few.setattr(_exact, "STRIDE", 8)
    rng = np.random.default_rng(4)
    near, far = rng.normal(size=(50, D)), 1e4 + 1e-3 * rng.normal(size=(N - 48, D))
    x, y = np.r_[near, far], rng.integers(0, 2, N + 2)
    arguments = x, y, rng.normal(size=(M, D)), rng.integers(0, 2, M)
    omega = jaxsel.value.shapley_weights(N + 2, K)
    agree(
        jaxsel.knn_shapley(*arguments, k=K).values, expected(arguments, omega).mean(0)
    )


@pytest.mark.left_out
def test_small_whole_numbers_need_nothing(monkeypatch):
    """Their float32 distances are exact: nothing is kept, and nothing is settled."""
    rng = np.random.default_rng(3)
    x, x_val = rng.integers(0, 17, (50, 4)) * 1.0, rng.integers(0, 17, (5, 4)) * 1.0
    assert _distance.rounds_nothing(x, x_val, peak=16)
    assert not _distance.rounds_nothing(x + 0.5, x_val, peak=16)
    assert not _distance.rounds_nothing(x, x_val, peak=2048)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.every(6)
def test_distances_that_only_rounding_tells_apart_are_ties(path, scale):
    """The same squares, added up in another order."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=7) * scale
    x = np.stack([rng.permutation(parts) for _ in range(40)])
    y = np.arange(40) % 2
    for ties in ("stable", "average"):
        found, expected = (
            jaxsel.knn_shapley(rows, y, np.zeros((1, 7)), [1], k=3, ties=ties).values
            for rows in (x, np.tile(x[:1], (40, 1)))
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
