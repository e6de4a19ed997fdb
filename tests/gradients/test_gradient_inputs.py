"""What the constructors of oracles refuse, and what they say."""

import functools

import gradient_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel import gradients
from jaxsel._devices.memory import activations

N, H, C = cases.N, cases.HIDDEN, cases.CLASSES
FROM_LOSS = {
    "per_sample": gradients.per_sample,
    "jvp": gradients.jvp,
    "ghost": gradients.ghost,
    "projected": functools.partial(gradients.projected, dim=4, key=jax.random.key(0)),
}
each_from_loss = pytest.mark.parametrize("kind", FROM_LOSS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_dense_refuses_what_is_not_finite(value):
    matrix = cases.normal(N, 3)
    matrix[4, 1] = value
    for kind in (np.asarray, jnp.asarray):
        with pytest.raises(ValueError, match=r"gradients must be finite.*row 4\b"):
            gradients.dense(kind(matrix))


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (np.zeros(3), ValueError, r"gradients must have shape.*\(3,\)"),
        (np.zeros((2, 3, 4)), ValueError, r"gradients must have shape.*\(2, 3, 4\)"),
        (np.zeros((0, 3)), ValueError, r"gradients must not be empty.*\(0, 3\)"),
        (np.zeros((3, 0)), ValueError, r"gradients must not be empty.*\(3, 0\)"),
        (np.array([["a"]]), TypeError, r"gradients must be numeric"),
        (np.zeros((2, 2), complex), TypeError, r"gradients must be real"),
        ([[1], [2, 3]], TypeError, r"gradients must be an array"),
    ],
)
def test_dense_refuses(matrix, error, message):
    with pytest.raises(error, match=message):
        gradients.dense(matrix)


def arguments(**changed):
    given = {
        "logits": cases.normal(N, C),
        "labels": cases.examples()[1],
        "features": cases.normal(N, H),
    }
    return given | changed


def spoilt(*shape):
    array = cases.normal(*shape)
    array[2] = np.nan
    return array


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": spoilt(N, C)}, r"logits must be finite.*row 2\b"),
        ({"features": spoilt(N, H)}, r"features must be finite.*row 2\b"),
        ({"logits": np.zeros(N)}, r"\blogits\b.*\(9,\)"),
        ({"features": np.zeros((N, 2, 2))}, r"\bfeatures\b.*\(9, 2, 2\)"),
        ({"features": cases.normal(N - 1, H)}, r"\bfeatures\b.*\b8\b"),
        ({"labels": np.zeros(N - 2, int)}, r"\blabels\b.*\b7\b"),
        ({"labels": np.full(N, C)}, r"\blabels\b.*\b3\b"),
        ({"labels": np.full(N, -1)}, r"\blabels\b.*-1\b"),
        ({"loss": "hinge"}, r"\bloss must be one of.*'hinge'"),
    ],
)
def test_last_layer_refuses(changed, message):
    with pytest.raises(ValueError, match=message):
        gradients.last_layer(**arguments(**changed))


def test_labels_of_cross_entropy_are_whole():
    labels = np.full(N, 0.5)
    with pytest.raises((TypeError, ValueError), match=r"\blabels\b.*(0\.5|float)"):
        gradients.last_layer(**arguments(labels=labels))


def test_targets_of_the_squared_error_have_the_shape_of_the_outputs():
    targets = cases.normal(N, C + 1)
    with pytest.raises(ValueError, match=r"\blabels\b.*\(9, 4\)"):
        gradients.last_layer(**arguments(labels=targets, loss="squared"))


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"weight": cases.normal(H, C + 1)}, "weight"),
        ({"weight": cases.normal(H + 1, C)}, "weight"),
        ({"slope": cases.normal(N, H + 1)}, "slope"),
        ({"slope": cases.normal(N - 1, H)}, "slope"),
        ({"inputs": cases.normal(N - 1, 2)}, "inputs"),
        ({"inputs": spoilt(N, 2)}, "inputs"),
    ],
)
def test_last_two_layers_refuses(changed, name):
    given = arguments(
        inputs=cases.normal(N, 2), weight=cases.normal(H, C), slope=cases.normal(N, H)
    )
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        gradients.last_two_layers(**given | changed)


def test_factored_refuses_lengths_that_differ():
    with pytest.raises(ValueError, match=r"errors.*features.*\b9\b.*\b8\b"):
        gradients.factored(cases.normal(N, C), cases.normal(N - 1, H))


@each_from_loss
def test_examples_share_their_first_axis(kind):
    model = cases.plain()
    x, y = model.examples
    with pytest.raises(ValueError, match=r"\bexamples\b.*\b9\b.*\b7\b"):
        FROM_LOSS[kind](model.loss, model.params, (x, y[:7]))


@each_from_loss
def test_there_are_examples(kind):
    model = cases.plain()
    x, y = model.examples
    for none in ((), (x[:0], y[:0])):
        with pytest.raises(ValueError, match=r"\bexamples\b"):
            FROM_LOSS[kind](model.loss, model.params, none)


@each_from_loss
def test_the_loss_of_one_example_is_a_number(kind):
    model = cases.plain()
    vector = lambda params, example: example[0] @ params["dense1"]["kernel"]
    with pytest.raises((TypeError, ValueError), match=r"\bloss\b.*\b4\b"):
        FROM_LOSS[kind](vector, model.params, model.examples)


@each_from_loss
@pytest.mark.parametrize("chunk_size", [0, -1, 1.5])
def test_chunk_sizes_are_checked(kind, chunk_size):
    model = cases.plain()
    with pytest.raises((TypeError, ValueError), match=r"chunk_size must be"):
        FROM_LOSS[kind](model.loss, model.params, model.examples, chunk_size=chunk_size)


@each_from_loss
def test_parameters_that_are_not_there(kind):
    model = cases.plain()
    with pytest.raises(ValueError, match=r"\b(params|wrt)\b"):
        FROM_LOSS[kind](model.loss, {}, model.examples)


def sum_loss(params, x):
    return sum(leaf @ x for leaf in jax.tree.leaves(params))


def test_two_parameters_of_one_path():
    params = {"a/b": np.ones(2, np.float32), "a": {"b": np.ones(2, np.float32)}}
    with pytest.raises(ValueError, match=r"params must.* 2 under 'a/b'"):
        gradients.jvp(sum_loss, params, cases.normal(N, 2))


def test_an_array_named_params_is_no_collection():
    params = {"params": np.ones(2, np.float32), "other": np.ones(2, np.float32)}
    oracle = gradients.per_sample(sum_loss, params, cases.normal(N, 2))
    assert oracle.gradients.shape == (N, 4)


def test_what_jitted_functions_compute_counts():
    plain = lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x))
    count = activations(plain, jnp.ones(50))
    assert count > 150
    assert activations(jax.jit(plain), jnp.ones(50)) == count
    either = lambda x: jax.lax.cond(x[0] > 0, plain, jnp.sum, x)
    assert activations(either, jnp.ones(50)) > count


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dim": 0}, r"dim must be at least 1"),
        ({"dim": 2.5}, r"dim must be a whole number"),
        ({"kind": "gaussian"}, r"kind must be one of.*'gaussian'"),
        ({"key": 0}, r"\bkey\b.*jax\.random\.key"),
    ],
)
def test_projected_refuses(changed, message):
    model = cases.plain()
    given = {"dim": 4, "key": jax.random.key(0)} | changed
    with pytest.raises((TypeError, ValueError), match=message):
        gradients.projected(model.loss, model.params, model.examples, **given)


def test_no_global_configuration_is_changed():
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    gradients.last_layer(**arguments()).diag()
    assert jax.config.jax_enable_x64 == before  # type: ignore[attr-defined]
