"""The pure kernels and their rank weights against the references."""

import itertools
import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref
from jax import export
from scipy import stats

import jaxsel
from jaxsel import _native, neighbors, value
from jaxsel.neighbors import _order
from jaxsel.value._regression import regression_shapley, regression_table
from jaxsel.value._semivalue import semivalue_tied, semivalue_top
from jaxsel.value._weights import (
    banzhaf_weights,
    beta_weights,
    loo_weights,
    soft_shapley_weights,
)

from . import cases

pytestmark = pytest.mark.every(3)

N, N_VAL = 150, 6
TOLERANCE = {"rtol": 0, "atol": 2e-6}


NATIVE = _native.available() and jax.default_backend() == "cpu"
SORTS = ["packed", "pairs", "auto", *(["native"] if NATIVE else [])]


@pytest.fixture(scope="module", params=["ties", "distinct", "wide"])
def ranked(request):
    """Distances on any scale, gains of either sign: `[N_VAL, N]`."""
    rng = np.random.default_rng(0)
    distance = rng.permuted(np.tile(np.arange(N), (N_VAL, 1)), axis=1)
    if request.param == "ties":
        distance = rng.integers(0, 40, (N_VAL, N))
    distance = distance.astype(np.float32)
    if request.param == "wide":
        distance = np.float32(2) ** (distance / 2 - 40)
        distance[:, :3] = 0
    gains = rng.normal(size=(N_VAL, N)).astype(np.float32)
    return distance, gains


@pytest.mark.parametrize("ties", ["stable", "average"])
@pytest.mark.parametrize("measure", [ref.uniform(N), ref.jacobi(N, 1, 4)])
@pytest.mark.parametrize("k", [1, 7, N + 5])
@pytest.mark.every(4)
def test_semivalue(ranked, ties, measure, k):
    omega = ref.rank_weights(N, k, measure)
    expected = ref.sorted_values(*ranked, omega, ties)
    kernel = value.semivalue if ties == "stable" else semivalue_tied
    for sort in SORTS:
        one = partial(kernel, table=value.rank_table(omega), sort=sort)
        values = jax.vmap(one)(*map(jnp.asarray, ranked))
        np.testing.assert_allclose(values, expected, err_msg=sort, **TOLERANCE)


@pytest.mark.parametrize("sort", SORTS)
def test_zeros_of_both_signs_are_tied(sort):
    row = jnp.asarray([1.0, 0.0, -0.0, 2.0, -0.0, 0.0])
    assert neighbors.argsort(row, sort=sort).tolist() == [1, 2, 4, 5, 0, 3]


def rows_to_sort(n):
    """Rows of which the compiled sort takes short cuts, begins to, or does not."""
    rng = np.random.default_rng(n)
    near = rng.chisquare(64, n)
    crowded = np.where(np.arange(n) % 50, 1 + 1e-7 * rng.random(n), 15)
    rows = [near, near.round(), crowded[::-1], np.ones(n), rng.normal(size=n) ** 2]
    rows += [np.where(near < 60, part, near) for part in (np.nan, -np.nan, np.inf)]
    rows += [np.where(near < 60, -0.0, 0), np.exp(9 * rng.normal(size=n))]
    return np.array(rows, np.float32)


@pytest.mark.parametrize("n", [1, 2, 33, 1000, 2**14, 2**14 + 1])
@pytest.mark.parametrize("sort", SORTS)
def test_rows_of_all_kinds_are_sorted_stably(n, sort):
    rows = rows_to_sort(n)
    order = jax.vmap(partial(neighbors.argsort, sort=sort))(jnp.asarray(rows))
    np.testing.assert_array_equal(order, np.argsort(rows, axis=1, kind="stable"))


@pytest.mark.parametrize("sort", SORTS)
def test_sums_over_many_ranks_keep_their_digits(sort):
    """Weights that fall evenly, and points that all gain 1: all are worth 1 / n."""
    n = 200_000
    table = value.rank_table(np.arange(n, 0, -1) / n)
    row = np.random.default_rng(0).random(n, np.float32)
    values = value.semivalue(jnp.asarray(row), jnp.ones(n), table, sort=sort)
    np.testing.assert_allclose(values, 1 / n, atol=2e-6)


WEIGHTS = {
    "shapley": value.shapley_weights,
    "banzhaf": banzhaf_weights,
    "beta(1, 4)": partial(beta_weights, alpha=1, beta=4),
    "beta(4, 1)": partial(beta_weights, alpha=4, beta=1),
    "beta(16, 1)": partial(beta_weights, alpha=16, beta=1),
}


def blocks(n):
    """Gains by rank, in blocks of several sizes, and last at random: `[8, n]`."""
    rank = np.arange(n)
    rows = [rank < n // 2, rank >= n // 2, rank < n - 1, rank >= n - 1, rank >= 0]
    rows += [rank * 3 // n % 2 == 0, rank // 10 % 2 == 0]
    rows += [np.random.default_rng(n).random(n) < 0.5]
    return np.stack(rows).astype(np.float32)


def share_of_largest(values, expected):
    """The largest error of a row as a share of its largest value that float32 holds."""
    expected = np.where(np.abs(expected) > 1e-37, expected, 0)
    error = np.abs(np.asarray(values, np.float64) - expected).max(1)
    return (error / np.maximum(np.abs(expected).max(1), 1e-37)).max()


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize(("n", "k"), [(10, 1), (10, 10), (1025, 5), (100_000, 10)])
@pytest.mark.every(10)
def test_labels_in_blocks_keep_their_digits(name, n, k):
    """Where the nearest points are alike, all values are those of small weights."""
    omega = WEIGHTS[name](n, k)
    gains = blocks(n)
    expected = ref.recursion(gains.astype(float), omega)
    table = value.rank_table(omega)
    distance = jnp.arange(n, dtype=jnp.float32)
    for sort in SORTS:
        run = jax.jit(partial(value.semivalue, sort=sort))
        values = [run(distance, row, table) for row in gains]
        assert share_of_largest(values, expected) < 1e-6, sort
    if n < 100:
        top = partial(semivalue_top, weight=table.weight, drop=table.drop)
        values = [top(distance, row) for row in gains]
        assert share_of_largest(values, expected) < 1e-6


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize(("n", "k"), [(9, 1), (9, 10), (1026, 5), (30_000, 10)])
@pytest.mark.every(10)
def test_tied_labels_in_blocks_keep_their_digits(name, n, k):
    omega = WEIGHTS[name](n, k)
    gains = blocks(n)
    expected = np.zeros(gains.shape)
    orders = list(itertools.permutations(range(3)))
    for order in orders:  # of the three that are tied, in every group at once
        at = (3 * np.arange(n // 3)[:, None] + order).reshape(-1)
        expected[:, at] += ref.recursion(gains[:, at].astype(float), omega)
    expected /= len(orders)
    table = value.rank_table(omega)
    distance = np.arange(n, dtype=np.float32) // 3
    for sort in SORTS:
        run = jax.jit(partial(semivalue_tied, sort=sort))
        values = [run(distance, row, table) for row in gains]
        assert share_of_largest(values, expected) < 1e-6, sort


@pytest.mark.parametrize("ties", ["stable", "average"])
def test_a_beta_value_of_labels_in_blocks(ties):
    """By the public call: all points but the farthest have the validation label."""
    n, k = 2000, 5
    x = np.arange(n, dtype=float)[:, None]
    y = np.arange(n) < n - 1
    omega = beta_weights(n, k, alpha=1, beta=4)
    expected = ref.recursion(y.astype(float), omega)
    options = {"alpha": 1, "beta": 4, "k": k, "ties": ties}
    values = jaxsel.knn_beta_shapley(x, y, [[-1.0]], [True], **options).values
    assert expected.max() < 1e-9  # the nearest would be worth 0.2 by themselves
    assert share_of_largest(values[None], expected[None]) < 1e-6


@pytest.mark.parametrize(("n", "short"), [(2**16, True), (2**16 + 1, False)])
def test_short_indices_on_gpus(n, short):
    """GPUs sort rows of up to 65,536 with a 16-bit index, into the same order."""
    rows = np.random.default_rng(n).integers(0, 9999, (2, n)).astype(np.float32)
    index_type = jnp.uint16 if short else jnp.int32
    order = jax.vmap(partial(_order._sort_with, index_type=index_type))(rows)
    assert order.dtype == jnp.int32
    np.testing.assert_array_equal(order, np.argsort(rows, axis=1, kind="stable"))
    sort = jax.jit(jax.vmap(neighbors.argsort))
    lowered = export.export(sort, platforms=["cuda"])(rows).mlir_module()
    assert (f"tensor<2x{n}xui16>" in lowered) == short


@pytest.mark.parametrize("k", [1, 7, N + 5])
def test_regression(ranked, k):
    distance, targets = ranked
    t_val = np.linspace(-1, 1, N_VAL)
    expected = [
        ref.regression_values(d[None], y.astype(float), [t], k)[0]
        for d, y, t in zip(distance, targets, t_val, strict=True)
    ]
    table = regression_table(N, k)
    for sort in SORTS:
        one = partial(regression_shapley, table=table, sort=sort)
        values = jax.vmap(one)(*map(jnp.asarray, (distance, targets, t_val)))
        np.testing.assert_allclose(values, expected, err_msg=sort, **TOLERANCE)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 200])
def test_rank_weights(n):
    for k in sorted({1, 2, 5, n, n + 1, n + 9}):
        for ours, measure in (
            (value.shapley_weights(n, k), ref.uniform(n)),
            (banzhaf_weights(n, k), ref.point_mass(0.5)),
            (loo_weights(n, k), ref.point_mass(1.0)),
            (beta_weights(n, k, alpha=16, beta=1), ref.jacobi(n, 16, 1)),
            (beta_weights(n, k, alpha=2.5, beta=4), ref.jacobi(n, 2.5, 4)),
        ):
            expected = ref.rank_weights(n, k, measure)
            np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("k", [1, 5, 50, 200, 2000])
def test_rank_weights_never_increase(k):
    # The hybrid's bound rests on it.
    for weights in (
        value.shapley_weights(1000, k),
        banzhaf_weights(1000, k),
        loo_weights(1000, k),
        beta_weights(1000, k, alpha=16, beta=1),
        soft_shapley_weights(1000, k),
    ):
        assert np.isfinite(weights).all()
        assert (np.diff(weights) <= 0).all()


@pytest.mark.parametrize("n", [1, 2, 6])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_size_restricted_weights(n, k):
    p = np.random.default_rng(n).uniform(size=n)
    np.testing.assert_allclose(
        value.size_restricted_weights(n, k, p), ref.size_rank_weights(n, k, p)
    )


@pytest.mark.parametrize("k", [1, 5, 400, 1500])
@pytest.mark.parametrize("game", ["shapley", "banzhaf", "few", "many", "any"])
def test_weights_by_the_chance_of_each_size(k, game):
    # Far beyond the n at which the weight of one coalition fits a float.
    n = 3000
    size = np.arange(n)
    sizes = {
        "shapley": np.full(n, 1 / n),
        "banzhaf": stats.binom.pmf(size, n - 1, 0.5),
        "few": np.where(size <= 50, 1 / 51, 0),
        "many": np.where(size >= n - 20, 1 / 20, 0),
        "any": np.random.default_rng(0).dirichlet(np.full(n, 0.2)),
    }[game]
    weights = value.size_restricted_weights(n, k, sizes=sizes)
    known = {"shapley": value.shapley_weights, "banzhaf": banzhaf_weights}
    if game in known:
        np.testing.assert_allclose(k * weights, k * known[game](n, k), atol=5e-12)
    # The chance that fewer than K of the nearer points have joined before.
    for rank in (1, k, k + 1, 2 * k, n // 2 + 9, n):
        chance = stats.hypergeom.cdf(k - 1, n - 1, rank - 1, size) @ sizes
        np.testing.assert_allclose(k * weights[rank - 1], chance, atol=1e-12)


@pytest.mark.slow
def test_weights_by_size_of_a_million_points():
    n, k = 10**6, 5
    weights = value.size_restricted_weights(n, k, sizes=np.full(n, 1 / n))
    np.testing.assert_allclose(weights, value.shapley_weights(n, k), rtol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "give one of probability and sizes"),
        (([0.5, 0.5],), {"sizes": [0.5, 0.5]}, "give one of"),
        (([0.5, 0.5, 0.5],), {}, r"probability must have shape \[n\] = \[2\].*3"),
        ((), {"sizes": [1.0]}, r"sizes must have shape \[n\] = \[2\], got \(1,\)"),
        (([0.5, -0.5],), {}, "probability must be finite and zero or more"),
        ((), {"sizes": [0.5, np.nan]}, "sizes must be finite"),
        (([0.5, 1e-310],), {}, "too small .*1e-310.* the chance of each size as sizes"),
    ],
)
def test_weights_by_size_refuse(arguments, options, message):
    pattern = message.replace("too small .*1e-310", "1e-310, too small")
    with pytest.raises(ValueError, match=pattern):
        value.size_restricted_weights(2, 1, *arguments, **options)


def test_coalitions_of_which_one_weighs_too_little():
    # Most of Shapley's weights at this n are less than the smallest float.
    n = 1100
    shapley = [1 / (n * math.comb(n - 1, s)) for s in range(n)]
    with pytest.raises(ValueError, match="too small for a float"):
        value.size_restricted_weights(n, 5, shapley)
    few = [1 / (51 * math.comb(n - 1, s)) if s <= 50 else 0 for s in range(n)]
    np.testing.assert_allclose(
        value.size_restricted_weights(n, 5, few),
        value.size_restricted_weights(
            n, 5, sizes=np.where(np.arange(n) <= 50, 1 / 51, 0)
        ),
        rtol=1e-11,
    )


@pytest.mark.parametrize(("alpha", "beta"), [(16, 1), (3, 4), (1, 20)])
def test_beta_weights_are_exact_at_a_million_points(alpha, beta):
    # With whole parameters all is rational.
    n, k = 10**6, 5

    def euler(a, b):
        return Fraction(1, a * math.comb(a + b - 1, a))

    def chance(draws):
        some = (
            math.comb(draws, i) * euler(i + beta, draws - i + alpha)
            for i in range(min(k, draws + 1))
        )
        return float(sum(some) / euler(beta, alpha))

    weights = beta_weights(n, k, alpha=alpha, beta=beta)
    for rank in (1, 5, 6, 7, 1000, 999_999, 10**6):
        np.testing.assert_allclose(k * weights[rank - 1], chance(rank - 1), rtol=2e-12)


def test_other_weights_of_many_points():
    # P(Bin(r-1, 1/2) <= K-1), in whole numbers.
    for n, k, rank in ((10**6, 5, 40), (20_000, 9_900, 20_000)):
        ways = total = 1
        for i in range(k - 1):
            ways = ways * (rank - 1 - i) // (i + 1)
            total += ways
        weight = banzhaf_weights(n, k)[rank - 1]
        chance = float(Fraction(total, 2 ** (rank - 1)))
        np.testing.assert_allclose(k * weight, chance, rtol=1e-9)
    n = 10**6
    soft, k = soft_shapley_weights(n, 5), 5
    harmonic = sum(Fraction(1, i) for i in range(1, k + 1))
    for rank in (1, 5, 6, 1000, n):
        shared = Fraction((n - 1) * min(rank, k), rank) - k
        expected = (harmonic + shared / k) / (n - 1)
        np.testing.assert_allclose(soft[rank - 1], float(expected), rtol=1e-12)


@pytest.mark.parametrize(
    "metric", ["l2", pytest.param("cosine", marks=pytest.mark.slow)]
)
@pytest.mark.left_out
def test_identical_rows_are_tied(metric):
    # Whatever the place of a row in the matrix product, and its shape.
    n = 203
    rng = np.random.default_rng(n)
    row = rng.integers(0, 40, n)
    data = cases.Data(
        x=rng.normal(size=(40, 64)).astype(np.float32)[row],
        y=row % 3,
        t=row,
        x_val=rng.normal(size=(9, 64)).astype(np.float32),
        y_val=np.arange(9) % 3,
        t_val=np.zeros(9),
    )
    distance = np.round(ref.distances(data.x, data.x_val, metric), 9)
    gains = ref.matches(data.y, data.y_val)
    omega = ref.rank_weights(n, 5, ref.uniform(n))
    for ties in ("stable", "average"):
        for chunk_size in (None, 1):
            values = jaxsel.knn_shapley(
                *data.classes(),
                metric=metric,
                ties=ties,
                reduce=None,
                chunk_size=chunk_size,
            ).values
            expected = ref.sorted_values(distance, gains, omega, ties)
            np.testing.assert_allclose(values, expected, **TOLERANCE)


def test_weights_of_each_row(ranked):
    """Compiled, rows share what is computed of weights only if they share them."""
    distance, gains = ranked
    omegas = [loo_weights(N, 3), value.shapley_weights(N, 3), loo_weights(N, 9)]
    tables = jax.tree.map(
        lambda *leaves: np.stack(leaves), *map(value.rank_table, omegas)
    )
    rows = distance[:3], gains[:3]
    values = jax.vmap(value.semivalue)(*rows, tables)
    expected = [
        ref.sorted_values(d[None], g[None], omega)[0]
        for d, g, omega in zip(*rows, omegas, strict=True)
    ]
    np.testing.assert_allclose(values, expected, **TOLERANCE)


def test_weights_far_apart():
    """Roundings of the drops of large weights do not reach the small ones."""
    rng, n = np.random.default_rng(0), 3000
    omega = np.where(np.arange(n) < 1024, 1e-3, 1e4) * rng.uniform(1, 2, n)
    distance, gains = np.arange(n, dtype=np.float32), 1.0 * (np.arange(n) < 500)
    values = value.semivalue(distance, gains, value.rank_table(omega))
    expected = ref.sorted_values(distance[None], gains[None], omega)[0]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


def test_long_rows():
    """Of more than 2**16 points, whose levels of weights are not kept."""
    rng, n = np.random.default_rng(0), 70_000
    distance, gains = rng.random((2, n)).astype(np.float32)
    omega = value.shapley_weights(n, 3)
    values = value.semivalue(distance, gains, value.rank_table(omega))
    expected = ref.sorted_values(distance[None], gains[None], omega)[0]
    np.testing.assert_allclose(values, expected, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", [value.semivalue, semivalue_tied])
def test_ways_to_sort_that_are_not_there(kernel, monkeypatch):
    arrays = jnp.zeros(3), jnp.ones(3), value.rank_table(value.shapley_weights(3, 1))
    with pytest.raises(ValueError, match="sort must be one of 'auto'.*'quick'"):
        kernel(*arrays, sort="quick")
    monkeypatch.setattr(_native, "available", lambda: False)
    with pytest.raises(ValueError, match="sort='native' needs the compiled"):
        kernel(*arrays, sort="native")


@pytest.mark.parametrize("n", [2047, 2048, 5000])
@pytest.mark.parametrize("k", [1, 40, 700])
def test_nearest_of_long_rows(n, k):
    # The compiled operation guesses a bound from every (n / 512)-th entry.
    rng = np.random.default_rng(n)
    place = np.arange(n)
    rows = np.stack(
        [
            rng.uniform(size=n),
            rng.integers(0, 9, n),
            place[::-1],
            np.ones(n),
            place % (n // 512) != 0,
            place % (n // 512) == 0,
            np.where(rng.uniform(size=n) < 0.9, np.nan, 1.0),
        ]
    ).astype(np.float32)
    near, index = jax.vmap(partial(neighbors.top_k, k=k))(rows)
    expected = np.argsort(rows, axis=1, kind="stable")[:, :k]
    # jax.lax.top_k puts NaN first, the compiled operation last, as NumPy does.
    known = slice(None) if NATIVE else slice(-1)
    np.testing.assert_array_equal(index[known], expected[known])
    np.testing.assert_array_equal(near, np.take_along_axis(rows, index, axis=1))
