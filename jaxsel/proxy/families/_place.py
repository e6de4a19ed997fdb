"""The terms in which a family writes its part of the secure run.

A family's steps are a generator. Each `yield` asks for one `Call`, an operation that
communicates, and is sent its result; between two of them a party only adds, scales by
public numbers and reshapes what it holds. The same code runs on secret shares, on clear
arrays, and on shapes alone, from which the schedule and the cost follow. Operands are
anything with the methods of `Shaped`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxsel._inputs.show import brief

from ._described import Described

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
    "nonnegative",
    "all",
    "select",
    "highest",
    "scale",
    "share",
    "zero",
]
Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Arrays = dict[str, np.ndarray]


@brief
class Call(NamedTuple):
    """One operation that a secure forward pass asks for.

    Attributes:
        place: The part of the model, such as "layers.0".
        name: Its result there, such as "scores".
        kind: The primitive, see `Operation`.
        operands: Its operands.
        degree: The highest power, of `powers`; how many numbers, of `highest`.
    """

    place: str
    name: str
    kind: Kind
    operands: tuple[Any, ...]
    degree: int = 0


Steps = Generator[Call, Any, Any]


@brief
@dataclasses.dataclass(frozen=True)
class SharedInputs:
    """A batch of samples as the data owner shares it.

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


@dataclasses.dataclass(frozen=True)
class Run:
    """One secure forward pass, or its shapes.

    Attributes:
        manifest: The proxy's architecture.
        weight: Return the secret operand of a name and shape.
        inputs: The batch.
        cat: Join operands along the last axis.
        spare_bits: By how many bits attention's weights are larger, as `fold` was
            given it.
        watched: Operands `[n, m]` that are not below zero where a sample's numbers lie
            within the manifest's bounds; None if they are not checked.
    """

    manifest: Described
    weight: Callable[[str, Shape], Any]
    inputs: SharedInputs
    cat: Callable[[Sequence[Any]], Any]
    spare_bits: int = 0
    watched: list[Any] | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A part of a run, which names its operations and its weights.

    Attributes:
        run: The run.
        at: The part, such as "layers.0".
        prefix: In front of names: "ffn_" for the norm of a feed-forward part.
    """

    run: Run
    at: str
    prefix: str = ""

    @property
    def folded(self) -> bool:
        return self.run.manifest.plan == "folded"

    @property
    def length(self) -> int:
        return self.run.manifest.inputs.length

    @property
    def hidden(self) -> int:
        return self.run.manifest.inputs.width

    def call(self, name: str, kind: Kind, *operands: Any, degree: int = 0) -> Call:
        """Return an operation of this place, to be yielded."""
        return Call(self.at, f"{self.prefix}{name}", kind, operands, degree)

    def weight(self, name: str, *shape: int) -> Any:
        """Return an array that a family's `fold` made, by its name there."""
        return self.run.weight(f"{self.at}.{self.prefix}{name}", shape)

    def bound(self, name: str, default: float) -> float:
        """Return the manifest's bound of a place, or a default where there is none."""
        bounds = self.run.manifest.fixed_point.bounds
        return bounds.get(f"{self.at}.{self.prefix}{name}", default)

    def unit(self, name: str, default: float) -> float:
        """Return the bound that numbers are scaled by.

        It leaves out the powers by which they may grow: usual numbers keep their
        digits.
        """
        return self.bound(f"{name}_unit", self.bound(name, default))

    def watch(self, value: Any, low: float, high: float) -> None:
        """Mark samples that have a number outside of `low` to `high`.

        A number that has left the ring lies anywhere in it, so that both ends are
        compared.

        Args:
            value: Numbers `[n, ...]`.
            low: Public lower bound.
            high: Public upper bound.
        """
        if self.run.watched is not None:
            flat = value.reshape(-1, math.prod(value.shape[1:]))
            self.run.watched.extend([flat + -low, -flat + high])

    def linear(self, name: str, x: Any, columns: int, *, bias: bool = True) -> Steps:
        """Multiply by the weight of this name, and add its bias."""
        weight = self.weight(f"{name}.weight", x.shape[-1], columns)
        product = yield self.call(name, "matmul", x, weight)
        return product + self.weight(f"{name}.bias", columns) if bias else product

    def mlp(self, name: str, x: Any, width: int, columns: int) -> Steps:
        """Apply an MLP with the weights that `fold_mlp` names."""
        inner = yield from self.linear(f"{name}_in", x, width)
        inner = yield self.call(f"{name}_relu", "relu", inner)
        return (yield from self.linear(f"{name}_out", inner, columns))


def mlp_shapes(inputs: int, width: int, outputs: int) -> Shapes:
    """Return the shapes of an MLP's parameters, see `jaxsel.proxy.mlp`."""
    return {
        "w1": (inputs, width),
        "b1": (width,),
        "w2": (width, outputs),
        "b2": (outputs,),
    }


def fold_mlp(name: str, params: Arrays, unit: float = 1.0) -> Arrays:
    """Return the operands of `Place.mlp`; its input comes divided by `unit`."""
    return {
        f"{name}_in.weight": params["w1"] * unit,
        f"{name}_in.bias": params["b1"],
        f"{name}_out.weight": params["w2"],
        f"{name}_out.bias": params["b2"],
    }


def times(x: Any, factor: float) -> Any:
    """Return x times a public factor, divided by its inverse where that is whole.

    In fixed point a small factor is rounded, a large divisor is not.
    """
    inverse = 1 / factor
    divisor = round(inverse)
    return x / divisor if math.isclose(inverse, divisor, rel_tol=1e-12) else x * factor
