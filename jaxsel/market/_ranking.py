"""The trainer's side: which owner's data helps most."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxsel._inputs.show import printable_name

from ._answer import Answer
from ._chance import holm, paired_stderr, sign_flip, steady

if TYPE_CHECKING:
    import pandas as pd

_DIGITS = 12  # of scores: smaller differences are rounding of their sums
_LEVEL = 0.05  # at which a difference is more than chance


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """Owners by the gain in score that their samples brought the trainer, best first.

    With few held-out samples most orders are chance. Where `hits` are known,
    `p_values` and `apart` compare owners sample by sample.

    Attributes:
        owners: Their names, o of them.
        scores: Array of shape `[o, s]`: each owner's score under each of s seeds.
        baseline: Array of shape `[s]`: the scores without any answer; None if not
            known.
        hits: Array of shape `[o, s, h]`, bool: whether each of h held-out samples is
            right; None if not known.
        baseline_hits: Array of shape `[s, h]`: the same without any answer.
    """

    owners: tuple[str, ...]
    scores: np.ndarray
    baseline: np.ndarray | None = None
    hits: np.ndarray | None = None
    baseline_hits: np.ndarray | None = None

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
        """Each owner's place, `[o]`, from 1; owners of equal mean score share one."""
        mean = np.round(self.mean, _DIGITS)
        return 1 + np.array([np.sum(mean > score) for score in mean], np.int64)

    @property
    def stderr(self) -> np.ndarray | None:
        """Standard error of each mean over seeds, `[o]`; None with a single seed."""
        seeds = self.scores.shape[1]
        return self.scores.std(axis=1, ddof=1) / seeds**0.5 if seeds > 1 else None

    @property
    def gain(self) -> np.ndarray | None:
        """Each owner's mean score less the baseline's, `[o]`; None without one."""
        return None if self.baseline is None else self.mean - self.baseline.mean()

    @property
    def gain_stderr(self) -> np.ndarray | None:
        """Standard error of each gain, `[o]`; None without hits of both.

        Over the held-out samples and over the seeds, the two variances added.
        """
        if self.hits is None or self.baseline_hits is None:
            return None
        return np.array([paired_stderr(h, self.baseline_hits) for h in self.hits])

    @property
    def p_values(self) -> np.ndarray | None:
        """Probability of a gain or loss as large by chance, `[o]`.

        Exact and two-sided: each held-out sample's difference, summed over seeds, has
        either sign with probability 1/2, so that with one seed this is McNemar's exact
        test. Corrected for o owners by Holm's method. None without hits of both.

        References:
            McNemar, Note on the sampling error of the difference between correlated
            proportions or percentages, Psychometrika 12, 1947. Holm, A simple
            sequentially rejective multiple test procedure, Scandinavian Journal of
            Statistics 6, 1979.
        """
        if self.hits is None or self.baseline_hits is None:
            return None
        return holm([sign_flip(hits, self.baseline_hits) for hits in self.hits])

    @property
    def beyond_chance(self) -> np.ndarray | None:
        """Gains and losses that are more than chance, `[o]` bool.

        That is, `p_values` is at most 0.05, and the mean is more than two standard
        errors over seeds from 0. None without hits of both.
        """
        p, before = self.p_values, self.baseline_hits
        if p is None or before is None or self.hits is None:
            return None
        agree = [steady(hits, before) for hits in self.hits]
        return (p <= _LEVEL) & np.array(agree, bool)

    @property
    def apart(self) -> np.ndarray | None:
        """Pairs of owners that differ by more than chance, `[o, o]`; None without hits.

        As `beyond_chance`, corrected for all pairs of owners.
        """
        if self.hits is None:
            return None
        o = len(self)
        rows, columns = np.triu_indices(o, 1)
        pairs = [
            (self.hits[i], self.hits[j]) for i, j in zip(rows, columns, strict=True)
        ]
        p = holm([sign_flip(a, b) for a, b in pairs])
        differ = (p <= _LEVEL) & np.array([steady(a, b) for a, b in pairs], bool)
        apart = np.zeros((o, o), bool)
        apart[rows, columns] = apart[columns, rows] = differ
        return apart

    def conclusions(self) -> tuple[str, ...]:
        """State in sentences which differences are more than chance; () without hits.

        One on the gains over the baseline, if there is one, and one on the owners that
        cannot be told apart from the first.
        """
        if self.hits is None:
            return ()
        n = self.hits.shape[2]
        lines: list[str] = []
        beyond, gain = self.beyond_chance, self.gain
        if beyond is not None and gain is not None:
            names = [self.owners[i] for i in np.flatnonzero(beyond & (gain > 0))]
            who = f"better than without any answer by more than chance on {n} samples"
            lines.append(
                f"{_listed(names)} {'is' if len(names) == 1 else 'are'} {who}"
                if names
                else f"no owner is {who}: do not buy by this order"
            )
        apart = self.apart
        if apart is not None and len(self) > 1:
            level = [self.owners[i] for i in np.flatnonzero(~apart[0]) if i]
            if level:
                lines.append(
                    f"{_listed(level)} cannot be told apart from "
                    f"{_listed(self.owners[:1])}, the first"
                )
        return tuple(lines)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row an owner, best first: score, and all else that is known."""
        import pandas as pd

        apart = self.apart
        columns = {
            "score": self.mean,
            "stderr": self.stderr,
            "gain": self.gain,
            "gain_stderr": self.gain_stderr,
            "p_value": self.p_values,
            "level_with_first": None if apart is None else ~apart[0],
        }
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
            for each seed. Or, `[s, h]` bool, whether each of h held-out samples is
            right under each of s seeds: the scores are then accuracies, and the ranking
            knows which differences are more than chance. Called once for each answer.
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
    results: dict[str, np.ndarray] = {}
    for item in answers:
        if item.owner in results:
            raise ValueError(f"answers must have one from each owner: {item.owner!r}")
        results[item.owner] = _scores(f"score of {item.owner!r}", score(item))
    if not results:
        raise ValueError("answers must hold one at least")
    before = None if baseline is None else _scores("baseline", baseline)
    everything = [*results.values(), *([] if before is None else [before])]
    shapes = {scores.shape for scores in everything}
    if len(shapes) > 1:
        flat = all(len(shape) == 1 for shape in shapes)
        sizes = sorted(shape[0] if flat else shape for shape in shapes)
        raise ValueError(
            f"score and baseline must give as many numbers each, got {sizes}"
        )
    mean = {
        owner: round(float(scores.mean()), _DIGITS) for owner, scores in results.items()
    }
    owners = sorted(results, key=lambda owner: (-mean[owner], owner))
    table = np.stack([results[owner] for owner in owners])
    if table.ndim == 2:
        return Ranking(owners=tuple(owners), scores=table, baseline=before)
    return Ranking(
        owners=tuple(owners),
        scores=table.mean(axis=2),
        baseline=None if before is None else before.mean(axis=1),
        hits=table,
        baseline_hits=before,
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
    if np.ndim(value) == 2:
        hits = np.asarray(value)
        if hits.dtype != bool or not hits.size:
            raise ValueError(
                f"{name} must be bool where its shape is [seeds, samples], got "
                f"{hits.dtype} of shape {hits.shape}"
            )
        return hits
    scores = np.atleast_1d(np.asarray(value, np.float64))
    if scores.ndim != 1 or not len(scores) or not np.all(np.isfinite(scores)):
        raise ValueError(
            f"{name} must be a finite number, or one for each seed, got {value}"
        )
    return scores


def _listed(names: Sequence[str]) -> str:
    """Return names in words, the first few of many."""
    *others, last = (repr(printable_name(name)) for name in names)
    if len(names) > 5:
        return f"{', '.join(others[:5])} and {len(names) - 5} others"
    return f"{', '.join(others)} and {last}" if others else last


def _by_owner(ranking: Ranking | Mapping[str, float]) -> dict[str, float]:
    if isinstance(ranking, Ranking):
        return dict(zip(ranking.owners, ranking.mean.tolist(), strict=True))
    return {owner: float(score) for owner, score in ranking.items()}
