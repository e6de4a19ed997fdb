"""Learners and training data as callers give them, checked."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import align
from jaxsel._inputs.checks import (
    as_array,
    as_type,
    check_concrete,
    check_features,
    check_finite,
    check_numeric,
    check_same_length,
    refuse_one_class,
)
from jaxsel._inputs.labels import as_labels, encode_labels
from jaxsel._inputs.scale import origin
from jaxsel._inputs.usual_mistakes import doubt_classes, doubt_rounding

from ._examples import Examples, Learner
from ._learners import SklearnLearner


def as_learner(learner: Any) -> Learner:
    """Return a learner: itself, or an estimator of scikit-learn in `SklearnLearner`.

    Args:
        learner: A learner of this room, or has `fit`, `predict` and `get_params`.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(learner, type):
        raise TypeError(
            f"learner must be an instance, got the class {learner.__name__}: write "
            f"{learner.__name__}()"
        )
    if hasattr(learner, "prepare") and hasattr(learner, "host"):
        return cast(Learner, learner)
    if hasattr(learner, "fit") and hasattr(learner, "get_params"):
        return cast(Learner, SklearnLearner(learner))
    raise TypeError(
        "learner must be one of jaxsel.value, such as value.LogisticRegression(), or "
        f"an estimator of scikit-learn, got {learner!r}"
    )


def numbered(learner: Learner, labels: Any, data: Examples) -> Learner:
    """Return a learner with class weights by code, if it has any.

    Args:
        learner: Any; those of jaxsel know nothing of labels.
        labels: `[n]`.
        data: Examples of these, with codes for labels.
    """
    rename = getattr(learner, "numbered", None)
    if rename is None or not data.n_classes:
        return learner
    names: list[Any] = np.asarray(as_labels("y", labels)).tolist()
    return rename(dict(zip(names, np.asarray(data.y).tolist(), strict=True)))


def examples(
    learner: Learner,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    targets: bool = False,
    names: tuple[str, str] = ("x_val", "y_val"),
) -> tuple[Examples, tuple[jax.Array, np.ndarray]]:
    """Check data; return training examples, and validation data in the same codes.

    Raises:
        TypeError: If arrays are of the wrong kind.
        ValueError: If shapes do not fit, or numbers are not finite.
    """
    x_val = align(x, y, x_val, y_val, names=names)
    rows: dict[str, np.ndarray] = {}
    for name, value in (("x", x), (names[0], x_val)):
        array = as_array(name, value)
        if array.ndim == 2 or array.dtype == object:
            array = check_features(name, value)
        else:
            check_numeric(name, array)
            check_finite(name, array)
        rows[name] = np.asarray(array)
    if rows["x"].shape[1:] != rows[names[0]].shape[1:]:
        raise ValueError(
            f"x and {names[0]} must have samples of one shape, got "
            f"{rows['x'].shape[1:]} and {rows[names[0]].shape[1:]}"
        )
    zero = None
    if rows["x"].ndim == 2 and getattr(learner, "shift_invariant", False):
        zero = origin(rows["x"])
    elif rows["x"].ndim == 2:
        doubt_rounding("x", rows["x"], x)
    for name, array in rows.items():
        near = array if zero is None or not zero.any() else array - zero
        rows[name] = as_type(near, np.float32)
        check_finite(name, rows[name])
    if targets:
        if not learner.regression:
            raise ValueError(
                f"metric 'r2' is for numeric targets, and {type(learner).__name__} "
                "predicts classes"
            )
        checked: list[np.ndarray] = []
        for name, value in (("y", y), (names[1], y_val)):
            array = np.asarray(as_array(name, value))
            check_numeric(name, array)
            if array.ndim != 1:
                raise ValueError(
                    f"{name} must be targets of shape [n], got {array.shape}"
                )
            check_finite(name, array)
            checked.append(array.astype(np.float32))
        (codes, codes_val), classes = checked, 0
        if np.ptp(codes_val) == 0:
            raise ValueError(f"{names[1]} must vary for metric 'r2', got equal targets")
    else:
        for name, value in (("y", y), (names[1], y_val)):
            array = np.asarray(as_labels(name, value))
            if array.dtype.kind == "f" and (array != np.round(array)).any():
                raise ValueError(
                    f"{name} must hold class labels, got "
                    f"{array[array != np.round(array)][0]}: for numeric targets use "
                    "metric='r2' and a learner of targets, such as RidgeRegression()"
                )
        codes, codes_val, classes = encode_labels(y, y_val, names=("y", names[1]))
        doubt_classes(np.asarray(as_labels("y", y)), classes)
        if classes < 2:
            both = "y" if names[1] == "y" else f"y and {names[1]}"
            refuse_one_class(both, as_labels("y", y))
    check_same_length("x", rows["x"], "y", codes)
    check_same_length(names[0], rows[names[0]], names[1], codes_val)
    check_concrete("x", jnp.zeros(()))  # inside jit all is traced
    data = Examples(x=jnp.asarray(rows["x"]), y=jnp.asarray(codes), n_classes=classes)
    return learner.prepare(data), (jnp.asarray(rows[names[0]]), codes_val)
