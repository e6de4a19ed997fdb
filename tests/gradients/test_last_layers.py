"""Closed forms of the last layers' gradients against `jax.grad`."""

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_matching as ref

from jaxsel import gradients

pytestmark = pytest.mark.every(4)

N, H = cases.N, cases.HIDDEN
LOSSES = ["cross_entropy", "squared"]
each_loss = pytest.mark.parametrize("loss", LOSSES)
each_bias = pytest.mark.parametrize("bias", [True, False])
each_width = pytest.mark.parametrize("width", range(1, 6))


def targets(loss, width):
    if loss == "squared":
        return cases.normal(N, width, seed=3)
    return np.random.default_rng(1).integers(0, max(width, 2), N)


def loss_of(loss, logits, target):
    if loss == "squared":
        return jnp.sum((logits - target) ** 2) / 2
    if logits.shape == (1,):  # of the second of two classes
        logits = jnp.stack([jnp.zeros_like(logits[0]), logits[0]])
    return cases.cross_entropy(logits, target)


def last(loss, bias, width):
    """Return the last layer's arguments, and its gradients by `jax.grad`."""
    params = {"kernel": cases.normal(H, width)}
    if bias:
        params["bias"] = cases.normal(width)
    features, labels = cases.normal(N, H, seed=2), targets(loss, width)

    def apply(params, h):
        return h @ params["kernel"] + (params["bias"] if bias else 0.0)

    def function(params, example):
        h, y = example
        return loss_of(loss, apply(params, h), y)

    expected = cases.rows(function, params, (features, labels))
    return (apply(params, features), labels, features), expected


@each_loss
@each_bias
@each_width
@pytest.mark.every(24)
def test_last_layer(loss, bias, width):
    arguments, expected = last(loss, bias, width)
    by_hand = ref.last_layer(*arguments, loss=loss, bias=bias)
    np.testing.assert_allclose(by_hand @ by_hand.T, expected @ expected.T, atol=1e-4)
    oracle = gradients.last_layer(*arguments, loss=loss, bias=bias)
    check = cases.check_all if width == 3 else cases.check
    check(oracle, expected)


@each_bias
def test_form_of_a_combined_gradient(bias):
    arguments, _ = last("cross_entropy", bias, 3)
    oracle = gradients.last_layer(*arguments, bias=bias)
    weights = np.linspace(-1, 2, N)
    (combined,) = oracle.combine(jnp.asarray(weights, jnp.float32))
    expected = weights @ ref.last_layer(*arguments, bias=bias)
    # The kernel's rows, one an input, and the bias below them.
    np.testing.assert_allclose(
        combined, expected.reshape(H + bias, 3), rtol=1e-4, atol=1e-5
    )


def test_one_target_a_sample_needs_no_second_axis():
    (logits, labels, features), expected = last("squared", True, 1)
    oracle = gradients.last_layer(logits, labels[:, 0], features, loss="squared")
    cases.check(oracle, expected)


@each_bias
def test_factored_from_errors(bias):
    arguments, expected = last("cross_entropy", bias, 4)
    errors = ref.output_errors(*arguments[:2], "cross_entropy").astype(np.float32)
    oracle = gradients.factored(errors, arguments[2], bias=bias)
    cases.check(oracle, expected)


def test_saturated_logits_stay_finite():
    logits = np.array([[1e4, -1e4, 0], [-1e4, 1e4, 1e4], [3e38, 0, 0]], np.float32)
    features = cases.normal(3, H)
    oracle = gradients.last_layer(logits, np.array([1, 0, 0]), features)
    expected = ref.last_layer(logits, [1, 0, 0], features)
    np.testing.assert_allclose(
        oracle.diag(), np.sum(expected**2, axis=1), rtol=1e-5, atol=1e-6
    )


ACTIVATIONS = {
    "tanh": (jnp.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "relu": (jax.nn.relu, lambda z: (z > 0).astype(np.float32)),
}


@each_loss
@each_bias
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.every(4)
def test_last_two_layers(loss, bias, activation, width):
    act, derivative = ACTIVATIONS[activation]
    params = {
        "first": {"kernel": cases.normal(cases.IN, H)},
        "last": {"kernel": cases.normal(H, width)},
    }
    if bias:
        params["first"]["bias"] = cases.normal(H, seed=7)
        params["last"]["bias"] = cases.normal(width)
    inputs, labels = cases.normal(N, cases.IN, seed=5), targets(loss, width)

    def forward(params, x):
        before = x @ params["first"]["kernel"] + params["first"].get("bias", 0.0)
        hidden = act(before)
        return (
            before,
            hidden,
            (hidden @ params["last"]["kernel"] + params["last"].get("bias", 0.0)),
        )

    function = lambda params, xy: loss_of(loss, forward(params, xy[0])[2], xy[1])
    expected = cases.rows(function, params, (inputs, labels))
    before, hidden, logits = forward(params, inputs)
    oracle = gradients.last_two_layers(
        logits,
        labels,
        hidden,
        inputs,
        weight=params["last"]["kernel"],
        slope=derivative(np.asarray(before)),
        loss=loss,
        bias=bias,
    )
    cases.check(oracle, expected)


def test_two_layers_have_biases_unless_said():
    sizes = {
        bias: gradients.last_two_layers(
            np.ones((3, 2)),
            [0, 1, 1],
            np.ones((3, H)),
            np.ones((3, 5)),
            weight=np.ones((H, 2)),
            **options,
        )
        .diag()
        .sum()
        for bias, options in (
            (None, {}),
            (True, {"bias": True}),
            (False, {"bias": False}),
        )
    }
    assert sizes[None] == sizes[True] != sizes[False]


def test_dense_is_the_matrix_itself():
    matrix = cases.normal(N, 7)
    oracle = gradients.dense(matrix)
    cases.check_all(oracle, matrix.astype(np.float64))
    weights = jnp.linspace(-1, 1, N)
    np.testing.assert_allclose(oracle.combine(weights), weights @ matrix, atol=1e-5)


def test_dense_takes_whole_numbers_and_lists():
    oracle = gradients.dense([[1, 2], [3, 4]])
    assert oracle.dtype == np.float32
    np.testing.assert_array_equal(oracle.gram(oracle), [[5, 11], [11, 25]])


def test_last_layer_of_one_label_kind_equals_one_of_another():
    (logits, labels, features), expected = last("cross_entropy", True, 3)
    for kind in (np.int8, np.int64, np.uint8):
        oracle = gradients.last_layer(logits, labels.astype(kind), features)
        cases.check(oracle, expected)
