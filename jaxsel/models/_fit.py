"""Training by Adam on minibatches, as one loop: nothing but arrays goes in and out."""

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from flax import nnx

from jaxsel._inputs.checks import (
    check_count,
    check_finite,
    check_positive,
    check_same_length,
)
from jaxsel._inputs.chunk import chunk_slices, take_rows
from jaxsel._results.types import Values
from jaxsel._runs.draws import drawer

Params = Any
"""Parameters, as `flax.nnx.split(model, flax.nnx.Param)` returns them."""


class Recorder(Protocol):
    """A recorder of steps, such as `jaxsel.attribute.InRun`.

    Its `step` returns the gradient of a batch's mean loss, as well as its next state.
    """

    def init(self, params: Params) -> Any:
        """Return the state before the first step."""
        ...

    def step(
        self,
        state: Any,
        params: Params,
        opt_state: Any,
        examples: Any,
        rows: jax.Array,
    ) -> tuple[Params, Any]:
        """Return the gradient at examples and labels, and the next state.

        Args:
            state: From `init` or the last step.
            params: Parameters before the step.
            opt_state: State of the optimizer before the step.
            examples: Examples and labels of the batch.
            rows: Their rows, `[batch]`.
        """
        ...

    def finish(self, state: Any) -> Values:
        """Return the values of all samples, after the last step."""
        ...


# Rows of one forward pass in `logits`. On a CPU what they become in a layer should fit
# into the cache: with 4096 images of 14x14 a pass takes four times as long.
_BATCH = {"cpu": 128}
_ON_ACCELERATORS = 4096
_LEAST = 2048  # examples that shorter sets are padded to: few programs are compiled


def train(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    key: jax.Array,
    *,
    steps: int | jax.Array,
    batch_size: int,
    learning_rate: float | jax.Array,
    weight_decay: float | jax.Array,
    recorder: Recorder | None = None,
) -> Params:
    """Minimise the weighted mean cross-entropy: the kernel of `fit`, without checks.

    Each step draws its examples with replacement, with probability proportional to
    their weight. An example of weight 0 is never seen, so that padding changes nothing,
    and a subset is a vector of weights: `vmap` over `weights` trains on many subsets of
    one data set at once, `vmap` over `params` and `key` from many seeds.

    Args:
        graphdef: Static part of the model.
        params: Parameters to start from.
        x: Examples, `[n, ...]`.
        y: Classes, `[n]`, integers in `[0, n_classes)`.
        weights: `[n]`, not negative, not all zero.
        key: Key of the minibatches.
        steps: Number of steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay of AdamW, on all parameters.
        recorder: Gives the gradient of each step, and records it; see `fit`.

    Returns:
        The parameters after the last step; with `recorder` a pair of these and its
        state.
    """
    x, y = jnp.asarray(x), jnp.asarray(y)
    cosine = lambda step: 0.5 + 0.5 * jnp.cos(jnp.pi * step / steps)
    optimizer = optax.adamw(
        lambda step: learning_rate * cosine(step), weight_decay=weight_decay
    )
    draw = drawer(weights)

    def loss(params: Params, rows: jax.Array) -> jax.Array:
        scores = nnx.merge(graphdef, params)(x[rows])
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, y[rows])
        return jnp.mean(losses)

    def step(i: jax.Array, carry: tuple[Params, Any, Any]) -> tuple[Params, Any, Any]:
        params, state, recorded = carry
        rows = draw(jax.random.fold_in(key, i), batch_size)
        if recorder is None:
            gradient = jax.grad(loss)(params, rows)
        else:
            batch = x[rows], y[rows]
            gradient, recorded = recorder.step(recorded, params, state, batch, rows)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, recorded

    recorded = None if recorder is None else recorder.init(params)
    begin = params, optimizer.init(params), recorded
    params, _, recorded = jax.lax.fori_loop(0, steps, step, begin)
    return params if recorder is None else (params, recorded)


_train = jax.jit(train, static_argnames=("graphdef", "batch_size", "recorder"))


def fit(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    key: jax.Array,
    steps: int = 500,
    batch_size: int = 64,
    learning_rate: float = 1e-2,
    weight_decay: float = 0.0,
    recorder: Recorder | None = None,
) -> Params:
    """Train a classifier with AdamW on minibatches.

    Examples are padded to the next power of two, 2048 at least, with weight 0, so that
    one compiled program serves pools of many sizes, whatever the number of steps;
    padding does not change the result. Costs `steps * batch_size`
    forward and backward passes, plus about 1 s to compile.

    Inside `jit` or `vmap`, call `train`.

    Args:
        graphdef: Static part of the model, from `nnx.split(model, nnx.Param)`.
        params: Parameters to start from, of the same split.
        x: Examples, `[n, ...]`.
        y: Classes, `[n]`, integers in `[0, n_classes)`.
        weights: `[n]`, how often each example is drawn; equal if None.
        key: Key of the minibatches.
        steps: Number of steps.
        batch_size: Examples in a step.
        learning_rate: Of the first step; it falls to 0 along a cosine.
        weight_decay: Decoupled weight decay, on all parameters.
        recorder: None, or an `attribute.InRun` with the cross-entropy of one example
            `(x, y)` as loss, n samples, and as optimizer `attribute.Adam` with
            `optax.cosine_decay_schedule(learning_rate, steps)`: its gradient takes the
            place of the loss's own. Pass the same one again: each is compiled once.

    Returns:
        The trained parameters; with `recorder` a pair of these and its state, for its
        `finish`.

    Raises:
        TypeError: If `y` does not hold integers.
        ValueError: If the arguments differ in length, are empty, or lie out of range.

    References:
        Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    """
    x, y = _examples(x), _labels(y)
    weights = np.ones(len(x), np.float32) if weights is None else np.asarray(weights)
    check_same_length("x", x, "y", y)
    check_same_length("x", x, "weights", weights)
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0) and weights.any()):
        raise ValueError("weights must be finite, at least 0, and not all 0")
    check_count("steps", steps)
    check_count("batch_size", batch_size)
    check_positive("learning_rate", learning_rate)
    check_positive("weight_decay", weight_decay, zero=True)
    check_classes(graphdef, params, x, y)
    return _train(
        graphdef,
        params,
        *(pad_rows(a) for a in (x, y, weights.astype(np.float32))),
        key,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        recorder=recorder,
    )


@functools.partial(jax.jit, static_argnames="graphdef")
def _logits(graphdef: nnx.GraphDef[Any], params: Params, x: jax.Array) -> jax.Array:
    return nnx.merge(graphdef, params)(x)


def logits(graphdef: nnx.GraphDef[Any], params: Params, x: npt.ArrayLike) -> jax.Array:
    """Return the logits of examples `[n, ...]`, `[n, classes]`.

    One forward pass per example, in batches of one shape.
    """
    x = _examples(x)
    most = _BATCH.get(jax.default_backend(), _ON_ACCELERATORS)
    rows = min(most, 1 << (len(x) - 1).bit_length())
    parts = [
        _logits(graphdef, params, take_rows(x, chunk, rows))
        for chunk in chunk_slices(len(x), rows)
    ]
    return jnp.asarray(np.concatenate(parts)[: len(x)])


def predict(graphdef: nnx.GraphDef[Any], params: Params, x: npt.ArrayLike) -> jax.Array:
    """Return the most likely class of each example, `[n]` int32."""
    return jnp.argmax(logits(graphdef, params, x), axis=-1).astype(jnp.int32)


def accuracy(
    graphdef: nnx.GraphDef[Any], params: Params, x: npt.ArrayLike, y: npt.ArrayLike
) -> float:
    """Return the share of examples with `y` as most likely class, in [0, 1]."""
    predicted, y = predict(graphdef, params, x), _labels(y)
    check_same_length("x", predicted, "y", y)
    return float(np.mean(np.asarray(predicted) == y))


def check_classes(
    graphdef: nnx.GraphDef[Any], params: Params, x: np.ndarray, y: np.ndarray
) -> None:
    """Raise if the model has no class for a label."""
    classes = jax.eval_shape(
        lambda params: nnx.merge(graphdef, params)(jnp.asarray(x[:1])), params
    ).shape[-1]
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(
            f"y must lie in [0, {classes}), the classes of the model, got values from "
            f"{y.min()} to {y.max()}"
        )


def _examples(x: npt.ArrayLike) -> np.ndarray:
    x = np.asarray(x)
    if x.ndim < 2 or not len(x):
        raise ValueError(f"x must have shape [n, ...] with n >= 1, got {x.shape}")
    check_finite("x", x)
    return x if x.dtype == np.float32 else x.astype(np.float32)


def _labels(y: npt.ArrayLike) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"y must have shape [n], got {y.shape}")
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"y must hold integers, got {y.dtype}")
    return y.astype(np.int32)


def pad_rows(array: np.ndarray) -> np.ndarray:
    """Append zero rows up to the next power of two, 2048 at least."""
    n = max(_LEAST, 1 << (len(array) - 1).bit_length())
    return np.pad(array, [(0, n - len(array))] + [(0, 0)] * (array.ndim - 1))


def is_half(compute_dtype: npt.DTypeLike | None) -> bool:
    """Return whether to compute in bfloat16: by default on accelerators only.

    Raises:
        ValueError: If the type is neither float32 nor bfloat16.
    """
    if compute_dtype is None:
        return jax.default_backend() != "cpu"
    dtype = jnp.dtype(compute_dtype)
    if dtype not in (jnp.float32, jnp.bfloat16):
        raise ValueError(f"compute_dtype must be float32 or bfloat16, got {dtype}")
    return dtype == jnp.bfloat16
