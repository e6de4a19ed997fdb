"""The optional compiled operations, and the pure JAX they stand in for.

`pip install` compiles `kernels.cc` where it finds a C++ compiler (see hatch_build.py).
Where it does not, or where the library does not load, `available()` is False and every
caller takes its pure JAX path: same results, several times slower on a CPU. They serve
the CPU only; accelerators always take the JAX path.
"""

import ctypes
import functools
import logging
import os
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LOG = logging.getLogger(__name__)
LIBRARY = Path(__file__).parent / "kernels.so"
_TARGETS = {
    "jaxsel_argsort": "JaxselArgsort",
    "jaxsel_order": "JaxselOrder",
    "jaxsel_ranked": "JaxselRanked",
    "jaxsel_repair": "JaxselRepair",
    "jaxsel_semivalue": "JaxselSemivalue",
    "jaxsel_smallest": "JaxselSmallest",
    "jaxsel_threshold": "JaxselThreshold",
}


@functools.cache
def _library(path: Path) -> ctypes.CDLL:
    return ctypes.cdll.LoadLibrary(str(path))


@functools.cache
def available() -> bool:
    """Return whether the compiled operations load; tried at the first call.

    `JAXSEL_NATIVE=0` in the environment turns them off.
    """
    if os.environ.get("JAXSEL_NATIVE") == "0":
        _LOG.info("JAXSEL_NATIVE=0: pure JAX takes the place of compiled operations")
        return False
    if not LIBRARY.exists():
        _LOG.info("nothing was compiled on installation: pure JAX takes its place")
        return False
    try:
        # Before it is up, JAX would only note the handlers down, and fail later.
        jax.local_devices(backend="cpu")
    except RuntimeError:  # an accelerator only, as set by JAX_PLATFORMS
        return False
    try:
        library = _library(LIBRARY)
        _ = library.JaxselPursue  # an AttributeError if an earlier version built it
        for target, symbol in _TARGETS.items():
            handler = jax.ffi.pycapsule(getattr(library, symbol))
            jax.ffi.register_ffi_target(target, handler, platform="cpu")
    except (OSError, AttributeError, jax.errors.JaxRuntimeError) as error:
        warnings.warn(
            f"jaxsel's compiled operations do not load ({error}); pure JAX takes their "
            "place. To build them for this jax, install hatchling and then jaxsel with "
            "pip's --no-build-isolation --force-reinstall --no-deps.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    # glibc hands freed memory back to the system beyond a threshold, and chunks of a
    # call then wait for new pages. To free one large block, whose pages are never
    # touched, raises the threshold to its size (32 MB at most).
    np.empty(2**25 - 2**16, np.uint8)
    return True


def argsort(distances: jax.Array) -> jax.Array:
    """Stable ascending order of a float32 row, `[n]` -> int32 `[n]`."""
    check_rows("argsort", distances)
    return jax.ffi.ffi_call(
        "jaxsel_argsort",
        jax.ShapeDtypeStruct(distances.shape, jnp.int32),
        vmap_method="broadcast_all",
    )(distances)


def order(
    distances: jax.Array, gains: jax.Array, drop: jax.Array, exact: Any
) -> jax.Array:
    """True ascending order where it matters, float32 `[n]` each -> int32 `[n]`."""
    return jax.ffi.ffi_call(
        "jaxsel_order",
        jax.ShapeDtypeStruct(distances.shape, jnp.int32),
        vmap_method="expand_dims",
    )(distances, gains, drop, *_operands(exact), cosine=_is_cosine(exact))


def repair(distances: jax.Array, exact: Any) -> jax.Array:
    """Distances `[m, n]`, those that cancelled computed again, for m queries."""
    points, queries, error, query_error = _operands(exact)
    call = partial(
        jax.ffi.ffi_call(
            "jaxsel_repair",
            jax.ShapeDtypeStruct(distances.shape[1:], jnp.float32),
            vmap_method="expand_dims",
            input_output_aliases={0: 0},
        ),
        cosine=_is_cosine(exact),
    )
    return jax.vmap(call, in_axes=(0, None, 0, None, 0))(
        distances, points, queries, error, query_error
    )


def semivalue(
    distances: jax.Array,
    gains: jax.Array,
    weight: jax.Array,
    drop: jax.Array,
    exact: Any = None,
    *,
    average: bool = False,
) -> jax.Array:
    """Semivalues of one validation point; four `[n]` -> `[n]`.

    All are float32; the gains may be booleans.

    With `average`, tied points share the mean over all their orders. With `exact`, near
    ties are settled.
    """
    check_rows("semivalue", distances, gains, weight, drop)
    return jax.ffi.ffi_call(
        "jaxsel_semivalue",
        jax.ShapeDtypeStruct(distances.shape, jnp.float32),
        vmap_method="expand_dims",
    )(
        *(distances, gains, weight, drop, *_operands(exact)),
        average=average,
        cosine=_is_cosine(exact),
    )


def ranked(
    order: jax.Array,
    near: jax.Array | None,
    gains: jax.Array,
    weight: jax.Array,
    drop: jax.Array,
) -> jax.Array:
    """Compute semivalues of one validation point from its order, `[n]` each -> `[n]`.

    With `near`, the distances in that order, equal ones share the mean over all orders.
    """
    check_rows("ranked", order, gains, weight, drop, *(() if near is None else (near,)))
    return jax.ffi.ffi_call(
        "jaxsel_ranked",
        jax.ShapeDtypeStruct(gains.shape, jnp.float32),
        vmap_method="expand_dims",
    )(order, jnp.zeros(0, jnp.float32) if near is None else near, gains, weight, drop)


def threshold(
    distances: jax.Array,
    gains: jax.Array,
    reach: jax.Array,
    limit: jax.Array,
    harmonic: jax.Array,
    prior: jax.Array,
    exact: Any,
) -> jax.Array:
    """Threshold values of one validation point, `[n]`; see `value._threshold`."""
    check_rows("threshold", distances, gains)
    return jax.ffi.ffi_call(
        "jaxsel_threshold",
        jax.ShapeDtypeStruct(distances.shape, jnp.float32),
        vmap_method="expand_dims",
        input_output_aliases={0: 0},
    )(
        *(distances, gains, reach, limit, harmonic, prior, *_operands(exact)),
        cosine=_is_cosine(exact),
    )


def smallest(values: jax.Array, exact: Any, k: int) -> tuple[jax.Array, jax.Array]:
    """The k smallest of a float32 row, ascending, and their indices, each `[k]`.

    With `exact`, near ties are settled.
    """
    return _smallest(values, exact, k)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _smallest(values: jax.Array, exact: Any, k: int) -> tuple[jax.Array, jax.Array]:
    check_rows("smallest", values)
    if not 0 <= k <= len(values):
        raise ValueError(f"k must be from 0 to n = {len(values)}, got {k}")
    top, index = jax.ffi.ffi_call(
        "jaxsel_smallest",
        (
            jax.ShapeDtypeStruct((k,), jnp.float32),
            jax.ShapeDtypeStruct((k,), jnp.int32),
        ),
        vmap_method="expand_dims",
    )(values, *_operands(exact), cosine=_is_cosine(exact))
    return top, index


@_smallest.defjvp
def _smallest_jvp(
    k: int, primals: tuple[jax.Array, Any], tangents: tuple[jax.Array, Any]
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array, np.ndarray]]:
    top, index = _smallest(*primals, k)
    change = tangents[0].at[index].get(mode="promise_in_bounds")
    return (top, index), (change, np.zeros(index.shape, jax.dtypes.float0))


class Pursued(NamedTuple):
    """Result of `pursue`, in the order of choice.

    Attributes:
        indices: Rows that were chosen, int32 `[budget]`.
        weights: Their weights, float64 `[budget]`; 0 from `steps` on.
        objective: After each step, float64 `[budget]`; NaN from `steps` on.
        norm: The target's squared length.
        longest: The largest squared length of a row.
        steps: How many were chosen.
        status: Why it stopped, as in `match._types`.
        rounded: Whether a choice was in doubt.
    """

    indices: np.ndarray
    weights: np.ndarray
    objective: np.ndarray
    norm: float
    longest: float
    steps: int
    status: int
    rounded: bool


def pursue(
    rows: np.ndarray,
    target: np.ndarray,
    ridge: np.ndarray,
    valid: np.ndarray,
    *,
    budget: int,
    floor: float,
    positive: bool,
    by_length: bool,
) -> Pursued:
    """Match a target by a few rows: orthogonal matching pursuit in float64.

    Args:
        rows: Candidates, float32 or float64 `[n, d]`.
        target: What to match, `[d]`.
        ridge: Added to the diagonal of the rows' products, `[n]`.
        valid: Which rows may be chosen, booleans `[n]`.
        budget: How many to choose at most.
        floor: Stop once the objective is at most this share of the target's.
        positive: Whether weights must not be negative.
        by_length: Whether to divide correlations by the rows' lengths.

    Raises:
        ValueError: If shapes do not fit.
        MemoryError: If the factor of the chosen rows' products does not fit memory.
    """
    n, d = rows.shape
    if target.shape != (d,) or ridge.shape != (n,) or valid.shape != (n,):
        raise ValueError(
            "pursue needs rows [n, d], target [d], ridge [n] and valid [n], got "
            f"{rows.shape}, {target.shape}, {ridge.shape}, {valid.shape}"
        )
    operands = [
        np.ascontiguousarray(array, dtype)
        for array, dtype in (
            (rows, rows.dtype if rows.dtype == np.float32 else np.float64),
            (target, np.float64),
            (ridge, np.float64),
            (valid, np.uint8),
        )
    ]
    indices, weights = np.zeros(budget, np.int32), np.zeros(budget)
    objective = np.full(budget, np.nan)
    numbers, steps, rounded = np.zeros(2), np.zeros(1, np.int32), np.zeros(1, np.uint8)
    results = (indices, weights, objective, numbers[:1], numbers[1:], steps, rounded)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*operands, *results)]
    status = _library(LIBRARY).JaxselPursue(
        pointers[0],
        ctypes.c_bool(operands[0].dtype == np.float64),
        ctypes.c_int64(n),
        ctypes.c_int64(d),
        *pointers[1:4],
        ctypes.c_int64(budget),
        ctypes.c_double(floor),
        ctypes.c_bool(positive),
        ctypes.c_bool(by_length),
        *pointers[4:],
    )
    if status < 0:
        raise MemoryError(f"no memory to match {n} rows by up to {budget} of them")
    norm, longest = numbers.tolist()
    return Pursued(
        *(indices, weights, objective, norm, longest),
        *(int(steps[0]), int(status), bool(rounded[0])),
    )


def check_rows(name: str, *rows: jax.Array) -> None:
    """Raise if the operation would read or write beyond the end of an array."""
    shapes = [row.shape for row in rows]
    if len(shapes[0]) != 1 or shapes != shapes[:1] * len(shapes):
        raise ValueError(
            f"{name} needs rows of one length, [n] each, got shapes "
            f"{', '.join(map(str, shapes))}: map over further axes with jax.vmap"
        )


def _operands(exact: Any) -> tuple[jax.Array, ...]:
    """Return the operands that describe the features; four empty arrays for none."""
    if exact is None:
        none = jnp.zeros(0, jnp.float32)
        return none.reshape(0, 0), none, none, none
    return exact.points, exact.query, exact.error, exact.query_error


def _is_cosine(exact: Any) -> bool:
    return exact is not None and exact.cosine
