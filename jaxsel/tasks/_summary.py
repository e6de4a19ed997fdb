"""Summarisation: how much of a training set can go without loss."""

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
from ._learners import MLP_LEARNER
from ._options import TaskOptions, task_options
from ._retrained import removal_shares, retrained


@task_options(TaskOptions, balanced=True, learner=MLP_LEARNER)
def summarisation(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    remove: npt.ArrayLike | None = None,
    key: jax.Array,
    **options: Unpack[TaskOptions],
) -> Curves:
    """Remove the lowest values first, and see how long the accuracy holds.

    The study's protocol is that of the defaults on Adult (one-hot columns): 1000
    training, 500 validation and 1000 held-out points of balanced classes, a perceptron
    with one hidden layer, K = 5 in the KNN values, and steps of 1 % up to 50 %.

    Args:
        x: Source, images `[m, h, w, c]` or a table `[m, d]`. Bytes count as 0..1;
            columns of a table must be on one scale.
        y: Its classes `[m]`, counted from 0.
        methods: Value functions `f(x, y, x_val, y_val, key)` by name. "Random" is
            added.
        remove: `[p]`, rising shares of the training set, 0 or more and below 1; 0 to
            0.5 in steps of 0.01 if None.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        **options: Sizes, learner, seeds and features: see `TaskOptions`.

    Returns:
        Test accuracy against the share removed, `[seeds, p]`, with the measures of
        `point_removal`.

    Costs one call of each method, and at most p trainings for each, for each seed: 51
    with the default, of which the first serves all methods.

    Raises:
        ValueError: If there are too few rows, a share is out of range, or a method's
            values do not fit.
        TypeError: If a method is not a function.

    References:
        Jia et al., Scalability vs. utility, CVPR 2021, section 4.3 and appendix E.3.
    """
    return retrained(
        x,
        y,
        methods,
        name="Summarisation",
        order="lowest",
        shares=removal_shares(remove, np.arange(51) / 100, options["n"]),
        adding=False,
        key=key,
        options=options,
    )
