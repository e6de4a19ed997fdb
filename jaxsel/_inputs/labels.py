"""Labels as callers pass them, checked and numbered."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .checks import as_array, caller_level, check_finite, show_labels
from .frames import without_label

if TYPE_CHECKING:
    import numpy.typing as npt


def as_labels(name: str, value: Any) -> np.ndarray | jax.Array:
    """Return labels, or class probabilities, as an array; see `as_array`.

    Raises:
        TypeError: If it is being traced, or is no array.
        ValueError: If a sample has several labels.
    """
    if type(value) is np.ndarray and value.dtype != object:
        return value
    try:
        array = as_array(name, value)
    except TypeError:
        if isinstance(value, list | tuple):  # ragged
            _refuse_lists(name, value)
        raise
    if array.dtype == object and array.ndim == 1:
        _refuse_lists(name, array)
    return array


def encode_labels(
    y: npt.ArrayLike | jax.Array,
    y_val: npt.ArrayLike | jax.Array,
    *,
    names: tuple[str, str] = ("y", "y_val"),
    whole: bool = True,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the classes of both label arrays together, in sorted order.

    Labels may be integers, booleans, strings, or floats that are whole numbers.

    Args:
        y: Array of shape `[n]`.
        y_val: Array of shape `[m]`, of the same kind.
        names: Names of the two in errors.
        whole: Whether floats must be whole numbers: others look like targets.

    Returns:
        The int32 codes of each, and how many classes there are.
    """
    arrays, kinds = [], []
    for name, value in zip(names, (y, y_val), strict=True):
        array = np.asarray(as_labels(name, value))
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(np.float64)  # NumPy does not know bfloat16
        if array.ndim != 1:
            raise ValueError(
                f"{name} must be labels of shape [n] or class probabilities of shape "
                f"[n, n_classes], got {array.shape}"
            )
        if np.issubdtype(array.dtype, np.floating):
            check_finite(name, array)
            if whole and np.any(array != np.round(array)):
                first = array[array != np.round(array)][0]
                raise ValueError(
                    f"{name} must hold class labels, got {first}: for numeric targets "
                    "use knn_regression_shapley"
                )
        if array.dtype.kind == "O":
            _refuse_lists(name, array)
        if array.dtype.kind == "O" and (gaps := without_label(array)).size:
            raise ValueError(
                f"{name} must hold a label of each sample, but row {gaps[0]} has none "
                f"({gaps.size} of {len(array)} rows do not): leave them out"
            )
        arrays.append(array)
        kinds.append("text" if array.dtype.kind in "USO" else "number")
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"{names[0]} and {names[1]} must hold labels of one kind, got "
            f"dtype {arrays[0].dtype} and {arrays[1].dtype}: convert one of them, as "
            "with astype(str)"
        )
    if kinds[0] == "text":  # `check_shared_labels` compares the others with them
        warn_spelling(names[0], "labels", set(arrays[0].tolist()))
    try:
        return _number_classes(*arrays)
    except TypeError as error:
        raise TypeError(
            f"{names[0]} and {names[1]} must hold labels of one comparable type"
        ) from error


def _refuse_lists(name: str, labels: Iterable[object]) -> None:
    for row, label in enumerate(labels):
        if isinstance(label, (list, tuple, set, frozenset, dict, np.ndarray)):
            raise ValueError(
                f"{name} must hold one label of each sample, but row {row} has a "
                f"{type(label).__name__}: multi-label data are not supported"
            )


def warn_spelling(name: str, kind: str, texts: Iterable[object]) -> None:
    """Warn of texts that differ only in case or in spaces around them.

    Args:
        name: Name, in the warning, of the argument that holds the texts.
        kind: Noun for the texts, such as "labels".
        texts: Each text at least once; entries of other types are skipped.
    """
    alike: dict[str, set[str]] = {}
    for text in set(texts):
        if isinstance(text, str):
            alike.setdefault(text.strip().casefold(), set()).add(text)
    groups = sorted(sorted(group) for group in alike.values() if len(group) > 1)
    if groups:
        more = f", and {len(groups) - 1} more such groups" if groups[1:] else ""
        warnings.warn(
            f"{name} has the {kind} {', '.join(map(repr, groups[0]))}, which differ "
            f"only in case or spaces and count as different ones{more}: write them "
            "alike",
            UserWarning,
            stacklevel=caller_level(),
        )


def check_shared_labels(
    y: npt.ArrayLike | jax.Array,
    y_val: npt.ArrayLike | jax.Array,
    codes: np.ndarray,
    codes_val: np.ndarray,
    *,
    names: tuple[str, str] = ("y", "y_val"),
) -> None:
    """Raise if two arrays have no label in common.

    Labels of the second that the first lacks are allowed, but a label that the first
    only spells otherwise is a slip, which a warning names.

    Args:
        y: Labels, `[n]`.
        y_val: Labels, `[m]`.
        codes: Their numbers from `encode_labels`, `[n]`.
        codes_val: Numbers of the others, `[m]`.
        names: Names of the two in errors.

    Raises:
        ValueError: If no label is shared.
    """
    arrays = np.asarray(y), np.asarray(y_val)
    # A row of each class in either array, -1 if it has none (the last write wins).
    place = np.full((2, max(codes.max(), codes_val.max()) + 1), -1)
    place[0, codes] = np.arange(len(codes))
    place[1, codes_val] = np.arange(len(codes_val))
    met = (place >= 0).all(axis=0).any()
    if met and arrays[0].dtype.kind not in "USO":
        return
    first, second = (
        array[positions[positions >= 0]].tolist()
        for array, positions in zip(arrays, place, strict=True)
    )
    known = set(first)
    absent = [label for label in second if label not in known]
    spelt = {_fold_case(label): label for label in first}
    alike = [label for label in absent if _fold_case(label) in spelt]
    if not met:
        remedy = (
            "they differ in case or spaces" if alike else "give both the same names"
        )
        raise ValueError(
            f"{names[0]} and {names[1]} must share a label, but {names[0]} has "
            f"{show_labels(first)} and {names[1]} has {show_labels(second)}: {remedy}"
        )
    if alike:
        warnings.warn(
            f"{names[1]} has the label {alike[0]!r} and {names[0]} has "
            f"{spelt[_fold_case(alike[0])]!r}: labels match only if they are equal, "
            "case and spaces included",
            UserWarning,
            stacklevel=caller_level(),
        )


def _number_classes(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Number the classes of two arrays of one kind; see `encode_labels`."""
    if a.dtype == b.dtype:
        classes, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        codes = codes.astype(np.int32).reshape(-1)
        return codes[: len(a)], codes[len(a) :], len(classes)
    # Python numbers compare exactly. NumPy promotes int64 beside uint64, or beside
    # floats, to float64, which merges neighbours above 2**53.
    uniques = [np.unique(array, return_inverse=True) for array in (a, b)]
    labels = [distinct.tolist() for distinct, _ in uniques]
    classes = sorted({label for distinct in labels for label in distinct})
    code = {label: i for i, label in enumerate(classes)}
    codes_a, codes_b = (
        np.array([code[label] for label in distinct], np.int32)[inverse.reshape(-1)]
        for distinct, (_, inverse) in zip(labels, uniques, strict=True)
    )
    return codes_a, codes_b, len(classes)


def _fold_case(label: object) -> object:
    return label.strip().casefold() if isinstance(label, str) else label
