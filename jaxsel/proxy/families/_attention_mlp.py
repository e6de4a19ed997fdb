"""Stand-ins for the softmax of attention scores.

Each family is a frozen dataclass with `fit(scores, mask, key=...)`, which returns
parameters, a pure `apply(params, scores, mask)`, and `entry()`, its line in the
manifest. Scores come scaled by 1 / sqrt(head width), `[..., heads, rows, L]`; `rows` is
L, or 1 where only the first row is read. Masks are `[..., L]`, 1 for a token.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checks import check_choice, check_count
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._mlp import Nonlinearity, Params, mlp

from ._attention_powers import FORMS, PowerAttention, Scores, check_scores, spread

_ROWS = 65_536  # of scores, kept to train an MLP


@dataclasses.dataclass(frozen=True)
class SoftmaxAttention:
    """The softmax itself, over what the mask counts."""

    def fit(self, scores: Any = None, mask: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        return softmax(scores, mask)

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}


@dataclasses.dataclass(frozen=True)
class UniformAttention:
    """The same weight for every token: `m / len`. Needs no query and no key."""

    def fit(self, scores: Any = None, mask: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        return jnp.broadcast_to(_uniform(mask, scores), scores.shape)

    def entry(self) -> dict[str, Any]:
        return {"family": "uniform"}


@dataclasses.dataclass(frozen=True)
class TwoQuadAttention:
    """MPCFormer's 2Quad: `(s + shift)² m` over its sum.

    References:
        Li et al., MPCFormer: fast, performant and private Transformer inference with
        MPC, ICLR 2023 (section 3.2; its shift is 5).
    """

    shift: float = 5.0

    def fit(self, scores: Any = None, mask: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        return _over_sum((scores + self.shift) ** 2, mask)

    def entry(self) -> dict[str, Any]:
        return {"family": "2quad"}


@dataclasses.dataclass(frozen=True)
class PolynomialAttention:
    """`p(s) m` over its sum, p the Taylor polynomial of exp of an even degree.

    An even degree makes p positive everywhere. In the spirit of Bolt, whose polynomial
    stands behind a maximum and a shift by bits; this one needs neither, and is exact
    near 0 only.

    References:
        Pang et al., Bolt: privacy-preserving, accurate and efficient inference for
        transformers, IEEE S&P 2024 (section IV).
    """

    degree: int = 2

    def __post_init__(self) -> None:
        if check_count("degree", self.degree, minimum=2) % 2:
            raise ValueError(f"degree must be even, got {self.degree}")

    def fit(self, scores: Any = None, mask: Any = None, *, key: Any = None) -> Params:
        """Return no parameters."""
        return {}

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        value = jnp.full_like(scores, 1 / math.factorial(self.degree))
        for power in reversed(range(self.degree)):
            value = value * scores + 1 / math.factorial(power)
        return _over_sum(value, mask)

    def entry(self) -> dict[str, Any]:
        return {"family": "polynomial", "degree": self.degree}


@dataclasses.dataclass(frozen=True)
class MLPAttention:
    """The paper's: `(relu((s m) W1 + b1) W2 + b2) m`, one MLP for all heads of a layer.

    Attributes:
        width: Hidden units, d.

    References:
        SelectFormer (sections 4.2 and 4.3).
    """

    width: int

    def __post_init__(self) -> None:
        check_count("width", self.width)

    def fit(
        self,
        scores: npt.ArrayLike | jax.Array,
        mask: npt.ArrayLike | jax.Array,
        *,
        key: jax.Array,
        source: Source = "rows",
        n_points: int = 1_024_000,
    ) -> Params:
        """Train one MLP; `train_mlps` trains those of all layers and widths at once.

        Args:
            scores: `[n, heads, rows, L]`.
            mask: `[n, L]`.
            key: For initial weights and batches.
            source: As in `train_mlps`.
            n_points: As in `train_mlps`.

        Returns:
            `w1 [L, d]`, `b1 [d]`, `w2 [d, L]`, `b2 [L]`.
        """
        operation = observe_attention(scores, mask)
        (trained,) = train_mlps(
            [operation], [self.width], key=key, source=source, n_points=n_points
        )
        return trained[self.width].best()

    def apply(
        self, params: Params, scores: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        m = spread(mask, scores)
        return mlp(params, scores * m) * m

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}


Attention = (
    SoftmaxAttention
    | UniformAttention
    | TwoQuadAttention
    | PolynomialAttention
    | MLPAttention
    | PowerAttention
)


def attention_emulator(entry: Mapping[str, Any]) -> Attention:
    """Return the family that a manifest's entry names.

    Args:
        entry: What `entry()` returned. Fields that are None or False count as absent.

    Raises:
        ValueError: For an unknown family or field.
    """
    fields = {k: v for k, v in entry.items() if v is not None and v is not False}
    family = fields.pop("family", None)
    made: dict[str, Callable[..., Attention]] = {
        "exact": SoftmaxAttention,
        "uniform": UniformAttention,
        "2quad": TwoQuadAttention,
        "polynomial": PolynomialAttention,
        "mlp": MLPAttention,
    }
    for form in FORMS:
        made[form] = functools.partial(PowerAttention, form)
    check_choice("family", family, list(made))
    try:
        return made[family](**fields)
    except TypeError as error:
        text = f"attention entry {dict(entry)} does not fit: {error}"
        raise ValueError(text) from None


def softmax(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Return the softmax over what the mask counts; 0 elsewhere.

    Args:
        scores: `[..., heads, rows, L]`.
        mask: `[..., L]`; None counts all. A sample without any token has weights 0.
    """
    m = spread(mask, scores) > 0
    top = jnp.max(scores, axis=-1, keepdims=True, where=m, initial=-jnp.inf)
    e = jnp.where(m, jnp.exp(scores - jnp.where(jnp.isfinite(top), top, 0)), 0)
    return e / jnp.maximum(e.sum(-1, keepdims=True), jnp.finfo(e.dtype).tiny)


def attention_r2(weights: jax.Array, scores: jax.Array, mask: jax.Array) -> jax.Array:
    """Return how much better than uniform attention the weights are.

    1 is the softmax, 0 no better than equal weights, below 0 worse: 1 - sum of squared
    errors over that of uniform attention, over the rows and columns of tokens.

    Args:
        weights: What an emulator returned, `[n, heads, rows, L]`.
        scores: Of the same shape.
        mask: `[n, L]`.

    Returns:
        A scalar.
    """
    exact = softmax(scores, mask)
    rows = mask[:, None, : scores.shape[-2], None]
    counted = mask[:, None, None, :].astype(bool) & rows.astype(bool)

    def squared(w):
        return jnp.sum(jnp.where(counted, w - exact, 0) ** 2)

    return 1 - squared(weights) / squared(_uniform(mask, scores))


def observe_attention(
    scores: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array,
    *,
    limit: int = _ROWS,
    seed: int = 0,
) -> Nonlinearity:
    """Return the softmax of a layer as `train_mlps` takes it.

    Args:
        scores: `[n, heads, rows, L]`.
        mask: `[n, L]`; the rows of padding are left out.
        limit: At most so many rows are kept, drawn without replacement.
        seed: For that draw.
    """
    batch = np.asarray(scores), np.asarray(mask, bool)
    return observe_batches([batch], batch[1], limit=limit, seed=seed)


def observe_batches(
    batches: Scores, mask: np.ndarray, *, limit: int = _ROWS, seed: int = 0
) -> Nonlinearity:
    """Do as `observe_attention`, with scores that are too many for the memory.

    Args:
        batches: All scores; gone through once.
        mask: That of all samples, `[n, L]`.
        limit: As in `observe_attention`.
        seed: Likewise.
    """
    mask = np.asarray(mask, bool)
    sample, head, row, start = *[np.empty(0, int)] * 3, 0
    kept = np.empty((0, mask.shape[1]), np.float32)
    for scores, shown in batches:
        scores = np.asarray(scores, np.float32)
        check_scores(scores, np.asarray(shown, bool))
        if not start:
            _, heads, rows, length = scores.shape
            counted = np.broadcast_to(mask[:, None, :rows], (len(mask), heads, rows))
            sample, head, row = np.nonzero(counted)
            if len(sample) > limit:
                rng = np.random.default_rng(seed)
                drawn = rng.choice(len(sample), limit, replace=False)
                sample, head, row = sample[drawn], head[drawn], row[drawn]
            kept = np.empty((len(sample), length), np.float32)
        here = np.flatnonzero((sample >= start) & (sample < start + len(scores)))
        kept[here] = scores[sample[here] - start, head[here], row[here]]
        start += len(scores)
    return Nonlinearity.observe("softmax", kept, mask[sample])


def _uniform(mask: jax.Array | None, scores: jax.Array) -> jax.Array:
    m = spread(mask, scores)
    return m / jnp.maximum(m.sum(-1, keepdims=True), 1)


def _over_sum(value: jax.Array, mask: jax.Array | None) -> jax.Array:
    value = value * spread(mask, value)
    return value / jnp.maximum(value.sum(-1, keepdims=True), 1e-30)
