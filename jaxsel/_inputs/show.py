"""Parts of the results' reprs: short, computed without JAX, and safe while traced."""

import dataclasses
import unicodedata
from collections.abc import Iterable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

SHOWN = 5
"""Entries of a result that its repr lists."""


def show(scalar: jax.Array) -> str:
    """Return a scalar or an array as text; "?" while it is traced."""
    return "?" if isinstance(scalar, Tracer) else str(np.asarray(scalar).tolist())


def show_count(count: jax.Array) -> str:
    """Return a count as text, or the least and the greatest of several."""
    if count.ndim == 0 or isinstance(count, Tracer):
        return show(count)
    counts = np.asarray(count)
    return f"{counts.min()}..{counts.max()}"


def show_first(indices: np.ndarray) -> str:
    """Return the first few indices as text."""
    shown = [*map(str, indices[:SHOWN]), *(["..."] if len(indices) > SHOWN else [])]
    return f"[{', '.join(shown)}]"


def show_pairs(names: Iterable[Any], values: np.ndarray) -> str:
    """Return names or positions of samples with their values as text."""
    pairs = zip((f"{name!s:.20}" for name in names), values, strict=True)
    return f"{{{', '.join(f'{name}: {float(value):.4g}' for name, value in pairs)}}}"


def printable_name(owner: str) -> str:
    """Return an owner's name for the terminal, all but ASCII and accents escaped.

    Args:
        owner: The name, in any script.
    """
    parts = unicodedata.normalize("NFD", owner)
    if all(c.isascii() or "\u0300" <= c <= "\u0344" for c in parts):
        return owner
    return owner.encode("ascii", "backslashreplace").decode()


_MOST = 300  # characters of a repr
_T = TypeVar("_T", bound=type)


def brief(cls: _T) -> _T:
    """Give a dataclass or named tuple a repr of at most 300 characters.

    A dataclass of arrays is compared as `compared` does.
    """
    setattr(cls, "__repr__", show_fields)  # noqa: B010
    kinds: dict[str, Any] = getattr(cls, "__dataclass_fields__", {})
    if any("rray" in str(field.type) for field in kinds.values()):
        return compared(cls)
    return cls


def compared(cls: _T) -> _T:
    """Let `==` compare a dataclass by its fields, arrays by shape and entries.

    NaN equals NaN. One with arrays has no hash, as arrays have none.
    """
    options: Any = getattr(cls, "__dataclass_params__")  # noqa: B009
    if options.eq:
        setattr(cls, "__eq__", _equal_fields)  # noqa: B010
    return cls


def _equal_fields(a: Any, b: Any) -> Any:
    if type(a) is not type(b):
        return NotImplemented
    return all(
        _equal(getattr(a, field.name), getattr(b, field.name))
        for field in dataclasses.fields(a)
        if field.compare
    )


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, np.ndarray | jax.Array) and isinstance(b, np.ndarray | jax.Array):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        a, b = np.asarray(a), np.asarray(b)
        return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f")
    if isinstance(a, tuple | list) and type(a) is type(b):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return bool(a == b)


def show_fields(thing: Any) -> str:
    """Write a dataclass or named tuple, and by their size the fields that are long."""
    names: tuple[str, ...] = getattr(thing, "_fields", ())
    if dataclasses.is_dataclass(thing):
        names = tuple(field.name for field in dataclasses.fields(thing) if field.repr)
    fields = (f"{name}={_show_short(getattr(thing, name, None))}" for name in names)
    text = f"{type(thing).__name__}({', '.join(fields)})"
    return text if len(text) <= _MOST else f"{text[: _MOST - 4]}...)"


def _show_short(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > SHOWN:
        return f"<{len(value)} entries>"
    if isinstance(value, dict | list | tuple):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        shown = [
            f"{key!r}: {_show_short(item)}"
            if isinstance(value, dict)
            else _show_short(item)
            for key, item in parts
        ]
        text = ", ".join(shown)
        text = f"{{{text}}}" if isinstance(value, dict) else f"({text})"
    else:
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
