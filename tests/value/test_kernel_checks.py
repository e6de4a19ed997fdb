"""What the pure kernels refuse, differentiate, and tell apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

from jaxsel import _native, neighbors, value
from jaxsel.value._hybrid import semivalue_hybrid
from jaxsel.value._regression import regression_shapley, regression_table
from jaxsel.value._semivalue import (
    reverse_sum,
    semivalue,
    semivalue_tied,
    semivalue_top,
)
from jaxsel.value._threshold_kernel import harmonic_numbers, threshold_shapley

pytestmark = pytest.mark.every(3)

N, K = 7, 3
NATIVE = _native.available() and jax.default_backend() == "cpu"
SORTS = ["packed", "pairs", *(["native"] if NATIVE else [])]
needs_native = pytest.mark.skipif(not NATIVE, reason="not built here")

ROW, LONG, ROWS = (np.zeros(shape, np.float32) for shape in (N, N + 1, (2, N)))
TABLE = value.rank_table(value.shapley_weights(N, K))
SHORT = value.rank_table(value.shapley_weights(5, K))
BARE = value.rank_table(value.shapley_weights(N, K), running=False)
HARMONIC = harmonic_numbers(N)


@pytest.mark.parametrize(
    ("kernel", "arguments", "options", "message"),
    [
        (
            semivalue,
            (ROWS, ROW, TABLE),
            {},
            r"distances must have shape \[n\].*2, 7",
        ),
        (
            semivalue,
            (ROW, LONG, TABLE),
            {},
            r"gains must have .*\[7\], got \(8,\)",
        ),
        (semivalue, (ROW, ROW, SHORT), {}, r"table must hold n = 7 .*\(5,\)"),
        (semivalue, (LONG, LONG, TABLE), {}, r"table must hold n = 8 .*\(7,\)"),
        (semivalue_tied, (ROW, ROW, SHORT), {}, r"table must hold n = 7 .*\(5,\)"),
        (semivalue_tied, (ROW, ROW, BARE), {}, "table must have running sums"),
        (semivalue_top, (ROW, ROW, LONG, LONG), {}, "weight must have at most n = 7"),
        (semivalue_top, (ROW, ROW, ROW, LONG), {}, r"drop must have .*\[7\]"),
        (semivalue_top, (ROW, LONG, ROW, ROW), {}, r"gains must have .*\[7\]"),
        (semivalue_hybrid, (ROW, ROW, SHORT), {}, r"table must hold n = 7"),
        (semivalue_hybrid, (ROW, ROW, BARE), {}, "table must have running sums"),
        (semivalue_hybrid, (ROW, LONG, TABLE), {}, r"gains must have .*\[7\]"),
        (semivalue_hybrid, (ROW, ROW, TABLE), {"head": 7}, "head must be from 1 to"),
        (threshold_shapley, (ROW, LONG, 1.0, HARMONIC, 0.5), {}, "gains must have"),
        (threshold_shapley, (ROW, ROW, 1.0, LONG[1:], 0.5), {}, r"harmonic .*\[8\]"),
        (
            regression_shapley,
            (ROW, LONG, 0.0, regression_table(N, K)),
            {},
            "targets must have",
        ),
        (
            regression_shapley,
            (ROW, ROW, 0.0, regression_table(5, K)),
            {},
            "table must be regression_table.* n = 7, got n = 5",
        ),
    ],
)
def test_shapes(kernel, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        kernel(*arguments, **options)
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda first, *rest: kernel(first, *rest, **options))(*arguments)


@pytest.mark.parametrize("dtype", [np.float64, jnp.bfloat16, np.float16])
def test_nearest_of_other_types(dtype):
    """Compiled operations read float32 alone: others are chosen by JAX."""
    with jax.enable_x64(True):
        row = jnp.asarray(np.random.default_rng(0).permutation(60), dtype)
        found, indices = neighbors.top_k(row, 5)
        assert found.dtype == row.dtype
    np.testing.assert_array_equal(indices, np.argsort(np.asarray(row, float))[:5])


@pytest.mark.parametrize("k", [-1, N + 1])
def test_nearest_of_fewer(k):
    message = f"k must be from 0 to n = {N}, got {k}"
    with pytest.raises(ValueError, match=message):
        neighbors.top_k(jnp.asarray(ROW), k)
    with pytest.raises(ValueError, match=message):  # of a type that is not compiled
        neighbors.top_k(jnp.asarray(ROW, jnp.bfloat16), k)
    with pytest.raises(ValueError, match=message):
        _native.smallest(jnp.asarray(ROW), None, k)


@pytest.mark.parametrize("function", [neighbors.argsort, _native.argsort])
def test_an_order_is_of_one_row(function):
    with pytest.raises(ValueError, match="vmap"):
        function(jnp.asarray(ROWS))


def test_rows_of_one_length():
    for weight, drop in ((LONG, ROW), (ROW, LONG)):
        with pytest.raises(ValueError, match=r"rows of one length.*\(7,\).*\(8,\)"):
            _native.semivalue(ROW, ROW, weight, drop)


@needs_native
@pytest.mark.parametrize(
    ("target", "shapes", "results", "options"),
    [
        ("jaxsel_argsort", [(N,)], [(jnp.int32, (N + 1,))], {}),
        ("jaxsel_argsort", [(2, N)], [(jnp.int32, (1, N))], {}),
        *(
            ("jaxsel_semivalue", shapes, [(jnp.float32, (N,))], {"average": False})
            for shapes in (
                [(N,), (N,), (N,), (5,)],
                [(N,), (N,), (5,), (N,)],
                [(N,), (5,), (N,), (N,)],
                [(5,), (N,), (N,), (N,)],
                [(2, N), (N,), (N,), (N,)],
            )
        ),
        # Features and bounds of other points, or of other queries.
        *(
            ("jaxsel_repair", [(N,), *exact], [(jnp.float32, (N,))], {})
            for exact in (
                [(N - 1, 2), (2,), (N - 1,), (3,)],
                [(N, 2), (2,), (N - 1,), (3,)],
                [(N, 2), (3,), (N,), (3,)],
                [(N, 2), (2,), (N,), (2,)],
            )
        ),
        *(
            ("jaxsel_order", shapes, [(jnp.int32, (N,))], {})
            for shapes in ([(5,), (N,), (N,)], [(N,), (5,), (N,)], [(N,), (N,), (5,)])
        ),
        ("jaxsel_smallest", [(N,)], [(jnp.float32, (9,)), (jnp.int32, (9,))], {}),
        ("jaxsel_smallest", [(N,)], [(jnp.float32, (2,)), (jnp.int32, (3,))], {}),
        ("jaxsel_smallest", [(N,)], [(jnp.float32, (3, 2)), (jnp.int32, (3, 2))], {}),
    ],
)
def test_compiled_operations_check_shapes_themselves(target, shapes, results, options):
    call = jax.ffi.ffi_call(
        target, [jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in results]
    )
    if target != "jaxsel_argsort":
        exact = [(0, 0), (0,), (0,), (0,)] if len(shapes) < 5 else []
        shapes, options = [*shapes, *exact], {**options, "cosine": False}
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"INVALID_ARG.*{target}"):
        call(*(np.zeros(shape, np.float32) for shape in shapes), **options)


# Derivatives: a value is linear in the gains, and in the rank weights.


def semivalue_of(kernel, sort):
    distances = jnp.asarray([3.0, 1.0, 1.0, 5.0, 2.0, 0.0, 5.0])
    return lambda gains, table: kernel(distances, gains, table, sort=sort)


@pytest.mark.left_out
@pytest.mark.parametrize(
    "sort", ["auto", pytest.param("pairs", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kernel", [semivalue, semivalue_tied])
def test_derivatives_by_gains_and_weights(kernel, sort):
    rng = np.random.default_rng(0)
    gains = jnp.asarray(rng.normal(size=N), jnp.float32)
    call = semivalue_of(kernel, sort)
    # Of a linear function the Jacobian is what it makes of the unit vectors.
    expected = np.stack([call(row, TABLE) for row in jnp.eye(N)], axis=1)
    for jacobian in (jax.jacrev, jax.jacfwd):
        by_gains = jacobian(call)(gains, TABLE)
        np.testing.assert_allclose(by_gains, expected, atol=1e-6)
    total = lambda gains: (call(gains, TABLE) * jnp.arange(N)).sum()
    many = jax.vmap(jax.grad(total))(jnp.stack([gains, -gains]))
    slope = np.arange(N) @ expected
    np.testing.assert_allclose(many, [slope, slope], atol=1e-5)
    along = jax.jvp(lambda table: call(gains, table), (TABLE,), (TABLE,))
    np.testing.assert_allclose(*along, atol=1e-6)


@pytest.mark.parametrize("kernel", [semivalue, semivalue_tied])
def test_derivatives_by_distances_are_zero(kernel):
    by_distance = jax.grad(lambda d: kernel(d, jnp.ones(N), TABLE)[0])
    assert not np.asarray(by_distance(jnp.arange(N, dtype=jnp.float32))).any()


@pytest.mark.slow
def test_derivatives_of_the_nearest():
    # All but the head of the table, and the order, take no part.
    distances = jnp.asarray([3.0, 1.0, 2.0, 5.0, 4.0, 0.0, 6.0])
    near = lambda d: neighbors.top_k(d, 2)[0]
    expected = np.eye(N)[[5, 1]]
    np.testing.assert_array_equal(jax.jacrev(near)(distances), expected)
    np.testing.assert_array_equal(jax.jacfwd(near)(distances), expected)
    top = lambda g: semivalue_top(distances, g, TABLE.weight[:3], TABLE.drop[:3])
    expected = np.stack([top(row) for row in jnp.eye(N)], axis=1)
    np.testing.assert_allclose(jax.jacrev(top)(jnp.ones(N)), expected, atol=1e-6)
    table = regression_table(N, K)
    loss = lambda t: regression_shapley(distances, t, 0.5, table).sum()
    slope = jax.grad(loss)(jnp.ones(N))
    step = 1e-2 * np.eye(N, dtype=np.float32)
    change = [(loss(1 + s) - loss(1 - s)) / 2e-2 for s in step]
    np.testing.assert_allclose(slope, change, atol=1e-3)


# Long rows, by every way to sort.


@pytest.mark.parametrize("n", [1, 1024, 1025, 5000, 1024**2 + 7])
def test_sums_of_all_later_terms(n):
    terms = np.random.default_rng(n).uniform(1, 2, n).astype(np.float32)
    later = np.cumsum(terms[::-1], dtype=np.float64)[::-1] - terms
    np.testing.assert_allclose(jax.jit(reverse_sum)(terms), later, rtol=1e-5, atol=0.1)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("ties", ["stable", "average"])
@pytest.mark.left_out
def test_rows_of_several_blocks(sort, ties):
    n = 2500
    rng = np.random.default_rng(n)
    distance = rng.integers(0, 900, (1, n)).astype(np.float32)
    gains = rng.uniform(size=(1, n)).astype(np.float32)
    omega = value.shapley_weights(n, K)
    kernel = semivalue if ties == "stable" else semivalue_tied
    run = jax.jit(kernel, static_argnames="sort")
    values = run(distance[0], gains[0], value.rank_table(omega), sort=sort)
    expected = ref.sorted_values(distance, gains.astype(float), omega, ties)[0]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.left_out
def test_regression_of_several_blocks(sort):
    n = 2500
    rng = np.random.default_rng(n)
    distance = rng.permutation(n).astype(np.float32)
    targets = rng.normal(size=n).astype(np.float32)
    table = regression_table(n, K)
    values = regression_shapley(distance, targets, 0.5, table, sort=sort)
    expected = ref.regression_values(distance[None], targets.astype(float), [0.5], K)
    np.testing.assert_allclose(values, expected[0], rtol=0, atol=5e-6)


# The hybrid's certificate where it is tight.


HEAD = 8
hybrid = jax.jit(semivalue_hybrid, static_argnames=("binary", "head", "levels"))


def hybrid_error(distance, gains, omega, **options):
    table = value.rank_table(omega)
    values, bound = hybrid(distance, gains, table, head=HEAD, **options)
    exact = ref.sorted_values(by_bits(distance)[None], gains[None], omega)[0]
    return np.abs(np.asarray(values, float) - exact), np.asarray(bound, float)


def by_bits(distance):
    """Whole numbers that sort as the distances do, denormal ones included."""
    return distance.view(np.int32).astype(float)


@pytest.mark.parametrize("binary", [True, False])
def test_the_bound_is_no_smaller_than_it_must_be(binary):
    # One band behind the head, and in it the order that its average least expects.
    n = 208
    rest = n - HEAD
    distance = np.concatenate([np.zeros(HEAD), 1 + np.arange(rest)]).astype(np.float32)
    gains = np.zeros(n, np.float32)
    # What the band takes from the head: weights that fall in its first half only, which
    # is where the matches are.
    gains[HEAD : HEAD + rest // 2] = 1
    fall = np.linspace(1, 0, rest // 2 + 1)
    omega = np.concatenate([np.ones(HEAD - 1), fall, np.zeros(rest // 2)])
    error, bound = hybrid_error(distance, gains, omega, levels=1, binary=binary)
    assert (error <= bound).all()
    assert (error[:HEAD] > 0.97 * bound[:HEAD]).all()
    # A point's own part: one match, and it alone has the weight.
    gains[:] = 0
    gains[HEAD] = 1
    omega = (np.arange(n) <= HEAD).astype(float)
    error, bound = hybrid_error(distance, gains, omega, levels=1, binary=binary)
    assert (error <= bound).all()
    assert error[HEAD] > 0.97 * bound[HEAD]


@pytest.mark.parametrize("size", [1e-38, 1e-44])
@pytest.mark.left_out
def test_denormal_distances(size):
    # XLA's CPU threads take them for 0; the order is that of their bits everywhere.
    n = 40
    rng = np.random.default_rng(0)
    distance = (rng.integers(0, 9, n) * size).astype(np.float32)
    gains = rng.integers(0, 2, n).astype(np.float32)
    omega = value.shapley_weights(n, K)
    for ties, kernel in (
        ("stable", semivalue),
        ("average", semivalue_tied),
    ):
        expected = ref.sorted_values(by_bits(distance)[None], gains[None], omega, ties)
        for sort in SORTS:
            run = jax.jit(kernel, static_argnames="sort")
            values = run(distance, gains, value.rank_table(omega), sort=sort)
            np.testing.assert_allclose(values, expected[0], atol=1e-6, err_msg=sort)
    error, bound = hybrid_error(distance, gains, omega, levels=64)
    assert (error <= bound).all()
