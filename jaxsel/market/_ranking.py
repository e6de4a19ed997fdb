"""The trainer's side: which owner's data helps most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ._answer import Answer

if TYPE_CHECKING:
    import pandas as pd

_DIGITS = 12  # of scores: what differs less is equal but for the order of a sum


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """Owners in the order of what the trainer gained from their samples, best first.

    Attributes:
        owners: Their names, o of them.
        scores: Array of shape `[o, s]`: each owner's score under each of s seeds.
        baseline: Array of shape `[s]`: the scores without any answer; None if not
            known.
    """

    owners: tuple[str, ...]
    scores: np.ndarray
    baseline: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.owners)

    def __repr__(self) -> str:
        pairs = zip(self.owners[:5], self.mean[:5], strict=True)
        shown = ", ".join(f"{owner!r}: {mean:.4g}" for owner, mean in pairs)
        return f"Ranking({shown}{', ...' if len(self) > 5 else ''})"

    @property
    def mean(self) -> np.ndarray:
        """Each owner's mean score, `[o]`."""
        return self.scores.mean(axis=1)

    @property
    def places(self) -> np.ndarray:
        """Each owner's place, `[o]`, from 1; those of equal mean score share one."""
        mean = np.round(self.mean, _DIGITS)
        return 1 + np.array([np.sum(mean > own) for own in mean], np.int64)

    @property
    def stderr(self) -> np.ndarray | None:
        """Standard error of each mean over seeds, `[o]`; None with a single seed."""
        seeds = self.scores.shape[1]
        return self.scores.std(axis=1, ddof=1) / seeds**0.5 if seeds > 1 else None

    @property
    def gain(self) -> np.ndarray | None:
        """Each owner's mean score less the baseline's, `[o]`; None without one."""
        return None if self.baseline is None else self.mean - self.baseline.mean()

    def to_pandas(self) -> pd.DataFrame:
        """Return one row an owner, best first: score, and stderr and gain if known."""
        import pandas as pd

        columns = {"score": self.mean, "stderr": self.stderr, "gain": self.gain}
        known = {name: column for name, column in columns.items() if column is not None}
        return pd.DataFrame(known, index=pd.Index(self.owners, name="owner"))


@dataclasses.dataclass(frozen=True)
class RankingAgreement:
    """Rank correlations of two rankings of the same owners, from -1 to 1.

    Attributes:
        spearman: Spearman's rank correlation; NaN if one side has all owners equal.
        kendall: Kendall's tau-b, for which ties count; NaN likewise.
    """

    spearman: float
    kendall: float


def rank(
    answers: Iterable[Answer],
    score: Callable[[Answer], float | Sequence[float] | np.ndarray],
    *,
    baseline: float | Sequence[float] | np.ndarray | None = None,
) -> Ranking:
    """Rank owners by the trainer's own evaluation of their answers.

    Args:
        answers: One from each owner; those without samples too.
        score: Trains on an answer's samples together with the trainer's own, and
            returns a score on held-out hard samples, higher is better; or several, one
            for each seed. Called once for each answer.
        baseline: The same without any answer.

    Returns:
        A `Ranking`; owners of equal score are in the order of their names, and share a
        place. `rank` does not detect poisoned or copied answers: pass answers through
        `screen` first.

    Raises:
        ValueError: If there are no answers, two are of one owner, or scores are not
            finite or differ in number.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation, section 5,
        scenario 4.
    """
    found: dict[str, np.ndarray] = {}
    for item in answers:
        if item.owner in found:
            raise ValueError(f"answers must have one from each owner: {item.owner!r}")
        found[item.owner] = _scores(f"score of {item.owner!r}", score(item))
    if not found:
        raise ValueError("answers must hold one at least")
    before = None if baseline is None else _scores("baseline", baseline)
    lengths = {len(s) for s in [*found.values(), *([] if before is None else [before])]}
    if len(lengths) > 1:
        raise ValueError(
            f"score and baseline must give as many numbers each, got {sorted(lengths)}"
        )
    owners = sorted(
        found, key=lambda owner: (-round(found[owner].mean(), _DIGITS), owner)
    )
    return Ranking(
        owners=tuple(owners),
        scores=np.stack([found[owner] for owner in owners]),
        baseline=before,
    )


def ranking_agreement(
    ranking: Ranking | Mapping[str, float], reference: Ranking | Mapping[str, float]
) -> RankingAgreement:
    """Compare two rankings of the same owners, such as one with full information.

    Args:
        ranking: A ranking, or scores by owner.
        reference: Another.

    Returns:
        Both rank correlations; they do not depend on the order of the arguments.

    Raises:
        ValueError: If they are not of the same owners, or of fewer than two.
    """
    from scipy import stats

    a, b = _by_owner(ranking), _by_owner(reference)
    if set(a) != set(b):
        raise ValueError(
            "reference must rank the same owners as ranking; only one has "
            f"{', '.join(map(repr, sorted(set(a) ^ set(b))))}"
        )
    if len(a) < 2:
        raise ValueError(f"ranking must have two owners at least, got {len(a)}")
    x, y = ([scores[owner] for owner in sorted(scores)] for scores in (a, b))
    if len(set(x)) < 2 or len(set(y)) < 2:
        return RankingAgreement(float("nan"), float("nan"))
    spearman, kendall = stats.spearmanr(x, y), stats.kendalltau(x, y)
    return RankingAgreement(float(spearman.statistic), float(kendall.statistic))  # pyright: ignore


def _scores(name: str, value: float | Sequence[float] | np.ndarray) -> np.ndarray:
    scores = np.atleast_1d(np.asarray(value, np.float64))
    if scores.ndim != 1 or not len(scores) or not np.all(np.isfinite(scores)):
        raise ValueError(
            f"{name} must be a finite number, or one for each seed, got {value}"
        )
    return scores


def _by_owner(ranking: Ranking | Mapping[str, float]) -> dict[str, float]:
    if isinstance(ranking, Ranking):
        return dict(zip(ranking.owners, ranking.mean.tolist(), strict=True))
    return {owner: float(score) for owner, score in ranking.items()}
