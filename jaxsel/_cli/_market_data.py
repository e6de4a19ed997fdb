"""Read the samples of `jaxsel market`, and describe them in records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxsel._inputs.frames import plain_labels

from ._checks import recorded
from ._encoding import Agreed, Encoding
from ._output import fingerprint, fingerprint_dataset, say_checks

if TYPE_CHECKING:
    import numpy as np

    from jaxsel.data import Dataset
    from jaxsel.market import Request

    from ._read import Encode


def read_data(
    args: argparse.Namespace,
    source: str,
    *,
    labels: str | None = None,
    encode: Encode | None = None,
) -> Dataset:
    """Read samples and their labels, as the options in `args` say.

    Args:
        args: The options.
        source: A file or the name of a prepared data set.
        labels: A file of labels, or None.
        encode: Encoder of a table's columns; numbers stay as they are if None.
    """
    from ._read import read_samples

    with recorded() as checks:
        data = read_samples(
            source,
            labels=labels,
            label_column=args.label_column,
            columns=_columns(args),
            drop=args.drop,
            x_key=args.x_key,
            y_key=args.y_key,
            data_dir=args.data_dir,
            encode=encode or encoding(),
        )
    _tell(checks, encode)
    return data


def encoding(mode: str = "none", *, gaps: bool = True) -> Encoding:
    """Return the encoding of a trainer's tables, with messages for `jaxsel market`."""
    return Encoding(mode, remedy="--drop or --columns", gaps=gaps)


def agreed(request: Request) -> Agreed | None:
    """Return the encoding that a request prescribes for tables; None for numbers."""
    return None if request.encoder is None else Agreed(request.encoder)


def read_unlabelled(
    args: argparse.Namespace, source: str, *, encode: Encode | None = None
) -> Dataset:
    """Read samples without their labels.

    Labels in a file are not read, and `y` is -1, an unknown class.

    Raises:
        ValueError: If an array holds a single number.
    """
    import numpy as np

    from jaxsel.data import Dataset

    from ._read import ARRAYS, TABLES, read_array, read_table

    suffix, names = Path(source).suffix.lower(), None
    if suffix in TABLES:
        drop = () if args.label_column is None else (args.label_column,)
        with recorded() as checks:
            x, _, names, *_ = read_table(
                source,
                columns=_columns(args),
                drop=(*drop, *args.drop),
                encode=encode or encoding(),
            )
        _tell(checks, encode)
    elif suffix in ARRAYS:
        x = read_array(source, args.x_key)
    else:
        return read_data(args, source, encode=encode)
    if not x.ndim:
        raise ValueError(f"{source} must hold samples, one a row, got a single number")
    return Dataset(x=x, y=np.full(len(x), -1, np.int64), feature_names=names)


def read_predictions(args: argparse.Namespace) -> np.ndarray:
    """Read predicted classes from arrays, or from a column of a table.

    Raises:
        ValueError: If it is a table, and `--prediction-column` is missing.
    """
    import numpy as np

    from ._read import TABLES, read_array, read_table

    source, column = args.predictions, args.prediction_column
    is_table = Path(source).suffix.lower() in TABLES
    if is_table != (column is not None):
        raise ValueError(
            "--prediction-column must name the column of --predictions where that is a "
            "CSV or parquet file, and only there"
        )
    if not is_table:
        return read_array(source, args.y_key)
    with recorded() as checks:
        predicted = read_table(source, label_column=column, columns=()).y
    say_checks(checks)
    return plain_labels(np.asarray(predicted))


def leave_out_predictions(args: argparse.Namespace, encode: Encoding) -> None:
    """Drop the column of predictions from DATA where it stands in the same table.

    Raises:
        ValueError: If `--columns` names it.
    """
    column = args.prediction_column
    if column is None or Path(args.predictions).resolve() != Path(args.data).resolve():
        return
    if column in (_columns(args) or ()):
        raise ValueError(
            f"--columns must not name {column!r}, the --prediction-column: owners have "
            "no predictions, and they are no feature"
        )
    if args.columns is None and column not in args.drop:
        args.drop = [*args.drop, column]
        message = (
            f"column {column!r} of {args.data} holds the predictions, and is no feature"
        )
        _tell([message], encode)


def _columns(args: argparse.Namespace) -> list[str] | None:
    if args.columns is None:
        return None
    if args.drop:
        raise ValueError("--columns names the features: leave out --drop")
    return args.columns.split(",")


def _tell(checks: list[str], encode: Encode | None) -> None:
    say_checks(checks)
    if isinstance(encode, Encoding):
        encode.checks += checks


def warn(message: str) -> None:
    sys.stderr.write(f"jaxsel: warning: {message}\n")


def describe(role: str, source: str, data: Dataset | None = None) -> dict[str, Any]:
    """Return the entry of an input in a record.

    Args:
        role: Role of the input, such as "data".
        source: The file, which may be missing, or the name of a prepared data set.
        data: Samples read from it, if it holds any.
    """
    facts: dict[str, Any] = {}
    if data is not None and data.name:
        facts = fingerprint_dataset(data)
    elif Path(source).is_file():
        facts = fingerprint(source)
    return {"role": role, "source": source, **facts}
