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

from ._mixture_best import NORMAL_95, BestMixture, Problem, find_best, next_mixtures
from ._mixture_design import check_mixtures, check_upper, generator
from ._mixture_fit import Fit, fit, moments, noise_variance, operator, posterior
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
        log: Whether the model is of the metric's logarithm.
        loo_errors: Root mean square error of predicting each run from all others, of
            each model that was fitted: in the metric's units, or of its logarithm.
        upper: Upper bounds of the weights, `[D]`.
        names: Names of the domains.
        diverged: Number of runs left out, whose metric was NaN or infinite.
        fitted: Draws of the model's scales.
        other: The model not chosen, or None, and its weight: about how likely it is
            the better one.
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

    def _joint(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = self.mixtures, self._scaled, points
        mean, covariance = posterior(self.fitted, *data)
        if self.other is not None:
            other, weight = self.other
            apart = moments(other, *data)[0] - mean
            covariance = covariance + weight * np.outer(apart, apart)
        return self._shifted(mean), covariance * self._scale**2

    def _shifted(self, mean: np.ndarray) -> np.ndarray:
        """Return means of the metric or its logarithm, negative for "max"."""
        return self._sign * self._values.mean() + self._scale * mean

    @functools.cached_property
    def _problem(self) -> Problem:
        return Problem(
            self._moments,
            self._joint,
            lambda points: operator(self.fitted, self.mixtures, points),
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
    log: bool | None = None,
    upper: npt.ArrayLike | None = None,
    names: Sequence[Any] | None = None,
) -> MixtureResponse:
    """Fit the response of a metric to the mixture of domains, from runs.

    Two regressions are fitted, and the one with the smaller error of runs left out is
    kept: Scheffé's quadratic polynomial with shrunken products, and a Gaussian process
    with a length for each domain, either of the metric or of its logarithm. Their
    scales, noise included, come from the restricted likelihood in float64, and
    predictions average over their uncertainty. Costs O(R³) a step of the search, and
    some seconds to compile.

    Args:
        mixtures: Weights of each run's domains, `[R, D]`, rows that sum to 1.
        metrics: Metric of each run, `[R]`, such as a validation loss; runs with NaN or
            infinity diverged, and are left out with a warning.
        goal: "min" for losses, "max" for accuracies.
        model: "quadratic" or "gp"; by the error of runs left out if None.
        log: Whether to fit the logarithm of the metrics, which must be positive, as
            suits losses that differ by large factors; if None, wherever runs left out
            are more likely under it.
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
            f"{diverged} of {len(sound)} runs have a metric of NaN or infinity, and "
            "are left out: predictions near their mixtures know nothing of that"
        )
    usable, sign = _usable(weights, model), 1.0 if goal == "min" else -1.0
    if log and not (scores > 0).all():
        raise ValueError(
            f"log must be False for metrics of 0 or less, got {scores.min():.4g}"
        )
    scales = (False, True) if log is None and (scores > 0).all() else (bool(log),)
    fitted = [
        (*_fits(usable, weights, scores, sign, of_log), of_log) for of_log in scales
    ]
    fits, _, of_log = max(fitted, key=lambda result: result[1])
    chosen, *others = sorted(fits, key=lambda f: f.loo_error)
    deviation = float((np.log(scores) if of_log else scores).std())
    return MixtureResponse(
        mixtures=weights,
        metrics=scores,
        goal=goal,
        model=chosen.model,
        log=of_log,
        loo_errors={f.model: f.loo_error * deviation for f in fits},
        upper=bounds,
        names=labels,
        diverged=diverged,
        fitted=chosen,
        other=(others[0], _weight(chosen, others[0], len(scores))) if others else None,
    )


def _usable(mixtures: np.ndarray, model: MixtureModel | None) -> list[MixtureModel]:
    """Return the models to fit, and refuse a quadratic one of too few runs."""
    runs, domains = mixtures.shape
    rank = int(np.linalg.matrix_rank(mixtures))
    determined = rank == domains and runs >= domains + 2
    if model == "quadratic" and not determined:
        raise ValueError(
            f"model 'quadratic' needs {domains + 2} runs for {domains} domains, with "
            f"mixtures of rank {domains}, got {runs} of rank {rank}: add runs, or take "
            "'gp'"
        )
    if model is not None:
        return [model]
    return [*MODELS] if determined else ["gp"]


def _fits(
    models: list[MixtureModel],
    mixtures: np.ndarray,
    metrics: np.ndarray,
    sign: float,
    log: bool,
) -> tuple[list[Fit], float]:
    """Fit models, and return the log density of left-out metrics by the best one."""
    values = np.log(metrics) if log else metrics
    deviation = values.std()
    scaled = sign * (values - values.mean()) / deviation
    fits = [fit(model, mixtures, scaled) for model in models]
    best = min(fits, key=lambda f: f.loo_error)
    # Densities of the metric, whatever was fitted: by the change of variables.
    density = best.density - np.log(deviation) - (values.mean() if log else 0)
    return fits, float(density)


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


def _weight(chosen: Fit, other: Fit, runs: int) -> float:
    """Return the weight of the model not chosen, by the densities of runs left out.

    Errors of R runs are as informative as about half as many independent ones.
    """
    gap = runs / 2 * np.log(other.loo_error / max(chosen.loo_error, 1e-300))
    return float(1 / (1 + np.exp(min(gap, 700.0))))
