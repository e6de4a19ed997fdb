"""Layers in training mode, which give one example no gradient of its own.

A loss that is called with a Flax NNX module, or its state, is watched while it is
traced: it must not change batch statistics or draw random numbers. Values that a loss
closes over, such as the `GraphDef` of a split module, are searched for layers that do.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

_REMEDY = "Call model.eval() first, before nnx.split"


def mutable_leaves(params: Any) -> dict[str, Any]:
    """Return the NNX statistics and random states in a pytree, by their paths."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:  # not loaded: nothing can be one of its variables
        return {}
    is_leaf = lambda leaf: isinstance(leaf, nnx.Variable)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): jax.tree.leaves(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=is_leaf)
        if isinstance(leaf, nnx.BatchStat | nnx.RngState)
    }


def check_unchanged(before: dict[str, Any], params: Any) -> None:
    """Refuse parameters that a loss has changed.

    Args:
        before: Result of `mutable_leaves` before the loss was called.
        params: Parameters that it was called with.

    Raises:
        ValueError: If a statistic or a random state is another than before.
    """
    if not before:
        return
    for path, leaves in mutable_leaves(params).items():
        pairs = zip(before.get(path, leaves), leaves, strict=True)
        if any(old is not new for old, new in pairs):
            raise ValueError(
                "params must be a model in evaluation mode, but the loss changes its "
                f"{path!r}: under batch statistics (BatchNorm) or random numbers "
                f"(Dropout) an example has no gradient of its own. {_REMEDY}"
            )


def check_closure(loss: Any) -> None:
    """Refuse a loss that closes over an NNX model in training mode.

    Raises:
        ValueError: If a layer of it takes statistics over a batch, or drops at random.
    """
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return
    for name, value in _closed_over(loss):
        if isinstance(value, nnx.GraphDef):
            leaves = [np.zeros(())] * value.num_leaves
            layer = training_layer(nnx.unflatten(value, leaves))
        elif isinstance(value, nnx.Module):
            layer = training_layer(value)
        else:
            continue
        if layer:
            raise ValueError(
                f"loss must use a model in evaluation mode, but in {name!r} the layer "
                f"{layer} is in training mode: an example has no gradient of its own. "
                f"{_REMEDY}"
            )


def training_layer(module: Any) -> str | None:
    """Name the first layer that is in training mode, and its type."""
    from flax import nnx

    for path, layer in nnx.iter_modules(module):
        rate = getattr(layer, "rate", getattr(layer, "dropout_rate", 0))
        drops = getattr(layer, "deterministic", None) is False and rate > 0
        if drops or getattr(layer, "use_running_average", None) is False:
            place = "/".join(map(str, path))
            return f"{place!r} ({type(layer).__name__})"
    return None


def _closed_over(loss: Any) -> Iterator[tuple[str, Any]]:
    """Yield a loss and, recursively, the named values its functions refer to."""
    visited: set[int] = set()
    home = loss
    while isinstance(home, functools.partial):
        home = home.func
    home = getattr(home, "__module__", None)
    queue: list[tuple[str, Any]] = [("loss", loss)]
    while queue:
        name, value = queue.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        yield name, value
        if isinstance(value, functools.partial):
            queue += [(name, value.func), *value.keywords.items()]
            queue += [(name, argument) for argument in value.args]
        elif isinstance(value, types.MethodType):
            queue += [(name, value.__func__), (name, value.__self__)]
        elif isinstance(value, types.FunctionType):
            queue += _names(value, home)
        elif callable(getattr(value, "__wrapped__", None)):  # of jit, of checkpoint
            queue.append((name, value.__wrapped__))


def _names(function: types.FunctionType, home: Any) -> list[tuple[str, Any]]:
    """Return the values of a function's free variables and globals."""
    values: list[tuple[str, Any]] = []
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        try:
            values.append((name, cell.cell_contents))
        except ValueError:  # not set yet
            continue
    if function.__module__ == home:  # no walk through libraries
        for name in _globals(function.__code__):
            if name in function.__globals__:
                values.append((name, function.__globals__[name]))
    return values


def _globals(code: types.CodeType) -> set[str]:
    """Return the names of the globals that a function and those inside it read."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return names.union(*map(_globals, inner))
