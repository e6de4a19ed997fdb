"""Values of embeddings by their match with a target sample, without any model."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import check_pair
from jaxsel._inputs.checks import (
    check_choice,
    check_concrete,
    check_count,
    check_positive,
)
from jaxsel._inputs.chunk import chunk_slices, entries
from jaxsel._inputs.labels import as_labels, check_shared_labels, encode_labels
from jaxsel._inputs.usual_mistakes import doubt, doubt_values
from jaxsel._results.types import Provenance, Values
from jaxsel._runs.fingerprint import as_float32, fingerprint, sampled
from jaxsel._runs.progress import track

from ._kernel_means import KERNELS, GaussianMeans, Kernel, LinearMeans, median_length
from ._linear import describe

_SMALLEST, _LARGEST = 1e-15, 1e15  # squares of features that fit float32
_MOST = 20_000  # target samples whose kernel matrix takes 3.2 GB


def mmd_values(
    x: npt.ArrayLike | jax.Array,
    x_val: npt.ArrayLike | jax.Array,
    *,
    y: npt.ArrayLike | None = None,
    y_val: npt.ArrayLike | None = None,
    kernel: Kernel = "gaussian",
    bandwidth: float | None = None,
    leave_one_out: bool = False,
    reference_size: int | None = 1024,
    l2: float = 1e-3,
    chunk_size: int | None = None,
    progress: bool = False,
) -> Values:
    """Return how much each sample brings a data set closer to a target sample.

    Closeness is -MMD², the negative squared maximum mean discrepancy of `x` and
    `x_val`: the distance of their mean embeddings by a kernel k. With
    `a_i = mean_j k(x_i, z_j)` over target samples z and
    `b_i = mean_j k(x_i, x_j)` over the data, the value of sample i is

        (2 / n) * ((a_i - b_i) - mean of (a - b))

    the change of -MMD² by the sample's share of the data, to first order (the influence
    function over n). Values sum to 0. They are high where the target is denser than the
    data, and low where the data crowd and the target does not. With the Gaussian kernel
    a sample far from all others has a and b near 0, and so ranks between these two. No
    model and no label is needed, so it is a first screen of a large pool.

    With `leave_one_out` values are the exact changes, MMD² without a sample less MMD²
    of all, in closed form:
    `(2 (n-1) (a_i - A) + (2 n - 1) B - 2 n b_i + k(x_i, x_i)) / (n - 1)**2` with the
    means A and B of a and b. The two differ by a share of about 1 / n.

    With labels the value tells how well the label of a sample fits the target's labels
    at its place. It is `-|f(y_i) - g(x_i)|²`, where f maps a label to its indicator and
    g is the conditional mean embedding of the target's labels: kernel ridge regression
    of their indicators. It is 0 where the target has that label only, -1 far from all
    target samples, and about -2 where it has one other label only.

    Args:
        x: Embeddings of the data, `[n, d]`. Distances depend on the scale of columns.
        x_val: Embeddings of the target, `[m, d]`: clean samples that the data should
            resemble. Columns of two DataFrames are matched by name.
        y: Labels of the data, `[n]`, or None for values without labels.
        y_val: Labels of the target, `[m]`, with `y`.
        kernel: "gaussian", `exp(-|u - v|² / (2 h²))`; or "linear", the inner product
            `u v`, which compares means only.
        bandwidth: h of the Gaussian kernel, in the unit of x; the median distance of a
            pair among 1,000 samples, evenly spaced, of both tables if None. The
            result's `method` tells it.
        leave_one_out: Whether to return exact differences rather than influences.
            Without labels only.
        reference_size: Number of samples of x, drawn with a fixed seed, that stand for
            x in b with the Gaussian kernel. The error of b_i is the standard deviation
            of k(x_i, x_j) over the root of this number, as that of a_i is over the root
            of m. None takes all: b is exact, for n² d operations.
        l2: Weight of the squared norm in the ridge regression of labels, as a share of
            m times the mean of k(z_j, z_j).
        chunk_size: Rows of x at a time; chosen from m by default.
        progress: Whether to show a progress bar.

    Returns:
        `Values`, `[n]`, float32. Without labels they are means over target samples,
        with the standard error over these, and those over disjoint targets `merge`, if
        they got the same bandwidth; sums over owners (`by_owner`) are the first-order
        values of all that an owner has.

    Costs n·d·(m + reference_size) multiply-adds: with these fixed, values of further
    samples cost as much each. "linear" takes n·d·min(m, d) and is exact. With labels
    n·d·m, and m³ / 3 in float64. Memory above the inputs is a chunk's kernel values,
    and m² float64 with labels.

    Raises:
        ValueError: If shapes, columns or labels do not fit, a number is NaN or infinite
            or out of range, or there are more than 20,000 target samples with labels.
        TypeError: If an argument has the wrong type, or is being traced.

    Warns:
        UserWarning: If a column is so large that it decides all distances or numbers
            the rows, the data are the target, or all values are equal.

    References:
        Zhu, Prashant, Cloninger and Salimi, KAIROS: Scalable model-agnostic data
        valuation, arXiv 2506.23799, 2025, for the influence on MMD² (we divide it by
        n). Gretton et al., A kernel two-sample test, JMLR 13, 2012, equation 5, for
        MMD². Song, Huang, Smola and Fukumizu, Hilbert space embeddings of conditional
        distributions, ICML 2009, for the embedding of labels; comparing it with the
        label of a sample is our own choice.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [9.0]])
        >>> x_val = np.array([[0.1], [0.9], [1.1]])
        >>> values = jaxsel.mmd_values(x, x_val, bandwidth=0.5)
        >>> print(values.top(1))  # the data lack samples near 1
        [3]
        >>> y, y_val = np.array([0, 1, 0, 1, 1]), np.array([0, 1, 1])
        >>> values = jaxsel.mmd_values(x, x_val, y=y, y_val=y_val, bandwidth=0.5)
        >>> print(values.bottom(1))  # 1 among zeros
        [1]
    """
    check_concrete("x", jnp.zeros(()))  # inside jit every result would be traced
    check_choice("kernel", kernel, KERNELS)
    if (y is None) != (y_val is None):
        missing, other = ("y", "y_val") if y is None else ("y_val", "y")
        raise ValueError(f"{missing} must be passed with {other}, got None")
    if leave_one_out and y is not None:
        raise ValueError(
            "leave_one_out must be False with labels, whose values do not depend on "
            f"other samples of x, got {leave_one_out}"
        )
    l2 = check_positive("l2", l2)
    if chunk_size is not None:
        chunk_size = check_count("chunk_size", chunk_size)
    if bandwidth is not None:
        if kernel != "gaussian":
            raise ValueError(
                f"bandwidth must be None with kernel={kernel!r}, got {bandwidth}"
            )
        bandwidth = check_positive("bandwidth", bandwidth)
    if reference_size is not None:
        reference_size = check_count("reference_size", reference_size, minimum=2)
    pair = check_pair(x, y, x_val, y_val)
    rows, target = np.asarray(pair.x), np.asarray(pair.x_val)
    if leave_one_out and len(rows) < 2:
        raise ValueError(f"x must have two samples to leave one out, got {len(rows)}")
    # The Gaussian kernel depends on differences only, and the linear one on differences
    # from the mean of x once values are centred: far origins lose no digits.
    centre = target.mean(axis=0, dtype=np.float64)
    peak = _check_peak(rows, target, centre)
    if kernel == "gaussian" and bandwidth is None:
        bandwidth = median_length(rows, target)
    if bandwidth is not None and peak > _LARGEST * bandwidth:
        raise ValueError(
            f"bandwidth must be at least {peak / _LARGEST:.3g}, 1e-15 of the largest "
            f"difference from the target's mean, got {bandwidth:g}"
        )
    labels = None
    if y is not None and y_val is not None:
        labels = _check_labels(y, y_val, len(rows), len(target))
    elif rows.shape == target.shape and np.array_equal(rows, target):
        doubt(
            "x_val is x, so that MMD is 0 and no sample brings it down: compare with "
            "clean samples that are not in x"
        )
    call = describe(
        "mmd_values",
        kernel=kernel,
        bandwidth=None if bandwidth is None else f"{bandwidth:.6g}",
        labels=None if labels is None else True,
        l2=None if labels is None else f"{l2:g}",
        leave_one_out=leave_one_out or None,
        reference_size=reference_size
        if kernel == "gaussian" and labels is None
        else None,
    )
    if kernel == "linear":
        means = LinearMeans(target, centre)
    else:
        assert bandwidth is not None
        means = GaussianMeans(target, centre, bandwidth)
        means.widen(rows, target)
    size = chunk_size or max(64, entries() // len(target))
    chunks = track(
        parts := chunk_slices(len(rows), min(size, len(rows))),
        progress=progress,
        label="mmd_values",
        total=len(parts),
    )
    if labels is not None:
        means.regress(*labels[1:], l2=l2)
        misfits = [means.misfit(rows[part], labels[0][part]) for part in chunks]
        result = Values(
            values=jnp.asarray(-np.concatenate(misfits), jnp.float32),
            count=jnp.asarray(len(target), jnp.int32),
        )
    else:
        means.refer_to(rows, reference_size)
        sums = [means.means(rows[part], part) for part in chunks]
        result = _influences(
            *(np.concatenate(parts) for parts in zip(*sums, strict=True)),
            m=len(target),
            leave_one_out=leave_one_out,
        )
    doubt_values(np.asarray(result.values))
    source = {"x": fingerprint(rows.shape, sampled(rows)), "options": call}
    part = f"{len(target)} target samples {fingerprint(as_float32(target))}"
    return Values(
        values=result.values,
        count=result.count,
        m2=result.m2,
        method=call,
        index=pair.row_labels,
        # A regression on two targets is not the mean of two regressions.
        provenance=Provenance(source, (part,)) if labels is None else None,
    )


def _influences(
    to_target: np.ndarray,
    among: np.ndarray,
    itself: np.ndarray,
    squares: np.ndarray,
    *,
    m: int,
    leave_one_out: bool,
) -> Values:
    """Return values from the means of kernels of each sample, all `[n]` float64.

    Args:
        to_target: Mean kernel with target samples.
        among: Mean kernel with all samples of x, itself included.
        itself: Kernel with itself.
        squares: Squared deviations of k(x_i, z_j) less its mean over i, summed over j.
        m: Number of target samples.
        leave_one_out: Whether to return exact differences.
    """
    n = len(among)
    a, b = to_target - to_target.mean(), among
    if leave_one_out:
        values = 2 * (n - 1) * a + (2 * n - 1) * b.mean() - 2 * n * b + itself
        values, factor = values / (n - 1) ** 2, 2 / (n - 1)
    else:
        values, factor = 2 / n * (a - (b - b.mean())), 2 / n
    return Values(
        values=jnp.asarray(values, jnp.float32),
        # Target samples enter through a alone, which has this factor; so squared
        # deviations over them scale by its square.
        m2=jnp.asarray(squares * factor**2, jnp.float32),
        count=jnp.asarray(m, jnp.int32),
    )


def _check_labels(
    y: npt.ArrayLike, y_val: npt.ArrayLike, n: int, m: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the classes of both tables as numbers, and how many there are."""
    pair = as_labels("y", y), as_labels("y_val", y_val)
    for name, labels, rows in zip(("y", "y_val"), pair, (n, m), strict=True):
        if labels.shape != (rows,):
            raise ValueError(
                f"{name} must have one label for each of the {rows} samples, shape "
                f"({rows},), got {labels.shape}"
            )
    if m > _MOST:
        raise ValueError(
            f"x_val must have at most {_MOST} samples with labels, whose kernel matrix "
            f"is held in float64, got {m}: pass some of them"
        )
    codes, codes_val, n_classes = encode_labels(*pair)
    check_shared_labels(*pair, codes, codes_val)
    return codes, codes_val, n_classes


def _check_peak(x: np.ndarray, x_val: np.ndarray, centre: np.ndarray) -> float:
    """Return the largest centred feature; refuse it if its square leaves float32."""
    with np.errstate(over="ignore"):
        edges = (edge.astype(np.float64) for a in (x, x_val) for edge in _edges(a))
        peak = max(float(np.abs(edge - centre).max()) for edge in edges)
    if peak and not _SMALLEST <= peak <= _LARGEST:
        raise ValueError(
            "x must have features whose squares fit float32: their largest difference "
            f"from the target's mean must be {_SMALLEST:g} to {_LARGEST:g}, got "
            f"{peak:.3g}; rescale them"
        )
    return peak


def _edges(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.min(axis=0), x.max(axis=0)
