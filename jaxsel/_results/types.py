"""The results every room returns: `Values` and `Selection`.

Both are frozen dataclasses registered as pytrees, so that they pass through `jax.jit`,
`jax.tree.map` and orbax; both save to a single `.npz` without pickle.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.checks import is_readable
from jaxsel._inputs.show import SHOWN, compared, show_count, show_pairs
from jaxsel._inputs.usual_mistakes import doubt

from .files import load, save
from .selection import Selection as Selection

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy.typing as npt
    import pandas as pd

Reduce = Literal["mean", "max"] | None


class Provenance(NamedTuple):
    """Digests of a computation's inputs, which `merge` compares.

    Attributes:
        source: Digests of training data and options, by name; merged values must have
            the same.
        parts: Names of counted validation points, or of the samples of a key; merged
            values must share none.
    """

    source: dict[str, str]
    parts: tuple[str, ...]


@compared
@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("values", "count", "m2", "error_bound"),
    meta_fields=("method", "reduce", "index"),
    # Dropped: transformed arrays have another origin, and as static metadata it would
    # make tree structures differ and programs recompile.
    drop_fields=("provenance",),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Values:
    """Values of n training points; higher is better.

    Attributes:
        values: Array of shape `[n]`, or `[n_val, n]` with `reduce=None`: one row for
            each validation point.
        count: Scalar int32: how many validation points, permutations or networks were
            averaged; `[n]` where each training point has its own number.
        m2: Array of shape `[n]`: the sum of their squared deviations from the mean,
            from which `stderr` follows and with which disjoint results merge. Larger
            for sampled values where few samples, or equal ones, would understate the
            error; see the estimator. None unless `reduce="mean"`; but an attribution
            that averages networks has it in the shape of `values`.
        error_bound: Array of the shape of `values`, or None. Each value is certified to
            be within this distance of the exact one. None means that the values are
            exact up to rounding.
        method: Name of the method, with every parameter that matters.
        reduce: Reduction over validation points: "mean", "max" or None (none).
        provenance: Digests of the inputs, by which `merge` refuses to count a point
            twice; None if unknown, such as after `jax.jit`.
        index: The labels of the rows where the training points came as a DataFrame with
            an index of its own, or of owners where these were valued, else None.
            `to_pandas` uses it; all else counts by position.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array(["cat", "dog", "cat", "dog", "dog", "dog"])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [1.06]]), np.array(["cat", "dog"])
        >>> values = jaxsel.knn_shapley(x, y, x_val, y_val, k=3)
        >>> print(values.bottom(1), values.values.shape, values.count)
        [1] (6,) 2
        >>> values.to_pandas(labels=y).columns.tolist()
        ['value', 'rank', 'stderr', 'label']
    """

    values: jax.Array
    count: jax.Array
    m2: jax.Array | None = None
    error_bound: jax.Array | None = None
    method: str = dataclasses.field(default="", metadata={"static": True})
    reduce: Reduce = dataclasses.field(default="mean", metadata={"static": True})
    provenance: Provenance | None = dataclasses.field(
        default=None, metadata={"static": True}
    )
    index: tuple[Any, ...] | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    def __len__(self) -> int:
        return self.values.shape[-1]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self.values, dtype)
        return array.copy() if copy else array

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_numpy())

    def __getitem__(self, key: Any) -> Any:
        """Return the value at a position; at a slice, a mask or positions, `Values`.

        Positions count points, also with `reduce=None`. The result has no provenance,
        and can no longer be merged.
        """
        rows = np.arange(len(self))[key]
        if rows.ndim == 0:
            return np.asarray(self.values)[..., rows]
        part = functools.partial(_columns_at, rows=rows, n=len(self))
        return dataclasses.replace(
            self,
            values=part(self.values),
            count=part(self.count),
            m2=part(self.m2),
            error_bound=part(self.error_bound),
            provenance=None,
            index=None if self.index is None else tuple(self.index[i] for i in rows),
        )

    def __repr__(self) -> str:
        text = (
            f"Values({self.method or 'unnamed'}, n={len(self)}, "
            f"count={show_count(self.count)}, reduce={self.reduce!r}"
        )
        if self.values.ndim == 1 and is_readable(self.values):
            array = np.asarray(self.values)
            unknown = int(np.isnan(array).sum())
            best = self._best_first()[: min(SHOWN, len(self) - unknown)]
            names = best if self.index is None else [self.index[i] for i in best]
            text += f", best={show_pairs(names, array[best])}"
            text += f", {unknown} unknown" if unknown else ""
        return f"{text})"

    def _repr_html_(self) -> str:
        from .html import values_html

        return values_html(self)

    def to_numpy(self) -> np.ndarray:
        """Return the values, `[n]`, or `[n_val, n]` with `reduce=None`."""
        return np.asarray(self.values)

    @property
    def stderr(self) -> jax.Array | None:
        """Standard error of each mean, `[n]` (ddof = 1; NaN where count is below 2).

        The value plus or minus 1.96 of it is a 95 % interval. Of values that were
        computed, not sampled, it is the error of the mean over validation points.
        """
        if self.m2 is None:
            return None
        count = self.count.astype(self.m2.dtype)
        return jnp.sqrt(self.m2 / ((count - 1) * count))

    def top(self, k: int) -> np.ndarray:
        """Return the positions of the `k` most valuable points, best first, `[k]`.

        Row numbers, also where the points came as a DataFrame: `x.iloc[values.top(k)]`.
        For its labels see `to_pandas`. Of equal values the lower position is first;
        NaN, where a value is unknown, last, with a warning.

        Raises:
            ValueError: If `k` is negative or above n, or no value is known.
        """
        return self._best_first()[: self._check_k(k)]

    def bottom(self, k: int) -> np.ndarray:
        """Return the positions of the `k` least valuable points, worst first, `[k]`.

        Row numbers, as for `top`: for a DataFrame `x.iloc[values.bottom(k)]`. Of equal
        values the higher position is first; NaN, where a value is unknown, last, with a
        warning.

        Raises:
            ValueError: If `k` is negative or above n, or no value is known.
        """
        best = self._best_first()
        known = len(self) - int(np.isnan(self.values).sum())
        return np.append(best[:known][::-1], best[known:])[: self._check_k(k)]

    def rank(self) -> np.ndarray:
        """Return each point's rank, `[n]`, by position: 0 is the most valuable one.

        Points with an unknown value, NaN, have the last ranks.
        """
        rank = np.empty(len(self), np.int64)
        rank[self._best_first()] = np.arange(len(self))
        return rank

    def to_pandas(self, *, labels: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Return a data frame with one row per point: value, rank, error estimates.

        Where the points came as a DataFrame its index is the frame's, so that
        `x.loc[values.to_pandas().nsmallest(40, "value").index]` are the 40 worst.

        Args:
            labels: Optional `[n]`, added as a column.

        Raises:
            ValueError: With `reduce=None`, where each point has many values.
        """
        import pandas as pd

        columns: dict[str, Any] = {
            "value": self._vector("to_pandas"),
            "rank": self.rank(),
        }
        if self.stderr is not None:
            columns["stderr"] = np.asarray(self.stderr)
        if self.error_bound is not None:
            columns["error_bound"] = np.asarray(self.error_bound)
        if labels is not None:
            columns["label"] = np.asarray(labels)
        if self.index is None:
            return pd.DataFrame(columns, index=pd.RangeIndex(len(self), name="index"))
        index = pd.Index(list(self.index), name="index", tupleize_cols=False)
        return pd.DataFrame(columns, index=index)

    def plot(
        self,
        ax: Sequence[matplotlib.axes.Axes] | None = None,
        *,
        labels: npt.ArrayLike | None = None,
    ) -> Sequence[matplotlib.axes.Axes]:
        """Draw the sorted values with error bars, and their histogram by class.

        Args:
            ax: Two axes to draw on; made if None.
            labels: Optional `[n]`: the class of each point.

        Returns:
            The two axes.
        """
        from jaxsel.report import plot_values

        return plot_values(self, ax=ax, labels=labels)

    def merge(self, *others: Values) -> Values:
        """Combine with results over other, disjoint validation points.

        Equals the result of one call over all of them, up to rounding: means and
        second moments by the pairwise update of Chan, Golub and LeVeque (The American
        Statistician 37, 1983), maxima by maxima, rows (`reduce=None`) by appending.
        Sampled values merge with others of the same utility under other keys.

        Points that overlap in part go unnoticed; so does all of it where `provenance`
        is None.

        Raises:
            ValueError: If the results differ in length, method, reduction, training
                data, function or utility, or if both have counted the same validation
                points or the samples of the same key.
        """
        merged = self
        for other in others:
            merged = merged._merge_one(other)
        return merged

    def by_owner(self, owners: npt.ArrayLike) -> Values:
        """Return the sum over the points of each owner, with `index` their labels.

        Standard errors are dropped: points' errors do not determine a sum's.

        Args:
            owners: The owner of each point, `[n]`, by labels of any kind.

        Raises:
            ValueError: With `reduce="max"`, or not one label for each point.
        """
        from jaxsel._inputs.owners import sums

        return sums(self, owners)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file, without pickle, and return its path."""
        return save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Values:
        """Read values from a file that `save` wrote.

        Raises:
            ValueError: If the file holds something else.
        """
        return load(cls, path, _restored)

    def _merge_one(self, other: Values) -> Values:
        for name in ("method", "reduce"):
            setting, other_setting = getattr(self, name), getattr(other, name)
            if setting != other_setting:
                raise ValueError(
                    f"cannot merge values whose {name} differs: {setting!r} and "
                    f"{other_setting!r}"
                )
        if len(self) != len(other):
            raise ValueError(
                f"cannot merge values of {len(self)} points with values of "
                f"{len(other)}: both must value the same training points"
            )
        if self.index != other.index:
            raise ValueError(
                "cannot merge values whose index differs: both must value the same "
                "training points in the same order"
            )
        provenance = _join(self.provenance, other.provenance)
        dtype = self.values.dtype
        a, b = (np.asarray(v.values, np.float64) for v in (self, other))
        n_a, n_b = (np.asarray(v.count, np.int64) for v in (self, other))
        total = np.maximum(n_a + n_b, 1)
        bounds = _both(self.error_bound, other.error_bound, a, b)
        m2 = None
        if self.reduce == "mean":
            # A mean of no samples is NaN: replace it, as its weight is 0.
            a, b = np.where(n_a == 0, b, a), np.where(n_b == 0, a, b)
            # Pairwise update of mean and m2 (Chan, Golub & LeVeque 1983), in float64:
            # sums of squares would cancel.
            delta = b - a
            values = a + delta * (n_b / total)
            if self.m2 is not None and other.m2 is not None:
                m2 = np.asarray(self.m2, np.float64) + np.asarray(other.m2, np.float64)
                m2 = jnp.asarray(m2 + delta**2 * (n_a * n_b / total), dtype)
            # Triangle inequality: the error of a weighted mean is at most that mean of
            # the bounds.
            bound = None if bounds is None else (n_a * bounds[0] + n_b * bounds[1])
            if bound is not None:
                bound = _round_up(bound / total, values, dtype)
        elif self.reduce == "max":
            # |max(a, b) - max(a', b')| <= max(|a - a'|, |b - b'|)
            values = np.maximum(a, b)
            bound = None if bounds is None else np.maximum(*bounds)
        else:
            values = np.concatenate([a, b])
            bound = None if bounds is None else np.concatenate(bounds)
        return dataclasses.replace(
            self,
            values=jnp.asarray(values, dtype),
            m2=m2,
            count=jnp.asarray(n_a + n_b, jnp.int32),
            error_bound=None if bound is None else jnp.asarray(bound, dtype),
            provenance=provenance,
        )

    def _vector(self, caller: str) -> np.ndarray:
        if self.values.ndim != 1:
            raise ValueError(
                f"{caller} needs one value per point, but these have shape "
                f"{self.values.shape} (reduce=None): use reduce='mean' or 'max', or "
                "take the mean over the first axis"
            )
        return np.asarray(self.values)

    def _best_first(self) -> np.ndarray:
        # NumPy sorts NaN last.
        return np.argsort(-self._vector("ranking"), kind="stable")

    def _check_k(self, k: int) -> int:
        if not 0 <= k <= len(self):
            raise ValueError(f"k must be between 0 and n = {len(self)}, got {k}")
        known = len(self) - int(np.isnan(self.values).sum())
        if k > known:
            remedy = "take more samples, or allow more time"
            if not known:
                raise ValueError(
                    f"k must be 0, as all {len(self)} values are NaN, that is unknown: "
                    f"{remedy}; got {k}"
                )
            doubt(
                f"k = {k} is more than the {known} of {len(self)} values that are "
                f"known: the others are NaN, and come last by position; {remedy}"
            )
        return k


def _restored(static: dict[str, Any]) -> dict[str, Any]:
    """Convert static fields from JSON to the types that `Values` has."""
    fields = dict(static)
    if fields.get("provenance") is not None:
        source, parts = fields["provenance"]
        fields["provenance"] = Provenance(source, tuple(parts))
    if fields.get("index") is not None:
        fields["index"] = tuple(fields["index"])
    return fields


def _columns_at(
    array: jax.Array | None, *, rows: np.ndarray, n: int
) -> jax.Array | None:
    """Index the last axis by `rows` if its size is n, else return the array as is."""
    if array is None or array.ndim == 0 or array.shape[-1] != n:
        return array
    return jnp.asarray(np.asarray(array)[..., rows])


def _join(a: Provenance | None, b: Provenance | None) -> Provenance | None:
    """Join the provenance of two results; raise if they must not be merged."""
    if a is None or b is None:
        return None
    names = dict.fromkeys([*a.source, *b.source])
    differ = [name for name in names if a.source.get(name) != b.source.get(name)]
    if differ:
        raise ValueError(
            f"cannot merge values that were computed from other {', '.join(differ)}"
        )
    shared = [part for part in a.parts if part in b.parts]
    if shared:
        raise ValueError(
            f"cannot merge values that have both counted the {shared[0]}: they would "
            "count twice. Validation points that are others, but equal, merge after "
            "dataclasses.replace(values, provenance=None)"
        )
    return Provenance(a.source, a.parts + b.parts)


def _both(
    a: jax.Array | None, b: jax.Array | None, like_a: np.ndarray, like_b: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return two error bounds, 0 for an exact result; None if both are exact."""
    if a is None and b is None:
        return None
    return (
        np.zeros_like(like_a) if a is None else np.asarray(a, np.float64),
        np.zeros_like(like_b) if b is None else np.asarray(b, np.float64),
    )


def _round_up(bound: np.ndarray, values: np.ndarray, dtype: Any) -> np.ndarray:
    """Widen a bound by the rounding error of the values, and of itself."""
    # Rounding to `dtype` moves a value and its bound by half an ulp each: `spacing`
    # covers the first, `nextafter` the second.
    bound = (bound + np.spacing(np.abs(values).astype(dtype))).astype(dtype)
    return np.nextafter(bound, np.inf, dtype=dtype)
