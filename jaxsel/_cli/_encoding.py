"""`--encode` and `--split`: columns of TRAIN as features, and rows of it as VAL."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.checks import show_labels
from jaxsel._inputs.usual_mistakes import doubt, no_doubts

from ._checks import leaking_columns
from ._tables import check_columns, numbers

if TYPE_CHECKING:
    import pandas

    from jaxsel.data import Dataset
    from jaxsel.tables import TableEncoder


_FEW = 10  # rows from which on categories are not all new by chance


@dataclasses.dataclass(frozen=True)
class Split:
    """Samples of TRAIN that are set aside as VAL.

    Attributes:
        fraction: Share of the samples that goes to VAL.
        seed: Seed of the choice.
        classes: Whether labels are classes, of which each gives the same share.
    """

    fraction: float
    seed: int
    classes: bool

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(
                "--split must be a fraction between 0 and 1, such as 0.2, got "
                f"{self.fraction:g}"
            )

    def rows(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of TRAIN and of VAL, each in order."""
        try:
            from sklearn.model_selection import train_test_split
        except ImportError as error:
            raise ImportError(
                "--split needs scikit-learn: pip install 'jaxsel[data]'"
            ) from error
        labels = y if y.ndim == 1 else y.argmax(axis=1)
        try:
            train, val = train_test_split(
                np.arange(len(y)),
                test_size=self.fraction,
                random_state=self.seed,
                stratify=labels if self.classes else None,
            )
        except ValueError as error:
            classes, counts = np.unique(labels, return_counts=True)
            lone = classes[counts == 1]
            if labels.dtype.kind in "iuf" and len(classes) > len(labels) / 5:
                reason = (
                    f"the labels are {len(classes)} different numbers: if they are to "
                    "be predicted, take jaxsel value --method knn_regression_shapley, "
                    "or --learner ridge --score r2"
                )
            elif self.classes and len(lone):
                reason = (
                    f"of {show_labels(lone.tolist())} there is one sample: leave it "
                    "out, or give it another label"
                )
            else:
                reason = str(error).partition(". ")[0]  # the rest lists all classes
            raise ValueError(
                f"--split {self.fraction:g} must leave some of each class on both "
                f"sides of the {len(y)} samples: {reason}"
            ) from error
        return np.sort(train), np.sort(val)

    def apply(self, data: Dataset) -> tuple[Dataset, Dataset, dict[str, Any]]:
        """Split a data set into TRAIN and VAL; return both and the manifest's entry."""
        train, val = self.rows(data.y)
        rows = data.extras.get("row", np.arange(len(data)))
        about = {"seed": self.seed, "stratified": self.classes}
        about |= {"val_rows": rows[val].tolist()}
        return data.take(train), data.take(val), about


class Encoding:
    """Encodes the columns of tables as features, as fitted on the first, TRAIN.

    A table of numbers without gaps stays as it is; others are encoded by
    `jaxsel.tables.TableEncoder`.

    Attributes:
        columns: Columns of TRAIN that are features; None before it was read.
        encoder: Their encoder, fitted on TRAIN; None where they stay as they are.
        first: Path of TRAIN.
        checks: Warnings given while a table was read, for the manifest.
    """

    def __init__(
        self,
        mode: str = "auto",
        split: Split | None = None,
        *,
        remedy: str = "--drop or --id-column",
        gaps: bool = False,
    ):
        """Set the options; fitting waits for the first table.

        Args:
            mode: "auto" or "none".
            split: Sets VAL's rows apart, which the encoder is not fitted on.
            remedy: Options by which users leave a column out.
            gaps: Whether numbers may have gaps without being encoded.
        """
        self.mode, self.split, self.remedy, self.gaps = mode, split, remedy, gaps
        self.columns: tuple[str, ...] | None = None
        self.encoder: TableEncoder | None = None
        self.first = ""
        self.checks: list[str] = []

    def __call__(
        self, path: str, frame: pandas.DataFrame, y: np.ndarray | None
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return features `[n, d]` and their names."""
        first, allowed = self.columns is None, self.gaps
        if first:
            self.columns, self.first = tuple(frame.columns), path
            check_columns(path, frame, self.remedy)
            for message in leaking_columns(path, frame, y, self.remedy):
                doubt(message)
        rows = None
        if first and self.split is not None and y is not None:
            rows, _ = self.split.rows(y)
        try:
            if (
                self.mode == "auto"
                and first
                and frame.size
                and not _plain(frame, allowed)
            ):
                from jaxsel.tables import TableEncoder

                self.encoder = TableEncoder()
                self.encoder.fit(frame if rows is None else frame.iloc[rows])
            if self.encoder is not None and not first:
                check_categories(self.encoder, frame, self.first)
            if self.encoder is not None:
                with no_doubts() if first else contextlib.nullcontext():
                    x = self.encoder.transform(frame)
                return x, self.encoder.feature_names
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{path}: {error} (leave a column out with {self.remedy})"
            ) from error
        gaps = frame.columns[frame.isna().any().to_numpy(bool)]
        if len(gaps) and not allowed:
            row = frame.index[np.flatnonzero(frame[gaps[0]].isna())[0]]
            remedy = (
                "do without --encode none, which takes numbers as they are"
                if self.mode == "none"
                else "TRAIN has none to learn from: fill it in, or leave the row out"
            )
            raise ValueError(
                f"{path} has a gap in column {gaps[0]!r}, row {row}: {remedy}"
            )
        return numbers(path, frame), tuple(frame.columns)

    def describe(self) -> dict[str, Any]:
        """Return the manifest's entry: the mode, and how each column is encoded."""
        if self.encoder is None:
            return {"encode": self.mode, "encoded": None}
        return {"encode": self.mode, "encoded": self.encoder.plan}


class Agreed:
    """Turns columns of tables into the features that a request's encoder makes."""

    def __init__(self, encoder: TableEncoder):
        self.encoder = encoder

    def __call__(
        self, path: str, frame: pandas.DataFrame, y: np.ndarray | None
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return features `[n, d]` and their names."""
        try:
            check_categories(self.encoder, frame, "the request")
            return self.encoder.transform(frame), self.encoder.feature_names
        except ValueError as error:
            raise ValueError(
                f"{path}: {error} (leave columns out with --drop or --columns)"
            ) from error


def check_categories(encoder: TableEncoder, frame: Any, fitted: str) -> None:
    """Refuse a column of categories that has none of those that were fitted.

    Args:
        encoder: The fitted encoder.
        frame: Another table.
        fitted: Name, in errors, of the table that it was fitted on.

    Raises:
        ValueError: If there is such a column.
    """
    for name, (share, unseen) in encoder.unseen(frame).items():
        known = encoder.categories[name]
        if share == 1 and known and len(frame) >= _FEW:
            raise ValueError(
                f"none of the values of column {name!r} ({show_labels(unseen)}) is in "
                f"{fitted} ({show_labels(known)}): write them alike"
            )


def _plain(frame: pandas.DataFrame, gaps: bool) -> bool:
    """Return whether all columns are numbers, without gaps unless they are allowed."""
    import pandas as pd

    numeric = all(pd.api.types.is_numeric_dtype(frame[c]) for c in frame)
    return numeric and (gaps or not frame.isna().to_numpy().any())
