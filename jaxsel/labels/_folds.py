"""Probabilities of every sample by models that have not seen it: cross-validation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._devices.typed import jit, lax_map
from jaxsel._inputs.checks import (
    as_array,
    check_concrete,
    check_count,
    check_features,
    check_finite,
    check_numeric,
    check_same_length,
    refuse_one_class,
)
from jaxsel._inputs.scale import origin
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.value import Examples, Learner, LogisticRegression, as_learner

from ._inputs import number_labels
from ._logistic import logistic_folds, warn_unconverged

_ENTRIES = 1 << 23  # scores in memory at once
_ROWS = 256


def deal_folds(
    y: npt.ArrayLike, *, folds: int = 5, key: jax.Array | None = None
) -> np.ndarray:
    """Return the fold of each sample, `[n]`, each class dealt out evenly.

    Args:
        y: Labels, `[n]`.
        folds: Number of folds; at most n.
        key: Shuffles the samples first. If None, those of a class take turns in the
            order of their rows.

    Raises:
        TypeError: If `folds` is no whole number.
        ValueError: If it is not from 2 to n.
    """
    codes, _ = number_labels(y)
    return deal(codes, folds, key)


def deal(codes: np.ndarray, folds: int, key: jax.Array | None) -> np.ndarray:
    n = len(codes)
    if check_count("folds", folds, minimum=2) > n:
        raise ValueError(f"folds must be at most the {n} samples, got {folds}")
    sizes = np.bincount(codes)
    sizes = sizes[sizes > 0]
    if n >= 20 and (few := int((sizes < folds).sum())):
        doubt(
            f"{few} of {len(sizes)} classes have fewer samples than the {folds} folds, "
            f"the smallest {sizes.min()}: models learn them from few samples or none, "
            "so that their labels look worse than they are"
        )
    order = np.arange(n)
    if key is not None:
        order = np.asarray(jax.random.permutation(key, n))
    fold = np.empty(n, np.int32)
    fold[order[np.argsort(codes[order], kind="stable")]] = np.arange(n) % folds
    return fold


def cross_val_probs(
    learner: Learner | Any,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    folds: int = 5,
    key: jax.Array | None = None,
) -> np.ndarray:
    """Predict every sample by a model trained on the other folds, `[n, K]`.

    All folds are coalitions of one program that trains them together. A class that
    occurs in one fold only gets no probability there.

    Logistic regression of two classes and fewer than 256 features, or than 1,024 and a
    fourth of the samples, stops near the optimum: at the learner's default tolerance
    its probabilities are about 1e-5 from those there on average, and 1e-3 at most, or
    5e-3 where a class is rare. Where categories have a few samples only, theirs may be
    a few hundredths off. A smaller `tol` goes on. With more classes they are 1e-6 off
    on average. That holds for tables in raw units as well: those in which a column's
    variance is a thousand times the penalty are computed in float64. A `UserWarning`
    tells of folds that do not converge.

    Args:
        learner: A learner of `jaxsel.value` that gives probabilities, or a classifier
            of scikit-learn that does.
        x: Features, `[n, d]`; `[n, ...]` for `FlaxLearner`.
        y: Labels, `[n]`, of any kind: columns stand in their sorted order.
        folds: Number of folds, and of models.
        key: Shuffles samples before they are dealt out, and seeds the learner's own
            key; None for learners that draw nothing.

    Returns:
        float32 probabilities, whose rows add up to 1.

    Costs the training of the models, and the prediction of all samples by each.

    Raises:
        TypeError: If the learner is none, or an argument has the wrong type.
        ValueError: If the learner gives no probabilities or fails, shapes do not fit,
            numbers are not finite, or there is one class only.
    """
    codes, classes = number_labels(y)
    learner = probabilistic(learner)
    array = check_samples(x, codes, classes)
    rows = as_float32(array, shift=getattr(learner, "shift_invariant", False))
    learner_key = None
    if key is not None:
        key, learner_key = jax.random.split(key)
    fold = deal(codes, folds, key)
    return predict_folds(learner, rows, codes, classes, fold, learner_key)


def check_samples(
    x: Any, codes: np.ndarray, classes: np.ndarray
) -> np.ndarray | jax.Array:
    """Return samples `[n, ...]`, finite, as many as labels of two classes."""
    array = as_array("x", x)
    if array.ndim == 2 or array.dtype == object:
        array = check_features("x", x)  # a table names its columns in errors
    else:
        check_numeric("x", array)
        check_finite("x", array)
    check_same_length("x", array, "y", codes)
    if (codes == codes[0]).all():
        refuse_one_class("y", classes[codes[:1]])
    check_concrete("x", jnp.zeros(()))  # inside jit all is traced
    return array


def as_float32(array: np.ndarray | jax.Array, *, shift: bool = False) -> np.ndarray:
    """Return checked samples as float32; refuse numbers too large for it.

    With `shift`, for learners that do not mind it, columns of a table that lie far from
    zero are brought near to it first: float32 loses their differences.
    """
    if shift and array.ndim == 2:
        array = np.asarray(array)
        zero = origin(array)
        array = array - zero if zero.any() else array
    with np.errstate(over="ignore"):
        single = np.asarray(array, np.float32)
    if single.dtype != array.dtype:
        check_finite("x", single)
    return single


def probabilistic(learner: Any) -> Learner:
    """Return a learner; raise unless it gives probabilities."""
    checked = as_learner(learner)
    if not checked.probabilistic:
        raise ValueError(
            f"learner must give probabilities, which {type(learner).__name__} does not"
        )
    return checked


def predict_folds(
    learner: Learner,
    x: np.ndarray,
    codes: np.ndarray,
    classes: np.ndarray,
    fold: np.ndarray,
    key: jax.Array | None,
) -> np.ndarray:
    """Return probabilities `[n, K]` of arguments that are checked."""
    n_classes = len(classes)
    rename = getattr(learner, "numbered", None)
    if rename is not None:  # as it gets codes for labels
        learner = rename({label: i for i, label in enumerate(classes.tolist())})
    logistic = learner if isinstance(learner, LogisticRegression) else None
    if logistic and x.ndim == 2 and not logistic.needs_double(x):
        return logistic_folds(x, codes, n_classes, fold, logistic)
    data = Examples(
        x=jnp.asarray(x), y=jnp.asarray(codes.astype(np.int32)), n_classes=n_classes
    )
    data = learner.prepare(data)
    folds = int(fold.max()) + 1
    if learner.host:
        return _on_host(learner, data, fold, folds, key)
    rows = max(_ROWS, _ENTRIES // max(folds * n_classes, len(codes)))
    rows_of_probs, converged = _train(
        learner, data, jnp.asarray(fold), key, folds=folds, rows=min(rows, len(codes))
    )
    if converged is not None:
        warn_unconverged(converged)
    probs = np.array(rows_of_probs[: len(codes)])
    if not np.isfinite(probs).all():
        raise ValueError(f"learner must predict finite numbers, got {learner!r}")
    return probs


@jit(static_argnames=("learner", "folds", "rows"))
def _train(
    learner: Learner,
    data: Examples,
    fold: jax.Array,
    key: jax.Array | None,
    *,
    folds: int,
    rows: int,
) -> tuple[jax.Array, jax.Array | None]:
    n = len(fold)
    coalitions = (fold[None] != jnp.arange(folds)[:, None]).astype(jnp.float32)
    params = learner.fit(data, coalitions, key)

    def part(chunk: tuple[jax.Array, jax.Array]) -> jax.Array:
        x, held_by = chunk
        scores = learner.predict(params, x)
        return jax.nn.softmax(scores[held_by, jnp.arange(rows)], axis=-1)

    count = -(-n // rows)
    # The last part is filled up with the first sample.
    place = jnp.arange(count * rows)
    place = jnp.where(place < n, place, 0)
    chunks = data.x[place].reshape(count, rows, *data.x.shape[1:])
    probs = lax_map(part, (chunks, fold[place].reshape(count, rows)))
    return probs.reshape(count * rows, -1), getattr(params, "converged", None)


def _on_host(
    learner: Learner, data: Examples, fold: np.ndarray, folds: int, key: Any
) -> np.ndarray:
    coalitions = (fold[None] != np.arange(folds)[:, None]).astype(np.float32)
    params = learner.fit(data, jnp.asarray(coalitions), key)
    scores = np.asarray(learner.predict(params, data.x), np.float64)
    scores = scores[fold, np.arange(len(fold))]
    if np.isnan(scores).any():
        errors = getattr(params, "errors", None) or ["its scores are NaN"]
        reason = next((error for error in errors if error), "its scores are NaN")
        raise ValueError(f"learner must be able to learn from each fold, but: {reason}")
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
