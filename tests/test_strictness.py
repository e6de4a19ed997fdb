"""Public kernels in JAX's strict modes: nothing is promoted, no key used twice."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import KERNELS

from jaxsel import filter, gradients, market, match, value

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)


def trace(kernel):
    # Tracing is enough to be refused. From arrays of JAX: those of NumPy may be
    # float64, which strict mode would not mix with float32.
    arguments = jax.tree.map(jnp.asarray, kernel.arguments(np.random.default_rng(0)))
    jax.eval_shape(kernel.function, *arguments)


@each_kernel
@pytest.mark.every(3)
def test_no_rank_is_promoted(kernel):
    with jax.numpy_rank_promotion("raise"):
        trace(kernel)


@each_kernel
@pytest.mark.every(3)
def test_no_dtype_is_promoted(kernel):
    with jax.numpy_dtype_promotion("strict"):
        trace(kernel)


_RNG = np.random.default_rng(0)
X, X_VAL = (_RNG.normal(size=(n, 2)).astype(np.float32) for n in (8, 6))
Y, Y_VAL = (np.arange(len(x)) % 2 for x in (X, X_VAL))
STOP = value.MaxSamples(8)


def _key():
    return jax.random.key(0)


def _sampled(function, **options):
    """Return a run of a value that retrains models."""

    def run():
        utility = value.ModelUtility(value.NearestCentroid(), X, Y, X_VAL, Y_VAL)
        function(utility, key=_key(), stop=STOP, **options)

    return run


def _data_oob():
    value.data_oob(value.NearestCentroid(), X, Y, key=_key(), stop=STOP)


def _g_shapley():
    learner = value.LogisticRegression()
    data = X, Y, X_VAL, Y_VAL
    value.g_shapley(learner, *data, key=_key(), learning_rate=0.1, stop=STOP)


def _projected(kind):
    def loss(w, example):
        return jnp.sum((example["x"] @ w - example["y"]) ** 2)

    examples = {"x": jnp.asarray(X), "y": jnp.asarray(Y, jnp.float32)}
    options = {"dim": 2, "key": _key(), "kind": kind}
    rows = gradients.projected(loss, jnp.ones(2), examples, **options)
    rows.corr(jnp.ones(2))
    rows.project({"": jnp.ones(2)})


def _facility_location():
    match.facility_location(X, 4, search="stochastic", epsilon=0.3, key=_key())


def _cross_fitted_losses():
    def fit(x, y, key):
        level = jax.random.uniform(key)
        return lambda x, y: np.abs(x[:, 0] - level)

    filter.cross_fitted_losses(fit, X, Y, folds=2, key=_key())


def _band():
    filter.loss_threshold(X_VAL[:, 0], X[:, 0]).band(_key(), 3)


def _hard_set():
    market.hard_set(1 - Y, Y, key=_key(), minimum=1)


KEYED = {
    "tmc_shapley": _sampled(value.tmc_shapley),
    "beta_shapley": _sampled(value.beta_shapley, alpha=4, beta=1),
    "banzhaf": _sampled(value.banzhaf),
    "group_testing_shapley": _sampled(value.group_testing_shapley),
    "data_oob": _data_oob,
    "g_shapley": _g_shapley,
    "projected-count_sketch": lambda: _projected("count_sketch"),
    "projected-rademacher": lambda: _projected("rademacher"),
    "facility_location": _facility_location,
    "cross_fitted_losses": _cross_fitted_losses,
    "band": _band,
    "hard_set": _hard_set,
}


@pytest.mark.every(12)
@pytest.mark.parametrize("name", KEYED)
def test_no_key_is_used_twice(name):
    with jax.debug_key_reuse(True):
        KEYED[name]()


def test_key_reuse_is_found():
    """The check finds what it looks for: else the tests above show nothing."""
    with jax.debug_key_reuse(True):
        key = _key()
        jax.random.bits(key)
        with pytest.raises(jax.errors.KeyReuseError):
            jax.random.bits(key)


def test_promotion_is_found():
    def promotes(x, y):
        return x[0] + y.astype(jnp.bfloat16)

    kernel = dataclasses.replace(KERNELS[0], name="promotes", function=promotes)
    with pytest.raises(ValueError, match="rank_promotion"):
        test_no_rank_is_promoted(kernel)
    with pytest.raises(ValueError, match="dtype_promotion"):
        test_no_dtype_is_promoted(kernel)
