"""Appendix D.1: rank correlation with Shapley values, point by point and smoothed."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import numpy as np
import numpy.typing as npt

from experiments._kit.scenes.samples import Part
from experiments._kit.scenes.valuations import Samples, knn_methods, retrained_methods
from jaxsel import value
from jaxsel.tasks import RANDOM, random_values, rank_agreement

from .data import project
from .methods import logistic

TRUTH = "truth"
FEW = "TMC-Shapley"
TESTED = (
    "KNN-Shapley",
    "KNN-Banzhaf",
    "KNN-LOO",
    FEW,
    "G-Shapley",
    "LOO",
    "Banzhaf",
    "Data-OOB",
    RANDOM,
)
BINS = (100, 30)
"""Groups of the smoothing: the paper's number, and one that leaves ten points each."""

_PAIR = (3, 8)
_SHIFT = 0.15  # of a perturbation, in the scale of pixels
_EMBEDDED = 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankSizes:
    """Sizes of the comparison.

    Attributes:
        n: Training points, half of them perturbed.
        n_val: Validation points, all perturbed.
        tests: Coalitions of each of two estimates by group testing, whose mean is
            taken for the truth.
        samples: Number of samples of the methods.
    """

    n: int = 300
    n_val: int = 200
    tests: int = 65_536
    samples: Samples = Samples(permutations=128, passes=512, coalitions=8192, bags=512)


FULL_RANKS = RankSizes(n=1000, tests=1 << 20)


def scene(
    part: Part, sizes: RankSizes, key: jax.Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Deal images of two classes, and turn some into adversarial examples.

    A linear model that was trained on other data is fooled by the sign of its
    gradient (FGSM).

    Returns:
        Training features and classes, validation features and classes, and which
        training points are perturbed.
    """
    chosen = np.isin(part.y, _PAIR)
    x, y = part.x[chosen], (part.y[chosen] == _PAIR[1]).astype(int)
    other = np.isin(part.other_y, _PAIR)
    other_x = part.other_x[other].reshape(other.sum(), -1)
    other_y = part.other_y[other] == _PAIR[1]
    # Ridge regression on the classes: its gradient has one sign for each pixel.
    centred = other_x - other_x.mean(0)
    gram = centred.T @ centred + 10 * np.eye(centred.shape[1])
    weight = np.linalg.solve(gram, centred.T @ (other_y - other_y.mean()))
    order = np.asarray(jax.random.permutation(key, len(y)))[: sizes.n + sizes.n_val]
    flat, labels = x[order].reshape(len(order), -1), y[order]
    perturbed = np.arange(len(order)) >= sizes.n // 2
    towards = np.where(labels == 1, -1.0, 1.0)[:, None] * np.sign(weight)
    shifted = np.clip(flat + _SHIFT * towards, 0, 1)
    mixed = np.where(perturbed[:, None], shifted, flat)
    features = project(part.other_x[other], _EMBEDDED)(mixed)
    n = sizes.n
    return features[:n], labels[:n], features[n:], labels[n:], perturbed[:n]


def ranks_seed(part: Part, sizes: RankSizes, seed: int) -> dict[str, np.ndarray]:
    """Correlate the values of each method with the Shapley values, for one seed.

    Returns:
        By method of `TESTED`: "spearman", `[methods]`, and "smoothed",
        `[BINS, methods]`, with the true values; "p_value", `[methods]`, of the former;
        "perturbed_more", `[methods + 1]`: the chance that a perturbed point is worth
        more than another, by each method and, last, by the truth. "reliability" of the
        truth, see `reliability`; "halves", Spearman's correlation of the two estimates
        of which it is the mean; "few", the reliability of TMC-Shapley.
    """
    from scipy.stats import ConstantInputWarning, spearmanr

    *keys, deal, draws, noise = jax.random.split(jax.random.key((11 << 16) + seed), 5)
    x, y, x_val, y_val, perturbed = scene(part, sizes, deal)
    arrays = x, y, x_val, y_val
    learner = logistic()
    utility = value.ModelUtility(learner, *arrays)
    stop = value.MaxSamples(sizes.tests)
    halves = [value.group_testing_shapley(utility, key=k, stop=stop) for k in keys]
    estimates = [np.asarray(half.values, np.float64) for half in halves]
    errors = [np.asarray(half.stderr, np.float64) for half in halves]
    true = (estimates[0] + estimates[1]) / 2
    # The standard error of a mean of two independent estimates.
    error = np.hypot(*errors) / 2
    methods = knn_methods() | retrained_methods(learner, sizes.samples)
    by_method = {
        name: methods[name](*arrays, draws) for name in TESTED if name != RANDOM
    }
    by_method[RANDOM] = random_values(noise, sizes.n)
    smoothed = []
    for bins in BINS:
        agreement = rank_agreement({TRUTH: true, **by_method}, truth=TRUTH, bins=bins)
        smoothed.append([agreement.smoothed[name].spearman for name in TESTED])
    ranked = [*(np.asarray(by_method[m].values, np.float64) for m in TESTED), true]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        pairs = [spearmanr(values, true) for values in ranked[:-1]]
    few = by_method[FEW]
    return {
        "spearman": np.array([float(p[0]) for p in pairs]),  # pyright: ignore
        "p_value": np.array([float(p[1]) for p in pairs]),  # pyright: ignore
        "smoothed": np.array(smoothed),
        "perturbed_more": np.array([_above(v, perturbed) for v in ranked]),
        "reliability": np.array(reliability(true, error)),
        "halves": np.array(float(spearmanr(*estimates)[0])),  # pyright: ignore
        "few": np.array(reliability(few.values, np.asarray(few.stderr))),
    }


def reliability(values: npt.ArrayLike, error: npt.ArrayLike) -> float:
    """Return the share of the variance over points that is not sampling error.

    A correlation with exact values is at most about its root. Negative where errors
    are larger than the differences.

    Args:
        values: `[n]`.
        error: Their standard errors, `[n]`.
    """
    noise = float(np.mean(np.asarray(error, np.float64) ** 2))
    return 1 - noise / float(np.var(np.asarray(values, np.float64)))


def _above(values: np.ndarray, some: np.ndarray) -> float:
    """Return the ROC AUC of detecting some points by high values."""
    from scipy.stats import rankdata

    ranks = rankdata(values)
    # Mann-Whitney's U over its maximum; tied values share their mean rank.
    n, m = int(some.sum()), int((~some).sum())
    return float((ranks[some].sum() - n * (n + 1) / 2) / (n * m))
