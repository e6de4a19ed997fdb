"""The response of a metric to the mixture of data domains."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_count,
    check_numeric,
    check_same_length,
)
from jaxsel._inputs.usual_mistakes import doubt

from ._mixture_best import BestMixture, Problem, find_best, next_mixtures
from ._mixture_design import check_mixtures, check_upper, generator
from ._mixture_fit import Fit, fit, moments, noise_variance, posterior
from ._mixture_kernel import MODELS, MixtureModel

if TYPE_CHECKING:
    import matplotlib.axes

Goal = Literal["min", "max"]

_LEAST_RUNS = 4


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MixtureResponse:
    """A metric as a function of the weights of data domains, fitted to runs.

    Attributes:
        mixtures: Mixtures of the runs that it is fitted to, `[R, D]`.
        metrics: Their metrics, `[R]`.
        goal: "min" or "max".
        model: The model that predicts: "quadratic" or "gp".
        loo_errors: Root mean square error of predicting each run from all others, in
            the metric's units, of each model that was fitted.
        upper: Upper bounds of the weights, `[D]`.
        names: Names of the domains.
        diverged: Number of runs left out, whose metric was NaN or infinite.
        fitted: Draws of the model's scales.
    """

    mixtures: np.ndarray
    metrics: np.ndarray
    goal: Goal
    model: MixtureModel
    loo_errors: Mapping[MixtureModel, float]
    upper: np.ndarray
    names: tuple[Any, ...]
    diverged: int
    fitted: Fit = dataclasses.field(repr=False)

    def __repr__(self) -> str:
        runs, domains = self.mixtures.shape
        return (
            f"MixtureResponse({runs} runs, {domains} domains, goal={self.goal!r}, "
            f"model={self.model!r}, loo_error={self.loo_errors[self.model]:.3g}, "
            f"noise={self.noise:.3g})"
        )

    @property
    def noise(self) -> float:
        """Standard deviation of a run's metric around its expectation."""
        return self._scale * noise_variance(self.fitted) ** 0.5

    def predict(
        self, mixtures: npt.ArrayLike, *, of_run: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict the metric at mixtures.

        Standard errors count what is unknown of the response and of the model's scales.
        They are multiplied by Student's quantile over the normal one, and by the size
        of the errors of runs left out where these are larger than expected: a mean ±
        1.96 standard errors holds the metric in about 95 % of mixtures like the runs'.

        Args:
            mixtures: Weights `[m, D]`, rows that sum to 1; within the bounds or not.
            of_run: Whether the error is that of a single run, with its noise, rather
                than of the expected metric.

        Returns:
            Means and standard errors, `[m]` float64.

        Raises:
            TypeError: If the mixtures are not numeric.
            ValueError: If their shape or sums do not fit.
        """
        points = check_mixtures("mixtures", mixtures, len(self.names))
        mean, variance = self._moments(points)
        if of_run:
            variance = variance + self.noise**2
        return self._sign * mean, np.sqrt(variance)

    def best(self, *, key: jax.Array | None = None) -> BestMixture:
        """Find the mixture within the bounds with the best expected metric.

        Args:
            key: Key of the candidates and of draws of the response; a constant if None.

        Returns:
            The mixture with intervals, and the domains that could be at zero.
        """
        best = find_best(self._problem, self._rng(key))
        if self.goal == "min":
            return best
        low, high = best.interval
        return dataclasses.replace(best, metric=-best.metric, interval=(-high, -low))

    def next_design(
        self,
        count: int,
        *,
        method: Literal["expected_improvement", "variance"] = "expected_improvement",
        key: jax.Array | None = None,
    ) -> np.ndarray:
        """Choose mixtures to run next.

        They are chosen one after the other, with the variances that they will leave, so
        that they differ from each other; and all differ from the runs. Expected
        improvement is over the best expected metric of a run.

        Args:
            count: Number of mixtures.
            method: "expected_improvement" to find the best mixture, "variance" to
                predict well everywhere.
            key: Key of the candidates; a constant if None.

        Returns:
            `[count, D]` float64; fewer if the bounds leave no other mixtures.

        Raises:
            TypeError: If `count` is no whole number.
            ValueError: If it is below 1, or the method is another.
        """
        check_count("count", count)
        check_choice("method", method, ("expected_improvement", "variance"))
        improve = method == "expected_improvement"
        return next_mixtures(self._problem, count, self._rng(key), improve)

    def plot(
        self, *, ax: Sequence[matplotlib.axes.Axes] | None = None
    ) -> Sequence[matplotlib.axes.Axes]:
        """Draw the metric along each domain's weight, and the best mixture.

        Args:
            ax: Two axes to draw on; made with pyplot if None.

        Returns:
            The two axes.

        Raises:
            ValueError: If `ax` does not hold two axes.
        """
        from ._mixture_plot import plot_response

        return plot_response(self, ax)

    @property
    def _sign(self) -> float:
        return 1.0 if self.goal == "min" else -1.0

    @property
    def _scale(self) -> float:
        return float(self.metrics.std())

    @property
    def _scaled(self) -> np.ndarray:
        return self._sign * (self.metrics - self.metrics.mean()) / self._scale

    def _moments(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = moments(self.fitted, self.mixtures, self._scaled, points)
        return self._shifted(mean), variance * self._scale**2

    def _joint(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, covariance = posterior(self.fitted, self.mixtures, self._scaled, points)
        return self._shifted(mean), covariance * self._scale**2

    def _shifted(self, mean: np.ndarray) -> np.ndarray:
        """Return means in the metric's units, negative for a goal of "max"."""
        return self._sign * self.metrics.mean() + self._scale * mean

    @functools.cached_property
    def _problem(self) -> Problem:
        return Problem(
            self._moments,
            self._joint,
            self.upper,
            self.mixtures,
            self.noise**2,
            self.names,
        )

    @staticmethod
    def _rng(key: jax.Array | None) -> np.random.Generator:
        return generator(jax.random.key(0) if key is None else key)


def mixture_response(
    mixtures: npt.ArrayLike,
    metrics: npt.ArrayLike,
    *,
    goal: Goal = "min",
    model: MixtureModel | None = None,
    upper: npt.ArrayLike | None = None,
    names: Sequence[Any] | None = None,
) -> MixtureResponse:
    """Fit the response of a metric to the mixture of domains, from runs.

    Two regressions are fitted, and the one with the smaller error of runs left out is
    kept: Scheffé's quadratic polynomial with shrunken products, and a Gaussian process
    with a length for each domain. Their scales, noise included, come from the
    restricted likelihood in float64, and predictions average over their uncertainty.
    Costs O(R³) a step of the search, and some seconds to compile.

    Args:
        mixtures: Weights of each run's domains, `[R, D]`, rows that sum to 1.
        metrics: Metric of each run, `[R]`, such as a validation loss; runs with NaN or
            infinity diverged, and are left out with a warning.
        goal: "min" for losses, "max" for accuracies.
        model: "quadratic" or "gp"; by the error of runs left out if None.
        upper: Upper bounds of the weights, `[D]`; 1 if None. For a budget of B samples
            and at most e passes: `e * counts / B`.
        names: Names of the domains; their numbers if None.

    Returns:
        A `MixtureResponse`.

    Raises:
        TypeError: If something is not numeric.
        ValueError: If shapes do not fit, there is one domain or all mixtures or metrics
            are the same, or there are too few runs: 4 for "gp", and D + 2 that
            determine a linear trend for "quadratic".

    References:
        Liu et al., "RegMix", ICLR 2025, arXiv:2407.01492, which fits linear models and
        trees; Ye et al., "Data Mixing Laws", ICLR 2025, arXiv:2403.16952.

    Examples:
        >>> import jax
        >>> from jaxsel import value
        >>> mixtures = value.mixture_design(jax.random.key(0), 24, 3)
        >>> loss = 1 / (0.1 + mixtures[:, 0]) + 1 / (0.1 + mixtures[:, 1])
        >>> response = value.mixture_response(mixtures, loss, names=["a", "b", "noise"])
        >>> best = response.best()
        >>> print(best.mixture.round(1), best.dispensable)
        [0.5 0.5 0. ] ('noise',)
    """
    check_choice("goal", goal, ("min", "max"))
    if model is not None:
        check_choice("model", model, MODELS)
    weights = check_mixtures("mixtures", mixtures)
    domains = weights.shape[1]
    scores = np.asarray(as_array("metrics", metrics))
    check_numeric("metrics", scores)
    if scores.ndim != 1:
        raise ValueError(f"metrics must have shape [R], got {scores.shape}")
    scores = scores.astype(np.float64)
    check_same_length("mixtures", weights, "metrics", scores)
    bounds = check_upper(upper, domains)
    labels = tuple(range(domains)) if names is None else tuple(names)
    if len(labels) != domains:
        raise ValueError(f"names must have length {domains}, got {len(labels)}")
    if domains == 1:
        raise ValueError(
            "mixtures must have two domains or more, got one: its weight is always 1"
        )
    sound = np.isfinite(scores)
    diverged = int((~sound).sum())
    weights, scores = weights[sound], scores[sound]
    _check_runs(weights, scores, diverged)
    if diverged:
        doubt(
            f"{diverged} of {len(sound)} runs have a metric of NaN or infinity, and are "
            "left out: predictions near their mixtures know nothing of that"
        )
    scaled = (scores - scores.mean()) / scores.std()
    scaled = scaled if goal == "min" else -scaled
    usable = ["gp"]
    if np.linalg.matrix_rank(weights) == domains and len(weights) >= domains + 2:
        usable = [*MODELS]
    if model is not None and model not in usable:
        raise ValueError(
            f"model 'quadratic' needs {domains + 2} runs for {domains} domains, with "
            f"mixtures of full rank, got {len(weights)} of rank "
            f"{np.linalg.matrix_rank(weights)}: add runs, or take 'gp'"
        )
    fits = {
        name: fit(name, weights, scaled)
        for name in MODELS
        if name in usable
        if model in (None, name)
    }
    chosen = min(fits.values(), key=lambda fitted: fitted.loo_error)
    errors = {name: f.loo_error * float(scores.std()) for name, f in fits.items()}
    return MixtureResponse(
        mixtures=weights,
        metrics=scores,
        goal=goal,
        model=chosen.model,
        loo_errors=errors,
        upper=bounds,
        names=labels,
        diverged=diverged,
        fitted=chosen,
    )


def _check_runs(mixtures: np.ndarray, metrics: np.ndarray, diverged: int) -> None:
    if len(metrics) < _LEAST_RUNS:
        left_out = f", {diverged} diverged ones left out" if diverged else ""
        raise ValueError(
            f"metrics must have {_LEAST_RUNS} runs or more that are finite, got "
            f"{len(metrics)}{left_out}"
        )
    if np.ptp(mixtures, axis=0).max() <= 1e-9:
        raise ValueError("mixtures must differ between runs, but all are the same")
    if np.ptp(metrics) <= 1e-12 * np.abs(metrics).max():
        raise ValueError(
            f"metrics must differ between runs, but all are {metrics[0]:.6g}: the "
            "metric does not depend on the mixture, or runs are too short"
        )
