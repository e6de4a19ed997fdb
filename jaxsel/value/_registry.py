"""The KNN values by name, for the command line, and for tests of code and docs."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from scipy import special

from jaxsel._inputs.show import brief
from jaxsel._results.types import Values

from ._hard_label import weighted_knn_shapley
from ._knn import (
    knn_banzhaf,
    knn_beta_shapley,
    knn_loo,
    knn_semivalue,
    knn_shapley,
    soft_knn_shapley,
)
from ._regression import knn_regression_shapley
from ._threshold import threshold_knn_shapley
from ._weights import banzhaf_weights


def _beta(n: int, alpha: float = 1.0, beta: float = 1.0) -> np.ndarray:
    """Return the weights of the Beta(alpha, beta) semivalue; Beta(1, 1) is Shapley."""
    size = np.arange(n)
    return special.beta(size + beta, n - 1 - size + alpha) / special.beta(alpha, beta)


def _banzhaf(n: int) -> np.ndarray:
    return np.full(n, 0.5 ** (n - 1))


@brief
@dataclasses.dataclass(frozen=True)
class KnnValue:
    """A KNN value and its definition, which tests enumerate over all coalitions.

    A value is the sum over coalitions S of the other points of
    `by_size(n)[len(S)] * (U(S with the point) - U(S))`.

    Attributes:
        function: Computes it from x, y, x_val, y_val and the options of `KnnOptions`.
        by_size: Function of n that returns the weight of one coalition of s = 0..n-1
            other points, `[n]`; of the Shapley value by default.
        utility: U: the gains of the K nearest over K ("share", the default), their
            mean ("mean"), the mean gain in the ball ("ball"), whether the K nearest
            vote for the right class ("decision"), or the negative squared error of
            their targets ("error").
        needs: Options without a default, and values for tests.
        ties: Choices of `ties` that it has.
        methods: Choices of `method` that it has.
        command: Whether `jaxsel value --method` has it.
    """

    function: Callable[..., Values]
    by_size: Callable[[int], np.ndarray] = _beta
    utility: Literal["share", "mean", "ball", "decision", "error"] = "share"
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    ties: tuple[str, ...] = ("stable", "average")
    methods: tuple[str, ...] = ("exact", "hybrid")
    command: bool = True

    @property
    def targets(self) -> bool:
        """True if labels are numbers rather than classes."""
        return self.utility == "error"

    @property
    def efficient(self) -> bool:
        """True if values sum to `U(all points) - U(no point)`."""
        return self.by_size is _beta


VALUES: dict[str, KnnValue] = {
    "knn_shapley": KnnValue(knn_shapley),
    "knn_banzhaf": KnnValue(knn_banzhaf, _banzhaf),
    "knn_loo": KnnValue(knn_loo, lambda n: np.eye(n)[n - 1]),
    "knn_beta_shapley": KnnValue(knn_beta_shapley, lambda n: _beta(n, 16, 1)),
    "soft_knn_shapley": KnnValue(soft_knn_shapley, utility="mean"),
    "threshold_knn_shapley": KnnValue(
        threshold_knn_shapley, utility="ball", needs={"radius": 2.0}
    ),
    "knn_regression_shapley": KnnValue(
        knn_regression_shapley, utility="error", ties=("stable",), methods=("exact",)
    ),
    "weighted_knn_shapley": KnnValue(
        weighted_knn_shapley, utility="decision", ties=("stable",), command=False
    ),
    "knn_semivalue": KnnValue(
        knn_semivalue, _banzhaf, needs={"rank_weights": banzhaf_weights}, command=False
    ),
}
