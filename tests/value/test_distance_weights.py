"""Distance weights: any function of distances, and what is compiled for it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref

import jaxsel

from . import cases

K = 3
each_call = pytest.mark.parametrize("name", ["knn_shapley", "threshold_knn_shapley"])


class Fade:
    """A function with a state."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, distances):
        return jnp.exp(-self.rate * distances)


def rows(name, weights, data):
    return cases.BY_NAME[name].call(data, K, weights=weights, reduce=None).values


def expected(name, rate, data):
    distance = ref.distances(data.x, data.x_val)
    method = cases.BY_NAME[name]
    return ref.enumerate_values(
        distance,
        method.gains(data) * np.exp(-rate * distance),
        method.utility(data, distance, K, cases.RADIUS["l2"]),
        method.value.by_size(data.n),
    )


@each_call
def test_an_object_that_changes(name):
    data = cases.random(6)
    fade = Fade(1.0)
    by_list = [1.0]
    functions = (
        (fade, lambda rate: setattr(fade, "rate", rate)),
        (lambda d: jnp.exp(-by_list[0] * d), lambda r: by_list.__setitem__(0, r)),
    )
    for function, change in functions:
        for rate in (1.0, 4.0):
            change(rate)
            np.testing.assert_allclose(
                rows(name, function, data), expected(name, rate, data), atol=2e-6
            )


@each_call
def test_captured_arrays_are_arguments(name):
    data = cases.random(6)
    make = lambda rate: lambda distances: jnp.exp(-rate * distances)
    rows(name, make(jnp.float32(3)), data)
    again = make(jnp.float32(0.5))
    jaxsel.value._accumulate._step.clear_cache()
    rows(name, make(jnp.float32(2)), data)
    compiled = jaxsel.value._accumulate._step._cache_size()
    got = rows(name, again, data)
    assert jaxsel.value._accumulate._step._cache_size() == compiled == 1
    np.testing.assert_allclose(got, expected(name, 0.5, data), atol=2e-6)


def test_a_lambda_at_each_call_is_compiled_once():
    data = cases.random(6)
    jaxsel.value._accumulate._step.clear_cache()
    for _ in range(3):
        rows("knn_shapley", lambda distances: 1 / (1 + distances), data)
    assert jaxsel.value._accumulate._step._cache_size() == 1
    rows("knn_shapley", lambda distances: 1 / (2 + distances), data)
    assert jaxsel.value._accumulate._step._cache_size() == 2


def test_large_arrays_inside_compiled_functions_count():
    # A computation as text shows the first and last of them only.
    data = cases.random(6)
    scale = np.ones(3000, np.float32)
    weigh = lambda scale: lambda d: jax.jit(lambda d: d * jnp.asarray(scale).sum())(d)
    one = rows("knn_shapley", weigh(scale), data)
    scale[1500] = 3001
    np.testing.assert_allclose(
        rows("knn_shapley", weigh(scale), data), 2 * one, rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (lambda d: d[:, None], ValueError, r"shape \[n\] = \[6\], got \(6, 1\)"),
        (lambda d: d[:3], ValueError, r"weights must return one number.*\(3,\)"),
        (lambda d: (d, d), ValueError, r"weights must return one number.* and "),
        (lambda d: None, ValueError, "weights must return one number.*nothing"),
        (lambda d: d + 1j, TypeError, "weights must return real numbers.*complex"),
        (lambda d: np.exp(d), TypeError, "weights must be written with jax.numpy"),
        (lambda d: d if d[0] > 1 else -d, TypeError, "weights must be .*jax.numpy"),
        (0.5, TypeError, "weights must be a function of distances, got float"),
    ],
)
@each_call
def test_functions_that_cannot_be_weights(name, weights, error, message):
    with pytest.raises(error, match=message):
        rows(name, weights, cases.random(6))


def test_one_weight_for_all_distances():
    data = cases.random(6)
    half = rows("knn_shapley", lambda distances: 0.5, data)
    np.testing.assert_allclose(half, expected("knn_shapley", 0, data) / 2, atol=2e-6)
