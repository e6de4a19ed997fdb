"""The cost of choosing the highest scores in secret: an expectation and a bound."""

from __future__ import annotations

import dataclasses
import math

from jaxsel._checks import check_count, check_positive

from . import _primitives as primitives
from ._cost import Network


@dataclasses.dataclass(frozen=True)
class ChoiceCost:
    """The cost of choosing the k highest of n secret scores by batched QuickSelect.

    A pass compares every score that is left with one of them, drawn by a public seed,
    in one batch, and opens the outcomes, until the set of the k is known. How many
    passes that takes depends on the draw.

    Attributes:
        passes: Expected passes, exact for distinct scores.
        comparisons: Expected comparisons, exact for distinct scores.
        passes_bound: Passes, exceeded with a probability of at most `risk`.
        comparisons_bound: Comparisons, exceeded with a probability of at most `risk`.
        risk: That probability.
        network: The link that `seconds` is for, if any.
    """

    passes: float
    comparisons: float
    passes_bound: int
    comparisons_bound: int
    risk: float
    network: Network | None = None

    @property
    def rounds(self) -> float:
        return self.passes * _COMPARED.rounds

    @property
    def bytes(self) -> float:
        return self.comparisons * _COMPARED.bytes

    @property
    def rounds_bound(self) -> int:
        return self.passes_bound * _COMPARED.rounds

    @property
    def bytes_bound(self) -> int:
        return self.comparisons_bound * _COMPARED.bytes

    @property
    def seconds(self) -> float | None:
        """Expected seconds on the network; None without one."""
        if self.network is None:
            return None
        return self.network.seconds(self.rounds, self.bytes)


_COMPARED = primitives.COMPARE + primitives.OPEN


def choice_cost(
    n: int, k: int, network: Network | None = None, *, risk: float = 0.01
) -> ChoiceCost:
    """Count the secure choice of the k highest of n scores by QuickSelect.

    The expectations follow Knuth's; for the bounds, a random pivot leaves at most
    max(U, 1 - U) of the scores, U uniform. With p-th moment r of that fraction, m
    passes leave a score with probability at most n^p r^m (Markov), and the comparisons
    have a p-norm of at most n / (1 - r^(1/p)) (Minkowski). The best p of 64 is taken.

    Raises:
        ValueError: If not `1 <= k <= n`, or `risk` is not between 0 and 1.

    References:
        D. E. Knuth, Mathematical analysis of algorithms, 1971: FIND.
    """
    n = check_count("n", n)
    if check_count("k", k) > n:
        raise ValueError(f"k must be at most n = {n}, got {k}")
    risk = check_positive("risk", risk)
    if risk >= 1:
        raise ValueError(f"risk must be below 1, got {risk}")
    if k == n:
        return ChoiceCost(0.0, 0.0, 0, 0, risk, network)
    # Knuth's sums, less what orders the two sides of the border: one comparison of each
    # score but the pivot.
    m = n - k
    above, below = _harmonic(k + 1) - 1, _harmonic(m + 1) - 1
    expected = 2 * (n - 2 * above - 2 * below + (n + 1) * _harmonic(n))
    expected -= 2 * ((m + 1) * _harmonic(m) + (k + 1) * _harmonic(k))
    passes, comparisons = n, n * (n - 1) // 2  # whatever the draw
    for p in range(1, 65):
        moment = 2 * (1 - 2.0 ** -(p + 1)) / (p + 1)
        m = (p * math.log(n) - math.log(risk)) / -math.log(moment)
        most = n * risk ** (-1 / p) / (1 - moment ** (1 / p))
        passes = min(passes, math.ceil(m))
        comparisons = min(comparisons, math.ceil(most))
    return ChoiceCost(above + below, expected, passes, comparisons, risk, network)


def _harmonic(n: int) -> float:
    """Return 1 + 1/2 + ... + 1/n."""
    if n < 100:
        return sum(1 / i for i in range(1, n + 1))
    return math.log(n) + 0.5772156649015329 + 1 / (2 * n) - 1 / (12 * n * n)
