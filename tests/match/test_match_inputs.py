"""What matching refuses, and what it says."""

import jax
import jax.numpy as jnp
import match_cases as cases
import numpy as np
import pytest
import references_matching as ref

from jaxsel import gradients, match, retrieve

N, P = 8, 5


def arguments(**changed):
    a, b = cases.pool(N, P)
    return {"candidates": a, "target": b, "budget": 3} | changed


def call(arguments):
    first = [arguments.pop(name) for name in ("candidates", "target", "budget")]
    return match.omp(*first, **arguments)


def spoilt(value, *shape):
    array = cases.normal(*shape)
    array[1] = value
    return array


REFUSED = {
    "nan": (
        {"candidates": spoilt(np.nan, N, P)},
        r"candidates must.*row 1\b",
    ),
    "inf": (
        {"candidates": spoilt(np.inf, N, P)},
        r"candidates must.*row 1\b",
    ),
    "vector": ({"candidates": np.zeros(P)}, r"candidates must have.*\(5,\)"),
    "target-nan": ({"target": spoilt(np.nan, P)}, r"\btarget must be finite"),
    "target-inf": ({"target": spoilt(-np.inf, P)}, r"\btarget must be finite"),
    "target-long": ({"target": np.zeros(P + 1)}, r"\btarget\b.*\(6,\)"),
    "target-deep": ({"target": np.zeros((2, 2, P))}, r"\btarget\b.*\(2, 2, 5\)"),
    "target-complex": ({"target": np.ones(P, complex)}, r"\btarget must be real"),
    "target-none": ({"target": np.zeros((0, P))}, r"\btarget must be at least one"),
    "target-oracle": ({"target": gradients.dense(np.eye(P))}, r"target.*its mean\(\)"),
    "budget-zero": ({"budget": 0}, r"budget must be at least 1, got 0"),
    "budget-negative": ({"budget": -3}, r"budget must be at least 1, got -3"),
    "budget-half": ({"budget": 2.5}, r"budget must be a whole number, got 2.5"),
    "budget-bool": ({"budget": True}, r"budget must be a whole number, got True"),
    "l2-negative": ({"l2": -1.0}, r"l2 must be finite and zero or more, got -1"),
    "l2-nan": ({"l2": np.nan}, r"l2 must be finite and zero or more, got nan"),
    "l2-text": ({"l2": "much"}, r"l2 must be a number.*'much'"),
    "score": ({"score": "best"}, r"score must be one of .*'ols'.*got 'best'"),
    "tol": ({"tol": -0.1}, r"tol must be finite and zero or more, got -0.1"),
    "penalty-short": ({"penalty": np.ones(7)}, r"\bpenalty\b.*\(7,\)"),
    "penalty-wide": ({"penalty": np.ones((3, 7))}, r"\bpenalty\b.*\[m, 8\].*\(3, 7\)"),
    "penalty-deep": ({"penalty": np.ones((1, 3, N))}, r"\bpenalty\b.*\(1, 3, 8\)"),
    "penalty-none": ({"penalty": np.ones((0, N))}, r"\bpenalty\b.*\(0, 8\)"),
    "penalty-below": ({"penalty": -np.ones((3, N))}, r"negative.*-1.* at \(0, 0\)"),
    "penalty-text": ({"penalty": ["a"] * N}, r"\bpenalty must be numeric"),
    "penalty-nan": ({"penalty": spoilt(np.nan, N)}, r"\bpenalty must be finite"),
    "penalty-l2": ({"penalty": np.ones(N), "penalty_l2": -2.0}, r"penalty_l2.*-2"),
    "valid-short": ({"valid": np.ones(7, bool)}, r"\bvalid\b.*\(7,\)"),
    "valid-float": ({"valid": np.ones(N)}, r"\bvalid\b.*float"),
    "penalty-negative": ({"penalty": -np.ones(N)}, r"\bpenalty\b.*negative.*-1"),
    "mesh": ({"mesh": "cpu"}, r"mesh must be a mesh.*'cpu'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused(name):
    changed, message = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=f"(?s){message}"):
        call(arguments(**changed))


def test_what_is_traced_is_refused():
    a, b = cases.pool(N, P)
    with pytest.raises(TypeError, match="being traced"):
        jax.jit(lambda a: match.omp(a, b, 3).weights)(jnp.asarray(a))


@pytest.mark.left_out
def test_whole_numbers_and_lists_will_do():
    found = match.omp([[1, 0], [0, 2]], np.array([2, 2]), 2, l2=0)
    np.testing.assert_allclose(ref.spread(found, 2), [2, 1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, bool])
def test_targets_of_small_types_do_not_overflow(dtype):
    a, _ = cases.pool(N, P)
    target = np.full(P, 200).astype(dtype)
    found = match.omp(a, target, 3)
    exact = float(np.sum(target.astype(float) ** 2))
    assert float(found.target_norm) == exact
    assert float(gradients.squared_norm(target)) == exact
    cases.same(found, match.omp(a, target.astype(np.float32), 3))


POOL = jnp.asarray(cases.pool(N, P)[0])
UNDER_JIT = {
    "omp": lambda p: match.omp(p, p[0], 2).weights,
    "target": lambda p: match.omp(np.asarray(POOL), p[0], 2).weights,
    "oracle": lambda p: match.omp(gradients.Dense(p), np.ones(P), 2).weights,
    "grad_match": lambda p: match.grad_match(p, p, 2).weights,
    "func_feat": lambda p: match.func_feat(p, p, p, p, 2).weights,
    "herding": lambda p: match.herding(p, p[0], 2).weights,
    "log_det": lambda p: match.log_det(p, 2).weights,
    "facility": lambda p: match.facility_location(p, 2).weights,
    "influence": lambda p: match.influence_scores(p, p[0]),
    "submodularity": lambda p: match.submodularity(p, 2).gamma,
    "retrieve": lambda p: retrieve.retrieve_nearest(p, p, 2).weights,
    "features": lambda p: retrieve.retrieve_nearest(p, np.asarray(POOL), 2).weights,
    "nearest": lambda p: retrieve.nearest(p, p, 2).indices,
    "pseudo_labels": lambda p: retrieve.pseudo_labels(p, p, np.arange(N)),
    "binned": lambda p: retrieve.retrieve_binned(p, p, 2).weights,
}


@pytest.mark.parametrize("name", UNDER_JIT)
@pytest.mark.parametrize("closed", [False, True], ids=["argument", "closed over"])
def test_under_jit_it_is_said_that_this_is_traced(name, closed):
    """Also of a pool that a jitted function closes over: its results are traced."""
    choose = UNDER_JIT[name]
    jitted = jax.jit((lambda p: choose(POOL)) if closed else choose)
    with pytest.raises(TypeError, match="is being traced by jit, vmap or grad, but"):
        jitted(POOL)


@pytest.mark.parametrize("function", ["grad_match", "func_feat"])
@pytest.mark.every(2)
def test_a_mean_for_a_target_is_told_where_to_go(function):
    candidates, mean = np.eye(4, 3), np.ones(3) / 3
    features = (np.eye(4), np.eye(1, 4)) if function == "func_feat" else ()
    choose = getattr(match, function)
    with pytest.raises(ValueError, match=r"target must .*target\[None\].*omp"):
        choose(candidates, mean, *features, 2)
    found = choose(candidates, mean[None], *features, 2)
    if function == "grad_match":
        expected = match.omp(candidates, mean, 2)
        np.testing.assert_array_equal(found.indices, expected.indices)
