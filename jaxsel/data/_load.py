"""Reading prepared data sets through `tfds.data_source`, without TensorFlow."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxsel._runs.progress import track

from ._catalog import CATALOG
from ._dataset import Dataset
from ._store import TFDS_IMPORT, PathLike, find, resolve_data_dir

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_CHUNK = 1024
_INPUTS = ("image", "features", "text")


def load(
    name: str,
    *,
    split: str = "train",
    data_dir: PathLike | None = None,
    progress: bool = False,
) -> Dataset:
    """Load a split of a data set into memory.

    "digits" is always there, and so is what `register` added. The other sets of
    `available()` must have been prepared, once; so must any set of TFDS, by TFDS itself
    as array_record. Sets with one input (an image, a vector, numbers by name, or a
    text) and one label are understood; single numbers and vectors beside them become
    `extras`.

    TFDS shuffles samples when it prepares them, always in the same way, so that a
    slice such as `train[:1000]` is a random sample; those of "digits" keep the order of
    the file. `ids` is their row at the source.
    Reading takes about 0.1 ms a sample. Threads may load at the same time.

    Args:
        name: `mnist`, or as TFDS writes it: `name/config`, `name:1.0.0`.
        split: A split, or a slice of it as TFDS writes them: `test`, `train[:1000]`,
            `train[80%:]`, `train+test`.
        data_dir: Where it was prepared; TFDS's own default folder if None.
        progress: Show a bar.

    Raises:
        FileNotFoundError: If it is not prepared; names the command that does it.
        ValueError: If there is no such split, or its samples differ in shape.
        TypeError: If its features are of a kind that can't become arrays.
    """
    empty = f"split must hold samples, but {split!r} of {name!r} has none"
    known = CATALOG.get(name)
    if known is not None and known.read is not None:
        dataset = known.read(split)
        if not len(dataset):
            raise ValueError(empty)
        return dataclasses.replace(
            dataset, name=name, split=split, license=known.license
        )
    folder = resolve_data_dir(data_dir)
    path, instead = find(name, folder)
    if path is None:
        raise FileNotFoundError(_how_to_prepare(name, folder, instead))
    with TFDS_IMPORT:
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                "loading data needs tensorflow_datasets: pip install 'jaxsel[data]'"
            ) from error
        # This imports more of it.
        builder: Any = tfds.builder_from_directory(path)
        keys = _keys(name, builder.info)
        if builder.info.splits[split].num_examples == 0:
            raise ValueError(empty)
        source = builder.as_data_source(split=split)
    rows = _read(source, name, progress)
    return _assemble(name, split, builder.info, keys, rows)


def _how_to_prepare(name: str, folder: Path, instead: str) -> str:
    message = f"{name!r} is not prepared in {folder}"
    if instead:
        return f"{message} in a way that can be loaded: {instead}"
    if name in CATALOG:
        where = "" if folder == resolve_data_dir(None) else f" --data-dir {folder}"
        return f"{message}: run `jaxsel data prepare {name}{where}`"
    return (
        f"{message}. jaxsel prepares {', '.join(CATALOG)}; prepare others with TFDS: "
        f"tfds.builder({name!r}, data_dir=..., file_format='array_record')"
        ".download_and_prepare()"
    )


def _keys(name: str, info: tfds.core.DatasetInfo) -> tuple[str, str]:
    """Return the names of the input feature and of the label."""
    features: Any = info.features
    keys: Any = info.supervised_keys
    if keys is not None and len(keys) == 2 and all(isinstance(k, str) for k in keys):
        return keys
    known = sorted(features) if hasattr(features, "keys") else []
    inputs = [key for key in _INPUTS if key in known]
    if len(inputs) == 1 and "label" in known:
        return inputs[0], "label"
    raise TypeError(
        f"{name!r} must have one of {', '.join(_INPUTS)} and a label, or name its "
        f"supervised keys; it has the features {', '.join(known) or features}"
    )


def _read(source: Any, name: str, progress: bool) -> list[dict[str, Any]]:
    starts = range(0, len(source), _CHUNK)
    rows = []
    with _without_opencv_hint():
        for start in track(starts, progress=progress, label=f"Loading {name}"):
            stop = min(start + _CHUNK, len(source))
            rows += source.__getitems__(list(range(start, stop)))
    return rows


@contextlib.contextmanager
def _without_opencv_hint() -> Iterator[None]:
    """Drop TFDS's advice to install OpenCV, which would be one more dependency."""
    logger = logging.getLogger("absl")
    keep = lambda record: "OpenCV is not installed" not in record.getMessage()
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def _assemble(
    name: str,
    split: str,
    info: tfds.core.DatasetInfo,
    keys: tuple[str, str],
    rows: Sequence[dict[str, Any]],
) -> Dataset:
    x_key, y_key = keys
    features: Any = info.features
    columns = {
        key: _column(key, features[key], [row[key] for row in rows])
        for key in sorted(features)  # they come in no fixed order
        if not hasattr(features[key], "keys")
    }
    feature_names = (info.metadata or {}).get("feature_names")
    if hasattr(features[x_key], "keys"):
        parts = features[x_key]
        feature_names = sorted(parts)
        table = [
            _column(key, parts[key], [row[x_key][key] for row in rows])
            for key in feature_names
        ]
        numbers = {
            key: part
            for key, part in zip(feature_names, table, strict=True)
            if part is not None and part.ndim == 1 and part.dtype != object
        }
        wrong = [key for key in feature_names if key not in numbers]
        if wrong:
            raise TypeError(
                f"{name!r} can't become a table: {x_key} must hold one number for each "
                f"name, but not so {', '.join(wrong)}"
            )
        x = np.stack([*numbers.values()], axis=1)
    else:
        x = columns.pop(x_key)
        if len({np.shape(row[x_key]) for row in rows}) > 1:
            x = None
    y = columns.pop(y_key, None)
    if x is None:
        shapes = {np.shape(row[x_key]) for row in rows}
        raise ValueError(
            f"{x_key} of {name!r} must have one shape for all samples, got "
            f"{', '.join(map(str, sorted(shapes)[:5]))}"
        )
    if y is None or y.ndim != 1 or y.dtype == object:
        raise TypeError(
            f"{y_key} of {name!r} must be one class or number a sample, got "
            f"{features[y_key]}"
        )
    if x.ndim < 3 and x.dtype != object:
        x = x.reshape(len(rows), -1).astype(np.float32)
    names = getattr(features[y_key], "names", None)
    ids = columns.pop("id", None)
    return Dataset(
        x=x,
        y=y,
        ids=ids,
        feature_names=None if feature_names is None else tuple(feature_names),
        class_names=None if names is None else tuple(names),
        extras={key: column for key, column in columns.items() if column is not None},
        name=name,
        split=split,
        license=(
            CATALOG[info.name].license
            if info.name in CATALOG
            else info.redistribution_info.license
        ),
    )


def _column(key: str, feature: Any, values: list[Any]) -> np.ndarray | None:
    """Return one feature of all samples, or None if it can't be one array.

    Sequences of numbers are padded with NaN to the longest.
    """
    inner = getattr(feature, "feature", None)
    if inner is not None:
        if inner.shape != () or inner.np_dtype.kind not in "biuf":
            return None
        longest = max(map(len, values))
        padded = np.full((len(values), longest), np.nan, np.float32)
        for row, value in zip(padded, values, strict=True):
            row[: len(value)] = value
        return padded
    dtype = np.dtype(feature.np_dtype)
    if dtype.kind in "OSU":
        if feature.shape != ():
            return None
        texts = [
            v.decode(errors="replace") if isinstance(v, bytes) else v for v in values
        ]
        return np.array(texts, dtype=object)
    if any(np.shape(value) != np.shape(values[0]) for value in values):
        return None
    if dtype.kind in "biu" and np.ndim(values[0]) < 2:
        dtype = np.dtype(np.int64)
    elif dtype.kind == "f":
        dtype = np.dtype(np.float32)
    return np.asarray(values, dtype)
