"""The result of a search for near-duplicates: groups, representatives, leaks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.show import compared, show_first
from jaxsel._results.files import load, save

from ._groups import Groups

if TYPE_CHECKING:
    import pandas as pd

    from jaxsel.report import Chapter


@compared
@dataclasses.dataclass(frozen=True, kw_only=True)
class NearDuplicates(Groups):
    """Groups of rows that near pairs connect, of one table or between two.

    A pair is two rows that are near each other: of one table, or one row of each table
    where there are two. A group holds all rows that pairs connect, so that two rows of
    a group may be farther apart than the threshold if others lie between them.

    Attributes:
        group: Number of the group of each row, `[n]` int32, in the order of their first
            rows; -1 for rows without a near-duplicate.
        partner: The first row that is a near-duplicate of each row, `[n]` int64: of the
            other table if there are two; -1 for none.
        closeness: Cosine or distance of each row and its partner, `[n]` float64; NaN
            for none. Equal rows have 1 or 0.
        group_val: As `group` for the second table, `[m]`; None without one.
        partner_val: As `partner` for the second table, `[m]`: rows of the first.
        closeness_val: As `closeness` for the second table, `[m]`.
        n_pairs: Number of pairs.
        metric: "cosine" or "l2".
        threshold: Least cosine, or largest distance, of a pair.

    Examples:
        >>> import numpy as np
        >>> from jaxsel import retrieve
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.99, 0.1], [0.1, 0.9], [-1.0, 0.0]])
        >>> result = retrieve.duplicates(x, threshold=0.9)
        >>> result
        NearDuplicates(2 groups of 4 rows, 2 pairs, cosine >= 0.9, 3 of 5 rows kept)
        >>> [rows.tolist() for rows in result.groups]
        [[0, 2], [1, 3]]
    """

    def __repr__(self) -> str:
        sign = ">=" if self.metric == "cosine" else "<="
        text = (
            f"NearDuplicates({len(self)} groups of {len(self._members()[0])} rows, "
            f"{self.n_pairs} pairs, {self.metric} {sign} {self.threshold:g}, "
            f"{len(self.keep)} of {len(self.group)} rows kept"
        )
        if self.group_val is not None:
            text += f", {len(self.leaked)} leaked {show_first(self.leaked)}"
        return f"{text})"

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame of the rows that have near-duplicates, group by group.

        Its columns are group, table ("x" or "x_val"), row, partner and closeness.
        """
        import pandas as pd

        columns: dict[str, list[Any]] = {
            name: [] for name in ("group", "table", "row", "partner", "closeness")
        }
        for table, parts in (
            ("x", (self.group, self.partner, self.closeness)),
            ("x_val", (self.group_val, self.partner_val, self.closeness_val)),
        ):
            if (group := parts[0]) is None:
                continue
            rows = np.flatnonzero(group >= 0)
            columns["table"] += [table] * len(rows)
            columns["row"] += rows.tolist()
            for name, part in zip(
                ("group", "partner", "closeness"), parts, strict=True
            ):
                columns[name] += np.asarray(part)[rows].tolist()
        frame = pd.DataFrame(columns)
        return frame.sort_values(["group", "table", "row"], ignore_index=True)

    def chapter(
        self,
        columns: Mapping[str, npt.ArrayLike] | pd.DataFrame | None = None,
        columns_val: Mapping[str, npt.ArrayLike] | pd.DataFrame | None = None,
        *,
        images: npt.ArrayLike | None = None,
        images_val: npt.ArrayLike | None = None,
        budget: int = 20,
    ) -> Chapter:
        """Return the groups of most rows as a chapter for a `Report`.

        Args:
            columns: Columns of the first table to show, `[n]` each: ids, texts.
            columns_val: The same of the second table.
            images: Pictures of the first table, `[n, height, width]`.
            images_val: The same of the second table.
            budget: Number of groups to show.

        Raises:
            ValueError: If a column or the pictures have another length than the table.
        """
        from ._duplicates_chapter import Shown, chapter

        shown = [
            Shown(
                {}
                if part is None
                else {str(name): np.asarray(column) for name, column in part.items()},
                None if pictures is None else np.asarray(pictures),
            )
            for part, pictures in ((columns, images), (columns_val, images_val))
        ]
        return chapter(self, shown, budget=budget)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to one `.npz` file, without pickle, and return its path."""
        return save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NearDuplicates:
        """Read groups from a file that `save` wrote.

        Raises:
            ValueError: If the file holds something else.
        """
        loaded = load(cls, path)
        arrays = {
            field.name: np.asarray(value)
            for field in dataclasses.fields(cls)
            if not field.metadata.get("static")
            and (value := getattr(loaded, field.name)) is not None
        }
        # JAX reads whole numbers as int32, which rows of a table fit.
        for name in ("partner", "partner_val"):
            if name in arrays:
                arrays[name] = arrays[name].astype(np.int64)
        return dataclasses.replace(loaded, **arrays)
