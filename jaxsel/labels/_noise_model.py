"""A model of flipped labels: rates of flips, and the scores that they blur."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from jaxsel._inputs.show import brief

# Shares of flipped labels that are tried; cubic splines join their likelihoods.
RATES = np.array(
    [0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.09, 0.115]
    + [0.14, 0.17, 0.21, 0.26, 0.32, 0.38]
)
LEVEL = 0.95  # of the interval
_CLEAN = 0.1  # prior probability that no label is flipped
_DECAY = 0.5  # else, the prior density of the share falls by e at each such step
_FINE = 400  # shares at which the posterior is evaluated
_MOST = 0.45  # of a class: if more labels are flipped, classes change names
_NEVER = 1e-9  # stands for no flips: every label keeps a probability
_ENTRIES, _ROWS = 1 << 18, 20_000  # that the model is fitted to
_BIASED = 20  # classes up to which each has a bias
_RIDGE = 0.5  # of the biases
_LEAST = -14.0  # log probability: no model is believed to be surer
_STEPS, _GAIN = 25, 1e-3  # of Fisher scoring, and nats at which it stops
_NEGLIGIBLE = 1e-4  # posterior probability of rates that are left out


@brief
class Confusion(NamedTuple):
    """Two classes of which one is labelled as the other.

    Attributes:
        given: The label.
        true: The class that the samples are of.
        n: Expected number of samples.
        share: Of all samples with that label.
    """

    given: Any
    true: Any
    n: float
    share: float


class NoiseModel(NamedTuple):
    """Posterior of the rates of flips, with estimates for the fitted samples.

    Attributes:
        weights: Posterior probability of each pair of rates and scores, `[G]`.
        coefficients: Powers of the members, then biases of the classes, `[G, M + B]`.
        transitions: P(given | true), `[G, K, K]`, true classes first.
        clean: Posterior probability that no label is flipped.
        n_errors: Expected number of wrong labels.
        interval: Lower and upper end of its interval.
        confusion: Expected number of samples of each given and true class, `[K, K]`.
    """

    weights: np.ndarray
    coefficients: np.ndarray
    transitions: np.ndarray
    clean: float
    n_errors: float
    interval: tuple[float, float]
    confusion: np.ndarray

    def wrong(self, members: Sequence[np.ndarray], codes: np.ndarray) -> np.ndarray:
        """Return the probability that each given label is wrong, `[m]`.

        Args:
            members: Probabilities by each model, `[m, K]`.
            codes: Given labels, `[m]`.
        """
        wrong = np.zeros(len(codes))
        size = max(1, _ENTRIES // members[0].shape[1])
        points = (self.weights, self.coefficients, self.transitions)
        for start in range(0, len(codes), size):
            part = slice(start, start + size)
            scores, y = _scores(members, part), codes[part]
            rows = np.arange(len(y)), y
            # The point without flips has no wrong labels, and adds nothing.
            for weight, theta, flips in zip(*points, strict=True):
                true = _softmax(scores, theta)
                kept = true[rows] * flips[y, y]
                wrong[part] += weight * (1 - kept / (true @ flips)[rows])
        return np.clip(wrong, 0, 1)


def fit_noise(members: Sequence[np.ndarray], codes: np.ndarray) -> NoiseModel:
    """Fit rates of flips, and the clean scores behind them, to given labels.

    P(given j | x) = Σ_k T_kj softmax(Σ_m a_m log p_m(x) + b)_k. T flips labels of class
    k at the rate r_k, to all other classes alike. Overlapping classes leave the scale
    of T open, so it is not maximised but averaged over its posterior. Along two rays of
    rates (one rate for all; the likeliest ratios) the scale takes each of `RATES`, and
    a and b are refitted by Fisher scoring.

    Destinations of flips are not fitted: those that suit the labels best are the
    classes that overlap anyway, and overlap would pass for flips.

    Args:
        members: Held-out probabilities by each model, `[n, K]`, which need not add up
            to 1.
        codes: Given labels, `[n]`.

    Returns:
        The posterior. Costs some 100 passes over at most 2^18 probabilities.
    """
    n, classes = members[0].shape
    size = min(n, _ROWS, max(1, _ENTRIES // classes))
    picked = cast(np.ndarray, np.linspace(0, n - 1, size)).astype(np.intp)
    scores, y = _scores(members, picked), codes[picked]
    share = np.bincount(y, minlength=classes) / size

    biases = classes if classes <= _BIASED else 0
    start = np.append(np.full(len(scores), 1 / len(scores)), np.zeros(biases))
    never = _flips(_NEVER * np.ones(classes))
    start, clean_loss, _ = _fit_scores(scores, y, never, start)
    rays = [np.ones(classes)]
    # The optimum over rates of their own gains (K - 1) / 2 nats where there is one.
    handicaps = [0.0]
    likeliest = _likeliest_rates(scores, y, start)
    if (scale := likeliest @ share) > RATES[0] / 2:
        rays.append(likeliest / scale)
        handicaps.append((classes - 1) / 2)

    thetas: list[np.ndarray] = []
    transitions: list[np.ndarray] = []
    loss: list[float] = []
    tables: list[np.ndarray] = []
    for ray, handicap in zip(rays, handicaps, strict=True):
        theta = start
        for rate in RATES:
            flips = _flips(np.minimum(rate * ray, _MOST))
            theta, reached, true = _fit_scores(scores, y, flips, theta)
            thetas.append(theta)
            transitions.append(flips)
            loss.append(reached + handicap)
            tables.append(_joint_probabilities(true, y, flips))
    posterior = _Posterior.of(np.reshape(loss, (len(rays), -1)), clean_loss)
    wrong = np.array([1 - table[np.arange(size), y] for table in tables])
    n_errors, interval = posterior.expected(wrong, n / size)
    confusion = np.zeros((classes, classes))
    for weight, table in zip(posterior.weights, tables, strict=True):
        for k in range(classes):
            confusion[k] += weight * table[y == k].sum(axis=0)
    confusion[np.diag_indices(classes)] += posterior.clean * share * size
    kept = posterior.weights > _NEGLIGIBLE
    return NoiseModel(
        posterior.weights[kept],
        np.array(thetas)[kept],
        np.array(transitions)[kept],
        posterior.clean,
        n_errors,
        interval,
        confusion * (n / size),
    )


class _Posterior(NamedTuple):
    """Posterior over rays and scales.

    Attributes:
        weights: Of each ray and rate, `[D R]`: fine ones count for both neighbours.
        fine: Of each ray and fine rate, `[D, F]`.
        clean: Of no flips.
    """

    weights: np.ndarray
    fine: np.ndarray
    clean: float

    @classmethod
    def of(cls, loss: np.ndarray, clean_loss: float) -> _Posterior:
        """Return the posterior of losses in nats, `[D, R]`."""
        from scipy import interpolate

        roots, fine = np.sqrt(RATES), _fine_roots()
        curves = [interpolate.CubicSpline(roots, -line)(fine) for line in loss]
        # The grid is even in the root of the rate; `gradient` is the width of a cell.
        density = np.exp(-(fine**2) / _DECAY) * np.gradient(fine**2)
        prior = np.log((1 - _CLEAN) / len(loss) * density / density.sum())
        logs = np.stack(curves) + prior
        clean = np.log(_CLEAN) - clean_loss
        # Likelihoods of thousands of labels underflow: normalise in logs.
        top = max(logs.max(), clean)
        weights = np.exp(logs - top)
        total = weights.sum() + np.exp(clean - top)
        weights /= total
        return cls(
            (weights @ _hats()).ravel(), weights, float(np.exp(clean - top) / total)
        )

    def expected(
        self, wrong: np.ndarray, scale: float
    ) -> tuple[float, tuple[float, float]]:
        """Return the expected number of wrong labels, and its interval.

        Args:
            wrong: Probability that labels are wrong at each ray and rate, `[D R, m]`.
            scale: How many samples each of these stands for.
        """
        from scipy import special

        shape = len(self.fine), -1
        mean = wrong.sum(axis=1).reshape(shape) @ _hats().T * scale
        variance = (wrong * (1 - wrong)).sum(axis=1).reshape(shape) @ _hats().T * scale
        deviation = np.sqrt(np.maximum(variance, 1e-12))
        top = (mean + 4 * deviation).max()
        grid = cast(np.ndarray, np.linspace(0, top, 2001))
        # A mixture of normals by ray and rate, with an atom at 0 for no flips.
        below = np.full(len(grid), self.clean)
        for weight, centre, spread in zip(
            self.fine.ravel(), mean.ravel(), deviation.ravel(), strict=True
        ):
            if weight > 1e-9:
                below += weight * special.ndtr((grid - centre) / spread)
        tail = (1 - LEVEL) / 2
        low, high = grid[np.searchsorted(below, [tail, 1 - tail]).clip(max=2000)]
        return float((self.fine * mean).sum()), (float(low), float(high))


def _fine_roots() -> np.ndarray:
    low, high = np.sqrt(RATES[[0, -1]])
    return cast(np.ndarray, np.linspace(low, high, _FINE))


def _hats() -> np.ndarray:
    """Return weights by which fine rates interpolate between `RATES`, `[F, R]`."""
    roots = np.sqrt(RATES)
    return np.stack(
        [np.interp(_fine_roots(), roots, row) for row in np.eye(len(roots))], 1
    )


def _scores(members: Sequence[np.ndarray], rows: Any) -> np.ndarray:
    """Return log probabilities of some rows, `[M, m, K]`."""
    probs = np.stack([member[rows] for member in members]).astype(np.float64)
    np.maximum(probs, np.exp(_LEAST), out=probs)
    return np.log(probs / probs.sum(axis=2, keepdims=True))


def _flips(rates: np.ndarray) -> np.ndarray:
    """Return P(given | true) of rates of each class, `[K, K]`, true classes first."""
    classes = len(rates)
    flips = np.repeat(rates[:, None] / (classes - 1), classes, axis=1)
    flips[np.diag_indices(classes)] = 1 - rates
    return flips


def _softmax(scores: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return probabilities of the true classes, `[n, K]`."""
    powers, biases = theta[: len(scores)], theta[len(scores) :]
    z = np.tensordot(powers, scores, 1)
    if len(biases):
        z += biases
    z -= z.max(axis=1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(axis=1, keepdims=True)
    return z


def _joint_probabilities(
    true: np.ndarray, y: np.ndarray, flips: np.ndarray
) -> np.ndarray:
    """Return P(true | x, given label), `[n, K]`."""
    joint = true * flips[:, y].T
    return joint / joint.sum(axis=1, keepdims=True)


def _loss(
    scores: np.ndarray, y: np.ndarray, flips: np.ndarray, theta: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the penalised loss in nats, P(true | x) and P(given | x)."""
    true = _softmax(scores, theta)
    labels = true @ flips
    biases = theta[len(scores) :]
    loss = -np.log(labels[np.arange(len(y)), y]).sum() + _RIDGE / 2 * (biases @ biases)
    return float(loss), true, labels


def _fit_scores(
    scores: np.ndarray, y: np.ndarray, flips: np.ndarray, theta: np.ndarray
) -> tuple[np.ndarray, float, np.ndarray]:
    """Fit powers, none below 0, and biases by Fisher scoring.

    Returns:
        Powers and biases, the loss, and P(true | x).
    """
    members, n, classes = scores.shape
    rows = cast(np.ndarray, np.arange(n))
    ridge = np.append(np.full(members, 1e-6), np.full(len(theta) - members, _RIDGE))
    loss, true, labels = _loss(scores, y, flips, theta)
    for _ in range(_STEPS):
        # Derivatives of P(given | x) by each parameter.
        slopes = np.empty((n, classes, len(theta)))
        for m, score in enumerate(scores):
            mean = (true * score).sum(axis=1, keepdims=True)
            slopes[:, :, m] = (true * (score - mean)) @ flips
        if len(theta) > members:
            slopes[:, :, members:] = true[:, None] * (
                flips.T[None] - labels[:, :, None]
            )
        gradient = -(slopes[rows, y] / labels[rows, y][:, None]).sum(axis=0)
        gradient[members:] += _RIDGE * theta[members:]
        # Fisher information of a categorical: Σ ∂p ∂pᵀ / p over the given classes.
        roots = (slopes / np.sqrt(np.maximum(labels, 1e-12))[:, :, None]).reshape(
            -1, len(theta)
        )
        information = roots.T @ roots + np.diag(ridge)
        # Active set: powers of 0 whose descent direction is negative stay at 0.
        free = (theta > 0) | (gradient < 0)
        free[members:] = True
        step = np.zeros(len(theta))
        step[free] = -np.linalg.solve(information[np.ix_(free, free)], gradient[free])
        # The Newton decrement, about twice the gain that the step promises.
        if -(gradient @ step) < _GAIN:
            break
        length = 1.0
        while length > 1e-3:
            tried = theta + length * step
            tried[:members] = np.maximum(tried[:members], 0)
            reached = _loss(scores, y, flips, tried)
            if reached[0] < loss:
                break
            length /= 2
        else:
            break
        gain = loss - reached[0]
        theta, (loss, true, labels) = tried, reached
        if gain < _GAIN / 10:
            break
    return theta, loss, true


def _likeliest_rates(
    scores: np.ndarray, y: np.ndarray, theta: np.ndarray
) -> np.ndarray:
    """Return the rates of flips of the greatest likelihood, `[K]`."""
    from scipy import optimize

    members, n, classes = scores.shape
    size = len(theta)
    onehot = np.eye(classes)[y]

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        flips = _flips(parameters[size:])
        value, true, labels = _loss(scores, y, flips, parameters[:size])
        likelihood = labels[np.arange(n), y]
        # Gradient by the logits: P(true | x) - P(true | x, given).
        apart = true * (1 - flips[:, y].T / likelihood[:, None])
        slope = np.einsum("mnk,nk->m", scores, apart)
        biases = apart.sum(axis=0)[: size - members]
        biases += _RIDGE * parameters[members:size]
        # By each entry of P(given | true), then along that of a rate.
        entries = -(true / likelihood[:, None]).T @ onehot
        kept = entries.diagonal()
        rates = (entries.sum(axis=1) - kept) / (classes - 1) - kept
        return value, np.concatenate([slope, biases, rates])

    bounds = [(0, None)] * members + [(None, None)] * (size - members)
    best = cast(Any, optimize.minimize)(
        loss,
        np.append(theta, np.full(classes, 0.05)),
        jac=True,
        method="L-BFGS-B",
        bounds=[*bounds, *[(0, _MOST)] * classes],
        options={"maxiter": 80, "ftol": 1e-7},
    )
    return cast(np.ndarray, best.x)[size:]
