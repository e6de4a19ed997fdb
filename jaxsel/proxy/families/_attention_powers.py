"""Attention weights as a polynomial of the scores, fitted by least squares."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Shaped

from jaxsel._inputs.checks import check_choice
from jaxsel.proxy._mlp import Params, along

from ._attention import Attention, AttentionPlace, Folded, Scores, shares, spread
from ._form import Form
from ._form_cubic import Cubic
from ._form_hinge import Hinge
from ._form_linear import Linear
from ._form_quadratic import Quadratic
from ._place import Arrays, Shapes, Steps
from ._power_fit import centred, fit_heads
from ._ranges import Ranges

FORMS: dict[str, Form] = {
    "linear": Linear(),
    "quadratic": Quadratic(),
    "cubic": Cubic(),
    "hinge": Hinge(),
}


@dataclasses.dataclass(frozen=True)
class PowerAttention(Attention):
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

    form: str = "quadratic"
    centre: bool = False
    bias: bool = False

    by_length: ClassVar[bool] = True

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
        batch = np.asarray(scores), np.asarray(mask)
        return self.fit_batches(lambda: [batch])

    def fit_batches(self, batches: Callable[[], Scores]) -> Params:
        """Fit as `fit` does, to scores that are too many for the memory.

        Args:
            batches: Gives all scores in batches of a multiple of 32 samples, the last
                one of any number; called twice.
        """
        params = fit_heads(batches, FORMS[self.form], self.centre, self.bias)
        return {name: jnp.asarray(v, jnp.float32) for name, v in params.items()}

    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""
        share = shares(mask, scores)
        t = centred(scores, share) if self.centre else scores
        before = (1,) * (t.ndim - 3)
        by_head = {
            name: value.reshape(*before, len(value), 1, 1, *value.shape[1:])
            for name, value in params.items()
            if name != "bias"
        }
        value = FORMS[self.form].apply(by_head, t) * share
        if not self.bias:
            return value
        return value + along(params["bias"], value) * spread(mask, scores)

    def entry(self) -> dict[str, Any]:
        flags = {"centre": self.centre, "bias": self.bias}
        return {"family": self.form, **{k: True for k, v in flags.items() if v}}

    def shapes(self, *, heads: int, rows: int, length: int) -> Shapes:
        form = FORMS[self.form]
        shapes: Shapes = {"coefficients": (heads, form.degree + 1)}
        shapes |= dict.fromkeys(form.extra, (heads,))
        return shapes | ({"bias": (heads, rows, length)} if self.bias else {})

    def fold(self, params: Arrays, *, heads: int, length: int) -> Folded:
        """Return the form's operands, its scale in the query and its sign in values."""
        del heads
        form = FORMS[self.form]
        operands, scale, sign = form.fold(*form.terms(params))
        arrays = {f"attention.{k}": v[:, None, None] for k, v in operands.items()}
        if self.bias:
            # Weighted values are divided by L in the end, the table's part among them.
            arrays["table"] = params["bias"] * sign[:, None, None] * length
        return Folded(arrays, scale, sign)

    def mask_rows(self, at: AttentionPlace, key: Any, value: Any) -> Steps:
        """Return keys and values, keys less their mean where that centres the scores.

        The mean over a row's scores is that of the keys; with padding it is taken of
        the smaller of the two.
        """
        by_context, padded = self._by_context(at), at.run.manifest.inputs.masked
        if self.centre and not padded:
            key = key - key.sum(1, keepdim=True) / at.length
        elif self.centre and (by_context or at.rows >= at.width):
            share = at.run.inputs.share.unsqueeze(1)
            mean = yield at.call("key_mean", "matmul", share, key)
            key = key - mean / at.length
        return (yield from super().mask_rows(at, key, value))

    def on_weights(self, at: AttentionPlace) -> bool:
        return super().on_weights(at) and not self._by_context(at)

    def mix(self, at: AttentionPlace, query: Any, key: Any, value: Any) -> Steps:
        """Return the weighted values; of linear weights without the L × L matrix."""
        if not self._by_context(at):
            return (yield from super().mix(at, query, key, value))
        key, value = yield from self.mask_rows(at, key, value)
        query, key, value = (at.split(part) for part in (query, key, value))
        # q (KᵀV) for (q Kᵀ) V; one more column for the constant.
        # Times 0: a public number as an operand of the engine, of this shape.
        ones = key[..., :1] * 0 + 1
        keys = at.run.cat([key, ones]).transpose(2, 3)
        inner = yield at.call("context", "matmul", keys, value)
        offset = at.weight("attention.offset", at.heads, 1, 1)
        queries = at.run.cat([query, query[..., :1] * 0 + offset])
        return (yield at.call("attend", "matmul", queries, inner)) / at.length

    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        padded = at.run.manifest.inputs.masked
        if self.centre and padded and at.rows < at.width:
            column = at.run.inputs.share.unsqueeze(1).unsqueeze(3)
            mean = yield at.call("score_mean", "matmul", scores, column)
            scores = scores - mean / at.length
        elif self.centre and self.absorbs(at):
            scores = scores - scores.sum(3, keepdim=True) / at.length
        weights = yield from FORMS[self.form].steps(
            at, lambda name: at.weight(f"attention.{name}", at.heads, 1, 1), scores
        )
        if self.bias:
            table = at.weight("table", at.heads, at.rows, at.length)
            if padded:  # times the secret length
                length = at.run.inputs.length.unsqueeze(1).unsqueeze(1)
                table = yield at.call("table", "mul", table, length)
            weights = weights + table
        return weights

    def check(self, ranges: Ranges, params: Arrays) -> None:
        # A centred score is the difference of a score and a mean, each up to the bound.
        largest = ranges.bound("scores") * (2 if self.centre else 1)
        # Over the tokens a row's weights come to L times their mean.
        weight = self.largest_weight(params, largest) * ranges.length
        ranges.fits("scores", "the sum of a row's weights", weight)

    def largest_weight(self, params: Arrays, largest: float) -> float:
        """Return how large a weight gets, of centred scores up to `largest`.

        The table is not counted.
        """
        form = FORMS[self.form]
        return form.largest(form.terms(params), largest)

    def _by_context(self, at: AttentionPlace) -> bool:
        linear = self.form == "linear" and not self.bias
        return linear and at.folded and at.rows > 1
