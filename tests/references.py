"""Slow, obvious float64 references for the KNN values, in NumPy.

Two independent roads lead to each value. For small n, `enumerate_values` lists every
coalition and every order that the ties allow, and knows nothing but the utility. For
large n, a semivalue is an average over t of coalitions that hold each point with
probability t (Dubey, Neyman and Weber, 1981), which Gauss quadrature integrates
exactly: one loop from the farthest neighbour to the nearest, no closed form in K.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy import special, stats

# utility(members [s, n], gains [o, n], point) -> [o, s]: members and gains are ordered
# by distance, nearest first, with one row of gains for each order.
Utility = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


# Distances and gains.


def distances(x, x_val, metric="l2"):
    """Return the distances (not squared) of each validation point, `[n_val, n]`."""
    x, x_val = (np.asarray(a, np.float64) for a in (x, x_val))
    if metric == "l2":
        return np.linalg.norm(x_val[:, None] - x[None], axis=-1)
    dot = np.einsum("vd,nd->vn", x_val, x)
    norms = np.linalg.norm(x_val, axis=1)[:, None] * np.linalg.norm(x, axis=1)[None]
    return np.round(1 - dot / norms, 12)


def matches(y, y_val):
    """Return the gains of hard labels, `[n_val, n]`: 1 where they agree."""
    return (np.asarray(y_val)[:, None] == np.asarray(y)[None]).astype(np.float64)


# Coalitions: utilities by definition, weights by coalition size.


def knn_utility(k) -> Utility:
    """U(S) = (1/K) times the sum of the gains of the K nearest."""

    def utility(members, gains, point):
        return gains @ _nearest(members, k).T / k

    return utility


def soft_utility(k, n_classes) -> Utility:
    """U(S) = the mean gain of the min(K, |S|) nearest; 1/C if there are none."""

    def utility(members, gains, point):
        near = _nearest(members, k)
        return _mean(gains @ near.T, near.sum(1), 1 / n_classes)

    return utility


def threshold_utility(distance, radius, n_classes) -> Utility:
    """U(S) = the mean gain of those of S in the closed ball; 1/C if there are none."""
    n_inside = (np.asarray(distance) <= radius).sum(1)

    def utility(members, gains, point):
        near = members & (np.arange(members.shape[1]) < n_inside[point])
        return _mean(gains @ near.T, near.sum(1), 1 / n_classes)

    return utility


def decision_utility(k, y, y_val) -> Utility:
    """U(S) = the share of other classes that do not outvote the right one.

    The K nearest of the two classes vote. Labels take the place of gains.
    """
    classes = np.union1d(y, y_val)

    def utility(members, labels, point):
        right = y_val[point]
        others = classes[classes != right]
        won = np.zeros((len(labels), len(members)))
        for order, label in enumerate(labels):
            for other in others:
                votes = (label == right) * 1 - (label == other)
                won[order] += _nearest(members & (votes != 0), k) @ votes >= 0
        return won / max(1, len(others))

    return utility


def regression_utility(k, t_val) -> Utility:
    """U(S) = -((1/K) times the sum of the targets of the K nearest - t)^2."""

    def utility(members, gains, point):
        return -((gains @ _nearest(members, k).T / k - t_val[point]) ** 2)

    return utility


def shapley_weights(n):
    """Return p, `[n]`: the weight of one coalition (of the others) by its size."""
    return np.array([1 / (n * math.comb(n - 1, s)) for s in range(n)])


def banzhaf_weights(n):
    return np.full(n, 0.5 ** (n - 1))


def loo_weights(n):
    return np.eye(n)[n - 1]


def beta_weights(n, alpha, beta):
    """Kwon and Zou (2022), equation 5: alpha > beta favours small coalitions."""
    s = np.arange(n)
    return special.beta(s + beta, n - 1 - s + alpha) / special.beta(alpha, beta)


def enumerate_semivalue(utility, n, p):
    """Sum p[|S|] (U(S + i) - U(S)) over all S without i, by the table of U.

    Args:
        utility: `[..., 2**n]`: U of each coalition; bit i of the index is point i.
        n: Number of points.
        p: `[n]`: the weight of a coalition by its size.

    Returns:
        `[..., n]`.
    """
    index = np.arange(2**n)
    size = coalitions(n).sum(1)
    values = []
    for i in range(n):
        without = index[index >> i & 1 == 0]
        gained = utility[..., without | 1 << i] - utility[..., without]
        values.append(gained @ p[size[without]])
    return np.stack(values, axis=-1)


def enumerate_values(distance, gains, utility, p, ties="stable"):
    """Return each point's value for each validation point, `[n_val, n]`.

    With `ties="average"`, the mean over every order that the ties allow.
    """
    n_val, n = gains.shape
    members = coalitions(n)
    values = np.zeros((n_val, n))
    for point in range(n_val):
        order = orders(distance[point], ties)
        table = utility(members, gains[point][order], point)
        ranked = enumerate_semivalue(table, n, p)
        by_index = np.take_along_axis(ranked, np.argsort(order, axis=1), axis=1)
        values[point] = by_index.mean(0)
    return values


def coalitions(n):
    """Return the members of every coalition, `[2**n, n]`."""
    return np.arange(2**n)[:, None] >> np.arange(n) & 1 == 1


def orders(distance, ties):
    """Return orders by distance, `[o, n]`: the stable one, or all that ties allow."""
    if ties == "stable":
        return np.argsort(distance, kind="stable")[None]
    groups = [np.flatnonzero(distance == d) for d in np.unique(distance)]
    every = itertools.product(*map(itertools.permutations, groups))
    return np.array([list(itertools.chain(*order)) for order in every])


def _nearest(members, k):
    return members & (members.cumsum(1) <= k)


def _mean(total, size, if_none):
    return np.where(size > 0, total / np.maximum(size, 1), if_none)


# Any n: a loop over ranks, with weights by quadrature.


def uniform(n):
    """Return nodes and weights for t uniform on [0, 1]: Shapley."""
    return jacobi(n, 1, 1)


def jacobi(n, alpha, beta):
    """Return nodes and weights for t ~ Beta(beta, alpha), exact up to degree n."""
    t, w = special.roots_jacobi(n // 2 + 1, alpha - 1, beta - 1)
    return (t + 1) / 2, w / w.sum()


def point_mass(t):
    """Return the one node of t: 1/2 for Banzhaf, 1 for leave-one-out."""
    return np.array([t], np.float64), np.ones(1)


def rank_weights(n, k, measure):
    """Return omega, `[n]`: E_t P(at most K - 1 of the r - 1 nearer ones are in) / K."""
    t, w = measure
    nearer = np.arange(n)[:, None]
    return stats.binom.cdf(k - 1, nearer, t) @ w / k


def size_rank_weights(n, k, p):
    """Return omega, `[n]`, for arbitrary weights p of the coalition sizes."""
    omega = np.zeros(n)
    for r in range(1, n):
        for s, i in itertools.product(range(n - 1), range(k)):
            if 0 <= s - i <= n - 1 - r:
                pairs = math.comb(r - 1, i) * math.comb(n - 1 - r, s - i)
                omega[r - 1] += (p[s] + p[s + 1]) * pairs / k
    omega[n - 1] = sum(math.comb(n - 1, s) * p[s] for s in range(min(k, n))) / k
    return omega


def recursion(gains, omega):
    """Return values by rank from gains by rank, both `[..., n]`.

    Neighbours r and r + 1 differ only where at most K - 1 nearer ones are in.
    """
    values = np.zeros(gains.shape)
    values[..., -1] = gains[..., -1] * omega[-1]
    for r in range(gains.shape[-1] - 2, -1, -1):
        step = (gains[..., r] - gains[..., r + 1]) * omega[r]
        values[..., r] = values[..., r + 1] + step
    return values


def sorted_values(distance, gains, omega, ties="stable"):
    """Return the values of any utility that is linear in the gains, `[n_val, n]`."""
    order = np.argsort(distance, axis=1, kind="stable")
    ranked = np.take_along_axis(gains, order, axis=1)
    if ties == "stable":
        values = recursion(ranked, omega)
    else:
        linear = recursion(np.eye(gains.shape[1]), omega).T
        near = np.take_along_axis(distance, order, axis=1)
        values = np.stack(
            [_tie_average(linear, d) @ u for d, u in zip(near, ranked, strict=True)]
        )
    return np.take_along_axis(values, np.argsort(order, axis=1), axis=1)


def soft_values(distance, gains, k, n_classes):
    """Return soft-label KNN-Shapley values in stable order, `[n_val, n]`.

    A coalition of s others, drawn without replacement, has a hypergeometric number of
    nearer ones. The farthest point's value follows from efficiency.
    """
    n = gains.shape[1]
    size = np.arange(max(n - 1, 0))
    omega = np.zeros(n)
    for r in range(1, n):
        few = stats.hypergeom.cdf(k - 1, n - 2, r - 1, size) if r > 1 else 1.0
        omega[r - 1] = np.mean(few / np.minimum(k, size + 1))
    order = np.argsort(distance, axis=1, kind="stable")
    ranked = np.take_along_axis(gains, order, axis=1)
    values = recursion(ranked, omega)
    total = ranked[:, :k].mean(1) - 1 / n_classes
    values += ((total - values.sum(1)) / n)[:, None]
    return np.take_along_axis(values, np.argsort(order, axis=1), axis=1)


def threshold_values(distance, gains, radius, n_classes):
    """Return threshold KNN-Shapley values, `[n_val, n]`: by size of the coalition."""
    inside = distance <= radius
    n = inside.sum(1, keepdims=True)
    others = (gains * inside).sum(1, keepdims=True) - gains
    mean = others / np.maximum(n - 1, 1)
    values = gains - 1 / n_classes
    for s in range(1, gains.shape[1]):
        values = values + np.where(s < n, (gains - mean) / (s + 1), 0)
    return np.where(inside, values / np.maximum(n, 1), 0)


def regression_values(distance, targets, t_val, k):
    """Return KNN-regression Shapley values in stable order, `[n_val, n]`.

    E[U(S + r) - U(S + r + 1)] needs, besides r's own gain, the expected sum of the
    other K - 1 nearest targets; quadrature gives the probability of each.
    """
    n = len(targets)
    t, w = uniform(n)
    omega = k * rank_weights(n, k, (t, w))
    # P(a point is in, and at most K - 2 of j given others that are nearer).
    within = (t * stats.binom.cdf(k - 2, np.arange(n)[:, None], t)) @ w
    values = np.zeros(distance.shape)
    for point, order in enumerate(np.argsort(distance, axis=1, kind="stable")):
        y, goal = targets[order] / k, t_val[point]
        ranked = np.zeros(n)
        change = (y[-1] - 2 * goal) * omega[-1] + 2 * y[:-1].sum() * within[n - 2]
        ranked[-1] = -y[-1] * change
        for r in range(n - 2, -1, -1):  # ranks from 0, neighbours r and r + 1
            crowd = y[:r].sum() * within[r - 1] + y[r + 2 :] @ within[r : n - 2]
            change = (y[r] + y[r + 1] - 2 * goal) * omega[r] + 2 * crowd
            ranked[r] = ranked[r + 1] - (y[r] - y[r + 1]) * change
        values[point, order] = ranked
    return values


def _tie_average(linear, distance):
    """Average a map from gains by rank to values by rank over all orders of ties.

    Two points that share a group take every pair of its ranks equally often.
    """
    same = distance[:, None] == distance[None]
    size = same.sum(1)
    mean = same / size
    block = mean @ linear @ mean
    own = mean @ np.diag(linear)
    other = (size * np.diag(block) - own) / np.maximum(size - 1, 1)
    average = np.where(same, other[:, None], block)
    np.fill_diagonal(average, own)
    return average
