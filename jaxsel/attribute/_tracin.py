"""TracIn and LESS: samples' steps against targets' gradients along a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Shaped

from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._results.types import Values

from ._networks import check_trained, train_checkpoints
from ._recipe import (
    Output,
    Recipe,
    check_recipe,
    name_of_output,
)
from ._results import over_seeds


def tracin_term(
    recipe: Recipe,
    params: Any,
    x: Shaped[jax.Array, "n ..."],
    y: Shaped[jax.Array, " n"],
    x_val: Shaped[jax.Array, "t ..."],
    y_val: Shaped[jax.Array, " t"],
    *,
    state: Any = None,
    output: Output = "loss",
    normalise: bool = False,
    reduce: Literal["mean"] | None = None,
    chunk_size: int = 64,
) -> Float[jax.Array, "r n"]:
    """Compare samples' steps with targets' gradients at a checkpoint: a pure kernel.

    Args:
        recipe: The model, its loss, and the optimiser of `state`.
        params: Parameters at the checkpoint.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        state: State of the optimiser at the checkpoint: a sample's step is the update
            on its gradient alone. None takes minus the gradient.
        output: The output of a target: see `Recipe.measure`.
        normalise: Whether to take the cosine rather than the inner product; 0 if a
            gradient or step is 0.
        reduce: "mean" over targets, or None.
        chunk_size: Samples whose steps `[P]` are in memory at once.

    Returns:
        Inner products or cosines, `[t, n]`, or `[1, n]` if reduced.
    """

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.losses(recipe.apply(params, x[None]), y[None])[0]

    def measured(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return recipe.measure(output, recipe.apply(params, x[None]), y[None])[0]

    def flat(tree: Any) -> jax.Array:
        vector = ravel_pytree(tree)[0]
        return _unit(vector) if normalise else vector

    def step(x: jax.Array, y: jax.Array) -> jax.Array:
        gradient = jax.grad(loss)(params, x, y)
        if state is None:
            return -flat(gradient)
        return flat(recipe.optimizer.update(gradient, state, params)[0])

    def of_target(target: tuple[jax.Array, jax.Array]) -> jax.Array:
        return flat(jax.grad(measured)(params, *target))

    def of_sample(sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.matmul(targets, step(*sample), precision="highest")

    targets = jax.lax.map(of_target, (x_val, y_val), batch_size=chunk_size)
    if reduce == "mean":
        targets = targets.mean(0, keepdims=True)
    return jax.lax.map(of_sample, (x, y), batch_size=chunk_size).T


def network_tracin(
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    seeds: int = 1,
    checkpoints: int = 5,
    learning_rates: Sequence[float] | Callable[[int], Any] | None = None,
    updates: bool = False,
    normalise: bool = False,
    output: Output = "loss",
    reduce: Literal["mean"] | None = "mean",
    chunk_size: int = 64,
) -> Values:
    """Compare each training sample's steps with the targets' along a training.

    The score of a sample is, with its loss l, the targets' output f and the learning
    rate at each checkpoint of the training,

        score = - sum over checkpoints of rate · ∇fᵀ ∇l.

    With `updates` the optimiser's update on ∇l alone takes the place of -rate ∇l: that
    of Adam has the first and second moments at the checkpoint in it, as in LESS.
    Momentum and weight decay then add the same number to a target's scores of all
    samples, except under `normalise`.

    For checkpoints of a training loop of your own take `match.influence_scores`.

    Args:
        recipe: The model and its training.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the trainings; run s has `fold_in(key, s)`.
        seeds: Number of trainings, in one program, over which scores are averaged.
        checkpoints: Number c of checkpoints: after 1/c, 2/c, ... of the steps.
        learning_rates: The learning rate at each checkpoint, or a schedule: a function
            of the number of steps before. 1 if None. With `updates`, which have the
            rates in them, for `normalise` only.
        updates: Whether to take the optimiser's updates instead of gradients.
        normalise: Whether to take cosines instead of inner products. With `updates`
            this is the score of LESS, but for its random projection.
        output: The output of a target: see `Recipe.measure`.
        reduce: "mean" over targets, which costs as much as one target, or None: a row
            for each target.
        chunk_size: Samples whose gradients `[P]` are in memory at once; it changes
            speed and memory only.

    Returns:
        `Values`, `[n]` or `[t, n]`, in units of the output (nats of the loss) for a
        step on the sample alone at each checkpoint; without unit for cosines. Means
        over the trainings, whose number is `count`; `stderr` is the standard error
        between them, None for one.

    Costs the trainings and, for each checkpoint and training, a forward and a backward
    pass over samples and targets, and `n t P` multiplications. Memory holds parameters
    and optimiser state of all checkpoints, and the targets' gradients, `t P`.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, the model keeps
            statistics or draws, there are more checkpoints than steps, rates come with
            updates that have theirs, or a training ends in NaN.

    References:
        G. Pruthi et al., Estimating training data influence by tracing gradient
        descent, NeurIPS 2020, section 3.2 (TracInCP); M. Xia et al., LESS: selecting
        influential data for targeted instruction tuning, ICML 2024, section 3.
    """
    check_recipe(recipe)
    samples = recipe.check(x, y, x_val, y_val)
    recipe.check_output(output, samples.y)
    check_choice("reduce", reduce, ("mean", None))
    check_choice("updates", updates, (True, False))
    check_choice("normalise", normalise, (True, False))
    check_count("seeds", seeds)
    check_count("chunk_size", chunk_size)
    arrays = samples.x, samples.y, samples.x_val, samples.y_val
    steps = recipe.steps(len(samples.x))
    check_count("checkpoints", checkpoints, maximum=steps)
    stops = steps * np.arange(1, checkpoints + 1, dtype=np.int32) // checkpoints
    if updates and not normalise and learning_rates is not None:
        raise ValueError(
            "learning_rates must be None with updates=True, unless normalise=True: "
            f"updates have the optimizer's rates in them, got {learning_rates!r}"
        )
    kind = samples.x.dtype if samples.x.dtype == jnp.float64 else jnp.float32
    rates = jnp.asarray(_rates(learning_rates, stops), kind)
    trained, states = train_checkpoints(
        recipe, *arrays[:2], key, jnp.asarray(stops), seeds=seeds
    )
    scores = _sum_terms(
        recipe,
        trained,
        states if updates else None,
        arrays,
        rates,
        output=output,
        normalise=bool(normalise),
        reduce=reduce,
        chunk_size=chunk_size,
    )
    for run in range(seeds):
        last = tree_map(lambda leaf, run=run: leaf[run, -1], trained)
        check_trained(recipe, samples, run, last)
        samples.check_finite(f"run {run}", scores[run])
    name = name_of_output(output)
    return over_seeds(
        np.asarray(scores, np.float64),
        reduce=reduce,
        dtype=samples.x.dtype,
        method=f"network_tracin(checkpoints={checkpoints}, updates={updates}, "
        f"normalise={normalise}, output={name}, networks={seeds})",
        index=samples.row_labels,
    )


@jit(static_argnames=("recipe", "output", "normalise", "reduce", "chunk_size"))
def _sum_terms(
    recipe: Recipe,
    trained: Any,
    states: Any,
    arrays: tuple[jax.Array, ...],
    rates: jax.Array,
    *,
    output: Output,
    normalise: bool,
    reduce: Literal["mean"] | None,
    chunk_size: int,
) -> jax.Array:
    """Sum terms over checkpoints, from leaves `[seeds, c, ...]` to `[seeds, r, n]`."""

    def of_checkpoint(checkpoint: tuple[Any, Any, jax.Array]) -> jax.Array:
        params, state, rate = checkpoint
        term = tracin_term(
            recipe,
            params,
            *arrays,
            state=state,
            output=output,
            normalise=normalise,
            reduce=reduce,
            chunk_size=chunk_size,
        )
        return rate.astype(term.dtype) * term

    def of_run(run: tuple[Any, Any]) -> jax.Array:
        return jax.lax.map(of_checkpoint, (*run, rates)).sum(0)

    return jax.lax.map(of_run, (trained, states))


def _unit(vector: jax.Array) -> jax.Array:
    length = jnp.linalg.norm(vector)
    return vector / jnp.where(length > 0, length, 1)


def _rates(learning_rates: Any, stops: np.ndarray) -> np.ndarray:
    """Return the rate at each checkpoint, of which `stops` has the steps."""
    if learning_rates is None:
        return np.ones(len(stops))
    if callable(learning_rates):
        learning_rates = [learning_rates(int(stop) - 1) for stop in stops]
    try:
        rates = np.asarray(learning_rates, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "learning_rates must be numbers, one a checkpoint, or a schedule, got "
            f"{learning_rates!r}"
        ) from error
    if rates.shape != stops.shape or not np.isfinite(rates).all():
        raise ValueError(
            f"learning_rates must be {len(stops)} finite numbers, one a checkpoint, "
            f"got {learning_rates!r}"
        )
    return rates
