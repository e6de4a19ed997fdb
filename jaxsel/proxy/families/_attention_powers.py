"""Attention weights as a polynomial of the scores, fitted by least squares."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checks import check_choice, check_finite
from jaxsel.proxy._mlp import Params

Form = Literal["linear", "quadratic", "cubic", "hinge"]
FORMS: dict[Form, int] = {"linear": 1, "quadratic": 2, "cubic": 3, "hinge": 1}

Scores = Iterable[tuple[npt.ArrayLike | jax.Array, np.ndarray]]
"""Batches of attention scores `[n, heads, rows, L]`, each with its mask `[n, L]`."""

CHUNK = 32  # samples at a time
_KNOTS = np.arange(-0.5, 4.1, 0.5)  # standard deviations of the scores
_SHRINK = 4.0  # samples that the offset's mean counts for, beside a cell's own
_REACH = 8  # offsets with a mean of their own


@dataclasses.dataclass(frozen=True)
class PowerAttention:
    """`f(t) m / len + B m`: f a polynomial by head, B a table by head and position.

    With t the scores, or with `centre` the scores less their mean over the row's
    tokens, and B only with `bias`:

    | form | f(t) | secure cost beside the two products |
    |---|---|---|
    | linear | c0 + c1 t | none |
    | quadratic | c0 + c1 t + c2 t² | a squaring of L entries a row |
    | cubic | c0 + c1 t + c2 t² + c3 t³ | two products of L entries a row |
    | hinge | c0 + c1 t + c2 relu(t - k) | L ReLUs a row |

    No form divides or takes a maximum. The mean over the tokens is linear in the
    scores, and free where no sample is padded; where the mask is secret it is one
    product of the keys with m / len. B is one of the model owner's weights: B (m V) is
    one product with values that are masked anyway, in the round of the other.

    Attention in the first layers is mostly position and a moderate spread about the
    row's mean, which is why both terms help (R² of `attention_r2` on rows of MiniLM,
    `benchmarks/bench_proxy.py`).

    Attributes:
        form: As in the table.
        centre: Whether the mean over the row is subtracted.
        bias: Whether there is a table of positions.
    """

    form: Form = "quadratic"
    centre: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        check_choice("form", self.form, list(FORMS))
        check_choice("centre", self.centre, (False, True))
        check_choice("bias", self.bias, (False, True))

    def fit(
        self,
        scores: npt.ArrayLike | jax.Array,
        mask: npt.ArrayLike | jax.Array,
        *,
        key: Any = None,
    ) -> Params:
        """Fit every head by least squares to the exact weights, in closed form.

        Tables shrink to a mean by offset (key position less query position, and the
        first key apart), so that positions which few samples reach are sound. Knots of
        hinges are the best of a grid.

        Cost O(n heads L² f²) for f features; memory of a chunk of samples.

        Args:
            scores: `[n, heads, rows, L]`, scaled.
            mask: `[n, L]`.
            key: Not used.

        Returns:
            `coefficients [heads, degree + 1]`, constant first; `bias [heads, rows, L]`;
            for a hinge `slope [heads]` and `knot [heads]`.
        """
        del key
        whole = np.asarray(scores), np.asarray(mask)
        return self.fit_batches(lambda: [whole])

    def fit_batches(self, batches: Callable[[], Scores]) -> Params:
        """Fit as `fit` does, to scores that are too many for the memory.

        Args:
            batches: Gives all scores in batches of a multiple of 32 samples, the last
                one of any number; called twice.
        """
        spread = self._spread(_chunks(batches()))
        sums = self._sums(_chunks(batches()), spread)
        degree, heads = FORMS[self.form], range(len(spread))
        plain, extra = [*range(degree + 1)], {}
        if self.form == "hinge":
            tries = [
                [_solve(sums, head, [*plain, 2 + i], self.bias) for head in heads]
                for i in range(len(_KNOTS))
            ]
            best = np.argmin([[error for *_, error in row] for row in tries], axis=0)
            found = [tries[i][head] for head, i in enumerate(best)]
            extra["slope"] = np.array([c[-1] for c, *_ in found]) / spread
            extra["knot"] = _KNOTS[best] * spread
        else:
            found = [_solve(sums, head, plain, self.bias) for head in heads]
        scale = spread[:, None] ** np.arange(degree + 1)
        coefficients = np.array([c[: degree + 1] for c, *_ in found]) / scale
        params = {"coefficients": coefficients, **extra}
        if self.bias:
            params["bias"] = np.array([table for _, table, _ in found])
        return {name: jnp.asarray(v, jnp.float32) for name, v in params.items()}

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        m = spread(mask, scores)
        share = m / jnp.maximum(m.sum(-1, keepdims=True), 1)
        t = self._centred(scores, share)
        c = params["coefficients"][:, None, None, :]
        value = c[..., -1]
        for power in reversed(range(FORMS[self.form])):
            value = value * t + c[..., power]
        if self.form == "hinge":
            slope, knot = (params[k][:, None, None] for k in ("slope", "knot"))
            value = value + slope * jax.nn.relu(t - knot)
        value = value * share
        return value + params["bias"] * m if self.bias else value

    def entry(self) -> dict[str, Any]:
        flags = {"centre": self.centre, "bias": self.bias}
        return {"family": self.form, **{k: True for k, v in flags.items() if v}}

    def _centred(self, scores, share):
        if not self.centre:
            return scores
        return scores - jnp.sum(scores * share, -1, keepdims=True)

    def _spread(self, chunks: Scores) -> np.ndarray:
        """The root mean square of the argument by head, or 1 where it is 0."""
        total, count = 0.0, 0.0
        for s, m in chunks:
            square, n = _squares(self, s, m)
            total, count = total + np.asarray(square, np.float64), count + float(n)
        spread = np.sqrt(total / count)
        return np.where(spread > 0, spread, 1.0)

    def _sums(self, chunks: Scores, spread: np.ndarray) -> dict[str, np.ndarray]:
        """Sums over the samples: products of features and weights, and by cell."""
        total: dict[str, np.ndarray] = {}
        for s, m in chunks:
            for name, value in _moments(self, s, m, spread.astype("f")).items():
                total[name] = total.get(name, 0) + np.asarray(value, np.float64)
        return total


def spread(mask: jax.Array | None, scores: jax.Array) -> jax.Array:
    """Return a mask `[..., L]` as `[..., 1, 1, L]`, all ones if None."""
    if mask is None:
        return jnp.ones(scores.shape[-1], scores.dtype)
    return mask[..., None, None, :].astype(scores.dtype)


def _chunks(batches: Scores) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of one size: the last is filled up with samples of no token."""
    for scores, mask in batches:
        scores, mask = np.asarray(scores, np.float32), np.asarray(mask, bool)
        check_scores(scores, mask)
        for start in range(0, len(scores), CHUNK):
            s, m = scores[start : start + CHUNK], mask[start : start + CHUNK]
            fill = [(0, CHUNK - len(s))]
            yield np.pad(s, fill + [(0, 0)] * 3), np.pad(m, [*fill, (0, 0)])


def _counted(scores, mask):
    rows = mask[:, None, : scores.shape[2], None]
    return (mask[:, None, None, :] & rows).astype(scores.dtype)


def _share(mask, dtype):
    m = mask[:, None, None, :].astype(dtype)
    return m / jnp.maximum(m.sum(-1, keepdims=True), 1)


@functools.partial(jax.jit, static_argnums=0)
def _squares(family: PowerAttention, scores, mask):
    counted = _counted(scores, mask)
    t = family._centred(scores, _share(mask, scores.dtype)) * counted
    return jnp.sum(t * t, (0, 2, 3)), counted.sum()


@functools.partial(jax.jit, static_argnums=0)
def _moments(family: PowerAttention, scores, mask, spread):
    share = _share(mask, scores.dtype)
    counted = _counted(scores, mask)
    t = family._centred(scores, share) / spread[:, None, None]
    features = [t**power for power in range(FORMS[family.form] + 1)]
    if family.form == "hinge":
        features += [jax.nn.relu(t - knot) for knot in _KNOTS]
    x = jnp.stack(features) * (share * counted)  # [f, n, heads, rows, L]
    masked = jnp.where(mask[:, None, None, :], scores, -jnp.inf)
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


def _solve(sums, head: int, chosen, bias: bool):
    """Coefficients, table and squared error of one head, with the chosen features."""
    xx = sums["xx"][head][chosen][:, chosen]
    xy, yy = sums["xy"][head][chosen], sums["yy"][head]
    x, y, n = sums["x"][chosen][:, head], sums["y"][head], sums["n"]
    table, count, whole = None, np.maximum(n, 1), np.diag(xx)
    if bias:
        # Within cells: each cell's own mean is taken by the table.
        xx = xx - np.einsum("aij,bij->ab", x / count, x)
        xy = xy - np.einsum("aij,ij->a", x / count, y)
        yy = yy - np.sum(y * y / count)
    # Samples of one length leave the constant to the table: what is left of it then is
    # but rounding of the sums, which are of float32.
    scale = np.sqrt(np.where(np.diag(xx) > 1e-5 * whole, np.diag(xx), np.inf))
    c = np.linalg.lstsq(xx / np.outer(scale, scale), xy / scale, rcond=1e-7)[0] / scale
    if bias:
        table = _shrunk((y - np.einsum("a,aij->ij", c, x)) / count, n)
    return c, table, float(yy - 2 * c @ xy + c @ xx @ c)


def _shrunk(table: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Draw each cell to its offset's mean; a cell without a sample is that mean."""
    rows, length = table.shape
    offset = np.arange(length) - np.arange(rows)[:, None]
    group = np.clip(offset, -_REACH, _REACH) + _REACH
    group[:, 0] = 2 * _REACH + 1  # the first key, CLS, is like no other
    size = 2 * _REACH + 2
    weight = np.bincount(group.ravel(), n.ravel(), size)
    mean = np.bincount(group.ravel(), (n * table).ravel(), size)
    mean = (mean / np.maximum(weight, 1))[group]
    return mean + n / (n + _SHRINK) * (table - mean)


def check_scores(scores: np.ndarray, mask: np.ndarray) -> None:
    """Refuse scores and masks that do not belong together."""
    if scores.ndim != 4 or 0 in scores.shape or scores.shape[2] > scores.shape[3]:
        raise ValueError(
            "scores must have shape [n, heads, rows, L], rows at most L, "
            f"got {scores.shape}"
        )
    if mask.shape != (len(scores), scores.shape[-1]):
        raise ValueError(
            f"mask must have shape {(len(scores), scores.shape[-1])}, got {mask.shape}"
        )
    if not mask.any(1).all():
        raise ValueError("mask must count at least one entry of every sample")
    check_finite("scores", scores)
