"""Half precision, and float64: oracles and choosers keep to their type."""

import concurrent.futures

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref
from match_cases import K, N, P

from jaxsel import gradients, match, retrieve
from jaxsel.gradients._factored import LayerFactors

KEY = jax.random.key(0)


def of_a_loss(a):
    return gradients.jvp(lambda w, x: x @ w, jnp.ones(P, a.dtype), a)


def as_layer(a):
    ones = jnp.ones((len(a), 1), a.dtype)
    return gradients.Factored((LayerFactors(ones, a, bias=False),))


REFERENCES = {
    "omp": (lambda o, b: match.omp(o, b, K), lambda a, b: ref.omp(a, b, K).picked),
    "herding": (
        lambda o, b: match.herding(o, b, K),
        lambda a, b: ref.herding(a, b, K),
    ),
    "log_det": (
        lambda o, b: match.log_det(o, K),
        lambda a, b: ref.log_det(a, K, 0.5),
    ),
    "facility": (
        lambda o, b: match.facility_location(o, K),
        lambda a, b: ref.facility_location(a, K, squared=False)[0],
    ),
    "influence": (
        lambda o, b: match.influence_topk(o, b, K),
        lambda a, b: np.argsort(-(a @ b), kind="stable")[:K].tolist(),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.left_out
def test_half_precision_chooses_as_its_values_in_float64(name):
    a, b = cases.pool()
    half, target = jnp.asarray(a, jnp.bfloat16), jnp.asarray(b, jnp.bfloat16)
    choose, expected = REFERENCES[name]
    found = choose(gradients.Dense(half), target)
    exact = (np.asarray(array, np.float64) for array in (half, target))
    assert np.asarray(found.indices).tolist() == expected(*exact)
    assert found.weights.dtype == np.float32


@pytest.mark.parametrize("kind", [gradients.Dense, as_layer])
def test_products_of_half_precision_are_summed_in_float32(kind):
    half = jnp.asarray(cases.pool()[0], jnp.bfloat16)
    oracle, exact = kind(half), np.asarray(half, np.float64)
    assert oracle.dtype == np.float32
    for product, expected in (
        (oracle.diag(), (exact**2).sum(1)),
        (oracle.column(3), exact @ exact[3]),
        (oracle.corr(oracle.mean()), exact @ exact.mean(0)),
    ):
        assert product.dtype == np.float32
        np.testing.assert_allclose(product, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.left_out
def test_a_loss_in_half_precision_chooses_something(name):
    half = jnp.asarray(cases.pool()[0], jnp.bfloat16)
    oracle = of_a_loss(half)
    found = REFERENCES[name][0](oracle, oracle.mean())
    assert int(found.n_valid) == K
    assert len(set(np.asarray(found.indices).tolist())) == K


@pytest.mark.left_out
def test_more_copies_than_half_precision_can_count():
    """Beyond 256 bfloat16 has the even numbers only."""
    many = jnp.asarray(np.repeat(np.eye(2), [301, 99], axis=0), jnp.bfloat16)
    found = match.facility_location(gradients.Dense(many), 2)
    np.testing.assert_array_equal(found.weights, [301, 99])


# Everything in x64 mode.


def squared(w, example):
    x, y = example
    return (x @ w - y) ** 2 / 2


def oracles(dtype):
    """Return every kind of oracle of the same gradients, `(x·w − y) x`."""
    x = np.asarray(cases.normal(N, P), dtype)
    w, y = np.asarray(cases.normal(P), dtype), np.asarray(cases.normal(N), dtype)
    error = (x @ w - y)[:, None]
    given = (squared, jnp.asarray(w), (jnp.asarray(x), jnp.asarray(y)))
    dense = gradients.dense(error * x)
    return {
        "dense": dense,
        "factored": gradients.factored(error, x, bias=False),
        "last_layer": gradients.last_layer(
            (x @ w)[:, None], y, x, loss="squared", bias=False
        ),
        "per_sample": gradients.per_sample(*given),
        "jvp": gradients.jvp(*given),
        "ghost": gradients.ghost(*given),
        "streamed": gradients.streamed(dense.take, N, chunk_size=16),
        "projected": gradients.projected(*given, dim=8, key=KEY),
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_x64_mode_keeps_the_types_of_oracles(dtype):
    with jax.enable_x64(True):
        for oracle in oracles(dtype).values():
            b = oracle.mean()
            answers = [oracle.diag(), oracle.column(1), oracle.corr(b), b]
            types = {leaf.dtype for leaf in jax.tree.leaves(answers)}
            assert types == {oracle.dtype} == {np.dtype(dtype)}


def choices(dtype):
    """Return what every chooser takes of gradients of a type."""
    oracle = oracles(dtype)["last_layer"]
    b, x = oracle.mean(), np.asarray(cases.normal(N, 3), dtype)
    found = [
        match.omp(oracle, b, K),
        match.func_feat(oracle, oracle, x, x, K),
        match.herding(oracle, b, K),
        match.log_det(oracle, K),
        match.facility_location(oracle, K),
        match.influence_topk(oracle, b, K, normalise=True),
    ]
    assert {one.weights.dtype for one in found} == {np.dtype(dtype)}
    return [np.asarray(one.indices).tolist() for one in found]


@pytest.mark.slow
def test_x64_mode_and_threads_change_no_choice():
    """One thread in float64, one in x64 mode with float32 data, one without either."""

    def of_thread(mode, dtype):
        with jax.enable_x64(mode):
            return choices(dtype)

    jobs = [(True, np.float64), (True, np.float32), (False, np.float32)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        wide, *others = pool.map(of_thread, *zip(*jobs, strict=True))
    assert others == [wide, wide]
    exact = np.asarray(oracles(np.float64)["per_sample"].gradients, np.float64)
    assert wide[0] == ref.omp(exact, exact.mean(0), K).picked


@pytest.mark.slow
def test_retrieval_in_x64_mode():
    x, hard = cases.normal(N, P), cases.normal(3, P)
    expected = [
        np.asarray(choose(x, hard, K).indices).tolist()
        for choose in (retrieve.retrieve_nearest, retrieve.retrieve_binned)
    ]
    with jax.enable_x64(True):
        found = [
            np.asarray(choose(x, hard, K).indices).tolist()
            for choose in (retrieve.retrieve_nearest, retrieve.retrieve_binned)
        ]
    assert found == expected
