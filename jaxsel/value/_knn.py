"""KNN values: what each training point adds to a nearest-neighbour classifier."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .._checks import (
    as_array,
    check_choice,
    check_count,
    check_features,
    check_finite,
    check_numeric,
    check_positive,
    check_same_length,
)
from .._types import Reduce, Values
from ..neighbors import METRICS, Metric, to_length
from ._accumulate import accumulate
from ._hybrid import HEAD, semivalue_hybrid
from ._labels import make_labels
from ._regression import regression_shapley, regression_table
from ._semivalue import semivalue, semivalue_tied, semivalue_top
from ._threshold import harmonic_numbers, threshold_shapley
from ._weights import (
    banzhaf_weights,
    beta_weights,
    loo_weights,
    rank_table,
    resolve_weights,
    shapley_weights,
    soft_shapley_offset,
    soft_shapley_weights,
)

Ties = Literal["stable", "average"]
Method = Literal["exact", "hybrid"]
Array = npt.ArrayLike | jax.Array
# From distances (not squared) to the weight of a neighbour at that distance.
DistanceWeights = Callable[[jax.Array], jax.Array]
RankWeights = Sequence[float] | np.ndarray | Callable[[int, int], np.ndarray]

# Rank weights below this share of the first one count as zero.
NEGLIGIBLE = 1e-9


def knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the exact Shapley value of each training point for a KNN classifier.

    The utility of a set is the share of its K nearest points (of K, also where the set
    is smaller) whose label is that of the validation point, averaged over validation
    points. The values sum to the utility of the whole training set. Start here: it is
    the best detector of wrong labels among the KNN values, and needs no training.

    Two points are tied when their float32 distances to a validation point are equal.

    Args:
        x: Training features, `[n, d]`. Embeddings serve better than raw pixels or text
            counts; they must come from other data than the data being valued.
        y: Training labels, `[n]`, of any kind, or class probabilities `[n, n_classes]`
            (a gain is then the probability that the labels match).
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels `[m]`, or class probabilities `[m, n_classes]`.
        k: Number of neighbours K. May exceed n.
        metric: "l2" (Euclidean) or "cosine" (1 - cosine; zero rows are at distance 1).
        ties: "stable" orders tied points by index; "average" gives each the mean over
            all orders of the tied points, so that duplicates get equal values.
        reduce: "mean" over validation points, with its standard error; "max" over them
            (max-KNN-Shapley, for data that hurts few validation points); None returns
            `[m, n]`.
        method: "exact", or "hybrid": the nearest 128 points exactly, the others by
            bands of distance. It needs no sort, and returns `error_bound`, which
            always holds. Worth it where the compiled operations are not available.
        weights: Optional function from distances to weights by which gains are
            multiplied (not normalised). Written with jax.numpy; defined once, not as a
            lambda at each call, it is compiled once.
        chunk_size: Validation points at a time; chosen from n if None. It sets speed
            and memory, not results (up to points that nearly tie).
        mesh: Devices to split the validation points over, from `jaxsel.make_mesh`.
        progress: Whether to show a progress bar.

    Returns:
        `Values`, `[n]`. Results over further, disjoint validation points `merge`.

    Costs m·(n·d + n log n) operations, and memory of about 100 MB above the features,
    whatever n and m.

    Raises:
        ValueError: If shapes do not agree, an option is unknown, or an array is empty
            or holds NaN or infinity.
        TypeError: If an argument has the wrong type, or is being traced.

    References:
        Jia et al., Efficient task-specific data valuation for nearest neighbor
        algorithms, VLDB 2019, Theorem 1; Jia et al., Scalability vs. utility, CVPR
        2021, Theorem 1. We deviate for n < K, where the published base case
        `1[match] / n` does not follow from the utility; it is `1[match] / max(n, K)`.
    """
    return _linear(
        "knn_shapley", shapley_weights, x, y, x_val, y_val, k=k, metric=metric, ties=ties,
        reduce=reduce, method=method, weights=weights, chunk_size=chunk_size, mesh=mesh,
        progress=progress,
    )  # fmt: skip


def knn_banzhaf(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the Banzhaf value of each training point for a KNN classifier.

    Every coalition counts alike. Only about the 60 nearest points (at K = 10) have a
    value above rounding, so no sort is needed: take it where speed or the
    neighbourhood matters. Rank weights below 1e-9 of the first count as zero.

    Arguments, result and errors as for `knn_shapley`; `method="hybrid"` is exact here.

    References:
        Wang and Jia, Data Banzhaf, AISTATS 2023, for the value; the KNN form is the
        semivalue recursion with t = 1/2 (see `jaxsel.value.banzhaf_weights`).
    """
    return _linear(
        "knn_banzhaf", banzhaf_weights, x, y, x_val, y_val, k=k, metric=metric, ties=ties,
        reduce=reduce, method=method, weights=weights, chunk_size=chunk_size, mesh=mesh,
        progress=progress,
    )  # fmt: skip


def knn_loo(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the leave-one-out value of each training point for a KNN classifier.

    What the utility loses without the point: for each of the K nearest, its gain less
    that of the (K+1)-th, over K. (A widely used implementation compares with the K-th
    and moves one point only.) Noisy: most points get zero.

    Arguments, result and errors as for `knn_shapley`; `method="hybrid"` is exact here.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, Eq. (1).
    """
    return _linear(
        "knn_loo", loo_weights, x, y, x_val, y_val, k=k, metric=metric, ties=ties,
        reduce=reduce, method=method, weights=weights, chunk_size=chunk_size, mesh=mesh,
        progress=progress,
    )  # fmt: skip


def knn_beta_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    alpha: float = 16.0,
    beta: float = 1.0,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the Beta(alpha, beta) Shapley value for a KNN classifier.

    Beta(1, 1) is the Shapley value; a larger alpha gives more weight to small
    coalitions, a larger beta to large ones.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        alpha: First parameter, above zero, in the convention of Kwon and Zou.
        beta: Second parameter, above zero.
        k: See `knn_shapley`, as for all that follow.
        metric: Distance.
        ties: How to treat tied points.
        reduce: How to combine validation points.
        method: "exact" or "hybrid".
        weights: Distance weights.
        chunk_size: Validation points at a time.
        mesh: Devices.
        progress: Whether to show a progress bar.

    References:
        Kwon and Zou, Beta Shapley, AISTATS 2022.
    """
    alpha, beta = check_positive("alpha", alpha), check_positive("beta", beta)
    return _linear(
        "knn_beta_shapley", partial(beta_weights, alpha=alpha, beta=beta),
        x, y, x_val, y_val, k=k, metric=metric, ties=ties, reduce=reduce, method=method,
        weights=weights, chunk_size=chunk_size, mesh=mesh, progress=progress,
        options={"alpha": alpha, "beta": beta},
    )  # fmt: skip


def soft_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    n_classes: int | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the Shapley value for a soft-label KNN classifier.

    The utility of a set is the share of matching labels among its min(K, |S|) nearest
    points, and `1 / n_classes` for the empty set: the probability that the classifier
    gives to the right label, also for sets smaller than K.

    Arguments, result and errors as for `knn_shapley`, and:

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        k: Number of neighbours.
        metric: Distance.
        ties: How to treat tied points.
        reduce: How to combine validation points.
        method: "exact" or "hybrid".
        weights: Distance weights.
        n_classes: Number of classes; those found in y and y_val together if None.
        chunk_size: Validation points at a time.
        mesh: Devices.
        progress: Whether to show a progress bar.

    References:
        Wang and Jia, A note on "Efficient task-specific data valuation for nearest
        neighbor algorithms", 2023.
    """
    return _linear(
        "soft_knn_shapley", soft_shapley_weights, x, y, x_val, y_val, k=k, metric=metric,
        ties=ties, reduce=reduce, method=method, weights=weights, n_classes=n_classes,
        chunk_size=chunk_size, mesh=mesh, progress=progress, offset=soft_shapley_offset,
    )  # fmt: skip


def knn_semivalue(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    rank_weights: RankWeights,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return any semivalue for a KNN classifier, given by its rank weights.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        rank_weights: Array of shape `[n]`, or a function of (n, k) that returns one:
            the weight of each rank, the nearest first; see `jaxsel.value._weights` and
            `size_restricted_weights`. "hybrid" needs them not to increase.
        k: See `knn_shapley`, as for all that follow.
        metric: Distance.
        ties: How to treat tied points.
        reduce: How to combine validation points.
        method: "exact" or "hybrid".
        weights: Distance weights.
        chunk_size: Validation points at a time.
        mesh: Devices.
        progress: Whether to show a progress bar.
    """
    return _linear(
        "knn_semivalue", lambda n, k: resolve_weights(rank_weights, n, k),
        x, y, x_val, y_val, k=k, metric=metric, ties=ties, reduce=reduce, method=method,
        weights=weights, chunk_size=chunk_size, mesh=mesh, progress=progress,
    )  # fmt: skip


def threshold_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    radius: float,
    metric: Metric = "l2",
    reduce: Reduce = "mean",
    n_classes: int | None = None,
    weights: DistanceWeights | None = None,
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
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
        radius: Distance (not squared), zero or more; the ball is closed.
        metric: Distance.
        reduce: How to combine validation points.
        n_classes: Number of classes; those found in y and y_val together if None.
        weights: Distance weights.
        chunk_size: Validation points at a time.
        mesh: Devices.
        progress: Whether to show a progress bar.

    References:
        Wang et al., Threshold KNN-Shapley, NeurIPS 2023.
    """
    radius = check_positive("radius", radius, zero=True)
    x, x_val = _check_features(x, x_val, metric)
    labels = make_labels(x, y, x_val, y_val, n_classes=n_classes)
    reach = radius**2 if metric == "l2" else radius
    params = (
        jnp.float32(reach),
        jnp.asarray(harmonic_numbers(len(x)), jnp.float32),
        jnp.float32(1 / labels.n_classes),
    )
    return accumulate(
        _Threshold(_Gains(labels.gains, weights, metric)), params, x, labels.train,
        x_val, labels.query, metric=metric, reduce=reduce, certified=False,
        method=_describe(
            "threshold_knn_shapley", radius=radius, metric=metric,
            n_classes=labels.n_classes, weights=weights,
        ),
        chunk_size=chunk_size, mesh=mesh, progress=progress,
    )  # fmt: skip


def knn_regression_shapley(
    x: Array,
    t: Array,
    x_val: Array,
    t_val: Array,
    *,
    k: int = 5,
    metric: Metric = "l2",
    ties: Ties = "stable",
    reduce: Reduce = "mean",
    method: Method = "exact",
    chunk_size: int | None = None,
    mesh: jax.sharding.Mesh | None = None,
    progress: bool = False,
) -> Values:
    """Return the exact Shapley value of each training point for KNN regression.

    The utility of a set is minus the squared error of `sum(targets of its K nearest) /
    K`; the values sum to what the whole training set gains over predicting zero, so
    centre the targets.

    Arguments, result and errors as for `knn_shapley`, but:

    Args:
        x: Training features, `[n, d]`.
        t: Training targets, `[n]`.
        x_val: Validation features, `[m, d]`.
        t_val: Validation targets, `[m]`.
        k: Number of neighbours.
        metric: Distance.
        ties: "stable" only: the utility is not linear in the targets, so that the
            average over tie orders has another form.
        reduce: How to combine validation points.
        method: "exact" only.
        chunk_size: Validation points at a time.
        mesh: Devices.
        progress: Whether to show a progress bar.

    References:
        Jia et al., Efficient task-specific data valuation for nearest neighbor
        algorithms, VLDB 2019, Theorem 6.
    """
    k = check_count("k", k)
    check_choice("ties", ties, ("stable",))
    check_choice("method", method, ("exact",))
    x, x_val = _check_features(x, x_val, metric)
    targets = []
    for name, value, rows_name, rows in (
        ("t", t, "x", x),
        ("t_val", t_val, "x_val", x_val),
    ):
        array = as_array(name, value)
        check_numeric(name, array)
        if array.ndim != 1:
            raise ValueError(f"{name} must have shape [n], got {array.shape}")
        check_same_length(rows_name, rows, name, array)
        check_finite(name, array)
        targets.append(np.asarray(array, np.float32))
    return accumulate(
        _regression_kernel, regression_table(len(x), k), x, targets[0], x_val, targets[1],
        metric=metric, reduce=reduce, certified=False,
        method=_describe("knn_regression_shapley", k=k, metric=metric),
        chunk_size=chunk_size, mesh=mesh, progress=progress,
    )  # fmt: skip


def _linear(
    name: str,
    rank_weights: Callable[[int, int], np.ndarray],
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int,
    metric: Metric,
    ties: Ties,
    reduce: Reduce,
    method: Method,
    weights: DistanceWeights | None,
    chunk_size: int | None,
    mesh: jax.sharding.Mesh | None,
    progress: bool,
    n_classes: int | None = None,
    offset: Callable[[int, int, int], tuple[float, float]] | None = None,
    options: dict[str, Any] | None = None,
) -> Values:
    """Compute any value that is linear in the gains."""
    k = check_count("k", k)
    check_choice("ties", ties, ("stable", "average"))
    check_choice("method", method, ("exact", "hybrid"))
    if method == "hybrid" and ties == "average":
        raise ValueError("method='hybrid' needs ties='stable', got 'average'")
    x, x_val = _check_features(x, x_val, metric)
    labels = make_labels(x, y, x_val, y_val, n_classes=n_classes)
    n = len(x)
    omega = rank_weights(n, k)
    form = _choose_form(omega, ties, method)
    table = rank_table(omega)
    if form == "top":
        keep = _reach(omega)
        table = dataclasses.replace(
            table, weight=table.weight[:keep], drop=table.drop[:keep]
        )
    shift = None if offset is None else offset(n, k, labels.n_classes)
    kernel = _Linear(
        gains=_Gains(labels.gains, weights, metric),
        form=form,
        binary=labels.binary and weights is None,
        certified=method == "hybrid",
    )
    return accumulate(
        kernel, (table, shift), x, labels.train, x_val, labels.query,
        metric=metric, reduce=reduce, certified=method == "hybrid",
        method=_describe(
            name, k=k, **(options or {}), metric=metric, ties=ties, method=method,
            n_classes=labels.n_classes if offset else None, weights=weights,
        ),
        chunk_size=chunk_size, mesh=mesh, progress=progress,
    )  # fmt: skip


def _reach(omega: np.ndarray) -> int:
    """How many ranks matter: up to the last weight that is not negligible, and one."""
    matter = np.flatnonzero(np.abs(omega) > NEGLIGIBLE * np.abs(omega).max(initial=0))
    return min(int(matter[-1]) + 2, len(omega)) if matter.size else 1


def _choose_form(omega: np.ndarray, ties: Ties, method: Method) -> str:
    n = len(omega)
    if ties == "average":
        return "tied"
    if _reach(omega) <= n // 8:
        return "top"
    if method == "hybrid" and n > 4 * HEAD:
        if np.any(np.diff(omega) > 0):
            raise ValueError("method='hybrid' needs rank_weights that do not increase")
        return "hybrid"
    return "sorted"


@dataclasses.dataclass(frozen=True)
class _Gains:
    """Gains of the training points for one query, weighted by distance."""

    of_labels: Callable[[Any, Any], jax.Array]
    weights: DistanceWeights | None
    metric: Metric

    def __call__(self, distances: jax.Array, train: Any, query: Any) -> jax.Array:
        gains = self.of_labels(train, query)
        if self.weights is None:
            return gains
        return gains * self.weights(to_length(distances, self.metric))


@dataclasses.dataclass(frozen=True)
class _Linear:
    """The kernel for `accumulate`: gains, one of the semivalue kernels, an offset."""

    gains: _Gains
    form: str
    binary: bool
    certified: bool

    def __call__(
        self, params: Any, distances: jax.Array, train: Any, query: Any
    ) -> tuple[jax.Array, jax.Array | None]:
        table, shift = params
        gains = self.gains(distances, train, query)
        bound = None
        if self.form == "top":
            values = semivalue_top(distances, gains, table.weight, table.drop)
        elif self.form == "tied":
            values = semivalue_tied(distances, gains, table)
        elif self.form == "hybrid":
            values, bound = semivalue_hybrid(
                distances, gains, table, binary=self.binary
            )
        else:
            values = semivalue(distances, gains, table)
        if shift is not None:
            values = values + (shift[0] + shift[1] * jnp.sum(gains))
        if self.certified and bound is None:
            bound = jnp.zeros_like(values)
        return values, bound


@dataclasses.dataclass(frozen=True)
class _Threshold:
    gains: _Gains

    def __call__(
        self, params: Any, distances: jax.Array, train: Any, query: Any
    ) -> tuple[jax.Array, None]:
        gains = self.gains(distances, train, query)
        return threshold_shapley(distances, gains, *params), None


def _regression_kernel(
    params: Any, distances: jax.Array, train: Any, query: Any
) -> tuple[jax.Array, None]:
    return regression_shapley(distances, train, query, params), None


def _check_features(
    x: Array, x_val: Array, metric: Metric
) -> tuple[np.ndarray | jax.Array, np.ndarray | jax.Array]:
    check_choice("metric", metric, METRICS)
    x, x_val = check_features("x", x), check_features("x_val", x_val)
    if x.shape[1] != x_val.shape[1]:
        raise ValueError(
            "x and x_val must have the same number of features, got "
            f"{x.shape[1]} and {x_val.shape[1]}"
        )
    return x, x_val


def _describe(name: str, **options: Any) -> str:
    """Write a call as text: what two results must share to be merged."""
    shown = (
        f"{key}={getattr(value, '__name__', value)}"
        for key, value in options.items()
        if value is not None
    )
    return f"{name}({', '.join(shown)})"
