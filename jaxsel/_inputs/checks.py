"""Checks of callers' arguments. Errors name the argument and its allowed values."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxsel._devices.mesh import gather

from .foreign import feature_numbers, foreign_array
from .frames import feature_labels, foreign_columns

if TYPE_CHECKING:
    import numpy.typing as npt

_P = ParamSpec("_P")
_T = TypeVar("_T")

INT32 = 2**31 - 1
"""The largest number of JAX's usual integers."""


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    if value not in allowed:
        options = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {options}, got {value!r}")


def shared_options(
    kind: type, defaults: Mapping[str, Any]
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Decorate functions that take the keywords of a TypedDict as `**options`.

    The options that a call leaves out get their defaults, other keywords are refused,
    and all options are in the signature.

    Args:
        kind: The TypedDict.
        defaults: By name, for all options of the TypedDict, and perhaps for others.
    """
    # As written in the module: evaluated types such as ArrayLike fill lines of help.
    types = {
        name: getattr(annotation, "__forward_arg__", annotation)
        for name, annotation in kind.__annotations__.items()
    }
    defaults = {name: defaults[name] for name in defaults if name in types}
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=types[name]
        )
        for name, value in defaults.items()
    ]

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        signature = inspect.signature(function)
        # The last parameter is **options.
        parameters = [*list(signature.parameters.values())[:-1], *shared]
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        names = {p.name for p in parameters}

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            if not names.issuperset(kwargs):
                unknown = [name for name in kwargs if name not in names]
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument "
                    f"{unknown[0]!r}; its options are {', '.join(keywords)}"
                )
            options: dict[str, Any] = {**defaults, **kwargs}
            return function(*args, **options)  # pyright: ignore[reportCallIssue]

        vars(call)["__signature__"] = signature.replace(parameters=parameters)
        return call

    return decorate


def check_count(
    name: str, value: Any, *, minimum: int = 1, maximum: int = 2**63 - 1
) -> int:
    """Return a whole number from `minimum` to `maximum`, as an int.

    Beyond the default maximum NumPy counts no further; JAX does to `INT32`.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    value = int(value)
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {value}")
    return value


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return a finite number above zero (or at least zero), as a float."""
    allowed = "zero or more" if zero else "above zero"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number {allowed}, got {value!r}")
    try:
        value = float(value)
    except OverflowError:  # of a whole number
        value = math.inf
    if not np.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be finite and {allowed}, got {value}")
    return value


def as_array(
    name: str, value: Any, *, in_place: bool = False
) -> np.ndarray | jax.Array:
    """Return the value as an array; JAX arrays stay where they are.

    Arrays spread over processes are gathered to each, as NumPy, unless `in_place`.
    `foreign_array` converts other types.

    Raises:
        TypeError: If it is being traced, or is no array.
        ValueError: If it is a masked array with masked entries, or a sparse matrix that
            is too large to be dense.
    """
    check_concrete(name, value)
    if isinstance(value, jax.Array):
        return value if in_place or value.is_fully_addressable else gather(value)
    if type(value) in (np.ndarray, np.memmap) and value.dtype != object:
        return np.asarray(value)
    array = foreign_array(name, value)
    check_concrete(name, array)
    return array


def check_concrete(name: str, value: Any) -> None:
    """Raise a TypeError if a value is traced.

    Inside `jit` the result of any operation on closed-over arrays is traced, too: check
    such a result, rather than let it fail where it becomes a NumPy array or a boolean.
    """
    if isinstance(value, Tracer):
        raise TypeError(
            f"{name} is being traced by jit, vmap or grad, but this function checks "
            "its input on the host: call the pure kernel inside transformations "
            "instead (docs/kernels.md lists them), or this function outside of them"
        )


def is_readable(*arrays: np.ndarray | jax.Array) -> bool:
    """Return whether this process can read all entries, none of them traced."""
    return not any(
        isinstance(array, Tracer)
        or (isinstance(array, jax.Array) and not array.is_fully_addressable)
        for array in arrays
    )


def check_features(
    name: str, value: npt.ArrayLike | jax.Array, *, in_place: bool = False
) -> np.ndarray | jax.Array:
    """Return finite numbers of shape `[n, d]`, n and d at least 1; see `as_array`."""
    array = as_array(name, value, in_place=in_place)
    if array.dtype == object and (foreign := foreign_columns(value)):
        raise TypeError(
            f"{name} must be numeric, but has columns of text, dates or other objects: "
            f"{foreign}; encode them with jaxsel.tables.TableEncoder, or drop them"
        )
    if (
        array.dtype == object
        and (known := feature_numbers(name, np.asarray(array))) is not None
    ):
        array = known
    check_numeric(name, array)
    if array.ndim != 2:
        remedy = "; flatten each sample to a row" if array.ndim > 2 else ""
        if array.ndim == 1:
            remedy = "; of one number a sample pass reshape(-1, 1)"
        raise ValueError(
            f"{name} must have shape [n, d], one row a sample, got "
            f"{array.shape}{remedy}"
        )
    if 0 in array.shape:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    check_finite(name, array, table=value)
    return array


def check_numeric(name: str, array: np.ndarray | jax.Array) -> None:
    dtype = array.dtype
    if dtype.type is np.void:
        if dtype.names is not None:
            raise TypeError(
                f"{name} must be numeric, but has the fields {', '.join(dtype.names)}: "
                f"pass numpy.lib.recfunctions.structured_to_unstructured({name})"
            )
        raise TypeError(
            f"{name} must be numeric, got dtype {dtype.str}: NumPy reads bfloat16 and "
            f"float8 from files as bytes; name their type, as in "
            f"{name}.view(ml_dtypes.bfloat16)"
        )
    if dtype.kind in "mM":
        raise TypeError(
            f"{name} must be numeric, got dtype {dtype}: encode dates with "
            "jaxsel.tables.TableEncoder, or divide durations by "
            "numpy.timedelta64(1, 's')"
        )
    if not (jnp.issubdtype(dtype, jnp.number) or dtype.kind == "b"):
        raise TypeError(
            f"{name} must be numeric, got dtype {dtype}{_first_text(array)}"
        )
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(f"{name} must be real, got dtype {dtype}")


def _first_text(array: Any) -> str:
    """Name the first entry that is no number."""
    for i, value in enumerate(array.reshape(-1)):
        if not isinstance(value, numbers.Real):
            row = i // max(1, math.prod(array.shape[1:]))
            return f", {str(value)[:24]!r} in row {row}"
    return ""


def check_finite(
    name: str, array: np.ndarray | jax.Array, *, table: Any = None
) -> None:
    """Refuse NaN and infinity, naming the first row that has one, and its column.

    Args:
        name: The array's name in errors.
        array: `[n, ...]`.
        table: The caller's argument: a data frame has names of columns.
    """
    if not jnp.issubdtype(array.dtype, jnp.floating):
        return
    numpy = jnp if isinstance(array, jax.Array) else np
    # If the sum is finite, every entry is; the reverse fails if the sum overflows, so
    # only then test the entries, which takes a mask of the array's size.
    with np.errstate(over="ignore", invalid="ignore"):
        wide = array.dtype
        if isinstance(wide, np.dtype):
            # Sums of float16 overflow from 65504 on.
            wide = np.float32 if wide.itemsize < 4 else wide.newbyteorder("=")
        sum_is_finite = numpy.isfinite(array.sum(dtype=wide))
        check_concrete(name, sum_is_finite)
        if bool(sum_is_finite):
            return
    rows = numpy.isfinite(array).reshape(len(array), -1).all(axis=1)
    bad = np.flatnonzero(~gather(rows) if isinstance(rows, jax.Array) else ~rows)
    if bad.size:
        where, columns = "", feature_labels(table)
        if columns is not None:
            place = int(np.argmin(np.isfinite(np.asarray(array[bad[0]]))))
            where = f" in column {columns[place]!r}"
        raise ValueError(
            f"{name} must be finite, but row {bad[0]} has NaN or infinity{where} "
            f"({bad.size} of {len(array)} rows do): fill these in, or leave them out"
        )


def refuse_one_class(names: str, labels: npt.ArrayLike) -> None:
    """Refuse labels that are all of one class; `names` says where they are."""
    raise ValueError(
        f"{names} must have two classes or more, got one: "
        f"{show_labels([np.asarray(labels).tolist()[0]])} in all rows"
    )


def check_same_length(name_a: str, a: Any, name_b: str, b: Any) -> None:
    if len(a) != len(b):
        raise ValueError(
            f"{name_a} and {name_b} must have the same length, got {len(a)} "
            f"and {len(b)}"
        )


def float_type(array: np.ndarray | jax.Array) -> type[np.floating]:
    """Return float64 for a float64 array if JAX has x64 enabled, else float32."""
    wide = array.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.float64 if wide else np.float32


def to_float(array: np.ndarray | jax.Array) -> jax.Array:
    """Return a JAX array of `float_type`."""
    dtype = float_type(array)
    if not isinstance(array, jax.Array) and array.dtype != dtype:
        array = as_type(array, dtype)
    # The dtype is passed although it is right: else JAX copies NumPy arrays twice.
    return jnp.asarray(array, dtype)


def as_type(array: npt.ArrayLike, dtype: npt.DTypeLike) -> np.ndarray:
    """Return a NumPy array of a type, infinite where a number is too large for it.

    By NumPy, since a conversion by JAX is a program to compile for each shape.
    """
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype)


def wide_type(*dtypes: Any) -> np.dtype[Any]:
    """Return the type in which products of some types are summed: float32 at least."""
    # Under strict promotion JAX refuses to join float64 and float32.
    with jax.numpy_dtype_promotion("standard"):
        return functools.reduce(jnp.promote_types, dtypes, np.dtype(np.float32))


def widen(array: jax.Array) -> jax.Array:
    """Return an array in at least float32, the type in which products are summed."""
    return array.astype(wide_type(array.dtype))


def show_labels(labels: Iterable[object]) -> str:
    """Write a few labels for a message, none of them long."""
    shown = [
        text if len(text) <= 24 else f"{text[:21]}..." for text in map(repr, labels)
    ]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if shown[4:] else "")


def caller_level() -> int:
    """Return the `stacklevel` at which a warning names the caller of jaxsel."""
    package = os.path.dirname(os.path.dirname(__file__)) + os.sep
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return level


def check_row(name: str, row: jax.Array, *, n: int | None = None) -> tuple[int]:
    """Return the shape of a row, and refuse another: `[n]` if n is known."""
    shape = np.shape(row)
    if len(shape) != 1 or (n is not None and shape != (n,)):
        length = "n" if n is None else f"n] = [{n}"
        raise ValueError(
            f"{name} must have shape [{length}], got {shape}: a kernel takes one "
            "validation point, jax.vmap maps it over more"
        )
    return shape
