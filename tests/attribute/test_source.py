"""SOURCE: closed forms of quadratic losses, an explicit reference, and refusals."""

import contextlib

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import source_references as references

from jaxsel import attribute
from jaxsel.attribute import _source

KEY = jax.random.key(0)
RUN = jax.random.fold_in(KEY, 0)
LINE = lambda w, x: (x @ w)[:, None]


def regression(n=24, d=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 6, d))
    y = x.sum(1) + rng.normal(size=n + 6)
    return x[:n], y[:n], x[n:], y[n:]


def line(start, optimizer, steps, n=24):
    """Descent on all samples at once, from `start`."""
    start = np.asarray(start)
    pair = (lambda key, x: jnp.asarray(start)), LINE
    return attribute.Recipe(pair, optimizer, epochs=steps, batch_size=n)


def quadratic(w, x, y, x_val, y_val):
    """The Hessian, the samples' gradients, and the outputs' gradients."""
    hessian = 2 * x.T @ x / len(x)
    gradients = 2 * (x @ w - y)[:, None] * x
    return hessian, gradients, -2 * (x_val @ w - y_val)[:, None] * x_val


def optimum(x, y, decay=0.0):
    return np.linalg.solve(
        2 * x.T @ x / len(x) + decay * np.eye(x.shape[1]), 2 * x.T @ y / len(x)
    )


def test_least_squares_in_closed_form():
    """A start at the minimum: gradients are the same after each step.

    The exact response of K steps has (1 - rate s)^K of each eigenvalue s where SOURCE
    has exp(-rate K s).
    """
    rate, steps = 0.02, 30
    with jax.enable_x64(True):
        arrays = regression()
        w = optimum(*arrays[:2])
        recipe = line(w, optax.sgd(rate), steps)
        hessian, gradients, targets = quadratic(w, *arrays)
        values, vectors = np.linalg.eigh(hessian)

        def response(left):
            step = (vectors * (1 - left) / values) @ vectors.T
            return -targets @ step @ gradients.T / 24

        options = {"key": KEY, "reduce": None}
        source = attribute.source(recipe, *arrays, segments=1, **options)
        exact = attribute.metagradient(recipe, *arrays, drop_share=0, **options)
        # The product of segments is the whole.
        three = attribute.source(recipe, *arrays, **options)
    right = response(np.exp(-rate * steps * values))
    np.testing.assert_allclose(source.values, right, rtol=1e-9)
    np.testing.assert_allclose(three.values, right, rtol=1e-9)
    right = response((1 - rate * values) ** steps)
    np.testing.assert_allclose(exact.values, right, rtol=1e-9)
    scale = np.abs(right).max()
    assert np.abs(np.asarray(source.values) - right).max() < 0.03 * scale


def test_many_segments_approach_the_exact_response():
    """With a segment a step, all that differs is of the order of the rate."""
    errors = []
    with jax.enable_x64(True):
        arrays = regression()
        for rate, steps in ((0.02, 20), (0.01, 40)):
            recipe = line(np.zeros(4), optax.sgd(rate), steps)
            options = {"key": KEY, "reduce": None}
            exact = attribute.metagradient(recipe, *arrays, drop_share=0, **options)
            source = attribute.source(
                recipe, *arrays, segments=steps, checkpoints=steps, **options
            )
            error = np.abs(np.asarray(source.values) - np.asarray(exact.values)).max()
            errors.append(error / np.abs(exact.values).max())
    assert errors[0] < 0.06
    assert errors[1] == pytest.approx(errors[0] / 2, rel=0.1)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_long_training_gives_damped_influence(decay):
    with jax.enable_x64(True):
        arrays = regression()
        w = optimum(*arrays[:2], decay)
        optimizer = optax.chain(optax.add_decayed_weights(decay), optax.sgd(0.1))
        source = attribute.source(
            line(w, optimizer, 2000), *arrays, key=KEY, segments=2, reduce=None
        )
        influence = attribute.network_influence(
            line(w, optimizer, 1),
            *arrays,
            params=[w],
            damping=decay or 1e-12,
            reduce=None,
        )
    np.testing.assert_allclose(source.values, influence.values, rtol=1e-8)


@pytest.mark.parametrize(
    ("options", "momentum"),
    [
        ({}, 0.0),
        ({"segments": 1, "checkpoints": 2, "chunk_size": 5}, 0.9),
        ({"segments": 2, "checkpoints": 4, "output": "margin"}, 0.9),
        ({"segments": 4, "checkpoints": 4, "output": "log_odds"}, 0.5),
    ],
)
@pytest.mark.every(4)
def test_networks_by_definition(options, momentum):
    recipe = cases.recipe(momentum=momentum, epochs=6)
    segments = options.get("segments", 3)
    count = options.get("checkpoints", 6)
    with jax.enable_x64(True):
        x, y, x_val, y_val = cases.samples()
        arrays = x.astype(np.float64), jnp.asarray(y), x_val.astype(np.float64), y_val
        networks = references.checkpoints(recipe, RUN, *arrays[:2], segments, count)
        times = references.times(recipe, momentum, segments, count)
        output = options.get("output", "loss")
        right = references.source(
            recipe, networks, *arrays, times, np.zeros(segments), output
        )
        values = attribute.source(recipe, *arrays, key=KEY, reduce=None, **options)
        mean = attribute.source(recipe, *arrays, key=KEY, **options)
    assert values.values.dtype == np.float64
    np.testing.assert_allclose(values.values, right, rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(mean.values, right.mean(0), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_one_linear_layer_and_least_squares_is_exact_by_ekfac(decay):
    """The matrix is A ⊗ I there, so that both solvers are exact."""

    def half(outputs, y):
        return jnp.sum((outputs - jax.nn.one_hot(y, cases.CLASSES)) ** 2, 1) / 2

    pair = (
        lambda key, x: {"w": jnp.zeros((cases.D, cases.CLASSES)), "b": jnp.zeros(3)},
        lambda params, x: x @ params["w"] + params["b"],
    )
    optimizer = optax.chain(optax.add_decayed_weights(decay), optax.sgd(0.1))
    recipe = attribute.Recipe(pair, optimizer, epochs=9, batch_size=7, loss=half)
    with jax.enable_x64(True):
        x, y, x_val, y_val = cases.samples()
        arrays = x.astype(np.float64), y, x_val.astype(np.float64), y_val
        exact, approximate = (
            attribute.source(recipe, *arrays, key=KEY, reduce=None, solver=solver)
            for solver in ("exact", "ekfac")
        )
    np.testing.assert_allclose(approximate.values, exact.values, rtol=1e-9, atol=1e-13)
    assert "solver=ekfac, approximate" in approximate.method
    assert "solver" not in exact.method


@pytest.mark.parametrize("chunk_size", [7, 64])
@pytest.mark.every(2)
def test_ekfac_by_kronecker_products_written_out(chunk_size):
    """Factors and squares are means over a segment's checkpoints, in NumPy."""
    recipe = cases.recipe(epochs=6)
    with jax.enable_x64(True):
        x, y, x_val, y_val = cases.samples()
        arrays = x.astype(np.float64), jnp.asarray(y), x_val.astype(np.float64), y_val
        networks = references.checkpoints(recipe, RUN, *arrays[:2], 3, 6)
        times = references.times(recipe, 0.9, 3, 6)
        right = references.source(
            recipe,
            networks,
            *arrays,
            times,
            np.zeros(3),
            matrix_of=references.kronecker_matrix,
        )
        values = attribute.source(
            recipe,
            *arrays,
            key=KEY,
            reduce=None,
            solver="ekfac",
            chunk_size=chunk_size,
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("solver", ["exact", "ekfac"])
@pytest.mark.every(2)
def test_seeds_are_averaged_with_their_error(solver):
    recipe, arrays = cases.recipe(), cases.samples()
    options = {"reduce": None, "solver": solver, "segments": 2}
    values = attribute.source(recipe, *arrays, key=KEY, seeds=3, **options)
    each = []
    for run in range(3):
        networks = references.checkpoints(
            recipe, jax.random.fold_in(KEY, run), *map(jnp.asarray, arrays[:2]), 2, 4
        )
        times = references.times(recipe, 0.9, 2, 4)
        matrix_of = references.kronecker_matrix if solver == "ekfac" else None
        with jax.enable_x64(True):
            each.append(
                references.source(
                    recipe, networks, *arrays, times, np.zeros(2), matrix_of=matrix_of
                )
            )
    scale = np.abs(each).max()
    np.testing.assert_allclose(values.values, np.mean(each, 0), atol=1e-4 * scale)
    error = np.std(each, 0, ddof=1) / 3**0.5
    np.testing.assert_allclose(values.stderr, error, atol=1e-4 * scale)
    assert int(values.count) == 3


RAW = ("unscaled columns", "overlapping classes", "a rare class")


def raw_table(name):
    """Tables as they come: two columns of other scales, noise, or 3 of 90 samples."""
    rng = np.random.default_rng(RAW.index(name))
    y = rng.integers(0, 3, 102)
    apart = 2.0
    if name == "unscaled columns":
        scale, offset = np.array([40.0, 1.0, 0.01, 1.0]), np.array([60.0, 0, 0, 5])
    else:
        scale, offset = np.ones(4), np.zeros(4)
    if name == "overlapping classes":
        apart = 0.3
    if name == "a rare class":
        y = np.where(y == 2, 0, y)
        y[[1, 40, 80, 95]] = 2
    x = (rng.normal(size=(102, 4)) + apart * np.eye(3, 4)[y]) * scale + offset
    x = np.float32(x)
    return x[:90], y[:90], x[90:], y[90:]


@pytest.mark.parametrize("solver", ["exact", "ekfac"])
@pytest.mark.parametrize("name", RAW)
@pytest.mark.every(6)
def test_raw_tables_are_near_the_reference_in_float64(name, solver):
    """The same checkpoints, of a training in float32."""
    x, y, x_val, y_val = raw_table(name)
    rate = 2e-4 if name == "unscaled columns" else 0.1
    recipe = cases.recipe(learning_rate=rate, epochs=30, batch_size=16)
    doubt = pytest.warns(UserWarning, match="worse than a constant")
    with doubt if name == "unscaled columns" else contextlib.nullcontext():
        values = attribute.source(
            recipe, x, y, x_val, y_val, key=KEY, reduce=None, solver=solver
        )
    networks = references.checkpoints(
        recipe, RUN, jnp.asarray(x), jnp.asarray(y, jnp.int32), 3, 6
    )
    times = references.times(recipe, 0.9, 3, 6, rate, len(x))
    with jax.enable_x64(True):
        right = references.source(
            recipe,
            networks,
            *(x.astype(float), y, x_val.astype(float), y_val),
            times,
            np.zeros(3),
            matrix_of=references.kronecker_matrix if solver == "ekfac" else None,
        )
    scale = np.abs(right).max()
    np.testing.assert_allclose(values.values, right, atol=1e-3 * scale)
    assert scale > 0


def test_rounding_is_left_to_float64(monkeypatch):
    """Columns far from 0, and a time at which small eigenvalues are half settled."""
    arrays = [np.float32(a) for a in regression()]
    for samples in (arrays[0], arrays[2]):
        samples += np.float32([300, 200, 0, 0])
    x, y, x_val, y_val = (a.astype(float) for a in arrays)
    w = np.float32(optimum(x, y))
    recipe = line(w, optax.sgd(2e-6, momentum=0.99), 2000)
    with monkeypatch.context() as patch:
        patch.setattr(_source, "_SHARE", np.inf)
        narrow = attribute.source(recipe, *arrays, key=KEY, segments=1, reduce=None)
    wide = attribute.source(recipe, *arrays, key=KEY, segments=1, reduce=None)
    networks = references.checkpoints(
        recipe, RUN, *map(jnp.asarray, arrays[:2]), segments=1, count=2
    )
    times = references.times(recipe, 0.99, 1, 2, rate=2e-6)
    with jax.enable_x64(True):
        right = references.source(recipe, networks, x, y, x_val, y_val, times, [0])
    scale = np.abs(right).max()
    assert np.abs(np.asarray(wide.values) - right).max() < 1e-5 * scale
    assert np.abs(np.asarray(narrow.values) - right).max() > 1e-4 * scale
    assert wide.values.dtype == np.float32
