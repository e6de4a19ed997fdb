"""Helpers shared by the applications: sources, disjoint draws, calls of methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    as_array,
    caller_level,
    check_count,
    check_finite,
    check_same_length,
)
from jaxsel._results.types import Values

from ._embedding import Embedding, pixels

ValueFunction = Callable[
    [np.ndarray, np.ndarray, np.ndarray, np.ndarray, jax.Array],
    "Values | npt.ArrayLike",
]
"""`f(x, y, x_val, y_val, key)`: one value for each row of x; higher is better."""

Embed = Callable[[np.ndarray], npt.ArrayLike]
"""From samples `[n, ...]` to features `[n, d]`."""

RANDOM = "Random"


class Source(NamedTuple):
    """Checked samples `[n, ...]` with their labels `[n]`, in 0..n_classes - 1."""

    x: np.ndarray
    y: np.ndarray
    n_classes: int

    def take(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return some rows: images as floats in 0..1, and labels."""
        return pixels(self.x[rows]), self.y[rows]


class Keys(NamedTuple):
    """Random keys of one seed, the same for every method."""

    draw: jax.Array
    corrupt: jax.Array
    value: jax.Array
    random: jax.Array
    learn: jax.Array
    forest: jax.Array


class Run(NamedTuple):
    """One seed: its keys, and the rows of each part, no row in two of them."""

    keys: Keys
    parts: Sequence[np.ndarray]


def random_values(key: jax.Array, n: int) -> Values:
    """Draw independent standard normal values, as a baseline.

    The baseline of every application. Half of them are positive on average.

    Args:
        key: Random key.
        n: Number of points.

    Returns:
        `Values`, `[n]`, without a standard error.

    Raises:
        ValueError: If `n` is not positive.
    """
    return Values(
        values=jax.random.normal(key, (check_count("n", n),)),
        count=jnp.asarray(1, jnp.int32),
        method="random_values",
    )


def keys_of(key: jax.Array, seed: int) -> Keys:
    seed_key = jax.random.fold_in(key, seed)
    return Keys(*(jax.random.fold_in(seed_key, i) for i in range(len(Keys._fields))))


def check_methods(methods: Mapping[str, ValueFunction]) -> None:
    if not isinstance(methods, Mapping) or not methods:
        raise ValueError(
            f"methods must map one or more names to value functions, got {methods!r}"
        )
    if RANDOM in methods:
        raise ValueError(f"methods must not hold {RANDOM!r}: it is always added")
    for name, method in methods.items():
        if not callable(method):
            raise TypeError(
                f"methods[{name!r}] must be a function (x, y, x_val, y_val, key) -> "
                f"Values, got {method!r}"
            )


def check_source(
    x: npt.ArrayLike, y: npt.ArrayLike, *, names: tuple[str, str] = ("x", "y")
) -> Source:
    """Check samples and labels, and return them as NumPy arrays."""
    samples, labels = (
        np.asarray(as_array(n, a)) for n, a in zip(names, (x, y), strict=True)
    )
    if samples.ndim < 2 or samples.dtype.kind not in "biuf" or not samples.size:
        raise ValueError(
            f"{names[0]} must hold numbers of shape [n, d] or [n, h, w, c], got dtype "
            f"{samples.dtype} and shape {samples.shape}"
        )
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{names[1]} must hold classes, whole numbers of shape [n], got dtype "
            f"{labels.dtype} and shape {labels.shape}"
        )
    check_same_length(names[0], samples, names[1], labels)
    check_finite(names[0], samples)
    if labels.min() < 0 or labels.max() < 1:
        raise ValueError(
            f"{names[1]} must hold two or more classes counted from 0, got values from "
            f"{labels.min()} to {labels.max()}"
        )
    return Source(samples, labels.astype(np.int64), int(labels.max()) + 1)


def check_share(name: str, value: float, n: int) -> int:
    """Convert a share to a count of n rows, at least 1 and below n."""
    check_count("n", n)
    count = round(value * n) if 0 < value < 1 else 0
    if not 0 < count < n:
        raise ValueError(
            f"{name} must be above 0 and below 1, and come to between 1 and {n - 1} of "
            f"{n} rows, got {value}"
        )
    return count


def sizes_of(options: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of training, validation and test set, by argument."""
    return {name: options[name] for name in ("n", "n_val", "n_test")}


def draw_runs(
    source: Source,
    sizes: Mapping[str, int],
    *,
    seeds: int,
    key: jax.Array,
    balanced: bool = False,
    which: int = 0,
) -> list[Run]:
    """Deal the rows out to disjoint parts, anew for every seed.

    Args:
        source: Samples and labels to draw from.
        sizes: Rows of each part, by the name of the argument that sets it.
        seeds: Number of seeds.
        key: Key of all; seed s draws from `fold_in(key, s)`.
        balanced: Whether each part gets every class equally often, to within one.
        which: Tells the draws from two sources under one key apart.

    Returns:
        A run for each seed.
    """
    seeds = check_count("seeds", seeds)
    parts = [check_count(name, size) for name, size in sizes.items()]
    total, text = sum(parts), " + ".join(sizes)
    if total > len(source.y):
        raise ValueError(
            f"{text} must be at most {len(source.y)}, the rows that there are, got "
            f"{total}"
        )
    least = np.bincount(source.y).min()
    if balanced and total > least * source.n_classes:
        raise ValueError(
            f"{text} must be at most {least * source.n_classes} where balanced=True, "
            f"as the rarest class has {least} rows, got {total}"
        )
    runs = []
    for seed in range(seeds):
        keys = keys_of(key, seed)
        draw = jax.random.fold_in(keys.draw, which)
        order = np.asarray(jax.random.permutation(draw, len(source.y)))
        if balanced:
            order = _round_robin(order, source.y)
        runs.append(Run(keys, np.split(order[:total], np.cumsum(parts)[:-1])))
    return runs


def warn_if_seen(embed: Embed | None, *valued: np.ndarray) -> None:
    """Warn if an embedding was trained on rows that are being valued.

    Only an `Embedding` records its training rows.
    """
    if not isinstance(embed, Embedding):
        return
    n_seen = sum(int(embed.seen(x).sum()) for x in valued)
    total = sum(map(len, valued))
    if n_seen:
        warnings.warn(
            f"embed was trained on {n_seen} of the {total} rows that are valued: their "
            "values are then too good; train it on other data",
            UserWarning,
            stacklevel=caller_level(),
        )


def valued_rows(runs: Sequence[Run], *parts: int) -> np.ndarray:
    """Return the distinct rows of some parts in any run."""
    return np.unique(np.concatenate([run.parts[p] for run in runs for p in parts]))


def features(embed: Embed | None, x: np.ndarray) -> np.ndarray:
    """Return features for value functions, `[n, d]`: embedded, or flattened."""
    if embed is None:
        return x.reshape(len(x), -1)
    embedded = np.asarray(embed(x))
    if embedded.ndim != 2 or len(embedded) != len(x):
        raise ValueError(
            f"embed must return features of shape [{len(x)}, d], got {embedded.shape}"
        )
    return embedded


def value_all(
    methods: Mapping[str, ValueFunction],
    x: np.ndarray,
    y: np.ndarray,
    x_val: np.ndarray,
    y_val: np.ndarray,
    keys: Keys,
) -> dict[str, np.ndarray]:
    """Return the values by every method and at random, `[n]` each."""
    values = {
        name: value_one(name, method, x, y, x_val, y_val, keys.value)
        for name, method in methods.items()
    }
    values[RANDOM] = np.asarray(random_values(keys.random, len(y)).values, np.float64)
    return values


def value_one(
    name: str,
    method: ValueFunction,
    x: np.ndarray,
    y: np.ndarray,
    x_val: np.ndarray,
    y_val: np.ndarray,
    key: jax.Array,
) -> np.ndarray:
    """Compute one method's values, `[n]`, and check them."""
    result = method(x, y, x_val, y_val, key)
    values = np.asarray(
        result.values if isinstance(result, Values) else result, np.float64
    )
    if values.shape != (len(y),):
        raise ValueError(
            f"methods[{name!r}] must return one value for each of {len(y)} points, got "
            f"shape {values.shape}"
        )
    check_finite(f"methods[{name!r}]", values)
    return values


def lowest_first(values: np.ndarray) -> np.ndarray:
    """Return the order of ascending value, ties by index: rows come in random order."""
    return np.argsort(values, kind="stable")


def _round_robin(order: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Reorder so that the classes take turns."""
    turn = np.empty(len(order), np.int64)
    for c in np.unique(y):
        positions = np.flatnonzero(y[order] == c)
        turn[positions] = np.arange(len(positions))
    return order[np.argsort(turn, kind="stable")]
