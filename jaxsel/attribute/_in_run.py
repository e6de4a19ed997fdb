"""In-run Data Shapley: the values of samples, counted while a model trains."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsel._devices.typed import tree_map
from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.parameters import Loss, check_examples
from jaxsel._results.types import Reduce, Values
from jaxsel._runs.fingerprint import fingerprint, sampled

from ._in_run_follow import followed
from ._in_run_kernel import Order
from ._in_run_recorder import InRun, InRunState
from ._in_run_rules import Rule, rates_of


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class InRunTraining:
    """A trained model, and the values of the samples that it was trained on.

    Attributes:
        params: Parameters after the last step.
        values: The samples' `Values`.
    """

    params: Any
    values: Values

    def __repr__(self) -> str:
        return f"InRunTraining({self.values!r})"


def in_run_shapley(
    loss: Loss,
    params: Any,
    examples: Any,
    targets: Any,
    *,
    optimizer: Rule,
    key: jax.Array,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int = 64,
    order: Order = 1,
    follow: bool = False,
    reduce: Reduce = "mean",
) -> InRunTraining:
    """Train a model once, and value each sample by the effect of its gradients.

    At each step the batch is a game: a target's loss falls by what the examples present
    contribute to the step. Its Shapley values have a closed form (`in_run_step`), and
    their sums over all steps are the values. A positive one lowered the loss. They
    describe this run: another seed gives others, so average several. For a training
    loop of your own take `InRun`, which also says how momentum and Adam count.

    Each step takes the next examples of one shuffled pass after the other. Costs one
    training, and for each step a forward and backward pass over the targets and inner
    products of layers' factors, or, with Adam or parameters that `gradients.ghost`
    refuses, a forward-mode pass over the batch for each target.

    Args:
        loss: `loss(params, example) -> scalar`, as for `in_run_step`: the same function
            for examples and targets, without dropout or statistics over a batch.
        params: Parameters to start from, any pytree.
        examples: Training samples, a pytree of arrays `[n, ...]`.
        targets: Validation samples, a pytree of arrays `[targets, ...]`.
        optimizer: `Sgd` or `Adam`.
        key: Key of the order of examples.
        epochs: How often each example is seen; this or `steps`.
        steps: Number of steps.
        batch_size: Examples in a step.
        order: 1, or 2 with the interactions within a batch.
        follow: Whether to follow each gradient through the updates that momentum
            carries it to, with the target's gradient and the preconditioner of each,
            rather than to count all at its own step. It takes a second pass, backwards,
            and a forward-mode pass over the batch for each target and step. Memory:
            about 2 sqrt(steps) times parameters and optimizer, and `targets` times the
            parameters. For high rates with momentum, and Adam.
        reduce: "mean" over targets, with its standard error; None for a row each.

    Returns:
        The parameters, and `Values` `[n]`, or `[targets, n]` with `reduce=None`, in the
        units of the loss. Memory: `n * targets` numbers.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If one is out of range, layers are in training mode, or the loss of
            a step was not finite: the message names the step.

    References:
        Wang, Mittal, Song, Jia, "Data Shapley in One Training Run", ICLR 2025,
        arXiv:2406.11011, Theorems 3 and 4.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jaxsel import attribute
        >>> def loss(w, example):
        ...     x, y = example
        ...     return jnp.logaddexp(0.0, -y * (x @ w))
        >>> x = jnp.array([[1.0, 0.0], [0.9, 0.1], [1.1, 0.0], [-1.0, 0.2]])
        >>> y = jnp.array([1.0, -1.0, 1.0, -1.0])  # row 1 is wrong
        >>> trained = attribute.in_run_shapley(
        ...     loss, jnp.zeros(2), (x, y), (x[:1], y[:1]), batch_size=2, epochs=5,
        ...     optimizer=attribute.Sgd(0.1, momentum=0.9), key=jax.random.key(0),
        ... )
        >>> print(trained.values.bottom(1))
        [1]
    """
    examples, targets = check_examples(examples), check_examples(targets)
    n = jax.tree.leaves(examples)[0].shape[0]
    if check_count("batch_size", batch_size) > n:
        raise ValueError(
            f"batch_size must be at most the {n} examples, got {batch_size}"
        )
    if (epochs is None) == (steps is None):
        raise ValueError(
            f"give either epochs or steps, got epochs={epochs}, steps={steps}"
        )
    if steps is None:
        steps = math.ceil(check_positive("epochs", epochs) * n / batch_size)
    steps = check_count("steps", steps)
    if follow and order != 1:
        raise ValueError(f"order must be 1 with follow=True, got {order}")
    recorder = InRun(
        loss,
        targets,
        n,
        optimizer=optimizer,
        steps=steps,
        order=order,
        examples=examples,
    )
    recorder.check(params)  # what the loss can't do, before anything is compiled
    passes = -(-steps * batch_size // n)
    rows = _rows(key, n, passes)[: steps * batch_size].reshape(steps, batch_size)
    setting = _Setting(loss, optimizer, steps, order)
    if follow:
        rates = rates_of(optimizer.learning_rate, steps)
        trained, totals = _follow(
            setting, params, examples, targets, rows, jnp.asarray(rates, jnp.float32)
        )
        state = InRunState(totals, jnp.int32(steps), jnp.int32(-1), None)
    else:
        trained, state = _run(setting, params, examples, targets, rows)
    data = [sampled(leaf) for leaf in jax.tree.leaves(examples)]
    start = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    tag = fingerprint(data, start, np.asarray(jax.random.key_data(key)), batch_size)
    values = recorder.finish(state, reduce=reduce, run_tag=tag)
    if follow:
        values = dataclasses.replace(values, method=values.method[:-1] + ", follow)")
    return InRunTraining(params=trained, values=values)


@dataclasses.dataclass(frozen=True)
class _Setting:
    loss: Loss
    optimizer: Rule
    steps: int
    order: Order


@functools.partial(jax.jit, static_argnums=(1, 2))
def _rows(key: jax.Array, n: int, passes: int) -> jax.Array:
    """Return one shuffled pass after the other, `[passes * n]`."""
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(passes))
    return jax.vmap(lambda key: jax.random.permutation(key, n))(keys).reshape(-1)


@functools.partial(jax.jit, static_argnums=0)
def _run(
    setting: _Setting, params: Any, examples: Any, targets: Any, rows: jax.Array
) -> tuple[Any, InRunState]:
    n = jax.tree.leaves(examples)[0].shape[0]
    recorder = InRun(
        setting.loss,
        targets,
        n,
        optimizer=setting.optimizer,
        steps=setting.steps,
        order=setting.order,
        examples=examples,
    )
    optimizer = setting.optimizer.optimizer()

    def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
        params, opt_state, state = carry
        batch = tree_map(lambda leaf: leaf[rows], examples)
        gradient, state = recorder.step(state, params, opt_state, batch, rows)
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, state), None

    begin = params, optimizer.init(params), recorder.init(params)
    (params, _, state), _ = jax.lax.scan(step, begin, rows)
    return params, state


@functools.partial(jax.jit, static_argnums=0)
def _follow(
    setting: _Setting,
    params: Any,
    examples: Any,
    targets: Any,
    rows: jax.Array,
    rates: jax.Array,
) -> tuple[Any, jax.Array]:
    return followed(
        setting.loss,
        setting.optimizer,
        params,
        examples,
        targets,
        rows,
        rates,
        math.isqrt(setting.steps),
    )
