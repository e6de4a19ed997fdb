"""Trainings of set-up A, on halves and whole: peers in JAX and in torch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel import tasks
from jaxsel.attribute import Recipe
from jaxsel.attribute._recipe import TrainingPlan
from jaxsel.tasks._subsets import _OTHER_SEEDS

from ._setups import Data, recipe_of, subsets

Call = Callable[[], Any]

Draw = tuple[jax.Array, jax.Array]
"""Key and samples of a run."""

RECIPE: Recipe = recipe_of("A")


def on_one_core(make: Callable[..., Call]) -> Callable[..., Call]:
    """Keep a call's threads on one core.

    JAX dispatches a step while another thread still computes the one before, so that a
    loop of steps takes 1.4 cores.
    """

    @functools.wraps(make)
    def made(*args: Any) -> Call:
        call, cores = make(*args), os.sched_getaffinity(0)

        def pinned() -> Any:
            try:
                _pin({min(cores)})
                return call()
            finally:
                _pin(cores)

        return pinned

    return made


def _pin(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


def halves(data: Data, count: int) -> np.ndarray:
    """Return the masks of the first halves, `[count, n]`."""
    n = len(data.x)
    return subsets(n // 2, n=n)[:count]


def draws_of_halves(data: Data, count: int) -> list[Draw]:
    """Return the keys and samples of the runs that `one_program` makes."""
    key = jax.random.fold_in(jax.random.key(0), _OTHER_SEEDS)
    keys = [jax.random.fold_in(jax.random.fold_in(key, i), 0) for i in range(count)]
    rows = [jnp.asarray(np.flatnonzero(mask)) for mask in halves(data, count)]
    return list(zip(keys, rows, strict=True))


def plans_of_halves(data: Data, count: int) -> list[TrainingPlan]:
    """Return the same runs, with their starts and orders."""
    x = jnp.asarray(data.x)
    return [RECIPE.plan(key, x, rows) for key, rows in draws_of_halves(data, count)]


def whole_plans(data: Data, count: int) -> list[TrainingPlan]:
    """Return runs on all samples."""
    keys = jax.random.split(jax.random.key(0), count)
    return [RECIPE.plan(key, jnp.asarray(data.x)) for key in keys]


@on_one_core
def one_program(data: Data, count: int) -> Call:
    """Train on halves by the public function."""
    masks, key = halves(data, count), jax.random.key(0)

    def call() -> np.ndarray:
        runs = tasks.retrain_subsets(RECIPE, *data, key=key, subsets=masks, seeds=1)
        return runs.outputs[:, 0]

    return call


def loop_of_runs(data: Data, plans: Sequence[TrainingPlan]) -> Call:
    """Call a compiled training for each run."""
    arrays = [jnp.asarray(a) for a in data]

    @jax.jit
    def outputs(plan: TrainingPlan) -> jax.Array:
        return _measure(RECIPE.follow(plan, *arrays[:2]), arrays)

    return lambda: np.stack([np.asarray(outputs(plan)) for plan in plans])


@on_one_core
def loop_of_steps(data: Data, draws: Sequence[Draw]) -> Call:
    """Call a compiled step for each batch of each run, as training code does.

    Starts and orders are drawn in the call, as in `one_program`, and batches are rows
    of NumPy's.
    """
    arrays = [jnp.asarray(a) for a in data]
    x, y = arrays[:2]
    draw = jax.jit(RECIPE.plan)

    @jax.jit
    def step(params: Any, state: Any, rows: jax.Array, shares: jax.Array) -> Any:
        return RECIPE.step(params, state, x, y, rows, shares)

    @jax.jit
    def outputs(params: Any) -> jax.Array:
        return _measure(params, arrays)

    def run(key: jax.Array, members: jax.Array) -> np.ndarray:
        plan = draw(key, x, members)
        params, state = plan.params, RECIPE.optimizer.init(plan.params)
        shares = plan.shares[0]  # all batches are full
        for rows in np.asarray(plan.rows):
            params, state = step(params, state, rows, shares)
        return np.asarray(outputs(params))

    return lambda: np.stack([run(*pair) for pair in draws])


@on_one_core
def loop_in_torch(data: Data, plans: Sequence[TrainingPlan]) -> Call:
    """Train a torch module in each run, from the same start in the same order."""
    import torch

    x, y, x_val, y_val = map(torch.as_tensor, data)
    loss = torch.nn.functional.cross_entropy

    def layer(weights: np.ndarray) -> torch.nn.Linear:
        linear = torch.nn.Linear(len(weights) - 1, weights.shape[1])
        linear.weight.data = torch.as_tensor(weights[:-1].T.copy())
        linear.bias.data = torch.as_tensor(weights[-1].copy())
        return linear

    def run(start: list[np.ndarray], batches: list[Any]) -> np.ndarray:
        first, last = map(layer, start)
        net = torch.nn.Sequential(first, torch.nn.ReLU(), last)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for rows in batches:
            optimizer.zero_grad()
            loss(net(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            return -loss(net(x_val), y_val, reduction="none").numpy()

    starts = [[np.array(w) for w in plan.params] for plan in plans]
    batches = [list(torch.as_tensor(np.array(plan.rows))) for plan in plans]
    runs = list(zip(starts, batches, strict=True))
    return lambda: np.stack([run(*pair) for pair in runs])


def _measure(params: Any, arrays: Sequence[jax.Array]) -> jax.Array:
    return RECIPE.measure("loss", RECIPE.apply(params, arrays[2]), arrays[3])
