"""Summarisation: how much of a training set can go without loss."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
import numpy.typing as npt

from ._application import Embed, ValueFunction
from ._curves import Curves
from ._learners import MLP_LEARNER, Learner
from ._retrained import removal_shares, retrained


def summarisation(
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    methods: Mapping[str, ValueFunction],
    *,
    remove: npt.ArrayLike | None = None,
    n: int = 1000,
    n_val: int = 500,
    n_test: int = 1000,
    balanced: bool = True,
    learner: Learner = MLP_LEARNER,
    embed_learner: bool = False,
    seeds: int = 10,
    key: jax.Array,
    embed: Embed | None = None,
    progress: bool = False,
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
        n: Training points.
        n_val: Validation points, which only value functions see.
        n_test: Test points, for accuracy; nothing else sees them.
        balanced: Whether each part gets every class equally often, to within one.
        learner: `accuracy(x, y, x_test, y_test, key)`, such as `retrain_mlp()`.
        embed_learner: Whether the learner too sees embedded samples.
        seeds: Number of repetitions.
        key: Key of every draw; repetition s has `fold_in(key, s)`.
        embed: Optional function from samples to features `[n, d]`, which value
            functions then see. It must come from other data: see `train_embedding`.
        progress: Whether to show a bar.

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
        shares=removal_shares(remove, np.arange(51) / 100, n),
        adding=False,
        sizes={"n": n, "n_val": n_val, "n_test": n_test},
        balanced=balanced,
        learner=learner,
        embed_learner=embed_learner,
        seeds=seeds,
        key=key,
        embed=embed,
        progress=progress,
    )
