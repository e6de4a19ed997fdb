"""A table to search for wrong labels: checked samples, folds and neighbours."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxsel._inputs.columns import on_one_scale
from jaxsel._inputs.frames import foreign_columns, gapped_columns
from jaxsel._inputs.usual_mistakes import doubt, doubt_columns
from jaxsel.neighbors import Metric
from jaxsel.tables import TableEncoder

from ._folds import as_float32, check_samples, deal
from ._neighbours import Near, affordable_neighbours


class TableOptions(NamedTuple):
    """Folds and neighbours of a table.

    Attributes:
        folds: Number of folds.
        key: Shuffles samples before they are dealt out; None takes turns.
        k: Neighbours of each sample; None searches none.
        metric: Their distance; None chooses it by the likelihood of the labels.
        progress: Whether to show a bar.
    """

    folds: int
    key: jax.Array | None
    k: int | None
    metric: Metric | None
    progress: bool


class Table(NamedTuple):
    """Samples with their labels, folds and neighbours.

    Attributes:
        samples: As passed, `[n, ...]` float32.
        rows: On one scale, `[n, ...]` float32.
        codes: Labels as numbers, `[n]`.
        classes: Their classes, `[K]`.
        folds: Number of folds.
        fold: The fold of each sample, `[n]`.
        near: Each sample's neighbours; None if not searched, or too many samples.
        metric: Distance of neighbours, searched or not.
    """

    samples: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    classes: np.ndarray
    folds: int
    fold: np.ndarray
    near: Near | None
    metric: Metric

    @classmethod
    def of(
        cls, x: Any, codes: np.ndarray, classes: np.ndarray, options: TableOptions
    ) -> Table:
        """Check and scale samples, deal out folds, and search neighbours."""
        x = _encoded(x)
        array = check_samples(x, codes, classes)
        samples = as_float32(array)
        fold = deal(codes, options.folds, options.key)
        doubt_columns("x", samples, x, distances=False)
        # Not of `samples`: float64 has the digits of columns around 1e9.
        rows = on_one_scale(np.asarray(array))
        k, metric, progress = options.k, options.metric, options.progress
        near = (
            None
            if k is None
            else affordable_neighbours(
                rows, codes, k=k, metric=metric, progress=progress
            )
        )
        metric = (metric or "l2") if near is None else near.metric
        return cls(samples, rows, codes, classes, options.folds, fold, near, metric)


def _encoded(x: Any) -> Any:
    """Encode a data frame of more than numbers; return anything else as it is."""
    if foreign := foreign_columns(x):
        doubt(
            f"x has columns that are no numbers, {foreign}: they are encoded as "
            "jaxsel.tables.TableEncoder does"
        )
    elif gapped := gapped_columns(x):
        doubt(
            f"x has gaps, as in column {gapped[0]!r}: they are filled and marked as "
            "jaxsel.tables.TableEncoder does"
        )
    else:
        return x
    return TableEncoder().fit_transform(x)
