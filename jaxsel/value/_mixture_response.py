"""The response of a metric to mixtures, fitted: predictions and choices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._devices.platform import one_thread
from jaxsel._inputs.checks import check_choice, check_count

from ._mixture_best import NORMAL_95, BestMixture, Problem, find_best, next_mixtures
from ._mixture_design import check_mixtures, generator
from ._mixture_fit import Fit, moments, noise_variance, posterior
from ._mixture_kernel import MixtureModel

if TYPE_CHECKING:
    import matplotlib.axes

Goal = Literal["min", "max"]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MixtureResponse:
    """A metric as a function of the weights of data domains, fitted to runs.

    Attributes:
        mixtures: Mixtures of the runs that it is fitted to, `[R, D]`.
        metrics: Their metrics, `[R]`.
        goal: "min" or "max".
        model: The model that predicts: "quadratic" or "gp".
        log: Whether the model is of the metric's logarithm.
        loo_errors: Root mean square error of predicting each run from all others, of
            each model that was fitted: in the metric's units, or of its logarithm.
        upper: Upper bounds of the weights, `[D]`.
        names: Names of the domains.
        diverged: Number of runs left out, whose metric was NaN or infinite.
        fitted: Draws of the model's scales.
        other: The model not chosen and its weight, about how likely it is the better
            one; None where that is below 1e-4.
    """

    mixtures: np.ndarray
    metrics: np.ndarray
    goal: Goal
    model: MixtureModel
    log: bool
    loo_errors: Mapping[MixtureModel, float]
    upper: np.ndarray
    names: tuple[Any, ...]
    diverged: int
    fitted: Fit = dataclasses.field(repr=False)
    other: tuple[Fit, float] | None = dataclasses.field(default=None, repr=False)

    def __repr__(self) -> str:
        runs, domains = self.mixtures.shape
        return (
            f"MixtureResponse({runs} runs, {domains} domains, goal={self.goal!r}, "
            f"model={self.model!r}, log={self.log}, "
            f"loo_error={self.loo_errors[self.model]:.3g}, noise={self.noise:.3g})"
        )

    @property
    def noise(self) -> float:
        """Standard deviation of a run's metric, or of its logarithm if `log`."""
        return self._scale * noise_variance(self.fitted) ** 0.5

    def predict(
        self, mixtures: npt.ArrayLike, *, of_run: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict the metric at mixtures.

        Standard errors count what is unknown of the response, of the model's scales,
        and of the model itself, if both were fitted and predict runs left out about as
        well. They are multiplied by Student's quantile over the normal one, and by the
        size of the errors of runs left out where these are larger than expected.

        With `log`, the mean is the exponential of the mean logarithm, and the standard
        error that of the logarithm times the mean: take `interval`, whose ends are not
        symmetric then.

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
        mean, error = self._predicted(mixtures, of_run)
        return (np.exp(mean), np.exp(mean) * error) if self.log else (mean, error)

    def interval(
        self, mixtures: npt.ArrayLike, *, of_run: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return the ends of 95 % intervals at mixtures, `[m, 2]`.

        They hold the metric in about 95 % of mixtures that are spread as the runs' are.
        At a mixture that was chosen for its mean, take the interval of `best`.

        Args:
            mixtures: Weights `[m, D]`.
            of_run: Whether of a single run, rather than of the expected metric.
        """
        mean, error = self._predicted(mixtures, of_run)
        ends = np.stack([mean - NORMAL_95 * error, mean + NORMAL_95 * error], axis=1)
        return np.exp(ends) if self.log else ends

    def _predicted(
        self, mixtures: npt.ArrayLike, of_run: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard errors of the metric, or of its logarithm."""
        points = check_mixtures("mixtures", mixtures, len(self.names))
        mean, variance = self._moments(points)
        noise = self.noise**2 if of_run else 0.0
        return self._sign * mean, np.sqrt(variance + noise)

    def best(self, *, key: jax.Array | None = None) -> BestMixture:
        """Find the mixture within the bounds with the best expected metric.

        Args:
            key: Key of the candidates and of draws of the response; a constant if None.

        Returns:
            The mixture with intervals, and the domains that could be at zero.
        """
        with one_thread():
            best = find_best(self._problem, self._rng(key))
        low, high = best.interval
        metric = self._sign * best.metric
        ends = (low, high) if self.goal == "min" else (-high, -low)
        if not self.log:
            return dataclasses.replace(best, metric=metric, interval=ends)
        factor = float(np.exp(metric))
        worse = np.exp(metric + self._sign * best.without)
        return dataclasses.replace(
            best,
            metric=factor,
            standard_error=factor * best.standard_error,
            interval=(float(np.exp(ends[0])), float(np.exp(ends[1]))),
            without=np.abs(worse - factor),
            without_error=worse * best.without_error,
        )

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
        with one_thread():
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

        def predict(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.predict(points)[0], self.interval(points)

        return plot_response(self.best(), self.names, self.upper, predict, ax=ax)

    @property
    def _sign(self) -> float:
        return 1.0 if self.goal == "min" else -1.0

    @property
    def _scale(self) -> float:
        return float(self._values.std())

    @functools.cached_property
    def _values(self) -> np.ndarray:
        return np.log(self.metrics) if self.log else self.metrics

    @functools.cached_property
    def _scaled(self) -> np.ndarray:
        return self._sign * (self._values - self._values.mean()) / self._scale

    def _moments(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = self.mixtures, self._scaled, points
        mean, variance = moments(self.fitted, *data)
        if self.other is not None:
            other, weight = self.other
            variance = variance + weight * (moments(other, *data)[0] - mean) ** 2
        return self._shifted(mean), variance * self._scale**2

    def _joint(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        data = self.mixtures, self._scaled, points
        mean, covariance, by_run = posterior(self.fitted, *data)
        if self.other is not None:
            other, weight = self.other
            apart = moments(other, *data)[0] - mean
            covariance = covariance + weight * np.outer(apart, apart)
        return self._shifted(mean), covariance * self._scale**2, by_run

    def _shifted(self, mean: np.ndarray) -> np.ndarray:
        """Return means of the metric or its logarithm, negative for "max"."""
        return self._sign * self._values.mean() + self._scale * mean

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
