"""Recipes: their training is that of a plain loop, and bad models are refused."""

import types

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

from jaxsel import attribute, models

SGD = optax.sgd(0.1)


def network(rngs):
    return models.MLP(cases.D, 5, cases.CLASSES, rngs=rngs)


class Dense(linen.Module):
    extra: str = ""

    @linen.compact
    def __call__(self, x):
        if self.extra == "norm":
            x = linen.BatchNorm(use_running_average=False)(x)
        if self.extra == "dropout":
            x = linen.Dropout(0.5, deterministic=False)(x)
        return linen.Dense(cases.CLASSES)(x)


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.out = nnx.BatchNorm(4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(self.norm(x))


def total(outputs, y):
    return outputs.sum()


def line():
    """A line without a constant, whose loss is the squared error."""
    pair = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])
    optimizer = optax.sgd(0.05, momentum=0.9)
    return attribute.Recipe(pair, optimizer, epochs=3, batch_size=7)


def by_hand(recipe, key, x, y, weights):
    """Train the line in NumPy, on batches of the plan, without its shares."""
    plan = recipe.plan(key, x)
    w, momentum = np.zeros(x.shape[1]), np.zeros(x.shape[1])
    left, batch = [], 0
    for step, rows in enumerate(np.asarray(plan.rows)):
        if not left:
            left = [*range(len(x))]
        rows = rows[: min(len(rows), len(left))]
        left = left[len(rows) :]
        errors = x[rows] @ w - y[rows]
        slope = (2 * weights[rows] * errors) @ x[rows] / len(rows)
        momentum = 0.9 * momentum + slope
        w = w - 0.05 * momentum
        batch = step
    assert batch + 1 == recipe.steps(len(x))
    return w


@pytest.mark.parametrize("weighted", [False, True])
def test_training_is_that_of_a_loop(weighted):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(24, 3)), rng.normal(size=24)
        weights = rng.random(24) if weighted else np.ones(24)
        recipe, key = line(), jax.random.key(3)
        right = by_hand(recipe, key, x, y, weights)
        params = recipe.train(key, x, y, jnp.asarray(weights) if weighted else None)
        assert params.dtype == np.float64
        np.testing.assert_allclose(params, right, rtol=1e-12)


def test_each_epoch_has_each_member_once():
    x = np.zeros((24, 3), np.float32)
    members = np.array([1, 3, 5, 7, 9, 11, 13, 15, 17])
    plan = line().plan(jax.random.key(0), x, members)
    rows, there = np.asarray(plan.rows), np.asarray(plan.shares) > 0
    assert rows.shape == (6, 7)
    epochs = [rows[i : i + 2][there[i : i + 2]].tolist() for i in (0, 2, 4)]
    assert [sorted(epoch) for epoch in epochs] == [members.tolist()] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    np.testing.assert_allclose(plan.shares.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("model", [network, Dense(), (cases.init, cases.apply)])
def test_models_of_all_kinds_learn(model):
    x, y, *_ = cases.samples(n=60)
    recipe = attribute.Recipe(model, optax.adam(0.02), epochs=40, batch_size=20)
    params = recipe.train(jax.random.key(0), x, y)
    accuracy = np.mean(np.asarray(recipe.apply(params, x)).argmax(1) == y)
    assert accuracy > 0.7
    alone = recipe.losses(recipe.apply(params, x[:1]), jnp.asarray(y[:1]))
    logits = recipe.apply(params, x[:1])
    right = optax.softmax_cross_entropy_with_integer_labels(logits, y[:1])
    np.testing.assert_allclose(alone, right, rtol=1e-5)


def test_a_sample_of_weight_0_has_no_effect():
    x, y, *_ = cases.samples()
    recipe, key = cases.recipe(), jax.random.key(0)
    weights = jnp.ones(len(x)).at[3].set(0)
    others = x.copy()
    others[3] = 100
    a, b = (recipe.train(key, rows, y, weights) for rows in (x, others))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    c = recipe.train(key, x, y)
    assert not np.array_equal(a["w"], c["w"])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Normed, "BatchStat"),
        (Dense("norm"), "collection 'batch_stats'"),
        (Dense("dropout"), "a layer that draws"),
    ],
)
def test_models_with_more_than_parameters_are_refused(model, message):
    recipe = attribute.Recipe(model, SGD, epochs=1, batch_size=4)
    with pytest.raises(ValueError, match=f"model must have no variables.*{message}"):
        recipe.check(*cases.samples())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": (cases.init,)}, TypeError, "model must be a pair"),
        ({"model": 3}, TypeError, "model must be"),
        ({"optimizer": "sgd"}, TypeError, "optimizer must be an optax transf"),
        (
            {"optimizer": types.SimpleNamespace(init=0, update=0)},
            TypeError,
            "optimizer must be hashable",
        ),
        ({"loss": 3}, TypeError, "loss must be a function"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"batch_size": 2.5}, TypeError, "batch_size must be a whole number"),
    ],
)
def test_bad_fields_are_refused(fields, error, message):
    usual = {"model": network, "optimizer": SGD, "epochs": 1, "batch_size": 2}
    usual |= fields
    with pytest.raises(error, match=message):
        attribute.Recipe(usual.pop("model"), usual.pop("optimizer"), **usual)


def of_samples(**changes):
    x, y, x_val, y_val = cases.samples()
    arrays = {"x": x, "y": y, "x_val": x_val, "y_val": y_val}
    return {k: changes[k](arrays[k]) if k in changes else arrays[k] for k in arrays}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": lambda x: x[:-1]}, ValueError, "x and y must have the same length"),
        ({"x": lambda x: x[:, 0]}, ValueError, r"x must have shape \[n, ...\]"),
        ({"x": lambda x: x * np.nan}, ValueError, "x must be finite"),
        ({"x_val": lambda x: x[:, :2]}, ValueError, "examples of one shape"),
        ({"y": lambda y: y + 9}, ValueError, r"y must lie in \[0, 3\)"),
        ({"y_val": lambda y: y - 5}, ValueError, r"y_val must lie in \[0, 3\)"),
        ({"y": lambda y: y + 0.5}, TypeError, "both hold whole numbers"),
        ({"y": lambda y: y[:, None]}, ValueError, r"y must have shape \[n\]"),
        ({"y_val": lambda y: y.astype(str)}, TypeError, "y_val must be numeric"),
    ],
)
def test_bad_samples_are_refused_by_name(change, error, message):
    with pytest.raises(error, match=message):
        cases.recipe().check(**of_samples(**change))


def test_outputs_and_losses_must_have_a_row_an_example():
    flat = attribute.Recipe(
        (cases.init, lambda p, x: (x @ p["w"])[:, 0]), SGD, epochs=1, batch_size=2
    )
    with pytest.raises(ValueError, match="model must map 2 examples"):
        flat.check(*cases.samples())
    mean = attribute.Recipe(
        (cases.init, cases.apply),
        SGD,
        epochs=1,
        batch_size=2,
        loss=total,
    )
    with pytest.raises(ValueError, match="loss must return one number an example"):
        mean.check(*cases.samples())
