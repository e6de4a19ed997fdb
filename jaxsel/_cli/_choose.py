"""`jaxsel select POOL`: choosers of `jaxsel.match` and `jaxsel.retrieve`."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxsel import match, retrieve

from ._checks import recorded
from ._encoding import Encoding
from ._output import (
    Record,
    check_outputs,
    fingerprint,
    publish,
    result_path,
    say,
    say_checks,
)

if TYPE_CHECKING:
    import numpy as np

    from jaxsel import Selection

SELECTORS = {
    name: selector
    for name, selector in {**match.SELECTORS, **retrieve.RETRIEVERS}.items()
    if selector.command
}
DEFAULT = "retrieve_nearest"
OPTIONS = ("like_labels", "metric", "standardize", "drop", "id_column")
"""Options of POOL only, beside `--like` and `--method`, which tell it from VALUES."""


class _Samples(NamedTuple):
    """POOL or HARD as read: arrays, or data frames for a method that bins columns."""

    x: Any
    y: np.ndarray | None
    ids: np.ndarray | None
    prepared: bool


def words(args: argparse.Namespace) -> dict[str, str]:
    """Return users' names of the methods' arguments."""
    other = "--from" if args.values_of else "labels of POOL"
    return {
        **dict.fromkeys(("features", "candidates", "x"), "POOL"),
        **dict.fromkeys(("hard_features", "target", "x_val"), "HARD"),
        "labels": "--labels" if args.labels else other,
        "hard_labels": "--like-labels" if args.like_labels else "labels of HARD",
        "; or pass an oracle of jaxsel.gradients": "",
        "candidates and target by one number": "POOL and HARD by one number",
        ", and l2 and penalty_l2 by its square, or match in float64 (jax.enable_x64)": (
            ""
        ),
    }


def run(args: argparse.Namespace) -> None:
    """Choose samples of a pool by a registered method, and write the selection."""
    started = time.perf_counter()
    method: str = args.method or DEFAULT
    selector = SELECTORS[method]
    _check(args, method)
    out = result_path(args.out)
    sources = {
        "pool": args.source,
        "hard": args.like,
        "pool_labels": args.labels,
        "hard_labels": args.like_labels,
    }
    sources = {role: source for role, source in sources.items() if source is not None}
    extras = [] if args.csv is None else [Path(args.csv)]
    check_outputs(
        [*extras, out.with_suffix(".json"), out],
        inputs=sources.values(),
        force=args.force,
    )
    options = {} if args.metric is None else {"metric": args.metric}
    with recorded() as checks:
        pool, hard, about = read_pools(args, frames=selector.tables)
        labels = {}
        if args.per_class and hard is not None:
            labels = {"labels": pool.y, "hard_labels": hard.y}
        if not 1 <= args.budget <= len(pool.x):
            raise ValueError(
                f"--budget must be from 1 to {len(pool.x)}, the number of samples, got "
                f"{args.budget}"
            )
        x_hard = None if hard is None else hard.x
        selection = selector(pool.x, x_hard, args.budget, **labels, **options)
    config = ("budget", "per_class", "standardize", "drop", "label_column", "x_key")
    record = Record(
        command=args.command_line,
        config={
            "method": method,
            **options,
            **{name: getattr(args, name) for name in (*config, "y_key")},
            **about,
        },
        started=started,
        inputs=[
            # A prepared data set is no file.
            {
                "role": role,
                "source": source,
                **(fingerprint(source) if Path(source).is_file() else {}),
            }
            for role, source in sources.items()
        ],
        checks=checks,
    )
    writers: dict[Path, Callable[[Path], object]] = {}
    if extras:
        writers[extras[0]] = _table(selection, pool).to_csv
    writers[out] = _plain(selection).save
    manifest = publish(writers, record)
    say_checks(checks)
    files = ", ".join(map(str, [*writers, manifest]))
    say(f"{len(selection)} of {len(pool.x)} samples: {selection}", f"Wrote {files}")


def _check(args: argparse.Namespace, method: str) -> None:
    """Refuse options that do not fit the method, before anything is read."""
    selector = SELECTORS[method]
    if args.budget is None:
        raise ValueError("select needs --budget to choose from a pool")
    if args.above is not None or args.values_of is not None:
        raise ValueError(f"--above and --from are for VALUES: {method} has a --budget")
    if selector.compares is None and args.like is not None:
        raise ValueError(f"{method} compares the pool with itself: leave out --like")
    if selector.compares is not None and args.like is None:
        raise ValueError(f"{method} needs --like, the samples that others should match")
    if args.metric is not None and "metric" not in selector.arguments:
        raise ValueError(f"{method} does not take --metric")
    if args.metric == "l2" and "similarity" in selector.arguments:
        raise ValueError(f"{method} compares cosines: leave out --metric l2")
    if args.per_class and not selector.classes:
        those = ", ".join(
            name for name, chooser in SELECTORS.items() if chooser.classes
        )
        raise ValueError(f"{method} does not take --per-class; {those} do")
    if selector.tables and args.standardize:
        raise ValueError(f"{method} bins the columns: leave out --standardize")
    if not args.per_class and (args.labels or args.like_labels):
        raise ValueError("--labels and --like-labels are for --per-class")


def read_pools(
    args: argparse.Namespace,
    *,
    frames: bool,
    names: tuple[str, str] = ("POOL", "HARD"),
) -> tuple[_Samples, _Samples | None, dict[str, Any]]:
    """Read POOL, HARD if there is one, and the manifest's entry of the encoding.

    Args:
        args: Parsed arguments: `source`, `like` and those that say how to read.
        frames: Whether to take columns of tables as they are.
        names: Names of the two in messages.
    """
    import numpy as np

    from jaxsel._inputs.usual_mistakes import doubt_columns
    from jaxsel.data import Dataset

    from ._read import check_table_options, paired_features

    check_table_options(args, args.source, args.like)
    encode = _Frames() if frames else Encoding(remedy="--drop")
    pool = _samples(args, args.source, "labels", encode)
    hard = None
    if args.like is not None:
        hard = _samples(args, args.like, "like_labels", encode)
    if frames and hasattr(pool.x, "columns"):
        return pool, hard, {}
    other = pool if hard is None else hard
    if pool.prepared != other.prepared:
        raise ValueError(
            f"{' and '.join(names)} must both be files, or both prepared data sets"
        )
    if pool.prepared:
        if args.standardize:
            raise ValueError("--standardize is for files: data sets are scaled already")
        x, x_hard = pool.x.as_features(), other.x.as_features(fit_on=pool.x)
    else:
        datasets = [Dataset(x=s.x, y=np.arange(len(s.x))) for s in (pool, other)]
        x, x_hard = paired_features(
            *datasets, standardize=args.standardize, names=names
        )
        if not frames:
            doubt_columns(names[0], x)
    about = dict[str, Any]()
    if isinstance(encode, Encoding) and encode.columns is not None:
        about = encode.describe()
    return (
        pool._replace(x=x),
        None if hard is None else hard._replace(x=x_hard),
        about,
    )


class _Frames:
    """Takes columns as they are, as `Encoding` takes them as numbers.

    Attributes:
        columns: Columns of POOL; None before it was read.
    """

    columns: tuple[str, ...] | None = None

    def __call__(
        self, path: str, frame: Any, y: np.ndarray | None
    ) -> tuple[Any, tuple[str, ...]]:
        del path, y
        self.columns = self.columns or tuple(frame.columns)
        return frame, tuple(frame.columns)


def _samples(
    args: argparse.Namespace, path: str, option: str, encode: Encoding | _Frames
) -> _Samples:
    """Read samples; with labels, by an option or from the file, if they are needed."""
    from ._read import ARRAYS, read_array, read_samples, read_table
    from ._tables import TABLES

    labels: str | None = getattr(args, option)
    flag = f"--{option.replace('_', '-')}"
    suffix = Path(path).suffix.lower()
    y = None
    if suffix in TABLES:
        first = encode.columns is None
        labelled = args.per_class and labels is None
        if labelled and args.label_column is None:
            raise ValueError(f"--per-class needs --label-column of tables, or {flag}")
        table = read_table(
            path,
            label_column=args.label_column if first or labelled else None,
            id_column=args.id_column if first else None,
            columns=encode.columns,
            drop=args.drop,
            encode=encode,
            keep_unlabelled=not labelled,  # they are only shown
        )
        samples = _Samples(table.x, table.y, table.ids, prepared=False)
    elif suffix in ARRAYS:
        samples = _Samples(read_array(path, args.x_key), None, None, prepared=False)
        if args.per_class and labels is None and suffix == ".npz":
            y = read_array(path, args.y_key)
    else:
        data = read_samples(path, data_dir=args.data_dir)
        samples = _Samples(data, data.y, data.ids, prepared=True)
    if labels is not None:
        y = read_array(labels, args.y_key)
    samples = samples if y is None else samples._replace(y=y)
    if args.per_class and samples.y is None:
        raise ValueError(f"--per-class needs labels of {path}: see {flag}")
    return samples


def _plain(selection: Selection) -> Selection:
    """Drop the fields that a `Match` adds: OUT.npz holds a `Selection`."""
    from jaxsel import Selection

    fields = (field.name for field in dataclasses.fields(Selection))
    return Selection(**{name: getattr(selection, name) for name in fields})


def _table(selection: Selection, pool: _Samples) -> Any:
    """Return the chosen samples' ids or rows, labels and weights as a data frame."""
    import numpy as np
    import pandas as pd

    rows = selection.to_numpy()
    columns = {"weight": np.asarray(selection.weights)[: len(rows)]}
    if pool.y is not None and pool.y.ndim == 1:
        columns = {"label": pool.y[rows], **columns}
    names = rows if pool.ids is None else pool.ids[rows]
    return pd.DataFrame(columns, index=pd.Index(names, name="index"))
