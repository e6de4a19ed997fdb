"""The paper's attention: an MLP from a row of scores to a row of weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Shaped

from jaxsel._inputs.checks import check_count
from jaxsel.proxy._exvivo import Source, train_mlps
from jaxsel.proxy._mlp import Nonlinearity, Params, mlp

from ._attention import (
    Attention,
    AttentionPlace,
    Folded,
    Scores,
    check_scores,
    spread,
)
from ._place import Arrays, Shapes, Steps, fold_mlp, mlp_shapes
from ._ranges import Ranges

_ROWS = 65_536  # of scores, kept to train an MLP


@dataclasses.dataclass(frozen=True)
class MLPAttention(Attention):
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
        """Train one MLP; `train_mlps` trains the MLPs of all layers and widths at once.

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

    def nonlinearity(
        self, batches: Callable[[], Scores], mask: np.ndarray
    ) -> Nonlinearity:
        """Return the softmax of these scores; `mask` covers all samples."""
        return _observe_batches(batches(), mask)

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        m = spread(mask, scores)
        return mlp(params, scores * m) * m

    def entry(self) -> dict[str, Any]:
        return {"family": "mlp", "width": self.width}

    def shapes(self, *, heads: int, rows: int, length: int) -> Shapes:
        del heads, rows
        return mlp_shapes(length, self.width, length)

    def fold(self, params: Arrays, *, heads: int, length: int) -> Folded:
        del length
        ones = np.ones(heads)
        return Folded(fold_mlp("emulator", params), ones, ones)

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        if self.on_weights(at):  # both sides of the MLP are masked
            scores = yield at.call("mask_scores", "mul", scores, self.row_mask(at))
        return (yield from at.mlp("emulator", scores, self.width, at.length))

    def mask_rows(self, at: AttentionPlace, key: Any, value: Any) -> Steps:
        """Return keys and values, both masked in one product where due."""
        if self._masks(at) and not self.on_weights(at):
            column, width = self.mask(at).unsqueeze(2), at.columns
            both = at.run.cat([key, value])
            both = yield at.call("mask_rows", "mul", both, column)
            key, value = both[..., :width], both[..., width:]
        return key, value

    def check(self, ranges: Ranges, params: Arrays) -> None:
        # The worst of all rows up to the bound, by absolute values; a ReLU enlarges
        # none.
        hidden = np.abs(params["w1"]).sum(0) * ranges.bound("scores")
        hidden = hidden + np.abs(params["b1"])
        out = hidden @ np.abs(params["w2"])
        ranges.fits("scores", "a weight's emulator", float(out.max()))


def observe_attention(
    scores: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array,
    *,
    limit: int = _ROWS,
) -> Nonlinearity:
    """Return the softmax of a layer as `train_mlps` takes it.

    Args:
        scores: `[n, heads, rows, L]`.
        mask: `[n, L]`; the rows of padding are left out.
        limit: The most rows to keep, drawn without replacement: the same ones in each
            call.
    """
    batch = np.asarray(scores), np.asarray(mask, bool)
    return _observe_batches([batch], batch[1], limit=limit)


def _observe_batches(
    batches: Scores, mask: np.ndarray, *, limit: int = _ROWS
) -> Nonlinearity:
    """Observe as `observe_attention` does, in batches of scores.

    Args:
        batches: All scores; gone through once.
        mask: The mask of all samples, `[n, L]`.
        limit: As in `observe_attention`.
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
                # Drawn of all samples at once: how they are batched does not matter.
                rng = np.random.default_rng(0)
                drawn = rng.choice(len(sample), limit, replace=False)
                sample, head, row = sample[drawn], head[drawn], row[drawn]
            kept = np.empty((len(sample), length), np.float32)
        indices = np.flatnonzero((sample >= start) & (sample < start + len(scores)))
        kept[indices] = scores[sample[indices] - start, head[indices], row[indices]]
        start += len(scores)
    return Nonlinearity.observe("softmax", kept, mask[sample])
