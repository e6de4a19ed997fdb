"""Results of applications: curves of several methods over several seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

    from jaxsel.report import Figure


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """One curve for each method and seed, with numbers that sum them up.

    Attributes:
        name: The application, with every setting that matters.
        x: Abscissae of the curves, `[p]`.
        curves: By method, `[seeds, p]`.
        summary: By method and measure, `[seeds]`.
        reference: By name, `[seeds]`: measures that depend on no method, such as the
            accuracy with all data.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis; curves are always shares, in 0..1.
        percent_x: Whether `x` holds shares too.
        ticks: Name of each x on the axis; numbers if empty.
    """

    name: str
    x: np.ndarray
    curves: Mapping[str, np.ndarray]
    summary: Mapping[str, Mapping[str, np.ndarray]]
    reference: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    xlabel: str = ""
    ylabel: str = ""
    percent_x: bool = False
    ticks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.x.ndim != 1 or not self.curves:
            raise ValueError(
                f"x must have shape [p] and curves must not be empty, got shape "
                f"{self.x.shape} and {len(self.curves)} curves"
            )
        for name, curve in self.curves.items():
            if curve.ndim != 2 or curve.shape != (self.seeds, len(self.x)):
                raise ValueError(
                    f"curves[{name!r}] must have shape [seeds, {len(self.x)}] with as "
                    f"many seeds as the others, got {curve.shape}"
                )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}, {', '.join(self.curves)}; "
            f"{self.seeds} seeds)"
        )

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(next(iter(self.curves.values())))

    def mean(self) -> dict[str, np.ndarray]:
        """Return the mean over seeds of each curve, `[p]`."""
        return {name: curve.mean(0) for name, curve in self.curves.items()}

    def band(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return mean - sd and mean + sd over seeds of each curve, `[p]` each.

        The standard deviation has ddof = 1; with one seed the band has no width.
        """
        return {
            name: (curve.mean(0) - _spread(curve), curve.mean(0) + _spread(curve))
            for name, curve in self.curves.items()
        }

    def describe(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return mean and sd over seeds of each method's measures."""
        return {
            name: {
                measure: (float(seeds.mean()), float(_spread(seeds)))
                for measure, seeds in measures.items()
            }
            for name, measures in self.summary.items()
        }

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw the mean of each curve in its band.

        Args:
            ax: Axes to draw on; made with pyplot if None.

        Returns:
            The axes.
        """
        from jaxsel.report import plot_curves

        ax = plot_curves(
            self.x,
            self.curves,
            ax=ax,
            xlabel=self.xlabel,
            ylabel=self.ylabel,
            percent=True,
        )
        if self.percent_x:
            from matplotlib.ticker import PercentFormatter

            ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        if self.ticks:
            ax.set_xticks(self.x, self.ticks)
        return ax

    def figure(self) -> Figure:
        """Return the plot with a caption and a text for who cannot see it."""
        from jaxsel.report import Figure, new_figure, style

        plot = new_figure()
        with style():
            self.plot(plot.subplots())
        seeds = "one seed" if self.seeds == 1 else f"{self.seeds} seeds"
        return Figure(
            plot=plot,
            caption=f"{self.name}. Means over {seeds}; bands are one standard "
            "deviation.",
            alt=self._alt(),
        )

    def _alt(self) -> str:
        means = self.mean()
        apart = np.ptp(list(means.values()), axis=0)
        widest, last = int(apart.argmax()), len(self.x) - 1
        most = ", where the methods differ most" if len(means) > 1 else ""
        parts = [
            f"{self._at(i)}{most if i == widest else ''}: "
            + ", ".join(
                f"{name} {means[name][i]:.1%}"
                for name in sorted(means, key=lambda name: -means[name][i])
            )
            for i in dict.fromkeys((widest, last))
        ]
        return f"{self.ylabel} against {self.xlabel.lower()}, {'; '.join(parts)}."

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each method, seed and point, with columns x and y."""
        import pandas as pd

        names, seeds, points = list(self.curves), self.seeds, len(self.x)
        return pd.DataFrame(
            {
                "method": np.repeat(names, seeds * points),
                "seed": np.tile(np.repeat(np.arange(seeds), points), len(names)),
                "x": np.tile(self.x, len(names) * seeds),
                "y": np.concatenate([self.curves[name].ravel() for name in names]),
            }
        )

    def _at(self, i: int) -> str:
        """The i-th place on the x axis, in words."""
        if self.ticks:
            return f"at {self.ticks[i]!r}"
        return f"at {self.x[i]:.0%}" if self.percent_x else f"at {self.x[i]:g}"


def stack(seeds: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Stack the seeds' results by name: `[seeds, ...]`."""
    return {name: np.stack([np.asarray(s[name]) for s in seeds]) for name in seeds[0]}


def _spread(y: np.ndarray) -> np.ndarray:
    return np.std(y, axis=0, ddof=1) if len(y) > 1 else np.zeros(y.shape[1:])
