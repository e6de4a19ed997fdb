"""Fine-tuning: AdamW with warmup and clipping, in blocks that can be resumed."""

from __future__ import annotations

import dataclasses
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
from jaxsel._inputs.parameters import Wrt, split
from jaxsel._results.types import Values
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel._runs.progress import track

from ._finetune_steps import (
    Loss,
    Schedule,
    merge,
    optimizer_of,
    run_block,
    schedule_of,
)
from ._fit import Params, Recorder, is_half

_BLOCK = 16  # steps between two looks of the host


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FineTuned:
    """Result of fine-tuning.

    Attributes:
        params: Of the last step; if it stopped early, the best so far.
        losses: `[steps]`: the mean loss of each step's examples, before the step.
        steps: How many steps were done.
        stopped: Why it stopped early, or None if it ran to the end.
        values: With `recorder`, the values of the examples in this run; else None.
    """

    params: Params
    losses: np.ndarray
    steps: int
    stopped: str | None
    values: Values | None = None

    def __repr__(self) -> str:
        return f"FineTuned({self.steps} steps, stopped={self.stopped!r})"


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


def finetune(
    graphdef: nnx.GraphDef[Any],
    params: Params,
    inputs: Any,
    y: npt.ArrayLike,
    *,
    wrt: Wrt = None,
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
    recorder: Callable[[Schedule], Recorder] | None = None,
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
        wrt: The parameters to train: None for all, globs on their paths such as
            `"head/*"`, or `"*lora_?"` after `add_lora`, or a predicate of path and
            leaf. Others stay as they are, without gradients and optimiser state.
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
        recorder: None, or a function of the learning rate's schedule that returns an
            `attribute.InRun` with the cross-entropy of one example `(inputs, y)` as
            loss, all n examples, and `attribute.Adam(schedule)`. Its gradient takes the
            place of the loss's own. In float32, without `accumulate` and `wrt`.
        progress: Show a bar.

    Raises:
        TypeError: If `y` does not hold integers, or `wrt` is of another kind.
        ValueError: If arguments differ in length or are out of range, `wrt` selects
            nothing, or `checkpoint` holds another run.

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
        wrt=wrt,
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
        recorder=recorder,
        progress=progress,
    )


def minimise(
    loss: Loss,
    params: Params,
    inputs: Any,
    targets: Any,
    *,
    wrt: Wrt = None,
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
    recorder: Callable[[Schedule], Recorder] | None = None,
    run_tag: str = "",
    progress: bool = False,
) -> FineTuned:
    """Minimise any mean loss over examples, as `finetune` does the cross-entropy.

    Args:
        loss: From parameters, inputs and targets to a mean: static, see `Loss`.
        params: Parameters to start from: any pytree of float32 arrays.
        inputs: Examples: a pytree of arrays `[n, ...]`.
        targets: Targets of the loss: a pytree of arrays `[n, ...]`.
        wrt: The parameters to train, as for `finetune`.
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
        recorder: As for `finetune`.
        run_tag: Distinguishes this loss from others, so that a checkpoint fits its run.
        progress: Show a bar.

    Raises:
        TypeError: If `wrt` is of another kind.
        ValueError: If arguments differ in length or are out of range, `wrt` selects
            nothing, or `checkpoint` holds another run.
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
    recording = None
    if recorder is not None:
        if accumulate != 1 or wrt is not None or (half and compute_dtype is not None):
            raise ValueError(
                "recorder needs accumulate=1, wrt=None and float32, got "
                f"accumulate={accumulate}, wrt={wrt!r}, compute_dtype={compute_dtype}"
            )
        half, recording = False, recorder(schedule_of(recipe, decay))
    frozen, trainable = None, params
    if wrt is not None:
        parameters = split(params, wrt)
        trainable = parameters.selected
        frozen = dataclasses.replace(parameters, selected={})
    state = {
        "params": trainable,
        "optimizer": optimizer_of(recipe, decay).init(trainable),
        "recorded": None if recording is None else recording.init(params),
        "losses": np.full(steps, np.nan, np.float32),
        "best": trainable,
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
        if frozen is not None:
            settings["wrt"] = frozen.form.paths
        if recording is not None:
            whole = params, state["optimizer"], first_batch, np.zeros(parts[1], int)
            step = recording.step
            settings["recorder"] = program_digest(step, state["recorded"], *whole)
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
        *trained, losses, done, finite = run_block(
            loss,
            state["params"],
            state["optimizer"],
            *batches,
            count,
            recipe,
            frozen=frozen,
            rows=rows.reshape(_BLOCK, batch_size),
            recorded=state["recorded"],
            decay=decay,
            half=half,
            recorder=recording,
        )
        done = int(done)
        state["losses"][first : first + done] = np.asarray(losses)[:done]
        if not finite:
            done += first
            return FineTuned(
                params=merge(state["best"], frozen),
                losses=state["losses"][:done],
                steps=done,
                stopped=f"loss or gradient of step {done} is not finite; parameters "
                "are the best so far",
            )
        state["params"], state["optimizer"], state["recorded"] = trained
        mean = state["losses"][first : first + count].mean()
        if mean < state["lowest"]:
            state |= {"best": state["params"], "lowest": mean}
        last = first + count == steps
        if saved is not None and (last or (first // _BLOCK + 1) % every == 0):
            saved.save(first + count, state)
    return FineTuned(
        params=merge(state["params"], frozen),
        losses=state["losses"],
        steps=steps,
        stopped=None,
        values=None if recording is None else recording.finish(state["recorded"]),
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
