"""A new learner: linear discriminant analysis, on many subsets at once."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from jaxsel import Values, value

einsum = functools.partial(jnp.einsum, precision="highest")


@dataclasses.dataclass(frozen=True)  # hashable: its fields are hyperparameters
class LDA:
    """Normal classes with one covariance, shrunk to a multiple of the identity."""

    shrinkage: float = 0.1

    probabilistic = True  # scores are log probabilities, up to a constant
    regression = warm = host = False

    def prepare(self, data: value.Examples) -> value.Examples:
        return data

    def fit(
        self, data: value.Examples, weights: jax.Array, key: Any, start: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """Train on B subsets `[B, n]`; return rules `[B, d, C]` and `[B, C]`."""
        classes = jax.nn.one_hot(data.y, data.n_classes, dtype=jnp.float32)
        share = weights / jnp.maximum(weights.sum(1, keepdims=True), 1)
        prior = einsum("bn,nc->bc", share, classes)
        mean = einsum("bn,nc,nd->bcd", share, classes, data.x)
        mean /= jnp.maximum(prior, 1e-9)[..., None]
        rest, unit = data.x - mean[:, data.y], jnp.eye(data.x.shape[1])
        cov = einsum("bn,bnd,bne->bde", share, rest, rest)
        size = einsum("bdd->b", cov)[:, None, None] / len(unit)
        cov = (1 - self.shrinkage) * cov + (self.shrinkage * size + 1e-6) * unit
        rule = jnp.linalg.solve(cov, mean.swapaxes(1, 2))
        # The constant of a class that a subset lacks is -inf.
        return rule, jnp.log(prior) - einsum("bdc,bcd->bc", rule, mean) / 2

    def predict(self, params: Any, x: jax.Array) -> jax.Array:
        """Return the scores of m samples, `[B, m, C]`."""
        return einsum("md,bdc->bmc", x, params[0]) + params[1][:, None]


def main() -> Values:
    """Compare subsets of irises with scikit-learn; value them by leaving one out."""
    (x, x_val), (y, y_val) = ((a[::3], a[1::3]) for a in load_iris(return_X_y=True))
    utility = value.ModelUtility(LDA(), x, y, x_val, y_val, metric="likelihood")
    masks = np.random.default_rng(0).random((20, len(x))) < 0.5
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    for mask, found in zip(masks, np.asarray(utility(masks)), strict=True):
        chances = theirs.fit(x[mask], y[mask]).predict_proba(x_val)
        expected = chances[np.arange(len(y_val)), y_val].mean()
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    return value.loo(utility)


if __name__ == "__main__":
    print(main().bottom(3))
