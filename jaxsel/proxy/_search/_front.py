"""The front of fidelity and secure cost, for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxsel._inputs.checks import check_positive
from jaxsel._inputs.show import brief
from jaxsel.proxy._cost._cost import markdown
from jaxsel.proxy._cost._traffic import EngineName
from jaxsel.proxy._parties._plan import Phase
from jaxsel.report import COLORS, new_figure, style

from ._rehearsal import Rehearsal

if TYPE_CHECKING:
    import matplotlib.axes


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule of phases, with its overlap and its cost.

    Attributes:
        names: Candidates, one a phase.
        keeps: Rows that each phase leaves, the bootstrap set not counted.
        batch_sizes: Samples that each phase scores together.
        overlap: Share of its choice that the target would choose too, the mean over the
            rehearsal's runs.
        stderr: Its standard error over the runs; NaN for a single one.
        bytes: Payload of an owner, sent plus received.
        hours: Of messages, and of computing where that was given.
    """

    names: tuple[str, ...]
    keeps: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    overlap: float
    stderr: float
    bytes: float
    hours: float

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        keeps: tuple[int, ...],
        batch_sizes: tuple[int, ...],
        overlaps: np.ndarray,
        size: float,
        hours: float,
    ) -> Schedule:
        """Return a schedule of which each run's overlap is known, `[S]`."""
        runs = len(overlaps)
        stderr = float(overlaps.std(ddof=1)) / runs**0.5 if runs > 1 else np.nan
        return cls(
            names=names,
            keeps=keeps,
            batch_sizes=batch_sizes,
            overlap=float(overlaps.mean()),
            stderr=stderr,
            bytes=size,
            hours=hours,
        )


class Judged(NamedTuple):
    """A schedule, and its overlap in each run, `[S]`."""

    schedule: Schedule
    overlaps: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Front:
    """Schedules that no other one beats, the cheapest first.

    Attributes:
        points: The schedules: each is better than all that are cheaper.
        held_out: Overlap to expect of each point, `[len(points)]`: for every run, the
            schedule that is best by the other runs at the point's hours, judged by this
            run; the mean. `overlap` is the luckiest of many schedules'. NaN for
            a single run.
        compared: The schedules to compare with, by name.
        hours: Of all schedules that were tried, `[E]`.
        overlap: Of all of them, `[E]`.
        rehearsal: The rehearsal that they were judged by.
        n: Samples in the pool.
        bought: Samples of the bootstrap set.
        budget: Samples to buy, the bootstrap set counted.
        engine: The engine that the cost is counted for.
    """

    points: tuple[Schedule, ...]
    held_out: np.ndarray
    compared: Mapping[str, Schedule]
    hours: np.ndarray = dataclasses.field(repr=False)
    overlap: np.ndarray = dataclasses.field(repr=False)
    rehearsal: Rehearsal
    n: int
    bought: int
    budget: int
    engine: EngineName

    @classmethod
    def of(
        cls,
        tried: Sequence[Judged],
        compared: Mapping[str, Schedule],
        *,
        rehearsal: Rehearsal,
        n: int,
        bought: int,
        budget: int,
        engine: EngineName,
    ) -> Front:
        """Return the front of the schedules that were tried."""
        hours = np.array([judged.schedule.hours for judged in tried])
        overlaps = np.array([judged.overlaps for judged in tried])
        means = np.asarray(overlaps.mean(axis=1))
        # Of equal hours the best comes first, so that it alone can rise.
        order = np.lexsort((-means, hours))
        on: list[int] = order[_rises(means[order])].tolist()
        return cls(
            points=tuple(tried[i].schedule for i in on),
            held_out=_held_out(hours, overlaps, order, np.array(on)),
            compared=dict(compared),
            hours=hours,
            overlap=means,
            rehearsal=rehearsal,
            n=n,
            bought=bought,
            budget=budget,
            engine=engine,
        )

    def __repr__(self) -> str:
        first, last = self.points[0], self.points[-1]
        return (
            f"Front({len(self.points)} of {len(self.hours):,} schedules on "
            f"{self.engine}, overlap {first.overlap:.2f} to {last.overlap:.2f}, "
            f"{first.hours:.2g} to {last.hours:.2g} hours)"
        )

    @property
    def random(self) -> float:
        """The overlap of a random choice."""
        return (self.budget - self.bought) / (self.n - self.bought)

    def best(self, max_hours: float | None = None) -> Schedule:
        """Return the point of the highest overlap within a limit.

        Args:
            max_hours: The limit; None for none.

        Raises:
            ValueError: If no point takes so little; names the hours of the cheapest.
        """
        if max_hours is None:
            return self.points[-1]
        check_positive("max_hours", max_hours)
        within = [point for point in self.points if point.hours <= max_hours]
        if not within:
            raise ValueError(
                f"max_hours must be at least {self.points[0].hours:.3g}, what the "
                f"cheapest schedule takes, got {max_hours:g}"
            )
        return within[-1]

    def phases(self, point: Schedule) -> tuple[Phase, ...]:
        """Return a schedule as `select` and `ModelOwner` take it."""
        shares = [(keep + self.bought) / self.n for keep in point.keeps[:-1]]
        return tuple(
            dataclasses.replace(self.rehearsal.candidates[name], keep=keep)
            for name, keep in zip(point.names, [*shares, None], strict=True)
        )

    def table(self) -> str:
        """Return a Markdown table of the points, and below of the schedules compared.

        A schedule with a candidate in `rehearsal.failures` is marked as refused.
        """
        header = ("schedule", "overlap", "held out", "GB", "hours")
        lines = [
            self._line(self._describe(point), point, held)
            for point, held in zip(self.points, self.held_out, strict=True)
        ]
        for name, point in self.compared.items():
            refused = {*point.names} & {*self.rehearsal.failures}
            says = f"{name}{' (refused)' if refused else ''}: {self._describe(point)}"
            lines.append(self._line(says, point, None))
        return markdown(header, lines)

    def plot(self, *, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw all schedules by hours and overlap, with the front and those compared.

        Args:
            ax: Axes to draw on; made with pyplot if None.
        """
        with style():
            ax = new_figure(6.4, 4, shown=True).subplots() if ax is None else ax
            ax.plot(self.hours, self.overlap, ",", color="0.6", rasterized=True)
            ax.plot(
                [point.hours for point in self.points],
                [point.overlap for point in self.points],
                "o-",
                drawstyle="steps-post",
                color=COLORS[0],
                label="Front",
            )
            for i, (name, point) in enumerate(self.compared.items()):
                color = COLORS[1 + i % (len(COLORS) - 1)]
                ax.plot(point.hours, point.overlap, "s", color=color, label=name)
            ax.axhline(self.random, color="0.6", linestyle=":", label="Random")
            ax.set_xscale("log")
            ax.set_xlabel(f"Hours on {self.engine}")
            ax.set_ylabel("Overlap with the target's choice")
            ax.legend(loc="best")
        return ax

    def _describe(self, point: Schedule) -> str:
        """Return the phases' names, each with the share of the pool that it leaves."""
        shares = [(keep + self.bought) / self.n for keep in point.keeps]
        parts = zip(point.names, shares, strict=True)
        return " → ".join(f"{name} ({share:.0%})" for name, share in parts)

    def _line(
        self, says: str, point: Schedule, held: float | None
    ) -> tuple[str, str, str, str, str]:
        error = "" if np.isnan(point.stderr) else f" ± {point.stderr:.3f}"
        expected = "" if held is None or np.isnan(held) else f"{held:.3f}"
        hours = f"{point.hours:.3g}"
        return (
            says,
            f"{point.overlap:.3f}{error}",
            expected,
            f"{point.bytes / 1e9:.3g}",
            hours,
        )


def _rises(values: np.ndarray) -> np.ndarray:
    """Return where values are above all that come before."""
    before = np.maximum.accumulate(np.concatenate([[-np.inf], values[:-1]]))
    return np.flatnonzero(values > before)


def _held_out(
    hours: np.ndarray, overlaps: np.ndarray, order: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """Return the overlap to expect of the best schedule within each point's hours.

    Args:
        hours: Of all schedules, `[E]`.
        overlaps: By run, `[E, S]`.
        order: The schedules from cheap to dear, `[E]`.
        points: Some of the schedules, `[P]`.
    """
    runs = overlaps.shape[1]
    if runs == 1:
        return np.full(len(points), np.nan)
    within = np.searchsorted(hours[order], hours[points], side="right")
    expected = np.zeros(len(points))
    for s in range(runs):
        others = np.delete(overlaps, s, axis=1).mean(axis=1)[order]
        best = _rises(others)
        # The last rise among the `within` cheapest schedules.
        chosen = order[best[np.searchsorted(best, within) - 1]]
        expected += overlaps[chosen, s] / runs
    return expected
