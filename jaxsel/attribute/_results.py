"""Attributions of several runs as `Values`."""

from __future__ import annotations

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxsel._results.types import Values


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
