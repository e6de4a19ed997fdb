"""Digests of data, options and functions, equal across processes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_LENGTH = 16  # hexadecimal digits: 64 bits
_ROWS = 1024  # of a large table


def fingerprint(*things: Any) -> str:
    """Return a digest of arrays, numbers, text, containers, functions and dataclasses.

    Equal contents have equal digests, also in another process with the same Python.
    Functions are identified by their code, their defaults, their closures, and the
    arrays and functions of their module that they name. Lists and dictionaries in a
    closure are left out, since functions use them as caches. An object with an
    attribute `about` counts by that, and whatever else by its `repr` without addresses.

    Args:
        *things: Arrays are hashed whole, at about a gigabyte a second.

    Returns:
        16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    try:
        for piece in _pieces(things, set()):
            # With its length: no two sequences of pieces join to the same bytes.
            digest.update(b"%d:" % len(piece))
            digest.update(piece)
    except RecursionError:  # objects that hold each other
        text = plain_repr(things).encode()
        digest = hashlib.sha256(b"%d:%b" % (len(text), text))
    return digest.hexdigest()[:_LENGTH]


def sampled(table: np.ndarray | jax.Array) -> np.ndarray:
    """Return about 1024 rows of a table, evenly spread, as float32 on the host."""
    return as_float32(table[:: sampling_step(len(table))])


def sampling_step(n: int) -> int:
    """Return how many rows of n lie between two that `sampled` looks at."""
    return max(1, n // _ROWS)


def as_float32(table: np.ndarray | jax.Array) -> np.ndarray:
    """Return float32 on the host: the same for the same table in float64."""
    with np.errstate(over="ignore"):
        return np.asarray(table).astype(np.float32, copy=False)


def plain_repr(thing: Any) -> str:
    """Return the repr without addresses, the same in another process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(thing))


def _pieces(thing: Any, visited: set[int]) -> Iterator[bytes | memoryview]:
    """Yield the bytes that identify a thing, piece by piece."""
    if isinstance(thing, jax.Array) and jnp.issubdtype(
        thing.dtype, jax.dtypes.prng_key
    ):
        thing = jax.random.key_data(thing)
    if isinstance(thing, (np.ndarray, np.generic, jax.Array)):
        array = np.ascontiguousarray(thing)
        yield f"array {array.dtype} {array.shape}".encode()
        if array.dtype == object:
            yield repr(array.tolist()).encode()
        elif array.size:
            yield array.reshape(-1).view(np.uint8).data
        return
    if isinstance(thing, (str, bytes, int, float, complex, types.NoneType)):
        yield f"{type(thing).__name__} {thing!r}".encode()
        return
    yield type(thing).__qualname__.encode()
    if isinstance(thing, types.FunctionType):
        if id(thing) in visited:  # such as one that calls itself
            yield thing.__qualname__.encode()
            return
        visited.add(id(thing))
    for part in _parts(thing):
        yield from _pieces(part, visited)


def _parts(thing: Any) -> Iterator[Any]:
    """Yield the parts that identify a container, function or object."""
    if isinstance(thing, (tuple, list)):
        yield len(thing)
        yield from thing
    elif isinstance(thing, Mapping):
        yield len(thing)
        for key in sorted(thing, key=repr):
            yield key
            yield thing[key]
    elif isinstance(thing, (set, frozenset)):
        yield sorted(map(plain_repr, thing))
    elif isinstance(getattr(thing, "about", None), Mapping):
        yield thing.about
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, types.MethodType):
        yield from (thing.__func__, thing.__self__)
    elif isinstance(thing, types.FunctionType):
        yield from _of_function(thing)
    elif isinstance(thing, types.CodeType):
        # Without line numbers and file name, which depend on its place.
        yield from (thing.co_code, thing.co_names, thing.co_varnames, thing.co_consts)
    elif hasattr(thing, "__wrapped__"):  # such as by jax.jit
        yield thing.__wrapped__
    elif hasattr(thing, "get_params") and not isinstance(thing, type):
        yield thing.get_params()  # scikit-learn's repr is cut short
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            yield field.name
            yield getattr(thing, field.name, None)
    else:
        yield plain_repr(thing)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    code, within = function.__code__, function.__globals__
    yield from (function.__module__, function.__qualname__, code)
    yield from (function.__defaults__, function.__kwdefaults__)
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            if not isinstance(cell.cell_contents, (list, dict, set)):
                yield cell.cell_contents
    for name in code.co_names:
        named = within.get(name)
        same_module = getattr(named, "__globals__", None) is within
        known = isinstance(getattr(named, "about", None), Mapping)
        if same_module or known or isinstance(named, (np.ndarray, jax.Array)):
            yield named
