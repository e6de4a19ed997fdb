"""Candidates and hard samples, checked without reading the candidates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.mesh import is_on, whole
from jaxsel._devices.platform import one_thread
from jaxsel._inputs.alignment import align_columns
from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_concrete,
    check_features,
    check_finite,
    check_numeric,
    float_type,
    to_float,
)
from jaxsel._inputs.labels import encode_labels
from jaxsel._inputs.rows import Rows, in_step
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel.neighbors import METRICS, Metric, normalise
from jaxsel.neighbors._distance import (
    LARGEST as LARGEST,
    SMALLEST,
    rounded_mean,
    subtract as subtract,
)

if TYPE_CHECKING:
    import numpy.typing as npt

# Candidates and hard samples that decide the precision; roundings below which their
# median distance counts as lost; most numbers that are converted to float64.
_SAMPLE, _HARD, _NOTABLE, _WIDEST = 512, 64, 2000, 2**27
MOST = 2**31 - 1
"""Candidates: indices are int32."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """Candidates and hard samples with checked shapes and types.

    Attributes:
        features: `[n, d]`, as the caller has them: read chunk by chunk. Rows of an
            iterator, whose n is not known, are read by `row_chunks`.
        queries: Hard samples, `[m, d]`: centred, or of unit length.
        centre: `[d]`, to be subtracted from candidates, or None.
        codes: Classes of the candidates, `[n]` int32, or rows that give them chunk by
            chunk, or None.
        hard_codes: Classes of the hard samples, `[m]` int32, or None.
        metric: "l2" or "cosine".
        is_iterator: True if only a pass can tell how many candidates there are.
        n: Number of candidates; 0 of an iterator.
        d: Number of features.
        float_type: Type in which candidates go to the devices.
        centre_here: True if centring must run on the host in float64: float32 would
            round.
    """

    features: np.ndarray | jax.Array | Rows
    queries: jax.Array
    centre: np.ndarray | None
    codes: np.ndarray | Codes | None
    hard_codes: np.ndarray | None
    metric: Metric
    is_iterator: bool = dataclasses.field(init=False)
    n: int = dataclasses.field(init=False)
    d: int = dataclasses.field(init=False)
    float_type: type[np.floating] = dataclasses.field(init=False)
    centre_here: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        x = self.features
        is_iterator = isinstance(x, Rows) and x.n is None
        narrow = float_type(np.empty(0, x.dtype))
        keeps_digits = isinstance(x, jax.Array) or np.can_cast(x.dtype, narrow)
        vars(self).update(
            is_iterator=is_iterator,
            n=0 if is_iterator else x.shape[0],
            d=x.source.row_shape[0] if isinstance(x, Rows) else x.shape[1],
            float_type=narrow,
            centre_here=self.centre is not None and not keeps_digits,
        )

    def shared(self) -> Shared:
        """Return the hard samples, for the step that compares a chunk with them."""
        centre = None
        if self.centre is not None and not self.centre_here:
            centre = np.asarray(self.centre, self.queries.dtype)
        return Shared(self.queries, centre, self.hard_codes)

    def hard(self, part: slice) -> Stream:
        """Return the same candidates with some of the hard samples only."""
        codes = self.hard_codes
        return dataclasses.replace(
            self,
            queries=self.queries[part],
            hard_codes=None if codes is None else codes[part],
        )


@dataclasses.dataclass(frozen=True)
class Codes:
    """Candidates' classes, encoded chunk by chunk by the hard samples' numbering.

    Attributes:
        labels: Of the candidates, `[n]`.
        hard_labels: Of the hard samples, `[m]`.
        hard_codes: Their numbers, `[m]`.
        with_features: Whether a read of the candidates brings their labels, too.
    """

    labels: Rows
    hard_labels: Any
    hard_codes: np.ndarray
    with_features: bool

    def of(self, labels: np.ndarray, start: int) -> np.ndarray:
        """Return the numbers of some labels, -1 for a class of no hard sample."""
        try:
            codes, hard, classes = encode_labels(
                labels, self.hard_labels, names=("labels", "hard_labels"), whole=False
            )
        except (ValueError, TypeError) as error:
            raise type(error)(
                f"{error} (in rows {start} to {start + len(labels) - 1})"
            ) from None
        known = np.full(classes, -1, np.int32)
        known[hard] = self.hard_codes
        return known[codes]


def open_stream(
    features: npt.ArrayLike | jax.Array | Rows,
    hard_features: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array | Rows | None,
    hard_labels: npt.ArrayLike | jax.Array | None,
    *,
    metric: Metric,
    mesh: jax.sharding.Mesh | None = None,
) -> Stream:
    """Check shapes, types and labels, without reading the candidates.

    Candidates spread over the devices of the mesh stay there; arrays spread over other
    devices come to this host.
    """
    labels, hard_labels = whole(labels), whole(hard_labels)
    hard_features = whole(hard_features)
    is_read = isinstance(features, Rows) or is_on(features, mesh)
    candidates: Any = features if is_read else whole(features)
    if isinstance(labels, Rows) and not isinstance(features, Rows):
        labels = np.asarray(labels)  # beside candidates that are an array
    names = "features", "hard_features"
    hard_features = align_columns(features, hard_features, names=names)
    check_choice("metric", metric, METRICS)
    hard = check_features("hard_features", hard_features)
    if not is_read:
        candidates = as_array("features", candidates)
        if candidates.dtype == object:
            candidates = check_features("features", features)
    check_numeric("features", candidates)
    # Of an iterator the number is not known; it is at least 1.
    is_iterator = isinstance(features, Rows) and features.n is None
    shape = (1, *candidates.source.row_shape) if is_iterator else candidates.shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            "features must have shape [n, d], one row a candidate and none of them 0, "
            f"got {('n', *shape[1:]) if is_iterator else shape}"
        )
    if shape[0] > MOST:
        raise ValueError(
            f"features must have at most {MOST} rows, got {shape[0]}: search parts, "
            "as of Rows.shard, one at a time"
        )
    if shape[1] != hard.shape[1]:
        raise ValueError(
            "features and hard_features must have the same number of columns, got "
            f"{shape[1]} and {hard.shape[1]}"
        )
    if (labels is None) != (hard_labels is None):
        known, missing = ("labels", "hard_labels")[:: 1 if hard_labels is None else -1]
        raise ValueError(f"{known} is given, so {missing} must be given too")
    codes = hard_codes = None
    if labels is not None and hard_labels is not None:
        n = None if is_iterator else shape[0]
        codes, hard_codes = _encode(labels, hard_labels, candidates, n, len(hard))
    queries, centre = _prepare(hard, metric)
    check_concrete("features", queries)
    return Stream(candidates, queries, centre, codes, hard_codes, metric)


def in_float64(features: Any, hard_features: Any) -> tuple[np.ndarray, np.ndarray]:
    """Convert candidates and hard samples, with all digits that the caller gave them.

    Raises:
        TypeError: If they are no arrays.
        ValueError: If columns of tables don't fit.
    """
    names = "features", "hard_features"
    hard = align_columns(features, hard_features, names=names)
    both = as_array(names[0], whole(features)), as_array(names[1], whole(hard))
    for name, array in zip(names, both, strict=True):
        check_numeric(name, array)
    x, queries = (np.asarray(array, np.float64) for array in both)
    return x, queries


def needs_float64(features: Any, hard_features: Any, metric: Metric) -> bool:
    """Decide by a sample whether float32 would round differences of distances away.

    As among samples far from the origin for "cosine", or in distant clusters. What is
    wrong is left to `open_stream`, and arrays that would take more than a gigabyte are
    warned of.
    """
    is_table = not isinstance(features, Rows) and getattr(features, "ndim", 2) == 2
    if jax.config.read("jax_enable_x64") or not is_table:
        return False
    sample: Any = features
    if hasattr(sample, "dtype") and not hasattr(sample, "toarray"):  # sparse
        sample = sample[:: max(1, -(-sample.shape[0] // _SAMPLE))]
    try:
        if all(type(array) is np.ndarray for array in (sample, hard_features)):
            x, hard = (np.asarray(a, np.float64) for a in (sample, hard_features))
        else:
            x, hard = in_float64(sample, hard_features)
    except (TypeError, ValueError):
        return False
    hard = hard[:: max(1, len(hard) // _HARD)]
    peak = max(np.abs(a).max(initial=0) for a in (x, hard))
    if x.shape[1:] != hard.shape[1:] or not peak <= LARGEST:
        return False
    if metric == "cosine":
        lengths = (np.linalg.norm(a, axis=1)[:, None] for a in (x, hard))
        x, hard = (
            (a / np.where(length > 0, length, 1))[length[:, 0] > 0]
            for a, length in zip((x, hard), lengths, strict=True)
        )
    if not (len(x) and len(hard)):
        return False
    centre = hard.mean(0) * (metric != "cosine")
    x, hard = x - centre, hard - centre
    squares, of_hard = (np.einsum("nd,nd->n", a, a) for a in (x, hard))
    scale = squares.mean() + of_hard.mean()
    with one_thread():
        near = (squares[:, None] - 2 * (x @ hard.T)).min(axis=0) + of_hard
    noise = float(np.finfo(np.float32).eps) * scale
    if not np.median(near) < _NOTABLE * noise:
        return False
    size = int(np.size(cast(Any, features)))
    if size > _WIDEST:
        doubt(
            "features are so much alike that float32 rounds their distances, and "
            f"{size:,} numbers are too many for float64: subtract the "
            "mean, or take metric='l2'"
        )
        return False
    return True


def _encode(
    labels: Any, hard_labels: Any, candidates: Any, n: int | None, m: int
) -> tuple[np.ndarray | Codes, np.ndarray]:
    names = ("labels", "hard_labels")
    sizes, together = [(names[1], hard_labels, m)], False
    if isinstance(labels, Rows):
        actual = None if labels.n is None else (labels.n, *labels.source.row_shape)
        expected = None if n is None else (n,)
        together = in_step(candidates, labels)
        if actual != expected or labels.source.row_shape or not (n or together):
            raise ValueError(
                "labels must hold one class for each sample, such as rows.labels of "
                f"the rows that are the features, got {labels!r} for {candidates!r}"
            )
    elif n is None:
        raise ValueError(
            "labels must be rows.labels of the iterator's rows that are the features, "
            f"got {type(labels).__name__}"
        )
    else:
        sizes = [(names[0], labels, n), *sizes]
    for name, value, length in sizes:
        shape = np.shape(as_array(name, value))
        if shape != (length,):
            raise ValueError(
                f"{name} must hold one class for each sample, shape ({length},), got "
                f"{shape}"
            )
    # Unlike in valuation and matching, a class may be any finite number.
    if isinstance(labels, Rows):
        _, hard_codes, _ = encode_labels(
            hard_labels, hard_labels, names=(names[1], names[1]), whole=False
        )
        return Codes(labels, hard_labels, hard_codes, together), hard_codes
    codes, hard_codes, _ = encode_labels(labels, hard_labels, names=names, whole=False)
    return codes, hard_codes


def _prepare(
    hard: np.ndarray | jax.Array, metric: Metric
) -> tuple[jax.Array, np.ndarray | None]:
    """Bring hard samples to the form that `distances` takes.

    The centre is theirs, not the candidates': that needs no pass over the candidates,
    and it is near the hard samples that distances must be right.
    """
    if metric == "cosine":
        with np.errstate(over="ignore"):  # refused by name below
            floats = to_float(hard)
        check_finite("hard_features in float32", floats)
        return normalise(floats), None
    centre = rounded_mean(hard)
    queries = subtract(hard, centre)
    peak = float(jnp.abs(queries).max())
    if not (peak == 0 or SMALLEST <= peak <= LARGEST):
        raise ValueError(
            "hard_features must have squares that fit float32: their largest absolute "
            f"value, once centred, must be {SMALLEST:g} to {LARGEST:g}, got "
            f"{peak:.3g}; rescale them and the features"
        )
    return queries, centre if centre.any() else None


class Shared(NamedTuple):
    """Hard samples, in their form on the devices.

    Attributes:
        queries: `[m, d]`.
        centre: `[d]`, still to be subtracted from candidates, or None.
        hard_codes: Their classes, `[m]`, or None.
    """

    queries: Any
    centre: Any
    hard_codes: Any
