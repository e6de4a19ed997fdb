"""One threshold for each class: some classes are harder than others."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import as_array, check_choice, check_same_length
from jaxsel._inputs.show import brief

from ._inputs import as_losses
from ._threshold import LossThreshold, loss_threshold

Missing = Literal["pooled", "keep", "drop"]


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassThresholds:
    """Largest losses to keep, one threshold for each class.

    Attributes:
        thresholds: Thresholds by class, of classes with benchmark and other losses.
        otherwise: The largest loss that is kept of any other class.
    """

    thresholds: dict[Any, LossThreshold]
    otherwise: float

    def keeps(
        self, losses: npt.ArrayLike | jax.Array, labels: npt.ArrayLike | jax.Array
    ) -> np.ndarray:
        """Return which losses are kept, `[n]` of bool.

        Raises:
            ValueError: If the losses are not finite, the lengths differ, or a label is
                missing (NaN).
        """
        values, classes = as_losses("losses", losses), _as_labels("labels", labels)
        check_same_length("losses", values, "labels", classes)
        limits = np.full(len(values), self.otherwise)
        for label, threshold in self.thresholds.items():
            limits[classes == label] = threshold.value
        return values <= limits


def class_thresholds(
    benchmark_losses: npt.ArrayLike | jax.Array,
    benchmark_labels: npt.ArrayLike | jax.Array,
    losses: npt.ArrayLike | jax.Array,
    labels: npt.ArrayLike | jax.Array,
    *,
    missing: Missing = "pooled",
) -> ClassThresholds:
    """Find a threshold for each class, from the losses of that class alone.

    The clean samples of a hard class have larger losses, which a single threshold for
    all classes would drop. In return, each threshold rests on fewer benchmark losses.

    Args:
        benchmark_losses: Losses of clean samples, `[m]`.
        benchmark_labels: Their classes, `[m]`.
        losses: Losses of the samples to choose from, `[n]`.
        labels: Their labels, `[n]`.
        missing: Treatment of samples of a class that the benchmark lacks: the
            threshold of all losses ("pooled"), or "keep" or "drop" all of them.

    Returns:
        The thresholds. Costs a sort by class, and a threshold of each class.

    Raises:
        ValueError: If lengths differ, losses are not finite or none, a label is missing
            (NaN), labels are numbers on one side only, or `missing` is none of these.
    """
    check_choice("missing", missing, ("pooled", "keep", "drop"))
    sides: list[tuple[np.ndarray, np.ndarray]] = []
    for name, values, classes in (
        ("benchmark_", benchmark_losses, benchmark_labels),
        ("", losses, labels),
    ):
        checked = as_losses(f"{name}losses", values)
        known = _as_labels(f"{name}labels", classes)
        check_same_length(f"{name}losses", checked, f"{name}labels", known)
        if known.ndim != 1:
            raise ValueError(f"{name}labels must have shape [n], got {known.shape}")
        if not len(checked):
            raise ValueError(f"{name}losses must hold at least one loss")
        sides.append((checked, known))
    (clean, clean_labels), (all_losses, all_labels) = sides
    if (clean_labels.dtype.kind in "OSU") != (all_labels.dtype.kind in "OSU"):
        raise ValueError(
            "benchmark_labels and labels must be of one kind, got "
            f"{clean_labels.dtype} and {all_labels.dtype}"
        )
    known, others = _by_class(clean, clean_labels), _by_class(all_losses, all_labels)
    thresholds = {
        label: loss_threshold(known[label], class_losses)
        for label, class_losses in others.items()
        if label in known
    }
    otherwise = {"keep": np.inf, "drop": -np.inf}.get(missing)
    if otherwise is None:
        otherwise = loss_threshold(clean, all_losses).value
    return ClassThresholds(thresholds=thresholds, otherwise=otherwise)


def _as_labels(name: str, value: Any) -> np.ndarray:
    """Return labels, none of which is NaN: that equals no other, nor itself."""
    labels = np.asarray(as_array(name, value))
    missing = np.flatnonzero(labels != labels)
    if missing.size:
        raise ValueError(
            f"{name} must name a class for each sample, but entry {missing[0]} is NaN "
            f"({missing.size} of {len(labels)} are): leave these samples out, or give "
            "them a class of their own"
        )
    return labels


def _by_class(losses: np.ndarray, labels: np.ndarray) -> dict[Any, np.ndarray]:
    """Return the losses of each class."""
    names, starts = np.unique(np.sort(labels), return_index=True)
    parts = np.split(losses[np.argsort(labels, kind="stable")], starts[1:])
    return dict(zip(names.tolist(), parts, strict=True))
