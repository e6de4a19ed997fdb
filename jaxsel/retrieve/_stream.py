"""Candidates as a stream of chunks: checked, converted and padded one at a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._checks import (
    as_array,
    check_choice,
    check_concrete,
    check_features,
    check_finite,
    check_numeric,
    encode_labels,
    float_type,
    to_float,
)
from jaxsel._chunk import chunk_rows, chunk_slices
from jaxsel._mesh import is_on, whole
from jaxsel.neighbors import METRICS, Metric, normalise
from jaxsel.neighbors._distance import (
    LARGEST,
    SMALLEST,
    rounded_mean,
    subtract,
)

if TYPE_CHECKING:
    import numpy.typing as npt

# A chunk's features, and its distances, have at most so many entries on each device: on
# a CPU 25 MB of features, below which malloc hands out the same pages again.
_ENTRIES = {"cpu": (6 * 2**20, 2**22)}
_ENTRIES_ELSEWHERE = 2**26, 2**26
_ALIGNMENT = 64


@dataclasses.dataclass(frozen=True)
class Stream:
    """Candidates and hard samples whose shapes and types were checked.

    Attributes:
        features: `[n, d]`, as the caller has them: read chunk by chunk.
        queries: Hard samples, `[m, d]`: centred, or of unit length.
        centre: `[d]`, to be subtracted from candidates, or None.
        codes: Classes of the candidates, `[n]` int32, or None.
        hard_codes: Classes of the hard samples, `[m]` int32, or None.
        metric: "l2" or "cosine".
    """

    features: np.ndarray | jax.Array
    queries: jax.Array
    centre: np.ndarray | None
    codes: np.ndarray | None
    hard_codes: np.ndarray | None
    metric: Metric

    @property
    def n(self) -> int:
        return self.features.shape[0]

    @property
    def centre_here(self) -> bool:
        """True if centring must run on the host in float64: float32 would round."""
        x = self.features
        return (
            self.centre is not None
            and isinstance(x, np.ndarray)
            and not np.can_cast(x.dtype, float_type(x))
        )

    def shared(self) -> Shared:
        """Return what every chunk is compared with."""
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


def open_stream(
    features: npt.ArrayLike | jax.Array,
    hard_features: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array | None,
    hard_labels: npt.ArrayLike | jax.Array | None,
    *,
    metric: Metric,
    mesh: jax.sharding.Mesh | None = None,
) -> Stream:
    """Check what can be checked without reading the candidates.

    Those that are spread over the devices of the mesh stay there. What is spread over
    others comes to this host.
    """
    check_choice("metric", metric, METRICS)
    labels, hard_labels = whole(labels), whole(hard_labels)
    hard = check_features("hard_features", whole(hard_features))
    if isinstance(features, jax.Array) and is_on(features, mesh):
        candidates = features
    else:
        candidates = as_array("features", whole(features))
    check_numeric("features", candidates)
    if candidates.ndim != 2 or 0 in candidates.shape:
        raise ValueError(
            "features must have shape [n, d], one row a candidate and none of them 0, "
            f"got {candidates.shape}"
        )
    if candidates.shape[1] != hard.shape[1]:
        raise ValueError(
            "features and hard_features must have the same number of columns, got "
            f"{candidates.shape[1]} and {hard.shape[1]}"
        )
    if (labels is None) != (hard_labels is None):
        given, missing = ("labels", "hard_labels")[:: 1 if hard_labels is None else -1]
        raise ValueError(f"{given} is given, so {missing} must be given too")
    codes = hard_codes = None
    if labels is not None and hard_labels is not None:
        codes, hard_codes = _encode(labels, hard_labels, len(candidates), len(hard))
    queries, centre = _prepare(hard, metric)
    check_concrete("features", queries)
    return Stream(candidates, queries, centre, codes, hard_codes, metric)


def _encode(
    labels: Any, hard_labels: Any, n: int, m: int
) -> tuple[np.ndarray, np.ndarray]:
    names = ("labels", "hard_labels")
    for name, value, length in zip(names, (labels, hard_labels), (n, m), strict=True):
        shape = np.shape(as_array(name, value))
        if shape != (length,):
            raise ValueError(
                f"{name} must hold one class for each sample, shape ({length},), got "
                f"{shape}"
            )
    # Unlike in valuation and matching, a class may be any finite number.
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
    """Hard samples, in the form in which they go to the devices.

    Attributes:
        queries: `[m, d]`.
        centre: `[d]`, still to be subtracted from candidates, or None.
        hard_codes: Their classes, `[m]`, or None.
    """

    queries: Any
    centre: Any
    hard_codes: Any


class Part(NamedTuple):
    """A chunk in the form in which it goes to the devices.

    Attributes:
        features: `[rows, d]`; or flat, where they are read in place: `rows * d` entries
            from `shift` on. Filled up with zeros.
        codes: Classes, `[rows]`, or None.
    """

    features: Any
    codes: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Candidates `start` to `stop` of a stream, filled up to `rows` when loaded.

    Attributes:
        in_place: Whether to hand NumPy features to the device without copying them.
    """

    stream: Stream
    start: int
    stop: int
    rows: int
    in_place: bool

    def load(self) -> tuple[Part, np.int32, np.int32]:
        """Return the chunk, its `shift`, and how many of its rows are filled."""
        codes = self.stream.codes
        if codes is not None:
            codes = _fill(codes[self.start : self.stop], self.rows)
        shift = 0
        if self.in_place and isinstance(self.stream.features, np.ndarray):
            flat, shift = self._flat(self.stream.features)
            features = jax.device_put(flat, may_alias=True)
        else:
            features = _fill(self._floats(), self.rows)
        return Part(features, codes), np.int32(shift), np.int32(self.stop - self.start)

    def _floats(self) -> np.ndarray | jax.Array:
        part = self.stream.features[self.start : self.stop]
        if self.stream.centre_here and self.stream.centre is not None:
            part = subtract(part, self.stream.centre)
        if isinstance(part, jax.Array):
            return part.astype(float_type(part))
        return np.asarray(part, float_type(part))

    def _flat(self, features: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the features as a flat array that JAX on a CPU takes without a copy.

        For that it must begin on a whole multiple of 64 bytes. Arrays mostly do not,
        so it begins up to 63 bytes before the chunk does. Copying took a fifth of the
        time of a search.
        """
        dtype, d = np.dtype(float_type(features)), features.shape[1]
        size, spare = self.rows * d, _ALIGNMENT // dtype.itemsize
        in_form = features.flags.c_contiguous and features.flags.aligned
        if in_form and features.dtype == dtype:
            flat = np.asarray(features).reshape(-1)
            first = self.start * d
            shift = flat[first:].ctypes.data % _ALIGNMENT // dtype.itemsize
            begin = first - shift
            if begin >= 0 and begin + size + spare <= flat.size:
                return flat[begin : begin + size + spare], shift
        part = np.asarray(self._floats()).reshape(-1)
        return _fill(part, size + spare), 0

    def refuse(self) -> NoReturn:
        """Raise the error for features whose squared lengths are not finite."""
        part = np.asarray(self.stream.features[self.start : self.stop], np.float64)
        bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
        first = self.start + int(bad[0]) if bad.size else None
        row = self.start + int(np.abs(part).max(axis=1).argmax())
        refuse(self.stream.metric, first, row)


def refuse(metric: Metric, bad: int | None, large: int) -> NoReturn:
    """Raise the error for candidates whose squared lengths are not finite.

    Args:
        metric: "l2" or "cosine".
        bad: The first that has NaN or infinity, or None.
        large: That with the largest number.
    """
    if bad is not None:
        raise ValueError(f"features must be finite, but row {bad} has NaN or infinity")
    if metric == "cosine":
        raise ValueError(
            f"features must fit float32, but row {large} has larger absolute values; "
            "rescale features"
        )
    raise ValueError(
        "features must have squares that fit float32: absolute values up to "
        f"{LARGEST:g}, but row {large} has larger ones; rescale features and "
        "hard_features"
    )


def candidate_chunks(
    stream: Stream, *, chunk_size: int | None, devices: int
) -> list[Chunk]:
    """Split a stream into chunks of one shape, the last one shorter before padding."""
    d, m = stream.features.shape[1], len(stream.queries)
    limits = _ENTRIES.get(jax.default_backend(), _ENTRIES_ELSEWHERE)
    most = max(1, min(limits[0] // d, limits[1] // m))
    rows = chunk_rows(stream.n, 1, chunk_size=chunk_size, devices=devices, entries=most)
    in_place = devices == 1 and jax.default_backend() == "cpu"
    return [
        Chunk(stream, part.start, part.stop, rows, in_place)
        for part in chunk_slices(stream.n, rows)
    ]


def _fill(array: Any, length: int) -> Any:
    """Append zeros until there are `length` entries on the first axis."""
    missing = length - len(array)
    if not missing:
        return array
    shape = (missing, *array.shape[1:])
    if isinstance(array, jax.Array):
        return jnp.concatenate([array, jnp.zeros(shape, array.dtype)])
    return np.concatenate([array, np.zeros(shape, array.dtype)])
