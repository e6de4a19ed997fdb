"""Threshold KNN-Shapley: neighbours within a radius, so no order is needed.

References:
    Wang, Zhu, Wang, Jia and Mittal, Threshold KNN-Shapley: a linear-time and
    privacy-friendly approach to data valuation, NeurIPS 2023.
"""

from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice, check_positive
from jaxsel._results.types import Values
from jaxsel.neighbors import Metric

from ._accumulate import accumulate
from ._ball import make_ball
from ._distance_weights import trace_weights
from ._linear import Array, Gains, check_weighted, describe
from ._options import KnnOptions, Options, knn_value
from ._task import check_task
from ._threshold_kernel import Marks, OfCounts, Threshold, harmonic_numbers

_COUNTED = 1 << 24  # pairs of points whose marks are in memory at once


@knn_value
def threshold_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    n_classes: int | None = None,
    counts: npt.ArrayLike | None = None,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the Shapley value for a classifier that votes within a radius.

    The utility of a set is the share of matching labels among its points no farther
    than `radius` from the validation point, and `1 / n_classes` if there are none. No
    order is needed, so ties do not arise: it is the fastest of the KNN values.

    Arguments, result and errors as for `knn_shapley`, and:

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        radius: Distance (not squared), zero or more. The ball is closed: a point is in
            it if its distance, computed in float64 from the features as they were
            given, is at most the radius, or above by two epsilons of their type (.1 is
            another number in float32 than in float64). With "cosine" it is the chord,
            `sqrt(2 * radius)`, that is two epsilons longer.
        n_classes: Number of classes; those found in y and y_val together if None.
        counts: Where x is one of several parts of the training data: for each
            validation point, how many points of all parts are in its ball with its
            label, and with another one, `[m, 2]`, whole numbers. The sum over all
            parts of `jaxsel.value.threshold_counts`. The values are then those that
            the points of x have among all points. `n_classes` must be given, labels
            must be hard, and there are no `weights`.
        **options: As for all KNN values: see `KnnOptions`. `ties` and `method` have no
            effect: there is no order, and the value is always exact.

    References:
        Wang et al., Threshold KNN-Shapley, NeurIPS 2023.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.threshold_knn_shapley(x, y, x_val, y_val, radius=0.5)
        >>> print(values.bottom(1))
        [1]
    """
    radius = check_positive("radius", radius, zero=True)
    return _values(
        x,
        y,
        x_val,
        y_val,
        radius=radius,
        n_classes=n_classes,
        counts=counts,
        options=Options(**options),
    )


def _values(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    n_classes: int | None,
    counts: npt.ArrayLike | None,
    options: Options,
) -> Values:
    metric, weights = options.metric, options.weights
    check_choice("ties", options.ties, ("stable", "average"))
    check_choice("method", options.method, ("exact", "hybrid"))
    task, classes = check_task(
        x,
        y,
        x_val,
        y_val,
        metric=metric,
        n_classes=n_classes,
        mesh=options.mesh if options.split == "training" else None,
    )
    n = len(task.x)
    traced, captured = (None, ()) if weights is None else trace_weights(weights, n)
    kernel = Threshold(Gains(classes.gains, traced, metric))
    if counts is not None:
        if weights is not None or not classes.binary or n_classes is None:
            raise ValueError(
                "counts need n_classes, hard labels and no weights, got n_classes = "
                f"{n_classes}, {'hard' if classes.binary else 'soft'} labels and "
                f"{'no ' if weights is None else ''}weights"
            )
        kernel = OfCounts(kernel.gains)
        query = task.query, *_check_counts(counts, len(task.x_val))
        task = task._replace(query=query)
    params = (
        make_ball(task.x, task.x_val, radius, metric),
        jnp.asarray(harmonic_numbers(n), jnp.float32),
        jnp.float32(1 / classes.n_classes),
        captured,
    )
    values = accumulate(
        kernel,
        params,
        task,
        options=options,
        certified=False,
        method=describe(
            "threshold_knn_shapley",
            radius=radius,
            metric=metric,
            n_classes=classes.n_classes,
            weights=weights,
            counts=None if counts is None else "given",
        ),
    )
    if weights is not None:
        check_weighted(values)
    if counts is not None and not bool(jnp.isfinite(values.values).all()):
        raise ValueError(
            "counts must include the points of x, but for some validation point they "
            "are fewer than those of x alone"
        )
    return values


def _check_counts(counts: npt.ArrayLike, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Check counts; return the points per ball, and those with the right label."""
    pairs = np.asarray(counts)
    if pairs.shape != (m, 2) or pairs.dtype.kind not in "iu":
        raise ValueError(
            f"counts must be whole numbers of shape [m, 2] = [{m}, 2], got shape "
            f"{pairs.shape} and dtype {pairs.dtype}"
        )
    # Below 2^30 each, so that the sum of both fits int32.
    low, high = pairs.min(), pairs.max()
    if low < 0 or high >= 1 << 30:
        raise ValueError(
            f"counts must lie between 0 and 2^30, got {low if low < 0 else high}"
        )
    pairs = pairs.astype(np.int32)
    return pairs.sum(axis=1, dtype=np.int32), pairs[:, 0]


def threshold_counts(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    metric: Metric = "l2",
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> np.ndarray:
    """Count the training points in the ball around each validation point, by label.

    The sum over several parts of the training data is all that
    `threshold_knn_shapley(counts=...)` needs to know of the others to value one part.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels, `[n]`.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels, `[m]`.
        radius: As for `threshold_knn_shapley`, to which the same points are inside.
        metric: Distance.
        chunk_size: Validation points at a time, or None to choose.
        mesh: Devices to split validation points over, or None.
        axis: Name of the axis of the mesh to split over, or None.

    Returns:
        Points of the validation point's label, and points of another one, `[m, 2]`
        int64. Costs as much as the values.

    Raises:
        ValueError: As `threshold_knn_shapley`.
        TypeError: As `threshold_knn_shapley`.
    """
    radius = check_positive("radius", radius, zero=True)
    task, classes = check_task(x, y, x_val, y_val, metric=metric)
    if not classes.binary:
        raise ValueError("y and y_val must be labels, got class probabilities")
    ball = make_ball(task.x, task.x_val, radius, metric)
    options = Options(
        metric=metric, reduce=None, chunk_size=chunk_size, mesh=mesh, axis=axis
    )
    counts: list[np.ndarray] = []
    rows = max(1, _COUNTED // len(task.x))
    for start in range(0, len(task.x_val), rows):
        part = slice(start, start + rows)
        marks = accumulate(
            Marks(Gains(classes.gains, None, metric)),
            (ball,),
            task._replace(x_val=task.x_val[part], query=task.query[part]),
            options=options,
            certified=False,
            method="threshold_counts",
        )
        rows_of = np.asarray(marks.values)
        counts.append(np.stack([(rows_of == 2).sum(1), (rows_of == 1).sum(1)], axis=1))
    return np.concatenate(counts).astype(np.int64)
