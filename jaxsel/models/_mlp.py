"""A multilayer perceptron; without hidden layers, multinomial logistic regression."""

import itertools

import jax
from flax import nnx


class MLP(nnx.Module):
    """Dense layers with ReLU between them.

    `MLP(64, 10, rngs=rngs)` is multinomial logistic regression on 64 features;
    `MLP(64, 32, 10, rngs=rngs)` has one hidden layer of 32 units. A forward pass costs
    one multiplication per weight and example.

    Args:
        *sizes: Features, hidden units of each layer, classes: two or more.
        rngs: The key of the initial weights.

    Raises:
        ValueError: If there are fewer than two sizes, or one is not positive.
    """

    def __init__(self, *sizes: int, rngs: nnx.Rngs):
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(
                "sizes must be two or more positive integers (features, hidden "
                f"layers, classes), got {sizes}"
            )
        self.layers = nnx.List(
            nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map examples `[n, ...]`, flattened, to logits `[n, classes]`."""
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = nnx.relu(layer(x))
        return self.layers[-1](x)
