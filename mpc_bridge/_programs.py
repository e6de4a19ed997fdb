"""Programs on shares, for every engine: scores, comparisons, sums."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from jaxsel.proxy import (
    Call,
    Manifest,
    Operation,
    SharedInputs,
    Steps,
    operand_shapes,
    schedule,
    secure_steps,
)

from ._network import Network
from .engines import Engine, Program

Cat = Callable[[Sequence[Any]], Any]

# The entropy of two classes as a function of u = (z1 - z0)²: a sum of t^2, t^4, t^8 and
# t^16, t = relu(1 - u / 64), with the smallest error over all u >= 0: 0.0035.
REACH = 64
POWERS = (0.08948906, 0.04203101, 0.23446001, 0.32370874)

_DIVISOR = 2**14
"""The largest public divisor: the inverse of a larger one has no digits."""


@dataclasses.dataclass(frozen=True)
class Forward(Program):
    """A proxy's scores `[n]`, from its weights and a batch of inputs.

    Attributes:
        manifest: The proxy's.
        spare_bits: As its weights were folded.
        watch: As in `secure_steps`.
    """

    place: ClassVar[str] = "forward"
    name: ClassVar[str] = "scores"
    manifest: Manifest
    spare_bits: int = 0
    watch: bool = False

    @property
    def weights(self) -> tuple[str, ...]:
        """Names of the first operands; the batch's follow."""
        return tuple(operand_shapes(self.manifest))

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        names = self.weights
        inputs = SharedInputs(*operands[len(names) :])
        weights = dict(zip(names, operands[: len(names)], strict=True))
        return secure_steps(
            self.manifest,
            weights,
            inputs,
            cat=cat,
            spare_bits=self.spare_bits,
            watch=self.watch,
        )

    def schedule(self) -> tuple[Operation, ...]:
        return _schedule(self.manifest)


def wild_expected(
    manifest: Manifest, n: int, engine: type[Engine], fraction_bits: int | None = None
) -> float:
    """Return how many numbers of a phase's scoring come out wild, as expected at least.

    CrypTen's two parties cut a product back each by itself, which is wrong by
    2^(64 - 2f) with a probability of |product| / 2^(64 - 2f), f fraction bits. Counted
    are the products of `schedule`, each as large as the manifest's largest bound. SPU's
    parties cut back together, which does not fail below the ring's limit.

    Args:
        manifest: Of the phase.
        n: Samples.
        engine: Of the run.
        fraction_bits: Of all numbers; the manifest's if None.
    """
    if engine.exact_cut:
        return 0.0
    products = 0
    for operation in _schedule(manifest):
        if operation.kind in ("matmul", "mul", "square"):
            products += operation.results(n)
    fixed = manifest.fixed_point
    bits = fixed.fraction_bits if fraction_bits is None else fraction_bits
    # Not those of the worst row, nor of powers that few rows reach.
    proven = {"score"} if manifest.inputs.kind == "features" else set[str]()
    usual = [
        fixed.bounds.get(f"{place}_unit", bound)
        for place, bound in fixed.bounds.items()
        if place not in proven and not place.endswith(("_weights", "_products"))
    ]
    largest = max(usual, default=1.0)
    return products * largest * 2.0 ** (2 * bits - engine.ring)


@functools.lru_cache(maxsize=64)
def _schedule(manifest: Manifest) -> tuple[Operation, ...]:
    return schedule(manifest)


@dataclasses.dataclass(frozen=True)
class Sum(Program):
    """The sum of two arrays."""

    place: ClassVar[str] = "scores"
    name: ClassVar[str] = "sum"

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        return operands[0] + operands[1]
        yield


@dataclasses.dataclass(frozen=True)
class Outside(Program):
    """How many samples are ranked last for numbers beyond the bounds, `[1]`.

    Operands: scores `[n]`.

    Attributes:
        score: What these have as their score, twice as far below zero as any other.
    """

    place: ClassVar[str] = "scores"
    name: ClassVar[str] = "outside"
    score: float

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        below = -operands[0] + self.score * 0.75
        bits = yield Call(self.place, self.name, "nonnegative", (below,))
        return bits.sum(0, keepdim=True)


@dataclasses.dataclass(frozen=True)
class Above(Program):
    """Which of some scores rank above a pivot: bits `[m]`.

    Operands: scores `[n]`; rows `[m]` and the pivot's `[1]`, public; by how much each
    must lead, `[m]`, public.
    """

    place: ClassVar[str] = "choice"
    name: ClassVar[str] = "compare"
    padded: ClassVar[tuple[int, ...]] = (1, 3)

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        scores, rows, pivot, behind = operands
        lead = scores[rows] - scores[pivot] - behind
        return (yield Call(self.place, self.name, "nonnegative", (lead,)))


@dataclasses.dataclass(frozen=True)
class Keys(Program):
    """Scores with their rows below the last digit, `[n]`.

    Scores are doubled to make room, and each row comes off there: equal scores go by
    their rows, and rows are shuffled with their scores. Operands: scores `[n]`; rows /
    2^f `[n]`, public, f fraction bits.

    Attributes:
        bits: Of the rows.
    """

    place: ClassVar[str] = "choice"
    name: ClassVar[str] = "select"
    bits: int

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        keys, behind = operands
        for _ in range(self.bits):
            keys = keys + keys  # a sum is exact, and costs nothing
        return keys - behind
        yield


@dataclasses.dataclass(frozen=True)
class Switched(Program):
    """Keys in the order that a party's switches bring them into, `[n]`.

    Operands: keys `[n]`; how the network's switches stand, `[switches]`.

    Attributes:
        network: For n numbers.
    """

    place: ClassVar[str] = "choice"
    name: ClassVar[str] = "switch"
    network: Network

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        keys, switches = operands
        net, offset = self.network, 0
        if net.total > net.n:
            keys = cat([keys, keys[: net.total - net.n]])
        for layer in net.layers:
            rows = keys.reshape(layer.rows, layer.width)
            pairs = [
                (slice(offset, offset + half), slice(offset + half, offset + 2 * half))
                for offset, half in layer.parts
            ]
            first = cat([rows[:, low] for low, _ in pairs])
            second = cat([rows[:, high] for _, high in pairs])
            stand = switches[offset : offset + layer.size].reshape(layer.rows, -1)
            offset += layer.size
            call = Call(self.place, self.name, "select", (stand, second - first))
            change = yield call
            first, second = first + change, second - change
            parts, column, done = [], 0, 0
            for low, high in pairs:
                half = low.stop - low.start
                parts.append(rows[:, column : low.start])
                parts.append(first[:, done : done + half])
                parts.append(second[:, done : done + half])
                column, done = high.stop, done + half
            parts.append(rows[:, column:])
            keys = cat([part for part in parts if part.shape[1]]).reshape(net.total)
        return keys[: net.n]


@dataclasses.dataclass(frozen=True)
class Rows(Program):
    """The rows of some keys, `[k]`: `rows_of` reads them.

    Keys are doubled until the ring has room for the rows alone. Operands: keys `[n]`;
    which of them, `[k]`, public.

    Attributes:
        bits: Of the rows.
        ring: Its bits.
    """

    place: ClassVar[str] = "choice"
    name: ClassVar[str] = "select"
    bits: int
    ring: int = 64

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        keys, chosen = operands
        return _rows_alone(keys[chosen], self.ring - self.bits)
        yield

    def rows_of(self, opened: np.ndarray, fraction_bits: int) -> np.ndarray:
        """Decode opened keys into rows, ascending."""
        keys = opened * 2.0 ** (fraction_bits + self.bits - self.ring)
        return np.sort(-np.round(keys).astype(np.int64) % 2**self.bits)


@dataclasses.dataclass(frozen=True)
class Highest(Rows):
    """The rows of the k highest keys in no order, `[k]`: `rows_of` reads them.

    The engine shuffles before it compares, so that the outcomes that it opens to itself
    say nothing about rows. They do say how the keys at each place rank, so that rows
    opened there would be nearly in the order of their scores. Rows alone are therefore
    shuffled again: the engine does so where it is asked for the k highest of k, and
    compares nothing but what is opened next. Operands: keys `[n]`.

    Attributes:
        k: How many.
    """

    k: int = 1

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        keys = yield Call(self.place, self.name, "highest", operands, self.k)
        rows = (_rows_alone(keys, self.ring - self.bits),)
        if self.k == 1:
            return rows[0]
        return (yield Call(self.place, self.name, "highest", rows, self.k))


def _rows_alone(keys: Any, doublings: int) -> Any:
    for _ in range(doublings):
        keys = keys + keys
    return keys


@dataclasses.dataclass(frozen=True)
class Total(Program):
    """The sum of some scores, `[1]`. Operands: scores `[n]`; rows `[k]`, public."""

    place: ClassVar[str] = "appraisal"
    name: ClassVar[str] = "sum"

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        scores, rows = operands
        return scores[rows].sum(0, keepdim=True)
        yield


@dataclasses.dataclass(frozen=True)
class TotalEntropy(Program):
    """The summed entropies, `[1]`, of scores that are minus the squared margin.

    Attributes:
        unit: How many times too large the scores are, a power of two.
    """

    place: ClassVar[str] = "appraisal"
    name: ClassVar[str] = "entropy"
    unit: float = 1.0

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        scores, rows = operands
        whole = REACH * int(self.unit)
        first = min(whole, _DIVISOR)
        power = scores[rows] / first + whole // first
        power = yield Call(self.place, "reach", "relu", (power,))
        # SPU's compiler would join the two divisions without a step between them.
        if whole > first:
            power = power / (whole // first)
        total = 0
        for i, coefficient in enumerate(POWERS):
            power = yield Call(self.place, f"power_{2 ** (i + 1)}", "square", (power,))
            total = power.sum(0, keepdim=True) * coefficient + total
        return total


@dataclasses.dataclass(frozen=True)
class Reaches(Program):
    """Whether a sum `[1]` is at least a public number: a bit.

    Operands: the sum; the number's whole part and the rest, `[1]` each, public: one
    float would not hold all its digits.
    """

    place: ClassVar[str] = "appraisal"
    name: ClassVar[str] = "compare"

    def steps(self, cat: Cat, *operands: Any) -> Steps:
        total, whole, part = operands
        lead = total - whole - part
        return (yield Call(self.place, self.name, "nonnegative", (lead,)))


def behind(rows: np.ndarray, pivot: int, fraction_bits: int) -> np.ndarray:
    """Return by how much each row must lead a pivot: equal scores go by their rows."""
    return (rows > pivot) / 2.0**fraction_bits
