"""Parameters of any pytree, split into those to differentiate by and the rest."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .training_mode import check_closure, check_unchanged, mutable_leaves

Wrt = str | Sequence[str] | Callable[[str, Any], bool] | None
"""None, one or several globs on the path, or a predicate of the path and the leaf."""

Loss = Callable[[Any, Any], jax.Array]
"""`loss(params, example) -> scalar`, for one example."""


@dataclasses.dataclass(frozen=True)
class Form:
    """Structure of a parameter tree, hashable so that it can be static under `jit`.

    Attributes:
        treedef: The structure of the parameters.
        leaves: One entry a leaf: the path of a selected one (str), the place of
            another array (int), or anything else, such as an activation function, in
            a tuple of its own.
    """

    treedef: Any
    leaves: tuple[Any, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the selected leaves, in order."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, str))

    def gradient(self, selected: Mapping[str, Any]) -> Any:
        """Put selected leaves into the parameters' structure, None elsewhere."""
        return self.treedef.unflatten(
            [selected[leaf] if isinstance(leaf, str) else None for leaf in self.leaves]
        )

    def pick(self, gradient: Any) -> dict[str, Any]:
        """Return the selected leaves of a gradient, found by their paths.

        The gradient may have the parameters' structure, be a module whose state they
        are, or a result of `pick`.

        Raises:
            ValueError: If one is missing.
        """
        leaves = {_path(path): leaf for path, leaf in _flatten(gradient)[0]}
        missing = [path for path in self.paths if path not in leaves]
        if missing:
            raise ValueError(
                f"the gradient must have the form of the selected parameters, but has "
                f"no leaf {missing[0]!r}; it has {_listed(leaves)}"
            )
        return {path: leaves[path] for path in self.paths}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Parameters:
    """Parameters of any model library, split in two, as a pytree for jitted functions.

    Attributes:
        selected: The arrays to differentiate by, under their paths.
        others: All other arrays.
        form: The structure to merge them into.
    """

    selected: dict[str, jax.Array]
    others: tuple[jax.Array, ...]
    form: Form = dataclasses.field(metadata={"static": True})

    def merge(self, selected: Mapping[str, jax.Array] | None = None) -> Any:
        """Return the parameters as they came, with other values for the selected."""
        values = self.selected if selected is None else selected

        def value(leaf: Any) -> Any:
            if isinstance(leaf, str):
                return values[leaf]
            return self.others[leaf] if isinstance(leaf, int) else leaf[0]

        return self.form.treedef.unflatten(map(value, self.form.leaves))

    @property
    def size(self) -> int:
        """Return how many numbers are selected."""
        return sum(leaf.size for leaf in self.selected.values())

    @property
    def dtype(self) -> Any:
        return jnp.result_type(*self.selected.values())


def split(params: Any, wrt: Wrt = None) -> Parameters:
    """Split any pytree into the arrays to differentiate by and the rest.

    A leaf's path is its keys joined by slashes: `"dense/kernel"` in a dict or a Flax
    NNX module or state, `"params/Dense_0/kernel"` in Linen variables,
    `"layers/0/weight"` in an Equinox module.

    Args:
        params: A pytree: nested dicts, a Flax NNX module or state, Linen variables, an
            Equinox module. Leaves that are not arrays stay aside, and must be hashable.
        wrt: Leaves to select among the floating-point arrays. None takes all, but the
            NNX variables that are not `nnx.Param` and the Linen collections other than
            `params`. One or several globs take the paths they match (`*` matches
            slashes too). A predicate gets the path and the leaf.

    Raises:
        TypeError: If `wrt` is none of these, or a leaf is not hashable.
        ValueError: If a glob, or the whole of `wrt`, selects nothing, or two leaves
            have one path.
    """
    flat, treedef = _flatten(params)
    paths = collections.Counter(_path(path) for path, _ in flat)
    arrays: dict[str, Any] = {
        _path(path): leaf
        for path, leaf in flat
        if isinstance(leaf, jax.Array | np.ndarray | np.generic)
    }
    for path in arrays:
        if paths[path] > 1:
            raise ValueError(
                f"params must have one leaf under each path, got {paths[path]} under "
                f"{path!r}"
            )
    inexact = {
        path: leaf
        for path, leaf in arrays.items()
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    }
    chosen = _choose(params, inexact, wrt)
    others: list[jax.Array] = []
    leaves: list[Any] = []
    for key, leaf in flat:
        path = _path(key)
        if path in chosen:
            leaves.append(path)
        elif path in arrays:
            leaves.append(len(others))
            others.append(jnp.asarray(leaf))
        else:
            leaves.append((_hashable(path, leaf),))
    selected = {leaf: jnp.asarray(arrays[leaf]) for leaf in leaves if leaf in chosen}
    return Parameters(selected, tuple(others), Form(treedef, tuple(leaves)))


def example_loss(
    loss: Loss, parameters: Parameters, selected: Mapping[str, jax.Array], example: Any
) -> jax.Array:
    """Return the loss of one example at `selected`, checked to be a pure scalar.

    Raises:
        ValueError: If it is not a scalar, or uses layers in training mode.
    """
    params = parameters.merge(selected)
    before = mutable_leaves(params)
    value = loss(params, example)
    check_unchanged(before, params)
    if jnp.shape(value) != () or not jnp.issubdtype(
        jnp.result_type(value), jnp.floating
    ):
        raise ValueError(
            "loss must return a real scalar for one example, got "
            f"{jnp.result_type(value)}{list(jnp.shape(value))}"
        )
    return value


def check_loss(loss: Any) -> None:
    """Raise unless the loss is a hashable function of no model in training mode."""
    try:
        hash(loss)
    except TypeError as error:
        raise TypeError(
            "loss must be hashable, so that it is compiled once: pass a plain "
            f"function, got {loss!r}"
        ) from error
    if not callable(loss):
        raise TypeError(f"loss must be a function of (params, example), got {loss!r}")
    check_closure(loss)


def check_examples(examples: Any) -> Any:
    """Return the examples as JAX arrays that share their first axis.

    Raises:
        ValueError: If there are none, or their lengths differ.
    """
    examples = jax.tree.map(jnp.asarray, examples)
    shapes = {_path(k): leaf.shape for k, leaf in _flatten(examples)[0]}
    if any(shape == () for shape in shapes.values()):
        raise ValueError(f"examples must be arrays of shape [n, ...], got {shapes}")
    lengths = {shape[0] for shape in shapes.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "examples must be one or more arrays with the same first axis, one entry "
            f"a candidate, got {shapes or 'none'}"
        )
    return examples


def _choose(params: Any, inexact: dict[str, Any], wrt: Wrt) -> set[str]:
    if wrt is None:
        chosen = set(inexact) - _not_trained(params, inexact)
    elif callable(wrt):
        chosen = {path for path, leaf in inexact.items() if wrt(path, leaf)}
    else:
        globs = [wrt] if isinstance(wrt, str) else wrt
        if not (isinstance(globs, Sequence) and all(isinstance(g, str) for g in globs)):
            raise TypeError(
                "wrt must be None, one or several globs, or a predicate of path and "
                f"leaf, got {wrt!r}"
            )
        chosen: set[str] = set()
        for glob in globs:
            matched = fnmatch.filter(inexact, glob)
            if not matched:
                raise ValueError(
                    f"wrt={glob!r} matches no parameter; there are {_listed(inexact)}"
                )
            chosen.update(matched)
    if not chosen:
        raise ValueError(f"wrt={wrt!r} selects nothing; there are {_listed(inexact)}")
    return chosen


def _not_trained(params: Any, paths: Mapping[str, Any]) -> set[str]:
    """Return the paths of Flax's statistics: NNX variables and Linen collections."""
    if isinstance(params, Mapping) and isinstance(params.get("params"), Mapping):
        return {path for path in paths if not path.startswith("params/")}
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:  # not loaded: nothing can be one of its variables
        return set()
    variables = _flatten(params, lambda leaf: isinstance(leaf, nnx.Variable))[0]
    return {
        _path(path)
        for path, leaf in variables
        if isinstance(leaf, nnx.Variable) and not isinstance(leaf, nnx.Param)
    }


def _flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    return jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_leaf)


def _path(keys: Any) -> str:
    # The array inside an NNX variable is no level of its own.
    if keys and keys[-1] == jax.tree_util.GetAttrKey("value"):
        keys = keys[:-1]
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def _hashable(path: str, leaf: Any) -> Any:
    try:
        hash(leaf)
    except TypeError as error:
        raise TypeError(
            f"params must have arrays or hashable leaves, but {path!r} is {leaf!r}"
        ) from error
    return leaf


def _listed(paths: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, paths)) or "no floating-point arrays"
