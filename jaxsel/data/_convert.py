"""Data that the user already holds: arrays, torch and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from jaxsel._runs.progress import track

from ._dataset import Dataset


class TorchDataset(Protocol):
    """Protocol of `from_torch`: a length, and pairs by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class HuggingFaceDataset(Protocol):
    """Protocol of `from_hugging_face`: columns by name."""

    def __len__(self) -> int: ...

    def __getitem__(self, column: str, /) -> Any: ...


def from_arrays(
    x: Any,
    y: npt.ArrayLike,
    *,
    ids: npt.ArrayLike | None = None,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    extras: Mapping[str, npt.ArrayLike] | None = None,
    name: str = "",
) -> Dataset:
    """Wrap arrays as a `Dataset`.

    Args:
        x: Images `[n, h, w, c]` (or `[n, h, w]`), a table `[n, d]`, or n texts.
        y: Labels `[n]`. Text labels become classes in sorted order; whole numbers stay
            classes; other numbers become float32 targets.
        ids: Optional `[n]`.
        feature_names: Optional names of the d columns.
        class_names: Optional names of classes 0, 1, ...; not with text labels.
        extras: More arrays of length n.
        name: Name to show.

    Raises:
        ValueError: If lengths or shapes disagree.
        TypeError: If something is neither numbers nor texts.
    """
    samples = np.asarray(x)
    if samples.dtype.kind in "USO":
        if samples.ndim != 1 or not all(isinstance(text, str) for text in samples):
            raise TypeError("x must be one array of numbers, or a list of texts")
        samples = samples.astype(object)
    elif samples.dtype.kind not in "biuf":
        raise TypeError(f"x must be numbers or texts, got dtype {samples.dtype}")
    elif samples.ndim == 3:
        samples = samples[..., None]
    elif samples.ndim not in (2, 4):
        raise ValueError(f"x must be [n, d] or [n, h, w, c], got shape {samples.shape}")
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have shape [n], got {labels.shape}")
    if labels.dtype.kind in "USO":
        if class_names is not None:
            raise ValueError("class_names must be None where y holds the names already")
        classes, labels = np.unique(labels.astype(str), return_inverse=True)
        class_names = classes.tolist()
    elif labels.dtype.kind not in "biuf":
        raise TypeError(f"y must be classes or numbers, got dtype {labels.dtype}")
    labels = labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64)
    if (
        class_names is not None
        and labels.size
        and (labels.dtype != np.int64 or labels.max() >= len(class_names))
    ):
        raise ValueError(
            f"y must hold whole numbers below {len(class_names)}, the number of "
            f"class_names, got {labels.max()}"
        )
    return Dataset(
        x=samples,
        y=labels,
        ids=None if ids is None else np.asarray(ids),
        feature_names=None if feature_names is None else tuple(feature_names),
        class_names=None if class_names is None else tuple(class_names),
        extras={k: np.asarray(v) for k, v in (extras or {}).items()},
        name=name,
    )


def from_torch(dataset: TorchDataset, *, progress: bool = False) -> Dataset:
    """Read a torch map-style data set of `(x, y)` pairs into memory.

    Torch itself is not imported. Tensors of shape `[c, h, w]` with c in 1, 3, 4 become
    `[h, w, c]`; values stay as they are. Class names are taken from `dataset.classes`.

    Raises:
        TypeError: If an item is not a pair.
        ValueError: If samples differ in shape.
    """
    samples, labels = [], []
    for index in track(range(len(dataset)), progress=progress, label="Reading"):
        item = dataset[index]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise TypeError(
                f"dataset must give (x, y) pairs, but item {index} is a "
                f"{type(item).__name__}"
            )
        samples.append(_to_numpy(item[0]))
        labels.append(_to_numpy(item[1]))
    return from_arrays(
        _stack(samples),
        np.asarray(labels).reshape(len(labels)),
        class_names=getattr(dataset, "classes", None),
        name=type(dataset).__name__,
    )


def from_hugging_face(
    dataset: HuggingFaceDataset, *, x: str | Sequence[str], y: str = "label"
) -> Dataset:
    """Read two columns of a Hugging Face data set into memory.

    The `datasets` package itself is not imported: anything with columns by name will
    do, a mapping of columns or a pandas frame included.

    Args:
        dataset: One split, as from `load_dataset(..., split="train")`.
        x: Column of images, vectors or texts; or several columns of numbers, which
            become a table.
        y: Column of labels. Its class names are used if `dataset.features` has them.

    Raises:
        ValueError: If a column is missing, or samples differ in shape.
    """
    table = None if isinstance(x, str) else tuple(x)
    for column in (x, y) if isinstance(x, str) else (*x, y):
        known = getattr(dataset, "column_names", None)
        if known is not None and column not in known:
            raise ValueError(f"no column {column!r}; there are {', '.join(known)}")
    if isinstance(x, str):
        samples = _stack([_to_numpy(value) for value in dataset[x]])
    else:
        samples = np.stack([np.asarray(dataset[c], np.float32) for c in x], axis=1)
    feature = (getattr(dataset, "features", None) or {}).get(y)
    return from_arrays(
        samples,
        np.asarray(list(dataset[y])),
        feature_names=table,
        class_names=getattr(feature, "names", None),
        name=str(getattr(getattr(dataset, "info", None), "dataset_name", "") or ""),
    )


def _to_numpy(value: Any) -> Any:
    """Tensors, PIL images, lists and numbers as arrays; texts as they are."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    is_tensor = hasattr(value, "permute")
    if is_tensor and array.ndim == 3 and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    return array


def _stack(samples: Iterable[Any]) -> np.ndarray:
    samples = list(samples)
    if samples and isinstance(samples[0], str):
        return np.asarray(samples, dtype=object)
    shapes = {np.shape(sample) for sample in samples}
    if len(shapes) > 1:
        raise ValueError(
            "all samples must have one shape, got "
            + ", ".join(map(str, sorted(shapes)[:5]))
            + ": resize or pad them first"
        )
    stacked = np.asarray(samples)
    return stacked[:, None] if stacked.ndim == 1 and stacked.size else stacked
