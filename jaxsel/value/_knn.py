"""KNN values: contributions of training points to a nearest-neighbour classifier."""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np

from jaxsel._inputs.checks import check_positive
from jaxsel._results.types import Values
from jaxsel._runs.fingerprint import plain_repr

from ._linear import Array, linear_values
from ._options import KnnOptions, Options, knn_value
from ._weights import (
    banzhaf_weights,
    beta_weights,
    loo_weights,
    shapley_weights,
    soft_shapley_offset,
    soft_shapley_weights,
)

RankWeights = Sequence[float] | np.ndarray | Callable[[int, int], np.ndarray]


@knn_value
def knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the exact Shapley value of each training point for a KNN classifier.

    The utility of a set is the share of its K nearest points whose label is that of the
    validation point, averaged over validation points. The divisor is K even if the set
    is smaller. The values sum to the utility of the whole training set. Start with this
    value: it is the best detector of wrong labels among the KNN values, and needs no
    training.

    Neighbours are in their true order for any float32 or float64 features: where
    float32 distances cancel, those that matter are computed again in float64. The
    remaining error is that of float32: below 1e-6 of the largest value of a validation
    point, even where labels come in blocks by distance and all values are small. Near
    ties are left alone if they move a value by less than 1e-6 / K, and rank weights
    below 1e-9 / K may count as zero. Points at equal distances are tied.

    Args:
        x: Training features, `[n, d]`. Embeddings work better than raw pixels or word
            counts; train them on other data than the data being valued. Whole numbers
            above 2**53 are rounded.
        y: Training labels, `[n]`, of any kind, or class probabilities `[n, n_classes]`
            (a gain is then the probability that the labels match).
        x_val: Validation features, `[m, d]`. Columns of two DataFrames are matched by
            name.
        y_val: Validation labels `[m]`, or class probabilities `[m, n_classes]`. Some
            may be unknown to y, but not all.
        k: Number of neighbours K. May exceed n.
        **options: Metric, ties, reduction, memory and devices: see `KnnOptions`.

    Returns:
        `Values`, `[n]`, whose `top` and `bottom` are positions in x, not labels of a
        DataFrame: for those see `Values.to_pandas`. Results over further, disjoint
        validation points `merge`.

    Costs m·(n·d + n log n) operations. Memory above the features is about 60 bytes
    times n for each validation point of a chunk, whatever m. A chunk has four or
    5e5 / n validation points (5e7 / n on accelerators), whichever is more. Features are
    also kept as they were given.

    Raises:
        ValueError: If shapes, columns or the order of rows do not agree, no label is
            shared, probabilities do not sum to 1, an option is unknown, or an array is
            empty, masked, or holds NaN or infinity.
        TypeError: If an argument has the wrong type, or is being traced.

    Warns:
        UserWarning: If the validation points are the training points, or a label
            differs from another in case or spaces only.

    References:
        Jia et al., Efficient task-specific data valuation for nearest neighbor
        algorithms, VLDB 2019, Theorem 1; Jia et al., Scalability vs. utility, CVPR
        2021, Theorem 1. We deviate for n < K, where the published base case
        `1[match] / n` does not follow from the utility; it is `1[match] / max(n, K)`.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
        >>> print(values.bottom(1))  # the row to look at first
        [1]
        >>> print(np.asarray(values.values).round(2))
        [0.17 0.1  0.14 0.14 0.14 0.14]
    """
    return linear_values(
        "knn_shapley",
        shapley_weights,
        x,
        y,
        x_val,
        y_val,
        k=k,
        options=Options(**options),
    )


@knn_value
def knn_banzhaf(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the Banzhaf value of each training point for a KNN classifier.

    All coalitions have equal weight. Only about the 60 nearest points (at K = 10) have
    a value above rounding, so no sort is needed. Use it if speed or the neighbourhood
    matters. Rank weights below 1e-9 of the first count as zero.

    Arguments, result and errors as for `knn_shapley`; `method="hybrid"` is exact here,
    unless K is a large share of n.

    References:
        Wang and Jia, Data Banzhaf, AISTATS 2023, for the value; the KNN form is the
        semivalue recursion with t = 1/2.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.knn_banzhaf(x, y, x_val, y_val, k=3)
        >>> print(values.rank()[1], "of", len(x))  # 0 is the most valuable
        5 of 6
    """
    return linear_values(
        "knn_banzhaf",
        banzhaf_weights,
        x,
        y,
        x_val,
        y_val,
        k=k,
        options=Options(**options),
    )


@knn_value
def knn_loo(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the leave-one-out value of each training point for a KNN classifier.

    It is the loss of utility without the point: for each of the K nearest, its gain
    minus that of the (K+1)-th, divided by K. (A widely used implementation compares
    with the K-th, and gives a value to one point only.) It is noisy: most points get
    zero.

    Arguments, result and errors as for `knn_shapley`; `method="hybrid"` is exact here.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, Eq. (1).

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.knn_loo(x, y, x_val, y_val, k=1)
        >>> print(np.asarray(values.values))  # only the nearest ones count
        [0.5 0.  0.  0.  0.  0. ]
    """
    return linear_values(
        "knn_loo", loo_weights, x, y, x_val, y_val, k=k, options=Options(**options)
    )


@knn_value
def knn_beta_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    alpha: float = 16.0,
    beta: float = 1.0,
    k: int = 5,
    **options: Unpack[KnnOptions],
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
        k: Number of neighbours K.
        **options: As for all KNN values: see `KnnOptions`.

    Digits are kept as for `knn_shapley`: Beta(1, 4) gives far points so little weight
    that the values of a block of equal labels may be 1e-9 of those of mixed ones.

    References:
        Kwon and Zou, Beta Shapley, AISTATS 2022.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.knn_beta_shapley(x, y, x_val, y_val, alpha=4, beta=1, k=3)
        >>> print(values.bottom(1))
        [1]
    """
    alpha, beta = check_positive("alpha", alpha), check_positive("beta", beta)
    return linear_values(
        "knn_beta_shapley",
        partial(beta_weights, alpha=alpha, beta=beta),
        x,
        y,
        x_val,
        y_val,
        k=k,
        described=lambda _: {"alpha": alpha, "beta": beta},
        options=Options(**options),
    )


@knn_value
def soft_knn_shapley(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    k: int = 5,
    n_classes: int | None = None,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return the Shapley value for a soft-label KNN classifier.

    The utility of a set is the share of matching labels among its min(K, |S|) nearest
    points, and `1 / n_classes` for the empty set. This is the probability that the
    classifier gives to the right label, even if the set is smaller than K.

    Arguments, result and errors as for `knn_shapley`, and:

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        k: Number of neighbours.
        n_classes: Number of classes; those found in y and y_val together if None.
        **options: As for all KNN values: see `KnnOptions`.

    References:
        Wang and Jia, A note on "Efficient task-specific data valuation for nearest
        neighbor algorithms", 2023.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.soft_knn_shapley(x, y, x_val, y_val, k=3)
        >>> print(values.bottom(1))
        [1]
        >>> print(f"{values.values.sum():.2f}")  # P(right label), less 1/2
        0.33
    """
    return linear_values(
        "soft_knn_shapley",
        soft_shapley_weights,
        x,
        y,
        x_val,
        y_val,
        k=k,
        n_classes=n_classes,
        offset=soft_shapley_offset,
        options=Options(**options),
    )


@knn_value
def knn_semivalue(
    x: Array,
    y: Array,
    x_val: Array,
    y_val: Array,
    *,
    rank_weights: RankWeights,
    k: int = 5,
    **options: Unpack[KnnOptions],
) -> Values:
    """Return any semivalue for a KNN classifier, given by its rank weights.

    Args:
        x: Training features, `[n, d]`.
        y: Training labels.
        x_val: Validation features, `[m, d]`.
        y_val: Validation labels.
        rank_weights: Array of shape `[n]`, or a function of (n, k) that returns one:
            the weight of each rank, the nearest first, such as `shapley_weights` and
            `size_restricted_weights` in `jaxsel.value`. "hybrid" needs them not to
            increase.
        k: Number of neighbours K.
        **options: As for all KNN values: see `KnnOptions`.

    Returns:
        `Values`, whose method names the function and a digest of its weights.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> from jaxsel.value import shapley_weights
        >>> values = jaxsel.knn_semivalue(
        ...     x, y, x_val, y_val, rank_weights=shapley_weights, k=3
        ... )
        >>> shapley = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
        >>> np.allclose(values.values, shapley.values)
        True
    """

    def described(omega: np.ndarray) -> dict[str, Any]:
        # By the weights themselves: functions may share a name.
        digest = hashlib.sha256(omega.tobytes()).hexdigest()[:8]
        if not callable(rank_weights):
            return {"rank_weights": digest}
        name = getattr(rank_weights, "__name__", plain_repr(rank_weights))
        return {"rank_weights": f"{name} {digest}"}

    return linear_values(
        "knn_semivalue",
        rank_weights if callable(rank_weights) else lambda n, k: rank_weights,
        x,
        y,
        x_val,
        y_val,
        k=k,
        described=described,
        options=Options(**options),
    )
