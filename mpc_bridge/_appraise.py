"""The worth of a chosen set: its mean score, or one bit against a threshold."""

from __future__ import annotations

import math
import numbers
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ._choose import check_scores
from ._ledger import Ledger
from ._programs import Reaches, Total, TotalEntropy
from .engines import Secret


def appraise(
    scores: Any,
    rows: npt.ArrayLike,
    *,
    threshold: float | None = None,
    entropy: bool = False,
    unit: float = 1.0,
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
        unit: How many times too large the scores are, see `SecureProxy.unit`: the mean
            and the threshold are those of the scores over it.
        ledger: Counts the steps and notes the opening.

    Returns:
        The mean score, to 2 units in the last place, or the bit.

    Raises:
        TypeError: If the scores are not encrypted, or rows or threshold no numbers.
        ValueError: If rows are not distinct rows of the scores, or the threshold is
            not finite or too large for the ring.
    """
    n = check_scores(scores, ledger)
    index = _check_rows(rows, n)
    scale = 2**ledger.engine.fraction_bits
    over = 1.0 if entropy else unit  # entropies are of the clear proxy's size
    limit = 2 ** (ledger.engine.ring - 2)  # of a sum, so that a difference fits
    lowest = None
    if threshold is not None:
        lowest = _lowest(threshold, scale * len(index) * int(over), limit)

    def total() -> Secret:
        program = TotalEntropy(unit) if entropy else Total()
        return ledger.run(program, scores, index)

    def mean() -> np.ndarray:
        opened = total()
        with ledger.step("appraisal", "open"):
            return ledger.open("mean", opened) / len(index) / over

    def reaches(lowest: int) -> np.ndarray:
        whole, part = divmod(lowest, scale)  # a float would not hold all of it
        ends = np.array([float(whole)]), np.array([part / scale])
        above = ledger.run(Reaches(), total(), *ends)
        with ledger.step("appraisal", "open"):
            return ledger.open("above", above)

    with ledger.engine.running():
        if lowest is None:
            return float(ledger.journal.opened(mean).item())
        return bool(ledger.journal.opened(lambda: reaches(lowest)).item())


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


def _lowest(threshold: float, scale: int, limit: int) -> int:
    """Return the smallest whole number of at least `threshold · scale`."""
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
        raise TypeError(f"threshold must be a number, got {threshold!r}")
    if not math.isfinite(threshold) or abs(float(threshold)) * scale >= limit:
        raise ValueError(
            f"threshold must be finite and below {limit / scale:g} in size, "
            f"got {threshold}"
        )
    return math.ceil(Fraction(float(threshold)) * scale)
