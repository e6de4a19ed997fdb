"""The secure forward pass as data: every operation that communicates, in order.

Between two operations a party only adds, scales by public numbers and reshapes its own
shares. `docs/secure-cost.md` explains the two plans.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from . import _primitives as primitives
from ._manifest import Emulator, Layer, Manifest
from ._primitives import Count

Kind = Literal[
    "matmul",
    "mul",
    "square",
    "relu",
    "gelu",
    "abs",
    "exp",
    "reciprocal",
    "inv_sqrt",
    "powers",
    "softmax",
    "log_softmax",
    "max",
]
N = -1  # stands for the samples of a batch
Shape = tuple[int, ...]

COALESCED = 4096
"""Numbers a sample that an operand may have for `Operation.coalesced`."""

_ELEMENTWISE = {
    "square": primitives.SQUARE,
    "relu": primitives.RELU,
    "gelu": primitives.GELU,
    "abs": primitives.ABS,
    "exp": primitives.EXP,
    "reciprocal": primitives.RECIPROCAL,
    "inv_sqrt": primitives.INV_SQRT,
}
_ROWWISE = {
    "softmax": primitives.softmax,
    "log_softmax": primitives.log_softmax,
    "max": primitives.maximum,
}


@dataclasses.dataclass(frozen=True)
class Operation:
    """One call of a CrypTen primitive.

    Attributes:
        place: The part of the model: "inputs", "layers.0", "final_norm", "head",
            "score".
        name: What it computes there, such as "scores".
        kind: The primitive. `softmax`, `log_softmax` and `max` go along the last axis.
        shapes: The shape of each operand; -1 in front stands for the samples of a
            batch, and an operand without it is shared by them (weights).
        degree: The highest power, of `powers`.
    """

    place: str
    name: str
    kind: Kind
    shapes: tuple[Shape, ...]
    degree: int = 0

    @property
    def coalesced(self) -> bool:
        """Whether batches that run in step make this operation as one.

        What has small operands costs rounds rather than bytes: one call for several
        batches costs them once. What is as large as a layer's rows stays apart, for
        memory.
        """
        sizes = [math.prod(shape[1:]) for shape in self.shapes if shape[0] == N]
        return max(sizes) <= COALESCED

    def count(self, samples: int) -> Count:
        """Return the rounds and bytes of this operation on a batch."""
        sizes = [
            math.prod(samples if axis == N else axis for axis in shape)
            for shape in self.shapes
        ]
        if self.kind in ("matmul", "mul"):
            return Count(1, primitives.WORD * sum(sizes))
        if self.kind == "powers":
            return primitives.powers(self.degree).on(sizes[0])
        if self.kind in _ROWWISE:
            length = self.shapes[0][-1]
            return _ROWWISE[self.kind](length).on(sizes[0] // length)
        return _ELEMENTWISE[self.kind].on(sizes[0])


class _Schedule:
    """Collects the operations of one manifest, part by part."""

    def __init__(self, manifest: Manifest):
        self.manifest = manifest
        self.folded = manifest.plan == "folded"
        self.length = manifest.inputs.length
        self.hidden = manifest.inputs.width
        self.masked = manifest.inputs.masked
        self.operations: list[Operation] = []
        self.place = ""

    def add(self, name: str, kind: Kind, *shapes: Shape, degree: int = 0) -> None:
        operation = Operation(self.place, name, kind, shapes, degree)
        self.operations.append(operation)

    def build(self) -> tuple[Operation, ...]:
        manifest, inputs = self.manifest, self.manifest.inputs
        if inputs.embed == "onehot":
            self.place = "inputs"
            vocab = inputs.vocab or 0
            words = (N, self.length, vocab)
            self.add("embed", "matmul", words, (vocab, self.hidden))
            if inputs.norm is not None:
                self.norm(inputs.norm, self.length)
        for index, layer in enumerate(manifest.layers):
            self.layer(index, layer)
        self.head()
        self.score()
        return tuple(self.operations)

    @property
    def outputs(self) -> int:
        """Columns of the head's first linear map."""
        return self.manifest.head.width or self.manifest.head.classes

    def layer(self, index: int, layer: Layer) -> None:
        self.place = f"layers.{index}"
        last = index == len(self.manifest.layers) - 1
        rows = 1 if last and self.manifest.read == "cls" else self.length
        # The folded plan applies the head's weights beside those that open the same
        # rows, so that the last norm scales a few columns instead of every one.
        beside = self.outputs if self.folded and last and not layer.pre_norm else 0
        if layer.norm.family == "none":
            beside = 0
        if layer.pre_norm:
            self.norm(layer.norm, self.length, gain=not self.folded)
        in_attention = beside if layer.ffn is None else 0
        self.attention(layer, rows, in_attention)
        end = layer.ffn is None
        if not layer.pre_norm:
            self.norm(layer.norm, rows, scale=not (end and beside))
        if layer.ffn is None:
            return
        if layer.pre_norm:
            self.norm(layer.norm, rows, "ffn_", gain=not self.folded)
        hidden, width = self.hidden, layer.ffn.width
        self.add("up", "matmul", (N, rows, hidden), (hidden, width + beside))
        kind: dict[str, Kind] = {"relu": "relu", "gelu": "gelu", "quad": "square"}
        self.add("activation", kind[layer.ffn.activation], (N, rows, width))
        self.add("down", "matmul", (N, rows, width), (width, hidden + beside))
        if not layer.pre_norm:
            self.norm(layer.norm, rows, "ffn_", scale=not beside)

    def attention(self, layer: Layer, rows: int, beside: int) -> None:
        length, hidden = self.length, self.hidden
        heads, width = layer.heads, layer.head_width
        total, family = heads * width, layer.attention.family
        everything = (N, length, hidden)
        if family == "uniform":
            self.uniform(total, rows, beside)
            return
        if self.folded:
            self.add("projections", "matmul", everything, (hidden, 3 * total + beside))
        else:
            self.add("query", "matmul", (N, rows, hidden), (hidden, total))
            self.add("key", "matmul", everything, (hidden, total))
            self.add("value", "matmul", everything, (hidden, total))

        # Padding is taken out of the smaller side: the weights, or keys and values; so
        # is the mean over a row's scores, which is that of the keys.
        weights, row_mask = (N, heads, rows, length), (N, 1, 1, length)
        by_sum = family in ("2quad", "polynomial")
        masked = self.masked and family != "exact"  # there the mask is an offset
        on_weights = masked and (by_sum or rows < width)
        context = family == "linear" and not layer.attention.bias
        context = context and self.folded and rows > 1
        centred = self.masked and layer.attention.centre
        mean_of_keys = centred and (context or rows >= width)
        if mean_of_keys:
            self.add("key_mean", "matmul", (N, 1, length), (N, length, total))
        if masked and (context or not on_weights):
            columns = 2 * total if family == "mlp" else total
            self.add("mask_rows", "mul", (N, length, columns), (N, length, 1))
        queries, values = (N, heads, rows, width), (N, heads, length, width)
        if context:  # q (KᵀV) for (q Kᵀ) V; one more column for the constant
            self.add("context", "matmul", (N, heads, width + 1, length), values)
            self.add(
                "attend",
                "matmul",
                (N, heads, rows, width + 1),
                (N, heads, width + 1, width),
            )
        else:
            self.add("scores", "matmul", queries, (N, heads, width, length))
            if on_weights and family == "mlp":
                self.add("mask_scores", "mul", weights, row_mask)
            if centred and not mean_of_keys:
                self.add("score_mean", "matmul", weights, (N, 1, length, 1))
            self.weights(layer.attention, weights)
            if self.masked and layer.attention.bias:  # times the secret length
                self.add("table", "mul", (heads, rows, length), (N, 1, 1, 1))
            if on_weights:
                self.add("mask_weights", "mul", weights, row_mask)
            attended = queries if self.folded else weights
            if by_sum:
                self.add("inverse_sum", "reciprocal", (N, heads, rows, 1))
            if by_sum and not self.folded:
                self.add("normalise", "mul", attended, (N, heads, rows, 1))
            self.add("attend", "matmul", weights, values)
            if by_sum and self.folded:
                self.add("normalise", "mul", attended, (N, heads, rows, 1))
        self.add("output", "matmul", (N, rows, total), (total, hidden + beside))

    def uniform(self, total: int, rows: int, beside: int) -> None:
        length, hidden = self.length, self.hidden
        everything, mask = (N, length, hidden), (N, 1, length)
        if self.folded:
            if beside:
                self.add("projections", "matmul", (N, rows, hidden), (hidden, beside))
            if self.masked:
                self.add("attend", "matmul", mask, everything)
            self.add("output", "matmul", (N, 1, hidden), (hidden, hidden + beside))
            return
        self.add("value", "matmul", everything, (hidden, total))
        if self.masked:
            self.add("attend", "matmul", mask, (N, length, total))
        self.add("output", "matmul", (N, 1, total), (total, hidden))

    def weights(self, attention: Emulator, shape: Shape) -> None:
        """Add what makes a row's weights of its scores, but for masks and the sum."""
        family = attention.family
        if family == "exact":
            self.add("softmax", "softmax", shape)
        elif family == "mlp":
            self.mlp("emulator", shape, shape[-1], attention.width or 0, shape[-1])
        elif family in ("quadratic", "2quad"):
            self.add("square", "square", shape)
        elif family == "cubic":  # (t + a) ((t + b)² + d), its scale in the weights
            self.add("square", "square", shape)
            self.add("cube", "mul", shape, shape)
        elif family == "hinge":
            self.add("relu", "relu", shape)
            self.add("slope", "mul", shape, (shape[1], 1, 1))
        elif family == "polynomial":
            self.add("powers", "powers", shape, degree=attention.degree or 0)

    def mlp(self, name: str, shape: Shape, inputs: int, width: int, out: int) -> None:
        inner = (*shape[:-1], width)
        self.add(f"{name}_in", "matmul", shape, (inputs, width))
        self.add(f"{name}_relu", "relu", inner)
        self.add(f"{name}_out", "matmul", inner, (width, out))

    def norm(
        self,
        norm: Emulator,
        rows: int,
        prefix: str = "",
        *,
        scale: bool = True,
        gain: bool = True,
    ) -> None:
        family = norm.family
        if family == "none":
            return
        everything, one = (N, rows, self.hidden), (N, rows, 1)
        self.add(f"{prefix}variance", "square", everything)
        name = f"{prefix}norm"
        if family == "exact":
            self.add(name, "inv_sqrt", one)
        elif family == "linear":
            self.add(name, "mul", one, (1,))
        elif family == "polynomial":
            degree = norm.degree or 0
            self.add(f"{name}_powers", "powers", one, degree=degree)
            self.add(name, "matmul", (N, rows, degree), (degree, 1))
        elif family == "mlp":
            self.mlp(name, one, 1, norm.width or 0, 1)
        else:  # hinge: the variance itself is one more term
            knots = norm.width or 0
            self.add(f"{name}_relu", "relu", (N, rows, knots))
            self.add(name, "matmul", (N, rows, knots + 1), (knots + 1, 1))
        if scale:
            self.add(f"{prefix}scale", "mul", everything, one)
            if gain:
                self.add(f"{prefix}gain", "mul", everything, (self.hidden,))

    def head(self) -> None:
        manifest, outputs = self.manifest, self.outputs
        rows = 1 if manifest.read != "mean" else self.length
        everything = (N, rows, self.hidden)
        norm = manifest.final_norm
        if norm is None and manifest.layers:
            norm = manifest.layers[-1].norm
        merged = self.folded and norm is not None and norm.family != "none"
        if manifest.final_norm is not None:
            self.place = "final_norm"
            self.norm(manifest.final_norm, rows, scale=not merged)
        self.place = "head"
        columns, mask = (N, rows, outputs), (N, 1, rows)
        if merged and manifest.final_norm is not None:
            self.add("logits_of_rows", "matmul", everything, (self.hidden, outputs))
        pooled = manifest.read == "mean"
        if merged and pooled:
            if self.masked:
                self.add("mask_scale", "mul", (N, rows, 1), (N, rows, 1))
            self.add("pool", "matmul", mask, columns)
        elif merged:
            self.add("scale", "mul", columns, (N, rows, 1))
        else:
            if pooled and self.masked:
                self.add("pool", "matmul", mask, everything)
            name = "hidden" if manifest.head.width else "logits"
            self.add(name, "matmul", (N, self.hidden), (self.hidden, outputs))
        if manifest.head.width:
            self.add("relu", "relu", (N, outputs))
            classes = manifest.head.classes
            self.add("logits", "matmul", (N, outputs), (outputs, classes))

    def score(self) -> None:
        self.place = "score"
        classes, score = self.manifest.head.classes, self.manifest.score
        logits = (N, classes)
        if score.secure.family == "square":
            self.add("margin", "square", (N, 1))
        elif score.secure.family == "mlp":
            self.mlp("emulator", logits, classes, score.secure.width or 0, 1)
        elif score.kind != "margin":
            self.add("log_probabilities", "log_softmax", logits)
            self.add("probabilities", "exp", logits)
            self.add("entropy", "mul", logits, logits)
        elif classes == 2:
            self.add("margin", "abs", (N, 1))
        else:
            self.add("first", "max", logits)
            self.add("second", "max", logits)  # what was first taken far below


def schedule(manifest: Manifest) -> tuple[Operation, ...]:
    """Return every operation of the secure forward pass that communicates, in order.

    It follows from the manifest alone; the secure forward is to make these calls and no
    others.
    """
    return _Schedule(manifest).build()
