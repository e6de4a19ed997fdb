"""Layers at several positions, and what the ghost oracle refuses."""

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients

pytestmark = pytest.mark.every(2)

N, IN, HIDDEN, CLASSES = cases.N, cases.IN, cases.HIDDEN, cases.CLASSES


def agrees(model, *, wrt=None, tolerance=2e-5, **options):
    """Compare with jax.grad, by way of the dense oracle where there is a filter."""
    ghost = gradients.ghost(
        model.loss, model.params, model.examples, wrt=wrt, **options
    )
    assert isinstance(ghost, gradients.Factored)
    if wrt is None:
        expected = cases.rows(model.loss, model.params, model.examples)
    else:
        dense = gradients.per_sample(*fields(model), wrt=wrt)
        expected = np.asarray(dense.gradients, np.float64)
    cases.check(ghost, expected, tolerance=tolerance)


def fields(model):
    return model.loss, model.params, model.examples


@pytest.mark.left_out
def test_sequence():
    agrees(cases.sequence(), chunk_size=4)


CONVOLUTIONS = {
    "same": {},
    "padded": {"padding": ((2, 0), (1, 3)), "strides": (2, 2)},
    "dilated": {"dilation": (2, 1), "padding": "VALID"},
}


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolution(options):
    agrees(cases.convolution(**options))


@pytest.mark.left_out
def test_convolution_of_a_framework():
    agrees(cases.nnx_convolution())


@pytest.mark.left_out
def test_convolution_along_a_sequence():
    def loss(params, example):
        x, y = example
        out = jax.lax.conv_general_dilated(
            x[None],
            params["kernel"],
            (1,),
            "SAME",
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
        return cases.cross_entropy(jnp.tanh(out[0]).sum(axis=0), y)

    params = {"kernel": cases.normal(3, IN, CLASSES)}
    x, y = cases.sequence().examples
    agrees(cases.Model(loss, params, (x, y)))


@pytest.mark.left_out
def test_channels_first():
    def loss(params, example):
        x, y = example
        out = jax.lax.conv_general_dilated(
            x[None], params["kernel"], (1, 1), "VALID"
        )  # NCHW, OIHW
        out = out + params["bias"][None, :, None, None]
        return cases.cross_entropy(jnp.tanh(out).sum(axis=(0, 2, 3)), y)

    params = {"kernel": cases.normal(CLASSES, 2, 3, 2), "bias": cases.normal(CLASSES)}
    agrees(cases.Model(loss, params, (cases.normal(N, 2, 6, 5), cases.examples()[1])))


@pytest.mark.left_out
def test_through_jit_and_checkpoint():
    @jax.jit
    def layer(params, x):
        return jnp.tanh(x @ params["kernel"] + params["bias"])

    def loss(params, example):
        x, y = example
        hidden = jax.checkpoint(layer)(params["dense1"], x)
        return cases.cross_entropy(layer(params["dense2"], hidden), y)

    model = cases.plain()
    agrees(cases.Model(loss, model.params, model.examples))


def test_kernels_of_other_orientations():
    def loss(params, example):
        x, y = example
        hidden = jax.nn.relu(params["first"] @ x + params["bias"])
        return cases.cross_entropy(jnp.einsum("h,ch->c", hidden, params["last"]), y)

    params = {
        "first": cases.normal(HIDDEN, IN),
        "bias": cases.normal(HIDDEN),
        "last": cases.normal(CLASSES, HIDDEN),
    }
    agrees(cases.Model(loss, params, cases.examples()))


def heads_loss(params, example):
    """Kernels with several axes, as the attention of frameworks has them."""
    x, y = example
    query, key, value = (
        jnp.einsum("td,dhk->thk", x, params[name]) for name in ("query", "key", "value")
    )
    scores = jax.nn.softmax(jnp.einsum("thk,shk->hts", query, key))
    mixed = jnp.einsum("hts,shk->thk", scores, value)
    out = jnp.einsum("thk,hkc->tc", mixed, params["out"])
    return cases.cross_entropy(out.mean(axis=0), y)


@pytest.mark.left_out
def test_attention_with_heads():
    params = {name: cases.normal(IN, 2, 3) for name in ("query", "key", "value")}
    params["out"] = cases.normal(2, 3, CLASSES)
    x, y = cases.sequence().examples
    agrees(cases.Model(heads_loss, params, (x, y)))


def test_bias_without_a_kernel_beside_it():
    def loss(params, example):
        x, y = example
        return cases.cross_entropy(x[:CLASSES] ** 2 + params["bias"], y)

    agrees(cases.Model(loss, {"bias": cases.normal(CLASSES)}, cases.examples()))


def test_parameters_that_are_subtracted():
    """From activations, activations from them, and both in one: signs must agree."""

    def loss(params, example):
        x, y = example
        left = x[:CLASSES] ** 2 - params["taken"]
        right = params["given"] - jnp.tanh(x[:CLASSES] - params["given"])
        return cases.cross_entropy(left * right, y)

    params = {"given": cases.normal(CLASSES), "taken": cases.normal(CLASSES)}
    agrees(cases.Model(loss, params, cases.examples()))


def test_one_kernel_used_twice():
    def loss(params, example):
        x, y = example
        hidden = jnp.tanh(x @ params["tied"])
        return cases.cross_entropy((jnp.tanh(hidden @ params["tied"]))[:CLASSES], y)

    agrees(cases.Model(loss, {"tied": cases.normal(IN, IN)}, cases.examples()))


def test_a_bias_of_one_of_two_uses_of_a_kernel():
    def loss(params, example):
        x, y = example
        hidden = jnp.tanh(x @ params["tied"] + params["bias"])
        return cases.cross_entropy(jnp.tanh(hidden @ params["tied"])[:CLASSES], y)

    params = {"tied": cases.normal(IN, IN), "bias": cases.normal(IN)}
    agrees(cases.Model(loss, params, cases.examples()))


def test_one_kernel_used_as_it_is_and_transposed():
    def loss(params, example):
        x, y = example
        hidden = jnp.tanh(x @ params["tied"])
        return cases.cross_entropy(jnp.tanh(hidden @ params["tied"].T)[:CLASSES], y)

    params = {"tied": cases.normal(IN, HIDDEN)}
    agrees(cases.Model(loss, params, cases.examples()))


def test_parts_of_one_parameter_are_kernels_of_their_own():
    def loss(params, example):
        x, y = example
        first, second = params["both"][0], params["both"][1]
        return cases.cross_entropy((jnp.tanh(x @ first) @ second)[:CLASSES], y)

    params = {"both": cases.normal(2, IN, IN)}
    agrees(cases.Model(loss, params, cases.examples()))


@pytest.mark.left_out
def test_large_enough_for_rounding_to_show():
    rng = np.random.default_rng(0)
    params = {
        "dense1": {"kernel": cases.normal(200, 64), "bias": cases.normal(64)},
        "dense2": {"kernel": cases.normal(64, 10), "bias": cases.normal(10)},
    }
    examples = cases.normal(32, 200, seed=1), rng.integers(0, 10, 32)
    agrees(cases.Model(cases.plain_loss, params, examples), tolerance=1e-4)


# Refused, by name.


def table_loss(params, example):
    x, y = example
    rows = params["table"][(jnp.abs(x) * 3).astype(jnp.int32) % 7]
    return cases.cross_entropy(rows.sum(axis=0) @ params["last"], y)


def scale_loss(params, example):
    x, y = example
    return cases.cross_entropy((x * params["scale"]) @ params["last"], y)


def scan_loss(params, example):
    x, y = example
    step = lambda h, _: (jnp.tanh(h @ params["cell"]), None)
    hidden, _ = jax.lax.scan(step, x, length=3)
    return cases.cross_entropy(hidden @ params["last"], y)


def decay_loss(params, example):
    x, y = example
    penalty = 0.1 * jnp.sum(params["decayed"] ** 2)
    return cases.cross_entropy((x @ params["decayed"]) @ params["last"], y) + penalty


def shared_loss(params, example):
    x, y = example
    activations = jnp.outer(x, x) + params["shared"]
    hidden = jnp.tanh(x @ params["shared"]) + jnp.tanh(activations).mean(axis=0)
    return cases.cross_entropy(hidden @ params["last"], y)


def grouped_loss(params, example):
    x, y = example
    images = jnp.outer(x, x)[None, ..., None] * jnp.array([1.0, 2.0])
    out = jax.lax.conv_general_dilated(
        images,
        params["grouped"],
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=2,
    )
    hidden = x + jnp.tanh(out).mean()
    return cases.cross_entropy(hidden @ params["last"], y)


REFUSED = {
    "table": (table_loss, (7, IN)),
    "scale": (scale_loss, (IN,)),
    "cell": (scan_loss, (IN, IN)),
    "decayed": (decay_loss, (IN, IN)),
    "grouped": (grouped_loss, (3, 3, 1, 4)),
    "shared": (shared_loss, (IN, IN)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.every(3)
def test_unsupported_uses_are_refused_by_name(name):
    loss, shape = REFUSED[name]
    params = {name: cases.normal(*shape), "last": cases.normal(IN, CLASSES)}
    model = cases.Model(loss, params, cases.examples())
    with pytest.raises(ValueError, match=rf"(?s)\b{name}\b.*\bjvp\b") as refusal:
        gradients.ghost(*fields(model))
    assert "wrt" in str(refusal.value)
    # What the message proposes works.
    proposed = str(refusal.value).partition("wrt=")[2].partition(", or use jvp")[0]
    diag = gradients.ghost(*fields(model), wrt=eval(proposed)).diag()
    dense = gradients.per_sample(*fields(model), wrt="last")
    np.testing.assert_allclose(diag, dense.diag(), rtol=1e-4)
    squares = np.sum(cases.rows(*fields(model)) ** 2, axis=1)
    np.testing.assert_allclose(gradients.jvp(*fields(model)).diag(), squares, rtol=1e-4)


def test_unused_parameters_have_no_gradient():
    model = cases.plain()
    params = {**model.params, "idle": {"kernel": cases.normal(3, 3)}}
    agrees(cases.Model(model.loss, params, model.examples))


@pytest.mark.parametrize("make", [cases.plain, cases.sequence, cases.convolution])
def test_one_pass_gives_the_mean_gradient_too(make):
    model = make()
    gradient, oracle = gradients.grad_and_ghost(
        model.loss, model.params, model.examples
    )
    rows = cases.rows(model.loss, model.params, model.examples)
    mean = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    np.testing.assert_allclose(mean, rows.mean(0), atol=1e-5 * np.abs(rows).max())
    cases.check(oracle, rows)


def test_one_pass_follows_the_parameters_that_are_selected():
    model = cases.plain()
    gradient, oracle = gradients.grad_and_ghost(
        model.loss, model.params, model.examples, wrt="dense2/*"
    )
    assert gradient["dense1"] == {"bias": None, "kernel": None}
    assert gradient["dense2"]["kernel"].shape == (cases.HIDDEN, cases.CLASSES)
    assert len(oracle.layers) == 1
