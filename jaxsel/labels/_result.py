"""The result of a search for wrong labels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.show import SHOWN, show_pairs

from ._suspects import Suspects
from ._words import short

if TYPE_CHECKING:
    import matplotlib.axes
    import numpy.typing as npt
    import pandas as pd

    from jaxsel.report import Chapter

_ROWS, _PAIRS = 10, 5  # that the table for people has
_REPR = 300  # characters


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelErrors(Suspects):
    """Labels that are suspected to be wrong, the most suspicious first.

    `print` shows them as a table.

    Attributes:
        indices: `[k]`: rows whose labels are suspected, the most suspicious first.
        scores: `[n]`: quality of every label, from 0 (worst) to 1.
        given: `[n]`: the labels as given.
        suggested: `[n]`: the likeliest class of every sample.
        pred_probs: `[n, K]`: probabilities by models that have not seen the sample.
        members: Probabilities by each of the models that `pred_probs` combine,
            `[n, K]`; None if they come from one model.
        joint: Counts of given and true labels, noise and priors by confident learning,
            which counts samples between overlapping classes as wrong.
        duplicates: Near-duplicates with different labels; None if not searched for.
        method: The method, with every parameter that matters.
        index: Labels of the rows where samples came as a DataFrame with an index of its
            own, else None.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> rng = np.random.default_rng(0)
        >>> y = np.repeat(["cat", "dog"], 30)
        >>> x = rng.normal(size=(60, 2)) + 5.0 * (y == "dog")[:, None]
        >>> y[[3, 40]] = "dog", "cat"  # two wrong labels
        >>> errors = jaxsel.find_label_errors(x, y)
        >>> print(errors.given[40], errors.suggested[40])
        cat dog
        >>> print(errors.scores.shape)
        (60,)
    """

    def __repr__(self) -> str:
        worst = show_pairs(self.indices[:SHOWN], self.scores[self.indices[:SHOWN]])
        text = (
            f"LabelErrors({len(self)} of {len(self.given)} labels suspected, "
            f"worst={worst}, {self.method or 'unnamed'})"
        )
        return text if len(text) <= _REPR else f"{text[: _REPR - 4]}...)"

    def __str__(self) -> str:
        lines = [*self.summary]
        if len(self):
            lines += ["", *self._table()]
            if len(self) > _ROWS:
                lines.append(f"... and {len(self) - _ROWS} more")
        if confused := [pair for pair in self.confused if pair.n >= 1][:_PAIRS]:
            lines += ["", "classes that are confused:"]
            lines += [
                f"  about {pair.n:.0f} labelled {short(pair.given)} are "
                f"{short(pair.true)} ({pair.share:.1%})"
                for pair in confused
            ]
        if self.duplicates is not None and len(self.duplicates):
            i, j = self.duplicates.pairs[0]
            lines += [
                "",
                f"{len(self.duplicates)} pairs of near-duplicates have different "
                f"labels, as rows {self._name(i)} ({short(self.given[i])}) and "
                f"{self._name(j)} ({short(self.given[j])})",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from jaxsel._results.html import table_html

        head, *rows = self._cells(SHOWN * 2)
        return table_html(self.summary, head, rows)

    def to_pandas(self, *, whole: bool = False) -> pd.DataFrame:
        """Return one row a suspected label, the most suspicious first.

        Args:
            whole: Whether to return all labels, in their own order, with a column that
                says which are suspected.

        Returns:
            Columns given, suggested, score, and wrong (its probability) or, with
            `whole`, suspected. The index has row numbers, or the labels of the
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

        return plot_errors(self.scores, self.mask, self.confused, ax=ax)

    def chapter(
        self,
        samples: npt.ArrayLike | None = None,
        *,
        columns: Mapping[str, npt.ArrayLike] | pd.DataFrame | None = None,
        budget: int = 24,
    ) -> Chapter:
        """Return a chapter for a `jaxsel.report.Report`.

        Args:
            samples: Images `[n, h, w]` or `[n, h, w, c]`, which are drawn beside sure
                ones of the given and the suggested class, or texts `[n]`, which are
                listed.
            columns: Columns to show of each suspected sample, by name, `[n]` each, or
                a data frame: an id, or the columns of the table by which a reader can
                judge.
            budget: Number of samples to show, the most suspicious first.
        """
        from ._chapter import chapter

        return chapter(self, samples, columns, budget=budget)

    def _name(self, row: Any) -> str:
        return short(row if self.index is None else self.index[row])

    def _cells(self, budget: int) -> list[list[str]]:
        """Return the head of the table and its first rows."""
        rows = [["row", "given", "suggested", "score", "wrong"]]
        for place, i in enumerate(self.indices[:budget]):
            labels = short(self.given[i]), short(self.suggested[i])
            numbers = f"{self.scores[i]:.3f}", f"{self.wrong[place]:.0%}"
            rows.append([self._name(i), *labels, *numbers])
        return rows

    def _table(self) -> list[str]:
        rows = self._cells(_ROWS)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return [
            "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True))
            for row in rows
        ]
