"""The worth of a chosen set: its mean score, or one bit against a threshold."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ._choose import check_scores
from ._compat import import_crypten
from ._ledger import Ledger

# The entropy of two classes as a function of u = (z1 - z0)²: a sum of t^2, t^4, t^8 and
# t^16, t = relu(1 - u / 64), with the smallest error over all u >= 0: 0.0035.
_REACH = 64
_POWERS = (0.08948906, 0.04203101, 0.23446001, 0.32370874)

_LIMIT = 2**62  # of a sum in the ring, so that a difference fits


def appraise(
    scores: Any,
    rows: npt.ArrayLike,
    *,
    threshold: float | None = None,
    entropy: bool = False,
    ledger: Ledger,
) -> float | bool:
    """Open the mean score of the chosen rows, or only whether it is high enough.

    The mean costs one round and 16 bytes, the bit 9 rounds and 448 bytes, for any
    number of rows. `entropy` adds 13 rounds, and 528 bytes a row.

    Args:
        scores: Encrypted, `[n]`.
        rows: `[k]`, whole numbers, each once.
        threshold: Public. If given, only "mean >= threshold" is opened. It is exact in
            the scores' fixed point: no mean is rounded.
        entropy: The scores are `-(z1 - z0)²` of two classes, whose mean says nothing:
            turn them into entropies, in nats, before the mean is taken. A single one is
            wrong by 0.004 at most, whatever the square, and so is the mean.
        ledger: Counts the steps and notes the opening.

    Returns:
        The mean score, to 2 units in the last place, or the bit.

    Raises:
        TypeError: If the scores are not encrypted, or rows or threshold no numbers.
        ValueError: If rows are not distinct rows of the scores, or the threshold is
            not finite or too large for the ring.
    """
    n = check_scores(scores)
    index = _check_rows(rows, n)
    crypten = import_crypten()
    import torch

    with crypten.no_grad():
        chosen = scores[torch.from_numpy(index)]
        scale, count = chosen.encoder.scale, len(index)
        lowest = None
        if threshold is not None:
            lowest = _lowest(threshold, scale * (1 if entropy else count))
        if entropy:
            with ledger.step("appraisal", "entropy"):
                total, count = _mean_entropy(chosen), 1
        else:
            total = chosen.sum(0, keepdim=True)
        if lowest is None:
            with ledger.step("appraisal", "open"):
                return float(ledger.open("mean", total.div(count)))
        with ledger.step("appraisal", "compare"):
            whole, part = divmod(lowest, scale)  # a float would not hold all of it
            above = (total - whole - part / scale).ge(0)
        with ledger.step("appraisal", "open"):
            return bool(ledger.open("above", above))


def _mean_entropy(scores: Any) -> Any:
    """Return the mean entropy, `[1]`, of scores `[k]` that are minus a square."""
    power = (scores.div(_REACH) + 1).relu()
    mean = 0
    for coefficient in _POWERS:
        power = power.square()
        mean = power.mean(0, keepdim=True) * coefficient + mean
    return mean


def _check_rows(rows: npt.ArrayLike, n: int) -> np.ndarray:
    index = np.asarray(rows)
    if not np.issubdtype(index.dtype, np.integer):
        raise TypeError(f"rows must be whole numbers, got dtype {index.dtype}")
    if index.ndim != 1 or not index.size:
        raise ValueError(f"rows must have shape [k], k at least 1, got {index.shape}")
    outside = index[(index < 0) | (index >= n)]
    if outside.size:
        raise ValueError(f"rows must be from 0 to {n - 1}, got {outside[0]}")
    index = np.sort(index.astype(np.int64))
    twice = index[1:][index[1:] == index[:-1]]
    if twice.size:
        raise ValueError(f"rows must be distinct, got {twice[0]} more than once")
    return index


def _lowest(threshold: float, scale: int) -> int:
    """Return the smallest whole number of at least `threshold · scale`."""
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
        raise TypeError(f"threshold must be a number, got {threshold!r}")
    if not math.isfinite(threshold) or abs(float(threshold)) * scale >= _LIMIT:
        raise ValueError(
            f"threshold must be finite and below {_LIMIT / scale:g} in size, "
            f"got {threshold}"
        )
    return math.ceil(Fraction(float(threshold)) * scale)
