"""Small Flax models that tasks train, and the training itself.

Define and initialise with a module, then work on its parameters:

    model = MLP(64, 32, 10, rngs=nnx.Rngs(jax.random.key(0)))
    graphdef, params = nnx.split(model, nnx.Param)
    params = fit(graphdef, params, x, y, key=jax.random.key(1))
    accuracy(graphdef, params, x_test, y_test)
"""

from ._cnn import CNN as CNN
from ._fit import (
    Params as Params,
    accuracy as accuracy,
    fit as fit,
    logits as logits,
    predict as predict,
    train as train,
)
from ._mlp import MLP as MLP
