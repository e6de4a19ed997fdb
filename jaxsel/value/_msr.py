"""The Banzhaf value by maximum sample reuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Unpack

import jax
import numpy as np

from jaxsel._results.types import Values

from ._estimator import ENDS, Batch, Moments, Part, State, Sums, honest_m2, no_samples
from ._evaluator import Evaluator
from ._run import run
from ._run_options import RunOptions, run_options
from ._sampling import random_coalitions
from ._stopping import MaxSamples, StoppingRule
from ._utility import Utility


@run_options(RunOptions)
def banzhaf(
    utility: Utility,
    *,
    key: jax.Array,
    stop: StoppingRule = MaxSamples(10_000),
    **options: Unpack[RunOptions],
) -> Values:
    """Estimate the Banzhaf value of each training point.

    Each sample is a coalition that every point joins with probability 1/2, and updates
    all points: the value of a point is the mean utility of the coalitions with it minus
    the mean of those without it. Use it if the utility is noisy: of all semivalues, its
    order of points is the most robust to noise.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        key: Draws the coalitions, and is the source of the utility's own key. Sample t
            depends on the key and t alone.
        stop: When to stop: asked after every 1024 coalitions. Samples are coalitions.
        **options: Owners, batches, devices, checkpoint and executor: see `RunOptions`.

    Returns:
        `Values`, `[n]`; NaN for a point that is in no coalition, or in all. `count` is
        the number of coalitions. `m2` is scaled so that `stderr` is the standard error
        of the difference of the two means, each of them widened as for `tmc_shapley`
        where few coalitions say all; NaN where one has a single coalition. Costs one
        utility and O(n) operations for each sample.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If the utility is not finite, or the folder holds another run.

    References:
        Wang and Jia, Data Banzhaf: a robust data valuation framework for machine
        learning, AISTATS 2023 (the MSR estimator).

    Examples:
        >>> import jax
        >>> import numpy as np
        >>> import jaxsel
        >>> from jaxsel import value
        >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
        >>> y = np.array([0, 1, 0, 1, 1, 1])  # row 1 is wrong
        >>> x_val, y_val = np.array([[0.04], [0.14], [1.06]]), np.array([0, 0, 1])
        >>> learner = value.NearestCentroid()
        >>> utility = value.ModelUtility(learner, x, y, x_val, y_val)
        >>> values = jaxsel.banzhaf(
        ...     utility, key=jax.random.key(0), stop=value.MaxSamples(1024)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    work = Evaluator(utility, key, options)
    return run(_Reuse(), work, stop, options)


@dataclasses.dataclass(frozen=True)
class _Reuse:
    """Two means for each point: of coalitions with it, and without it."""

    method: str = "banzhaf"
    round: int = 1024

    def init(self, work: Evaluator) -> State:
        return {**no_samples((2, work.n), each=True), ENDS: work.ends()}

    def rows(self, work: Evaluator, count: int) -> int:
        return work.rows

    def sample(self, work: Evaluator, state: State, batch: Batch) -> Iterator[Part]:
        first, used, rows = batch
        masks = random_coalitions(work.key, first, used, count=rows, n=work.n)
        utilities = work(masks)[:used]
        yield Part(used, _two_groups(np.asarray(masks)[:used], utilities))

    def finalize(self, state: State) -> Moments:
        count, mean = state["count"], state["mean"]
        m2 = honest_m2(state, float(abs(np.diff(state[ENDS])[0])))
        total = int(count[:, 0].sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = (m2 / ((count - 1) * count)).sum(0)
            variance = np.where((count > 1).all(0), variance, np.nan)
            values = np.where((count > 0).all(0), mean[0] - mean[1], np.nan)
        # `Values.stderr` divides by (total - 1) total: the variance of the difference.
        return total, values, variance * (total - 1) * total


def _two_groups(masks: np.ndarray, utilities: np.ndarray) -> Sums:
    """Return the moments of those with each point and without, `[2, n]` each."""
    centre = utilities.mean()
    apart = utilities - centre  # so that the squares below do not cancel
    members = masks.astype(np.float64)
    inside = np.stack([np.ones_like(apart), apart, apart**2]) @ members
    all_of = np.array([len(apart), apart.sum(), (apart**2).sum()])[:, None]
    count, total, squares = np.stack([inside, all_of - inside], axis=1)
    mean = total / np.maximum(count, 1)
    m2 = np.maximum(squares - count * mean**2, 0.0)
    with_each = np.stack([masks, ~masks])
    low = np.where(with_each, utilities[:, None], np.inf).min(1)
    high = np.where(with_each, utilities[:, None], -np.inf).max(1)
    return count, np.where(count > 0, centre + mean, 0.0), m2, low, high
