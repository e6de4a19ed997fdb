"""Columns of a table as features that distances and models understand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from jaxsel._codec import check_format, decode, encode, read_json, write_json

from ._columns import (
    Category,
    Column,
    Document,
    Number,
    feature_names,
    features,
    read_columns,
)
from ._frame import as_frame

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

_FORMAT = "jaxsel.tables.encoder"
_DISTINCT = 0.5  # of the rows: a column of more different texts has no categories


class TableEncoder:
    """Encode the columns of a table, whatever their kinds, as one array of numbers.

    - Numbers and booleans are centred and divided by their standard deviation; a gap
      gets the median, and a column more says where there was one.
    - Dates, also those written as 2024-05-31, count as days, and then as numbers.
    - Texts and categories become one column of 0 and 1 for each category. A gap is a
      category of its own; categories beyond the `max_categories` most frequent share a
      column, and so do those that were not seen in `fit`.

    So two rows that differ in a category are as far apart, on average, as two rows in a
    number: their squared distance there is 2. What there is to learn, scikit-learn's
    `ColumnTransformer` learns; it is kept as plain numbers and texts, so that an
    encoder can be written as JSON. Costs O(n d), besides a sort of each column.

    Args:
        max_categories: Columns that a column of categories becomes at most.

    Attributes:
        plan: What became of each column: "number", "number, 3 gaps", "date",
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

    def fit(self, table: Any) -> TableEncoder:
        """Learn scales, medians and categories from a table, and return the encoder.

        Args:
            table: Of pandas, polars or pyarrow: features only, without labels or ids.

        Raises:
            TypeError: If it is no table, or a column holds neither numbers, dates nor
                texts.
            ValueError: If it has no rows or columns, a name stands twice, or a column
                of texts has too many different ones to be categories.
            ImportError: If pandas or scikit-learn is missing.
        """
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
        kinds = {c: _kind(c, frame[c]) for c in frame.columns}
        frame = _typed(frame, kinds)
        numbers = [c for c, kind in kinds.items() if kind != "category"]
        texts = [c for c, kind in kinds.items() if kind == "category"]
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
        self._columns = _learned(learner.named_transformers_, kinds)
        self.plan = {c: _describe(kind, frame[c]) for c, kind in kinds.items()}
        return self

    def transform(self, table: Any) -> npt.NDArray[np.float64]:
        """Return the features of a table, `[n, len(feature_names)]`.

        Args:
            table: With the columns of the table that was fitted, in any order.

        Raises:
            TypeError: If it is no table.
            ValueError: If it has other columns, or a column of numbers holds texts.
        """
        self._check_fitted()
        frame: Any = as_frame("table", table)
        if sorted(frame.columns) != sorted(self.columns):
            raise ValueError(
                f"table must have the columns {', '.join(self.columns)}; got "
                f"{', '.join(frame.columns)}"
            )
        kinds = {column.name: column.kind for column in self._columns}
        return features(self._columns, _typed(frame, kinds))

    def to_json(self) -> str:
        """Return what was learnt as JSON, for `from_json`.

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
            ValueError: If it is something else: what it holds is checked, not trusted.
        """
        document = read_json(text, "the encoder")
        check_format(document, _FORMAT, 1)
        found = decode(Document, document)
        columns = read_columns(found.columns)
        if set(found.plan) != {column.name for column in columns}:
            raise ValueError("plan must say of each column what became of it")
        encoder = cls(max_categories=found.max_categories)
        encoder._columns, encoder.plan = columns, found.plan
        return encoder

    def _check_fitted(self) -> None:
        if not self.columns:
            raise ValueError("the encoder must be fitted first: call fit(train)")


def _typed(frame: Any, kinds: dict[str, str]) -> Any:
    """Return columns as floats with NaN, or as objects with None."""
    import pandas as pd

    typed: dict[str, Any] = {}
    for name, kind in kinds.items():
        column = frame[name]
        try:
            if kind == "category":
                texts = column.astype(object).map(str).astype(object)
                typed[name] = texts.where(column.notna(), None)
            elif kind == "date":
                days = _dates(column) - pd.Timestamp("1970-01-01")
                typed[name] = days / pd.Timedelta(days=1)
            else:
                typed[name] = column.astype("Float64").to_numpy(
                    np.float64, na_value=np.nan
                )
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"column {name!r} must hold {kind}s, as in the table that was "
                f"fitted: {error}"
            ) from error
        if kind != "category" and np.isinf(np.asarray(typed[name])).any():
            raise ValueError(f"column {name!r} must not hold infinity")
    return pd.DataFrame(typed, index=frame.index)


def _describe(kind: str, column: Any) -> str:
    if kind == "category":
        return f"{column.nunique(dropna=False)} categories"
    gaps = int(column.isna().sum())
    return f"{kind}, {gaps} gaps" if gaps else kind


def _learned(fitted: Any, kinds: dict[str, str]) -> tuple[Column, ...]:
    """Return what the parts of a `ColumnTransformer` have learnt of columns by kind."""
    numbers = [c for c, kind in kinds.items() if kind != "category"]
    found: dict[str, Column] = {}
    if numbers:
        fill, scaler = (step for _, step in fitted["numbers"].steps)
        missing = {int(i) for i in fitted["gaps"].features_}
        for i, name in enumerate(numbers):
            found[name] = Number(
                name=name,
                kind=kinds[name],
                median=float(fill.statistics_[i]),
                mean=float(scaler.mean_[i]),
                scale=float(scaler.scale_[i]),
                gaps=i in missing,
            )
    if len(numbers) < len(kinds):
        one_hot = fitted["categories"]
        rare: list[np.ndarray | None] = one_hot.infrequent_categories_
        texts = [c for c in kinds if c not in found]
        for name, known, few in zip(texts, one_hot.categories_, rare, strict=True):
            others: list[str | None] = [] if few is None else few.tolist()
            own = tuple(c for c in known.tolist() if c not in others)
            found[name] = Category(name=name, categories=own, others=bool(others))
    return tuple(found[name] for name in kinds)


def _kind(name: str, column: Any) -> str:
    """Return "number", "date" or "category"."""
    import pandas as pd

    types = pd.api.types
    if types.is_datetime64_any_dtype(column):
        return "date"
    if types.is_bool_dtype(column) or (
        types.is_numeric_dtype(column) and not types.is_complex_dtype(column)
    ):
        return "number"
    found = column.dropna()
    if not len(found):
        return "number"  # all gaps: nothing to learn
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if not all(isinstance(value, (str, bool, int, float)) for value in found):
        raise TypeError(
            f"column {name!r} must hold numbers, dates or texts, got "
            f"{type(found.iloc[0]).__name__}: leave it out, or convert it"
        )
    if all(isinstance(value, bool) for value in found):
        return "number"
    if "-" in str(found.iloc[0])[1:] and _dates(found).notna().all():
        return "date"
    distinct = found.nunique()
    if distinct > 20 and distinct > _DISTINCT * len(found):
        raise ValueError(
            f"column {name!r} has {distinct} different texts in {len(column)} rows, "
            "which are no categories: leave it out, or encode the texts as embeddings"
        )
    return "category"


def _dates(column: pd.Series) -> pd.Series:
    """Return dates without zone, NaT where there is none."""
    import pandas as pd

    found = pd.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
    return cast(pd.Series, found.dt.tz_localize(None))
