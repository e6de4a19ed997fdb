"""TRAIN and VAL of `jaxsel value`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jaxsel.value import VALUES

from ._encoding import Encoding, Split
from ._output import fingerprint, fingerprint_dataset
from ._tables import TABLES

if TYPE_CHECKING:
    from jaxsel import Values
    from jaxsel.data import Dataset

WORDS = {
    **dict.fromkeys(("y", "t"), "labels of TRAIN"),
    **dict.fromkeys(("y_val", "t_val"), "labels of VAL"),
    "x": "TRAIN",
    "x_val": "VAL",
    "y has": "labels of TRAIN have",
    "y_val has": "labels of VAL have",
    "key": "--seed",
    "use knn_regression_shapley": "use --method knn_regression_shapley",
}
"""Users' names of the functions' arguments, and of phrases with some."""


@dataclasses.dataclass
class Data:
    """TRAIN and VAL as they were read, and the function to call with them."""

    train: Dataset
    x: Any
    validation: tuple[Any, ...]
    valued: Callable[..., Values]
    inputs: list[dict[str, Any]]
    about: dict[str, Any]
    seeds: list[int] | None = None


def read_data(
    args: argparse.Namespace,
    function: Callable[..., Values],
    options: dict[str, Any],
    *,
    progress: bool,
) -> Data:
    """Read TRAIN and VAL, or split VAL off."""
    import numpy as np

    from ._read import check_table_options, paired_features
    from ._streams import describe_streamed, read_streamed, streams, valued_in_chunks

    _check_validation(args)
    check_table_options(args, args.train, args.val)
    split = None
    if args.split is not None:
        knn_value = VALUES.get(args.method)
        targets = args.score == "r2" or (knn_value is not None and knn_value.targets)
        split = Split(args.split, args.seed or 0, classes=not targets)
    in_chunks = args.val is not None and streams(args)
    retrains = args.method not in VALUES
    if in_chunks and retrains:
        raise ValueError(
            f"{args.method} needs VAL in memory: give it as one file, without "
            "--checkpoint"
        )
    encoding = Encoding(args.encode, split)
    train = _read_train(args, encoding, progress)
    standardize = args.standardize and encoding.encoder is None
    valued = function
    if not retrains:
        valued = functools.partial(function, **options, chunk_size=args.chunk_size)
    about = {} if encoding.columns is None else encoding.describe()
    inputs = _describe(args, "train", train)
    seeds = None if split is None else [split.seed]
    if in_chunks:
        x, scale, rows = read_streamed(
            args, train, encoding.encoder, standardize=standardize
        )
        valued = valued_in_chunks(args, function, options, scale)
        of_val = describe_streamed(args, rows)
        return Data(train, x, (rows,), valued, [*inputs, *of_val], about)
    if args.method == "data_oob":
        x, _ = paired_features(train, train, standardize=standardize)
        return Data(train, x, (), valued, inputs, about)
    if split is None:
        val = _read_val(args, train, encoding, progress)
        inputs += _describe(args, "val", val)
    else:
        ids = np.arange(len(train)) if train.ids is None else train.ids
        named = dataclasses.replace(train, ids=ids)
        train, val, about["split_rows"] = split.apply(named)
    x, x_val = paired_features(train, val, standardize=standardize)
    return Data(train, x, (x_val, val.y), valued, inputs, about, seeds)


def _check_validation(args: argparse.Namespace) -> None:
    """Refuse too many validation sets, and none."""
    if args.method == "data_oob":
        if args.val is not None or args.split is not None:
            raise ValueError(
                "data_oob tests each model on the samples that it was not trained on: "
                "leave out VAL and --split"
            )
    elif args.val is None and args.split is None:
        raise ValueError(
            "VAL is missing: name a file of samples whose labels are right, or set a "
            "part of TRAIN aside with --split 0.2"
        )
    elif args.val is not None and args.split is not None:
        raise ValueError(
            "--split sets a part of TRAIN aside instead of VAL: leave one of them out"
        )
    if args.val is None and args.merge is not None:
        raise ValueError("--merge adds samples of VAL: name them, without --split")


def _reader(
    args: argparse.Namespace, encoding: Encoding, progress: bool
) -> Callable[..., Dataset]:
    from ._read import read_samples

    return functools.partial(
        read_samples,
        label_column=args.label_column,
        drop=args.drop,
        drop_unlabelled=args.drop_unlabelled,
        data_dir=args.data_dir,
        encode=encoding,
        progress=progress,
    )


def _read_train(
    args: argparse.Namespace, encoding: Encoding, progress: bool
) -> Dataset:
    train = _reader(args, encoding, progress)(
        args.train,
        labels=args.train_labels,
        id_column=args.id_column,
        x_key=args.x_key,
        y_key=args.y_key,
    )
    if train.ids is None and "row" in train.extras:
        return dataclasses.replace(train, ids=train.extras["row"])
    return train


def _read_val(
    args: argparse.Namespace, train: Dataset, encoding: Encoding, progress: bool
) -> Dataset:
    names = encoding.columns
    if names is None:  # TRAIN is no table: there is nothing to encode VAL by
        names, encoding = train.feature_names, Encoding("none")
    return _reader(args, encoding, progress)(
        args.val,
        labels=args.val_labels,
        x_key=args.val_x_key or args.x_key,
        y_key=args.val_y_key or args.y_key,
        drop_unlabelled=args.drop_unlabelled and args.val.lower().endswith(TABLES),
        # By name, in any order; not of a prepared data set.
        columns=None if train.name else names,
    )


def _describe(
    args: argparse.Namespace, role: str, data: Dataset
) -> list[dict[str, Any]]:
    """Return the manifest's entry of TRAIN or VAL, separate labels included."""
    source, labels = getattr(args, role), getattr(args, f"{role}_labels")
    key = (role == "val" and args.val_x_key) or args.x_key
    entry = {
        "role": role,
        "source": source,
        "array": key if source.lower().endswith(".npz") else None,
        "x_shape": list(data.x.shape),
        "y_shape": list(data.y.shape),
        **(fingerprint_dataset(data) if data.name else fingerprint(source)),
    }
    if labels is None:
        return [entry]
    return [entry, {"role": f"{role}_labels", "source": labels, **fingerprint(labels)}]
