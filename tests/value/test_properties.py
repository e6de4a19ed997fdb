"""What must hold whatever the data: invariants, and the bound of the hybrid."""

import dataclasses

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
import pytest
import references as ref
from hypothesis import HealthCheck, given, settings, strategies as st

import jaxsel
from jaxsel.value import _linear
from jaxsel.value._hybrid import semivalue_hybrid

from . import cases

pytestmark = [
    pytest.mark.every(3),
    pytest.mark.filterwarnings("ignore:k = .* is more than half"),
]

N_VAL = 5
each_averaged = pytest.mark.parametrize(
    "method",
    [m for m in cases.METHODS if "average" in m.value.ties],
    ids=lambda m: m.name,
)
each_ties = pytest.mark.parametrize("ties", ["stable", "average"])


def examples(n):
    # Each new shape costs a compilation, which is no reason to fail.
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=n, deadline=None, derandomize=True, suppress_health_check=quiet
    )


@st.composite
def tied(draw, sizes=(1, 2, 6, 11)):
    """Points on a line, where most coincide."""
    n = draw(st.sampled_from(sizes))
    whole = lambda low, high, *shape: draw(
        hnp.arrays(np.int32, shape, elements=st.integers(low, high))
    )
    data = cases.Data(
        x=whole(-4, 4, n, 1).astype(np.float32),
        y=whole(0, 2, n),
        t=whole(-8, 8, n) / np.float32(4),
        x_val=whole(-4, 4, N_VAL, 1).astype(np.float32),
        y_val=whole(0, 3, N_VAL),
        t_val=whole(-8, 8, N_VAL) / np.float32(4),
    )
    data.y_val[0] = data.y[0]
    return data


@st.composite
def distinct(draw, sizes=(1, 2, 6, 11)):
    """Whole numbers seen from a quarter beside one: no two equally far."""
    data = draw(tied(sizes))
    x = draw(
        st.lists(st.integers(-50, 50), min_size=data.n, max_size=data.n, unique=True)
    )
    return dataclasses.replace(
        data,
        x=np.array(x, np.float32)[:, None],
        x_val=data.x_val + np.float32(0.25),
    )


ks = st.sampled_from([1, 3, 8])


def permuted(data, order):
    return dataclasses.replace(data, x=data.x[order], y=data.y[order], t=data.t[order])


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6)


@cases.each_method
@examples(15)
@given(data=distinct(), k=ks, seed=st.integers(0, 99))
@pytest.mark.left_out
def test_values_follow_their_rows(method, data, k, seed):
    order = np.random.default_rng(seed).permutation(data.n)
    values = method.call(data, k, reduce=None).values
    close(method.call(permuted(data, order), k, reduce=None).values, values[:, order])


@each_averaged
@examples(15)
@given(data=tied(), k=ks, seed=st.integers(0, 99))
@pytest.mark.every(3)
def test_averaged_values_follow_their_rows_through_ties(method, data, k, seed):
    order = np.random.default_rng(seed).permutation(data.n)
    call = lambda data: method.call(data, k, ties="average", reduce=None).values
    close(call(permuted(data, order)), call(data)[:, order])


@each_averaged
@examples(15)
@given(data=tied(), k=ks)
def test_twins_are_worth_the_same(method, data, k):
    values = np.asarray(method.call(data, k, ties="average", reduce=None).values)
    twins = (data.x == data.x.T) & (data.y == data.y[:, None])
    first = twins.argmax(1)
    close(values, values[:, first])


@pytest.mark.parametrize(
    ("method", "ties"),
    [(m, ties) for m in cases.METHODS if m.value.efficient for ties in m.value.ties],
    ids=lambda v: getattr(v, "name", v),
)
@examples(15)
@given(data=tied(sizes=(1, 2, 6)), k=ks)
@pytest.mark.every(6)
def test_values_sum_to_the_utility_of_everything(method, ties, data, k):
    distance = ref.distances(data.x, data.x_val)
    utility = method.utility(data, distance, k, cases.RADIUS["l2"])
    members = np.stack([np.zeros(data.n, bool), np.ones(data.n, bool)])
    gains = method.gains(data)
    expected = []
    for point in range(N_VAL):
        orders = ref.orders(distance[point], ties)
        ends = utility(members, gains[point][orders], point)
        expected.append((ends[:, 1] - ends[:, 0]).mean())
    values = method.call(data, k, ties=ties, reduce=None).values
    close(values.sum(1), expected)


@examples(30)
@given(data=tied(), k=ks, seed=st.integers(0, 99))
def test_null_players(data, k, seed):
    distance, gains = ref.distances(data.x, data.x_val), ref.matches(data.y, data.y_val)
    # Nothing outside the ball, and no leave-one-out beyond rank K, changes anything.
    values = jaxsel.threshold_knn_shapley(*data.classes(), radius=2.0, reduce=None)
    assert not np.asarray(values.values)[distance > 2].any()
    values = jaxsel.knn_loo(*data.classes(), k=k, reduce=None)
    rank = np.argsort(np.argsort(distance, axis=1, kind="stable"), axis=1)
    assert not np.asarray(values.values)[rank >= k].any()
    # Nor does a point without a match, beyond the last match.
    last = np.where(gains > 0, distance, -1).max(1, keepdims=True)
    for method in (m for m in cases.METHODS if m.value.utility == "share"):
        values = method.call(data, k, ties="average", reduce=None)
        assert not np.asarray(values.values)[distance > last].any()


@cases.each_method
@examples(8)
@given(data=tied(), k=ks)
@pytest.mark.every(8)
def test_chunk_size_changes_nothing(method, data, k):
    one, two = (
        method.call(data, k, reduce=None, chunk_size=size).values for size in (1, 3)
    )
    close(one, two)
    close(one, method.call(data, k, reduce=None).values)


# The hybrid: exact for the nearest, closed form in bands beyond. Its cases are drawn by
# a few numbers, so that a failure is short to print.


@pytest.fixture(scope="module", autouse=True)
def _bands():
    """Take bands where the exact value would cost less, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_linear, "sorts_faster", lambda: False)
        yield


SEEDS = st.integers(0, 2**32)
each_hybrid = pytest.mark.parametrize(
    "method",
    [m for m in cases.METHODS if m.value.utility in ("share", "mean")],
    ids=lambda m: m.name,
)


def crowd(n, kind, balance, seed):
    rng = np.random.default_rng(seed)
    x, x_val = rng.normal(size=(n, 4)), rng.normal(size=(N_VAL, 4))
    if kind == "grid":
        x, x_val = np.round(x), np.round(x_val)
    elif kind == "same":
        x[:] = 1.0
    elif kind == "outliers":
        x[rng.permutation(n)[:2]] *= 1e6
    elif kind == "clusters":
        x = x * 1e-3 + 100 * rng.integers(0, 3, (n, 1))
        x_val = x[:N_VAL] + 1e-3
    elif kind == "line":
        x[:] = np.arange(n)[:, None] / 2
    label = lambda m: (rng.uniform(size=m) < balance).astype(int)
    return cases.Data(
        x=x.astype(np.float32),
        y=label(n),
        t=rng.normal(size=n),
        x_val=x_val.astype(np.float32),
        y_val=label(N_VAL),
        t_val=rng.normal(size=N_VAL),
    )


def certified(hybrid, exact):
    """Whether the exact values lie within the bounds, which are worth something."""
    error = np.abs(np.asarray(hybrid.values, np.float64) - np.asarray(exact))
    bound = np.asarray(hybrid.error_bound, np.float64)
    assert bound.shape == error.shape
    assert (error <= bound).all(), f"exceeded by {(error - bound).max()}"
    return bound


KINDS = ["normal", "grid", "same", "outliers", "clusters", "line"]


@pytest.mark.slow
@each_hybrid
@examples(25)
@given(
    n=st.sampled_from([129, 700]),
    kind=st.sampled_from(KINDS),
    balance=st.sampled_from([0.5, 0.02, 0.98]),
    seed=SEEDS,
    k=st.sampled_from([1, 5, 200]),
)
def test_hybrid_keeps_its_bound(method, n, kind, balance, seed, k):
    data = crowd(n, kind, balance, seed)
    exact = method.call(data, k, reduce=None).values
    hybrid = method.call(data, k, method="hybrid", reduce=None)
    certified(hybrid, exact)


@pytest.mark.left_out
@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_hybrid_keeps_its_bound_however_reduced(kind, reduce):
    data = crowd(700, kind, 0.5, seed=1)
    exact = jaxsel.knn_shapley(*data.classes(), reduce=reduce).values
    hybrid = jaxsel.knn_shapley(*data.classes(), method="hybrid", reduce=reduce)
    certified(hybrid, exact)


hybrid_kernel = jax.jit(semivalue_hybrid, static_argnames=("binary", "head", "levels"))


@examples(100)
@given(
    n=st.sampled_from([9, 40]),
    levels=st.sampled_from([1, 64]),
    size=st.sampled_from([2, 10, 2**20]),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    k=st.sampled_from([1, 5, 50]),
    alpha=st.sampled_from([1, 4]),
    binary=st.booleans(),
    seed=SEEDS,
)
@pytest.mark.left_out
def test_hybrid_kernel_keeps_its_bound(n, levels, size, scale, k, alpha, binary, seed):
    # A short head puts every kind of tie at its edge.
    rng = np.random.default_rng(seed)
    distance = rng.integers(0, size, n).astype(np.float32)
    distance[rng.permutation(n)[:2]] *= rng.choice([0, 1, 2.0**40])
    gains = rng.integers(0, 2, n) if binary else rng.normal(size=n) * scale
    gains = gains.astype(np.float32)
    omega = ref.rank_weights(n, k, ref.jacobi(n, alpha, 1))
    values, bound = hybrid_kernel(
        distance,
        gains,
        jaxsel.value.rank_table(omega),
        binary=binary,
        head=8,
        levels=levels,
    )
    exact = ref.sorted_values(distance[None], gains[None].astype(float), omega)[0]
    error = np.abs(np.asarray(values, np.float64) - exact)
    assert (error <= np.asarray(bound, np.float64)).all()


@pytest.mark.slow
@examples(40)
@given(
    n=st.sampled_from([129, 600]),
    size=st.sampled_from([2, 10, 300]),
    seed=SEEDS,
    k=st.sampled_from([1, 5, 200]),
    binary=st.booleans(),
)
def test_hybrid_keeps_its_bound_to_the_reference(n, size, seed, k, binary):
    # On a grid of whole numbers every distance is exact in float32.
    data = cases.grid(n, N_VAL, seed=seed, size=size)
    gains = ref.matches(data.y, data.y_val)
    arguments = data.classes()
    if not binary:
        # One column of soft labels for each validation point: gains of any size.
        rng = np.random.default_rng(seed)
        gains = rng.dirichlet(np.ones(N_VAL), n).T.astype(np.float32)
        arguments = data.x, gains.T, data.x_val, np.eye(N_VAL, dtype=np.float32)
    for function, measure in (
        (jaxsel.knn_shapley, ref.uniform(n)),
        (jaxsel.knn_beta_shapley, ref.jacobi(n, 16, 1)),
    ):
        exact = ref.sorted_values(
            ref.distances(data.x, data.x_val),
            gains,
            ref.rank_weights(n, k, measure),
        )
        hybrid = function(*arguments, k=k, method="hybrid", reduce=None)
        certified(hybrid, exact)


@pytest.mark.left_out
def test_hybrid_is_close():
    data = crowd(3000, "normal", 0.5, seed=0)
    hybrid = jaxsel.knn_shapley(*data.classes(), method="hybrid", reduce=None)
    exact = np.asarray(jaxsel.knn_shapley(*data.classes(), reduce=None).values)
    bound = certified(hybrid, exact)
    largest = np.abs(exact).max()
    assert bound.max() < 1e-2 * largest
    assert np.abs(hybrid.values - exact).max() < 1e-3 * largest
