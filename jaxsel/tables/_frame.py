"""Tables of any library as pandas data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxsel._inputs.frames import is_index, spread_lists

if TYPE_CHECKING:
    import pandas


def as_frame(name: str, table: Any) -> pandas.DataFrame:
    """Return a table of pandas, polars or pyarrow as a data frame of pandas.

    Raises:
        TypeError: If it is no table with named columns.
        ImportError: If pandas is missing.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "jaxsel.tables needs pandas and scikit-learn: pip install 'jaxsel[data]'"
        ) from error
    if isinstance(table, pd.DataFrame):
        frame = table
    elif hasattr(table, "schema") and hasattr(table, "to_pylist"):
        # pandas' notes in Arrow's metadata would turn a column into the index.
        frame = table.to_pandas(ignore_metadata=True)
        frame = frame[[name for name in frame if not is_index(name)]]
    elif hasattr(table, "to_pandas"):
        frame = table.to_pandas()
    elif hasattr(table, "__dataframe__"):
        frame = pd.api.interchange.from_dataframe(table)
    else:
        raise TypeError(
            f"{name} must be a table with named columns (pandas, polars, pyarrow), got "
            f"{type(table).__name__}"
        )
    frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise ValueError(f"{name} must name each column once, got {twice[0]!r} twice")
    return spread_lists(frame, name)
