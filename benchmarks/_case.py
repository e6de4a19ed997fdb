"""Declarations of a benchmark: cases, their contenders, and targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

I = TypeVar("I")
Level = Literal["must", "goal"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender(Generic[I]):
    """One way to compute a case.

    Attributes:
        name: Unique in its case.
        make: Untimed set-up. Takes the inputs, returns the call that is timed. The call
            may return JAX arrays before they are computed: the harness waits for them.
            With an ImportError, the contender is absent.
        check: Takes the inputs and the call's result, returns named figures, such
            as `{"error": 1e-7}`: they are reported.
        limits: Upper bounds of the figures. A contender that exceeds one, or has
            NaN there, is wrong, and is not timed.
        share: How much of the case's work one call does: less than all for a peer that
            would take long.
        peer: Whether the others are compared with it.
        note: Said in the table.
        seconds: Takes the call's result, returns its seconds of CPU and of the
            clock, where another process did the work and measured itself. None: the
            harness measures the call.
    """

    name: str
    make: Callable[[I], Callable[[], Any]]
    check: Callable[[I, Any], Mapping[str, float]]
    limits: Mapping[str, float]
    share: float = 1.0
    peer: bool = False
    note: str = ""
    seconds: Callable[[Any], tuple[float, float]] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A figure to reach.

    Attributes:
        text: Its wording in the table.
        level: "must", or "goal" for a stretch.
        contender: Name of the contender.
        quantity: "ratio" (times as fast as the contender `against`, by CPU time or by
            the clock, whichever is less), "rate" (units of work a second), "cpu_s"
            (seconds a call), "peak_mb" (memory above the inputs, 1e6 bytes), or the
            name of a figure that `check` returned.
        bound: "at least" or "at most".
        limit: The figure itself.
        against: The peer of a ratio.
    """

    text: str
    level: Level
    contender: str
    quantity: str
    bound: Literal["at least", "at most"]
    limit: float
    against: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case(Generic[I]):
    """Inputs, and the contenders that compute the same thing from them.

    Attributes:
        name: Unique in its benchmark; the argument of `--only`.
        title: For the table.
        inputs: Makes the inputs from a fixed seed. It should leave no large temporary
            arrays behind it: memory is measured from there on.
        tiny: Makes inputs of a different, tiny shape, to warm up the runtime before
            memory and compilation are measured.
        work: Units of work in one call.
        unit: The unit of work, in the singular: "pair".
        flops: Floating-point operations that a unit of work needs, whoever does it: a
            multiply-add is two. 0 if that is not known.
        bytes: Bytes that a unit needs from memory, beyond what caches hold.
        contenders: In the order of the table.
        targets: Figures to reach.
        platforms: Where the case runs, as JAX names platforms; everywhere if empty.
        elsewhere: Whether it runs on other platforms, too, where `--only` names it.
        rounds: How often each contender is timed. 0: its figures are the result, and
            it has no time.
        probed: Whether memory and compilation are measured, in more processes.
        threads: 1: every contender computes on one thread. None: contenders start
            processes, which take the threads that they want.
        clock: "wall_s" where the CPU time of other processes is not known; None: as
            the device has it.
    """

    name: str
    title: str
    inputs: Callable[[], I]
    tiny: Callable[[], I]
    work: int
    unit: str
    flops: float = 0.0
    bytes: float = 0.0
    contenders: Sequence[Contender[I]]
    targets: Sequence[Target] = ()
    platforms: Sequence[str] = ()
    elsewhere: bool = False
    rounds: int = 7
    probed: bool = True
    threads: Literal[1] | None = 1
    clock: Literal["wall_s"] | None = None


def faster(contender: str, against: str, level: Level, limit: float) -> Target:
    """Return a target: at least `limit` times as fast as `against`."""
    return Target(
        text=f"{contender}: times as fast as {against} ≥ {limit:g}",
        level=level,
        contender=contender,
        quantity="ratio",
        bound="at least",
        limit=limit,
        against=against,
    )


def at_most(
    contender: str, quantity: str, limit: float, what: str, level: Level
) -> Target:
    """Return a target: at most `limit` of a quantity, and the text for it."""
    return Target(
        text=f"{contender}: {what} ≤ {limit:g}",
        level=level,
        contender=contender,
        quantity=quantity,
        bound="at most",
        limit=limit,
    )
