"""The sizes of an operation's operands on a batch, as engines that count them need."""

from __future__ import annotations

import dataclasses
import math

from jaxsel._inputs.show import brief
from jaxsel.proxy.families._place import Kind, Shape

from . import _primitives as primitives
from ._primitives import Count
from ._shaped import N, broadcast

COALESCED = 4096
"""Numbers a sample that an operand may have for `Operation.coalesced`."""


_ELEMENTWISE = {
    "square": primitives.SQUARE,
    "relu": primitives.RELU,
    "gelu": primitives.GELU,
    "abs": primitives.ABS,
    "exp": primitives.EXP,
    "nonnegative": primitives.COMPARE,
    "reciprocal": primitives.RECIPROCAL,
    "inv_sqrt": primitives.INV_SQRT,
}
_ROWWISE = {
    "softmax": primitives.softmax,
    "log_softmax": primitives.log_softmax,
    "max": primitives.maximum,
}


@brief
@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation that communicates.

    Attributes:
        place: The part of the model: "inputs", "layers.0", "final_norm", "head",
            "score".
        name: Its result there, such as "scores".
        kind: The primitive. `softmax`, `log_softmax` and `max` go along the last axis.
            SPU's engines have three more: `scale`, by a public number; `share`, of an
            owner's array; and `zero`, from which sums start.
        shapes: The shape of each operand; -1 in front stands for the samples of a
            batch, and an operand without it is shared by them (weights).
        degree: The highest power, of `powers`.
        owners: The rank of each operand's owner, None for shares; empty where all are
            shares.
    """

    place: str
    name: str
    kind: Kind
    shapes: tuple[Shape, ...]
    degree: int = 0
    owners: tuple[int | None, ...] = ()

    @property
    def coalesced(self) -> bool:
        """True if batches that run in step make this operation as one.

        Small operands cost rounds rather than bytes: one call for several batches
        costs them once. Operands as large as a layer's rows stay apart, for memory.
        """
        sizes = [math.prod(shape[1:]) for shape in self.shapes if shape[0] == N]
        return max(sizes) <= COALESCED

    def results(self, samples: int) -> int:
        """Return how many numbers this operation on a batch computes."""
        if self.kind == "matmul":
            batch, rows, _, columns = products(self, samples)
            return batch * rows * columns
        return elements(self, samples)

    def count(self, samples: int) -> Count:
        """Return the rounds and bytes of this operation on a batch, on CrypTen."""
        sizes = [math.prod(sized(shape, samples)) for shape in self.shapes]
        if self.kind in ("matmul", "mul"):
            return Count(1, primitives.WORD * sum(sizes))
        if self.kind == "powers":
            return primitives.powers(self.degree).on(sizes[0])
        if self.kind in _ROWWISE:
            length = self.shapes[0][-1]
            return _ROWWISE[self.kind](length).on(sizes[0] // length)
        return _ELEMENTWISE[self.kind].on(sizes[0])


def sized(shape: Shape, samples: int) -> Shape:
    """Return a shape with the samples of a batch in it."""
    return tuple(samples if axis == N else axis for axis in shape)


def elements(operation: Operation, samples: int) -> int:
    """Return how many numbers an operation on a batch computes, element by element."""
    shape: Shape = ()
    for operand in operation.shapes:
        shape = broadcast(shape, sized(operand, samples))
    return math.prod(shape)


def joins(length: int) -> int:
    """Return how many rounds of pairwise joins reduce a row to one element.

    A row of odd length leaves one out, and takes it in by a join of its own.
    """
    # floor(log2 length) halvings, and a join for each bit beside the first.
    return length.bit_length() + length.bit_count() - 2


def products(operation: Operation, samples: int) -> tuple[int, int, int, int]:
    """Return how many matrix products an operation is, and their sizes `m, k, n`.

    Axes in front that one operand alone has go into its rows or columns: they are no
    products of their own.
    """
    first, second = (sized(shape, samples) for shape in operation.shapes)
    *front, _, inner = first
    *behind, _, _ = second
    rank = max(len(front), len(behind))
    pairs = zip(
        (1,) * (rank - len(front)) + tuple(front),
        (1,) * (rank - len(behind)) + tuple(behind),
        strict=True,
    )
    batch = math.prod(a for a, b in pairs if a == b)
    rows, columns = (math.prod(shape) // (batch * inner) for shape in (first, second))
    return batch, rows, inner, columns
