"""TracIn and LESS along a training: closed forms, NumPy's formulas, and refusals."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute
from jaxsel.attribute._tracin import tracin_term

KEY = jax.random.key(0)
LINE = (lambda key, x: jnp.ones(x.shape[1]), lambda w, x: (x @ w)[:, None])


def wide():
    x, y, x_val, y_val = cases.samples()
    return x.astype(np.float64), y, x_val.astype(np.float64), y_val


def checkpoints_of(recipe, x, y, count, run=0):
    """Parameters and states after 1/c, 2/c, ... of the steps, one step at a time."""
    plan = recipe.plan(jax.random.fold_in(KEY, run), x)
    params, state, kept = plan.params, recipe.optimizer.init(plan.params), []
    steps = len(plan.rows)
    stops = [steps * (i + 1) // count for i in range(count)]
    for step in range(steps):
        rows, shares = plan.rows[step], plan.shares[step]
        params, state = recipe.step(params, state, x, jnp.asarray(y), rows, shares)
        if step + 1 in stops:
            kept.append((params, state))
    return kept


def rows_of(recipe, params, x, y, output=None):
    """Gradients of losses, or of an output, as rows `[n, P]` of NumPy."""

    def of(params):
        outputs = recipe.apply(params, x)
        if output is None:
            return recipe.losses(outputs, jnp.asarray(y))
        return recipe.measure(output, outputs, jnp.asarray(y))

    leaves = jax.tree.leaves(jax.jacobian(of)(params))
    return np.concatenate([np.asarray(leaf).reshape(len(x), -1) for leaf in leaves], 1)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("output", ["loss", "margin"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.every(6)
def test_sum_over_checkpoints_is_numpys(output, normalise):
    recipe, rates = cases.recipe(), [0.5, 0.25, 2.0]
    options = {"checkpoints": 3, "learning_rates": rates, "normalise": normalise}
    options |= {"output": output, "key": KEY}
    with jax.enable_x64(True):
        x, y, x_val, y_val = wide()
        right = 0
        for rate, (params, _) in zip(
            rates, checkpoints_of(recipe, x, y, 3), strict=True
        ):
            steps = -rows_of(recipe, params, x, y)
            targets = rows_of(recipe, params, x_val, y_val, output)
            if normalise:
                steps, targets = unit(steps), unit(targets)
            right = right + rate * targets @ steps.T
        values = attribute.network_tracin(
            recipe, *wide(), reduce=None, chunk_size=5, **options
        )
        mean = attribute.network_tracin(recipe, *wide(), **options)
    assert values.values.dtype == np.float64
    np.testing.assert_allclose(values.values, right, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean.values, right.mean(0), rtol=1e-9, atol=1e-12)


def test_least_squares_in_closed_form():
    """One step from ones with all samples, and the checkpoint behind it."""
    recipe = attribute.Recipe(LINE, optax.sgd(0.1), epochs=1, batch_size=24)
    with jax.enable_x64(True):
        x, _, x_val, _ = wide()
        y, y_val = x[:, 0], x_val[:, 0]
        slopes = lambda w, x, y: 2 * (x @ w - y)[:, None] * x
        w = 1 - 0.1 * slopes(np.ones(4), x, y).mean(0)
        right = 0.1 * slopes(w, x_val, y_val) @ slopes(w, x, y).T
        values = attribute.network_tracin(
            recipe,
            *(x, y, x_val, y_val),
            key=KEY,
            checkpoints=1,
            learning_rates=lambda step: 0.1,
            reduce=None,
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-10)


@pytest.mark.parametrize("normalise", [False, True])
def test_updates_of_adam_are_those_of_less(normalise):
    """Moments at the checkpoint, with the sample's gradient: section 3 of LESS."""
    b1, b2, eps, rate = 0.8, 0.95, 1e-6, 0.02
    optimizer = optax.adam(rate, b1=b1, b2=b2, eps=eps)
    recipe = attribute.Recipe(
        (cases.init, cases.apply), optimizer, epochs=4, batch_size=7
    )
    with jax.enable_x64(True):
        x, y, x_val, y_val = wide()
        right = 0
        for params, state in checkpoints_of(recipe, x, y, 2):
            first, second = (
                np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moment)])
                for moment in (state[0].mu, state[0].nu)
            )
            count, g = int(state[0].count) + 1, rows_of(recipe, params, x, y)
            first = (b1 * first + (1 - b1) * g) / (1 - b1**count)
            second = (b2 * second + (1 - b2) * g**2) / (1 - b2**count)
            steps = -rate * first / (np.sqrt(second) + eps)
            targets = rows_of(recipe, params, x_val, y_val, "loss")
            if normalise:
                steps, targets = rate * unit(steps), unit(targets)
            right = right + targets @ steps.T
        values = attribute.network_tracin(
            recipe,
            *wide(),
            key=KEY,
            checkpoints=2,
            updates=True,
            normalise=normalise,
            learning_rates=[rate, rate] if normalise else None,
            reduce=None,
        )
    np.testing.assert_allclose(values.values, right, rtol=1e-8, atol=1e-12)


def test_updates_of_sgd_are_its_gradients_times_the_rate():
    schedule = optax.linear_schedule(0.2, 0.1, 16)
    recipe = attribute.Recipe(
        (cases.init, cases.apply), optax.sgd(schedule), epochs=4, batch_size=7
    )
    options = {"key": KEY, "reduce": None, "checkpoints": 4}
    a = attribute.network_tracin(recipe, *cases.samples(), updates=True, **options)
    # An update has the rate of the next step, and a checkpoint that of the last one.
    b = attribute.network_tracin(
        recipe, *cases.samples(), learning_rates=lambda s: schedule(s + 1), **options
    )
    np.testing.assert_allclose(a.values, b.values, rtol=1e-4, atol=1e-6)


@pytest.mark.left_out
def test_seeds_are_averaged_with_their_error():
    recipe, arrays = cases.recipe(), cases.samples()
    options = {"checkpoints": 2, "key": KEY}
    values = attribute.network_tracin(recipe, *arrays, seeds=3, reduce=None, **options)
    x, y, x_val, y_val = map(jnp.asarray, arrays)
    each = [
        sum(
            tracin_term(recipe, params, x, y, x_val, y_val)
            for params, _ in checkpoints_of(recipe, x, y, 2, run)
        )
        for run in range(3)
    ]
    scale = np.abs(each).max()
    np.testing.assert_allclose(values.values, np.mean(each, 0), atol=1e-4 * scale)
    error = np.std(each, 0, ddof=1) / 3**0.5
    np.testing.assert_allclose(values.stderr, error, atol=1e-4 * scale)
    assert int(values.count) == 3
    one = attribute.network_tracin(recipe, *arrays, **options)
    assert one.stderr is None
    assert "checkpoints=2" in one.method


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_float32_is_near_float64_on_raw_columns_too(scale):
    x, y, x_val, y_val = cases.samples()
    x, x_val = x * scale + 5 * scale, x_val * scale + 5 * scale
    params = cases.init(KEY, x)
    params["w"] = params["w"] / np.float32(scale)
    recipe = cases.recipe()
    narrow = tracin_term(recipe, params, *map(jnp.asarray, (x, y)), x_val, y_val)
    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
        x, x_val = jnp.asarray(x, np.float64), jnp.asarray(x_val, np.float64)
        right = tracin_term(recipe, params, x, jnp.asarray(y), x_val, y_val)
    np.testing.assert_allclose(narrow, right, atol=1e-4 * np.abs(right).max())


def test_a_sample_without_a_gradient_has_cosine_0():
    recipe = attribute.Recipe(LINE, optax.sgd(0.1), epochs=1, batch_size=24)
    x, _, x_val, _ = cases.samples()
    x = x.copy()
    x[3] = 0
    values = attribute.network_tracin(
        recipe, x, x[:, 0], x_val, x_val[:, 0], key=KEY, checkpoints=1, normalise=True
    )
    assert values.values[3] == 0
    assert (np.abs(np.delete(values.values, 3)) > 0).all()


def test_row_labels_of_a_table_are_kept():
    pandas = pytest.importorskip("pandas")
    x, y, x_val, y_val = cases.samples()
    table = pandas.DataFrame(x, columns=[*"abcd"], index=[f"r{i}" for i in range(24)])
    others = pandas.DataFrame(x_val, columns=[*"abcd"])
    values = attribute.network_tracin(cases.recipe(), table, y, others, y_val, key=KEY)
    assert values.index[:2] == ("r0", "r1")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"checkpoints": 17}, ValueError, "checkpoints must be at most 16"),
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1"),
        ({"learning_rates": [0.1]}, ValueError, "learning_rates must be 5 finite"),
        ({"learning_rates": [np.nan] * 5}, ValueError, "learning_rates must be 5 fin"),
        ({"learning_rates": "fast"}, TypeError, "learning_rates must be numbers"),
        (
            {"learning_rates": [0.1] * 5, "updates": True},
            ValueError,
            "learning_rates must be None with updates=True",
        ),
        ({"updates": "adam"}, ValueError, "updates must be one of True, False"),
        ({"normalise": 2}, ValueError, "normalise must be one of True, False"),
        ({"output": "logit"}, ValueError, "output must be one of"),
        ({"reduce": "max"}, ValueError, "reduce must be one of"),
        ({"recipe": 3}, TypeError, r"recipe must be an attribute\.Recipe"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    options = {"key": KEY, "recipe": cases.recipe()} | options
    with pytest.raises(error, match=message):
        attribute.network_tracin(options.pop("recipe"), *cases.samples(), **options)


def test_a_training_that_diverges_is_refused():
    recipe = attribute.Recipe(LINE, optax.sgd(0.1), epochs=20, batch_size=7)
    x, _, x_val, _ = cases.samples()
    arrays = x * 1e4, x[:, 0], x_val * 1e4, x_val[:, 0]
    with pytest.raises(ValueError, match="run 0 has NaN or infinity: lower the"):
        attribute.network_tracin(recipe, *arrays, key=KEY)
