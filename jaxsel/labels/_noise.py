"""Estimates of wrong labels, with flips told apart from overlapping classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from ._inputs import check_predictions
from ._noise_model import NoiseModel, fit_noise


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LabelNoise:
    """Estimated label noise.

    Attributes:
        n_errors: Expected number of wrong labels.
        interval: The number of wrong labels lies between these two with probability
            0.95.
        confusion: Expected number of samples of each given and true class, `[K, K]`,
            given classes first.
        clean: Posterior probability that no label is wrong.
        classes: The classes, `[K]`.
        wrong: Probability that each label is wrong, `[n]`.
    """

    n_errors: float
    interval: tuple[float, float]
    confusion: np.ndarray
    clean: float
    classes: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, model: NoiseModel, classes: np.ndarray, wrong: Any) -> LabelNoise:
        """Return the noise of a fitted model."""
        return cls(
            n_errors=model.n_errors,
            interval=model.interval,
            confusion=model.confusion,
            clean=model.clean,
            classes=classes,
            wrong=wrong,
        )

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"LabelNoise(n_errors={self.n_errors:.0f} of {len(self.wrong)}, "
            f"interval=({low:.0f}, {high:.0f}), classes={len(self.classes)})"
        )


def estimate_noise(
    pred_probs: npt.ArrayLike, y: npt.ArrayLike, *, classes: npt.ArrayLike | None = None
) -> LabelNoise:
    """Estimate how many labels are wrong, and the probability that each one is.

    Near a boundary between classes, labels disagree with any model. Flipped labels, but
    not overlap, also disagree where the model is surest. Labels are
    modelled as flips of classes drawn from a softmax of powers of the probabilities:
    each class is flipped at a rate of its own, to any other class alike. Estimates are
    means over the posterior of these rates. Where the labels cannot tell flips from
    overlap, `interval` is wide and estimates stay near the prior, which favours few
    flips; flips that follow a feature, or go where the model confuses classes anyway,
    pass for overlap.

    Args:
        pred_probs: Out-of-sample probabilities, `[n, K]`. They need not add up to 1,
            nor be calibrated.
        y: Given labels, `[n]`.
        classes: The class of each column; see `confident_joint`.

    Returns:
        The number of wrong labels, its interval, and the probability of each sample.
        Costs some 100 passes over at most 2^18 probabilities, and some over all.

    Raises:
        TypeError: If labels are of different kinds.
        ValueError: If shapes do not fit, numbers are not between 0 and 1, or labels are
            no classes.

    References:
        Scott, A rate of convergence for mixture proportion estimation, with application
        to learning from noisy labels, AISTATS 2015; Liu and Tao, Classification with
        noisy labels by importance reweighting, TPAMI 38(3), 2016: rates of flips are
        identified where P(label | x) is extreme. The prior is ours.
    """
    predictions = check_predictions(pred_probs, y, classes)
    members, codes = [predictions.probs], predictions.codes
    model = fit_noise(members, codes)
    return LabelNoise.of(model, predictions.classes, model.wrong(members, codes))
