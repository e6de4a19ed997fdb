"""The result of `value_datasets`: values, weights and a purchase."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.show import SHOWN, show_pairs

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas as pd

_REPR = 300  # characters
_WORTH_TELLING = 5e-4  # gain of the next owner


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DatasetValues:
    """Owners by how well their vectors match a target together.

    Utilities are shares of the target's squared length: a set of owners is worth
    `1 - error / |b|^2`, 1 if some weights of its vectors give the target b. All values
    and gains are in this unit.

    Attributes:
        owners: Their names, n of them; numbers from 0 if none were passed.
        weights: Array of shape `[n]`: the weight of each owner's vector in the best
            match of all.
        shapley: Array of shape `[n]`: Shapley values, which add up to `matched`.
        stderr: Array of shape `[n]`: standard errors of these over targets, and of
            sampling where values were sampled; None where there is neither.
        by_group: Array of shape `[n]`: values where each group of parallel owners
            comes as one (Owen values): exact copies share what one of them would have
            without the others. None of more than 20 owners.
        marginal: Array of shape `[n]`: the loss in utility if one owner leaves.
        alone: Array of shape `[n]`: the utility of each owner by itself.
        bought: Array of shape `[n]`, bool: owners of the purchase.
        gains: Array of shape `[n]`: how much an owner that wasn't bought would add to
            the purchase; 0 for owners that were.
        prices: Array of shape `[n]`.
        matched: Utility of all owners.
        matched_bought: Utility of the owners bought.
        cosines: Array of shape `[n, n]`: cosines between vectors; 0 for zero vectors.
        groups: Owners, by position, whose vectors are nearly parallel: those that a
            chain of cosines of at least `parallel` joins, two or more each.
        undetermined: Number of independent changes of the weights that move the match
            so little that the ridge decides them, not the target: one for each exact
            copy.
        method: How values and purchase were computed.
    """

    owners: tuple[Any, ...]
    weights: np.ndarray
    shapley: np.ndarray
    stderr: np.ndarray | None
    by_group: np.ndarray | None
    marginal: np.ndarray
    alone: np.ndarray
    bought: np.ndarray
    gains: np.ndarray
    prices: np.ndarray
    matched: float
    matched_bought: float
    cosines: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    undetermined: int
    method: str

    def __len__(self) -> int:
        return len(self.owners)

    def __repr__(self) -> str:
        best = np.argsort(-self.shapley, kind="stable")[:SHOWN]
        shown = show_pairs([self.owners[i] for i in best], self.shapley[best])
        text = (
            f"DatasetValues({len(self)} owners match {self.matched:.1%}, "
            f"{self.bought.sum()} bought for {self.cost:g} match "
            f"{self.matched_bought:.1%}, best={shown})"
        )
        return text if len(text) <= _REPR else f"{text[: _REPR - 4]}...)"

    @property
    def cost(self) -> float:
        """Price of the owners bought."""
        return float(self.prices[self.bought].sum())

    @property
    def next_owner(self) -> Any | None:
        """Name of the owner that would add most to the purchase; None if none would."""
        if not (self.gains > 0).any():
            return None
        return self.owners[int(np.argmax(self.gains))]

    @property
    def summary(self) -> tuple[str, ...]:
        """Sentences on the match, the purchase, and redundant owners."""
        n = len(self)
        lines = [
            f"{n} owner{'s match' if n > 1 else ' matches'} {self.matched:.1%} of the "
            "target's squared length",
            f"{self.bought.sum()} bought for {self.cost:g} match "
            f"{self.matched_bought:.1%}",
        ]
        if self.gains.max() >= _WORTH_TELLING:
            lines[-1] += f"; {self.next_owner} would add {self.gains.max():.1%}"
        for group in self.groups:
            names = ", ".join(str(self.owners[i]) for i in group)
            inner = self.cosines[np.ix_(group, group)].min()
            lines.append(f"Nearly parallel: {names} (cosines from {inner:.3f})")
        if self.undetermined:
            many = "s are" if self.undetermined > 1 else " is"
            line = f"{self.undetermined} direction{many} decided by the ridge alone"
            lines.append(f"Weights: {line}")
        return tuple(lines)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row an owner, the most valuable first."""
        import pandas as pd

        group = np.full(len(self), -1)
        for number, members in enumerate(self.groups):
            group[list(members)] = number
        columns = {
            "shapley": self.shapley,
            "stderr": self.stderr,
            "by_group": self.by_group,
            "marginal": self.marginal,
            "alone": self.alone,
            "weight": self.weights,
            "price": self.prices,
            "bought": self.bought,
            "gain": self.gains,
            "group": group,
        }
        order = np.argsort(-self.shapley, kind="stable")
        known = {
            name: column[order]
            for name, column in columns.items()
            if column is not None
        }
        names = [self.owners[i] for i in order]
        return pd.DataFrame(known, index=pd.Index(names, name="owner"))

    def plot(self, ax: matplotlib.axes.Axes | None = None) -> matplotlib.axes.Axes:
        """Draw Shapley values with standard errors; owners that are bought are full.

        Args:
            ax: Axes to draw on; made if None.

        Returns:
            The axes.
        """
        from jaxsel.report import COLORS, new_figure, style

        order = np.argsort(self.shapley, kind="stable")
        if ax is None:
            with style():
                ax = new_figure(6.4, 0.3 * len(self) + 1.1, shown=True).subplots()
        with style():
            rows = np.arange(len(self))
            faces = [COLORS[0] if self.bought[i] else "none" for i in order]
            error = None if self.stderr is None else self.stderr[order]
            ax.barh(
                rows,
                self.shapley[order],
                xerr=error,
                height=0.6,
                color=faces,
                edgecolor=COLORS[0],
                error_kw={"lw": 1},
            )
            names = [str(self.owners[i])[:24].replace("$", r"\$") for i in order]
            ax.set_yticks(rows, names)
            ax.set_xlabel("Shapley value, share of the target matched; full: bought")
            ax.grid(visible=False, axis="y")
        return ax

    def _repr_html_(self) -> str:
        from jaxsel._results.html import table_html

        head = ["owner", "Shapley value", "weight", "price", "bought", "gain"]
        rows = [
            [
                str(self.owners[i]),
                f"{self.shapley[i]:.4f}"
                + ("" if self.stderr is None else f" ± {self.stderr[i]:.4f}"),
                f"{self.weights[i]:.4g}",
                f"{self.prices[i]:g}",
                "yes" if self.bought[i] else "",
                "" if self.bought[i] else f"{self.gains[i]:.4f}",
            ]
            for i in np.argsort(-self.shapley, kind="stable")
        ]
        return table_html(self.summary, head, rows)
