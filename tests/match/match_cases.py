"""What the tests of matching share: pools of candidates, and how results compare.

Compiling takes most of the time: most tests use one shape and one budget, and smaller
problems are put into it with `embed`, or by saying which candidates are valid.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_matching as ref

from jaxsel import match

N, P, K = 40, 20, 10
SCORES = ["omp", "nomp", "ols"]
each_score = pytest.mark.parametrize("score", SCORES)
each_sign = pytest.mark.parametrize("positive", [True, False])


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def pool(n=N, p=P, *, seed=0):
    """Return candidates of different lengths, and a target that they can match."""
    rng = np.random.default_rng([n, p, seed])
    gradients = rng.normal(size=(n, p)) * rng.uniform(0.5, 2, (n, 1))
    some = rng.choice(n, min(n, 12), replace=False)
    target = rng.exponential(size=len(some)) @ gradients[some] / len(some)
    target += 0.1 * rng.normal(size=p)
    return gradients.astype(np.float32), target.astype(np.float32)


def tangled(n=N, p=P, *, seed=0):
    """Return candidates that point the same way but for a little, as gradients do."""
    rng = np.random.default_rng([n, p, seed])
    common = rng.normal(size=p)
    gradients = common + 0.1 * rng.normal(size=(n, p))
    gradients[n // 2 :] = gradients[: n - n // 2] + 1e-3 * rng.normal(
        size=(n - n // 2, p)
    )
    target = common + 0.1 * rng.normal(size=p)
    return gradients.astype(np.float32), target.astype(np.float32)


def low_rank(n=N, p=P, *, rank=5, seed=0):
    """Return candidates of a small subspace, and a target outside it.

    Whole numbers, so that rounding does not lead them out of the subspace.
    """
    rng = np.random.default_rng([n, p, seed])
    basis = rng.integers(-3, 4, (rank, p))
    gradients = rng.integers(-3, 4, (n, rank)) @ basis
    target = rng.integers(-3, 4, rank) @ basis + rng.integers(-3, 4, p)
    return gradients.astype(np.float32), target.astype(np.float32)


def check_form(found, budget, n):
    """Check what holds of every match, whatever was matched."""
    indices, weights = np.asarray(found.indices), np.asarray(found.weights)
    rank, steps = int(found.n_valid), int(found.steps)
    assert indices.shape == weights.shape == (rank,)
    assert indices.dtype == np.int32
    assert 0 <= rank <= steps <= min(budget, n)
    assert len(set(indices.tolist())) == rank
    assert np.all((indices >= 0) & (indices < n))
    assert np.isfinite(weights).all()
    assert np.all(weights != 0)
    objective = np.asarray(found.objective, np.float64)[:steps]
    norm = float(found.target_norm)
    assert np.isfinite(objective).all()
    expected = last(found) / norm if norm > 0 else 0.0
    np.testing.assert_allclose(found.error, expected, rtol=1e-5, atol=1e-30)
    # Each step lowers the objective, or leaves it where it is.
    steps_down = np.diff(np.concatenate([[norm], objective]))
    assert np.all(steps_down <= 1e-5 * norm)


def check_objective(found, gradients, target, ridge, *, tolerance=1e-5):
    """Compare the last objective with that of the weights, by definition."""
    target = np.asarray(target, np.float64)
    weights = ref.spread(found, len(gradients))
    expected = ref.objective(gradients, target, weights, ridge)
    norm = target @ target
    np.testing.assert_allclose(float(found.target_norm), norm, rtol=1e-5)
    np.testing.assert_allclose(last(found), expected, rtol=1e-4, atol=tolerance * norm)


def check_same(found, expected, *, tolerance=1e-4):
    """Compare with a reference: the choices in their order, weights, objective."""
    assert expected.margin > 1e-5, "the reference's choice hangs on rounding"
    assert int(found.steps) == len(expected.picked)
    kept = expected.kept
    rank = int(found.n_valid)
    assert np.asarray(found.indices)[:rank].tolist() == [j for j, _ in kept]
    weights = np.array([w for _, w in kept])
    scale = np.abs(weights).max(initial=0)
    np.testing.assert_allclose(
        found.weights[:rank], weights, rtol=tolerance, atol=tolerance * scale
    )
    np.testing.assert_allclose(
        found.objective[: int(found.steps)],
        expected.objective,
        rtol=tolerance,
        atol=tolerance * float(found.target_norm),
    )
    stopped = ["budget", "tolerance", "exhausted"][int(found.status)]
    assert stopped == expected.stopped


def check_kkt(found, gradients, target, ridge, *, among=None, tolerance=1e-5):
    """Check the conditions that the best non-negative weights meet, and no others.

    Weights are not negative; along no candidate `among` those that had the choice does
    the objective fall; along those of nonzero weight it does not change. Relative to
    the product of a candidate's length and the target's.
    """
    a, b = np.asarray(gradients, np.float64), np.asarray(target, np.float64)
    weights = ref.spread(found, len(a))
    assert np.all(weights >= 0)
    ridge = np.broadcast_to(ridge, len(a))
    dual = a @ (b - weights @ a) - ridge * weights
    dual /= np.linalg.norm(a, axis=1).clip(1e-30) * np.linalg.norm(b)
    assert np.abs(dual[weights > 0]).max(initial=0) <= tolerance
    if among is not None:
        assert np.max(dual[among], initial=0) <= tolerance
    # Complementarity follows, and is what a sum over all would show.
    assert abs(weights @ dual) <= tolerance * weights.sum()


def same(a, b, *, tolerance=1e-5):
    """Compare two matches, of one target or of several."""
    for name in ("indices", "n_valid", "steps", "status"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("weights", "objective", "target_norm"):
        np.testing.assert_allclose(
            getattr(a, name), getattr(b, name), rtol=1e-3, atol=tolerance
        )


def combinations(**options):
    """Return all combinations of options, as keyword arguments."""
    names = list(options)
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*options.values())
    ]


def label(options):
    return "-".join(
        f"{name}={value}" if not isinstance(value, str) else value
        for name, value in options.items()
    )


def psi(n=N):
    """Return penalties of n candidates."""
    return np.abs(normal(n, seed=9))


def embed(gradients, target):
    """Put a small problem into a large one, among candidates that are zero."""
    gradients, target = np.asarray(gradients), np.asarray(target)
    n, p = gradients.shape
    assert n <= N
    assert p <= P
    return (
        np.pad(gradients, [(0, N - n), (0, P - p)]).astype(np.float32),
        np.pad(target, (0, P - p)).astype(np.float32),
    )


def only(*rows):
    """Return a mask that has only these candidates."""
    return np.isin(np.arange(N), rows)


def run(gradients, target, budget=K, *, wide=False, **options):
    """Match, in float32 or in float64."""
    dtype = np.float64 if wide else np.float32
    with jax.enable_x64(wide):
        found = match.omp(
            jnp.asarray(gradients, dtype), jnp.asarray(target, dtype), budget, **options
        )
        # JAX would narrow what it is given outside.
        return jax.tree.map(np.asarray, found)


def last(found):
    """Return the objective at the end."""
    steps = int(found.steps)
    return float(found.objective[steps - 1] if steps else found.target_norm)
