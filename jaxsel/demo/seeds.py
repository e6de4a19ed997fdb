"""Results over seeds: stacked, and their mean and spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def stacked(runs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Stack the results of several seeds, by name, on a new first axis."""
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]}


def spread(x: np.ndarray) -> tuple[float, float | None]:
    """Return mean and standard deviation over seeds; the latter None for one seed."""
    return float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else None
