"""Shapley and Beta Shapley values by sampling permutations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Unpack

import jax
import numpy as np
from scipy import special

from jaxsel._inputs.checks import check_count, check_positive
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
from ._prefixes import Walk, first_rows
from ._run import run
from ._run_options import RunOptions, run_options
from ._sampling import permutation_ranks
from ._stopping import MaxSamples, StoppingRule
from ._utility import Utility
from ._weights import check_beta

_NEGLIGIBLE = 1e-9  # weight of the largest, or smallest, coalitions left out


@run_options(RunOptions)
def tmc_shapley(
    utility: Utility,
    *,
    key: jax.Array,
    stop: StoppingRule = MaxSamples(1000),
    tolerance: float = 0.01,
    patience: int = 5,
    **options: Unpack[RunOptions],
) -> Values:
    """Estimate the Shapley value of each training point from random permutations.

    Each sample adds the points one after the other, in a random order, and records by
    how much each raises the utility. Truncation ends a permutation when the remaining
    gain seems negligible. This causes a small bias, which the standard error does not
    show. `tolerance=0` turns truncation off; values then sum to the utility of all
    points minus that of none.

    Prefixes of 64 permutations are trained in one batch. A model that can start from a
    related one starts from the prefix of the previous block. Estimators of scikit-learn
    and slow functions gain nothing from batches, and complete one permutation after the
    other, or as many together as take 0.1 s.

    Args:
        utility: The worth of coalitions: a `ModelUtility`, or made by `as_utility`.
        key: Draws the permutations, and is the source of the utility's own key. Sample
            t depends on the key and t alone.
        stop: When to stop: asked after every 64 permutations. Samples are permutations.
        tolerance: A permutation ends when the utility of its prefixes differs from that
            of all points by at most this share of the difference between all and none.
        patience: How many prefixes in a row must do so; the empty one does not count.
        **options: Owners, batches, devices, checkpoint and executor: see `RunOptions`.

    Returns:
        `Values`, `[n]`; `count` is the number of permutations. `m2` is scaled so that
        `stderr` is honest where few samples say all, or none: one more sample as far
        off as the farthest counts where fewer than eight make up the squares (of less
        than 64 samples, one in eight of them), and of equal samples `stderr` is about
        1.5 / count times the reach of all points' samples; NaN of a single one.
        Costs up to n - 1 utilities a sample.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is out of range, the utility is not finite, or the
            folder holds another run.

    References:
        Ghorbani and Zou, Data Shapley: equitable valuation of data for machine
        learning, ICML 2019, Algorithm 1.

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
        >>> values = jaxsel.tmc_shapley(
        ...     utility, key=jax.random.key(0), stop=value.MaxSamples(128)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    tolerance = check_positive("tolerance", tolerance, zero=True)
    patience = check_count("patience", patience)
    work = Evaluator(utility, key, options)
    estimator = _Permutations(
        method=f"tmc_shapley(tolerance={tolerance:g}, patience={patience})",
        tolerance=tolerance,
        patience=patience,
        round=_round(work),
    )
    return run(estimator, work, stop, options)


@run_options(RunOptions)
def beta_shapley(
    utility: Utility,
    *,
    key: jax.Array,
    alpha: float = 16.0,
    beta: float = 1.0,
    stop: StoppingRule = MaxSamples(1000),
    **options: Unpack[RunOptions],
) -> Values:
    """Estimate the Beta(alpha, beta) Shapley value of each training point.

    Beta(1, 1) is the Shapley value. A larger alpha gives more weight to small
    coalitions, where contributions are larger compared with the noise; a larger beta
    gives more weight to large ones. The largest coalitions, which together have less
    than 1e-9 of the weight, are left out: for Beta(16, 1), those of more than about
    three quarters of the points.

    Arguments, result and errors as for `tmc_shapley`, and:

    Args:
        utility: The worth of coalitions.
        key: Draws the permutations.
        alpha: First parameter, above zero, in the convention of Kwon and Zou.
        beta: Second parameter, above zero.
        stop: When to stop; samples are permutations.
        **options: Owners, batches, devices, checkpoint and executor: see `RunOptions`.

    References:
        Kwon and Zou, Beta Shapley: a unified and noise-reduced data valuation framework
        for machine learning, AISTATS 2022, equation 5.

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
        >>> values = jaxsel.beta_shapley(
        ...     utility, key=jax.random.key(0), alpha=4, stop=value.MaxSamples(128)
        ... )
        >>> print(values.bottom(1))
        [1]
    """
    check_beta(alpha, beta)
    work = Evaluator(utility, key, options)
    estimator = _Permutations(
        method=f"beta_shapley(alpha={alpha:g}, beta={beta:g})",
        parameters=(float(alpha), float(beta)),
        round=_round(work),
    )
    return run(estimator, work, stop, options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Permutations:
    """The mean of weighted marginal contributions."""

    method: str
    tolerance: float = 0.0
    patience: int = 1
    parameters: tuple[float, float] | None = None
    round: int

    def init(self, work: Evaluator) -> State:
        lanes = _lanes(work, self.round)
        rows = first_rows(work, lanes, self._used(work.n)[1])
        ends = work.ends(rows, cold=True)
        return {**no_samples(work.n), ENDS: ends}

    def rows(self, work: Evaluator, count: int) -> int:
        return _lanes(work, count)

    def _used(self, n: int) -> tuple[np.ndarray, tuple[int, int]]:
        """Return the weight of each place, and the sizes of the prefixes it takes."""
        weights = np.ones(n)
        if self.parameters is not None:
            weights = marginal_weights(n, *self.parameters)
        used = np.flatnonzero(weights)
        # Of a point at place p, the prefixes with p and with p + 1 points.
        return weights, (max(1, int(used[0])), min(n - 1, int(used[-1]) + 1))

    def sample(self, work: Evaluator, state: State, batch: Batch) -> Iterator[Part]:
        n = work.n
        weights, sizes = self._used(n)
        first, many, lanes = batch
        ranks = permutation_ranks(work.key, first, count=lanes, n=n)
        walk = Walk.start(work, lanes, many, state[ENDS], sizes)
        walk = walk.restored(state, work.structure)
        while not walk.done(sizes):
            walk.advance(
                work,
                ranks,
                sizes,
                tolerance=self.tolerance,
                patience=self.patience,
            )
            if not walk.done(sizes):
                yield Part(0, None, ahead=walk.share(sizes), begun=walk.arrays)
        # Behind its end utilities are NaN, or left from the last block: no gain.
        kept = (np.arange(n) < walk.ended[:, None]) & (weights > 0)
        gained = np.where(kept, np.diff(walk.utilities, axis=1), 0.0) * weights
        places = np.asarray(ranks)[:many]
        rows = np.take_along_axis(gained, places, axis=1)
        yield Part(many, moments(rows))

    def finalize(self, state: State) -> Moments:
        m2 = honest_m2(state, float(abs(np.diff(state[ENDS])[0])))
        return int(state["count"]), state["mean"], m2


def _round(work: Evaluator) -> int:
    """Return the number of permutations of a round.

    Of few points, models that start from those of smaller prefixes take fewer steps
    where more permutations advance together, by fewer sizes a call.
    """
    return 256 if work.skips_empty and work.n <= 256 else 64


def _lanes(work: Evaluator, count: int) -> int:
    """Return the number of permutations, of `count`, that advance together."""
    most = 1 << (work.together.bit_length() - 1)
    return min(1 << (count - 1).bit_length(), most)


def marginal_weights(n: int, alpha: float, beta: float) -> np.ndarray:
    """Return the weight of a marginal by the number of points before, `[n]`.

    n times the chance of so many points, where they are BetaBinomial(n - 1; beta,
    alpha): the mean over all places is 1. Tails of a share below 1e-9 are zero.

    Args:
        n: Number of training points.
        alpha: First parameter, above zero, in the convention of Kwon and Zou.
        beta: Second parameter, above zero.
    """
    before = np.arange(n)
    choose = -special.betaln(n - before, before + 1.0) - np.log(n)
    chance = np.exp(
        choose
        + special.betaln(before + beta, n - 1 - before + alpha)
        - special.betaln(beta, alpha)
    )
    tails = np.minimum(chance.cumsum(), chance[::-1].cumsum()[::-1])
    return np.where(tails < _NEGLIGIBLE, 0.0, n * chance)
