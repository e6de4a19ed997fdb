"""Rank weights of semivalues that are given by the size of coalitions.

Let a coalition of the other n - 1 points have s of them with chance q[s], each set of
s alike. Of the n - 2 points other than the neighbours of rank r and r + 1, it then
holds s with chance

    c[s] = (q[s] (n-1-s) + q[s+1] (s+1)) / (n-1)

and from one rank to the next the weight falls by the chance that the point of rank r
would be the K-th to join, which of s among n - 2 is hypergeometric:

    w_r - w_{r+1} = (1/K) sum over s of c[s] C(r-1, K-1) C(n-2-r, s-K) / C(n-2, s)

All terms are positive, so nothing cancels when they are summed from the last rank on.
"""

from collections.abc import Iterator, Sequence

import numpy as np

# Chances of smooth stretches of sizes are moved to a few sizes each: beyond this size,
# to so many, which leaves 1e-14 of the first weight.
_EACH, _NODES = 64, 24


def size_restricted_weights(
    n: int,
    k: int,
    probability: Sequence[float] | np.ndarray | None = None,
    *,
    sizes: Sequence[float] | np.ndarray | None = None,
) -> np.ndarray:
    """Weights of a semivalue given by the size of coalitions, `[n]`.

    Give one of the last two arguments.

    Args:
        n: Number of training points.
        k: Number of neighbours.
        probability: `[n]`: the weight of one coalition of s = 0..n-1 other points, so
            that `sum(comb(n-1, s) * probability[s])` is 1. Shapley has
            `1 / (n * comb(n-1, s))`, Banzhaf `2**(1-n)`; zero above a size restricts
            the value to coalitions up to it. From n of about 1,030 on, most such
            numbers are too small for a float.
        sizes: `[n]`: the chance of each size, `comb(n-1, s) * probability[s]`, for any
            n. Shapley has `1 / n`.

    Returns:
        The weights, to about 1e-14 of the first. Costs some hundred times n operations,
        whatever the sizes: 1.4 CPU seconds at n = 1e6 and K = 5, 3.4 at K = 100.

    Raises:
        ValueError: If not one of both is given, its shape is not `[n]`, or it has an
            entry that is negative, not finite, or a probability too small for a float.
    """
    if (probability is None) == (sizes is None):
        raise ValueError("give one of probability and sizes")
    name = "probability" if sizes is None else "sizes"
    raw = np.asarray(probability if sizes is None else sizes)
    if raw.dtype.kind not in "biufO":
        raise TypeError(f"{name} must be real numbers, got {raw.dtype}")
    array = raw.astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape [n] = [{n}], got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise ValueError(f"{name} must be finite and zero or more")
    logs = _LogFactorials(n)
    size = np.arange(n)
    chance = array
    if sizes is None:
        if ((array > 0) & (array < np.finfo(np.float64).tiny)).any():
            raise ValueError(
                f"probability has an entry of {array[array > 0].min():.3g}, too small "
                "for a float to hold in full: give the chance of each size as sizes"
            )
        with np.errstate(divide="ignore"):
            chance = np.exp(logs.choose(n - 1, size) + np.log(array))
    last = chance[: min(k, n)].sum() / k
    if n == 1:
        return np.array([last])
    joint = (chance[:-1] * (n - 1 - size[:-1]) + chance[1:] * size[1:]) / (n - 1)
    fall = np.zeros(n - 1)  # from the weight of rank r to the next, at r - 1
    if n - 2 > k - 1:
        for s, share in _few_sizes(joint, k):
            joins = logs.kth_to_join(n - 2, k, s)
            fall[k - 1 : k - 1 + len(joins)] += share * joins
    fall[-1] = joint[:k].sum()  # the weight of rank n - 1 itself
    return np.append(np.cumsum(fall[::-1])[::-1] / k, last)


class _LogFactorials:
    """Logarithms of 0! to n! that can be subtracted from one another.

    At n = 1e6 they are near 1e7, and a float64 there is off by 1e-9. So each is the sum
    of two numbers: one of few digits, whose sums are exact, and a small rest.
    """

    def __init__(self, n: int) -> None:
        log = np.log(np.arange(1, n + 1))
        # Multiples of 2^-22: up to log(1e6!) < 2^24 their sums take 46 bits, so that
        # `cumsum` and all differences of this part are exact.
        coarse = np.round(log * 2**22) / 2**22
        parts = np.stack([coarse, log - coarse])
        self.parts = np.concatenate(
            [np.zeros((2, 1)), np.cumsum(parts, axis=1)], axis=1
        )

    def choose(self, n: int, size: np.ndarray) -> np.ndarray:
        """Return log C(n, size)."""
        p = self.parts
        return (p[:, [n]] - p[:, size] - p[:, n - size]).sum(axis=0)

    def kth_to_join(self, total: int, k: int, s: int) -> np.ndarray:
        """Return the chances that the k-th of s out of `total` has rank k, k + 1, ...

        Ranks so far away that their chances sum to less than 1e-20 are left out.
        """
        p = self.parts
        far = (k + 12 * np.sqrt(k) + 60) * (total + 2) / s
        stop = int(min(total - s + k, far)) + 1  # exclusive
        count = stop - k
        farther = slice(total - stop + 1, total - k + 1)  # total - rank, reversed
        # Negative hypergeometric: C(r - 1, k - 1) C(total - r, s - k) / C(total, s).
        log = p[:, k - 1 : stop - 1] - p[:, :count] + p[:, farther][:, ::-1]
        log -= p[:, total - stop + 1 - s + k : total - s + 1][:, ::-1]
        log += (p[:, s] + p[:, total - s] - p[:, total] - p[:, k - 1] - p[:, s - k])[
            :, None
        ]
        return np.exp(log.sum(axis=0))


def _few_sizes(joint: np.ndarray, k: int) -> Iterator[tuple[int, float]]:
    """Yield sizes of at least k and their chances, few but for the smallest.

    As a function of the size, `kth_to_join` is smooth over a stretch of 1 / sqrt(k) of
    it, less where the sizes come near to n. There its mean over the chances is that of
    its interpolation polynomial, which needs the chances' moments only: those are kept
    by `_NODES` sizes.
    """
    start = max(k, _EACH)
    yield from ((s, joint[s]) for s in range(k, min(start, len(joint))) if joint[s])
    while start < len(joint):
        width = np.sqrt((1 - start / len(joint)) / max(k, 4))
        stop = min(len(joint), start + max(_NODES, int(2 * start * width)))
        size = start + np.flatnonzero(joint[start:stop])
        if len(size) > 4 * _NODES:
            yield from _interpolated(size, joint[size])
        else:
            yield from zip(size.tolist(), joint[size], strict=True)
        start = stop


def _interpolated(size: np.ndarray, chance: np.ndarray) -> Iterator[tuple[int, float]]:
    """Move chances to Chebyshev points, by barycentric interpolation."""
    half, middle = (size[-1] - size[0]) / 2, (size[-1] + size[0]) / 2
    angle = np.pi * (np.arange(_NODES) + 0.5) / _NODES
    points: np.ndarray = middle + half * np.cos(angle)
    # Sizes are whole numbers. Two equal nodes would be a division by zero below.
    nodes = np.unique(np.round(points))
    # In units of the interval's capacity, a quarter of its length: products of the
    # differences then neither overflow nor underflow, however long it is.
    apart = (nodes[:, None] - nodes) * 2 / half
    np.fill_diagonal(apart, 1)
    weight = 1 / apart.prod(axis=1)
    at_node = np.isin(size, nodes)
    between = size + 0.5 * at_node  # beside a node, where what comes out is not used
    total = sum(w / (between - node) for w, node in zip(weight, nodes, strict=True))
    moved = np.where(at_node, 0.0, chance)
    for w, node in zip(weight, nodes, strict=True):
        share = (moved * (w / (between - node)) / total).sum()
        yield int(node), share + chance[size == node].sum()
