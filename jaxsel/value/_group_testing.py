"""Shapley values by group testing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Unpack

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._results.types import Values

from ._estimator import (
    ENDS,
    Batch,
    Moments,
    Part,
    State,
    honest_m2,
    moments,
    no_samples,
)
from ._evaluator import Evaluator
from ._run import run
from ._run_options import RunOptions, run_options
from ._sampling import permutation_ranks, prefix_masks, sized_coalitions
from ._stopping import MaxSamples, StoppingRule
from ._utility import Utility

_HALVES = 16
_APART = 2**32 - 1  # no sample has this number


@run_options(RunOptions)
def group_testing_shapley(
    utility: Utility,
    *,
    key: jax.Array,
    stop: StoppingRule = MaxSamples(10_000),
    **options: Unpack[RunOptions],
) -> Values:
    """Estimate the Shapley value of each training point by group testing.

    Each sample is one coalition of a random size, and updates all points: its utility
    raises the values of those in it and lowers those of the others. It usually needs
    more utilities than `tmc_shapley` for the same error, because the noise grows with
    the variance of utilities, not with that of marginal contributions.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        key: Draws the coalitions, and is the source of the utility's own key. Sample t
            depends on the key and t alone.
        stop: When to stop: asked after every 1024 coalitions. Samples are coalitions.
        **options: Owners, batches, devices, checkpoint and executor: see `RunOptions`.

    Returns:
        `Values`, `[n]`, whose sum is the utility of all points less that of none.
        `stderr` as of `tmc_shapley`.
        Costs one utility and n operations a sample.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If there is one point only, the utility is not finite, or the folder
            holds another run.

    References:
        Jia et al., Towards efficient data valuation based on the Shapley value, AISTATS
        2019, Algorithm 1. We deviate twice. Where the paper looks for values that agree
        with all estimated differences, ours are their mean, which is unbiased. And the
        mean utility of 16 coalitions of half the points, drawn beforehand, is
        subtracted from every utility: expectations stay the same, variances fall.

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
        >>> values = jaxsel.group_testing_shapley(
        ...     utility, key=jax.random.key(0), stop=value.MaxSamples(1024)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    work = Evaluator(utility, key, options)
    if work.n < 2:
        raise ValueError("utility must be of at least two points, got utility.n = 1")
    return run(_Groups(), work, stop, options)


@dataclasses.dataclass(frozen=True)
class _Groups:
    """Estimator: the mean over tests of each point's score."""

    method: str = "group_testing_shapley"
    round: int = 1024

    def init(self, work: Evaluator) -> State:
        ranks = permutation_ranks(
            jax.random.fold_in(work.key, _APART), 0, count=_HALVES, n=work.n
        )
        begun, half = time.monotonic(), work.n // 2
        halves = prefix_masks(ranks, jnp.arange(_HALVES), half, half, block=1)
        centre = work(halves).mean()
        return {
            **no_samples(work.n),
            "run_seconds": np.array(time.monotonic() - begun),
            ENDS: work.ends(),
            "centre": centre,
        }

    def rows(self, work: Evaluator, count: int) -> int:
        return work.rows

    def sample(self, work: Evaluator, state: State, batch: Batch) -> Iterator[Part]:
        n = work.n
        chance = _chance(n)
        cumulative = (chance.cumsum() / chance.sum()).astype(np.float32)
        none, full = state[ENDS]
        first, used, rows = batch
        masks = sized_coalitions(work.key, first, used, cumulative, count=rows, n=n)
        # Control variates: subtracting a constant keeps the expectation, and scores
        # centred in each test sum to the gap of the ends, as Shapley values do.
        gain = (work(masks)[:used] - state["centre"]) * chance.sum()
        members = np.asarray(masks)[:used]
        scores = gain[:, None] * (members - members.mean(1, keepdims=True))
        yield Part(used, moments(scores + (full - none) / n))

    def finalize(self, state: State) -> Moments:
        gap = abs(np.diff(state[ENDS])[0]) * _chance(len(state["mean"])).sum()
        return int(state["count"]), state["mean"], honest_m2(state, float(gap))


def _chance(n: int) -> np.ndarray:
    """Return the chance of each size from 1 to n - 1, times a constant."""
    sizes = np.arange(1, n)
    return 1 / sizes + 1 / (n - sizes)
