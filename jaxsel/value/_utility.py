"""Utilities: scores of models trained on coalitions of points."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Float, Float32, Key, Shaped

from jaxsel._devices.mesh import AXIS, gather
from jaxsel._devices.platform import one_thread_if_small
from jaxsel._devices.typed import lax_map, tree_map
from jaxsel._inputs.alignment import row_index
from jaxsel._inputs.checks import check_count
from jaxsel._inputs.labels import as_labels
from jaxsel._runs.fingerprint import fingerprint, plain_repr

from ._evaluator import describe_data
from ._examples import Examples, Learner, host_workers
from ._failures import NOT_NUMBERS, Failures, failed_rows
from ._metrics import (
    OF_PROBABILITIES,
    MetricFunction,
    MetricName,
    chance_level,
    host_measure,
    measured,
)
from ._model_inputs import as_learner, examples, numbered
from ._scorers import Scorer, as_scorer

# Coalitions that are trained in step: as many as fit the cache, since each waits for
# the slowest, but enough for a matrix product.
_GROUP = 1 << 17
_LANES = 16


class Utility(Protocol):
    """Protocol of utilities: a function of coalitions that knows n.

    One with an attribute `about`, a dict from names to text, is told from others by
    that where runs are resumed or merged; one without, by its `repr`.

    Attributes:
        n: Number of training points.
    """

    n: int

    def __call__(self, masks: jax.Array, key: jax.Array | None) -> Any:
        """Return the utility of coalitions `[B, n]`, `[B]`; one key for all, or None.

        None comes from `loo`, `exact_semivalue` and `exact_shapley` without a key.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FunctionUtility:
    """A function of coalitions as a utility.

    Attributes:
        function: Of masks `[B, n]` and a key, to `[B]`.
        n: Number of training points.
    """

    function: Callable[[Any, Any], Any]
    n: int

    def __call__(self, masks: Any, key: Any = None) -> Any:
        """Return the utility of each coalition, `[B]`."""
        return self.function(masks, key)

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """Identity of this function: its name, and a digest."""
        digest = fingerprint(self.function)
        return {"utility": plain_repr(self.function), "utility's digest": digest}


def as_utility(function: Callable[[Any, Any], Any], n: int) -> FunctionUtility:
    """Return a utility of a function of coalitions.

    Estimators whose `batch_size` is None time the function on all points. If it does
    not return a JAX array, calls have no more coalitions than take 50 ms, and as many
    permutations are completed together as take 0.1 s: a slow function gains nothing
    from batches, and a run that is out of time then keeps nearly all of its work.

    Args:
        function: Takes masks `[B, n]` (bool) and a key, and returns `[B]` numbers. It
            should depend on each mask and the key alone, not on what else is in the
            batch.
        n: Number of training points.

    Raises:
        TypeError: If `function` cannot be called.
        ValueError: If `n` is not a positive whole number.

    Examples:
        >>> import jaxsel
        >>> from jaxsel import value
        >>> def worth(masks, key):  # players 0 and 1 earn 1 together
        ...     return masks[:, 0] * masks[:, 1] * 1.0
        >>> print(jaxsel.exact_shapley(value.as_utility(worth, 3)).values)
        [0.5 0.5 0. ]
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    return FunctionUtility(function, check_count("n", n))


class ModelUtility:
    """Utility of a learner: its score on validation data, trained on a coalition.

    The coalition of no points is worth `empty`, and one whose points are of one class
    predicts that class. Calls may be made with NumPy or JAX arrays; weights other than
    0 and 1 count points so often.

    Args:
        learner: Such as `LogisticRegression()`, or an estimator of scikit-learn: see
            `SklearnLearner`, in which it is wrapped.
        x: Training features, `[n, d]`; `[n, ...]` for `FlaxLearner`.
        y: Training labels `[n]` of any kind; targets with metric "r2", and with a
            scorer of scikit-learn for a regressor.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels `[m]`.
        metric: "accuracy", "balanced_accuracy", "f1_macro", "roc_auc", "neg_log_loss"
            (nats), "likelihood" (the mean probability of the right class), or "r2" for
            targets. Higher is better in all. Or a function of your own, of scores
            `[B, m, C]` and the classes of `y_val` `[m]`, numbered in sorted order, that
            returns `[B]`: the highest score is the class predicted, and a softmax of
            the scores its probability where the learner is `probabilistic`. It is
            compiled by JAX, unless the learner is a `SklearnLearner`. Labels that are
            floats are targets then, where the learner takes these, and scores
            predictions `[B, m, 1]`. For estimators of scikit-learn also the name of any
            other of its scorers, such as "f1", or a scorer: a function of an estimator,
            `x_val` and `y_val`. It is asked one coalition after the other, and sees
            labels as they were given.
        empty: Worth of no points; if None, the score of a model that gives every
            class the same probability: 1 / C for accuracies and the likelihood, -log C
            for the log loss, 1/2 for the area, 0 for F1 and R², with the C classes of
            `y` and `y_val` together. With a scorer of scikit-learn, the score
            of its `DummyClassifier` or `DummyRegressor`, fitted on `y`. Must be given
            with a metric of scores of your own.
        default_score: Worth of a coalition on which a `SklearnLearner` or a scorer
            fails, as many do on few points, or on which the training of a
            `FlaxLearner` diverges; `empty` if None.

    Attributes:
        n: Number of training points.
        index: Labels of the rows of a data frame, or None: `Values.index`.
        empty: See above.
        default_score: See above.
        failures: How many coalitions of how many the learner failed on so far, and the
            first error. Warned of at the first one, and at the end of each run. A
            `LogisticRegression` fails where it does not converge; what it has reached
            by then is measured all the same.

    Raises:
        TypeError: If labels are of different kinds, or the learner is none.
        ValueError: If shapes do not fit, numbers are not finite, or the metric needs
            scores that the learner does not give.

    Examples:
        >>> import numpy as np
        >>> from jaxsel import value
        >>> x, y = np.array([[0.0], [0.2], [1.0], [1.2]]), ["cat", "cat", "dog", "dog"]
        >>> x_val, y_val = np.array([[0.1], [1.1]]), ["cat", "dog"]
        >>> utility = value.ModelUtility(value.NearestCentroid(), x, y, x_val, y_val)
        >>> masks = np.array([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], bool)
        >>> print(utility(masks))  # accuracy of three coalitions
        [1.  0.5 0.5]
    """

    def __init__(
        self,
        learner: Learner | Any,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        x_val: npt.ArrayLike,
        y_val: npt.ArrayLike,
        *,
        metric: MetricName | str | Callable[..., Any] = "accuracy",
        empty: float | None = None,
        default_score: float | None = None,
    ):
        learner = as_learner(learner)
        score = as_scorer(metric, learner)
        if callable(metric) and score is None and empty is None:
            raise ValueError(
                "empty must be given with a metric of your own: what no points are "
                f"worth by {metric!r}"
            )
        targets = metric == "r2"
        if score is not None:
            targets = learner.regression
        elif callable(metric):
            targets = learner.regression and bool(
                jnp.issubdtype(np.asarray(as_labels("y", y)).dtype, jnp.floating)
            )
        data, (x_val, codes) = examples(learner, x, y, x_val, y_val, targets=targets)
        if metric in OF_PROBABILITIES and not learner.probabilistic:
            raise ValueError(
                f"metric {metric!r} needs probabilities, which "
                f"{type(learner).__name__} does not give: choose 'accuracy', "
                "'balanced_accuracy' or 'f1_macro'"
            )
        if metric == "roc_auc" and len(np.unique(codes)) < 2:
            raise ValueError("y_val must have two classes or more for metric 'roc_auc'")
        self.learner, self.metric, self.data = numbered(learner, y, data), metric, data
        self.n, self.index = len(data.y), row_index(x)
        self.x_val, self.y_val = jnp.asarray(x_val), jnp.asarray(codes)
        self._scorer = None
        if score is not None:
            self._scorer = Scorer.of(score, learner, data, y, codes, y_val)
        if empty is None and self._scorer is not None:
            empty = self._scorer.of_dummy(data, self.x_val)
        elif empty is None and isinstance(metric, str):
            empty = chance_level(metric, data.n_classes)
        self.empty = _finite("empty", empty)
        instead = self.empty if default_score is None else default_score
        self.default_score = _finite("default_score", instead)
        self.failures = Failures(
            "coalitions",
            f"which count as {instead:g}",
            "which count as what it reached by then",
        )

    def __repr__(self) -> str:
        return (
            f"ModelUtility({self.learner!r}, n={self.n}, m={len(self.y_val)}, "
            f"metric={_name(self.metric)}, empty={self.empty:g})"
        )

    @functools.cached_property
    def about(self) -> dict[str, str]:
        """Identity of this utility, by name: learner, metric and data."""
        x, y = self.data.x, self.data.y
        labels = {}
        if self._scorer is not None:
            labels = {"labels": fingerprint(self._scorer.labels)}
        return {
            **describe_data(self.learner, x=x, y=y, x_val=self.x_val, y_val=self.y_val),
            "metric": _name(self.metric),
            "metric's digest": fingerprint(self.metric),
            "empty": str(self.empty),
            "default_score": str(self.default_score),
            "classes": str(self.data.n_classes),
            **labels,
        }

    @property
    def workers(self) -> int | None:
        """Number of models trained at once on the host; None on devices."""
        return host_workers(self.learner)

    def __call__(self, masks: Any, key: Any = None) -> jax.Array:
        """Return the utility of each coalition.

        Args:
            masks: `[B, n]`, true or 1 for points that take part.
            key: Of learners that draw, which refuse None; the same for all coalitions
                that are compared.

        Returns:
            `[B]` float32.
        """
        utilities, params = self.evaluate(masks, key)
        self.failures.add_models(params)
        return utilities

    def evaluate(
        self, masks: Any, key: Any = None, start: Any = None
    ) -> tuple[jax.Array, Any]:
        """Return the utility of each coalition, and the parameters of its model.

        Args:
            masks: `[B, n]`.
            key: See `__call__`.
            start: Parameters of similar coalitions, B of them, to train from: it saves
                steps where the learner is `warm`, and changes results by its tolerance.

        Returns:
            Utilities `[B]`, and parameters whose arrays have a leading axis B, or None
            where the learner has no use for them. Those that did not converge are not
            counted yet: `failures.add_models` waits for the models.
        """
        if not isinstance(masks, jax.Array):
            masks = np.asarray(masks)
        if masks.ndim != 2 or masks.shape[1] != self.n:
            raise ValueError(f"masks must have shape [B, {self.n}], got {masks.shape}")
        if self.learner.host:
            return self._on_host(np.asarray(masks), key), None
        at = None if isinstance(masks, Tracer) else getattr(masks, "sharding", None)
        mesh = at.mesh if isinstance(at, jax.NamedSharding) else None
        kernel = _kernel(self.learner, self.metric, mesh)
        shared = self.data, self.x_val, self.y_val, key, np.float32(self.empty)
        start = start if self.learner.warm else None
        with one_thread_if_small(self.data.x):
            utilities, params = jax.block_until_ready(kernel(masks, start, *shared))
        if getattr(params, "converged", None) is not None:
            return utilities, params  # its failures are counted by `add_models`
        failed = jnp.isnan(utilities)
        settled = jnp.where(failed, np.float32(self.default_score), utilities)
        if not isinstance(utilities, Tracer):
            if not (known := np.asarray(gather(failed))).any():
                self.failures.add(known, [])
                return utilities, params
            held = gather([masks])[0] if isinstance(masks, jax.Array) else masks
            full = known & held.astype(bool).all(1)
            self._count(known, [NOT_NUMBERS] * len(known), full)
        return settled, params

    def cold(self, count: int) -> Any:
        """Return a neutral `start` for `count` coalitions, or None."""
        cold = getattr(self.learner, "cold", None)
        return None if cold is None else cold(self.data, count)

    def _on_host(self, masks: np.ndarray, key: jax.Array | None) -> jax.Array:
        weights = masks.astype(np.float32)
        params = self.learner.fit(self.data, jnp.asarray(weights), key)
        if self._scorer is None:
            scores = np.asarray(self.learner.predict(params, self.x_val))
            failed = failed_rows(scores)
            scores = jnp.asarray(np.where(failed[:, None, None], 0, scores))
            utilities = host_measure(self.metric)(scores, self.y_val)
        else:
            utilities = self._scorer(params.models, self.x_val)
            failed = np.isnan(utilities)
        errors = getattr(params, "errors", ["its scores are NaN"] * len(failed))
        self._count(failed, errors, failed & weights.all(1))
        utilities = np.where(failed, self.default_score, np.asarray(utilities))
        utilities = np.where(weights.any(1), utilities, self.empty)
        return jnp.asarray(utilities, jnp.float32)

    def _count(
        self, failed: np.ndarray, errors: Sequence[str | None], full: np.ndarray
    ) -> None:
        """Count failures; refuse a learner that fails on the coalition of all."""
        hopeless = np.flatnonzero(full)
        if hopeless.size:
            raise ValueError(
                f"learner must be able to learn from all {self.n} points, but failed: "
                f"{errors[hopeless[0]]}"
            )
        self.failures.add(failed, errors)


def _finite(name: str, number: float | None) -> float:
    if number is None or not np.isfinite(number):
        raise ValueError(f"{name} must be a finite number or None, got {number}")
    return float(number)


def _name(metric: Any) -> str:
    return repr(metric) if isinstance(metric, str) else plain_repr(metric)


@functools.lru_cache(maxsize=64)
def _kernel(
    learner: Learner, metric: str | MetricFunction, mesh: Any
) -> Callable[..., Any]:
    """Return the compiled kernel; on a mesh each device trains its own coalitions."""

    def kernel(
        masks: jax.Array,
        start: Any,
        data: Examples,
        x_val: jax.Array,
        y_val: jax.Array,
        key: jax.Array | None,
        empty: jax.Array,
    ) -> tuple[jax.Array, Any]:
        weights = masks.astype(jnp.float32)
        return evaluate(
            learner, data, weights, x_val, y_val, key, start, empty, metric=metric
        )

    if isinstance(mesh, jax.sharding.Mesh) and AXIS in mesh.shape and mesh.size > 1:
        lanes = jax.P(AXIS)
        kernel = jax.shard_map(
            kernel,
            mesh=mesh,
            in_specs=(lanes, lanes, *[jax.P()] * 5),
            out_specs=lanes,
            check_vma=False,
        )
    return jax.jit(kernel)


def evaluate(
    learner: Learner,
    data: Examples,
    weights: Shaped[jax.Array, "B n"],
    x_val: Shaped[jax.Array, "m ..."],
    y_val: Shaped[jax.Array, " m"],
    key: Key[jax.Array, ""] | None,
    start: Any = None,
    empty: float | Float[jax.Array, ""] = 0.0,
    *,
    metric: str | MetricFunction = "accuracy",
) -> tuple[Float32[jax.Array, " B"], Any]:
    """Train on each coalition and measure: the kernel of `ModelUtility`.

    Args:
        learner: Hashable; static.
        data: Result of its `prepare`.
        weights: `[B, n]`.
        x_val: Validation features, `[m, d]`.
        y_val: Validation classes or targets, `[m]`.
        key: One key for all; None for learners that draw nothing.
        start: Parameters to start from, or None.
        empty: Worth of no points.
        metric: See `ModelUtility`.

    Returns:
        Utilities `[B]`, and the models' parameters where the learner is `warm`.
    """

    def group(lanes: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        weights, start = lanes
        params = learner.fit(data, weights, key, start)
        utilities = measured(metric, learner.predict(params, x_val), y_val)
        utilities = jnp.where(jnp.any(weights > 0, axis=1), utilities, empty)
        return utilities.astype(jnp.float32), params if learner.warm else None

    length = max(len(data.y), len(y_val)) * max(data.n_classes, 1)
    size = max(_LANES, _GROUP // length)
    if len(weights) <= size:
        return group((weights, start))
    count = -(-len(weights) // size)
    # Even groups, as the last would otherwise be mostly padding, trained in vain.
    size = -(-len(weights) // count)

    def split(array: jax.Array) -> jax.Array:
        # The last group's missing coalitions are empty ones.
        missing = [(0, count * size - len(array))] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, missing).reshape(count, size, *array.shape[1:])

    def join(array: jax.Array) -> jax.Array:
        return array.reshape(-1, *array.shape[2:])[: len(weights)]

    return tree_map(join, lax_map(group, tree_map(split, (weights, start))))
