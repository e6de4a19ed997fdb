"""G-Shapley: marginals from the steps of one pass of gradient descent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int32, Integer, Key

from jaxsel._devices.mesh import AXIS, along, gather, n_shards, shard
from jaxsel._devices.typed import clone_key, grad, jit, tree_map
from jaxsel._inputs.alignment import align, row_index
from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_finite,
    check_numeric,
    check_positive,
)
from jaxsel._results.types import Values
from jaxsel._runs.fingerprint import plain_repr

from ._estimator import Batch, Moments, Part, State, honest_m2, moments, no_samples
from ._evaluator import batch_rows, check_key, describe, describe_data
from ._examples import Examples
from ._learners import FlaxLearner, LogisticRegression
from ._metrics import SCORERS, MetricName, chance_level, measured, predicted
from ._rates import TRIED, choose_rate, marginals
from ._run import run
from ._run_options import SampleOptions, run_options
from ._sampling import order_of, permutation_ranks
from ._stopping import MaxSamples, StoppingRule
from ._utility import examples

_LANES = 256


@run_options(SampleOptions)
def g_shapley(
    learner: LogisticRegression | FlaxLearner,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    metric: MetricName = "accuracy",
    learning_rate: float | None = None,
    stop: StoppingRule = MaxSamples(1000),
    **options: Unpack[SampleOptions],
) -> Values:
    """Value training points by the gains of their gradient steps in one pass.

    Each sample is a pass over all points in a random order, with one step of gradient
    descent for each point. The value of a point is the mean change of the metric in its
    step. This is much cheaper than retraining, but answers another question: it values
    points for a model trained by one pass, in which early steps count for more.

    Args:
        learner: `LogisticRegression`, whose features are then standardised and whose
            penalty is not used; or a `FlaxLearner`, of which the model and the loss
            are used.
        x: Training features, `[n, d]`; `[n, ...]` for `FlaxLearner`.
        y: Training labels, `[n]`; targets with metric "r2".
        x_val: Validation features.
        y_val: Validation labels.
        key: Draws the permutations and initial weights. Sample t depends on the key and
            t alone.
        metric: As of `ModelUtility`.
        learning_rate: Of each step. If None, 32 passes, drawn by the key, are made at
            each of the rates 1, 0.32, 0.1, ..., 1e-4. Among the rates that gain at
            least half of what the best one gains over chance, it takes the one whose
            values differ most reliably between points of one class: with the smallest
            share of sampling error in their variance. (Ghorbani and Zou take the rate
            after which a pass ends best. For a linear model this is often a tiny rate,
            whose values are mostly noise.) The search uses neither test data nor
            knowledge of wrong labels.
        stop: When to stop, asked after every 256 permutations.
        **options: Batches, devices, checkpoint and executor: see `RunOptions`.

    Returns:
        `Values`, `[n]`; `count` is the number of permutations, and `stderr` as of
        `tmc_shapley`. A step costs one
        gradient and one forward pass over the validation points.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes do not fit, numbers are not finite, no rate gives finite
            metrics, or the folder holds another run.

    References:
        Ghorbani and Zou, Data Shapley: equitable valuation of data for machine
        learning, ICML 2019, Algorithm 2.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> values = jaxsel.g_shapley(
        ...     value.LogisticRegression(),
        ...     x,
        ...     y,
        ...     x_val,
        ...     y_val,
        ...     key=jax.random.key(0),
        ...     metric="likelihood",
        ...     stop=value.MaxSamples(256),
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    check_choice("metric", metric, list(SCORERS))
    if learning_rate is not None:
        check_positive("learning_rate", learning_rate)
    work = _Passes(
        learner,
        (x, y, x_val, y_val),
        key,
        metric=metric,
        learning_rate=learning_rate,
        options=options,
    )
    method = (
        f"g_shapley(learner={plain_repr(learner)}, metric={metric!r}, "
        f"learning_rate={work.learning_rate:g})"
    )
    return run(_Steps(method=method), work, stop, options)


class _Passes:
    """A model and data for passes of gradient descent."""

    failures = None  # metrics that are not finite are refused

    def __init__(
        self,
        learner: LogisticRegression | FlaxLearner,
        arrays: tuple[npt.ArrayLike, ...],
        key: jax.Array,
        *,
        metric: MetricName,
        learning_rate: float | None,
        options: Mapping[str, Any],
    ):
        mesh = along(options["mesh"], options["axis"])
        if not isinstance(learner, (LogisticRegression, FlaxLearner)):
            raise TypeError(
                "learner must be a LogisticRegression or a FlaxLearner, which are "
                f"trained by gradients, got {learner!r}"
            )
        x, y, x_val, y_val = arrays
        arrays = x, y, align(x, y, x_val, y_val), y_val
        self.index = row_index(x)
        if isinstance(learner, LogisticRegression):
            # Its own preparation is for Newton's method.
            arrays = _standardised(*arrays)
        data, (x_val, codes) = examples(learner, *arrays, targets=metric == "r2")
        self._data = dataclasses.replace(data, extra=None)
        self._val = x_val, jnp.asarray(codes)
        self.n, self.mesh, self._learner, self._metric = (
            len(data.y),
            mesh,
            learner,
            metric,
        )
        self.key, self._own, tried = jax.random.split(check_key(key), 3)
        self.rows = batch_rows(options["batch_size"], self.n, _LANES)
        if mesh is not None:
            self.rows = -(-self.rows // n_shards(mesh)) * n_shards(mesh)
        self._given = describe(self.n, key)
        if learning_rate is None:
            learning_rate = self._tried(
                permutation_ranks(tried, 0, count=TRIED, n=self.n)
            )
        self.learning_rate = learning_rate

    @property
    def about(self) -> dict[str, str]:
        """Fields that identify this work, by name: learner, data, n and the key."""
        x_val, y_val = self._val
        data = describe_data(
            self._learner, x=self._data.x, y=self._data.y, x_val=x_val, y_val=y_val
        )
        return {**data, "classes": str(self._data.n_classes), **self._given}

    def __call__(self, first: int) -> np.ndarray:
        """Return each point's marginal in each permutation, `[rows, n]` float64."""
        ranks = permutation_ranks(self.key, first, count=self.rows, n=self.n)
        metrics = gather(self._pass(shard(ranks, self.mesh), self.learning_rate))
        metrics = np.asarray(metrics, np.float64)
        if not np.isfinite(metrics).all():
            raise ValueError(
                f"learning_rate must be small enough for finite metrics, got "
                f"{self.learning_rate:g}"
            )
        return marginals(metrics, np.asarray(ranks))

    def _pass(self, ranks: jax.Array, rate: float) -> jax.Array:
        key = clone_key(self._own)
        static = self._learner, self._metric, self.mesh
        return _passes(*static, self._data, *self._val, ranks, key, rate)

    def _tried(self, ranks: jax.Array) -> float:
        classes = self._data.n_classes
        groups = np.asarray(self._data.y) if classes else np.zeros(self.n, int)
        chance = chance_level(self._metric, classes)
        mesh, self.mesh = self.mesh, None

        def passes(rate: float) -> np.ndarray:
            return np.asarray(self._pass(ranks, rate))

        rate = choose_rate(passes, np.asarray(ranks), groups, chance)
        self.mesh = mesh
        return rate


@dataclasses.dataclass(frozen=True)
class _Steps:
    """The mean of the changes of a metric in each point's step."""

    method: str
    round: int = _LANES

    def init(self, work: _Passes) -> State:
        return no_samples(work.n)

    def rows(self, work: _Passes, count: int) -> int:
        return work.rows

    def sample(self, work: _Passes, state: State, batch: Batch) -> Iterator[Part]:
        yield Part(batch.used, moments(work(batch.first)[: batch.used]))

    def finalize(self, state: State) -> Moments:
        return int(state["count"]), state["mean"], honest_m2(state, 0.0)


@jit(static_argnames=("learner", "metric", "mesh"))
def _passes(
    learner: Any,
    metric: str,
    mesh: jax.sharding.Mesh | None,
    data: Examples,
    x_val: jax.Array,
    y_val: jax.Array,
    ranks: jax.Array,
    key: jax.Array,
    rate: jax.Array | float,
) -> jax.Array:
    linear = isinstance(learner, LogisticRegression)
    passes = partial(linear_passes if linear else _model_passes, learner, metric)
    if mesh is not None:
        lanes = jax.P(AXIS)
        passes = jax.shard_map(
            passes,
            mesh=mesh,
            in_specs=(jax.P(), jax.P(), jax.P(), lanes, jax.P(), jax.P()),
            out_specs=lanes,
            check_vma=False,
        )
    return passes(data, x_val, y_val, ranks, key, rate)


def linear_passes(
    learner: LogisticRegression,
    metric: str,
    data: Examples,
    x_val: Float[jax.Array, "m d"],
    y_val: Integer[jax.Array, " m"],
    ranks: Int32[jax.Array, "P n"],
    key: Key[jax.Array, ""],
    rate: Float[jax.Array, ""] | float,
) -> Float[jax.Array, "P n+1"]:
    """Return the metric before and after each step of logistic regression.

    The first entry, of a model without data, is the metric's chance level.

    Args:
        learner: Not used.
        metric: Name of a metric.
        data: Standardised features and classes.
        x_val: `[m, d]`.
        y_val: `[m]`.
        ranks: Place of each point in each permutation, `[P, n]`.
        key: Not used: weights start at zero.
        rate: The learning rate.

    Returns:
        `[P, n + 1]`.
    """
    del learner, key
    two = data.n_classes == 2
    x, x_val = _with_ones(data.x), _with_ones(x_val)
    onehot = jax.nn.one_hot(data.y, data.n_classes, dtype=x.dtype)
    targets = onehot[:, 1:] if two else onehot
    order = order_of(ranks)

    # Permutations come last, where they lie side by side.
    def step(theta: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        points = x[rows].T[:, None]  # [p, 1, P]
        z = jnp.sum(theta * points, axis=0)
        p = jax.nn.sigmoid(z) if two else jax.nn.softmax(z, axis=0)
        theta = theta - rate * (p - targets[rows].T)[None] * points
        flat = theta.reshape(len(theta), -1)
        scores = jnp.matmul(x_val, flat, precision="highest")
        scores = scores.reshape(len(x_val), *theta.shape[1:])
        if two:
            scores = jnp.concatenate([jnp.zeros_like(scores), scores], axis=1)
        if metric == "accuracy":  # three times as fast as with permutations first
            right = predicted(scores, axis=1) == y_val[:, None]
            return theta, jnp.mean(right, axis=0)
        return theta, SCORERS[metric](scores.transpose(2, 0, 1), y_val)

    start = jnp.zeros((x.shape[1], targets.shape[1], len(ranks)), x.dtype)
    _, metrics = jax.lax.scan(step, start, order.T)
    before = jnp.full(
        (1, len(ranks)), chance_level(metric, data.n_classes), metrics.dtype
    )
    return jnp.concatenate([before, metrics]).T


def _with_ones(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, jnp.ones((len(x), 1), x.dtype)], axis=1)


def _model_passes(
    learner: FlaxLearner,
    metric: str,
    data: Examples,
    x_val: jax.Array,
    y_val: jax.Array,
    ranks: jax.Array,
    key: jax.Array,
    rate: jax.Array,
) -> jax.Array:
    order = order_of(ranks)
    start = learner.init(key, data.x[:1])

    def one_pass(order: jax.Array) -> jax.Array:
        def score(params: Any) -> jax.Array:
            return measured(metric, learner.apply(params, x_val)[None], y_val)[0]

        def step(params: Any, row: jax.Array) -> tuple[Any, jax.Array]:
            def loss(params: Any) -> jax.Array:
                outputs = learner.apply(params, data.x[row][None])
                return learner.losses(outputs, data.y[row][None], data.n_classes)[0]

            grads = grad(loss)(params)
            params = tree_map(lambda p, g: p - rate * g, params, grads)
            return params, score(params)

        _, scores = jax.lax.scan(step, start, order)
        return jnp.append(score(start), scores)

    return jax.vmap(one_pass)(order)


def _standardised(
    x: npt.ArrayLike, y: npt.ArrayLike, x_val: npt.ArrayLike, y_val: npt.ArrayLike
) -> tuple[npt.ArrayLike, ...]:
    x, x_val = as_array("x", x), as_array("x_val", x_val)
    for name, array in (("x", x), ("x_val", x_val)):
        check_numeric(name, array)
        check_finite(name, array)  # before one row spoils the mean of all
    x, x_val = np.asarray(x, np.float64), np.asarray(x_val, np.float64)
    if x.ndim == 2 and x_val.shape[1:] == x.shape[1:]:  # else refused as they are
        deviation = x.std(0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        x, x_val = (x - x.mean(0)) / deviation, (x_val - x.mean(0)) / deviation
    return x, y, x_val, y_val
