"""A proxy's forward pass, as a generator of the operations of its schedule.

Each `yield` asks for one operation, by name and with its operands, and is sent the
result; between two of them a party only adds, scales by public numbers and reshapes.
The same code runs on tensors of torch and on CrypTen's: whoever drives it (`_drive`)
executes the operations, and holds them against `jaxsel.proxy.schedule`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from ._fold import SHIFT, far, scaled_root, sum_unit, variance_unit
from ._manifest import FFN, Emulator, Layer, Manifest

Call = tuple[Any, ...]  # the operation's name, then its operands
Steps = Generator[Call, Any, Any]
Cat = Callable[[Sequence[Any]], Any]  # join along the last axis


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the data owner shares for a batch of samples.

    Attributes:
        x: Rows `[n, L, H]`, one-hot words `[n, L, V]`, or features `[n, d]`.
        mask: `[n, L]`, 1 for a token; only where the manifest has masked inputs.
        share: The mask times L / len, `[n, L]`.
        length: len / L, `[n, 1]`.
    """

    x: Any
    mask: Any = None
    share: Any = None
    length: Any = None


def forward(
    manifest: Manifest, weights: Mapping[str, Any], inputs: Inputs, cat: Cat
) -> Steps:
    """Yield the operations of the secure forward pass; return scores `[n]`."""
    logits = yield from logits_of(manifest, weights, inputs, cat)
    return (yield from _Forward(manifest, weights, inputs, cat).score(logits))


def logits_of(
    manifest: Manifest, weights: Mapping[str, Any], inputs: Inputs, cat: Cat
) -> Steps:
    """Yield the operations up to the logits `[n, C]`, the prior's offset taken off."""
    run = _Forward(manifest, weights, inputs, cat)
    x, columns = inputs.x, None
    if manifest.inputs.embed == "onehot":
        x = yield from run.linear("inputs", "embed", x)
        norm = manifest.inputs.norm
        if norm is not None and norm.family != "none":
            x, _ = yield from run.norm("inputs", "", norm, x)
    factor = None
    for index, layer in enumerate(manifest.layers):
        x, columns, factor = yield from run.layer(index, layer, x)
    return (yield from run.head(x, columns, factor))


class _Forward:
    def __init__(
        self,
        manifest: Manifest,
        weights: Mapping[str, Any],
        inputs: Inputs,
        cat: Cat,
    ) -> None:
        self.cat = cat
        self.manifest, self.weights, self.inputs = manifest, weights, inputs
        self.folded = manifest.plan == "folded"
        self.masked = manifest.inputs.masked
        self.length, self.hidden = manifest.inputs.length, manifest.inputs.width

    def linear(self, at: str, name: str, x: Any) -> Steps:
        product = yield name, x, self.weights[f"{at}.{name}.weight"]
        bias = self.weights.get(f"{at}.{name}.bias")
        return product if bias is None else product + bias

    def mlp(self, at: str, name: str, x: Any) -> Steps:
        inner = yield from self.linear(at, f"{name}_in", x)
        inner = yield f"{name}_relu", inner
        return (yield from self.linear(at, f"{name}_out", inner))

    def layer(self, index: int, layer: Layer, x: Any) -> Steps:
        """Return the rows after a layer, or the head's columns and their factor."""
        at = f"layers.{index}"
        last = index == len(self.manifest.layers) - 1
        rows = 1 if last and self.manifest.read == "cls" else self.length
        normed = layer.norm.family != "none"
        merged = self.folded and last and not layer.pre_norm and normed
        end = layer.ffn is None
        read = x
        if layer.pre_norm and normed:
            gain = not self.folded
            read, _ = yield from self.norm(at, "", layer.norm, x, gain=gain)
        out, beside = yield from self.attention(at, layer, read, rows)
        x, columns = x[:, :rows] + out[..., : self.hidden], None
        if merged and end:
            columns = beside + out[..., self.hidden :]
        factor = None
        if not layer.pre_norm and normed:
            x, factor = yield from self.norm(
                at, "", layer.norm, x, scale=not (merged and end)
            )
        if layer.ffn is not None:
            x, columns, factor = yield from self.ffn(at, layer, layer.ffn, x, merged)
        return x, columns, factor

    def ffn(self, at: str, layer: Layer, ffn: FFN, x: Any, merged: bool) -> Steps:
        normed, read = layer.norm.family != "none", x
        if layer.pre_norm and normed:
            gain = not self.folded
            read, _ = yield from self.norm(at, "ffn_", layer.norm, x, gain=gain)
        up = yield from self.linear(at, "up", read)
        inner = up[..., : ffn.width]
        if ffn.activation == "quad":  # x²/8 + x/4 + 1/2 = (x + 1)²/8 + 3/8
            inner = (yield "activation", inner + 1) / 8 + 0.375
        else:
            inner = yield "activation", inner
        down = yield from self.linear(at, "down", inner)
        x, columns, factor = x + down[..., : self.hidden], None, None
        if merged:
            columns = up[..., ffn.width :] + down[..., self.hidden :]
        if not layer.pre_norm and normed:
            x, factor = yield from self.norm(
                at, "ffn_", layer.norm, x, scale=not merged
            )
        return x, columns, factor

    def norm(
        self,
        at: str,
        prefix: str,
        norm: Emulator,
        x: Any,
        *,
        scale: bool = True,
        gain: bool = True,
    ) -> Steps:
        """Return normed rows, and the factor `[n, rows, 1]` of the centred ones."""
        centred = x - x.sum(-1, keepdim=True) / self.hidden
        squares = yield f"{prefix}variance", centred
        unit = variance_unit(self.manifest, f"{at}.{prefix}variance")
        name, variance = f"{prefix}norm", squares.sum(-1, keepdim=True)
        factor: Any = None
        weights, to = self.weights, f"{at}.{prefix}norm"
        if norm.family == "exact":
            power = scaled_root(self.manifest, f"{at}.{prefix}variance")
            # Multiplied first, so that no digit is lost before the division.
            factor = yield name, _times(variance, 4.0**-power / self.hidden)
            factor = _times(factor, 2.0**-power)
        else:
            variance = _times(variance, 1 / (self.hidden * unit))
        if norm.family == "linear":
            factor = yield name, variance, weights[f"{to}.weight"]
            factor = factor + weights[f"{to}.bias"]
        elif norm.family == "polynomial":
            terms = yield f"{name}_powers", variance
            factor = yield from self.linear(at, name, self.cat(terms))
        elif norm.family == "mlp":
            factor = yield from self.mlp(at, name, variance)
        elif norm.family == "hinge":
            hinges = yield f"{name}_relu", variance - weights[f"{to}.knots"]
            factor = yield from self.linear(at, name, self.cat([hinges, variance]))
        if not scale:
            return x, factor
        x = yield f"{prefix}scale", centred, factor
        if gain:
            x = yield f"{prefix}gain", x, weights[f"{to}.gamma"]
            x = x + weights[f"{to}.beta"]
        return x, factor

    def attention(self, at: str, layer: Layer, x: Any, rows: int) -> Steps:
        """Return what attention adds to the rows, and the head's columns of the rows.

        The added rows have the head's columns behind them, where it is merged.
        """
        if layer.attention.family == "uniform":
            return (yield from self.uniform(at, x, rows))
        total = layer.heads * layer.head_width
        if self.folded:
            both = yield from self.linear(at, "projections", x)
            query = both[:, :rows, :total]
            key, value = both[..., total : 2 * total], both[..., 2 * total : 3 * total]
            beside = both[:, :rows, 3 * total :]
        else:
            query = yield from self.linear(at, "query", x[:, :rows])
            key = yield from self.linear(at, "key", x)
            value = yield from self.linear(at, "value", x)
            beside = None
        mixed = yield from self.mix(at, layer, query, key, value)
        mixed = mixed.transpose(1, 2).reshape(-1, rows, total)
        return (yield from self.linear(at, "output", mixed)), beside

    def mix(self, at: str, layer: Layer, query: Any, key: Any, value: Any) -> Steps:
        """Return the weighted values of every head, `[n, heads, rows, width]`."""
        emulator, width, weights = layer.attention, layer.head_width, self.weights
        family, rows = emulator.family, query.size(1)
        by_sum = family in ("2quad", "polynomial")
        powers = family in ("linear", "quadratic", "cubic", "hinge")
        masked = self.masked and family != "exact"
        on_weights = masked and (by_sum or rows < width)
        context = family == "linear" and not emulator.bias and self.folded and rows > 1
        # Powers are divided by the length. So is what a sum divides: then that sum is a
        # mean over the tokens, which does not shrink with their number.
        mask: Any = self.inputs.share if powers or by_sum else self.inputs.mask

        if emulator.centre and not self.masked:
            key = key - key.sum(1, keepdim=True) / self.length
        elif emulator.centre and (context or rows >= width):
            mean = yield "key_mean", self.inputs.share.unsqueeze(1), key
            key = key - mean / self.length
        if masked and (context or not on_weights):
            column = mask.unsqueeze(2)
            if family == "mlp":
                both = yield "mask_rows", self.cat([key, value]), column
                key, value = (part(both, i, key.size(2)) for i in range(2))
            else:
                value = yield "mask_rows", value, column
        query, key, value = (self.heads(layer, each) for each in (query, key, value))
        if context:
            ones = key[..., :1] * 0 + 1
            keys = self.cat([key, ones]).transpose(2, 3)
            inner = yield "context", keys, value
            constant = query[..., :1] * 0 + weights[f"{at}.attention.offset"]
            mixed = yield "attend", self.cat([query, constant]), inner
            return mixed / self.length

        row_mask = None if mask is None else mask.unsqueeze(1).unsqueeze(1)
        found = yield "scores", query, key.transpose(2, 3)
        if on_weights and family == "mlp":
            found = yield "mask_scores", found, row_mask
        if emulator.centre and self.masked and rows < width:
            column = self.inputs.share.unsqueeze(1).unsqueeze(3)
            mean = yield "score_mean", found, column
            found = found - mean / self.length
        if family == "exact" and row_mask is not None:
            found = found + (row_mask - 1) * _below(self.manifest, at)
        found = yield from self.emulate(at, emulator, found)
        if emulator.bias:
            table = weights[f"{at}.table"]
            if self.masked:
                length = self.inputs.length.unsqueeze(1).unsqueeze(1)
                table = yield "table", table, length
            found = found + table
        if on_weights:
            found = yield "mask_weights", found, row_mask
        inverse = None
        if by_sum:
            found = found / sum_unit(self.manifest, at, emulator)
            mean = found.sum(-1, keepdim=True) / self.length
            inverse = yield "inverse_sum", mean
            if not self.folded:
                found = yield "normalise", found, inverse
        mixed = yield "attend", found, value
        if by_sum and self.folded:
            mixed = yield "normalise", mixed / self.length, inverse
        elif by_sum or powers:
            mixed = mixed / self.length
        return mixed

    def heads(self, layer: Layer, x: Any) -> Any:
        shape = (-1, x.size(1), layer.heads, layer.head_width)
        return x.reshape(*shape).transpose(1, 2)

    def emulate(self, at: str, emulator: Emulator, t: Any) -> Steps:
        """Return what stands for the softmax, before masks, tables and sums."""
        family = emulator.family
        get = lambda name: self.weights[f"{at}.attention.{name}"]
        if family == "exact":
            return (yield "softmax", t)
        if family == "mlp":
            return (yield from self.mlp(at, "emulator", t))
        if family == "linear":
            return t + get("offset")
        if family == "quadratic":
            return (yield "square", t + get("shift")) + get("offset")
        if family == "cubic":
            inner = (yield "square", t + get("shift")) + get("offset")
            return (yield "cube", t + get("root"), inner)
        if family == "hinge":
            bent = yield "relu", t - get("knot")
            bent = yield "slope", bent, get("slope")
            return t + bent + get("offset")
        if family == "2quad":
            return (yield "square", t + SHIFT)
        terms = yield "powers", t
        # Divided by whole numbers, which is exact; a factor would be rounded.
        return sum(x / math.factorial(i) for i, x in enumerate(terms, 1)) + 1

    def uniform(self, at: str, x: Any, rows: int) -> Steps:
        beside = None
        if not self.folded:
            x = yield from self.linear(at, "value", x)
        elif f"{at}.projections.weight" in self.weights:
            beside = yield from self.linear(at, "projections", x[:, :rows])
        if self.masked:
            x = yield "attend", self.inputs.share.unsqueeze(1), x
        else:
            x = x.sum(1, keepdim=True)
        return (yield from self.linear(at, "output", x / self.length)), beside

    def head(self, x: Any, columns: Any, factor: Any) -> Steps:
        manifest = self.manifest
        final = manifest.final_norm
        merged = self.folded and columns is not None
        if final is not None:
            if manifest.read == "cls":
                x = x[:, :1]
            if final.family != "none":
                merged = self.folded
                x, factor = yield from self.norm(
                    "final_norm", "", final, x, scale=not merged
                )
            if merged:
                columns = yield from self.linear("head", "logits_of_rows", x)
        name = "hidden" if manifest.head.width else "logits"
        bias = self.weights[f"head.{name}.bias"]
        if merged:
            logits = (yield from self.pool(columns, factor)) + bias
        else:
            if manifest.read == "cls":
                x = x[:, 0]
            elif manifest.read == "mean":
                if self.masked:
                    x = yield "pool", self.inputs.share.unsqueeze(1), x
                    x = x.squeeze(1) / self.length
                else:
                    x = x.sum(1) / self.length
            logits = yield from self.linear("head", name, x)
        if manifest.head.width:
            logits = yield "relu", logits
            logits = yield from self.linear("head", "logits", logits)
        return logits

    def pool(self, columns: Any, factor: Any) -> Steps:
        """Return the first products of the head, of the row that it reads."""
        if self.manifest.read == "cls":
            return (yield "scale", columns, factor).squeeze(1)
        if self.masked:
            share = self.inputs.share.unsqueeze(2)
            factor = yield "mask_scale", factor, share
        pooled = yield "pool", factor.transpose(1, 2), columns
        return pooled.squeeze(1) / self.length

    def score(self, logits: Any) -> Steps:
        score, classes = self.manifest.score, self.manifest.head.classes
        if score.secure.family == "mlp":
            return (yield from self.mlp("score", "emulator", logits)).squeeze(1)
        lead = logits[:, 1:2] - logits[:, :1]
        if score.secure.family == "square":
            return -(yield "margin", lead).squeeze(1)
        if score.kind != "margin":
            log_p = yield "log_probabilities", logits
            p = yield "probabilities", log_p
            return -(yield "entropy", p, log_p).sum(1)
        if classes == 2:
            return -(yield "margin", lead).squeeze(1)
        first, place = yield "first", logits
        # What is first is taken below everything else.
        second, _ = yield "second", logits - place * far(self.manifest)
        return (second - first).squeeze(1)


def part(x: Any, index: int, width: int) -> Any:
    return x[..., index * width : (index + 1) * width]


def _below(manifest: Manifest, at: str) -> int:
    """Return what a softmax takes off padded scores: then exp is 0 in fixed point."""
    return int(2 * manifest.fixed_point.bounds.get(f"{at}.scores", 24.0)) + 16


def _times(x: Any, factor: float) -> Any:
    """Return x times a public factor, divided by its inverse where that is whole."""
    inverse = 1 / factor
    whole = round(inverse)
    return x / whole if math.isclose(inverse, whole, rel_tol=1e-12) else x * factor
