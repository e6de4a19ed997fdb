"""Out-of-bag values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.mesh import along, gather, n_shards, replicate, shard
from jaxsel._devices.platform import one_thread_if_small
from jaxsel._devices.typed import clone_key, jit
from jaxsel._inputs.alignment import row_index
from jaxsel._inputs.labels import as_labels
from jaxsel._results.types import Values
from jaxsel._runs.fingerprint import plain_repr

from ._estimator import Batch, Moments, Part, State, honest_m2, no_samples
from ._evaluator import (
    batch_rows,
    check_key,
    describe,
    describe_data,
    paced_rows,
    timed,
)
from ._examples import Examples, Learner, host_workers
from ._failures import NOT_NUMBERS, Failures, failed_rows
from ._model_inputs import as_learner, examples, numbered
from ._run import run
from ._run_options import SampleOptions, run_options
from ._sampling import bootstrap_counts
from ._stopping import MaxSamples, StoppingRule

_BAGS = 256
_HOPELESS = 8  # bags of one call on which a learner may not fail throughout
_ALWAYS = 64  # bags of several calls, likewise


@run_options(SampleOptions)
def data_oob(
    learner: Learner | Any,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    key: jax.Array,
    stop: StoppingRule = MaxSamples(1000),
    **options: Unpack[SampleOptions],
) -> Values:
    """Return how often models that were not trained on a point predict it correctly.

    Each sample is a bag of n points drawn with replacement. A model is trained on the
    bag and predicts the points that are not in it, about n / e. This needs no
    validation data, and about a thousand models whatever n. Points that the others
    contradict, such as wrong labels, have low values.

    Args:
        learner: Such as `LogisticRegression()`, or an estimator of scikit-learn.
        x: Training features, `[n, d]`; `[n, ...]` for `FlaxLearner`.
        y: Training labels `[n]`. Floats are targets where the learner takes these; a
            value is then the mean of the squared errors, negative.
        key: Draws the bags, and is the source of the learner's own key. Bag t depends
            on the key and t alone.
        stop: When to stop: asked after every 256 bags. Samples are bags.
        **options: Batches, devices, checkpoint and executor: see `RunOptions`.

    Returns:
        `Values`, `[n]`, between 0 and 1 for labels. `count`, `[n]`, is the number of
        bags without each point; where it is zero, the value is NaN, and `stderr` where
        it is one. If all of c bags agree, their sample deviation is zero and not
        informative: `stderr` is then 1.5 / c, by the rule of three, and wider than the
        sample deviation says where fewer than eight disagree, as of `tmc_shapley`.
        After `merge` it can be larger by up to a half.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes do not fit, numbers are not finite, or the folder holds
            another run.

    References:
        Kwon and Zou, Data-OOB: out-of-bag estimate as a simple and efficient data
        value, ICML 2023, equation 2.

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> values = jaxsel.data_oob(
        ...     value.KNN(k=3), x, y, key=jax.random.key(0), stop=value.MaxSamples(256)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    work = _Bags(learner, x, y, key, options)
    method = f"data_oob(learner={plain_repr(learner)})"
    estimator = _OutOfBag(method=method, labels=work.data.n_classes > 0)
    return run(estimator, work, stop, options)


class _Bags:
    """A learner with data on which bags are drawn."""

    def __init__(
        self,
        learner: Learner | Any,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        key: jax.Array,
        options: Mapping[str, Any],
    ):
        mesh = along(options["mesh"], options["axis"])
        batch_size = options["batch_size"]
        learner = as_learner(learner)
        self.key, self._own = jax.random.split(check_key(key))
        floats = jnp.issubdtype(np.asarray(as_labels("y", y)).dtype, jnp.floating)
        targets = learner.regression and bool(floats)
        data, _ = examples(learner, x, y, x, y, targets=targets, names=("x", "y"))
        learner = numbered(learner, y, data)
        self.n, self.mesh, self.learner = len(data.y), mesh, learner
        self.index = row_index(x)
        self.rows = batch_rows(batch_size, self.n * max(data.n_classes, 1), _BAGS)
        if mesh is not None:
            self.rows = -(-self.rows // n_shards(mesh)) * n_shards(mesh)
        self._given = describe(self.n, key)
        self.failures = Failures(
            "bags", "which are left out", "which count as what they reached by then"
        )
        self._digests = describe_data(learner, x=data.x, y=data.y)
        self.data = data if learner.host else replicate(data, mesh)
        if learner.host and batch_size is None and mesh is None:
            self.rows = self._paced()

    @property
    def about(self) -> dict[str, str]:
        """Fields that identify this work, by name: learner, data, n and the key."""
        return {**self._digests, "classes": str(self.data.n_classes), **self._given}

    def __call__(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which points are out of each bag, and their scores, `[rows, n]`."""
        bags = bootstrap_counts(self.key, first, count=self.rows, n=self.n)
        key = clone_key(self._own)
        outside = np.asarray(bags) == 0
        if self.learner.host:
            scores, failed = self._on_host(np.asarray(bags), key)
            outside &= ~failed[:, None]
        else:
            bags = shard(bags, self.mesh)
            with one_thread_if_small(self.data.x):
                scores, trained = _compiled(self.learner, self.data, bags, key)
                scores, failed = gather([scores, trained.failed])
            if trained.converged is None:
                self.failures.add(failed, [NOT_NUMBERS] * len(failed))
            self.failures.add_models(trained)
            outside &= ~failed[:, None]
        scores = np.asarray(scores, np.float64)
        if not np.isfinite(scores).all():
            raise ValueError(
                f"learner must predict finite numbers, got {self.learner!r}"
            )
        return outside, scores

    def _paced(self) -> int:
        """Return how many bags a call has, by the time that the first bag takes."""
        bag = bootstrap_counts(self.key, 0, count=1, n=self.n)

        def train_one() -> Any:
            params = self.learner.fit(self.data, bag, clone_key(self._own))
            return self.learner.predict(params, self.data.x)

        with one_thread_if_small(self.data.x):
            _, seconds = timed(train_one)
        return paced_rows(self.rows, seconds, host_workers(self.learner) or 1)

    def _on_host(self, bags: np.ndarray, key: jax.Array) -> tuple[Any, np.ndarray]:
        """Return how well all points are predicted, and on which bags it failed."""
        params = self.learner.fit(self.data, jnp.asarray(bags), key)
        scores = np.asarray(self.learner.predict(params, self.data.x))
        failed = failed_rows(scores)
        errors = getattr(params, "errors", ["its scores are NaN"] * len(failed))
        counted = self.failures
        tried = len(failed) + counted.coalitions
        hopeless = len(failed) >= _HOPELESS or tried >= _ALWAYS
        always = failed.all() and counted.failed == counted.coalitions
        # A worker's copy knows one batch: the run's own process warns of all.
        if always and hopeless and not counted.silent:
            raise ValueError(
                f"learner must be able to learn from bags of {self.n} points, but "
                f"failed on all of {tried}: {errors[0]}"
            )
        counted.add(failed, errors)
        scores = np.where(failed[:, None, None], 0, scores)
        return _hits(scores, self.data), failed


@dataclasses.dataclass(frozen=True)
class _OutOfBag:
    """The mean over the bags that a point is not in."""

    method: str
    labels: bool
    round: int = _BAGS

    def init(self, work: _Bags) -> State:
        return no_samples(work.n, each=True)

    def rows(self, work: _Bags, count: int) -> int:
        return work.rows

    def sample(self, work: _Bags, state: State, batch: Batch) -> Iterator[Part]:
        outside, scores = (rows[: batch.used] for rows in work(batch.first))
        many = outside.sum(0).astype(np.float64)
        mean = np.where(outside, scores, 0.0).sum(0) / np.maximum(many, 1)
        m2 = np.where(outside, (scores - mean) ** 2, 0.0).sum(0)
        low = np.where(outside, scores, np.inf).min(0)
        high = np.where(outside, scores, -np.inf).max(0)
        yield Part(batch.used, (many, mean, m2, low, high))

    def finalize(self, state: State) -> Moments:
        count, m2 = state["count"], honest_m2(state, float(self.labels))
        return count, np.where(count > 0, state["mean"], np.nan), m2


def _hits(scores: Any, data: Examples) -> Any:
    """Return which points are predicted right, or minus the squared error."""
    y = data.y.reshape((1,) * (scores.ndim - 2) + (-1,))
    if data.n_classes:
        return scores.argmax(-1) == y
    return -((scores[..., 0] - y) ** 2)


class _Trained(NamedTuple):
    converged: jax.Array | None  # [B]
    failed: jax.Array  # models with NaN among their scores, [B]


@jit(static_argnames=("learner",))
def _compiled(
    learner: Learner, data: Examples, bags: Any, key: jax.Array
) -> tuple[Any, _Trained]:
    models = learner.fit(data, bags, key)
    scores = learner.predict(models, data.x)
    failed = jnp.isnan(scores).any((1, 2))
    trained = _Trained(getattr(models, "converged", None), failed)
    return _hits(jnp.where(failed[:, None, None], 0, scores), data), trained
