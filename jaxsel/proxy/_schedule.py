"""The secure forward pass as data: the operations that communicate, in order.

Between two operations a party only adds, scales by public numbers and reshapes its own
shares. `docs/secure-cost.md` explains the two plans.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from . import _primitives as primitives
from ._manifest import Manifest
from ._primitives import Count
from ._shaped import N, Shaped, cat, outcome
from ._steps import run_steps, steps
from .families._place import Call, Kind, Run, Shape, Shapes, SharedInputs

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
        name: Its result there, such as "scores".
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
        """True if batches that run in step make this operation as one.

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


def schedule(manifest: Manifest) -> tuple[Operation, ...]:
    """Return every operation of the secure forward pass that communicates, in order.

    It follows from the manifest alone: the pass itself is run, on shapes.
    """
    return trace(manifest)[0]


def trace(manifest: Manifest) -> tuple[tuple[Operation, ...], Shapes]:
    """Return the schedule, and the shapes of the weights that the pass asks for."""
    inputs, weights = manifest.inputs, Shapes()
    width = (inputs.vocab or 0) if inputs.embed == "onehot" else inputs.width
    rows = () if inputs.kind == "features" else (inputs.length,)
    shared = SharedInputs(Shaped(N, *rows, width))
    if inputs.masked:
        mask = Shaped(N, inputs.length)
        shared = SharedInputs(shared.x, mask, mask, Shaped(N, 1))

    def weight(name: str, shape: Shape) -> Shaped:
        weights[name] = shape
        return Shaped(*shape)

    operations = []

    def note(call: Call) -> Any:
        place, name, kind, operands, degree = call
        shapes = tuple(operand.shape for operand in operands)
        operations.append(Operation(place, name, kind, shapes, degree))
        return outcome(call)

    run_steps(steps(Run(manifest, weight, shared, cat)), note)
    return tuple(operations), weights
