"""Scores of solutions: gradients written out, and forward-mode passes."""

import attribution_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsel.attribute import _solutions
from jaxsel.attribute._gauss_newton import chunks_of


@pytest.mark.parametrize("numbers", [1, 10**6])
def test_many_targets_score_as_few_do(monkeypatch, numbers):
    """In float32, whether gradients are written one or all of a chunk at a time."""
    recipe, (x, y, *_) = cases.recipe(), cases.samples()
    x, y = jnp.asarray(x), jnp.asarray(y)
    params = recipe.init(jax.random.key(0), x)
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    solution = jax.random.normal(jax.random.key(1), (_solutions.FEW + 1, size))
    chunks = chunks_of(x, y, 7)
    monkeypatch.setattr(_solutions, "_NUMBERS", numbers)
    many = _solutions.solution_scores(recipe, params, chunks, solution)
    few = _solutions.solution_scores(recipe, params, chunks, solution[:-1])
    assert many.shape == (_solutions.FEW + 1, 28)
    np.testing.assert_allclose(many[:-1], few, atol=1e-5)
    assert abs(many[-1]).max() > 0.1
