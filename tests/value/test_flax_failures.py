"""Flax models whose training diverges, and those that have more than parameters."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxsel import value

KEY, N = jax.random.key(0), 8
Y = np.arange(N) % 2
X = np.random.default_rng(0).normal(size=(N, 3)) + 2 * Y[:, None]


def linear(rngs):
    return nnx.Linear(3, 2, rngs=rngs)


def diverging(outputs, y):
    """The usual loss, which is NaN on a batch without the second class."""
    loss = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    return loss * jnp.where((y == 1).any(), 1.0, jnp.nan)


LEARNER = value.FlaxLearner(linear, optax.adam(0.1), steps=20, loss=diverging)
FIRST = np.stack([Y == 0, np.arange(N) == 2, np.ones(N, bool), np.zeros(N, bool)])


@pytest.mark.parametrize("metric", ["accuracy", "neg_log_loss"])
@pytest.mark.left_out
def test_coalitions_whose_training_diverges_are_failures(metric):
    utility = value.ModelUtility(
        LEARNER, X, Y, X, Y, metric=metric, empty=0.25, default_score=0.125
    )
    with pytest.warns(UserWarning, match="2 of 4 coalitions .* count as 0.125.*lower"):
        found = np.asarray(utility(FIRST, KEY))
    np.testing.assert_array_equal(found[[0, 1, 3]], [0.125, 0.125, 0.25])
    plain = value.FlaxLearner(linear, optax.adam(0.1), steps=20)
    expected = value.ModelUtility(plain, X, Y, X, Y, metric=metric, empty=0.25)
    np.testing.assert_allclose(found[2], expected(FIRST, KEY)[2], rtol=1e-6)
    assert (utility.failures.failed, utility.failures.coalitions) == (2, 4)


@pytest.mark.left_out
def test_a_learner_that_diverges_on_all_points_is_refused():
    rate = value.FlaxLearner(linear, optax.sgd(1e30), steps=20)
    for metric in ("accuracy", "likelihood"):
        utility = value.ModelUtility(rate, X * 1e10, Y, X, Y, metric=metric)
        with pytest.raises(ValueError, match="learn from all 8 points.*learning rate"):
            utility(np.ones((1, N)), KEY)


@pytest.mark.left_out
def test_bags_whose_training_diverges_are_left_out():
    y = np.array([0, 0, 0, 0, 0, 0, 0, 1])
    with pytest.warns(UserWarning, match="bags so far, which are left out"):
        found = value.data_oob(LEARNER, X, y, key=KEY, stop=value.MaxSamples(32))
    sampling, _ = jax.random.split(KEY)
    bags = np.asarray(value._sampling.bootstrap_counts(sampling, 0, count=32, n=N))
    counted = bags[bags[:, 7] > 0]
    np.testing.assert_array_equal(found.count, (counted == 0).sum(0))


@pytest.mark.left_out
def test_passes_whose_training_diverges_are_refused():
    learner = value.FlaxLearner(linear, optax.adam(0.1))
    with pytest.raises(ValueError, match="learning_rate must be small enough"):
        value.g_shapley(
            learner,
            X * 1e10,
            Y,
            X,
            Y,
            key=KEY,
            learning_rate=1e30,
            stop=value.MaxSamples(2),
            batch_size=2,
        )


class Normalised(nn.Module):
    train: bool = False

    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=not self.train)(x))


class Dropped(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=False)(x))


def stacked(layer):
    return lambda rngs: nnx.Sequential(nnx.Linear(3, 2, rngs=rngs), layer(rngs))


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Normalised(), "the collection 'batch_stats'"),
        (Normalised(train=True), "the collection 'batch_stats'"),
        (Dropped(), "a layer that draws .*dropout"),
        (stacked(lambda r: nnx.BatchNorm(2, rngs=r)), r"BatchStat 'layers\.1\.mean'"),
        (stacked(lambda r: nnx.Dropout(0.5, rngs=r)), r"RngCount 'layers\.1\.rngs"),
    ],
    ids=["linen", "linen training", "linen dropout", "nnx", "nnx dropout"],
)
def test_models_with_more_than_parameters_are_refused(model, named):
    learner = value.FlaxLearner(model, optax.adam(0.1))
    with pytest.raises(ValueError, match=f"got {named}.*Take LayerNorm"):
        value.ModelUtility(learner, X, Y, X, Y)


@pytest.mark.left_out
def test_dropout_that_is_off_is_no_matter():
    model = stacked(lambda rngs: nnx.Dropout(0.5, deterministic=True))
    learner = value.FlaxLearner(model, optax.adam(0.1), steps=20)
    plain = value.FlaxLearner(linear, optax.adam(0.1), steps=20)
    found, expected = (
        value.ModelUtility(each, X, Y, X, Y, metric="likelihood")(FIRST[2:3], KEY)
        for each in (learner, plain)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
