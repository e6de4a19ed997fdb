"""The derivative of a whole training by the weights of its samples."""

from __future__ import annotations

import functools
import math
import os
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import jit
from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_count,
    check_finite,
    check_numeric,
    check_positive,
)
from jaxsel._results.types import Values
from jaxsel._runs.checkpoints import Checkpoints, program_digest, run_digest
from jaxsel._runs.progress import track

from ._networks import check_trained
from ._recipe import (
    Output,
    Recipe,
    TrainingPlan,
    check_recipe,
    name_of_output,
)
from ._results import over_seeds

_DROPS = 2**31 - 1  # folded into the key of drops: no run has this number


def weight_derivative(
    recipe: Recipe,
    plan: TrainingPlan,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    weights: Float[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    directions: Float[jax.Array, "r t"],
    *,
    output: Output = "loss",
    segments: int = 1,
    chunk_size: int = 25,
) -> tuple[Float[jax.Array, " t"], Float[jax.Array, "r n"], Any]:
    """Differentiate the outputs after a run by the weights of samples: a pure kernel.

    Reverse mode through all steps. The state of the run is kept before each segment of
    steps; the steps of a segment are computed again when its turn comes.

    Args:
        recipe: The model and its training.
        plan: Start and batches of the run.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        weights: Weights at which to differentiate.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        directions: Weights of the targets in each of r sums of outputs: the identity
            for a derivative of each target.
        output: The output of a target: see `Recipe.measure`.
        segments: Number of states that are kept.
        chunk_size: Directions that go back through the run together.

    Returns:
        The outputs, `[t]`, the derivative of each sum, `[r, n]`, and the parameters
        that the run ends with.
    """
    steps, width = plan.rows.shape
    length = -(-steps // segments)
    more = -steps % length
    parts = (steps + more) // length

    def segmented(array: jax.Array) -> jax.Array:
        # The last segment is filled up with steps that change nothing.
        padded = jnp.pad(array, ((0, more), *[(0, 0)] * (array.ndim - 1)))
        return padded.reshape(parts, length, *array.shape[1:])

    rows, real = segmented(plan.rows), segmented(jnp.ones(steps, bool))

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        (params, state), (rows, shares, real) = carry, batch
        after = recipe.step(params, state, x, y, rows, shares)
        # A share of 0 is not enough: momentum and decay would move the parameters.
        if more:
            after = jax.tree.map(lambda a, b: jnp.where(real, a, b), after, carry)
        return after, None

    @jax.checkpoint
    def segment(carry: Any, batches: Any) -> tuple[Any, None]:
        return jax.lax.scan(step, carry, batches)

    def outputs(shares: jax.Array) -> tuple[jax.Array, Any]:
        start = plan.params, recipe.optimizer.init(plan.params)
        batches = rows, segmented(shares), real
        (params, _), _ = jax.lax.scan(segment, start, batches)
        return recipe.measure(output, recipe.apply(params, x_val), y_val), params

    shares = plan.shares * weights[plan.rows]
    measured, pull, trained = jax.vjp(outputs, shares, has_aux=True)

    def back(direction: jax.Array) -> jax.Array:
        # Rows that fill up a batch point at sample 0: their share of 0 is a factor
        # here.
        by_share = pull(direction.astype(measured.dtype))[0] * plan.shares
        zeros = jnp.zeros(weights.shape, by_share.dtype)
        return zeros.at[plan.rows.reshape(-1)].add(by_share.reshape(-1))

    size = min(chunk_size, directions.shape[0])
    return measured, jax.lax.map(back, directions, batch_size=size), trained


def metagradient(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    seeds: int = 1,
    weights: npt.ArrayLike | None = None,
    drops: int = 0,
    drop_share: float = 0.05,
    output: Output = "loss",
    reduce: Literal["mean"] | None = "mean",
    segments: int | None = None,
    chunk_size: int = 25,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Values:
    """Differentiate a network's outputs for targets by the weights of its samples.

    The derivative goes through every step of the training, and is exact: the score of a
    sample is the rate at which a target's output rises with the weight of the sample in
    a run with this start and this order. It is taken where all weights are 1 -
    `drop_share`, the mean of a weight over runs without such a share of the samples: it
    predicts them better than the derivative of the whole run (`drop_share=0`). A drop
    of a sample changes the output by about minus its score; how nearly depends on the
    recipe: with rectifiers, momentum and small batches the output is far from linear in
    the weights, and the mean of the derivatives at some random drops predicts the
    effect of others better still (`drops=8`).

    For networks of other seeds average over a few, at the share that they lack: for
    those trained on halves `seeds=5, drop_share=0.5`.

    Args:
        recipe: The model and its training, by any optax optimiser that has derivatives.
            Adam has none where a gradient is 0: pass `eps_root=1e-8`.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the runs; run s has `fold_in(key, s)`, as with `same_seed` in
            `tasks.retrain_subsets`.
        seeds: Number of runs, over which scores are averaged.
        weights: Weights of the samples at which to differentiate, `[n]`; 1 -
            `drop_share` for all if None, and 1 with `drops`.
        drops: Number of random drops at which to differentiate, for the mean of the
            derivatives; 0 differentiates once.
        drop_share: Share of the samples in a drop: in the drops whose effects are to be
            predicted, and in those of `drops`, where their weight is 0.
        output: The output of a target: see `Recipe.measure`.
        reduce: "mean" over targets, which costs as much as one target, or None: a row
            for each target.
        segments: States of the training that are kept; the steps between two of them
            are computed again, and kept while their turn lasts. None takes the divisor
            of the number of steps next to its root, with which memory is least.
        chunk_size: Targets that go back through the run together; it changes speed and
            memory only.
        checkpoint: Folder in which the derivatives so far are kept, after each run and
            each drop: a killed call resumes from it; another recipe, data or settings
            are refused.
        progress: Show a bar.

    Returns:
        `Values`, `[n]` or `[t, n]`, in units of the output (nats of the loss): means
        over the runs, whose number is `count`; `stderr` is the standard error between
        runs, None for one. In float64 if x is, in x64 mode.

    Costs about 1 to 2.5 trainings for each target, less with a larger `chunk_size`, and
    one more for each chunk; and `drops` times that. Memory holds the state of the
    optimiser `segments` times, and the intermediate results of steps / segments steps.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, the model keeps
            statistics or draws, a run ends in NaN, or the optimiser has no derivative.

    References:
        L. Engstrom et al., Optimizing ML training with metagradient descent,
        arXiv:2503.13751, section 2; A. Ilyas and L. Engstrom, MAGIC: near-optimal data
        attribution for deep learning, arXiv:2504.16430, section 3.
    """
    check_recipe(recipe)
    samples = recipe.check(x, y, x_val, y_val)
    recipe.check_output(output, samples.y)
    check_choice("reduce", reduce, ("mean", None))
    check_count("seeds", seeds)
    check_count("chunk_size", chunk_size)
    check_count("drops", drops, minimum=0)
    if check_positive("drop_share", drop_share, zero=not drops) >= 1:
        raise ValueError(f"drop_share must be below 1, got {drop_share}")
    n, t = len(samples.x), len(samples.x_val)
    steps = recipe.steps(n)
    if segments is None:
        segments = _near_root(steps)
    check_count("segments", segments, maximum=steps)
    kind = samples.x.dtype if samples.x.dtype == jnp.float64 else jnp.float32
    directions = jnp.full((1, t), 1 / t, kind) if reduce else jnp.eye(t, dtype=kind)
    program: Any = functools.partial(
        _differentiate,
        recipe,
        output=output,
        segments=segments,
        chunk_size=chunk_size,
    )
    points = _points(weights, key, n, drops, drop_share, kind)
    data = samples.x, samples.y, samples.x_val, samples.y_val, directions, key
    scores = np.zeros((seeds, len(directions), n))
    start, saved = 0, None
    if checkpoint is not None:
        code = program_digest(program, points[0], np.int32(0), *data)
        arrays = points, *data[:-1], jax.random.key_data(key)
        saved = Checkpoints(checkpoint, run_digest({"program": code}, *arrays))
        start, scores = saved.load(scores)
    for i in track(
        range(start, seeds * len(points)), progress=progress, label="Derivatives"
    ):
        run, place = divmod(i, len(points))
        outputs, derivative, network = program(points[place], np.int32(run), *data)
        samples.check_finite(f"run {run}", outputs)
        if place == 0 and weights is None:
            check_trained(recipe, samples, run, network)
        if not bool(jnp.isfinite(derivative).all()):
            raise ValueError(
                "recipe must have a derivative, but that of its training is NaN or "
                "infinite: the optimizer or the loss has none somewhere (Adam where a "
                "gradient is 0: pass eps_root=1e-8), or it grew without bound: lower "
                "the learning rate, or differentiate in x64 mode"
            )
        scores[run] += np.asarray(derivative, np.float64) / len(points)
        if saved is not None:
            saved.save(i + 1, scores)
    name = name_of_output(output)
    places = f", drops={drops} of {drop_share:g}" if drops else ""
    if not drops and weights is None:
        places = f", drop_share={drop_share:g}"
    return over_seeds(
        scores,
        reduce=reduce,
        dtype=samples.x.dtype,
        method=f"metagradient(output={name}, runs={seeds}{places})",
        index=samples.row_labels,
    )


@jit(static_argnames=("recipe", "output", "segments", "chunk_size"))
def _differentiate(
    recipe: Recipe,
    weights: jax.Array,
    run: jax.Array,
    x: jax.Array,
    y: jax.Array,
    x_val: jax.Array,
    y_val: jax.Array,
    directions: jax.Array,
    key: jax.Array,
    *,
    output: Output,
    segments: int,
    chunk_size: int,
) -> tuple[jax.Array, jax.Array, Any]:
    """Differentiate a run at weights `[n]`, as `weight_derivative` does."""
    plan = recipe.plan(jax.random.fold_in(key, run), x)
    return weight_derivative(
        recipe,
        plan,
        x,
        y,
        weights,
        x_val,
        y_val,
        directions,
        output=output,
        segments=segments,
        chunk_size=chunk_size,
    )


def _near_root(steps: int) -> int:
    """Return the divisor of a number that is nearest to its root, by their ratio."""
    divisors = [d for d in range(1, steps + 1) if steps % d == 0]
    return min(divisors, key=lambda d: abs(math.log(d * d / steps)))


def _points(
    weights: npt.ArrayLike | None,
    key: jax.Array,
    n: int,
    drops: int,
    share: float,
    kind: Any,
) -> jax.Array:
    """Return the weights at which to differentiate, `[m, n]`: a row for each drop."""
    if weights is not None:
        weights = as_array("weights", weights)
        check_numeric("weights", weights)
        if weights.shape != (n,):
            raise ValueError(
                f"weights must have shape [n] = [{n}], got {weights.shape}"
            )
        check_finite("weights", weights)
        weights = jnp.asarray(weights, kind)
    if not drops:
        row = jnp.full(n, 1 - share, kind) if weights is None else weights
        return row[None]
    keys = jax.random.split(jax.random.fold_in(key, _DROPS), drops)
    places = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
    # A permutation has each place once, so that all drops are of one size.
    kept = (places >= max(1, round(share * n))).astype(kind)
    return kept if weights is None else weights * kept
