"""Networks of several seeds, trained in one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import fori_loop, jit, tree_map
from jaxsel._inputs.usual_mistakes import doubt

from ._inputs import Samples
from ._recipe import Recipe, TrainingPlan, widened

_ROWS = 1000  # about, on which a network is judged
_MEMBERS = 2**31 - 3  # folded into the key of a run


def trained_networks(
    recipe: Recipe,
    samples: Samples,
    key: jax.Array | None,
    seeds: int,
    params: Sequence[Any] | None = None,
    *,
    size: int | None = None,
) -> Any:
    """Train networks, or take those that a caller has, and check that they are finite.

    Args:
        recipe: The model and its training.
        samples: Checked samples.
        key: Key of the trainings; run s has `fold_in(key, s)`.
        seeds: Number of networks.
        params: Networks of the caller, or None to train.
        size: Samples that each network is trained on, at random; all if None.

    Returns:
        The parameters, each leaf with a leading axis, one entry a network.

    Raises:
        TypeError: If `params` is no sequence.
        ValueError: If shapes do not fit, there is no key to train by, or a training
            ends in NaN.
    """
    x, y = samples.x, samples.y
    if params is not None:
        trained = _stacked(recipe, x, params)
    elif key is None:
        raise ValueError("key must be given without params, got None")
    else:
        size = None if size == len(x) else size
        trained = _train(recipe, x, y, key, seeds=seeds, size=size)
    for run in range(len(jax.tree.leaves(trained)[0])):
        network = tree_map(lambda leaf, run=run: leaf[run], trained)
        if params is None:
            check_trained(recipe, samples, run, network)
        else:
            samples.check_finite(f"run {run}", network)
    return trained


def check_trained(recipe: Recipe, samples: Samples, run: int, network: Any) -> None:
    """Check the network of a run, which the messages name.

    Raises:
        ValueError: If it is not finite.

    Warns:
        UserWarning: If it predicts training labels worse than the labels' shares do.
    """
    samples.check_finite(f"run {run}", network)
    if recipe.loss is not None or not jnp.issubdtype(samples.y.dtype, jnp.integer):
        return
    rows = slice(None, None, max(len(samples.y) // _ROWS, 1))
    x, y = samples.x[rows], samples.y[rows]
    loss = float(_mean_loss(recipe, network, x, y))
    shares = np.bincount(y) / len(y)
    constant = -float(np.sum(shares * np.log(np.where(shares > 0, shares, 1))))
    if loss > constant:
        doubt(
            f"run {run} of the recipe ended at a mean training loss of {loss:.3g}, "
            f"above that of the classes' shares, {constant:.3g}: attributions of a "
            "network that predicts worse than a constant say little. Train for longer, "
            f"or {samples.advice()}"
        )


@jit(static_argnames="recipe")
def _mean_loss(recipe: Recipe, network: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    def of_one(sample: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, y = sample
        return recipe.losses(recipe.apply(network, x[None]), y[None])[0]

    return jax.lax.map(of_one, (x, y), batch_size=64).mean()


@jit(static_argnames=("recipe", "seeds", "size"))
def _train(
    recipe: Recipe,
    x: jax.Array,
    y: jax.Array,
    key: jax.Array,
    *,
    seeds: int,
    size: int | None,
) -> Any:
    plans = _plans(recipe, x, key, seeds, size)
    return jax.vmap(lambda plan: recipe.follow(plan, x, y))(plans)


@jit(static_argnames=("recipe", "seeds"))
def train_checkpoints(
    recipe: Recipe,
    x: jax.Array,
    y: jax.Array,
    key: jax.Array,
    stops: jax.Array,
    *,
    seeds: int,
) -> tuple[Any, Any]:
    """Return parameters and optimiser states at some steps of each run.

    Args:
        recipe: The model and its training.
        x: Training samples, `[n, ...]`.
        y: Labels or targets, `[n]`.
        key: Key of the trainings; run s has `fold_in(key, s)`.
        stops: Numbers of steps, `[c]`, rising.
        seeds: Number of runs.

    Returns:
        Each leaf with leading axes `[seeds, c]`.
    """
    starts = jnp.concatenate([jnp.zeros_like(stops[:1]), stops[:-1]])

    def of_run(plan: TrainingPlan) -> tuple[Any, Any]:
        def step(s: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            return recipe.step(*carry, x, y, plan.rows[s], plan.shares[s])

        def segment(carry: tuple[Any, Any], ends: Any) -> tuple[Any, Any]:
            start, stop = ends
            carry = fori_loop(start, stop, step, carry)
            return carry, carry

        begin = plan.params, recipe.optimizer.init(plan.params)
        return jax.lax.scan(segment, begin, (starts, stops))[1]

    return jax.vmap(of_run)(_plans(recipe, x, key, seeds, None))


def _plans(
    recipe: Recipe, x: jax.Array, key: jax.Array, seeds: int, size: int | None
) -> TrainingPlan:
    def plan(key: jax.Array) -> TrainingPlan:
        if size is None:
            return recipe.plan(key, x)
        draw = jax.random.fold_in(key, _MEMBERS)
        return recipe.plan(key, x, jax.random.permutation(draw, x.shape[0])[:size])

    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(seeds))
    return jax.lax.map(plan, keys)


def _stacked(recipe: Recipe, x: jax.Array, params: Sequence[Any]) -> Any:
    if not isinstance(params, Sequence) or not params:
        raise TypeError(
            f"params must be a sequence of one network or more, got {type(params)}"
        )
    wanted = jax.eval_shape(lambda: recipe.init(jax.random.key(0), x))
    shapes = lambda tree: [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
    for run, network in enumerate(params):
        if shapes(network) != shapes(wanted):
            raise ValueError(
                f"params[{run}] must have arrays of shapes {shapes(wanted)}, as the "
                f"model does, got {shapes(network)}"
            )
    structure = jax.tree.structure(wanted)
    leaves = [map(jnp.asarray, jax.tree.leaves(network)) for network in params]
    stacked = [jnp.stack(same) for same in zip(*leaves, strict=True)]
    trained = jax.tree.unflatten(structure, stacked)
    return widened(trained) if x.dtype == jnp.float64 else trained
