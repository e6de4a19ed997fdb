"""The response of a metric to the mixture of data domains: its fit to runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxsel._inputs.alignment import check_row_order
from jaxsel._inputs.checks import (
    as_array,
    check_choice,
    check_numeric,
    check_same_length,
)
from jaxsel._inputs.frames import columns_of
from jaxsel._inputs.usual_mistakes import doubt

from ._mixture_design import check_mixtures, check_upper
from ._mixture_fit import Fit, fit
from ._mixture_kernel import MODELS, MixtureModel
from ._mixture_response import Goal, MixtureResponse

_LEAST_RUNS = 4
_LEAST_WEIGHT = 1e-4  # of the model not chosen


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
            suits losses that differ by large factors; if None, wherever the better half
            of the runs, left out, is more likely under it.
        upper: Upper bounds of the weights, `[D]`; 1 if None. For a budget of B samples
            and at most e passes: `e * counts / B`.
        names: Names of the domains; if None the columns' labels of a table, or numbers.

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
    check_row_order("mixtures", mixtures, "metrics", metrics)
    columns = columns_of(mixtures)
    weights = check_mixtures("mixtures", mixtures)
    domains = weights.shape[1]
    scores = np.asarray(as_array("metrics", metrics))
    check_numeric("metrics", scores)
    if scores.ndim != 1:
        raise ValueError(f"metrics must have shape [R], got {scores.shape}")
    scores = scores.astype(np.float64)
    check_same_length("mixtures", weights, "metrics", scores)
    bounds = check_upper(upper, domains)
    labels = tuple(names if names is not None else columns or range(domains))
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
        other=_other(chosen, others, len(scores)),
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
    """Fit models, and return how likely the better half of runs is under the best one.

    Each run left out. The worse half, often many times as large, would decide else, and
    a model that is poor near the optimum could be taken.
    """
    values = np.log(metrics) if log else metrics
    deviation = values.std()
    scaled = sign * (values - values.mean()) / deviation
    fits = [fit(model, mixtures, scaled) for model in models]
    best = min(fits, key=lambda f: f.loo_error)
    # Densities of the metric, whatever was fitted: by the change of variables.
    densities = best.densities - np.log(deviation) - (values if log else 0)
    better = np.argsort(scaled, kind="stable")[: (len(scaled) + 1) // 2]
    return fits, float(densities[better].mean())


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


def _other(chosen: Fit, others: list[Fit], runs: int) -> tuple[Fit, float] | None:
    """Return the model not chosen and its weight, by the errors of runs left out.

    Errors of R runs are as informative as about half as many independent ones. None
    where it is so unlikely that it changes no interval.
    """
    if not others:
        return None
    gap = runs / 2 * np.log(others[0].loo_error / max(chosen.loo_error, 1e-300))
    weight = float(1 / (1 + np.exp(min(gap, 700.0))))
    return (others[0], weight) if weight >= _LEAST_WEIGHT else None
