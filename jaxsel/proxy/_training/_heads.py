"""The importance of a target's heads, by their weights or by a loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from flax import nnx

from jaxsel._devices.typed import grad, jit, tree_map
from jaxsel._inputs.checks import check_count, check_same_length
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel.models import EncoderLayer, Target


def weight_importance(target: Target) -> np.ndarray:
    """Return `‖W_v W_o‖`, the Frobenius norm, of each head, `[layers, heads]`.

    How far its values reach, whatever the samples.

    Args:
        target: A model that `models.load_target` returned, or one fine-tuned.
    """
    model: Any = nnx.merge(target.graphdef, target.params)
    norms = [_products(layer) for layer in model.encoder.layers]
    return np.array(norms)


def _products(layer: EncoderLayer) -> list[float]:
    """Return `‖W_v W_o‖` of each head of a layer."""
    value, out = (np.asarray(w.kernel[...]) for w in (layer.value, layer.out))
    columns = np.split(value, layer.heads, axis=1)
    rows = np.split(out, layer.heads, axis=0)
    pairs = zip(columns, rows, strict=True)
    return [float(np.linalg.norm(a @ b)) for a, b in pairs]


def gradient_importance(
    target: Target, inputs: Any, labels: npt.ArrayLike, *, batch_size: int = 16
) -> np.ndarray:
    """Return the sensitivity of a loss to each head, `[layers, heads]`.

    The mean over samples of `|∂ loss / ∂ gate|`, where a gate of 1 multiplies a
    head's output. One forward and one backward pass for each sample.

    Args:
        target: A target with a head, fine-tuned.
        inputs: Samples as it reads them: `Tokens` or images.
        labels: Their classes, `[n]`.
        batch_size: Samples of one pass.

    Raises:
        ValueError: If lengths differ, or `inputs` doesn't fit the model.

    References:
        Michel, Levy and Neubig, Are Sixteen Heads Really Better than One?, NeurIPS
        2019, equation 2.
    """
    inputs, y = target.check(inputs), np.asarray(labels, np.int32)
    check_same_length("inputs", jax.tree.leaves(inputs)[0], "labels", y)
    rows = min(check_count("batch_size", batch_size), len(y))
    total: Any = 0
    for chunk in chunk_slices(len(y), rows):
        part = take_rows((inputs, y), chunk, rows)
        pulls = np.asarray(_pulls(target.graphdef, target.params, *part))
        total = total + pulls[: chunk.stop - chunk.start].sum(0)
    return total / len(y)


@jit(static_argnames="graphdef")
def _pulls(
    graphdef: nnx.GraphDef[Any], params: Any, inputs: Any, labels: jax.Array
) -> jax.Array:
    """Return `|∂ loss / ∂ gate|` of each sample, `[n, layers, heads]`."""
    layers = nnx.merge(graphdef, params).encoder.layers
    open_ = jnp.ones((len(layers), layers[0].heads))

    def pull(sample: Any, label: jax.Array) -> jax.Array:
        def loss(gates: jax.Array) -> jax.Array:
            model = nnx.merge(graphdef, params)
            for gate, layer in zip(gates, model.encoder.layers, strict=True):
                kernel = layer.out.kernel[...]
                # A gate on a head's output is a factor of its rows of W_o.
                by_row = jnp.repeat(gate, len(kernel) // layer.heads)
                layer.out.kernel = nnx.Param(kernel * by_row[:, None])
            logits = model(tree_map(lambda array: array[None], sample))[0]
            return optax.softmax_cross_entropy_with_integer_labels(logits, label)

        return grad(loss)(open_)

    return jnp.abs(jax.vmap(pull)(inputs, labels))
