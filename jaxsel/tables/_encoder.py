"""Columns of a table as features that distances and models understand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._files.codec import check_format, decode, encode, read_json, write_json
from jaxsel._inputs.usual_mistakes import doubt

from ._columns import (
    Category,
    Column,
    Document,
    Number,
    feature_names,
    features,
    numbers_of,
    read_columns,
)
from ._frame import as_frame
from ._kinds import Typed, typed

if TYPE_CHECKING:
    import numpy.typing as npt

_FORMAT = "jaxsel.tables.encoder"
_UNUSUAL = 4  # standard errors by which the share of rare categories may differ
_MANY = 10  # rows that are not all empty by chance
_SOME = 0.05  # share of rows with categories that were not fitted, which is told


class TableEncoder:
    """Encode the columns of a table, whatever their kinds, as one array of numbers.

    - Numbers and booleans are centred and divided by their standard deviation; a gap
      gets the median, and a column more says where there was one.
    - Dates and durations count as days, and then as numbers.
    - Texts of which nearly all are numbers or dates count as such: "1,234.5", "45%",
      "$5", "2024-05-31", "31/5/2024". Signs of a gap ("?", "n/a") are gaps, and so are
      up to 5 % other texts. A warning says what was guessed.
    - Other texts, and categories, become one column of 0 and 1 for each category. A gap
      is a category of its own; categories beyond the `max_categories` most frequent
      share a column, and so do those that were not seen in `fit`, of which a warning
      tells where they are many. Whole numbers are categories of one name, 1 and 1.0.
    - Lists of numbers, such as embeddings, become a column for each place.

    So two rows that differ in a category are as far apart, on average, as two rows in a
    number: their squared distance there is 2. scikit-learn's `ColumnTransformer` is
    fitted, and its statistics are kept as plain numbers and texts, so that an encoder
    can be written as JSON. Costs O(n d), and a sort of each column.

    Args:
        max_categories: Maximum number of columns for a column of categories.

    Attributes:
        plan: Encoding of each column: "number", "number, 3 gaps", "date",
            "7 categories".

    Examples:
        >>> import pandas as pd
        >>> from jaxsel.tables import TableEncoder
        >>> train = pd.DataFrame({"age": [30, 50, None], "work": ["a", "b", "a"]})
        >>> encoder = TableEncoder().fit(train)
        >>> encoder.transform(train).shape
        (3, 4)
        >>> encoder.plan
        {'age': 'number, 1 gaps', 'work': '2 categories'}
    """

    def __repr__(self) -> str:
        state = f"{len(self.columns)} columns" if self._columns else "not fitted"
        return f"TableEncoder(max_categories={self.max_categories}, {state})"

    def __init__(self, *, max_categories: int = 20):
        if max_categories < 2:
            raise ValueError(f"max_categories must be at least 2, got {max_categories}")
        self.max_categories = max_categories
        self.plan: dict[str, str] = {}
        self._columns: tuple[Column, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that were fitted; none before."""
        return tuple(column.name for column in self._columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, such as "work=private"."""
        return feature_names(self._columns)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Categories with a feature of their own, of each column that has some."""
        return {
            column.name: tuple(c for c in column.categories if c is not None)
            for column in self._columns
            if isinstance(column, Category)
        }

    @property
    def number_columns(self) -> tuple[str, ...]:
        """Names of the columns of numbers and dates, in the order of `numbers`."""
        return tuple(c.name for c in self._columns if isinstance(c, Number))

    def fit(self, table: Any) -> TableEncoder:
        """Learn scales, medians and categories from a table, and return the encoder.

        Args:
            table: Of pandas, polars or pyarrow: features only, without labels or ids.

        Raises:
            TypeError: If it is no table, or columns hold neither numbers, dates nor
                texts.
            ValueError: If it has no rows or columns, a name stands twice, a number is
                infinite, lists differ in length, or columns of texts have too many
                different ones to be categories; all such columns are named.
            ImportError: If pandas or scikit-learn is missing.
        """
        self._fit(table)
        return self

    def fit_transform(self, table: Any) -> npt.NDArray[np.float64]:
        """Learn from a table, and return its features: `fit` and `transform` in one.

        Args:
            table: As for `fit`.

        Raises:
            TypeError: As `fit`.
            ValueError: As `fit`.
            ImportError: As `fit`.
        """
        frame = self._fit(table)
        return features(self._columns, frame)

    def _fit(self, table: Any) -> Any:
        """Learn from a table, and return its columns by kind."""
        try:
            from sklearn import pipeline
            from sklearn.compose import ColumnTransformer
            from sklearn.impute import MissingIndicator, SimpleImputer
            from sklearn.preprocessing import OneHotEncoder, StandardScaler
        except ImportError as error:
            raise ImportError(
                "jaxsel.tables needs scikit-learn: pip install 'jaxsel[data]'"
            ) from error
        frame: Any = as_frame("table", table)
        if not frame.size:
            raise ValueError(f"table must have rows and columns, got {frame.shape}")
        columns = typed(frame)
        frame = _joined(columns, frame.index)
        numbers = [c for c, column in columns.items() if column.kind != "category"]
        texts = [c for c, column in columns.items() if column.kind == "category"]
        fill = SimpleImputer(strategy="median", keep_empty_features=True)
        one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=self.max_categories,
            sparse_output=False,
        )
        gaps = MissingIndicator(error_on_new=False)
        learner = ColumnTransformer(
            [
                ("numbers", pipeline.make_pipeline(fill, StandardScaler()), numbers),
                ("gaps", gaps, numbers),
                ("categories", one_hot, texts),
            ]
        )
        learner.fit(frame)
        self._columns = _learned(learner.named_transformers_, columns, frame)
        self.plan = {c: _describe(columns[c].kind, frame[c]) for c in columns}
        return frame

    def transform(self, table: Any) -> npt.NDArray[np.float64]:
        """Return the features of a table, `[n, len(feature_names)]`.

        Args:
            table: With the columns of the table that was fitted, in any order.

        Raises:
            TypeError: If it is no table.
            ValueError: If it has other columns, or a column of numbers holds texts.
        """
        frame = self._typed(table)
        for column in self._columns:
            if isinstance(column, Category):
                _doubt_unseen(column, frame[column.name])
            if len(frame) >= _MANY and frame[column.name].isna().all():
                doubt(
                    f"column {column.name!r} is empty in all {len(frame)} rows: each "
                    "gets what stands for a gap in the table that was fitted"
                )
        return features(self._columns, frame)

    def unseen(self, table: Any) -> dict[str, tuple[float, list[str]]]:
        """Find the categories of a table that were not seen in `fit`.

        Args:
            table: As for `transform`.

        Returns:
            Of each column of categories that has some, the share of its rows, gaps
            aside, and the categories. Those that were too rare in `fit` to have a
            feature count as well.

        Raises:
            TypeError: As `transform`.
            ValueError: As `transform`.
        """
        frame, shares = self._typed(table), dict[str, tuple[float, list[str]]]()
        for column in self._columns:
            if isinstance(column, Category):
                rows = column.unseen(frame[column.name])
                if rows:
                    share = len(rows) / int(frame[column.name].notna().sum())
                    shares[column.name] = share, sorted(set(rows))
        return shares

    def _typed(self, table: Any) -> Any:
        """Return the columns of a table, converted to the kinds that were fitted."""
        self._check_fitted()
        frame: Any = as_frame("table", table)
        if sorted(frame.columns) != sorted(self.columns):
            raise ValueError(
                f"table must have the columns {', '.join(self.columns)}; got "
                f"{', '.join(frame.columns)}"
            )
        known = {
            column.name: (column.kind, getattr(column, "form", ""))
            for column in self._columns
        }
        return _joined(typed(frame, known), frame.index)

    def numbers(self, features: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the numbers that features stand for, `[n, number and date columns]`.

        Dates are days since 1970, and gaps NaN. It undoes `transform`, and refuses
        features that no table has.

        Args:
            features: Array of shape `[n, len(feature_names)]`.

        Raises:
            ValueError: If the shape is another one; if a feature of a category or gap
                is neither 0 nor 1, two categories of a column are met at once, or a gap
                has another number than the median. The message names row and feature.
        """
        self._check_fitted()
        x = np.asarray(features, np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.feature_names):
            raise ValueError(
                f"features must have shape [n, {len(self.feature_names)}], got "
                f"{x.shape}"
            )
        return numbers_of(self._columns, x)

    def to_json(self) -> str:
        """Return the fitted encoder as JSON, for `from_json`.

        It tells the medians, means, standard deviations and categories of the table
        that was fitted, and the counts in `plan`.
        """
        self._check_fitted()
        about = Document(
            max_categories=self.max_categories,
            columns=[encode(column) for column in self._columns],
            plan=self.plan,
        )
        return write_json({"format": _FORMAT, "version": 1, **encode(about)})

    @classmethod
    def from_json(cls, text: str) -> TableEncoder:
        """Return the encoder that `to_json` wrote.

        Raises:
            ValueError: If it is something else: all of it is checked, not trusted.
        """
        document = read_json(text, "the encoder")
        check_format(document, _FORMAT, 1)
        state = decode(Document, document)
        columns = read_columns(state.columns)
        if set(state.plan) != {column.name for column in columns}:
            raise ValueError("plan must say of each column what became of it")
        encoder = cls(max_categories=state.max_categories)
        encoder._columns, encoder.plan = columns, state.plan
        return encoder

    def _check_fitted(self) -> None:
        if not self.columns:
            raise ValueError("the encoder must be fitted first: call fit(train)")


def _joined(columns: Mapping[str, Typed], index: Any) -> Any:
    import pandas as pd

    series = {
        name: pd.Series(column.values, index, column.values.dtype)
        for name, column in columns.items()
    }
    return pd.DataFrame(series)


def _doubt_unseen(column: Category, values: Any) -> None:
    """Warn if more rows than expected have a category without a feature."""
    rows = column.unseen(values)
    n = int(values.notna().sum())
    if not n:
        return
    share, rare = len(rows) / n, column.rare
    allowed = max(_SOME, _UNUSUAL * (rare * (1 - rare) / n) ** 0.5)
    if share > rare + allowed and len(rows) > 1:
        names = ", ".join(map(repr, sorted(set(rows))[:3]))
        known = ", ".join(repr(c) for c in column.categories[:3] if c is not None)
        doubt(
            f"column {column.name!r} has categories in {share:.0%} of {n} rows that "
            f"the table that was fitted lacks, such as {names}; it has {known}: write "
            "them alike"
        )


def _describe(kind: str, column: Any) -> str:
    if kind == "category":
        return f"{column.nunique(dropna=False)} categories"
    gaps = int(column.isna().sum())
    return f"{kind}, {gaps} gaps" if gaps else kind


def _learned(
    fitted: Any, columns: Mapping[str, Typed], frame: Any
) -> tuple[Column, ...]:
    """Return the statistics of columns that a fitted `ColumnTransformer` holds."""
    numbers = [c for c, column in columns.items() if column.kind != "category"]
    learnt: dict[str, Column] = {}
    if numbers:
        fill, scaler = (step for _, step in fitted["numbers"].steps)
        missing = {int(i) for i in fitted["gaps"].features_}
        for i, name in enumerate(numbers):
            learnt[name] = Number(
                name=name,
                kind=columns[name].kind,
                median=float(fill.statistics_[i]),
                mean=float(scaler.mean_[i]),
                scale=float(scaler.scale_[i]),
                gaps=i in missing,
                form=columns[name].form,
            )
    if len(numbers) < len(columns):
        one_hot = fitted["categories"]
        infrequent: list[np.ndarray | None] = one_hot.infrequent_categories_
        texts = [c for c in columns if c not in learnt]
        for name, known, few in zip(
            texts, one_hot.categories_, infrequent, strict=True
        ):
            others: set[str | None] = set() if few is None else set(few.tolist())
            learnt[name] = Category(
                name=name,
                categories=tuple(c for c in known.tolist() if c not in others),
                others=bool(others),
                rare=float(np.mean([c in others for c in frame[name].tolist()])),
            )
    return tuple(learnt[name] for name in columns)
