"""Point removal and addition: accuracy as the best or the worst points go or come."""

# The decorator fills in all options.
# pyright: reportTypedDictNotRequiredAccess=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

import jax
import numpy as np
import numpy.typing as npt

from ._application import ValueFunction
from ._curves import Curves
from ._options import TaskOptions, task_options
from ._retrained import Order, addition_shares, removal_shares, retrained


@task_options(TaskOptions)
def point_removal(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    order: Order = "highest",
    remove: npt.ArrayLike | None = None,
    key: jax.Array,
    **options: Unpack[TaskOptions],
) -> Curves:
    """Remove training points in the order of their values, and train again.

    Where values are right, removing the highest first hurts soonest, and removing the
    lowest first hurts last, or helps.

    Args:
        x: Source, images `[m, h, w, c]` or a table `[m, d]`. Bytes count as 0..1;
            columns of a table must be on one scale.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        order: "highest" or "lowest": which points go first.
        remove: `[p]`, rising shares of the training set, 0 or more and below 1; 0 to
            0.5 in steps of 0.05 if None.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`.

    Returns:
        Test accuracy against the share removed, `[seeds, p]`. Measures are
        "mean_accuracy" along the curve (its area over its width) and "last_accuracy";
        the reference "all" is the accuracy with all training points.

    Costs one call of each method, and at most p trainings for each, for each seed.

    Raises:
        ValueError: If there are too few rows, a share is out of range, or a method's
            values do not fit.
        TypeError: If a method is not a function.

    References:
        Ghorbani and Zou, Data Shapley, ICML 2019, section 4.
    """
    shares = removal_shares(remove, np.arange(11) / 20, options["n"])
    return retrained(
        x,
        y,
        methods,
        name="Point removal",
        order=order,
        shares=shares,
        adding=False,
        key=key,
        options=options,
    )


@task_options(TaskOptions)
def point_addition(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    order: Order = "highest",
    add: npt.ArrayLike | None = None,
    key: jax.Array,
    **options: Unpack[TaskOptions],
) -> Curves:
    """Start from nothing, add points in the order of their values, and train again.

    Where values are right, adding the highest first helps soonest, and adding the
    lowest first helps last.

    Args:
        x: Source, as for `point_removal`.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        order: "highest" or "lowest": which points come first.
        add: `[p]`, rising shares of the training set, above 0 and at most 1; 0.05 to 1
            in steps of 0.05 if None.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`.

    Returns:
        Test accuracy against the share added, `[seeds, p]`, with the measures of
        `point_removal`.

    Costs as `point_removal`.

    Raises:
        ValueError: As `point_removal`.
        TypeError: If a method is not a function.

    References:
        Ghorbani and Zou, Data Shapley, ICML 2019, section 4.
    """
    shares = addition_shares(add, np.arange(1, 21) / 20, options["n"])
    return retrained(
        x,
        y,
        methods,
        name="Point addition",
        order=order,
        shares=shares,
        adding=True,
        key=key,
        options=options,
    )
