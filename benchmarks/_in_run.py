"""Set-up A of the benchmark of in-run values, and its measure by retraining.

scikit-learn's digits, 1,000 for training; a network 64-32-10 with ReLU and torch's
initial weights; SGD of rate .1 and momentum .9, batches of 50, 30 epochs, no decay.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy import stats

from jaxsel import attribute
from jaxsel.attribute._in_run import InRunTraining

Call = Callable[[], Any]

SGD = attribute.Sgd(0.1, momentum=0.9)
ADAM = attribute.Adam(1e-3)
_BATCH = 50


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """Data and the order of a run. Compared by identity.

    Attributes:
        examples: Pixels `[n, 64]` and labels `[n]`.
        targets: The same of the targets.
        params: Initial ones.
        rows: Rows of each step, `[steps, 50]`.
    """

    examples: tuple[jax.Array, jax.Array]
    targets: tuple[jax.Array, jax.Array]
    params: Any
    rows: jax.Array


def setup(n: int, targets: int, epochs: int) -> Setup:
    """Return set-up A, or a part of it."""
    from sklearn.datasets import load_digits

    digits: Any = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x = jnp.asarray(digits.data[order] / 16, jnp.float32)
    y = jnp.asarray(digits.target[order], jnp.int32)
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.permutation(n) for _ in range(epochs)])
    keys = iter(jax.random.split(jax.random.key(0), 4))

    def uniform(*shape: int, fan_in: int) -> jax.Array:
        bound = fan_in**-0.5
        return jax.random.uniform(next(keys), shape, minval=-bound, maxval=bound)

    params = {
        name: {
            "kernel": uniform(size, out, fan_in=size),
            "bias": uniform(out, fan_in=size),
        }
        for name, size, out in (("first", 64, 32), ("last", 32, 10))
    }
    aims = slice(1000, 1000 + targets)
    rows = jnp.asarray(rows.reshape(-1, _BATCH))
    return Setup((x[:n], y[:n]), (x[aims], y[aims]), params, rows)


def loss(params: Any, example: Any) -> jax.Array:
    """Return the cross-entropy of one example."""
    x, y = example
    hidden = jax.nn.relu(x @ params["first"]["kernel"] + params["first"]["bias"])
    logits = hidden @ params["last"]["kernel"] + params["last"]["bias"]
    return -jax.nn.log_softmax(logits)[y]


def batch_of(task: Setup, rows: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], task.examples)


Step = Callable[[Any, jax.Array], Any]
"""From what a loop carries, and rows, to what it carries next."""


def alone(task: Setup, rule: Any) -> tuple[Any, Step]:
    """Return the start of a training without values, and its step."""
    optimizer = rule.optimizer()

    def mean(params: Any, batch: Any) -> jax.Array:
        return jnp.mean(jax.vmap(loss, (None, 0))(params, batch))

    def step(carry: Any, rows: jax.Array) -> Any:
        params, state = carry
        gradient = jax.grad(mean)(params, batch_of(task, rows))
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    return (task.params, optimizer.init(task.params)), step


def recorded(task: Setup, rule: Any, order: Any = 1) -> tuple[Any, Step]:
    """Return the start of a training with a recorder, and its step."""
    recorder = attribute.InRun(
        loss,
        task.targets,
        len(task.examples[1]),
        optimizer=rule,
        steps=len(task.rows),
        order=order,
        examples=task.examples,
    )
    optimizer = rule.optimizer()

    def step(carry: Any, rows: jax.Array) -> Any:
        params, state, values = carry
        batch = batch_of(task, rows)
        gradient, values = recorder.step(values, params, state, batch, rows)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, values

    begin = task.params, optimizer.init(task.params), recorder.init(task.params)
    return begin, step


def forward_mode(task: Setup, rule: Any) -> tuple[Any, Step]:
    """Return the same by one forward-mode pass for each target, without momentum."""
    begin, train = alone(task, rule)
    rates = jax.tree.map(lambda leaf: jnp.full((), 0.1), task.params)
    values = jnp.zeros((len(task.examples[1]), len(task.targets[1])))

    def step(carry: Any, rows: jax.Array) -> Any:
        run, values = carry
        part = attribute.in_run_step(
            loss, run[0], batch_of(task, rows), task.targets, step=rates
        )
        return train(run, rows), values.at[rows].add(part.T)

    return (begin, values), step


def scanned(task: Setup, start_and_step: tuple[Any, Step]) -> Call:
    """Return the run as one compiled program."""
    begin, step = start_and_step

    @jax.jit
    def run(begin: Any, rows: jax.Array) -> Any:
        return jax.lax.scan(lambda c, r: (step(c, r), None), begin, rows)[0]

    return lambda: run(begin, task.rows)


def stepped(task: Setup, start_and_step: tuple[Any, Step]) -> Call:
    """Return the run as a loop over one compiled step."""
    begin, step = start_and_step
    step, rows = jax.jit(step), [*task.rows]

    def call() -> Any:
        carry = begin
        for batch in rows:
            carry = step(carry, batch)
        return carry

    return call


def followed(task: Setup) -> InRunTraining:
    """Return values with each gradient followed through the momentum, in A's recipe."""
    return attribute.in_run_shapley(
        loss,
        task.params,
        task.examples,
        task.targets,
        optimizer=SGD,
        key=jax.random.key(0),
        steps=len(task.rows),
        batch_size=_BATCH,
        follow=True,
        reduce=None,
    )


@functools.cache
def explicit(task: Setup, order: int) -> np.ndarray:
    """Return A's values `[targets, n]` from gradients and Hessians written out."""
    flat, unravel = ravel_pytree(task.params)
    of = lambda flat, example: loss(unravel(flat), example)
    slopes = jax.vmap(jax.grad(of), (None, 0))
    steps = len(task.rows)
    weights = 0.1 * (1 - 0.9 ** np.arange(steps, 0, -1)) / (1 - 0.9)

    def step(carry: Any, xs: Any) -> tuple[Any, jax.Array]:
        flat, buffer = carry
        rows, weight = xs
        of_batch = slopes(flat, batch_of(task, rows))
        aims = slopes(flat, task.targets)
        if order == 2:
            move = weight * of_batch.mean(0)
            along = lambda t: jax.jvp(lambda w: jax.grad(of)(w, t), (flat,), (move,))
            aims = aims - jax.vmap(lambda t: along(t)[1])(task.targets) / 2
        buffer = 0.9 * buffer + of_batch.mean(0)
        values = weight / _BATCH * of_batch @ aims.T
        return (flat - 0.1 * buffer, buffer), values

    begin = flat, jnp.zeros_like(flat)
    _, parts = jax.lax.scan(step, begin, (task.rows, jnp.asarray(weights, flat.dtype)))
    values = np.zeros((len(task.examples[1]), len(task.targets[1])))
    np.add.at(values, np.asarray(task.rows).ravel(), np.concatenate(np.asarray(parts)))
    return values.T


@functools.cache
def truth(task: Setup, subsets: int) -> tuple[np.ndarray, np.ndarray]:
    """Retrain without 5 % each time, same start and same order.

    Returns:
        Which samples each subset has, `[subsets, n]`, and the negative losses of the
        targets, `[subsets, targets]`.
    """
    n = len(task.examples[1])
    kept = np.zeros((subsets, n), np.float32)
    for i in range(subsets):
        rng = np.random.default_rng(10_000 + i)
        kept[i, rng.choice(n, int(n * 0.95), replace=False)] = 1
    optimizer = SGD.optimizer()

    def weighted(params: Any, rows: jax.Array, weights: jax.Array) -> jax.Array:
        losses = jax.vmap(loss, (None, 0))(params, batch_of(task, rows))
        return jnp.sum(losses * weights[rows]) / _BATCH

    def trained(weights: jax.Array) -> jax.Array:
        def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
            params, state = carry
            gradient = jax.grad(weighted)(params, rows, weights)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        begin = task.params, optimizer.init(task.params)
        (params, _), _ = jax.lax.scan(step, begin, task.rows)
        return -jax.vmap(loss, (None, 0))(params, task.targets)

    return kept, np.asarray(jax.jit(jax.vmap(trained))(jnp.asarray(kept)))


def agreement(task: Setup, values: np.ndarray, subsets: int) -> dict[str, float]:
    """Return the mean LDS of values `[targets, n]`, and its error over targets."""
    kept, outputs = truth(task, subsets)
    sums = kept @ np.asarray(values, np.float64).T
    ranks = [stats.rankdata(a, axis=0) for a in (sums, outputs)]
    ranks = [(a - a.mean(0)) / a.std(0) for a in ranks]
    by_target = (ranks[0] * ranks[1]).mean(0)
    error = by_target.std(ddof=1) / len(by_target) ** 0.5
    return {"LDS": float(by_target.mean()), "error over targets": float(error)}
