"""The least-squares fit of attention by powers, over batches of scores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import jit

from ._attention import Scores, check_scores
from ._form import Form, Solution
from ._place import Arrays

CHUNK = 32  # samples at a time
_SHRINK = 4.0  # samples that the offset's mean counts for, beside a cell's own
_REACH = 8  # offsets with a mean of their own


def fit_heads(
    batches: Callable[[], Scores], form: Form, centre: bool, bias: bool
) -> Arrays:
    """Return the parameters of `PowerAttention`, float64.

    Args:
        batches: Gives all scores in batches of a multiple of 32 samples, the last one
            of any number; called twice.
        form: The function of the scores.
        centre: Whether scores are taken less their mean over a row.
        bias: Whether there is a table of positions.
    """
    spread = _spread(_chunks(batches()), centre)
    sums = _sums(_chunks(batches()), form, centre, spread)

    def solve(head: int, chosen: list[int]) -> Solution:
        return _solve(sums, head, chosen, bias)

    solutions, extra = form.fit(solve, spread)
    # From scores in units of their spread back to scores.
    scale = spread[:, None] ** np.arange(form.degree + 1)
    coefficients = np.array([c[: form.degree + 1] for c, *_ in solutions]) / scale
    params = {"coefficients": coefficients, **extra}
    if bias:
        params["bias"] = np.array([table for _, table, _ in solutions])
    return params


def centred(scores: jax.Array, share: jax.Array) -> jax.Array:
    """Return scores less their mean under the shares m / len."""
    return scores - jnp.sum(scores * share, -1, keepdims=True)


def _spread(chunks: Scores, centre: bool) -> np.ndarray:
    """Return the root mean square of the argument by head, or 1 where it is 0."""
    total, count = 0.0, 0.0
    for s, m in chunks:
        square, n = _squares(centre, jnp.asarray(s), jnp.asarray(m))
        total, count = total + np.asarray(square, np.float64), count + float(n)
    spread = np.sqrt(total / count)
    return np.where(spread > 0, spread, 1.0)


def _sums(chunks: Scores, form: Form, centre: bool, spread: np.ndarray) -> Arrays:
    """Return sums over the samples: of products of features and weights, by cell."""
    total: dict[str, Any] = {}
    for s, m in chunks:
        arrays = (jnp.asarray(array) for array in (s, m, spread.astype("f")))
        for name, value in _moments(form, centre, *arrays).items():
            # In float64 from chunk to chunk: a long pass loses no digits.
            total[name] = total.get(name, 0) + np.asarray(value, np.float64)
    return total


def _chunks(batches: Scores) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield chunks of one size: the last is filled up with samples of no token."""
    for scores, mask in batches:
        scores, mask = np.asarray(scores, np.float32), np.asarray(mask, bool)
        check_scores(scores, mask)
        for start in range(0, len(scores), CHUNK):
            s, m = scores[start : start + CHUNK], mask[start : start + CHUNK]
            fill = [(0, CHUNK - len(s))]
            yield np.pad(s, fill + [(0, 0)] * 3), np.pad(m, [*fill, (0, 0)])


def _counted(scores: jax.Array, mask: jax.Array) -> jax.Array:
    rows = mask[:, None, : scores.shape[2], None]
    return (mask[:, None, None, :] & rows).astype(scores.dtype)


def _share(mask: jax.Array, dtype: jnp.dtype) -> jax.Array:
    m = mask[:, None, None, :].astype(dtype)
    return m / jnp.maximum(m.sum(-1, keepdims=True), 1)


@jit(static_argnums=0)
def _squares(
    centre: bool, scores: jax.Array, mask: jax.Array
) -> tuple[jax.Array, jax.Array]:
    counted = _counted(scores, mask)
    share = _share(mask, scores.dtype)
    t = (centred(scores, share) if centre else scores) * counted
    return jnp.sum(t * t, (0, 2, 3)), counted.sum()


@jit(static_argnums=(0, 1))
def _moments(
    form: Form, centre: bool, scores: jax.Array, mask: jax.Array, spread: jax.Array
) -> dict[str, jax.Array]:
    share = _share(mask, scores.dtype)
    counted = _counted(scores, mask)
    t = (centred(scores, share) if centre else scores) / spread[:, None, None]
    features = [t**power for power in range(form.degree + 1)] + form.candidates(t)
    # Weights are f(t) m / len: the share belongs to the features.
    x = jnp.stack(features) * (share * counted)  # [f, n, heads, rows, L]
    masked = jnp.where(mask[:, None, None, :], scores, -jnp.inf)
    # A chunk is filled up with samples of no token, whose softmax would be NaN.
    masked = jnp.where(mask.any(-1)[:, None, None, None], masked, 0)
    y = jax.nn.softmax(masked, axis=-1) * counted
    product = functools.partial(jnp.einsum, precision="highest")
    return {
        "xx": product("anhij,bnhij->hab", x, x),
        "xy": product("anhij,nhij->ha", x, y),
        "yy": jnp.sum(y * y, (0, 2, 3)),
        "x": jnp.sum(x, 1),  # [f, heads, rows, L]
        "y": jnp.sum(y, 0),
        "n": jnp.sum(counted[:, 0], 0),
    }


def _solve(sums: Arrays, head: int, chosen: list[int], bias: bool) -> Solution:
    """Return coefficients, table and squared error of one head, of chosen features."""
    xx: np.ndarray = sums["xx"][head][chosen][:, chosen]
    xy: np.ndarray = sums["xy"][head][chosen]
    yy = sums["yy"][head]
    x, y, n = sums["x"][chosen][:, head], sums["y"][head], sums["n"]
    table, count, diagonal = None, np.maximum(n, 1), np.diag(xx)
    if bias:
        # Within cells: each cell's own mean is taken by the table.
        xx = xx - np.einsum("aij,bij->ab", x / count, x)
        xy = xy - np.einsum("aij,ij->a", x / count, y)
        yy = yy - np.sum(y * y / count)
    # Samples of one length leave the constant to the table: its diagonal then is but
    # rounding of the sums, which are of float32.
    scale = np.sqrt(np.where(np.diag(xx) > 1e-5 * diagonal, np.diag(xx), np.inf))
    c = np.linalg.lstsq(xx / np.outer(scale, scale), xy / scale, rcond=1e-7)[0] / scale
    if bias:
        table = _shrunk((y - np.einsum("a,aij->ij", c, x)) / count, n)
    return c, table, float(yy - 2 * c @ xy + c @ xx @ c)


def _shrunk(table: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Draw each cell to its offset's mean; a cell without a sample is that mean."""
    rows: int = table.shape[0]
    length: int = table.shape[1]
    offset = np.arange(length) - np.arange(rows)[:, None]
    group = np.clip(offset, -_REACH, _REACH) + _REACH
    group[:, 0] = 2 * _REACH + 1  # the first key, CLS, is like no other
    size = 2 * _REACH + 2
    weight = np.bincount(group.ravel(), n.ravel(), size)
    mean = np.bincount(group.ravel(), (n * table).ravel(), size)
    mean = (mean / np.maximum(weight, 1))[group]
    # As if each cell had _SHRINK more samples, all at the mean.
    return mean + n / (n + _SHRINK) * (table - mean)
