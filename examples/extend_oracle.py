"""A new oracle: gradients measured as Adam measures them, never written out.

A model that Adam trains moves by gradients divided by their usual size. Samples should
be matched in that metric: each coordinate times a scale that all candidates share.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from jaxsel import gradients, match


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Scaled(gradients.Oracle):
    """Gradients `[n, p]` times a scale `[p]`; a gradient has the form `[p]`."""

    rows: jax.Array
    scale: jax.Array

    shared = ("scale",)  # all other fields have an entry for each candidate

    def diag(self) -> jax.Array:
        return jnp.matmul(self.rows**2, self.scale**2, precision="highest")

    def corr(self, v: gradients.Gradient) -> jax.Array:
        return jnp.matmul(self.rows, self.scale * v, precision="highest")

    def gram(self, atoms: Scaled) -> jax.Array:
        scaled = atoms.rows * self.scale**2
        return jnp.matmul(scaled, self.rows.T, precision="highest")

    def combine(self, weights: jax.Array) -> gradients.Gradient:
        return self.scale * jnp.matmul(weights, self.rows, precision="highest")


def main(l2: float = 0.1) -> match.Match:
    """Match the mean of hard samples; fit the weights again with SciPy."""
    draw = np.random.default_rng(0).normal
    pool, hard = draw(size=(60, 12)), draw(0.5, 1, size=(9, 12))
    scale = np.exp(draw(size=12))  # one over the root of Adam's second moments
    single = lambda *arrays: (jnp.asarray(a, jnp.float32) for a in arrays)
    oracle, target = Scaled(*single(pool, scale)), Scaled(*single(hard, scale))
    found = match.grad_match(oracle, target, 4, l2=l2)

    chosen = np.asarray(found.indices)  # as rows written out, with the ridge below them
    a = np.vstack([(pool[chosen] * scale).T, np.sqrt(l2) * np.eye(len(chosen))])
    b = np.concatenate([hard.mean(0) * scale, np.zeros(len(chosen))])
    np.testing.assert_allclose(found.weights, optimize.nnls(a, b)[0], rtol=1e-4)
    return found


if __name__ == "__main__":
    print(main())
