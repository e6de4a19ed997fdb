"""Stopping rules of estimators, and the progress that they are shown."""

from __future__ import annotations

import dataclasses

import numpy as np

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.show import brief


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class RunInfo:
    """Progress of a run after a round of samples.

    Attributes:
        samples: How many there are: permutations, coalitions or bags.
        seconds: How long it has taken, earlier parts of a resumed run included.
        values: `[n]`, so far.
        stderr: `[n]`, their standard errors; NaN where unknown.
        agreement: `[rounds + 1]`: Spearman's correlation of the values after each full
            round with those of the round before; NaN for the first two entries.
    """

    samples: int
    seconds: float
    values: np.ndarray
    stderr: np.ndarray
    agreement: np.ndarray


@dataclasses.dataclass(frozen=True)
class StoppingRule:
    """Decides when to stop; asked after each round of samples.

    Rules keep no state. Combine them with `|`, which stops when either would, and `&`,
    which stops when both do: `StandardError(0.001) | MaxTime(600)`. To write another,
    derive from this class and define `done`.
    """

    @property
    def limit(self) -> int | None:
        """Number of samples that a run never exceeds, or None."""
        return None

    def done(self, info: RunInfo) -> bool:
        """Return whether to stop."""
        raise NotImplementedError

    def overdue(self, seconds: float) -> bool:
        """Return whether to stop now, before the round is complete, for the time."""
        return False

    def __or__(self, other: StoppingRule) -> StoppingRule:
        return _join(AnyOf, self, other)

    def __and__(self, other: StoppingRule) -> StoppingRule:
        return _join(AllOf, self, other)


@dataclasses.dataclass(frozen=True)
class MaxSamples(StoppingRule):
    """Stop after `n` samples, exactly; of a checkpoint with more, all are returned.

    Args:
        n: Permutations, coalitions or bags, as the estimator counts them.
    """

    n: int

    def __post_init__(self) -> None:
        check_count("n", self.n)

    @property
    def limit(self) -> int:
        """Number of samples that a run never exceeds."""
        return self.n

    def done(self, info: RunInfo) -> bool:
        """Return whether there are enough samples."""
        return info.samples >= self.n


@dataclasses.dataclass(frozen=True)
class MaxTime(StoppingRule):
    """Stop after the first batch of utilities that ends after `seconds`.

    Compilation counts. What a round has of complete samples is kept; permutations that
    have only begun are not in the values, but in the checkpoint. On devices 64 of them
    advance together; of estimators of scikit-learn, and of slow functions, one does,
    or as many as take 0.1 s. Joined by `&` with other rules, it waits for the end of
    the round. The only rule by which two runs with the same key may differ.
    """

    seconds: float

    def __post_init__(self) -> None:
        check_positive("seconds", self.seconds)

    def done(self, info: RunInfo) -> bool:
        """Return whether the time is over."""
        return self.overdue(info.seconds)

    def overdue(self, seconds: float) -> bool:
        """Return whether the time is over."""
        return seconds >= self.seconds


@dataclasses.dataclass(frozen=True)
class StandardError(StoppingRule):
    """Stop when the largest standard error over points is small.

    With both thresholds it is the larger one that counts. A run that stops by its own
    estimate of the error is slightly optimistic; `minimum` keeps that small.

    Args:
        absolute: In units of the utility.
        relative: As a share of the standard deviation of the values over points.
        minimum: Samples to take at least.
    """

    absolute: float | None = None
    relative: float | None = None
    minimum: int = 100

    def __post_init__(self) -> None:
        if self.absolute is None and self.relative is None:
            raise ValueError("absolute or relative must be given, got None for both")
        for name in ("absolute", "relative"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_count("minimum", self.minimum)

    def done(self, info: RunInfo) -> bool:
        """Return whether every value is known well enough."""
        if info.samples < self.minimum:
            return False
        allowed = max(self.absolute or 0.0, (self.relative or 0.0) * info.values.std())
        return bool(info.stderr.max() <= allowed)


@dataclasses.dataclass(frozen=True)
class RankStability(StoppingRule):
    """Stop when the order of the points no longer changes from round to round.

    Rounds are those of the estimator, such as 64 permutations. The values of successive
    rounds share all samples but the last round's, so that they agree ever more, also
    where values are not yet known well.

    Args:
        correlation: Spearman's correlation of successive rounds to reach.
        rounds: In how many rounds in a row.
    """

    correlation: float = 0.99
    rounds: int = 3

    def __post_init__(self) -> None:
        if not 0 < check_positive("correlation", self.correlation) <= 1:
            raise ValueError(f"correlation must be at most 1, got {self.correlation}")
        check_count("rounds", self.rounds)

    def done(self, info: RunInfo) -> bool:
        """Return whether the last rounds agree."""
        last = info.agreement[-self.rounds :]
        return len(last) == self.rounds and bool((last >= self.correlation).all())


@dataclasses.dataclass(frozen=True)
class AnyOf(StoppingRule):
    """Stop when one of the rules would; the result of `|`."""

    rules: tuple[StoppingRule, ...]

    @property
    def limit(self) -> int | None:
        """Number of samples that a run never exceeds, or None."""
        return min((r.limit for r in self.rules if r.limit is not None), default=None)

    def done(self, info: RunInfo) -> bool:
        """Return whether one of them would stop."""
        return any(rule.done(info) for rule in self.rules)

    def overdue(self, seconds: float) -> bool:
        """Return whether one of them would stop for the time."""
        return any(rule.overdue(seconds) for rule in self.rules)


@dataclasses.dataclass(frozen=True)
class AllOf(StoppingRule):
    """Stop when all of the rules would; the result of `&`."""

    rules: tuple[StoppingRule, ...]

    @property
    def limit(self) -> int | None:
        """Number of samples that a run never exceeds, or None."""
        limits = [rule.limit for rule in self.rules]
        return None if None in limits else max(limits)  # pyright: ignore

    def done(self, info: RunInfo) -> bool:
        """Return whether all of them would stop."""
        return all(rule.done(info) for rule in self.rules)

    def overdue(self, seconds: float) -> bool:
        """Return whether all of them would stop for the time."""
        return all(rule.overdue(seconds) for rule in self.rules)


def _join(
    kind: type[AnyOf] | type[AllOf], a: StoppingRule, b: StoppingRule
) -> StoppingRule:
    if not isinstance(b, StoppingRule):
        return NotImplemented
    rules: list[StoppingRule] = []
    for rule in (a, b):
        rules += rule.rules if isinstance(rule, kind) else [rule]
    return kind(tuple(rules))
