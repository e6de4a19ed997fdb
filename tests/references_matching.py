"""Slow, obvious float64 references for gradients and matching, in NumPy and SciPy.

Candidates are the rows of a matrix `[n, p]`; nothing here knows about oracles, factors
of any kind, or updates: every step is computed anew from the definition.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import optimize, special

# Below these, relative to the numbers they are computed from, a float64 is rounding.
_DEPENDENT = 1e-10
_NOTHING = 1e-10


# The problem: minimise ‖Σ w_i g_i − b‖² + Σ ridge_i w_i².


def ridge(n, l2=0.0, penalty=None, penalty_l2=1.0):
    """Return the weight of each w_i² in the objective, `[n]`."""
    penalty = np.zeros(n) if penalty is None else np.asarray(penalty, np.float64)
    return l2 + penalty_l2 * penalty**2


def objective(gradients, target, weights, ridge):
    """Return the objective of weights `[n]`, by its definition."""
    left = weights @ np.asarray(gradients, np.float64) - np.asarray(target, np.float64)
    return left @ left + np.sum(ridge * weights**2)


def spread(match, n):
    """Return a match's weights at their candidates' places, `[n]`."""
    weights = np.zeros(n)
    m = int(match.n_valid)
    weights[np.asarray(match.indices)[:m]] = np.asarray(match.weights, np.float64)[:m]
    return weights


def refit(gradients, target, ridge, *, positive):
    """Return the best weights of all the candidates given, `[m]`."""
    a = np.asarray(gradients, np.float64)
    system = np.vstack([a.T, np.diag(np.sqrt(np.broadcast_to(ridge, len(a))))])
    right = np.concatenate([np.asarray(target, np.float64), np.zeros(len(a))])
    if positive:
        return optimize.nnls(system, right, maxiter=100 * len(a) + 100)[0]
    return np.linalg.lstsq(system, right, rcond=None)[0]


class Found(NamedTuple):
    """What `omp` found.

    Attributes:
        picked: The candidates in the order of choice, those of weight zero too.
        weights: Their weights.
        objective: After each step.
        margin: The least gap between a choice and the runner-up, relative to the
            choice's score: below the rounding of what is tested, the order is open.
        stopped: "budget", "tolerance" or "exhausted".
    """

    picked: list[int]
    weights: np.ndarray
    objective: list[float]
    margin: float
    stopped: str

    @property
    def kept(self):
        """Candidates of nonzero weight and their weights, in the order of choice."""
        pairs = zip(self.picked, self.weights, strict=True)
        return [(j, w) for j, w in pairs if w != 0]


def omp(
    gradients,
    target,
    budget,
    *,
    l2=0.5,
    positive=True,
    score="omp",
    penalty=None,
    penalty_l2=1.0,
    tol=0.0,
    valid=None,
):
    """Match greedily, solving the whole problem anew after every choice."""
    a, b = np.asarray(gradients, np.float64), np.asarray(target, np.float64)
    n, norm = len(a), b @ b
    extra = ridge(n, l2, penalty, penalty_l2)
    kernel = a @ a.T + np.diag(extra)
    valid = np.ones(n, bool) if valid is None else np.asarray(valid)
    lengths = np.sqrt(np.sum(a**2, axis=1))
    picked, weights, values = [], np.zeros(0), []
    margin, last = np.inf, norm
    while len(picked) < budget:
        if norm > 0 and last <= max(tol**2, 1e-14) * norm:
            return Found(picked, weights, values, margin, "tolerance")
        corr = a @ (b - weights @ a[picked])
        left = schur(kernel, picked)
        size = corr if positive else np.abs(corr)
        allowed = valid & (size > _NOTHING * lengths * np.sqrt(norm))
        allowed[picked] = False
        with np.errstate(divide="ignore", invalid="ignore"):
            if score == "omp":
                scores = size
            elif score == "nomp":
                scores = size**2 / lengths**2
            else:
                allowed &= left > _DEPENDENT * np.diag(kernel)
                scores = size**2 / left
        if not allowed.any():
            return Found(picked, weights, values, margin, "exhausted")
        scores = np.where(allowed, scores, -np.inf)
        j = int(np.argmax(scores))
        others = np.delete(scores, j)
        margin = min(margin, 1 - np.max(others, initial=0.0) / scores[j])
        picked = [*picked, j]
        weights = refit(a[picked], b, extra[picked], positive=positive)
        full = np.zeros(n)
        full[picked] = weights
        last = objective(a, b, full, extra)
        values.append(last)
    return Found(picked, weights, values, margin, "budget")


def schur(kernel, picked):
    """Return what remains of a kernel's diagonal, given the candidates picked."""
    if not picked:
        return np.diag(kernel).copy()
    inner = np.linalg.pinv(kernel[np.ix_(picked, picked)], hermitian=True)
    return np.diag(kernel - kernel[:, picked] @ inner @ kernel[picked])


def best_support(gradients, target, k, ridge, *, positive):
    """Return the least objective of at most k candidates, trying all sets of k."""
    n = len(gradients)
    ridge = np.broadcast_to(ridge, n)
    best = np.inf
    for support in itertools.combinations(range(n), min(k, n)):
        chosen = list(support)
        weights = np.zeros(n)
        weights[chosen] = refit(
            np.asarray(gradients)[chosen], target, ridge[chosen], positive=positive
        )
        best = min(best, objective(gradients, target, weights, ridge))
    return best


def gain(gradients, target, chosen, ridge):
    """Return f(S): how far the best weights of S (any sign) lower the objective."""
    b = np.asarray(target, np.float64)
    if not chosen:
        return 0.0
    weights = np.zeros(len(gradients))
    weights[chosen] = refit(
        np.asarray(gradients)[chosen], b, ridge[chosen], positive=False
    )
    return b @ b - objective(gradients, b, weights, ridge)


def submodularity_ratio(gradients, target, k, ridge):
    """Return γ by trying all disjoint L and S with |L| + |S| <= k.

    Das and Kempe (2011), Definition 2.3: the least ratio of the sum of single gains to
    the gain of all.
    """
    n, ratio = len(gradients), 1.0
    f = lambda chosen: gain(gradients, target, list(chosen), ridge)
    for size in range(k):
        for given in itertools.combinations(range(n), size):
            base, rest = f(given), [i for i in range(n) if i not in given]
            single = {i: f((*given, i)) - base for i in rest}
            for more in range(2, k - size + 1):
                for added in itertools.combinations(rest, more):
                    together = f((*given, *added)) - base
                    if together > 1e-12:
                        ratio = min(ratio, sum(single[i] for i in added) / together)
    return ratio


def submodularity_bound(gradients, k, ridge):
    """Return a lower bound of γ: least over greatest curvature of the objective.

    Any k candidates' K has its eigenvalues between the least ridge and the greatest
    plus k times the greatest squared length.
    """
    lengths = np.sum(np.asarray(gradients, np.float64) ** 2, axis=1)
    return np.min(ridge) / (np.max(ridge) + k * np.max(lengths))


def submodularity_bound_of_paper(gradients, k, ridge):
    """Return what Theorem 3.1 says: the greatest ridge stands above the line too."""
    lengths = np.sum(np.asarray(gradients, np.float64) ** 2, axis=1)
    return np.max(ridge) / (np.max(ridge) + k * np.max(lengths))


def grad_match(gradients, target, budgets, labels, hard_labels, **options):
    """Match each class alone. Returns a dict from class to `omp`'s result.

    `picked` holds the indices among all candidates.
    """
    found = {}
    for label, budget in budgets.items():
        rows = np.flatnonzero(np.asarray(labels) == label)
        mean = np.asarray(target, np.float64)[np.asarray(hard_labels) == label].mean(0)
        one = omp(np.asarray(gradients)[rows], mean, budget, **options)
        found[label] = one._replace(picked=[int(rows[j]) for j in one.picked])
    return found


# Relatives: they choose one candidate at a time, and no candidate twice.


def herding(gradients, target, k):
    """Return the choices whose mean follows the target (Welling, 2009)."""
    a, b = np.asarray(gradients, np.float64), np.asarray(target, np.float64)
    picked, total = [], np.zeros_like(b)
    for t in range(min(k, len(a))):
        scores = a @ ((t + 1) * b - total)
        scores[picked] = -np.inf
        picked.append(int(np.argmax(scores)))
        total = total + a[picked[-1]]
    return picked


def log_det(gradients, k, l2):
    """Return the greedy choices for det(G_S + l2 I) (Chen, Zhang and Zhou, 2018)."""
    a = np.asarray(gradients, np.float64)
    kernel = a @ a.T + l2 * np.eye(len(a))
    picked = []
    for _ in range(min(k, len(a))):
        best = [
            -np.inf
            if j in picked
            else np.linalg.slogdet(kernel[np.ix_([*picked, j], [*picked, j])])[1]
            for j in range(len(a))
        ]
        picked.append(int(np.argmax(best)))
    return picked


def facility_location(gradients, k, *, squared=False):
    """Return greedy medoids and the sizes of their clusters (Mirzasoleiman, 2020)."""
    a = np.asarray(gradients, np.float64)
    distance = np.sum((a[:, None] - a[None]) ** 2, axis=-1)
    distance = distance if squared else np.sqrt(distance)
    picked: list[int] = []
    for _ in range(min(k, len(a))):
        cost = [
            np.inf if j in picked else distance[:, [*picked, j]].min(axis=1).sum()
            for j in range(len(a))
        ]
        picked.append(int(np.argmin(cost)))
    nearest = np.argmin(distance[:, picked], axis=1)
    # A medoid serves itself, even where another one coincides with it.
    nearest[picked] = np.arange(len(picked))
    return picked, np.bincount(nearest, minlength=len(picked))


def influence(checkpoints, targets, rates, *, normalise=False):
    """Return Σ_t rate_t <g_i, b_t>, `[n]`; or of cosines (Pruthi et al., 2020)."""
    total = 0
    for a, b, rate in zip(checkpoints, targets, rates, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        dot = a @ b
        if normalise:
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b)
            dot = np.divide(dot, lengths, out=np.zeros_like(dot), where=lengths > 0)
        total = total + rate * dot
    return total


# Gradients of a last layer, example by example.


def last_layer(logits, labels, features, *, loss="cross_entropy", bias=True):
    """Return the gradients by the last layer's kernel and bias, `[n, H C (+ C)]`."""
    errors = output_errors(logits, labels, loss)
    rows = []
    for error, h in zip(errors, np.asarray(features, np.float64), strict=True):
        parts = [np.outer(h, error).ravel()] + ([error] if bias else [])
        rows.append(np.concatenate(parts))
    return np.stack(rows)


def output_errors(logits, labels, loss):
    """Return the loss's derivative by the logits, `[n, C]`.

    The losses are the cross-entropy of softmax, or of the sigmoid of a single logit,
    and half the squared distance.
    """
    logits = np.asarray(logits, np.float64)
    if loss == "squared":
        return logits - np.asarray(labels, np.float64).reshape(logits.shape)
    if logits.shape[1] == 1:
        return special.expit(logits) - np.asarray(labels)[:, None]
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities - np.eye(logits.shape[1])[np.asarray(labels)]
