"""Samples that estimators take in batches, and what each batch adds to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from ._failures import Failures

State: TypeAlias = dict[str, np.ndarray]
Moments: TypeAlias = tuple[Any, np.ndarray, np.ndarray]  # count, mean, m2

ENDS = "ends"  # in a state: the utility of no points and of all
PART = "part_"  # how names of what samples that have begun know start, in a state
SUMS = "count", "mean", "m2"  # the running moments in a state
TAKEN = "taken_"  # how names of what an estimator keeps of its samples start, there


class Batch(NamedTuple):
    """Samples that are taken together: what they add depends on these numbers alone.

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
        sums: What they add to the running moments; None of no samples.
        ahead: How many samples the work on those that have begun amounts to.
        begun: Returns arrays to go on from with these, whose names start with `PART`.
    """

    samples: int
    sums: Moments | None
    ahead: float = 0.0
    begun: Callable[[], State] = dict


class Work(Protocol):
    """Inputs that an estimator is bound to.

    Attributes:
        n: Number of training points.
        key: Of the samples.
        mesh: Devices, or None.
        rows: Coalitions, bags or permutations of a call.
        about: What tells this work from other, by name, n and the key among it.
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

        Its `count`, `mean` and `m2` are running moments. All else stays as it is, but
        for names that start with `TAKEN`, of an estimator that has a method
        `added(state, sums)`: it returns these with the samples of a part.
        """
        ...

    def rows(self, work: Any, count: int) -> int:
        """Return how many samples a batch has, of a round of so many."""
        ...

    def sample(self, work: Any, state: State, batch: Batch) -> Iterator[Part]:
        """Yield what a batch has begun, after some utilities, and last what it adds.

        The state is that of `init`, but for what samples change, which may be missing.
        It may hold what a part of this batch has `begun`.
        """
        ...

    def finalize(self, state: State) -> Moments:
        """Return count (`[n]` or a number), values and m2, as `Values` has them."""
        ...


def batches(
    estimator: Estimator, work: Work, first: int, count: int
) -> Iterator[Batch]:
    """Yield the batches of `count` samples from `first`."""
    rows = estimator.rows(work, count)
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


def moments(samples: np.ndarray) -> Moments:
    """Return count, mean and m2 over the first axis."""
    mean = samples.mean(0)
    return len(samples), mean, ((samples - mean) ** 2).sum(0)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Combine two disjoint sets of samples, by the update of Chan et al.; 0 is none."""
    total = np.maximum(a[0] + b[0], 1)
    delta = b[1] - a[1]
    mean = a[1] + delta * (b[0] / total)
    return a[0] + b[0], mean, a[2] + b[2] + delta**2 * (a[0] * b[0] / total)


def added(estimator: Estimator, state: State, sums: Moments) -> State:
    """Return what a state has of its samples with that of more samples."""
    own: Callable[[State, Moments], State] | None = getattr(estimator, "added", None)
    if own is not None:
        return own(state, sums)
    count, mean, m2 = (state[name] for name in SUMS)
    merged = merge_moments((count, mean, m2), sums)
    return dict(zip(SUMS, map(np.asarray, merged), strict=True))
