import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxsel.data import load
from jaxsel.models import CNN, MLP, _fit, accuracy, fit, logits, predict, train
from jaxsel.models._cnn import _patches

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def digits():
    train_set, test_set = load("digits", split="train"), load("digits", split="test")
    return train_set.as_features(), train_set.y, test_set.as_features(), test_set.y


def split(*sizes, key=KEY):
    return nnx.split(MLP(*sizes, rngs=nnx.Rngs(key)), nnx.Param)


def assert_close(a, b, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), a, b)


@pytest.mark.left_out
def test_logistic_regression_is_as_good_as_scikit_learn(digits):
    from sklearn.linear_model import LogisticRegression

    x, y, x_test, y_test = digits
    graphdef, start = split(64, 10)
    params = fit(graphdef, start, x, y, key=KEY, steps=1000, learning_rate=0.05)
    ours = accuracy(graphdef, params, x_test, y_test)
    theirs = LogisticRegression(max_iter=2000).fit(x, y).score(x_test, y_test)
    assert abs(ours - theirs) < 2 * np.sqrt(theirs * (1 - theirs) / len(y_test))
    assert accuracy(graphdef, start, x_test, y_test) < 0.4


@pytest.mark.left_out
def test_hidden_layers_learn_what_a_linear_model_cannot():
    x = np.tile(np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32), (10, 1))
    y = np.tile([0, 1, 1, 0], 10)
    for sizes, learned in (((2, 2), False), ((2, 16, 16, 2), True)):
        graphdef, start = split(*sizes)
        params = fit(graphdef, start, x, y, key=KEY)
        assert (accuracy(graphdef, params, x, y) == 1) == learned


@pytest.mark.left_out
def test_padding_changes_nothing(digits):
    x, y = digits[0][:70], digits[1][:70].astype(np.int32)
    graphdef, start = split(64, 8, 10)
    recipe = {
        "steps": 50,
        "batch_size": 16,
        "learning_rate": 1e-2,
        "weight_decay": 1e-3,
    }
    bare = jax.jit(train, static_argnames=("graphdef", "steps", "batch_size"))(
        graphdef, start, x, y, np.ones(70, np.float32), KEY, **recipe
    )
    padded = fit(graphdef, start, x, y, key=KEY, **recipe)
    assert_close(padded, bare, rtol=1e-5, atol=1e-7)


@pytest.mark.left_out
def test_a_weight_of_zero_leaves_an_example_out(digits):
    x, y = digits[0][:90], digits[1][:90]
    keep = np.arange(90) % 3 > 0
    graphdef, start = split(64, 10)
    run = functools.partial(fit, graphdef, start, key=KEY, steps=50)
    assert_close(run(x, y, weights=keep), run(x[keep], y[keep]), rtol=1e-5)


@pytest.mark.left_out
def test_examples_are_drawn_in_proportion_to_their_weight():
    # The same point with both labels: the logit is the log-odds of the weights.
    x, y = np.ones((2, 1), np.float32), np.array([0, 1])
    graphdef, start = split(1, 2)
    recipe = {"steps": 2000, "batch_size": 256, "learning_rate": 0.1}
    params = fit(graphdef, start, x, y, weights=[1, 3], key=KEY, **recipe)
    score = np.asarray(logits(graphdef, params, x))[0]
    # 2000 * 256 draws, of which the last few hundred steps count.
    assert score[1] - score[0] == pytest.approx(np.log(3), abs=0.1)


@pytest.mark.left_out
def test_vmap_over_seeds_and_subsets_equals_a_loop(digits):
    x, y = digits[0][:64], digits[1][:64].astype(np.int32)
    graphdef, _ = split(64, 10)
    keys = jax.random.split(KEY, 3)
    starts = jax.vmap(lambda key: split(64, 10, key=key)[1])(keys)
    weights = (np.arange(64) % 3 != np.arange(3)[:, None]).astype(np.float32)

    @jax.jit
    def run(start, weights, key):
        return train(
            graphdef,
            start,
            x,
            y,
            weights,
            key,
            steps=20,
            batch_size=16,
            learning_rate=1e-2,
            weight_decay=0.0,
        )

    together = jax.jit(jax.vmap(run))(starts, weights, keys)

    def at(tree, i):
        return jax.tree.map(lambda a: a[i], tree)

    for i in range(3):
        alone = run(at(starts, i), weights[i], keys[i])
        assert_close(at(together, i), alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_train_lowers_for_accelerators(platform):
    graphdef, start = split(4, 3)
    run = jax.jit(
        jax.vmap(
            lambda weights, key: train(
                graphdef,
                start,
                jnp.ones((8, 4)),
                jnp.zeros(8, jnp.int32),
                weights,
                key,
                steps=2,
                batch_size=4,
                learning_rate=1e-2,
                weight_decay=0.0,
            )
        )
    )
    keys = jax.random.split(KEY, 2)
    exported = jax.export.export(run, platforms=[platform])(jnp.ones((2, 8)), keys)
    assert exported.platforms == (platform,)


def test_pools_of_many_sizes_share_one_program(digits):
    x, y = digits[:2]
    graphdef, start = split(64, 10)

    def run(n):
        # Steps and a learning rate are no reason to compile again either.
        recipe = {"steps": n % 7 + 1, "learning_rate": n / 10000}
        fit(graphdef, start, x[:n], y[:n], key=KEY, **recipe)
        return _fit._train._cache_size()

    programs = run(65)
    assert [run(n) for n in (66, 100, 1300)] == [programs] * 3


@pytest.mark.left_out
def test_a_convolution_is_a_convolution():
    rngs = nnx.Rngs(KEY)
    model = CNN((7, 6, 2), 3, channels=(5,), rngs=rngs)
    x = jax.random.normal(KEY, (4, 7, 6, 2))
    layer = model.convolutions[0]
    ours = layer(_patches(x))
    theirs = jax.lax.conv_general_dilated(
        x,
        layer.kernel[...].reshape(3, 3, 2, 5),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    np.testing.assert_allclose(ours, theirs + layer.bias[...], atol=1e-5)
    pooled = nnx.max_pool(nnx.relu(ours), (2, 2), strides=(2, 2))
    expected = model.dense(pooled.reshape(4, -1))
    np.testing.assert_allclose(model(x), expected, atol=1e-5)


@pytest.mark.slow
def test_cnn_learns_digits(digits):
    x, y, x_test, y_test = digits
    model = CNN((8, 8), 10, channels=(8, 16), rngs=nnx.Rngs(KEY))
    graphdef, start = nnx.split(model, nnx.Param)
    x, x_test = x.reshape(-1, 8, 8), x_test.reshape(-1, 8, 8)
    params = fit(graphdef, start, x, y, key=KEY, steps=300)
    assert accuracy(graphdef, params, x_test, y_test) > 0.93


def test_logits_do_not_depend_on_the_number_of_examples(digits):
    graphdef, params = split(64, 10)
    x = np.tile(digits[0], (4, 1))[:5000]  # more than one block
    many = logits(graphdef, params, x)
    assert many.shape == (5000, 10)
    np.testing.assert_allclose(many[4990:], logits(graphdef, params, x[4990:]), 1e-5)
    assert predict(graphdef, params, x).dtype == jnp.int32


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"y": np.array([0, 1, 3])}, ValueError, r"y must lie in \[0, 3\)"),
        ({"y": np.array([0, -1, 2])}, ValueError, "y must lie in"),
        ({"y": np.array([0.0, 1.0, 2.0])}, TypeError, "y must hold integers"),
        ({"y": np.array([0, 1])}, ValueError, "x and y must have the same length"),
        ({"x": np.ones(3)}, ValueError, "x must have shape"),
        ({"x": np.ones((0, 2)), "y": np.empty(0, int)}, ValueError, "x must have"),
        ({"x": np.full((3, 2), np.nan)}, ValueError, "x must be finite, but row 0"),
        ({"weights": np.zeros(3)}, ValueError, "weights must be"),
        ({"weights": [1, -1, 1]}, ValueError, "weights must be"),
        ({"weights": [1, np.inf, 1]}, ValueError, "weights must be"),
        ({"weights": [1, 1]}, ValueError, "x and weights must have the same length"),
        ({"steps": 0}, ValueError, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"learning_rate": -1.0}, ValueError, "learning_rate must be"),
        ({"weight_decay": -1.0}, ValueError, "weight_decay must be"),
    ],
)
def test_fit_refuses(change, error, message):
    graphdef, start = split(2, 3)
    arguments = {"x": np.ones((3, 2)), "y": np.array([0, 1, 2]), "key": KEY} | change
    with pytest.raises(error, match=message):
        fit(graphdef, start, **arguments)


def test_models_refuse():
    rngs = nnx.Rngs(KEY)
    with pytest.raises(ValueError, match="two or more positive"):
        MLP(3, rngs=rngs)
    with pytest.raises(ValueError, match="two or more positive"):
        MLP(3, 0, 2, rngs=rngs)
    with pytest.raises(ValueError, match="at least 4 pixels"):
        CNN((8, 3), 10, rngs=rngs)
    with pytest.raises(ValueError, match="shape must be"):
        CNN((8,), 10, rngs=rngs)
    graphdef, params = split(2, 3)
    with pytest.raises(ValueError, match="same length"):
        accuracy(graphdef, params, np.ones((3, 2)), [0, 1])
