"""Gradients of a classifier's last one or two layers, in closed form."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import as_array, check_choice, check_same_length

from ._factored import Factored, LayerFactors
from ._shards import beside, finite_rows, is_spread

Loss = Literal["cross_entropy", "squared"]
_LOSSES = ("cross_entropy", "squared")


def factored(
    errors: npt.ArrayLike | jax.Array,
    features: npt.ArrayLike | jax.Array,
    *,
    bias: bool = True,
) -> Factored:
    """Return the last layer's gradients, given the loss's derivatives by its outputs.

    Args:
        errors: Array of shape `[n, C]`: derivative of each sample's loss by its C
            outputs; for cross-entropy, the probabilities minus the one-hot label.
        features: Array of shape `[n, H]`: the layer's input.
        bias: Whether the layer has a bias, whose gradient counts too.

    Returns:
        An oracle of gradients of length C·H (C·(H + 1) with a bias). It holds n·(C + H)
        numbers; a column costs as many multiply-adds. Arrays that are split over the
        devices of a mesh stay so.

    Raises:
        TypeError: If an argument is not numeric.
        ValueError: If an argument is not of shape `[n, ...]`, empty or not finite, or
            their lengths differ.
    """
    deltas, inputs = finite_rows("errors", errors), finite_rows("features", features)
    check_same_length("errors", deltas, "features", inputs)
    return Factored((LayerFactors(deltas, inputs, bias),))


def last_layer(
    logits: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array,
    features: npt.ArrayLike | jax.Array,
    *,
    loss: Loss = "cross_entropy",
    bias: bool = True,
) -> Factored:
    """Return the gradients of the last layer's parameters, one a sample.

    Args:
        logits: Array of shape `[n, C]`: the layer's output. With "cross_entropy" and
            C = 1, the logit of the second of two classes.
        labels: With "cross_entropy", `[n]`: integers in [0, C). With "squared", `[n]`
            or `[n, C]`: the numbers to predict.
        features: Array of shape `[n, H]`: the layer's input.
        loss: "cross_entropy" (of softmax, or of sigmoid if C = 1), or "squared"
            (half the squared distance of outputs and labels).
        bias: Whether the layer has a bias.

    Returns:
        An oracle, as `factored` returns it. Of labels every process gets all n.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a value is not finite, or a label is no class.

    References:
        Killamsetty et al., GRAD-MATCH, ICML 2021 (last-layer gradients).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import gradients
        >>> features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
        >>> oracle = gradients.last_layer(logits, [0, 1, 1], features)
        >>> print(np.argmax(oracle.diag()))  # row 2, the wrong one
        2
    """
    return factored(_errors(logits, labels, loss), features, bias=bias)


def last_two_layers(
    logits: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array,
    features: npt.ArrayLike | jax.Array,
    inputs: npt.ArrayLike | jax.Array,
    *,
    weight: npt.ArrayLike | jax.Array,
    slope: npt.ArrayLike | jax.Array | None = None,
    loss: Loss = "cross_entropy",
    bias: bool = True,
) -> Factored:
    """Return the gradients of the last two layers' parameters, one a sample.

    The model ends in `features = f(inputs @ V + a)`, `logits = features @ weight + b`.

    Args:
        logits: Array of shape `[n, C]`.
        labels: As in `last_layer`.
        features: Array of shape `[n, H]`: the last layer's input.
        inputs: Array of shape `[n, I]`: the input of the layer before.
        weight: Array of shape `[H, C]`: the last layer's.
        slope: Array of shape `[n, H]`: the derivative of f at its argument; that of
            ReLU, 1 where the feature is positive, if None.
        loss: As in `last_layer`.
        bias: Whether both layers have a bias.

    Returns:
        An oracle of gradients of both layers, the last one first. It holds
        n·(C + 2H + I) numbers. Arrays that are split over the devices of a mesh stay
        so, but for labels.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, a value is not finite, or a label is no class.

    References:
        Sarwar et al., Mycroft, 2024, App. C.2.
    """
    errors = _errors(logits, labels, loss)
    hidden, below = finite_rows("features", features), finite_rows("inputs", inputs)
    last = finite_rows("weight", weight)
    if last.shape != (hidden.shape[1], errors.shape[1]):
        raise ValueError(
            f"weight must have shape {(hidden.shape[1], errors.shape[1])}, features by "
            f"outputs, got {last.shape}"
        )
    if slope is None:
        slopes = (hidden > 0).astype(hidden.dtype)
    else:
        slopes = finite_rows("slope", slope)
    if slopes.shape != hidden.shape:
        raise ValueError(
            f"slope must have the shape of features, {hidden.shape}, got {slopes.shape}"
        )
    check_same_length("errors", errors, "features", hidden)
    check_same_length("inputs", below, "features", hidden)
    # Backpropagation through the last layer and the activation.
    deltas = jnp.matmul(errors, last.T, precision="highest") * slopes
    return Factored(
        (LayerFactors(errors, hidden, bias), LayerFactors(deltas, below, bias))
    )


def _errors(
    logits: npt.ArrayLike | jax.Array, labels: npt.ArrayLike | jax.Array, loss: Loss
) -> jax.Array:
    """Return the loss's derivative by the outputs, `[n, C]`."""
    check_choice("loss", loss, _LOSSES)
    outputs = finite_rows("logits", logits)
    stays = loss == "squared" and is_spread(labels) and np.ndim(labels) == 2
    targets: Any = labels if stays else as_array("labels", labels)
    check_same_length("logits", outputs, "labels", targets)
    if loss == "squared":
        if targets.ndim == 1:
            targets = beside(np.asarray(targets)[:, None], outputs)
        if targets.shape != outputs.shape:
            raise ValueError(
                f"labels must have the shape of logits, {outputs.shape}, for the "
                f"squared loss, got {targets.shape}"
            )
        return _difference(outputs, finite_rows("labels", targets))
    classes = max(outputs.shape[1], 2)
    codes = np.asarray(targets)
    if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer):
        raise TypeError(
            f"labels must be integers of shape [n], got {codes.dtype} of {codes.shape}"
        )
    if codes.min() < 0 or codes.max() >= classes:
        raise ValueError(
            f"labels must lie in [0, {classes}), got values from {codes.min()} to "
            f"{codes.max()}"
        )
    return _cross_entropy_errors(outputs, beside(codes, outputs))


@jit()
def _difference(outputs: jax.Array, labels: jax.Array) -> jax.Array:
    return outputs - labels


@jit()
def _cross_entropy_errors(outputs: jax.Array, codes: jax.Array) -> jax.Array:
    if outputs.shape[1] == 1:
        return jax.nn.sigmoid(outputs) - codes[:, None].astype(outputs.dtype)
    # The derivative of cross-entropy by the logits: probabilities less one-hot labels.
    truth = jax.nn.one_hot(codes, outputs.shape[1], dtype=outputs.dtype)
    return jax.nn.softmax(outputs) - truth
