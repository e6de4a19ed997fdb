"""Attributions of several runs as `Values`, and a check of their matrices."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxsel._results.types import Values


def check_convex(least: float, peak: float) -> None:
    """Raise a ValueError if a loss is not convex in the outputs.

    Args:
        least: The least eigenvalue of the loss by the outputs, over all samples.
        peak: The largest eigenvalue of the Gauss-Newton matrix.
    """
    if least < -1e-4 * max(1.0, peak):
        raise ValueError(
            "loss must be convex in the outputs, but has a second derivative of "
            f"{least:.3g} in some direction at a training sample"
        )


def over_seeds(
    scores: np.ndarray,
    *,
    reduce: Literal["mean"] | None,
    dtype: Any,
    method: str,
    index: tuple[Any, ...] | None,
) -> Values:
    """Average scores `[seeds, t, n]` over runs, with the squared deviations of these.

    Args:
        scores: Scores of each run, in float64.
        reduce: "mean" over targets too, or None.
        dtype: Of samples: float64 is kept.
        method: Name of the method.
        index: Labels of the training samples.
    """
    kind = jnp.float64 if dtype == jnp.float64 else jnp.float32
    rows = scores.mean(1) if reduce == "mean" else scores
    mean = rows.mean(0)
    m2 = jnp.asarray(((rows - mean) ** 2).sum(0), kind) if len(rows) > 1 else None
    return Values(
        values=jnp.asarray(mean, kind),
        count=jnp.asarray(len(rows), jnp.int32),
        m2=m2,
        method=method,
        reduce=reduce,
        index=index,
    )
