"""The result of a search for wrong labels."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxsel._show import SHOWN, brief, show_pairs

from ._joint import ConfidentJoint
from ._neighbours import Duplicates
from ._posterior import wrong_probability
from ._words import short

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy.typing as npt
    import pandas as pd

    from jaxsel.report import Chapter

_ROWS, _PAIRS = 10, 5  # that the table for people has


@brief
class Confusion(NamedTuple):
    """Two classes of which one is labelled as the other.

    Attributes:
        given: The label.
        true: What the samples are, by the confident joint.
        n: Estimated number of samples.
        share: Of all samples with that label.
    """

    given: Any
    true: Any
    n: int
    share: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelErrors:
    """Labels that are probably wrong, the most suspicious first.

    `print` shows them as a table.

    Attributes:
        indices: `[k]`: rows whose labels are suspected, the most suspicious first.
        scores: `[n]`: quality of every label, from 0 (worst) to 1.
        given: `[n]`: the labels as given.
        suggested: `[n]`: the likeliest class of every sample.
        pred_probs: `[n, K]`: probabilities by models that have not seen the sample.
        joint: Counts of given and true labels, noise and priors.
        duplicates: Near-duplicates whose labels differ; None if not looked for.
        method: How all this was computed, with every parameter that matters.
        index: Labels of the rows where samples came as a DataFrame with an index of its
            own, else None.
    """

    indices: np.ndarray
    scores: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    pred_probs: np.ndarray
    joint: ConfidentJoint
    duplicates: Duplicates | None = None
    method: str = ""
    index: tuple[Any, ...] | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        worst = self.indices[:SHOWN]
        return (
            f"LabelErrors({self.method or 'unnamed'}, {len(self)} of "
            f"{len(self.given)} labels, worst={show_pairs(worst, self.scores[worst])})"
        )

    def __str__(self) -> str:
        n = len(self.given)
        lines = [
            f"{len(self)} of {n} labels are suspected ({len(self) / n:.1%}); an "
            f"estimated {self.precision:.0%} of these are wrong",
            f"{self.n_errors} of {n} labels are estimated to be wrong in all",
        ]
        if len(self):
            lines += ["", *self._table()]
            if len(self) > _ROWS:
                lines.append(f"... and {len(self) - _ROWS} more")
        if self.confused:
            lines += ["", "classes that are confused:"]
            lines += [
                f"  {n} labelled {short(given)} are {short(true)} ({share:.1%})"
                for given, true, n, share in self.confused[:_PAIRS]
            ]
        if self.duplicates is not None and len(self.duplicates):
            i, j = self.duplicates.pairs[0]
            lines += [
                "",
                f"{len(self.duplicates)} pairs of near-duplicates have different "
                f"labels, as rows {i} ({short(self.given[i])}) and {j} "
                f"({short(self.given[j])})",
            ]
        return "\n".join(lines)

    @property
    def mask(self) -> np.ndarray:
        """True where a label is suspected, `[n]`."""
        found = np.zeros(len(self.given), bool)
        found[self.indices] = True
        return found

    @functools.cached_property
    def wrong(self) -> np.ndarray:
        """Estimated probability that each suspected label is wrong, `[k]`.

        From the probabilities and the noise of the joint, by Bayes' rule. Where classes
        overlap, the joint takes what is merely unlikely for noise, and these estimates
        are too high.
        """
        classes = self.joint.classes
        numbers = {label: i for i, label in enumerate(classes.tolist())}
        codes = [numbers[label] for label in self.given[self.indices].tolist()]
        return wrong_probability(
            self.pred_probs[self.indices],
            np.array(codes, np.intp),
            self.joint.noise_matrix,
        )

    @property
    def precision(self) -> float:
        """Estimated share of the suspected labels that are wrong; NaN of none."""
        return float(self.wrong.mean()) if len(self) else float("nan")

    @property
    def n_errors(self) -> int:
        """Estimated number of wrong labels among all, found or not."""
        return self.joint.n_errors

    @property
    def confused(self) -> list[Confusion]:
        """Classes that are labelled as others, the most frequent first."""
        counts = self.joint.counts
        off = counts - np.diag(counts.diagonal())
        size = np.maximum(counts.sum(axis=1), 1)
        order = np.argsort(-off, axis=None, kind="stable")[: np.count_nonzero(off)]
        return [
            Confusion(
                self.joint.classes[i].item(),
                self.joint.classes[j].item(),
                int(off[i, j]),
                float(off[i, j] / size[i]),
            )
            for i, j in zip(*np.unravel_index(order, off.shape), strict=True)
        ]

    def to_pandas(self, *, whole: bool = False) -> pd.DataFrame:
        """Return one row a suspected label, the most suspicious first.

        Args:
            whole: Whether to return all labels, in their own order, with a column that
                says which are suspected.

        Returns:
            Columns given, suggested, score, and wrong (its estimated probability) or,
            with `whole`, suspected. The index has row numbers, or the labels of the
            DataFrame that the samples came in.
        """
        import pandas as pd

        rows = np.arange(len(self.given)) if whole else self.indices
        columns = {
            "given": self.given[rows],
            "suggested": self.suggested[rows],
            "score": self.scores[rows],
        }
        if whole:
            columns["suspected"] = self.mask
        else:
            columns["wrong"] = self.wrong
        names: Any = rows if self.index is None else [self.index[i] for i in rows]
        index = pd.Index(names, name="row", tupleize_cols=False)
        return pd.DataFrame(columns, index=index)

    def plot(
        self, ax: Sequence[matplotlib.axes.Axes] | None = None
    ) -> Sequence[matplotlib.axes.Axes]:
        """Draw how labels score, and which classes are confused.

        Args:
            ax: Two axes to draw on; made if None.

        Returns:
            The two axes.
        """
        from ._plot import plot_errors

        return plot_errors(self, ax=ax)

    def chapter(
        self, samples: npt.ArrayLike | None = None, *, budget: int = 24
    ) -> Chapter:
        """Return a chapter for a `jaxsel.report.Report`.

        Args:
            samples: Images `[n, h, w]` or `[n, h, w, c]`, which are drawn beside sure
                ones of the given and the suggested class, or texts `[n]`, which are
                listed.
            budget: How many of the most suspicious to show.
        """
        from ._chapter import chapter

        return chapter(self, samples, budget=budget)

    def _table(self) -> list[str]:
        rows = [["row", "given", "suggested", "score", "wrong"]]
        for place, i in enumerate(self.indices[:_ROWS]):
            name = i if self.index is None else self.index[i]
            labels = self.given[i], self.suggested[i]
            numbers = f"{self.scores[i]:.3f}", f"{self.wrong[place]:.0%}"
            rows.append([short(name), *map(short, labels), *numbers])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in rows
        ]
