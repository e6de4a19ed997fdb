"""A new value: the weighted Banzhaf value of a KNN classifier.

Every other point is there with probability t, independently of the others. The Banzhaf
value has t = 1/2, where a far point hardly ever counts; a small t lets it count. All
that a KNN semivalue needs is each rank's weight: `P(Bin(r - 1, t) <= K - 1) / K`.

References:
    Li and Yu, Robust data valuation with weighted Banzhaf values, NeurIPS 2023.
"""

import itertools

import numpy as np
from scipy import stats

import jaxsel

T = 0.1


def weighted_banzhaf_weights(n: int, k: int) -> np.ndarray:
    """Weights of the ranks 1, ..., n for K neighbours, the nearest first, `[n]`."""
    return stats.binom.cdf(k - 1, np.arange(n), T) / k


def enumerate_value(point: int, gains: np.ndarray, k: int) -> float:
    """Return the value of a point by its definition, from gains by rank."""
    utility = lambda members: gains[sorted(members)[:k]].sum() / k
    others = [i for i in range(len(gains)) if i != point]
    total = 0.0
    for size in range(len(gains)):
        chance = T**size * (1 - T) ** (len(others) - size)
        for some in itertools.combinations(others, size):
            total += chance * (utility([*some, point]) - utility([*some]))
    return total


def main() -> jaxsel.Values:
    """Value eight points on a line, and compare with all coalitions."""
    x, y = np.arange(8.0)[:, None], np.array([1, 0, 1, 1, 0, 1, 0, 1])
    weights = weighted_banzhaf_weights
    values = jaxsel.knn_semivalue(x, y, [[-1.0]], [1], k=3, rank_weights=weights)
    expected = [enumerate_value(i, gains=y, k=3) for i in range(8)]
    np.testing.assert_allclose(values.values, expected, rtol=0, atol=1e-6)
    return values


if __name__ == "__main__":
    print(np.asarray(main().values).round(4))
