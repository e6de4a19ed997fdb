"""Features split by rows over the devices of a mesh.

Distances are computed where the features are. Then each device gets whole rows of
distances, of its share of the queries: an all-to-all. Exact distances of a row's near
ties come from the device that has the point; see `Exact.axis`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel._devices.mesh import AXIS, is_on, n_shards, spread
from jaxsel._devices.typed import all_to_all
from jaxsel._inputs.checks import (
    as_type,
    check_choice,
    to_float,
    widen,
)
from jaxsel._runs.fingerprint import as_float32, sampled, sampling_step

from ._distance import (
    METRICS,
    Metric,
    as_given,
    check_peak,
    normalise,
    repaired,
    rounded_mean,
    rounds_nothing,
    squared_norms,
)
from ._exact import Exact, errors
from ._together import ROWS as ROWS

# Moves distances to the side of a border where they belong: [m, n], and what they are
# of -> [m, n].
Decide = Callable[[jax.Array, Exact], jax.Array]


@dataclasses.dataclass(frozen=True)
class Parts:
    """Features on the devices of a mesh, and the queries on every host.

    Attributes:
        own: Prepared features, their `squared_norms`, and points as `Exact` takes them
            (the same array if nothing was done to them) or None: each split over the
            devices, which have `share` rows each. The last ones are zeros.
        error: Of `Exact`, `[n]`, for every device; None where distances are exact.
        queries: `[m, d]`, prepared.
        asked: `[m, ...]`: the queries as `Exact` takes them, or None.
        sample: Some rows as they were given, for a fingerprint.
        n: How many points there are.
        share: Rows of a device.
    """

    own: Any
    error: jax.Array | None
    queries: np.ndarray
    asked: np.ndarray | None
    sample: np.ndarray
    n: int
    share: int


def split_features(
    x: np.ndarray | jax.Array,
    x_val: np.ndarray | jax.Array,
    *,
    metric: Metric,
    mesh: jax.sharding.Mesh,
) -> Parts:
    """Prepare features as `prepare_exact` does, split over "data".

    Args:
        x: Array of shape `[n, d]`: of a host, or one that `is_on` the mesh. Of that,
            nothing moves between processes if it is split over "data".
        x_val: Array of shape `[m, d]`.
        metric: "l2" or "cosine".
        mesh: Devices, of an axis "data".

    Raises:
        ValueError: If squared distances would overflow or vanish in float32.
    """
    check_choice("metric", metric, METRICS)
    n, d = x.shape
    devices, cosine = n_shards(mesh), metric == "cosine"
    share = -(-n // devices)
    split, run = jax.NamedSharding(mesh, jax.P(AXIS)), _programs(mesh)
    asked = np.asarray(x_val)
    resident = is_on(x, mesh)
    if resident:
        x = spread(cast(jax.Array, x), mesh, share * devices)
        shards = {
            shard.index[0].start or 0: shard.data for shard in x.addressable_shards
        }
        centre, *edges, whole = map(np.asarray, run.describe(x, n))
        sample = as_float32(run.sample(x, n))
    else:
        x, shards, whole = np.asarray(x), {}, True
        centre, edges = rounded_mean(x), (x.min(axis=0), x.max(axis=0))
        sample = sampled(x)
    points: Any = None
    settles = cosine
    if cosine:
        centre = np.zeros(d)
    else:
        peak = check_peak(centre, *edges, asked.min(axis=0), asked.max(axis=0))
        arrays = (asked,) if resident else (x, asked)
        settles = not (whole and rounds_nothing(*arrays, peak=peak))
    changed = cosine or bool(centre.any())

    def ready(rows: np.ndarray) -> np.ndarray:
        if cosine:
            return np.asarray(normalise(to_float(rows)), np.float32)
        if not changed:
            return as_type(rows, np.float32)
        out = np.empty(rows.shape, np.float32)
        return np.subtract(rows, centre, out=out, dtype=np.float64, casting="same_kind")

    def by_device(make: Callable[[np.ndarray], Any], width: int) -> jax.Array:
        """Make the rows of each device on its host, one device at a time."""

        def rows(index: Any) -> np.ndarray:
            start = index[0].start or 0
            local = shards[start] if resident else x[start : start + share]
            prepared = np.asarray(make(np.asarray(local)))
            return np.pad(prepared, ((0, share - len(prepared)), (0, 0)))[:share]

        return jax.make_array_from_callback((share * devices, width), split, rows)

    unchanged = resident and not changed and x.dtype == jnp.float32
    features = cast(jax.Array, x) if unchanged else by_device(ready, d)
    exact_asked: Any = None
    if settles:
        probe, exact_asked = as_given(np.empty((1, d), x.dtype), asked, cosine=cosine)
        if probe.dtype == np.float32 and not changed:
            points = features
        else:

            def exact_rows(rows: np.ndarray) -> np.ndarray | jax.Array:
                return as_given(rows, asked[:1], cosine=cosine)[0]

            points = by_device(exact_rows, probe.shape[1])
    norms = run.norms(features)
    error = run.error(norms, n, d, cosine) if settles else None
    return Parts(
        own=(features, norms, points),
        error=error,
        queries=ready(asked),
        asked=exact_asked,
        sample=sample,
        n=n,
        share=share,
    )


class _Programs(NamedTuple):
    describe: Callable[..., Any]
    sample: Callable[..., jax.Array]
    norms: Callable[..., jax.Array]
    error: Callable[..., jax.Array]


@functools.lru_cache(maxsize=16)
def _programs(mesh: jax.sharding.Mesh) -> _Programs:
    """Return jitted functions of split features; all but `norms` replicate results."""
    whole, split = (jax.NamedSharding(mesh, spec) for spec in (jax.P(), jax.P(AXIS)))
    return _Programs(
        jax.jit(_describe, static_argnums=1, out_shardings=whole),
        jax.jit(_sample, static_argnums=1, out_shardings=whole),
        jax.jit(squared_norms, out_shardings=split),
        jax.jit(_error, static_argnums=(1, 2, 3), out_shardings=whole),
    )


def _sample(x: jax.Array, n: int) -> jax.Array:
    return x[: n : sampling_step(n)]


def _error(norms: jax.Array, n: int, d: int, cosine: bool) -> jax.Array:
    norms = jnp.full(n, 0.5, norms.dtype) if cosine else norms[:n]
    return errors(norms, norms[:0], d)[0]


def _describe(
    x: jax.Array, n: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Summarise the first n rows, for centring and the choice of precision.

    Return their rounded mean, the least and the largest of each feature, `[d]` each,
    and whether all are whole numbers.
    """
    x = widen(x)
    mean = jnp.round(jnp.sum(x, axis=0) / n)  # what was filled up is zeros
    whole = jnp.all(x == jnp.round(x))
    if len(x) == n:
        return mean, jnp.min(x, axis=0), jnp.max(x, axis=0), whole
    is_row = (jnp.arange(len(x)) < n)[:, None]
    least = jnp.min(jnp.where(is_row, x, jnp.inf), axis=0)
    return mean, least, jnp.max(jnp.where(is_row, x, -jnp.inf), axis=0), whole


def rows_of(
    own: tuple[jax.Array, jax.Array, jax.Array | None],
    error: jax.Array | None,
    queries: jax.Array,
    asked: jax.Array | None,
    *,
    n: int,
    metric: Metric,
    decide: Decide | None,
    thorough: bool,
) -> tuple[jax.Array, Exact | None, Any]:
    """Return whole rows of distances for this device's share of the queries.

    For `shard_map` over "data". Each device sends its columns of the other devices'
    rows: 4 bytes for each of its (query, point) pairs, but for its own share.

    Args:
        own: Of this device: see `Parts`.
        error: See `Parts`.
        queries: Of all devices, `[devices * rows, d]`.
        asked: The queries of all devices as `Exact` takes them, or None.
        n: How many points there are.
        metric: "l2" or "cosine".
        decide: Corrects distances near a border, each on the device with the point. If
            given, the order of rows is not settled.
        thorough: See `Exact`.

    Returns:
        `[rows, n]`; the `Exact` for near ties among them, or None; and its axes under
        `jax.vmap` over the rows.
    """
    features, norms, points = own
    near, exact, _ = repaired(
        features,
        queries,
        metric=metric,
        norms=norms,
        points=points,
        asked=asked,
        for_order=False,
    )
    if exact is not None and decide is not None:
        near, exact = decide(near, exact), None
    near = all_to_all(near, AXIS, 0, 1, tiled=True)[:, :n]
    if exact is None:
        return near, None, None
    assert error is not None  # wherever there is an `exact`
    rows = len(near)
    # Column 1, the largest bound, was over this device's points: rows now have all.
    query_error = exact.query_error.at[:, 1].set(exact.query_error[:, 0] + error.max())
    first = lax.axis_index(AXIS) * rows
    exact = dataclasses.replace(
        exact,
        query=exact.query.reshape(-1, rows, exact.query.shape[1]),
        error=error,
        query_error=lax.dynamic_slice_in_dim(query_error, first, rows),
        axis=AXIS,
        thorough=thorough,
    )
    axes = dataclasses.replace(exact, points=None, query=1, error=None, query_error=0)
    return near, exact, axes


def columns_of(values: jax.Array, share: int) -> jax.Array:
    """Send rows `[rows, n]` back as this device's columns, `[devices * rows, share]`.

    For `shard_map` over "data". As many bytes as `rows_of` sends.
    """
    devices = lax.axis_size(AXIS)
    values = jnp.pad(values, ((0, 0), (0, share * devices - values.shape[1])))
    return all_to_all(values, AXIS, 1, 0, tiled=True)
