"""Labels of the samples that `jaxsel value` valued, for `jaxsel select`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._inputs.usual_mistakes import doubt

from ._output import fingerprint
from ._read import TABLES, read_array, read_samples
from ._tables import read_frame

if TYPE_CHECKING:
    from jaxsel import Values


def read_labels(args: argparse.Namespace, values: Values) -> np.ndarray | None:
    """Read the labels of `--labels` or `--from`, in the order of the values.

    Values of a part of TRAIN, or with ids, have an index: by it the rows of `--from`
    are looked up.

    Raises:
        ValueError: If there are no labels of some values, or of more samples.
    """
    n = len(values)
    if args.labels is not None:
        labels = read_array(args.labels, args.y_key)
        if labels.ndim == 1 and len(labels) != n:
            raise ValueError(_count(args.labels, len(labels), args.source, n))
        return labels
    if args.values_of is None:
        return None
    run = _run_of(args.source)
    config = run.get("config", {})
    index = None if values.index is None else list(values.index)
    column = _id_column(args.values_of, config) if index is not None else None
    is_table = args.values_of.lower().endswith(TABLES)
    data = read_samples(
        args.values_of,
        label_column=args.label_column,
        id_column=column,
        columns=(),
        drop_unlabelled=is_table and bool(config.get("drop_unlabelled")),
        x_key=args.x_key,
        y_key=args.y_key,
        data_dir=args.data_dir,
    )
    names = data.ids if data.ids is not None else data.extras.get("row")
    if index is None or (column is None and config.get("id_column") is not None):
        # Nothing but the order tells which label is whose.
        if len(data) != n:
            raise ValueError(_count(args.values_of, len(data), args.source, n))
        _doubt_other(args, run)
        return data.y
    if column is None:
        _doubt_other(args, run)
    names = np.arange(len(data)) if names is None else names
    rows = {name: row for row, name in enumerate(names.tolist())}
    lacking = [name for name in index if name not in rows]
    if lacking:
        raise ValueError(
            f"{args.values_of} must have all samples that {args.source} values, but "
            f"has no {column or 'row'} {lacking[0]!r}"
        )
    return data.y[[rows[name] for name in index]]


def _run_of(source: str) -> Mapping[str, Any]:
    """Return the manifest that `jaxsel value` wrote beside the values; {} if none."""
    try:
        run = json.loads(Path(source).with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}
    return run if isinstance(run, dict) else {}


def _id_column(source: str, config: Mapping[str, Any]) -> str | None:
    """Return the column of ids, by the name in TRAIN or in the table of `--csv`."""
    if not source.lower().endswith(TABLES):
        return None
    columns = read_frame(source).columns
    usual = (config.get("id_column"), "index")
    return next((name for name in usual if name in columns), None)


def _doubt_other(args: argparse.Namespace, run: Mapping[str, Any]) -> None:
    """Warn if labels do not come from TRAIN, in the order of which values are."""
    train = next((i for i in run.get("inputs", ()) if i.get("role") == "train"), {})
    if not train.get("sha256") or not Path(args.values_of).is_file():
        return
    if fingerprint(args.values_of)["sha256"] != train["sha256"]:
        doubt(
            f"labels are taken from the rows of {args.values_of}, but {args.source} "
            f"values those of {train.get('source')}, another file: see that they are "
            "in one order, or value TRAIN with --id-column"
        )


def _count(labels: str, count: int, values: str, n: int) -> str:
    return (
        f"{labels} has {count} labels for the {n} values of {values}: give those of "
        "the samples that were valued, in their order, or --from TRAIN as it was valued"
    )
