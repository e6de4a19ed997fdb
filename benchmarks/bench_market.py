"""Optimal design without labels, against the published loop: `bench_market`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxsel.market import optimal_design
from jaxsel.market._design._design import Design

from ._case import Case, Contender, Target, at_most, faster
from ._harness import main


@dataclasses.dataclass(frozen=True)
class Offer:
    """Samples on offer, and points to predict at.

    Attributes:
        x: Array of shape `[n, d]`, float64.
        x_val: Array of shape `[m, d]`.
        steps: Frank-Wolfe steps.
    """

    x: np.ndarray
    x_val: np.ndarray
    steps: int

    def objective(self, weights: np.ndarray) -> float:
        """Return the mean of `x₀ᵀ (Σ wᵢ xᵢ xᵢᵀ)⁻¹ x₀`."""
        inverse = np.linalg.inv(self.x.T @ (weights[:, None] * self.x))
        return float(np.mean(np.sum(self.x_val @ inverse * self.x_val, axis=1)))

    @functools.cached_property
    def published(self) -> float:
        """The objective of the published loop's weights."""
        return self.objective(_loop(self))


def cases(*, quick: bool = False) -> list[Case[Offer]]:
    """Return the cases, or tiny ones of the same kind."""
    n, steps = (2_000, 50) if quick else (100_000, 500)
    d, m = 30, 100
    return [
        Case(
            name="design",
            title=f"design: {n:,} samples on offer × {m} validation points, d = {d}, "
            f"{steps} Frank-Wolfe steps",
            inputs=functools.partial(_draw, n, m, d, steps),
            tiny=functools.partial(_draw, 500, m, d, 5),
            work=n * steps,
            unit="sample and step",
            contenders=[
                Contender(
                    name="optimal_design",
                    make=_ours,
                    check=_beside,
                    limits={"over the loop's": 1.01, "off": 1e-3},
                ),
                Contender(
                    name="loop",
                    make=lambda offer: functools.partial(_loop, offer),
                    check=lambda offer, weights: {},
                    limits={},
                    peer=True,
                    note="the authors' steps in NumPy, without their matrix n × n, "
                    "which would take 80 GB",
                ),
            ],
            targets=[
                at_most("optimal_design", "cpu_s", 5, "CPU seconds", "must"),
                at_most(
                    "optimal_design", "peak_mb", 200, "MB beside the inputs", "must"
                ),
                Target(
                    text="optimal_design: objective beside the loop's ≤ 1.01",
                    level="must",
                    contender="optimal_design",
                    quantity="over the loop's",
                    bound="at most",
                    limit=1.01,
                ),
                faster("optimal_design", "loop", "goal", 10),
            ],
            rounds=5,
        )
    ]


def _draw(n: int, m: int, d: int, steps: int) -> Offer:
    rng = np.random.default_rng(0)
    scales = np.geomspace(1, 0.1, d)
    return Offer(rng.normal(size=(n, d)) * scales, rng.normal(size=(m, d)), steps)


def _ours(offer: Offer) -> Callable[[], Design]:
    return lambda: optimal_design(
        offer.x, offer.x_val, steps=offer.steps, tolerance=0.0
    )


def _beside(offer: Offer, design: Design) -> Mapping[str, float]:
    reached = offer.objective(design.shares.astype(np.float64))
    return {
        "over the loop's": reached / offer.published,
        "off": abs(design.objective[-1] / reached - 1),
        "efficiency": design.efficiency,
    }


def _loop(offer: Offer) -> np.ndarray:
    """Return weights by the steps that the authors of DAVED published.

    Their line search is told the objective of the start in all steps.
    """
    from scipy.optimize import minimize_scalar

    x, x_val = offer.x, offer.x_val
    weights = np.full(len(x), 1 / len(x))
    inverse = np.linalg.pinv(x.T @ (weights[:, None] * x))
    start = np.mean(np.sum(x_val @ inverse * x_val, axis=1))

    def along(alpha: float, gain: float, length: float) -> float:
        return (start - alpha * gain / (1 - alpha + alpha * length)) / (1 - alpha)

    for step in range(offer.steps):
        if step % 50 == 0:
            inverse = np.linalg.pinv(x.T @ (weights[:, None] * x))
        j = np.argmax(np.mean((x @ inverse @ x_val.T) ** 2, axis=1))
        v = inverse @ x[j]
        gain, length = np.mean((x_val @ v) ** 2), x[j] @ v
        search: Any = minimize_scalar(
            along, args=(gain, length), bounds=(0, 0.9), method="bounded"
        )
        weights *= 1 - search.x
        weights[j] += search.x
        fall = search.x / (1 - search.x + search.x * length)
        inverse = (inverse - fall * np.outer(v, v)) / (1 - search.x)
    return weights


if __name__ == "__main__":
    raise SystemExit(main("benchmarks.bench_market", cases))
