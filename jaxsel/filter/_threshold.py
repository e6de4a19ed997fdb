"""The threshold of losses that matches their distribution to a clean benchmark."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.show import compared
from jaxsel._inputs.usual_mistakes import doubt
from jaxsel._runs.executor import Executor, check_executor

from ._band import Band, solutions
from ._inputs import Losses, as_benchmark, as_losses, as_source
from ._objective import Benchmark
from ._solve import run, solve
from ._sorted import Sorted
from ._source import Streamed

if TYPE_CHECKING:
    import numpy.typing as npt

_APART, _FEW = 0.9, 20  # distance from which losses are unlike, of as many at least
_DRAWN = 0.6  # share of the benchmark's losses that a replicate of `band` draws


@compared
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossThreshold:
    """The largest loss to keep.

    Attributes:
        value: Samples with at most this loss are kept.
        distance: KS distance between the kept losses and the benchmark's, in [0, 1].
        n_kept: Number of losses kept.
        n: Number of losses.
        n_benchmark: Number of benchmark losses.
        share: Share of the weight that is kept: `n_kept / n` without weights.
        benchmark: The benchmark's distribution, for `band`.
        source: The losses, for `band`; None if the clients have them.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> rng = np.random.default_rng(0)
        >>> benchmark = rng.gamma(1, 0.3, 200)  # losses of clean samples
        >>> losses = np.concatenate([rng.gamma(1, 0.3, 500), rng.gamma(20, 1, 300)])
        >>> threshold = jaxsel.loss_threshold(benchmark, losses)
        >>> print(threshold.n, threshold.n_benchmark)
        800 200
        >>> bool(threshold.keeps(losses).sum() == threshold.n_kept)
        True
    """

    value: float
    distance: float
    n_kept: int
    n: int
    n_benchmark: int
    share: float
    benchmark: Benchmark = dataclasses.field(repr=False, compare=False)
    source: Sorted | Streamed | None = dataclasses.field(
        default=None, repr=False, compare=False
    )

    def keeps(self, losses: npt.ArrayLike | jax.Array) -> np.ndarray:
        """Return which losses are kept, `[n]` of bool.

        Raises:
            ValueError: If they are not finite, or have another shape.
        """
        return as_losses("losses", losses) <= np.float64(self.value)

    def band(
        self,
        key: jax.Array,
        replicates: int = 200,
        *,
        level: float = 0.9,
        executor: Executor | None = None,
    ) -> Band:
        """Estimate how far the threshold depends on the benchmark's sample.

        Benchmark losses are drawn again with replacement, and the threshold is found
        anew; the other losses stay. Takes no pass over these more than a few, for all
        replicates together; on an executor a few for each range of replicates, of which
        there are two a worker.

        A replicate draws six tenths of the benchmark's losses. The threshold minimises
        a maximum, which a bootstrap of as many losses as there are imitates too
        narrowly: bands of level .9 held the threshold of an endless benchmark in .84 of
        540 runs (60, 200 and 1000 losses, three kinds of others), and with six tenths
        in .92.

        Args:
            key: Of the draws.
            replicates: How often.
            level: Share of the replicates between the band's ends.
            executor: Where ranges of replicates are computed: anything with the
                `submit` of `concurrent.futures`. Results are the same, and a range is
                computed again where its worker is lost. The losses are sent to each
                worker; a function that returns them must be picklable.

        Returns:
            The thresholds, and the quantiles that leave out as many at either end.

        Raises:
            TypeError: If `replicates` is no whole number, `executor` is none, or the
                losses can't be sent to it.
            ValueError: If it is less than 1, `level` is not in (0, 1), or the losses
                are with clients.
            RuntimeError: If the worker of a range is lost again and again.

        References:
            Efron, Bootstrap methods: another look at the jackknife, Annals of
            Statistics 7, 1979; Bickel, Götze and van Zwet, Resampling fewer than n
            observations, Statistica Sinica 7, 1997.
        """
        check_count("replicates", replicates)
        if not 0 < check_positive("level", level) < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        benchmark, source = self.benchmark, self.source
        if source is None:
            raise ValueError("band needs the losses, which are with the clients here")
        if executor is not None:
            check_executor(executor)
        drawn = math.ceil(_DRAWN * self.n_benchmark)
        replicas = solutions(benchmark, source, drawn, key, replicates, executor)
        values = np.array([solution.value for solution in replicas])
        # As many outside on either side; rounded first, as .05 of 200 lies below 10.
        outside = int(round((1 - level) / 2 * replicates, 9))
        low, high = np.sort(values)[[outside, replicates - 1 - outside]]
        return Band(
            values=values,
            shares=np.array([solution.kept for solution in replicas])
            / replicas[0].total,
            low=float(low),
            high=float(high),
            level=level,
        )


def loss_threshold(
    benchmark_losses: npt.ArrayLike | jax.Array,
    losses: Losses,
    *,
    weights: npt.ArrayLike | jax.Array | None = None,
    benchmark_weights: npt.ArrayLike | jax.Array | None = None,
    progress: bool = False,
) -> LossThreshold:
    """Find the losses to keep so that they are distributed most like a benchmark's.

    The losses are those of a model that was trained on clean data. The threshold is the
    loss `t` for which the distribution of the losses up to `t` has the least
    Kolmogorov-Smirnov distance to that of held-out clean samples. Of several such `t`
    it is the smallest. The result is exact, with ties too, because distances are
    compared as fractions of whole numbers. Equal losses stay together.

    Costs a sort, O((n + m) log(n + m)), and O(m log n) after it. Functions, and arrays
    of more than 16 million losses, are read in chunks with O(chunk) memory: about three
    times, once for each interval that narrows down the threshold, and twice more with
    weights.

    Args:
        benchmark_losses: Losses of clean samples that the model was not trained on,
            `[m]`.
        losses: Losses of the samples to choose from, `[n]`; or a function that returns
            an iterator over arrays of them, or over pairs of losses and whole weights,
            the same ones of one type at each call.
        weights: How much each loss counts, `[n]`. Whole numbers are taken as they are,
            others rounded to 2^-38 of their sum.
        benchmark_weights: The same for the benchmark, `[m]`; others than whole numbers
            are rounded to 2^-24 of their sum.
        progress: Whether to show a progress bar.

    Returns:
        The threshold. `keeps` applies it, `band` estimates its uncertainty.

    Raises:
        TypeError: If losses or weights are not numeric, or are being traced.
        ValueError: If there are none, if one is NaN or infinite (it is named), if a
            weight is negative or all are zero, if the weights' totals, multiplied,
            exceed 2^62, or if a function does not return the same ones again.

    References:
        Tuor, Wang, Ko, Liu and Leung, Overcoming Noisy and Irrelevant Data in Federated
        Learning, ICPR 2021, section III-D, equation 10.

    Examples:
        >>> import numpy as np
        >>> import jaxsel
        >>> rng = np.random.default_rng(0)
        >>> benchmark = rng.gamma(1, 0.3, 200)  # losses of clean samples
        >>> losses = np.concatenate([rng.gamma(1, 0.3, 500), rng.gamma(20, 1, 300)])
        >>> threshold = jaxsel.loss_threshold(benchmark, losses)
        >>> keep = threshold.keeps(losses)
        >>> print(f"{keep[:500].mean():.1f} of clean, {keep[500:].mean():.1f} of noise")
        1.0 of clean, 0.1 of noise
    """
    benchmark = as_benchmark(benchmark_losses, benchmark_weights)
    source, benchmark = as_source(losses, weights, benchmark, progress=progress)
    (solution,) = run([solve(benchmark)], source.counts)
    if solution.distance > _APART and min(solution.total, len(benchmark.edges)) >= _FEW:
        doubt(
            "the losses are nowhere distributed like benchmark_losses: the distance is "
            f"{solution.distance:.2f} at best. Are both of one model, in one unit?"
        )
    return LossThreshold(
        value=solution.value,
        distance=solution.distance,
        n_kept=source.number(solution.value) if source.weighted else solution.kept,
        n=source.number(np.inf) if source.weighted else solution.total,
        n_benchmark=np.shape(benchmark_losses)[0],
        share=solution.kept / solution.total,
        benchmark=benchmark,
        source=source,
    )
