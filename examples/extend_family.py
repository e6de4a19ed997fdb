"""A new family of emulators: attention by squared ReLU.

`relu(s)² m / len`: sharper than ReLU attention for one squaring more, and without the
softmax's maximum, exponential and division.

References:
    Hua et al., Transformer quality in linear time, ICML 2022 (arXiv 2202.10447).
"""

import dataclasses
from typing import Any

import extend_engine
import jax
import jax.numpy as jnp
import numpy as np

from jaxsel import proxy
from jaxsel.proxy import families


@dataclasses.dataclass(frozen=True)
class SquaredReLUAttention(families.Attention):
    """`relu(s)² m / len`, without parameters: a proxy must be trained with it."""

    by_length = True  # `weights` leaves the mask, and what divides it, to the base

    def apply(self, params: Any, scores: jax.Array, mask: Any) -> jax.Array:
        return jax.nn.relu(scores) ** 2 * families.shares(mask, scores)

    def entry(self) -> dict[str, Any]:
        return {"family": "relu2"}

    def weights(self, at: families.AttentionPlace, scores: Any) -> families.Steps:
        bent = yield at.call("relu", "relu", scores)
        return (yield at.call("square", "square", bent))

    def check(self, ranges: families.Ranges, params: Any) -> None:
        total = ranges.bound("scores") ** 2 * ranges.length
        ranges.fits("scores", "the sum of a row's weights", total)


families.ATTENTIONS["relu2"] = families.Family(SquaredReLUAttention)


def main() -> str:
    """Run it in NumPy, in JAX and in the secure run's steps; return what it costs."""
    scores, mask = jnp.array([[[[2.0, -1.0, 3.0]]]]), jnp.array([[1, 1, 0]])
    found = SquaredReLUAttention().apply({}, scores, mask)
    np.testing.assert_allclose(found, [[[[2**2 / 2, 0, 0]]]])

    source = extend_engine.random_proxy("relu2")
    x = np.random.default_rng(1).normal(size=(5, 6, 8))
    secure, _ = extend_engine.run(source, x, bits=30)
    np.testing.assert_allclose(secure, source.scores(source.logits(x)), rtol=1e-4)

    exact = extend_engine.random_proxy("exact").manifest
    assert proxy.cost(source.manifest, 5).bytes < proxy.cost(exact, 5).bytes / 2
    return proxy.compare_costs({"relu2": source.manifest, "exact": exact}, 1000)


if __name__ == "__main__":
    print(main())
