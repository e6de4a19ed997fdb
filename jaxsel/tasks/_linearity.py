"""Agreement of derivatives with a few real retrainings, which say how far they hold."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import scipy.stats

from jaxsel._inputs.checks import check_count
from jaxsel._results.types import Values
from jaxsel.attribute import Output, Recipe

from ._application import check_share
from ._lds import scores_of
from ._subsets import retrain_subsets

_DRAWS = 2**31 - 5  # folded into the key of drops: no run has this number
_LOW = 0.8  # measured: below it, other drops are predicted poorly too


class Correlation(NamedTuple):
    """A correlation over drops, a mean over targets, with its standard error."""

    mean: float
    stderr: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Linearity:
    """Agreement of predicted with measured changes of outputs in a few retrainings.

    Attributes:
        pearson: Correlation over drops, mean over targets, and its standard error over
            drops, with the targets fixed, by the jackknife.
        spearman: The same of the ranks.
        predicted: Predicted changes, `[drops, t]`: minus the sum of the scores of the
            dropped samples.
        measured: Measured changes, `[drops, t]`.
        drop_share: Share of the samples in each drop.
    """

    pearson: Correlation
    spearman: Correlation
    predicted: np.ndarray
    measured: np.ndarray
    drop_share: float

    @property
    def advice(self) -> str | None:
        """Advise on the recipe if Pearson's correlation is below .8; None otherwise."""
        if self.pearson.mean >= _LOW:
            return None
        return (
            f"Scores predict retrainings without {self.drop_share:.0%} of the samples "
            f"poorly (Pearson {self.pearson.mean:.2f} ± {self.pearson.stderr:.2f}, "
            f"below {_LOW}). If they are derivatives, the training is far from linear "
            "in the weights of the samples, as with rectifiers, momentum and small "
            "batches: try a smooth activation, larger batches or a smaller learning "
            "rate, or the mean of derivatives, metagradient(drops=8)."
        )

    def __repr__(self) -> str:
        drops, t = self.measured.shape
        advice = "" if self.advice is None else f": {self.advice}"
        return (
            f"Linearity(pearson={self.pearson.mean:.3f} ± {self.pearson.stderr:.3f}, "
            f"spearman={self.spearman.mean:.3f} ± {self.spearman.stderr:.3f}, "
            f"{drops} drops of {self.drop_share:.0%}, {t} targets){advice}"
        )


def linearity(
    values: Values | npt.ArrayLike,
    recipe: Recipe,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
    x_val: npt.ArrayLike,
    y_val: npt.ArrayLike,
    *,
    key: jax.Array,
    seeds: int = 1,
    drops: int = 8,
    drop_share: float = 0.05,
    output: Output = "loss",
    chunk_size: int | None = None,
) -> Linearity:
    """Compare a metagradient with a few retrainings of the same run without samples.

    A derivative is exact at the weights where it is taken; how far it holds depends on
    the recipe, and shows only in retrainings at the scale of the question. Those of all
    drops are one `vmap`ped program, with the start and the order of the run.

    Args:
        values: Scores, `[t, n]` or `[n]`, such as a metagradient.
        recipe: The model and its training.
        x: Training samples, `[n, ...]`.
        y: Labels from 0 on, or targets of a regression, `[n]`.
        x_val: Targets, `[t, ...]`.
        y_val: Their labels or targets, `[t]`.
        key: Key of the runs, the same as of the scores; drops are drawn apart from it.
        seeds: Number of runs, over which outputs are averaged, the same as of the
            scores.
        drops: Number of retrainings, three or more.
        drop_share: Share of the samples that each leaves out, at random.
        output: The output of a target, the same as of the scores: see `Recipe.measure`.
        chunk_size: Drops trained together: see `retrain_subsets`.

    Returns:
        Pearson's and Spearman's correlations with standard errors, the changes
        themselves, and `advice` where the agreement is low.

    Costs `(drops + 1) · seeds` trainings.

    Raises:
        TypeError: If an argument is of another kind.
        ValueError: If shapes do not fit, a number is out of range, or a run ends in
            NaN.

    References:
        A. Ilyas and L. Engstrom, MAGIC: near-optimal data attribution for deep
        learning, arXiv:2504.16430, section 4 (drops); B. Efron, The jackknife, the
        bootstrap and other resampling plans, SIAM 1982, section 3.
    """
    scores = scores_of(values)
    check_count("drops", drops, minimum=3)
    n = np.shape(x)[0] if np.ndim(x) else 0
    if scores.shape[-1] != n:
        raise ValueError(
            f"values must have a score for each of the {n} samples of x, got shape "
            f"{scores.shape}"
        )
    dropped = np.zeros((drops, n), bool)
    keys = jax.random.split(jax.random.fold_in(key, _DRAWS), drops)
    orders = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
    rows = np.asarray(orders)[:, : check_share("drop_share", drop_share, n)]
    np.put_along_axis(dropped, rows, True, axis=1)
    runs = retrain_subsets(
        recipe,
        *(x, y, x_val, y_val),
        key=key,
        subsets=np.concatenate([np.ones((1, n), bool), ~dropped]),
        seeds=seeds,
        same_seed=True,
        output=output,
        chunk_size=chunk_size,
    )
    outputs = np.asarray(runs.outputs, np.float64).mean(1)
    if scores.ndim == 1:
        scores, outputs = scores[None], outputs.mean(1, keepdims=True)
    if len(scores) != outputs.shape[1]:
        raise ValueError(
            f"values must have a row for each of the {outputs.shape[1]} targets, got "
            f"shape {scores.shape}"
        )
    predicted, measured = -dropped.astype(float) @ scores.T, outputs[1:] - outputs[:1]
    return Linearity(
        pearson=_correlation(predicted, measured, ranks=False),
        spearman=_correlation(predicted, measured, ranks=True),
        predicted=predicted,
        measured=measured,
        drop_share=drop_share,
    )


def _correlation(a: np.ndarray, b: np.ndarray, *, ranks: bool) -> Correlation:
    """Correlate `[m, t]` over m, and average over t; 0 where one is constant."""

    def mean(rows: np.ndarray) -> float:
        parts = [part[rows] for part in (a, b)]
        if ranks:
            parts = [scipy.stats.rankdata(part, axis=0) for part in parts]
        first, second = (part - part.mean(0) for part in parts)
        squares = (first**2).sum(0) * (second**2).sum(0)
        products = (first * second).sum(0)
        return float(
            np.mean(products / np.sqrt(np.where(squares > 0, squares, np.inf)))
        )

    every = np.arange(len(a))
    without = np.array([mean(np.delete(every, i)) for i in every])
    spread = (len(a) - 1) * without.var()
    return Correlation(mean(every), float(spread**0.5))
