"""Training again on parts of a training set, in the order of its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_choice
from jaxsel._runs.progress import track

from ._application import (
    ValueFunction,
    check_methods,
    check_source,
    draw_runs,
    features,
    lowest_first,
    sizes_of,
    value_all,
    valued_rows,
    warn_if_seen,
)
from ._curves import Curves, stack
from ._learners import Scorer

Order = Literal["lowest", "highest"]


def retrained(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    name: str,
    order: Order,
    shares: np.ndarray,
    adding: bool,
    key: jax.Array,
    options: Mapping[str, Any],
) -> Curves:
    """Retrain after removing or adding each share of the training points.

    See `point_removal` for the arguments; `name` names the application, and `adding`
    tells addition from removal.
    """
    sizes, embed = sizes_of(options), options["embed"]
    check_choice("order", order, ("lowest", "highest"))
    check_methods(methods)
    source = check_source(x, y)
    runs = draw_runs(
        source, sizes, seeds=options["seeds"], key=key, balanced=options["balanced"]
    )
    warn_if_seen(embed, source.x[valued_rows(runs, 0)])
    n = sizes["n"]
    counts = [round(float(share) * n) for share in shares]
    accuracies, reference = [], []
    for run in track(runs, progress=options["progress"], label=name):
        (x_train, y_train), (x_val, y_val), (x_test, y_test) = map(
            source.take, run.parts
        )
        embedded = features(embed, x_train)
        values = value_all(
            methods, embedded, y_train, features(embed, x_val), y_val, run.keys
        )
        if options["embed_learner"]:
            x_train, x_test = embedded, features(embed, x_test)
        test = x_test, y_test
        score = Scorer(options["learner"], x_train, y_train, [test], run.keys.learn)
        curves = {}
        for method, v in values.items():
            rows = lowest_first(v if order == "lowest" else -v)
            parts = [rows[:c] if adding else rows[c:] for c in counts]
            curves[method] = np.concatenate([score(part) for part in parts])
        accuracies.append(curves)
        reference.append({"all": score(np.arange(n))[0]})
    curves = stack(accuracies)
    text = ", ".join(f"{argument}={size}" for argument, size in sizes.items())
    return Curves(
        name=f"{name} ({order} values first, {text})",
        x=shares,
        curves=curves,
        summary={m: accuracy_summary(shares, c) for m, c in curves.items()},
        reference=stack(reference),
        xlabel=f"Share of training data {'added' if adding else 'removed'}",
        ylabel="Test accuracy",
        percent_x=True,
    )


def accuracy_summary(x: np.ndarray, curves: np.ndarray) -> dict[str, np.ndarray]:
    """Return the mean along each of `[seeds, p]` curves, and where it ends."""
    width = x[-1] - x[0]
    mean = np.trapezoid(curves, x, axis=1) / width if width else curves.mean(1)
    return {"mean_accuracy": mean, "last_accuracy": curves[:, -1]}


def removal_shares(
    requested: npt.ArrayLike | None, default: np.ndarray, n: int
) -> np.ndarray:
    """Return rising shares to remove, after which a point is left."""
    shares = _rising("remove", requested, default)
    if shares[0] < 0 or round(shares[-1] * n) >= n:
        raise ValueError(
            f"remove must be 0 or more, and leave at least one of {n} points, got "
            f"{shares[0]:g} to {shares[-1]:g}"
        )
    return shares


def addition_shares(
    requested: npt.ArrayLike | None, default: np.ndarray, n: int
) -> np.ndarray:
    """Return rising shares to add, of which the first is a point at least."""
    shares = _rising("add", requested, default)
    if round(shares[0] * n) < 1 or shares[-1] > 1:
        raise ValueError(
            f"add must come to at least one of {n} points, and be at most 1, got "
            f"{shares[0]:g} to {shares[-1]:g}"
        )
    return shares


def _rising(
    name: str, requested: npt.ArrayLike | None, default: np.ndarray
) -> np.ndarray:
    shares = np.asarray(default if requested is None else requested, np.float64)
    good = shares.ndim == 1 and shares.size and np.all(np.isfinite(shares))
    if not good or np.any(np.diff(shares) <= 0):
        raise ValueError(
            f"{name} must hold rising shares of shape [p], got {requested}"
        )
    return shares
