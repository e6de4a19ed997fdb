"""The cost of choosing the highest scores in secret: an expectation and a bound."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Literal, get_args

from jaxsel._inputs.checks import check_count, check_positive
from jaxsel._inputs.show import brief

from ._choosing import bounds, chosen, harmonic
from ._cost import Network
from ._traffic import EngineName, Traffic, check_engine

Leak = Literal["rank", "set"]
LEAKS: tuple[Leak, ...] = get_args(Leak)


@brief
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
        engine: The engine.
        expected: Expected traffic.
        most: Traffic, exceeded with a probability of at most twice `risk`, or four
            times by "set" on ABY3, which compares in both of its shuffles.
    """

    passes: float
    comparisons: float
    passes_bound: int
    comparisons_bound: int
    risk: float
    network: Network | None
    engine: EngineName
    expected: Traffic
    most: Traffic

    @property
    def rounds(self) -> float:
        """Expected rounds."""
        return self.expected.rounds

    @property
    def bytes(self) -> float:
        """Expected bytes."""
        return self.expected.bytes

    @property
    def rounds_bound(self) -> int:
        """Upper bound on the rounds."""
        return math.ceil(self.most.rounds)

    @property
    def bytes_bound(self) -> int:
        """Upper bound on the bytes."""
        return math.ceil(self.most.bytes)

    @property
    def seconds(self) -> float | None:
        """Expected seconds on the network; None without one."""
        if self.network is None:
            return None
        return self.network.wait(self.expected, self.engine)


def choice_cost(
    n: int,
    k: int,
    network: Network | None = None,
    *,
    engine: EngineName = "crypten",
    leak: Leak = "rank",
    risk: float = 0.01,
) -> ChoiceCost:
    """Count the secure choice of the k highest of n scores by QuickSelect.

    The expectations follow Knuth's; the bounds those of Markov and Minkowski on the
    scores that a random pivot leaves.

    Args:
        n: Scores to choose from.
        k: How many to choose.
        network: The link, to get seconds as well.
        engine: As in `cost`.
        leak: "rank" opens which scores lie above each pivot; "set", on SPU's engines,
            shuffles the scores in secret before, and the chosen rows again before it
            opens these alone.
        risk: With which probability a run may exceed each of the bounds.

    Returns:
        Passes and comparisons, expected and bounded, and their cost.

    Raises:
        ValueError: If not `1 <= k <= n`, `risk` is not between 0 and 1, or there is no
            such engine or leak.

    References:
        D. E. Knuth, Mathematical analysis of algorithms, 1971: FIND.
    """
    n = check_count("n", n)
    if check_count("k", k) > n:
        raise ValueError(f"k must be at most n = {n}, got {k}")
    risk, engine = check_positive("risk", risk), check_engine(engine)
    if leak not in LEAKS:
        raise ValueError(f"leak must be one of {', '.join(LEAKS)}, got {leak!r}")
    if leak == "set" and engine == "crypten":
        raise ValueError(
            "leak must be 'rank' with engine 'crypten', which can't shuffle"
        )
    if risk >= 1:
        raise ValueError(f"risk must be below 1, got {risk}")
    sent = functools.partial(chosen, engine, leak, n, k)
    if k == n:
        nothing = sent(0, 0) * 0
        return ChoiceCost(0.0, 0.0, 0, 0, risk, network, engine, nothing, nothing)
    # Knuth's sums, less what orders the two sides of the border: one comparison of each
    # score but the pivot.
    m = n - k
    above, below = harmonic(k + 1) - 1, harmonic(m + 1) - 1
    expected = 2 * (n - 2 * above - 2 * below + (n + 1) * harmonic(n))
    expected -= 2 * ((m + 1) * harmonic(m) + (k + 1) * harmonic(k))
    passes, comparisons = bounds(n, risk)
    return ChoiceCost(
        above + below,
        expected,
        passes,
        comparisons,
        risk,
        network,
        engine,
        sent(above + below, expected),
        sent(passes, comparisons, risk=risk),
    )
