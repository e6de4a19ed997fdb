"""Detection of samples pieced together, mixed or scaled from shown ones.

Each rule is measured on the trainer's own samples first: where a tenth of them would
break it, as in tables of few values, it is not applied.
"""

from __future__ import annotations

import numpy as np

_NATURAL = 0.1  # share of the trainer's samples on lines that disables the rule
_RARE = 0.05  # of the trainer's own numbers in a column may equal a shown one
_PIECES = 3  # columns of such numbers at least, for a rule on them
_PAIRS_OF = 128  # shown samples, nearest first, of which pairs are tried
_LINE = 1e-6  # of the distance of two samples: as near, one lies on their line
_AIM = 1e-3  # of a cosine: ends in nearly one direction, of which more is computed
_OFF_MODE = 20  # numbers that are not the most frequent one, for a rule on a column
_ROUNDING = 1e-6  # of a whole number, which arithmetic in float32 may move it by


class Making:
    """Rules to recognise samples that are made of shown samples.

    Args:
        mine: The trainer's own samples, `[n, d]`, numbers with NaN for gaps.
        shown: The samples that it shows, `[m, d]`.
        table: Whether columns are of different kinds, and have rules of their own.
        probes: Rows of `mine` on which lines are tried.
    """

    def __init__(
        self, mine: np.ndarray, shown: np.ndarray, table: bool, probes: np.ndarray
    ) -> None:
        self.shown = shown
        self.whole = np.zeros(0, np.int64)
        self.rare = np.zeros(0, np.int64)
        if table:
            columns = range(mine.shape[1])
            whole = [j for j in columns if _is_whole(mine[:, j])]
            self.whole = np.array(whole, np.int64)
            if len(shown):
                share = [np.isin(mine[:, j], shown[:, j]).mean() for j in columns]
                self.rare = np.flatnonzero(np.array(share) <= _RARE)
        self.lines = shown.shape[1] > 2 and len(shown) > 0
        if self.lines:
            self.lines = np.mean(self._on_a_line(mine[probes])) < _NATURAL

    def fractions(self, rows: np.ndarray) -> np.ndarray:
        """Return where a column of whole numbers has another one, `[n, d]` bool."""
        wrong = np.zeros(rows.shape, bool)
        numbers = rows[:, self.whole]
        off = np.abs(numbers - np.round(numbers))
        wrong[:, self.whole] = off > _ROUNDING * np.maximum(1, np.abs(numbers))
        return wrong

    def made(self, rows: np.ndarray) -> np.ndarray:
        """Return which samples are pieced together, mixed or scaled, `[n]` bool."""
        flagged = np.zeros(len(rows), bool)
        if len(self.rare) >= _PIECES:
            equal = [np.isin(rows[:, j], self.shown[:, j]) for j in self.rare]
            flagged |= np.mean(equal, axis=0) >= 0.5
        if self.lines:
            flagged |= self._on_a_line(rows)
        return flagged

    def _on_a_line(self, rows: np.ndarray) -> np.ndarray:
        """Return which samples lie on a line through two shown ones, or one and 0."""
        ends = np.unique(np.nan_to_num(np.r_[self.shown, 0 * self.shown[:1]]), axis=0)
        rows = np.nan_to_num(rows)
        scale = np.maximum(ends.std(axis=0), np.finfo(np.float64).tiny)
        scale = np.where(ends.std(axis=0) > 0, scale, 1)
        ends, rows = ends / scale, rows / scale
        on_line = np.zeros(len(rows), bool)
        for i, row in enumerate(rows):
            offsets = ends - row
            lengths = np.linalg.norm(offsets, axis=1)
            nearest = np.argsort(lengths, kind="stable")[:_PAIRS_OF]
            nearest = nearest[lengths[nearest] > 0]
            units = offsets[nearest] / lengths[nearest, None]
            # On a line with two ends, a sample sees them in one direction, or opposite.
            # 1 - cos² loses half of the digits: measure the rejection itself.
            cosines = np.triu(units @ units.T, 1)
            a, b = np.nonzero(np.abs(cosines) > 1 - _AIM)
            rejections = units[a] - cosines[a, b][:, None] * units[b]
            sines, far = np.linalg.norm(rejections, axis=1), lengths[nearest]
            apart = np.linalg.norm(ends[nearest[a]] - ends[nearest[b]], axis=1)
            # The area of the triangle, in two ways: a sample far away sees all in line.
            on_line[i] = bool(np.any(sines * far[a] * far[b] <= _LINE * apart**2))
        return on_line


def _is_whole(column: np.ndarray) -> bool:
    """Return whether a column has whole numbers only, and enough that differ."""
    known = column[~np.isnan(column)]
    if not len(known) or (known != np.round(known)).any():
        return False
    counts = np.unique(known, return_counts=True)[1]
    return bool(len(known) - counts.max() >= _OFF_MODE)
