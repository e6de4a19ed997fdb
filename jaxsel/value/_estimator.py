"""Batches of an estimator's samples, and their contributions to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from ._failures import Failures

State: TypeAlias = dict[str, np.ndarray]
Moments: TypeAlias = tuple[Any, np.ndarray, np.ndarray]  # count, mean, m2
Sums: TypeAlias = tuple[Any, ...]  # of samples: `SUMS`, or an estimator's own

ENDS = "ends"  # in a state: the utility of no points and of all
PART = "part_"  # prefix of entries of a state that belong to samples begun
SUMS = "count", "mean", "m2", "low", "high"  # the running moments in a state
TAKEN = "taken_"  # prefix of entries that hold an estimator's samples
_KEPT, _FARTHEST = 7 / 8, 1.5  # of m2, and of the largest squared distance, at least
_UNSEEN = 1.5  # standard errors of equal samples, in units of reach / count
_EQUAL = 1e-6  # samples that differ by at most this share of the reach are equal


class Batch(NamedTuple):
    """Samples computed together; their sums depend on these numbers alone.

    Attributes:
        first: Number of the first sample.
        used: How many there are.
        rows: How many are computed, the last of them for their shape only.
    """

    first: int
    used: int
    rows: int


class Part(NamedTuple):
    """Results of one batch, or of some of its utilities.

    Attributes:
        samples: How many samples are complete since the last part: all or none.
        sums: Their moments, to merge into the running ones; None of no samples.
        ahead: How many samples the work on those that have begun amounts to.
        begun: Returns arrays to go on from with these, whose names start with `PART`.
    """

    samples: int
    sums: Sums | None
    ahead: float = 0.0
    begun: Callable[[], State] = dict


class Work(Protocol):
    """Inputs that an estimator is bound to.

    Attributes:
        n: Number of training points.
        key: Of the samples.
        mesh: Devices, or None.
        rows: Coalitions, bags or permutations of a call.
        about: Fields that identify this work by name, n and the key among them.
        failures: Of the learner, counted; None where these are errors.
    """

    n: int
    key: jax.Array
    mesh: jax.sharding.Mesh | None
    rows: int

    @property
    def about(self) -> Mapping[str, str]: ...

    @property
    def failures(self) -> Failures | None: ...


class Estimator(Protocol):
    """A way to estimate values from samples; immutable.

    Attributes:
        method: Its name, with every parameter that matters.
        round: Samples between two questions to the stopping rule.
    """

    @property
    def method(self) -> str: ...

    @property
    def round(self) -> int: ...

    def init(self, work: Any) -> State:
        """Return the state before the first sample: a dict of arrays.

        Its `SUMS`, as `no_samples` has them, are running moments. All else stays as it
        is, but for names that start with `TAKEN`, of an estimator that has a method
        `added(state, sums)`: it returns these with the samples of a part.
        """
        ...

    def rows(self, work: Any, count: int) -> int:
        """Return the number of samples per batch, for a round of `count`."""
        ...

    def sample(self, work: Any, state: State, batch: Batch) -> Iterator[Part]:
        """Yield a batch's partial results after some utilities, and its sums last.

        The state is from `init`; entries that samples change may be missing. It may
        hold entries that a part of this batch has `begun`.
        """
        ...

    def finalize(self, state: State) -> Moments:
        """Return count (`[n]` or a number), values and m2, as `Values` has them."""
        ...


def batches(
    estimator: Estimator, work: Work, first: int, count: int
) -> Iterator[Batch]:
    """Yield the batches of `count` samples from `first`."""
    # Of the whole round: a resumed one has the batches that it would have had.
    rows = estimator.rows(work, first % estimator.round + count)
    for start in range(first, first + count, rows):
        yield Batch(start, min(rows, first + count - start), rows)


def round_length(length: int, first: int, limit: int | None) -> int:
    """Return how many samples the round that begins with `first` has."""
    # Rounds end at multiples of their length, also after a shorter one.
    more = length - first % length
    return more if limit is None else max(1, min(more, limit - first))


def all_batches(
    estimator: Estimator, work: Work, first: int, limit: int | None
) -> Iterator[Batch]:
    """Yield the batches of all rounds from `first` on, without an end."""
    while True:
        count = round_length(estimator.round, first, limit)
        yield from batches(estimator, work, first, count)
        first += count


def no_samples(shape: int | tuple[int, ...], *, each: bool = False) -> State:
    """Return running moments of no samples.

    Args:
        shape: Shape of the means.
        each: Whether each mean has a count of its own.
    """
    zeros = np.zeros(shape)
    count = zeros if each else np.array(0)
    start = (count, zeros, zeros, zeros + np.inf, zeros - np.inf)
    return dict(zip(SUMS, start, strict=True))


def moments(samples: np.ndarray) -> Sums:
    """Return count, mean, m2, minimum and maximum over the first axis."""
    mean = samples.mean(0)
    m2 = ((samples - mean) ** 2).sum(0)
    return len(samples), mean, m2, samples.min(0), samples.max(0)


def added(estimator: Estimator, state: State, sums: Sums) -> State:
    """Merge the sums of more samples into a state."""
    merge: Callable[[State, Sums], State] | None = getattr(estimator, "added", None)
    if merge is not None:
        return merge(state, sums)
    # The update of Chan et al.; a count of 0 is no samples.
    (count, mean, m2, low, high), (more, *b) = (state[name] for name in SUMS), sums
    total = np.maximum(count + more, 1)
    delta = b[0] - mean
    merged = (
        count + more,
        mean + delta * (more / total),
        m2 + b[1] + delta**2 * (count * more / total),
        np.minimum(low, b[2]),
        np.maximum(high, b[3]),
    )
    return dict(zip(SUMS, map(np.asarray, merged), strict=True))


def honest_m2(state: State, gap: float) -> np.ndarray:
    """Widen m2 where few samples make it up, or none.

    Where few samples make up m2, such as those in which a point was pivotal, it may be
    far too small by chance. It becomes at least 7/8 of itself plus 1.5 times the
    largest squared distance from the mean, which leaves it as it is where that is less
    than a twelfth of it. 95 % intervals of a share then cover .90 or more from 10
    samples on, whatever the share, and intervals of normal samples .94 to .96.
    Equal samples bound the probability of an event that is not among them by
    `3 / count` at 95 % (the rule of three); the reach of all points' samples bounds its
    size.

    Args:
        state: Running moments, `SUMS`.
        gap: The reach at least, such as between the utility of none and of all.

    References:
        Hanley and Lippman-Hand, If nothing goes wrong, is everything all right?, JAMA
        1983. Agresti and Coull, Approximate is better than "exact" for interval
        estimation of binomial proportions, The American Statistician 52, 1998.
    """
    count, mean, m2, low, high = (state[name] for name in SUMS)
    reach = max(gap, float(high.max() - low.min()))
    if not np.isfinite(reach):  # no samples
        return m2
    far = np.maximum(high - mean, mean - low) ** 2
    wider = np.maximum(m2, _KEPT * m2 + _FARTHEST * far)
    wider = np.where(high - low > _EQUAL * reach, wider, (_UNSEEN * reach) ** 2)
    return np.where(np.greater(count, 1), wider, m2)
