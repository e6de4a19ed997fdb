"""Layers in training mode are refused, wherever a loss is asked for gradients."""

import functools

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxsel import filter as room, gradients

ASKS = {
    "per_sample": gradients.per_sample,
    "jvp": gradients.jvp,
    "ghost": functools.partial(gradients.ghost, wrt="last/*"),
    "projected": functools.partial(gradients.projected, dim=4, key=jax.random.key(0)),
    "losses": room.sample_losses,
}
each_ask = pytest.mark.parametrize("ask", ASKS)


class Noise(nnx.Module):
    """A layer of one's own that draws random numbers, and knows no modes."""

    def __init__(self, rngs):
        self.rngs = rngs.fork()

    def __call__(self, x):
        return x + jax.random.normal(self.rngs.default(), x.shape)


class Network(nnx.Module):
    def __init__(self, layer):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(cases.IN, cases.HIDDEN, rngs=rngs)
        self.inside = nnx.List([layer(rngs)])
        self.last = nnx.Linear(cases.HIDDEN, cases.CLASSES, rngs=rngs)

    def __call__(self, x, **options):
        return self.last(self.inside[0](self.first(x), **options))


LAYERS = {
    "norm": lambda rngs: nnx.BatchNorm(cases.HIDDEN, rngs=rngs),
    "dropout": lambda rngs: nnx.Dropout(0.5, rngs=rngs),
    "noise": Noise,
}


def loss(model, example, **options):
    x, y = example
    return cases.cross_entropy(model(x[None], **options)[0], y)


@each_ask
@pytest.mark.parametrize("layer", LAYERS)
def test_training_mode_is_refused(ask, layer):
    model = Network(LAYERS[layer])
    with pytest.raises(ValueError, match=r"'inside/0.*model\.eval\(\)"):
        ASKS[ask](loss, model, cases.examples())


@each_ask
@pytest.mark.parametrize("layer", ["norm", "dropout"])
def test_a_split_model_in_training_mode_is_refused(ask, layer):
    graphdef, params, others = nnx.split(Network(LAYERS[layer]), nnx.Param, ...)

    def merged(params, example):
        return loss(nnx.merge(graphdef, params, others), example)

    name = type(LAYERS[layer](nnx.Rngs(0))).__name__
    message = rf"'graphdef' the layer 'inside/0' \({name}\).*model\.eval\(\)"
    with pytest.raises(ValueError, match=message):
        ASKS[ask](merged, params, cases.examples())


@pytest.mark.parametrize("layer", ["norm", "dropout"])
@pytest.mark.every(2)
def test_evaluation_mode_gives_the_gradients_of_plain_jax(layer):
    model = Network(LAYERS[layer])
    model.inside[0].mean = nnx.BatchStat(jnp.linspace(-1, 1, cases.HIDDEN))
    model.eval()
    x, y = cases.examples()
    graphdef, params, others = nnx.split(model, nnx.Param, ...)

    def merged(params, example):
        return loss(nnx.merge(graphdef, params, others), example)

    for given in ((loss, model), (merged, params)):
        oracle = gradients.per_sample(*given, (x, y))
        one = jax.grad(merged)(params, (x[3], y[3]))
        expected = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)])
        np.testing.assert_allclose(oracle.gradients[3], expected, rtol=1e-4, atol=1e-6)


def test_what_the_loss_itself_says_counts():
    """A flag at the call overrides the layer's, and no drop is no randomness."""
    examples = cases.examples()
    fixed = functools.partial(loss, use_running_average=True)
    gradients.jvp(fixed, Network(LAYERS["norm"]), examples)
    never = lambda rngs: nnx.Dropout(0.0, rngs=rngs)
    gradients.jvp(loss, Network(never), examples)


GRAPHDEF, _, OTHERS = nnx.split(Network(LAYERS["norm"]), nnx.Param, ...)


def of_a_global(params, example):
    return (lambda: loss(nnx.merge(GRAPHDEF, params, OTHERS), example))()


@pytest.mark.parametrize(
    "wrapped",
    [
        of_a_global,
        jax.jit(of_a_global),
        functools.partial(of_a_global),
        lambda params, example: of_a_global(params, example),
    ],
    ids=["global", "jit", "partial", "inner"],
)
def test_models_are_found_behind_what_wraps_a_loss(wrapped):
    params = nnx.split(Network(LAYERS["norm"]), nnx.Param, ...)[1]
    with pytest.raises(ValueError, match="'GRAPHDEF' the layer 'inside/0'"):
        gradients.jvp(wrapped, params, cases.examples())


def test_random_numbers_of_an_example_are_no_training_mode():
    """Augmentation under a key of the example's own is the same at every call."""
    x, y = cases.examples()
    keys = jax.random.split(jax.random.key(0), len(y))

    def augmented(params, example):
        x, y, key = example
        return cases.plain_loss(params, (x + jax.random.normal(key, x.shape), y))

    oracle = gradients.per_sample(augmented, cases.plain_params(), (x, y, keys))
    assert np.isfinite(oracle.gradients).all()
