"""Fine-tuning: AdamW with warmup and clipping, in blocks that can be resumed."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from flax import nnx

from jaxsel._inputs.checks import (
    check_choice,
    check_count,
    check_finite,
    check_positive,
    check_same_length,
)
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel._runs.progress import track

from ._fit import Params, is_half

_BLOCK = 16  # steps between two looks of the host


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FineTuned:
    """Result of fine-tuning.

    Attributes:
        params: Of the last step; if it stopped early, the best so far.
        losses: `[steps]`: the mean loss of each step's examples, before the step.
        steps: How many steps were done.
        stopped: Why it stopped early, or None if it ran to the end.
    """

    params: Params
    losses: np.ndarray
    steps: int
    stopped: str | None

    def __repr__(self) -> str:
        return f"FineTuned({self.steps} steps, stopped={self.stopped!r})"


Loss = Callable[[Params, Any, Any], jax.Array]
"""From parameters, inputs and targets of some examples to their mean loss. Hashable, as
a frozen dataclass is: equal losses share a compiled program."""


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
    """The cross-entropy of a classifier's logits with classes `[n]`.

    Attributes:
        graphdef: Static part of the model.
    """

    graphdef: nnx.GraphDef[Any]

    def __call__(self, params: Params, inputs: Any, y: jax.Array) -> jax.Array:
        scores = nnx.merge(self.graphdef, params)(inputs).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


@functools.partial(
    jax.jit, static_argnames=("loss", "decay", "half"), donate_argnames="state"
)
def _run(
    loss: Loss,
    params: Params,
    state: Any,
    inputs: Any,
    y: Any,
    count: jax.Array,
    recipe: dict[str, float],
    *,
    decay: str,
    half: bool,
) -> tuple[Params, Any, jax.Array, jax.Array, jax.Array]:
    """Do `count` steps of a block of examples, `[block, accumulate, m, ...]`.

    Returns:
        Parameters, optimiser state, the block's losses, how many steps were done, and
        whether the last one was finite: after one that isn't, it stops.
    """
    optimizer = _optimizer(recipe, decay)

    block, accumulate = jax.tree.leaves(y)[0].shape[:2]

    def value(params: Params, inputs: Any, y: Any) -> jax.Array:
        if half:
            params, inputs = jax.tree.map(_halve, (params, inputs))
        return loss(params, inputs, y).astype(jnp.float32)

    def gradient(params: Params, batch: Any) -> tuple[jax.Array, Params]:
        """Return loss and gradient of one step, averaged over its parts."""
        if accumulate == 1:
            part = jax.tree.map(lambda a: a[0], batch)
            return jax.value_and_grad(value)(params, *part)

        def add(total: Any, part: Any) -> tuple[Any, None]:
            loss_and_gradient = jax.value_and_grad(value)(params, *part)
            return jax.tree.map(jnp.add, total, loss_and_gradient), None

        zero = jnp.zeros(()), jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(add, zero, batch)
        return jax.tree.map(lambda a: a / accumulate, total)

    def step(carry: Any) -> Any:
        i, _, params, state, losses = carry
        value, grads = gradient(params, jax.tree.map(lambda a: a[i], (inputs, y)))
        updates, state = optimizer.update(grads, state, params)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(grads))
        return (
            i + 1,
            finite,
            optax.apply_updates(params, updates),
            state,
            losses.at[i].set(value),
        )

    def go_on(carry: Any) -> jax.Array:
        return (carry[0] < count) & carry[1]

    losses = jnp.full(block, jnp.nan)
    start = jnp.int32(0), jnp.array(True), params, state, losses
    done, finite, params, state, losses = jax.lax.while_loop(go_on, step, start)
    return params, state, losses, done, finite


def _optimizer(recipe: dict[str, float], decay: str) -> optax.GradientTransformation:
    def rate(i: jax.typing.ArrayLike) -> jax.Array:
        i = jnp.asarray(i)
        warmup, steps = recipe["warmup"], recipe["steps"]
        remaining = (steps - i) / jnp.maximum(steps - warmup, 1)
        if decay == "cosine":
            remaining = 0.5 - 0.5 * jnp.cos(jnp.pi * remaining)
        up = (i + 1) / jnp.maximum(warmup, 1)
        return recipe["learning_rate"] * jnp.where(i < warmup, up, remaining)

    def is_matrix(params: Params) -> Any:
        return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

    return optax.chain(
        optax.clip_by_global_norm(recipe["clip"]),
        optax.adamw(rate, weight_decay=recipe["weight_decay"], mask=is_matrix),
    )


def _halve(leaf: jax.Array) -> jax.Array:
    is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(jnp.bfloat16) if is_float else leaf


def finetune(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    inputs: Any,
    y: npt.ArrayLike,
    *,
    key: jax.Array,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup: float = 0.1,
    decay: Literal["linear", "cosine"] = "linear",
    weight_decay: float = 0.01,
    clip: float = 1.0,
    accumulate: int = 1,
    compute_dtype: npt.DTypeLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 128,
    progress: bool = False,
) -> FineTuned:
    """Fine-tune a classifier with AdamW.

    Each step takes the next `batch_size` examples of one shuffled pass after the other.
    Examples stay on the host; the device gets those of 16 steps at a time, so that
    pools of all sizes share one compiled program.

    If a loss or gradient is not finite, training stops and the result holds the
    parameters at the end of the 16 steps whose mean loss was lowest.

    Args:
        graphdef: Static part of the model: it maps `inputs` to logits `[n, classes]`.
        params: Parameters to start from, float32.
        inputs: Examples: `Tokens`, images, or any pytree of arrays `[n, ...]`.
        y: Classes, `[n]`, integers in `[0, n_classes)`.
        key: Key of the order of examples.
        epochs: How often each example is seen; this or `steps`.
        steps: Number of steps.
        batch_size: Examples in a step.
        learning_rate: The highest one, after the warmup.
        warmup: Share of the steps, in [0, 1), over which the learning rate rises.
        decay: How it falls to 0 afterwards: "linear" or "cosine".
        weight_decay: Decoupled weight decay, on matrices and tables only.
        clip: Longer gradients are shortened to this length.
        accumulate: Parts into which a step's examples are divided, to save memory.
        compute_dtype: float32 or bfloat16; parameters and optimiser stay float32. None
            takes bfloat16 on accelerators only.
        checkpoint: Folder where orbax saves the state. A killed run resumes from it and
            produces identical results; another model, data or settings are refused.
        checkpoint_every: Steps between two checkpoints, rounded up to a multiple of 16.
        progress: Show a bar.

    Raises:
        TypeError: If `y` does not hold integers.
        ValueError: If arguments differ in length or are out of range, or `checkpoint`
            holds another run.

    References:
        Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019.
    """
    inputs, y = jax.tree.map(np.asarray, inputs), np.asarray(y)
    if y.ndim != 1 or not len(y):
        raise ValueError(f"y must have shape [n], n >= 1, got {y.shape}")
    if not np.issubdtype(y.dtype, np.integer):
        raise TypeError(f"y must hold integers, got {y.dtype}")
    for leaf in jax.tree.leaves(inputs):
        check_same_length("inputs", leaf, "y", y)
    _check_classes(graphdef, params, inputs, y)
    return minimise(
        CrossEntropy(graphdef),
        params,
        inputs,
        y.astype(np.int32),
        key=key,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        warmup=warmup,
        decay=decay,
        weight_decay=weight_decay,
        clip=clip,
        accumulate=accumulate,
        compute_dtype=compute_dtype,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )


def minimise(
    loss: Loss,
    params: Params,
    inputs: Any,
    targets: Any,
    *,
    key: jax.Array,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup: float = 0.1,
    decay: Literal["linear", "cosine"] = "linear",
    weight_decay: float = 0.01,
    clip: float = 1.0,
    accumulate: int = 1,
    compute_dtype: npt.DTypeLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 128,
    run_tag: str = "",
    progress: bool = False,
) -> FineTuned:
    """Minimise any mean loss over examples, as `finetune` does the cross-entropy.

    Args:
        loss: From parameters, inputs and targets to a mean: static, see `Loss`.
        params: Parameters to start from: any pytree of float32 arrays.
        inputs: Examples: a pytree of arrays `[n, ...]`.
        targets: Targets of the loss: a pytree of arrays `[n, ...]`.
        key: As in `finetune`, and all that follows.
        epochs: How often each example is seen; this or `steps`.
        steps: Number of steps.
        batch_size: Examples in a step.
        learning_rate: The highest one, after the warmup.
        warmup: Share of the steps over which the learning rate rises.
        decay: How it falls to 0 afterwards.
        weight_decay: Decoupled weight decay.
        clip: Longer gradients are shortened to this length.
        accumulate: Parts into which a step's examples are divided.
        compute_dtype: As for `finetune`.
        checkpoint: A folder for orbax.
        checkpoint_every: Steps between two checkpoints.
        run_tag: Distinguishes this loss from others, so that a checkpoint fits its run.
        progress: Show a bar.

    Raises:
        ValueError: If arguments differ in length or are out of range, or `checkpoint`
            holds another run.
    """
    inputs, y = jax.tree.map(np.asarray, (inputs, targets))
    n = len(jax.tree.leaves(y)[0])
    steps = _check(inputs, y, n, epochs, steps, batch_size, accumulate, warmup)
    check_choice("decay", decay, ("linear", "cosine"))
    every = -(-check_count("checkpoint_every", checkpoint_every) // _BLOCK)
    parts = accumulate, batch_size // accumulate
    recipe = {
        "learning_rate": check_positive("learning_rate", learning_rate),
        "warmup": float(round(warmup * steps)),
        "steps": float(steps),
        "weight_decay": check_positive("weight_decay", weight_decay, zero=True),
        "clip": check_positive("clip", clip),
    }
    half = is_half(compute_dtype)
    state = {
        "params": params,
        "optimizer": _optimizer(recipe, decay).init(params),
        "losses": np.full(steps, np.nan, np.float32),
        "best": params,
        "lowest": np.float32(np.inf),
    }
    start, saved = 0, None
    if checkpoint is not None:
        settings = {**recipe, "decay": decay, "parts": parts, "half": half}
        first_batch = jax.tree.map(lambda a: a[: parts[1]], (inputs, y))
        settings |= {
            "run_tag": run_tag,
            "loss": program_digest(loss, params, *first_batch),
        }
        order = jax.random.key_data(key)
        saved = Checkpoints(checkpoint, run_digest(settings, params, inputs, y, order))
        start, state = saved.load(state)
    order = _Order(key, n)
    for first in track(
        range(start, steps, _BLOCK), progress=progress, label="blocks of steps"
    ):
        count = min(_BLOCK, steps - first)
        rows = order.rows(first * batch_size, _BLOCK * batch_size)
        batches = jax.tree.map(
            lambda a, rows=rows: a[rows].reshape(_BLOCK, *parts, *a.shape[1:]),
            (inputs, y),
        )
        *trained, losses, done, finite = _run(
            loss,
            state["params"],
            state["optimizer"],
            *batches,
            count,
            recipe,
            decay=decay,
            half=half,
        )
        done = int(done)
        state["losses"][first : first + done] = np.asarray(losses)[:done]
        if not finite:
            done += first
            return FineTuned(
                params=state["best"],
                losses=state["losses"][:done],
                steps=done,
                stopped=f"loss or gradient of step {done} is not finite; parameters "
                "are the best so far",
            )
        state["params"], state["optimizer"] = trained
        mean = state["losses"][first : first + count].mean()
        if mean < state["lowest"]:
            state |= {"best": state["params"], "lowest": mean}
        last = first + count == steps
        if saved is not None and (last or (first // _BLOCK + 1) % every == 0):
            saved.save(first + count, state)
    return FineTuned(
        params=state["params"], losses=state["losses"], steps=steps, stopped=None
    )


class _Order:
    """The examples' order: one shuffled pass after the other, the last one kept."""

    def __init__(self, key: jax.Array, n: int):
        self.key, self.n = key, n
        self.epoch, self.shuffled = -1, np.empty(0, np.int32)

    def rows(self, first: int, count: int) -> np.ndarray:
        """Return the `count` rows from the `first` on, `[count]`."""
        positions = np.arange(first, first + count)
        rows = np.empty(count, np.int32)
        for epoch in range(first // self.n, positions[-1] // self.n + 1):
            if epoch != self.epoch:
                draw = jax.random.permutation(
                    jax.random.fold_in(self.key, epoch), self.n
                )
                self.epoch, self.shuffled = epoch, np.asarray(draw)
            in_epoch = positions // self.n == epoch
            rows[in_epoch] = self.shuffled[positions[in_epoch] % self.n]
        return rows


def _check(
    inputs: Any,
    y: Any,
    n: int,
    epochs: float | None,
    steps: int | None,
    batch_size: int,
    accumulate: int,
    warmup: float,
) -> int:
    """Check lengths and counts, and return how many steps to do."""
    for name, tree in (("inputs", inputs), ("targets", y)):
        for leaf in jax.tree.leaves(tree):
            if not n or len(leaf) != n:
                raise ValueError(
                    f"inputs and targets must have one length, at least 1: {name} has "
                    f"{len(leaf)}, the first of the targets {n}"
                )
            check_finite(name, leaf)
    check_count("batch_size", batch_size)
    if batch_size % check_count("accumulate", accumulate):
        raise ValueError(
            f"batch_size must be a multiple of accumulate = {accumulate}, got "
            f"{batch_size}"
        )
    if not 0 <= warmup < 1:
        raise ValueError(f"warmup must lie in [0, 1), got {warmup}")
    if (epochs is None) == (steps is None):
        raise ValueError(
            f"give either epochs or steps, got epochs={epochs}, steps={steps}"
        )
    if steps is not None:
        return check_count("steps", steps)
    return math.ceil(check_positive("epochs", epochs) * n / batch_size)


def _check_classes(
    graphdef: nnx.GraphDef[Any], params: Params, inputs: Any, y: np.ndarray
) -> None:
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), inputs)
    run = lambda params, inputs: nnx.merge(graphdef, params)(inputs)
    classes = jax.eval_shape(run, params, shapes).shape[-1]
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(
            f"y must lie in [0, {classes}), the classes of the model, got values from "
            f"{y.min()} to {y.max()}"
        )
