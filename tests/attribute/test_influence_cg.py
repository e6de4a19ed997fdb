"""Influence by conjugate gradients, beside exact solves of the same matrix."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsel import attribute
from jaxsel.attribute import _influence, _solutions
from jaxsel.attribute._gauss_newton_cg import gauss_newton_cg
from jaxsel.attribute._solutions import by_batches

KEY = jax.random.key(0)
LINE = (lambda key, x: jnp.zeros(x.shape[1]), lambda w, x: (x @ w)[:, None])


def influence(recipe, arrays, **options):
    options = {"key": KEY, "damping": 0.01} | options
    return attribute.network_influence(recipe, *arrays, **options)


@pytest.mark.parametrize("output", ["loss", "log_odds"])
@pytest.mark.parametrize("chunk_size", [7, 64])
@pytest.mark.every(6)
def test_exact_scores_to_the_tolerance(output, chunk_size):
    options = {"output": output, "reduce": None, "seeds": 2, "chunk_size": chunk_size}
    right = influence(cases.recipe(), cases.samples(), **options).values
    previous = np.inf
    for tol in (1e-1, 1e-5):
        values = influence(
            cases.recipe(), cases.samples(), solver="cg", tol=tol, **options
        ).values
        error = np.linalg.norm(values - right) / np.linalg.norm(right)
        assert error < 10 * tol
        assert error < previous
        previous = error


def test_targets_are_solved_in_blocks_where_memory_ends(monkeypatch):
    """Six targets in two blocks, and in three; in float32 rounding may add a step."""
    recipe, (x, y, x_val, y_val) = cases.recipe(), cases.samples()
    with jax.enable_x64(True):
        x, x_val = jnp.asarray(x, jnp.float64), jnp.asarray(x_val, jnp.float64)
        params = recipe.init(KEY, x)
        arrays = x, jnp.asarray(y), x_val, jnp.asarray(y_val)

        def solved(memory):
            monkeypatch.setattr(_solutions, "_room", lambda: memory)
            solve = lambda *arrays: gauss_newton_cg(recipe, params, *arrays, 0.01)
            return jax.jit(solve)(*arrays)

        size = 6 * sum(leaf.nbytes for leaf in jax.tree.leaves(params))
        whole = solved(6 * size)
        scale = np.abs(whole.scores).max()
        for targets in (4, 2):
            blocks = solved(targets * size)
            np.testing.assert_allclose(blocks.scores, whole.scores, atol=1e-4 * scale)
            assert blocks.residual.shape == whole.residual.shape
            assert blocks.steps == whole.steps


def test_solutions_take_a_third_of_the_memory(monkeypatch, tmp_path):
    whole = _solutions._room()
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(_solutions, "_LIMIT", limit)
    for text, room in (("max\n", whole), ("3000\n", 1000), (f"{2**60}\n", whole)):
        limit.write_text(text)
        assert _solutions._room() == room
    limit.unlink()
    assert _solutions._room() == whole > 2**28


@pytest.mark.parametrize("size", [1, 3, 7, 8])
def test_batches_of_samples_join_in_order(size):
    x = jnp.arange(7.0)
    left = jnp.array([[1.0], [2.0]])
    scores = by_batches(lambda x, y: left * (x + y), x, 10 * x, size)
    np.testing.assert_array_equal(scores, left * 11 * x)


def test_the_mean_over_targets_is_solved_for_once():
    options = {"solver": "cg", "tol": 1e-6}
    rows = influence(cases.recipe(), cases.samples(), reduce=None, **options)
    mean = influence(cases.recipe(), cases.samples(), **options)
    np.testing.assert_allclose(mean.values, rows.values.mean(0), rtol=1e-3, atol=1e-7)


def test_targets_without_a_gradient_have_no_influence():
    """One target is fitted exactly; its right side is 0, and so is its residual."""
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    y = x.sum(1) + 1
    recipe = attribute.Recipe(LINE, optax.sgd(0.1), epochs=1, batch_size=5)
    w = np.ones(3, np.float32)
    solved = gauss_newton_cg(recipe, w, x, y, x[:2], np.array([x[0].sum(), y[1]]), 0.1)
    assert (solved.scores[0] == 0).all()
    assert (solved.scores[1] != 0).all()
    assert (solved.residual < 1e-3).all()


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
def test_raw_scales(scale):
    """Columns of very different scales: float64 where float32 does not reach `tol`."""
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(60, 5)) * [1, 1, 1, 1, scale]).astype(np.float32)
    y = (x @ np.array([1, -1, 1, 0, 1 / scale]) + rng.normal(size=60)).astype("f")
    recipe = attribute.Recipe(LINE, optax.sgd(1e-9), epochs=1, batch_size=10)
    arrays, w = (x, y, x[:4], y[:4] + 1), np.zeros(5, np.float32)
    options = {"params": [w], "key": None, "reduce": None}
    right = influence(recipe, arrays, **options).values
    values = influence(recipe, arrays, solver="cg", tol=1e-5, **options).values
    size = np.abs(right).max(1, keepdims=True)
    np.testing.assert_allclose(values / size, right / size, atol=2e-3)


@pytest.mark.left_out
def test_a_solve_that_ends_too_early_warns(monkeypatch):
    def short(*args, **options):
        return gauss_newton_cg(*args, **options, max_steps=2)

    monkeypatch.setattr(_influence, "gauss_newton_cg", short)
    jax.clear_caches()
    with pytest.warns(UserWarning, match=r"ended after 2 steps .* above tol=1e-06"):
        influence(cases.recipe(), cases.samples(), solver="cg", tol=1e-6)
    jax.clear_caches()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "lissa"}, "solver must be one of 'exact', 'cg', 'ekfac'"),
        ({"solver": "cg", "tol": 0.0}, "tol must be"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        influence(cases.recipe(), cases.samples(), **options)


def test_a_loss_that_is_not_convex_is_refused():
    recipe = attribute.Recipe(
        (cases.init, cases.apply),
        optax.sgd(0.05),
        epochs=1,
        batch_size=7,
        loss=lambda outputs, y: -jnp.square(outputs).sum(1),
    )
    with pytest.raises(ValueError, match="loss must be convex in the outputs"):
        influence(recipe, cases.samples(), damping=1e4, solver="cg")
