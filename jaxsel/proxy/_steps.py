"""A proxy's secure forward pass, as a generator of the operations that communicate.

Each `yield` asks for one `Call`, and is sent its result; between two of them a party
only adds, scales by public numbers and reshapes. An engine runs it on shares or in the
clear (`mpc_bridge`), `schedule` on shapes alone: so a secure run has one
description, and its cost can't drift from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._manifest import FFN, Layer, Manifest
from .families import (
    ACTIVATIONS,
    attention_of,
    norm_of,
    score_of,
)
from .families._attention import AttentionPlace
from .families._place import Call, Place, Run, SharedInputs, Steps


def secure_steps(
    manifest: Manifest,
    weights: Mapping[str, Any],
    inputs: SharedInputs,
    *,
    cat: Callable[[Sequence[Any]], Any],
    logits: bool = False,
    spare_bits: int = 0,
    watch: bool = False,
) -> Steps:
    """Yield the operations of the secure forward pass; return scores `[n]`.

    Between two operations, operands are added, subtracted, negated, indexed, and
    multiplied or divided by public numbers. They have a `shape` and the methods
    `sum(axis, keepdim=False)`, `reshape(*shape)`, `transpose(first, second)`,
    `unsqueeze(axis)` and `squeeze(axis)`, as tensors of torch and of CrypTen do.
    `run_steps` runs the generator to its end.

    Args:
        manifest: The proxy.
        weights: Operands of the engine, by the names of `fold`.
        inputs: A batch, as operands of the engine.
        cat: Join operands along the last axis.
        logits: Whether to end with the logits `[n, C]`, the prior's offset taken off.
        spare_bits: The argument that `fold` was given.
        watch: Whether samples with a number beyond its bound, of those that the inputs
            do not bound, are given `manifest.outside` as their score.

    Returns:
        A generator of `Call`s that takes their results, and returns the scores.
    """
    run = Run(
        manifest,
        lambda name, shape: weights[name],
        inputs,
        cat,
        spare_bits,
        [] if watch and manifest.watched else None,
    )
    return steps(manifest, run, logits=logits)


def run_steps(steps: Steps, execute: Callable[[Call], Any]) -> Any:
    """Run a forward pass to its end, and return its result.

    Args:
        steps: The generator, of `secure_steps`.
        execute: Return the result of an operation: an operand, and a tuple of operands
            for "powers" and "max".

    Returns:
        The result of the pass, see `secure_steps`.
    """
    result = None
    while True:
        try:
            call = steps.send(result)
        except StopIteration as end:
            return end.value
        result = execute(call)


def steps(manifest: Manifest, run: Run, *, logits: bool = False) -> Steps:
    """Yield the operations of a manifest's run, as `secure_steps` does."""
    outputs = yield from _Forward(manifest, run).logits()
    if logits:
        return outputs
    score, place = score_of(manifest.score.secure), Place(run, "score")
    if run.watched is None:
        return (yield from score.steps(place, outputs))
    head_place = Place(run, "head")
    most = head_place.bound("logits", 0.0)
    head_place.watch(outputs, -most, most)
    scores = yield from score.steps(place, outputs)
    most = manifest.fixed_point.bounds["score"]
    place.watch(scores, -most, most)
    inside = yield place.call("inside", "nonnegative", run.cat(run.watched))
    inside = yield place.call("all_inside", "all", inside)
    # A bit selects score - lowest or 0: samples outside end at the lowest score.
    lowest = manifest.outside
    return (yield place.call("bounded", "select", inside, scores + -lowest)) + lowest


class _Forward:
    """The interpreter of one manifest, for one run."""

    def __init__(self, manifest: Manifest, run: Run) -> None:
        self.run, self.manifest = run, manifest
        self.folded = manifest.plan == "folded"
        self.masked = manifest.inputs.masked
        self.length, self.hidden = manifest.inputs.length, manifest.inputs.width

    @property
    def outputs(self) -> int:
        """Columns of the head's first linear map."""
        return self.manifest.head.width or self.manifest.head.n_classes

    def logits(self) -> Steps:
        x, inputs = self.run.inputs.x, self.manifest.inputs
        if inputs.embed == "onehot":
            place = Place(self.run, "inputs")
            weight = place.weight("embed.weight", inputs.vocab or 0, self.hidden)
            x = yield place.call("embed", "matmul", x, weight)
            x = x + place.weight("embed.bias", self.length, self.hidden)
            if inputs.norm is not None:
                x, _ = yield from norm_of(inputs.norm).steps(place, x)
        columns = factor = None
        for index, layer in enumerate(self.manifest.layers):
            x, columns, factor = yield from self.layer(index, layer, x)
        return (yield from self.head(x, columns, factor))

    def layer(self, index: int, layer: Layer, x: Any) -> Steps:
        """Return the rows after a layer, or the head's columns and their factor."""
        part, norm = Place(self.run, f"layers.{index}"), norm_of(layer.norm)
        last, alone = index == len(self.manifest.layers) - 1, layer.ffn is None
        rows = self.manifest.rows_of(index)
        # The folded plan applies the head's weights beside those that open the same
        # rows, so that the last norm scales a few columns instead of every one.
        merged = self.folded and last and not layer.pre_norm and norm.normalises
        beside = self.outputs if merged else 0
        read, columns, factor = x, None, None
        if layer.pre_norm:
            read, _ = yield from norm.steps(part, x, gain=not self.folded)
        place = AttentionPlace(
            run=self.run,
            at=part.at,
            heads=layer.heads,
            width=layer.head_width,
            rows=rows,
            beside=beside if alone else 0,
        )
        attention = attention_of(layer.attention)
        out, columns_of_rows = yield from attention.steps(place, read)
        x = x[:, :rows] + out[..., : self.hidden]
        if merged and alone:
            columns = columns_of_rows + out[..., self.hidden :]
        if not layer.pre_norm:
            x, factor = yield from norm.steps(part, x, scale=not (merged and alone))
        if layer.ffn is not None:
            x, columns, factor = yield from self.ffn(
                part.at, layer, layer.ffn, x, beside
            )
        return x, columns, factor

    def ffn(self, at: str, layer: Layer, ffn: FFN, x: Any, beside: int) -> Steps:
        """Return the rows after a feed-forward part, as `layer` does."""
        part, place = Place(self.run, at), Place(self.run, at, "ffn_")
        norm, read, factor = norm_of(layer.norm), x, None
        if layer.pre_norm:
            read, _ = yield from norm.steps(place, x, gain=not self.folded)
        up = yield from part.linear("up", read, ffn.width + beside)
        activation = ACTIVATIONS[ffn.activation]
        inner = yield from activation.steps(part, up[..., : ffn.width])
        down = yield from part.linear("down", inner, self.hidden + beside)
        x, columns = x + down[..., : self.hidden], None
        if beside:
            columns = up[..., ffn.width :] + down[..., self.hidden :]
        if not layer.pre_norm:
            x, factor = yield from norm.steps(place, x, scale=not beside)
        return x, columns, factor

    def head(self, x: Any, columns: Any, factor: Any) -> Steps:
        """Return the logits of the last rows, or of the head's columns of them."""
        manifest, part = self.manifest, Place(self.run, "head")
        final, merged = manifest.final_norm, columns is not None
        if final is not None:
            norm, place = norm_of(final), Place(self.run, "final_norm")
            merged = self.folded and norm.normalises
            if manifest.read == "cls":
                x = x[:, :1]
            x, factor = yield from norm.steps(place, x, scale=not merged)
            if merged:
                columns = yield from part.linear(
                    "logits_of_rows", x, self.outputs, bias=False
                )
        name = "hidden" if manifest.head.width else "logits"
        if merged:
            logits = yield from self.pool(part, columns, factor)
            logits = logits + part.weight(f"{name}.bias", self.outputs)
        else:
            if manifest.read == "cls":
                x = x[:, 0]
            elif manifest.read == "mean" and self.masked:
                share = self.run.inputs.share.unsqueeze(1)
                x = yield part.call("pool", "matmul", share, x)
                x = x.squeeze(1) / self.length
            elif manifest.read == "mean":
                x = x.sum(1) / self.length
            logits = yield from part.linear(name, x, self.outputs)
        if manifest.head.width:
            logits = yield part.call("relu", "relu", logits)
            logits = yield from part.linear("logits", logits, manifest.head.n_classes)
        return logits

    def pool(self, part: Place, columns: Any, factor: Any) -> Steps:
        """Return the first products of the head, of the row that it reads."""
        if self.manifest.read == "cls":
            return (yield part.call("scale", "mul", columns, factor)).squeeze(1)
        if self.masked:
            share = self.run.inputs.share.unsqueeze(2)
            factor = yield part.call("mask_scale", "mul", factor, share)
        # One product scales rows by the norm's factor, and sums them.
        pooled = yield part.call("pool", "matmul", factor.transpose(1, 2), columns)
        return pooled.squeeze(1) / self.length
