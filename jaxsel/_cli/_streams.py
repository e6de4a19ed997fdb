"""VAL of `jaxsel value`, where it is read a chunk at a time."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.row_paths import is_zarr_group, listed, zarr_version
from jaxsel._inputs.scale import mean_and_scale, standardized

from ._output import fingerprint, fingerprint_files
from ._read import STREAMED, read_array

if TYPE_CHECKING:
    from jaxsel import Values
    from jaxsel._inputs.rows import Rows
    from jaxsel.data import Dataset
    from jaxsel.tables import TableEncoder

# With --checkpoint these are read a chunk at a time, and whole without it.
_EITHER = (".npy", ".parquet")


def streams(args: argparse.Namespace) -> bool:
    """Return whether VAL is read a chunk at a time.

    Raises:
        ValueError: If options ask for that, and VAL is of a kind that is read whole.
    """
    path = Path(args.val)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in STREAMED:
        return True
    if args.checkpoint is not None:
        if suffix in _EITHER:
            return True
        raise ValueError(
            "--checkpoint needs VAL to be a folder of .npy or parquet files, zarr, "
            f"array_record, .npy or .parquet, got {args.val!r}, which is read whole"
        )
    for name in ("checkpoint_every", "decode"):
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            needs = "--checkpoint" if name == "checkpoint_every" else "array_record"
            raise ValueError(f"{option} needs {needs}")
    return False


def read_streamed(
    args: argparse.Namespace,
    train: Dataset,
    encoder: TableEncoder | None,
    *,
    standardize: bool,
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None, Rows]:
    """Return TRAIN's features, its mean and scale to apply to VAL, and VAL's rows.

    Args:
        args: The options.
        train: TRAIN, encoded if there is an encoder.
        encoder: Encoder of VAL, fitted on TRAIN, or None.
        standardize: Whether to put columns on the scale of TRAIN's.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ValueError: If options do not fit VAL, it is damaged or has other features.
        TypeError: If its features are not numeric.
        ImportError: If a package that reads it is missing.
    """
    if train.name:
        raise ValueError(
            "TRAIN and VAL must both be files, or both prepared data sets, whose "
            "features are scaled in a way of their own"
        )
    if args.reduce == "none":
        raise ValueError(
            "--reduce none keeps a row for each sample of VAL, so that VAL must fit in "
            "memory: give it as one file, without --checkpoint"
        )
    if args.checkpoint_every is not None and args.checkpoint is None:
        raise ValueError("--checkpoint-every needs --checkpoint")
    if args.checkpoint is not None and Path(args.checkpoint).is_file():
        raise ValueError(f"--checkpoint must be a folder, got {args.checkpoint!r}")
    x = train.x.reshape(len(train), math.prod(train.x.shape[1:]))
    rows = _open(args, train, encoder)
    shape = rows.source.row_shape
    if len(shape) != 1:
        raise ValueError(
            f"{args.val} must have features of shape [n, d] to be read a chunk at a "
            f"time, got {['n', *shape]}".replace("'", "")
        )
    if shape[0] != x.shape[1]:
        raise ValueError(
            "TRAIN and VAL must have the same number of features, got "
            f"{x.shape[1]} and {shape[0]}"
        )
    if not standardize:
        return x, None, rows
    scale = mean_and_scale(x)
    return standardized(x, *scale), scale, rows


def valued_in_chunks(
    args: argparse.Namespace,
    function: Callable[..., Values],
    options: Mapping[str, Any],
    scale: tuple[np.ndarray, np.ndarray] | None,
) -> Callable[..., Values]:
    """Return `function` for VAL in rows: it values TRAIN a chunk of VAL at a time."""
    from jaxsel import streamed_values

    chunking = {
        "chunk_size": args.chunk_size,
        "checkpoint_every": args.checkpoint_every,
    }
    return functools.partial(
        streamed_values,
        function if scale is None else _Scaled(function, *scale),
        **options,
        checkpoint=args.checkpoint,
        **{name: value for name, value in chunking.items() if value is not None},
    )


@dataclasses.dataclass(frozen=True)
class _Scaled:
    """A function of TRAIN and VAL that first puts VAL's features on TRAIN's scale."""

    function: Callable[..., Values]
    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, x: Any, y: Any, x_val: Any, y_val: Any, **options: Any) -> Any:
        x_val = standardized(np.asarray(x_val), self.mean, self.scale)
        return self.function(x, y, x_val, y_val, **options)


def describe_streamed(args: argparse.Namespace, rows: Rows) -> list[dict[str, Any]]:
    """Return the manifest's entries of VAL, with a hash of each of its files."""
    kind, _ = _kind(args)
    key = args.val_x_key or args.x_key
    is_named = kind == "zarr" and (Path(args.val) / key).is_dir()
    n = None if rows.n is None else len(rows)
    entry = {
        "role": "val",
        "source": args.val,
        "array": key if is_named else None,
        "x_shape": [n, *rows.source.row_shape],
        "y_shape": [n],
        **_fingerprint(args.val),
    }
    if args.val_labels is None:
        return [entry]
    labels = {"role": "val_labels", "source": args.val_labels}
    return [entry, {**labels, **_fingerprint(args.val_labels)}]


def _fingerprint(source: str) -> dict[str, Any]:
    path = Path(source)
    if path.is_file():
        return fingerprint(path)
    if not zarr_version(path):
        return fingerprint_files(path, listed([path])[1])
    # An array may have many thousands of files, one for each chunk.
    files = sorted(
        Path(place, name) for place, _, names in os.walk(path) for name in names
    )
    entry = fingerprint_files(path, files)
    return {**entry, "shards": len(entry["shards"])}


def _kind(args: argparse.Namespace) -> tuple[str, list[Path]]:
    return listed([Path(args.val)])


def _open(
    args: argparse.Namespace, train: Dataset, encoder: TableEncoder | None
) -> Rows:
    from jaxsel.data import open_rows

    kind, files = _kind(args)
    if encoder is not None and kind != "parquet":
        raise ValueError(
            f"{args.val} is {kind}, but TRAIN has columns that must be encoded: give "
            "VAL as parquet files with the same columns, or encode TRAIN first"
        )
    labels: Any = args.val_labels
    if labels is not None and Path(labels).is_file():
        labels = read_array(labels, args.val_y_key or args.y_key)
    if args.decode is not None and kind != "array_record":
        raise ValueError(f"--decode is for array_record, but {args.val} is {kind}")
    options: dict[str, Any] = {}
    if kind == "parquet":
        if labels is None and args.label_column is None:
            raise ValueError(
                f"{args.val} needs --label-column, the column of its labels, or "
                "--val-labels, a file of them"
            )
        if labels is not None and args.label_column is not None:
            raise ValueError(
                f"the labels of {args.val} must come from --label-column or from "
                "--val-labels, and not from both: leave one out"
            )
        options["features"] = encoder or _columns(args, train, files[0])
        labels = args.label_column if labels is None else labels
    elif kind == "zarr" and is_zarr_group(files[0]):
        options["features"] = args.val_x_key or args.x_key
        labels = args.val_y_key or args.y_key if labels is None else labels
        for name in (options["features"], labels):
            if isinstance(name, str) and not (files[0] / name).is_dir():
                has = sorted(path.name for path in files[0].iterdir() if path.is_dir())
                raise ValueError(
                    f"{args.val} has no array {name!r}, but {', '.join(has)}: see "
                    "--x-key and --y-key"
                )
    elif kind == "array_record":
        if args.decode is None or labels is not None:
            raise ValueError(
                f"{args.val} needs --decode, which gives features and labels, and no "
                "--val-labels"
            )
        options |= {"decode": _function(args.decode), "features": 0}
        labels = 1
    if labels is None:
        raise ValueError(f"{args.val} holds features only: give --val-labels")
    return open_rows(args.val, labels=labels, **options)


def _columns(
    args: argparse.Namespace, train: Dataset, file: Path
) -> list[str] | str | None:
    """Return the columns of parquet files that are features; None for all."""
    if train.feature_names is None and not args.drop:
        return None
    import pyarrow.parquet as pq

    names = [str(name) for name in pq.read_schema(file).names]
    if train.feature_names is not None:
        # The places of a column of lists, "emb[0]", are one column there.
        known = train.feature_names
        columns = [c if c in names else c.rpartition("[")[0] or c for c in known]
        return list(dict.fromkeys(columns))
    missing = [name for name in args.drop if name not in names]
    if missing:
        raise ValueError(
            f"{args.val} has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(names)}"
        )
    return [name for name in names if name not in (*args.drop, args.label_column)]


def _function(name: str) -> Callable[[Any], Any]:
    """Return a function of a module, which may lie in the folder we are in."""
    module, _, attribute = name.partition(":")
    if not (module and attribute):
        raise ValueError(f"--decode must be MODULE:FUNCTION, got {name!r}")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        function = functools.reduce(
            getattr, attribute.split("."), importlib.import_module(module)
        )
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--decode {name} cannot be imported: {error}") from error
    if not callable(function):
        raise ValueError(f"--decode {name} must be a function, got {function!r}")
    return function
