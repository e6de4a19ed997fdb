"""Influence by Gauss-Newton steps: closed forms, both spaces, and refusals."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute
from jaxsel.attribute import _damping, _influence

KEY = jax.random.key(0)
LINE = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])
SOFTMAX = (lambda key, x: jnp.zeros((x.shape[1], cases.CLASSES)), lambda w, x: x @ w)


def recipe_of(pair, **fields):
    fields = {"epochs": 4, "batch_size": 7} | fields
    return attribute.Recipe(pair, optax.sgd(0.05, momentum=0.9), **fields)


def regression(n=24, d=4, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 6, d)) * scale
    y = x.sum(1) / scale + rng.normal(size=n + 6)
    return x[:n], y[:n], x[n:], y[n:]


def ridge_influence(w, x, y, x_val, y_val, damping):
    """Scores of least squares in closed form, `[t, n]`, by NumPy in float64."""
    matrix = 2 * x.T @ x / len(x) + damping * np.eye(x.shape[1])
    gradients = 2 * (x @ w - y)[:, None] * x
    targets = -2 * (x_val @ w - y_val)[:, None] * x_val
    return -targets @ np.linalg.solve(matrix, gradients.T) / len(x)


@pytest.mark.parametrize(("n", "d"), [(24, 4), (5, 9)])
def test_least_squares_in_closed_form(n, d):
    """In the space of parameters, and of outputs where these are fewer."""
    with jax.enable_x64(True):
        arrays = regression(n, d)
        w = np.linspace(-1, 1, d)
        right = ridge_influence(w, *arrays, 0.05)
        values = attribute.network_influence(
            recipe_of(LINE), *arrays, params=[w], damping=0.05, reduce=None
        )
        mean = attribute.network_influence(
            recipe_of(LINE), *arrays, params=[w], damping=0.05
        )
    assert values.values.dtype == np.float64
    np.testing.assert_allclose(values.values, right, rtol=1e-9)
    np.testing.assert_allclose(mean.values, right.mean(0), rtol=1e-9)


def test_leaving_a_sample_out_of_ridge_regression():
    """At the minimum a score is the change of the output, to first order."""
    with jax.enable_x64(True):
        x, y, x_val, y_val = regression(400)
        x_val, y_val = x_val[:1], y_val[:1]

        def fit(rows):
            square = x[rows].T @ x[rows] / 400 + 0.05 / 2 * np.eye(4)
            return np.linalg.solve(square, x[rows].T @ y[rows] / 400)

        w, output = fit(np.arange(400)), lambda w: -((x_val @ w - y_val) ** 2)[0]
        changes = [
            output(w) - output(fit(np.delete(np.arange(400), i))) for i in range(20)
        ]
        values = attribute.network_influence(
            recipe_of(LINE), x, y, x_val, y_val, params=[w], damping=0.05
        )
    errors = np.abs(np.asarray(values.values)[:20] - changes)
    assert errors.max() < 0.05 * np.abs(changes).max()


def softmax_influence(w, x, y, x_val, y_val, damping):
    """Scores of softmax regression: the matrix is the Hessian there."""

    def losses(w, x, y):
        logits = x @ w.reshape(x.shape[1], -1)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)

    mean = lambda w: losses(w, x, y).mean()
    matrix = jax.hessian(mean)(w.reshape(-1)) + damping * jnp.eye(w.size)
    gradients = jax.jacobian(losses)(w.reshape(-1), x, y)
    targets = -jax.jacobian(losses)(w.reshape(-1), x_val, y_val)
    return -targets @ jnp.linalg.solve(matrix, gradients.T) / len(x)


@pytest.mark.parametrize("chunk_size", [5, 64])
@pytest.mark.parametrize("n", [24, 3])
@pytest.mark.every(4)
def test_softmax_regression_by_its_hessian(n, chunk_size):
    with jax.enable_x64(True):
        x, y, x_val, y_val = cases.samples(n=n)
        arrays = x.astype(np.float64), y, x_val.astype(np.float64), y_val
        w = np.random.default_rng(0).normal(size=(cases.D, cases.CLASSES))
        right = softmax_influence(jnp.asarray(w), *arrays, 0.03)
        values = attribute.network_influence(
            recipe_of(SOFTMAX),
            *arrays,
            params=[w],
            damping=0.03,
            reduce=None,
            chunk_size=chunk_size,
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-8, atol=1e-12)


def test_networks_by_their_jacobian():
    """Two layers, another output, and a loss of one's own, that is convex."""

    def half(outputs, y):
        return jnp.sum((outputs - jax.nn.one_hot(y, cases.CLASSES)) ** 2, 1) / 2

    recipe = recipe_of((cases.init, cases.apply), loss=half)
    with jax.enable_x64(True):
        x, y, x_val, y_val = cases.samples()
        x, x_val = x.astype(np.float64), x_val.astype(np.float64)
        params = recipe.train(KEY, x, y)
        flat, unravel = jax.flatten_util.ravel_pytree(params)
        run = lambda flat, x: cases.apply(unravel(flat), x)
        derivatives = jax.jacobian(run)(flat, x).reshape(-1, flat.size)
        matrix = derivatives.T @ derivatives / len(x) + 0.1 * np.eye(flat.size)
        gradients = jax.jacobian(lambda flat: half(run(flat, x), y))(flat)
        margin = lambda flat: recipe.measure("margin", run(flat, x_val), y_val)
        targets = jax.jacobian(margin)(flat)
        right = -targets @ np.linalg.solve(matrix, gradients.T) / len(x)
        values = attribute.network_influence(
            recipe,
            *(x, y, x_val, y_val),
            params=[params],
            damping=0.1,
            output="margin",
            reduce=None,
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-8, atol=1e-12)


def test_float32_is_near_float64():
    x, y, x_val, y_val = cases.samples()
    recipe = cases.recipe()
    narrow = attribute.network_influence(
        recipe, x, y, x_val, y_val, key=KEY, reduce=None
    )
    params = recipe.train(jax.random.fold_in(KEY, 0), x, y)
    with jax.enable_x64(True):
        wide = attribute.network_influence(
            recipe,
            *(x.astype(np.float64), y, x_val.astype(np.float64), y_val),
            params=[params],
            damping=_damping.default_damping(
                recipe, jax.tree.map(lambda leaf: leaf[None], params), len(x)
            ),
            reduce=None,
        )
    assert narrow.values.dtype == np.float32
    scale = np.abs(wide.values).max()
    np.testing.assert_allclose(narrow.values, wide.values, atol=1e-4 * scale)


def test_raw_columns_are_solved_in_float64(monkeypatch):
    """Columns far from 0: the matrix has entries of 1e7, of which float32 rounds 1."""
    x, y, x_val, y_val = regression(40)
    offset = np.array([3e3, 2e3, 0, 0])
    x, x_val = x + offset, x_val + offset
    w = np.array([0.5, -0.75, 0.5, 0.5])
    arrays = [np.float32(a) for a in (x, y, x_val, y_val)]
    right = ridge_influence(
        np.float32(w).astype(float), *(a.astype(float) for a in arrays), 0.01
    )
    values = attribute.network_influence(
        recipe_of(LINE), *arrays, params=[w], damping=0.01, reduce=None
    )
    tolerance = 1e-5 * np.abs(right).max()
    np.testing.assert_allclose(values.values, right, atol=tolerance)
    monkeypatch.setattr(_influence, "_SHARE", np.inf)
    narrow = attribute.network_influence(
        recipe_of(LINE), *arrays, params=[w], damping=0.01, reduce=None
    )
    assert np.abs(np.asarray(narrow.values) - right).max() > tolerance


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_default_damping_is_that_of_the_note(momentum):
    """One over rate / (1 - momentum) · steps, up to the start of the momentum."""
    recipe = cases.recipe(momentum=momentum, epochs=50)
    trained = {"w": jnp.zeros((2, 3))}
    right = (1 - momentum) / (0.1 * recipe.steps(24))
    damping = _damping.default_damping(recipe, trained, 24)
    assert damping == pytest.approx(right, rel=0.06 if momentum else 1e-4)


def test_damping_of_adam_must_be_stated():
    recipe = attribute.Recipe(SOFTMAX, optax.adam(0.1), epochs=2, batch_size=7)
    with pytest.raises(ValueError, match="damping must be stated"):
        attribute.network_influence(recipe, *cases.samples(), key=KEY)
    values = attribute.network_influence(recipe, *cases.samples(), key=KEY, damping=0.1)
    assert np.isfinite(values.values).all()


def test_seeds_are_averaged_with_their_error():
    recipe, arrays = cases.recipe(), cases.samples()
    values = attribute.network_influence(
        recipe, *arrays, key=KEY, seeds=3, damping=0.1, reduce=None
    )
    each = []
    for run in range(3):
        params = recipe.train(jax.random.fold_in(KEY, run), *arrays[:2])
        alone = attribute.network_influence(
            recipe, *arrays, params=[params], damping=0.1, reduce=None
        )
        assert alone.stderr is None
        each.append(np.asarray(alone.values))
    scale = np.abs(each).max()
    np.testing.assert_allclose(values.values, np.mean(each, 0), atol=1e-4 * scale)
    error = np.std(each, 0, ddof=1) / 3**0.5
    np.testing.assert_allclose(values.stderr, error, atol=1e-4 * scale)
    assert int(values.count) == 3
    assert values.values.shape == (6, 24)
    mean = attribute.network_influence(recipe, *arrays, key=KEY, seeds=3, damping=0.1)
    np.testing.assert_allclose(mean.values, values.values.mean(0), atol=1e-5 * scale)
    assert len(mean.top(3)) == 3


def test_row_labels_of_a_table_are_kept():
    pandas = pytest.importorskip("pandas")
    x, y, x_val, y_val = cases.samples()
    table = pandas.DataFrame(x, columns=[*"abcd"], index=[f"r{i}" for i in range(24)])
    turned = pandas.DataFrame(x_val, columns=[*"abcd"])[[*"dcba"]]
    a = attribute.network_influence(cases.recipe(), table, y, turned, y_val, key=KEY)
    b = attribute.network_influence(cases.recipe(), x, y, x_val, y_val, key=KEY)
    np.testing.assert_array_equal(a.values, b.values)
    assert a.index[:2] == ("r0", "r1")


def concave(outputs, y):
    return -jnp.sum(outputs**2, 1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"key": None}, ValueError, "key must be given without params"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"damping": 0}, ValueError, "damping must be finite and above zero"),
        ({"reduce": "max"}, ValueError, "reduce must be one of 'mean', None"),
        ({"output": "logit"}, ValueError, "output must be one of"),
        ({"params": 3}, TypeError, "params must be a sequence"),
        ({"params": [{"w": np.ones(3)}]}, ValueError, r"params\[0\] must have arrays"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"recipe": None}, TypeError, r"recipe must be an attribute\.Recipe"),
        (
            {"recipe": recipe_of(SOFTMAX, loss=concave), "damping": 1e4},
            ValueError,
            "loss must be convex in the outputs",
        ),
    ],
)
def test_bad_options_are_refused(options, error, message):
    options = {"key": KEY, "recipe": cases.recipe()} | options
    with pytest.raises(error, match=message):
        attribute.network_influence(options.pop("recipe"), *cases.samples(), **options)


def test_what_is_too_large_or_diverges_is_refused(monkeypatch):
    x, y, x_val, y_val = regression(scale=1e4)
    recipe = recipe_of(LINE, epochs=40)
    arrays = [np.float32(a) for a in (x, y, x_val, y_val)]
    with pytest.raises(ValueError, match="run 0 has NaN or infinity: lower the learn"):
        attribute.network_influence(recipe, *arrays, key=KEY)
    monkeypatch.setattr(_influence, "_LARGEST", 30)
    with pytest.raises(ValueError, match="at most 30 parameters, or outputs"):
        attribute.network_influence(
            cases.recipe(), *cases.samples(), key=KEY, solver="exact"
        )
    values = attribute.network_influence(cases.recipe(), *cases.samples(), key=KEY)
    assert "solver=cg" in values.method
