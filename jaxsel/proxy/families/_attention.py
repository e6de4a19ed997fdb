"""The base of every family of attention: hooks to write, and parts to inherit."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Shaped

from jaxsel._inputs.checks import check_finite
from jaxsel.proxy._mlp import Nonlinearity, Params

from ._place import Arrays, Place, Shapes, Steps
from ._ranges import Ranges

Linear = tuple[np.ndarray, np.ndarray]
"""The weight and the bias of a linear map."""

Scores = Iterable[tuple[npt.ArrayLike | jax.Array, np.ndarray]]
"""Batches of attention scores `[n, heads, rows, L]`, each with its mask `[n, L]`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionPlace(Place):
    """The attention of one layer, in one run.

    Attributes:
        heads: Its heads.
        width: Columns of a head.
        rows: Rows that it computes: 1 where only the first is read, else L.
        beside: Columns of the head of the proxy that are computed along with it.
    """

    heads: int
    width: int
    rows: int
    beside: int

    @property
    def columns(self) -> int:
        """Columns of all heads."""
        return self.heads * self.width

    def split(self, x: Any) -> Any:
        """Return rows `[n, rows, columns]` by head, `[n, heads, rows, width]`."""
        shape = (-1, x.shape[1], self.heads, self.width)
        return x.reshape(*shape).transpose(1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionWeights:
    """The parameters of one layer's attention, float64, to be folded.

    Attributes:
        linears: The maps "query", "key", "value" and "out".
        params: The emulator's, as `Attention.shapes` names them.
        heads: Heads of the layer.
        width: Columns of a head.
        length: Rows of a sample, L.
        rows: Rows that it computes: 1 where only the first is read, else L.
        folded: Whether weights that meet are to be multiplied.
        beside: Weights of the proxy's head that go along, `[H, columns]`.
        spare_bits: By how many bits weights are to be larger, see `Attention.spare`.
    """

    linears: dict[str, Linear]
    params: Arrays
    heads: int
    width: int
    length: int
    rows: int
    folded: bool
    beside: np.ndarray
    spare_bits: int

    @property
    def hidden(self) -> int:
        """Columns of the rows that it reads."""
        return len(self.linears["key"][0])

    def widened(self, weight: np.ndarray, bias: np.ndarray) -> Linear:
        """Return a linear map to rows, and to the head's columns of them."""
        columns = np.hstack([weight, weight @ self.beside])
        return columns, np.append(bias, bias @ self.beside)


@dataclasses.dataclass(frozen=True)
class Folded:
    """An emulator of attention as its secure run takes it.

    Attributes:
        arrays: Operands by the names that `steps` asks for.
        query: Factors of the scores by head, `[heads]`; they go into the query.
        value: Factors of the values by head, `[heads]`; they go into these.
    """

    arrays: Arrays
    query: np.ndarray
    value: np.ndarray


class Attention(abc.ABC):
    """A stand-in for the softmax of attention scores.

    A family is a frozen dataclass of its sizes. It must write `apply`, `weights`,
    `check` and `entry`; where it has parameters also `shapes`, `fit_batches` (or
    `nonlinearity`, for an MLP) and, unless the steps take them as they are, `fold`.

    Scores come scaled by 1 / sqrt(head width), `[..., heads, rows, L]`; `rows` is L, or
    1 where only the first row is read. Masks are `[..., L]`, 1 for a token.

    Attributes:
        by_length: Whether weights are divided by the number of tokens. Then the mask
            is m L / len, and products with it are divided by L.
        masked: Whether padding is taken out by multiplying with the mask.
        reads_scores: Whether there are queries, keys and scores at all.
    """

    by_length: ClassVar[bool] = False
    masked: ClassVar[bool] = True
    reads_scores: ClassVar[bool] = True

    def fit(self, *args: Any, **kwargs: Any) -> Params:
        """Return parameters for scores `[n, heads, rows, L]` and masks `[n, L]`.

        Families without parameters return none, and ignore what they are given.
        """
        del args, kwargs
        return {}

    def fit_batches(self, batches: Callable[[], Scores]) -> Params:
        """Fit as `fit` does, to scores that are too many for the memory.

        Args:
            batches: Gives all scores in batches of a multiple of 32 samples, the last
                one of any number; it may be called more than once.
        """
        del batches
        return self.fit()

    def nonlinearity(
        self, batches: Callable[[], Scores], mask: np.ndarray
    ) -> Nonlinearity | None:
        """Return the operation that the family's MLP imitates; None without an MLP.

        Args:
            batches: As in `fit_batches`.
            mask: The mask of all samples, `[n, L]`.
        """
        del batches, mask
        return None

    @abc.abstractmethod
    def apply(
        self,
        params: Params,
        scores: Float[jax.Array, "*n heads rows L"],
        mask: Shaped[jax.Array, "*n L"] | None,
    ) -> Float[jax.Array, "*n heads rows L"]:
        """Return the weights, of the shape of `scores`; no mask counts all."""

    @abc.abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the family's line in the manifest."""

    def shapes(self, *, heads: int, rows: int, length: int) -> Shapes:
        """Return the shape of each parameter."""
        del heads, rows, length
        return {}

    def fold(self, params: Arrays, *, heads: int, length: int) -> Folded:
        """Return the secret operands, from parameters in float64."""
        del params, length
        return Folded({}, np.ones(heads), np.ones(heads))

    @abc.abstractmethod
    def weights(self, at: AttentionPlace, scores: Any) -> Steps:
        """Turn scores into weights, before their mask and their division."""

    @abc.abstractmethod
    def check(self, ranges: Ranges, params: Arrays) -> None:
        """Refuse scores that may leave the ring, by `ranges.fits`."""

    # From here on nearly all families are the same.

    def on_weights(self, at: AttentionPlace) -> bool:
        """Return whether the mask multiplies the weights, and not keys and values.

        Padding is taken out of the smaller of the two.
        """
        return self._masks(at) and at.rows < at.width

    def mask(self, at: AttentionPlace) -> Any:
        """Return the mask, or its share by length, `[n, L]`; None without padding."""
        inputs = at.run.inputs
        return inputs.share if self.by_length else inputs.mask

    def row_mask(self, at: AttentionPlace) -> Any:
        """Return the mask as scores take it, `[n, 1, 1, L]`."""
        return self.mask(at).unsqueeze(1).unsqueeze(1)

    def absorbs(self, at: AttentionPlace | AttentionWeights) -> bool:
        """Return whether keys and values are never made: the folded plan, one row.

        q (x Wk)ᵀ is (q Wkᵀ) xᵀ, and a (x Wv) is (a x) Wv: of one query a head, that
        makes 2 heads H numbers in the place of 2 heads L width, all heads' scores are
        one product, and rows meet no weights.
        """
        return (
            at.folded and at.rows == 1 < at.width and at.hidden < at.length * at.width
        )

    def spare(self, at: AttentionPlace | AttentionWeights) -> float:
        """Return the power of two that the four maps are multiplied by.

        Weights are small numbers, of which fixed point keeps few digits. Where one row
        is read, products of two maps stay large until the scores and the added row,
        which take little to be brought back.
        """
        bits = at.spare_bits if isinstance(at, AttentionWeights) else at.run.spare_bits
        return 2.0**bits if self.absorbs(at) else 1.0

    def steps(self, at: AttentionPlace, x: Any) -> Steps:
        """Return attention's output for the residual, and the head's columns of rows.

        The added rows have the head's columns behind them. Without any, the second
        result is None.
        """
        columns, beside = at.columns, None
        if self.absorbs(at):
            both = yield from at.linear("query", x[:, :1], columns + at.beside)
            beside = both[..., columns:]
            mixed = yield from self.mix_rows(at, both[..., :columns], x)
        elif at.folded:
            width = 3 * columns + at.beside
            both = yield from at.linear("projections", x, width)
            query = both[:, : at.rows, :columns]
            key, value = (both[..., i * columns : (i + 1) * columns] for i in (1, 2))
            beside = both[:, : at.rows, 3 * columns :]
            mixed = yield from self.mix(at, query, key, value)
        else:
            query = yield from at.linear("query", x[:, : at.rows], columns)
            key = yield from at.linear("key", x, columns)
            value = yield from at.linear("value", x, columns)
            mixed = yield from self.mix(at, query, key, value)
        mixed = mixed.transpose(1, 2).reshape(-1, at.rows, columns)
        out = yield from at.linear("output", mixed, at.hidden + at.beside)
        return out / self.spare(at) ** 2 if self.spare(at) > 1 else out, beside

    def mix(self, at: AttentionPlace, query: Any, key: Any, value: Any) -> Steps:
        """Return the weighted values of every head, `[n, heads, rows, width]`.

        Not called where `absorbs` says so.
        """
        key, value = yield from self.mask_rows(at, key, value)
        query, key, value = (at.split(part) for part in (query, key, value))
        scores = yield at.call("scores", "matmul", query, key.transpose(2, 3))
        weights = yield from self.weights(at, scores)
        if self.on_weights(at):
            weights = yield at.call("mask_weights", "mul", weights, self.row_mask(at))
        return (yield from self.attend(at, weights, value))

    def mix_rows(self, at: AttentionPlace, query: Any, x: Any) -> Steps:
        """Return the weighted values as `mix` does, from the rows: see `absorbs`."""
        weight = at.weight("key.weight", at.heads, at.width, at.hidden + 1)
        queries = yield at.call("key", "matmul", at.split(query), weight)
        queries = queries.squeeze(2)
        scores = yield at.call(
            "scores", "matmul", queries[..., : at.hidden], x.transpose(1, 2)
        )
        # The last column is the query times the key's bias, alike for all rows.
        scores = (scores + queries[..., at.hidden :]).unsqueeze(2)
        if self.spare(at) > 1:
            scores = scores / self.spare(at) ** 2
        weights = yield from self.weights(at, scores)
        if self.on_weights(at):
            weights = yield at.call("mask_weights", "mul", weights, self.row_mask(at))
        return (yield from self.attend(at, weights, x))

    def mask_rows(self, at: AttentionPlace, key: Any, value: Any) -> Steps:
        """Return keys and values `[n, L, columns]`, padding taken out where due."""
        if self._masks(at) and not self.on_weights(at):
            column = self.mask(at).unsqueeze(2)
            value = yield at.call("mask_rows", "mul", value, column)
        return key, value

    def attend(self, at: AttentionPlace, weights: Any, value: Any) -> Steps:
        """Return the values under these weights."""
        mixed = yield from self.weighted(at, weights, value)
        return mixed / at.length if self.by_length else mixed

    def weighted(self, at: AttentionPlace, weights: Any, value: Any) -> Steps:
        """Return weights times values; `value` is the rows where they are absorbed."""
        if not self.absorbs(at):
            return (yield at.call("attend", "matmul", weights, value))
        weights = weights.squeeze(2)
        rows = yield at.call("attend", "matmul", weights, value)
        # The bias comes as often as the weights say.
        rows = at.run.cat([rows, weights.sum(2, keepdim=True)]).unsqueeze(2)
        weight = at.weight("value.weight", at.heads, at.hidden + 1, at.width)
        return (yield at.call("value", "matmul", rows, weight))

    def fold_layer(self, given: AttentionWeights) -> Arrays:
        """Return all operands of `steps`, the linear maps included."""
        query, key, value, out = (
            given.linears[name] for name in ("query", "key", "value", "out")
        )
        folded = self.fold(given.params, heads=given.heads, length=given.length)
        query_scale = np.repeat(folded.query, given.width) * given.width**-0.5
        query = query[0] * query_scale, query[1] * query_scale
        value_scale = np.repeat(folded.value, given.width)
        value = value[0] * value_scale, value[1] * value_scale
        operands = dict(folded.arrays)
        if self.absorbs(given):
            none = np.zeros(given.beside.shape[1])
            spare = self.spare(given)
            weights = np.hstack([spare * query[0], given.beside])
            operands |= named("query", (weights, np.append(spare * query[1], none)))
            operands["key.weight"] = spare * _by_head(given, key).transpose(1, 2, 0)
            operands["value.weight"] = spare * _by_head(given, value).transpose(1, 0, 2)
            # The output is spare² times as large until `steps` divides it.
            out = spare * out[0], spare**2 * out[1]
        elif given.folded:
            weights = np.hstack([query[0], key[0], value[0], given.beside])
            none = np.zeros(given.beside.shape[1])
            biases = np.concatenate([query[1], key[1], value[1], none])
            operands |= named("projections", (weights, biases))
        else:
            operands |= named("query", query) | named("key", key)
            operands |= named("value", value)
        return operands | named("output", given.widened(*out))

    def _masks(self, at: AttentionPlace) -> bool:
        return self.masked and at.run.manifest.inputs.masked


def _by_head(given: AttentionWeights, linear: Linear) -> np.ndarray:
    """Return a map with its bias as the last row, `[H + 1, heads, width]`."""
    stacked = np.concatenate([linear[0], linear[1][None]])
    return stacked.reshape(given.hidden + 1, given.heads, given.width)


def named(name: str, linear: Linear) -> Arrays:
    """Return a linear map as operands of `Place.linear`."""
    return {f"{name}.weight": linear[0], f"{name}.bias": linear[1]}


def spread(mask: jax.Array | None, scores: jax.Array) -> jax.Array:
    """Return a mask `[..., L]` as `[..., 1, 1, L]`, all ones if None."""
    if mask is None:
        mask = jnp.ones((1,) * (scores.ndim - 3) + scores.shape[-1:])
    return mask[..., None, None, :].astype(scores.dtype)


def shares(mask: jax.Array | None, scores: jax.Array) -> jax.Array:
    """Return m / len as `[..., 1, 1, L]`: the weights of uniform attention."""
    m = spread(mask, scores)
    return m / jnp.maximum(m.sum(-1, keepdims=True), 1)


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
