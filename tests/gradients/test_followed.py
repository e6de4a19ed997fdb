"""Layers of a network, with inputs and deltas, beside derivatives by autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def mlp(params, x):
    return jnp.tanh(x @ params["w"] + params["b"]) @ params["v"]


def packed(params, x):
    """A bias in the last row of each array."""
    first, second = params
    return jnp.tanh(x @ first[:-1] + first[-1]) @ second[:-1] + second[-1]


def convolution(params, x):
    out = jax.lax.conv_general_dilated(
        x.reshape(1, 4, 4, 1),
        params["kernel"],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return jnp.tanh(out + params["bias"]).mean((1, 2))[0] @ params["head"]


def tied(params, x):
    """One kernel twice: its positions are those of both uses."""
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.tanh(hidden @ params["w"] + params["b"])


def turned(params, x):
    """A kernel and its transpose: none of a layer's."""
    return (jnp.tanh(x @ params["w"]) @ params["w"].T) @ params["v"]


def normed(params, x):
    """A norm with scale and shift, behind a layer, and a bias before any."""
    x = x + params["before"]
    x = (x - x.mean()) / jnp.sqrt(x.var() + 1e-3) * params["scale"] + params["shift"]
    return x @ params["w"] + params["b"]


def embedded(params, x):
    """An embedding, whose rows are also added to activations."""
    rows = params["table"][jnp.where(x > 0, 1, 0)]
    return rows.sum(0) @ params["w"] + params["table"][0, :2]


def unfollowed(params, x):
    return x[:3] * params["scale"]


NETWORKS = {
    "mlp": (mlp, {"w": (6, 4), "b": (4,), "v": (4, 3)}, {"w": "b", "v": None}),
    "packed": (packed, [(7, 4), (5, 3)], {0: 0, 1: 1}),
    "convolution": (
        convolution,
        {"kernel": (3, 3, 1, 2), "bias": (2,), "head": (2, 3)},
        {"head": None, "kernel": "bias"},
    ),
    "tied": (tied, {"w": (6, 6), "b": (6,)}, {"w": "b"}),
    "turned": (turned, {"w": (6, 4), "v": (6, 2)}, {"v": None}),
    "normed": (
        normed,
        {"w": (6, 3), "b": (3,), "before": (6,), "scale": (6,), "shift": (6,)},
        {"w": "b"},
    ),
    "embedded": (embedded, {"table": (2, 5), "w": (5, 2)}, {"w": None}),
    "unfollowed": (unfollowed, {"scale": (3,)}, {}),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.every(3)
def test_layers_and_the_rest_make_up_all_derivatives(name):
    function, shapes, kernels = NETWORKS[name]
    is_shape = lambda node: isinstance(node, tuple)
    leaves, form = jax.tree.flatten(shapes, is_leaf=is_shape)
    params = form.unflatten([normal(i, *shape) / 2 for i, shape in enumerate(leaves)])
    x = normal(9, 5, 16 if name == "convolution" else 6)

    @jax.jit
    def of(params, x):
        layers = gradients.FollowedLayers(function, params, x[0])
        assert layers.count == len(kernels)
        values, inputs, back = layers.vjp(x)
        deltas, rest = back(jnp.cos(values))
        blocks = [
            jnp.einsum("bpi,bpo->bio", a, d, precision="highest")
            for a, d in zip(inputs, deltas, strict=True)
        ]
        trees = jax.vmap(layers.tree, axis_size=len(x))(blocks)
        total = jax.tree.map(jnp.add, trees, rest)
        again = jax.vmap(layers.matrices)(total)
        pull = jax.vmap(lambda x, c: jax.vjp(function, params, x)[1](c)[0])
        return values, total, pull(x, jnp.cos(values)), blocks, again, trees

    values, total, right, blocks, again, trees = of(params, x)
    np.testing.assert_allclose(values, jax.vmap(function, (None, 0))(params, x), 1e-5)
    for a, b in zip(*map(jax.tree.leaves, (total, right)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    for a, b in zip(again, blocks, strict=True):
        np.testing.assert_array_equal(a, b)
    # A parameter is either a layer's, whole, or of the rest, whole.
    of_layers = {*kernels, *kernels.values()} - {None}
    keys = shapes if isinstance(shapes, dict) else range(len(shapes))
    for key in keys:
        assert bool(jnp.any(trees[key] != 0)) == (key in of_layers), key


def test_parameters_without_floats_are_refused():
    with pytest.raises(ValueError, match="params must have a floating-point array"):
        gradients.FollowedLayers(mlp, {"w": jnp.zeros(3, jnp.int32)}, jnp.zeros(3))
    with pytest.raises(TypeError, match="function must be callable, got 3"):
        gradients.FollowedLayers(3, {"w": jnp.zeros(3)}, jnp.zeros(3))
