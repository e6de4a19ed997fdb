"""Groups of near-duplicates, and the rows to keep of them."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsel.neighbors import Metric


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Groups:
    """Fields of `NearDuplicates`, which documents them, and rows by group."""

    group: np.ndarray
    partner: np.ndarray
    closeness: np.ndarray
    group_val: np.ndarray | None = None
    partner_val: np.ndarray | None = None
    closeness_val: np.ndarray | None = None
    n_pairs: int = dataclasses.field(metadata={"static": True})
    metric: Metric = dataclasses.field(metadata={"static": True})
    threshold: float = dataclasses.field(metadata={"static": True})

    def __len__(self) -> int:
        """Return the number of groups."""
        return int(self.group.max(initial=-1)) + 1

    @property
    def groups(self) -> list[np.ndarray]:
        """Rows of the first table in each group, in order."""
        rows, numbers = self._members()
        return np.split(rows, np.flatnonzero(np.diff(numbers)) + 1) if len(rows) else []

    @property
    def representatives(self) -> np.ndarray:
        """The first row of each group, `[groups]`."""
        rows, numbers = self._members()
        return rows[np.diff(numbers, prepend=-1) != 0]

    @property
    def keep(self) -> np.ndarray:
        """Rows of the first table to keep, in order.

        Of one table: rows in no group, and representatives. Of two: rows without a
        near-duplicate in the second table, so that nothing leaks.
        """
        alone = self.group < 0
        if self.group_val is None:
            alone[self.representatives] = True
        return np.flatnonzero(alone)

    @property
    def leaked(self) -> np.ndarray:
        """Rows of the second table that have a near-duplicate in the first.

        Raises:
            ValueError: If there was no second table.
        """
        if self.group_val is None:
            raise ValueError("leaked needs a second table: duplicates(x, x_val, ...)")
        return np.flatnonzero(self.group_val >= 0)

    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows in groups, group by group, and their groups."""
        rows = np.flatnonzero(self.group >= 0)
        order = np.argsort(self.group[rows], kind="stable")
        return rows[order], self.group[rows][order]
