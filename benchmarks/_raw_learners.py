"""Tables in raw units, and logistic regression on them, in float64."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable

import jax
import numpy as np
from scipy import linalg, special

from jaxsel import value

_LEAST = np.log(np.finfo(np.float64).eps)  # where log losses are cut
_STEPS = 500
NAMES = (
    "breast cancer",
    "wine",
    "diabetes",
    "digits",
    "income, 3 classes",
    "income, 5 classes",
    "a column of 1e9",
    "a constant column",
    "collinear columns",
    "a rare class",
)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Training and validation samples in raw units, float64. Compared by identity.

    Attributes:
        x: `[n, d]`.
        y: Classes, `[n]`.
        x_val: `[m, d]`.
        y_val: `[m]`.
    """

    x: np.ndarray
    y: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Return all four, in this order."""
        return self.x, self.y, self.x_val, self.y_val

    def utility(self, metric: str, *, l2: float = 1.0) -> value.ModelUtility:
        """Return the utility of logistic regression."""
        learner = value.LogisticRegression(l2=l2)
        return value.ModelUtility(learner, *self.arrays(), metric=metric)


@functools.cache
def table(name: str) -> Table:
    """Return one of `NAMES`: data sets of scikit-learn, or a made-up income table.

    Raises:
        ImportError: If scikit-learn is not installed.
    """
    rng = np.random.default_rng(5)
    if name in ("breast cancer", "wine", "diabetes", "digits"):
        from sklearn import datasets

        load = getattr(datasets, f"load_{name.replace(' ', '_')}")
        scaled = {"scaled": False} if name == "diabetes" else {}
        x, y = load(return_X_y=True, **scaled)
        if name == "diabetes":
            y = np.digitize(y, [100, 180])
        if name == "digits":
            rows = rng.permutation(len(x))[:400]
            x, y = x[rows], y[rows]
        return _split(x, y, rng)
    classes = {"income, 5 classes": 5, "a column of 1e9": 2}.get(name, 3)
    x, y = income(500, classes, rng)
    if name == "a column of 1e9":
        x = np.column_stack([x, 1e9 * rng.normal(size=len(x))])
    if name == "a constant column":
        x = np.column_stack([x, np.full(len(x), 7.3)])
    if name == "collinear columns":
        x = np.column_stack(
            [x, 365.25 * x[:, 0], 2.54 * x[:, 1] + 1, x[:, 0] + x[:, 1]]
        )
    if name == "a rare class":
        y = np.where((y == 2) & (rng.random(len(y)) < 0.93), 1, y)
    return _split(x, y, rng)


def income(
    n: int, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return age, hours, capital gain, wage, sex and a time; and income bands."""
    age = rng.integers(18, 80, n)
    hours = np.clip(rng.normal(40, 12, n), 1, 99).round()
    gain = np.where(rng.random(n) < 0.3, rng.lognormal(7, 2, n), 0).round(2)
    wage, sex = rng.lognormal(10, 0.8, n), rng.integers(2, size=n)
    time = 1.7e9 + rng.uniform(0, 1e7, n)
    score = (age - 45) / 20 + (hours - 40) / 15 + 0.15 * np.log1p(gain)
    score += 0.6 * (np.log(wage) - 10) + rng.logistic(size=n)
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes))
    return np.column_stack([age, hours, gain, wage, sex, time]), y


def _split(x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    rows = rng.permutation(len(x))
    held, kept = np.split(rows, [len(x) // 3])
    x = np.asarray(x, np.float64)
    return Table(x[kept], y[kept], x[held], y[held])


def masks(n: int) -> np.ndarray:
    """Return all points, two without one, and subsets of several sizes, `[9, n]`."""
    rng = np.random.default_rng(0)
    sizes = [n, n - 1, n - 1, 5, 8, 12, 20, n // 3, n // 2]
    ranks = np.stack([rng.permutation(n) for _ in sizes])
    return ranks < np.array(sizes)[:, None]


def log_probs(
    x: np.ndarray,
    y: np.ndarray,
    x_val: np.ndarray,
    *,
    l2: float,
    n_classes: int,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Return log probabilities at the optimum of scikit-learn's objective, `[m, K]`.

    Newton's method in float64. A step is a least-squares problem with the root of the
    Hessian, whose condition is that of its square root, so that columns of any scale do
    no harm.

    Args:
        x: Features, `[n, d]`.
        y: Classes from 0, `[n]`.
        x_val: `[m, d]`.
        l2: Penalty on the weights.
        n_classes: K.
        weights: How often each sample counts, `[n]`.

    Raises:
        RuntimeError: If it does not converge.
    """
    w = np.ones(len(x)) if weights is None else np.asarray(weights, np.float64)
    x, y, w = x[w > 0], y[w > 0], w[w > 0]
    classes, codes = np.unique(y, return_inverse=True)
    logs = np.full((len(x_val), n_classes), -np.inf)
    count = len(classes)
    if count == 1:
        logs[:, classes] = 0
        return logs
    mean, scale = x.mean(0), x.std(0)
    scale[scale <= 1e-12 * np.abs(mean)] = 1
    rows = np.append((x - mean) / scale, np.ones((len(x), 1)), axis=1)
    # Weights are relative to the first class; those of scikit-learn add up to zero.
    among = np.eye(count - 1) - 1 / count
    penalty = np.append((2 if count == 2 else 1) * l2 / scale**2, 0.0)
    values, vectors = np.linalg.eigh(among)
    root = np.kron(vectors * np.sqrt(values), np.diag(np.sqrt(penalty))).T
    right = np.arange(count) == codes[:, None]

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        z = np.pad(rows @ theta.T, ((0, 0), (1, 0)))
        losses = np.asarray(special.logsumexp(z - z[right][:, None], axis=1))
        return w @ losses + (theta * (among @ theta) * penalty).sum() / 2, z

    theta = np.zeros((count - 1, rows.shape[1]))
    old, z = loss(theta)
    for _ in range(_STEPS):
        p = special.softmax(z, axis=1)
        wrong = np.where(right, 0, p).sum(1, keepdims=True)
        error = w[:, None] * np.where(right, -wrong, p)
        slope = (error[:, 1:].T @ rows + (among @ theta) * penalty).ravel()
        parts: list[np.ndarray] = [root]
        for a, b in zip(*np.tril_indices(count, -1), strict=True):
            # diag(p) - p pᵀ is Σ p_a p_b (e_a - e_b) (e_a - e_b)ᵀ.
            part = np.zeros((len(x), count, rows.shape[1]))
            part[:, a] = np.sqrt(w * p[:, a] * p[:, b])[:, None] * rows
            part[:, b] = -part[:, a]
            parts.append(part[:, 1:].reshape(len(x), -1))
        whole = np.concatenate(parts)
        size = np.sqrt((whole**2).sum(0))
        size[size == 0] = 1
        factor = linalg.qr(whole / size, mode="r")[0][: len(size)]
        step = linalg.solve_triangular(factor, slope / size, trans=1)
        step = linalg.solve_triangular(factor, step) / size
        fall, step = slope @ step, step.reshape(theta.shape)
        length = 1.0
        new, ahead = loss(theta - step)
        while new > old - 1e-4 * length * fall and fall > 1e-13 * (1 + old):
            length /= 2
            new, ahead = loss(theta - length * step)
        theta, old, z = theta - length * step, new, ahead
        if np.abs(length * (rows @ step.T)).max() < 1e-8:
            break
    else:
        raise RuntimeError("the reference did not converge")
    val = np.append((x_val - mean) / scale, np.ones((len(x_val), 1)), axis=1)
    z = np.pad(val @ theta.T, ((0, 0), (1, 0)))
    logs[:, classes] = special.log_softmax(z, axis=1)
    return logs


def optimum(data: Table, mask: np.ndarray, *, l2: float = 1.0) -> tuple[float, float]:
    """Return the accuracy and the mean log probability of a subset's optimum."""
    x, y, x_val, y_val = data.arrays()
    n_classes = int(max(y.max(), y_val.max())) + 1
    logs = log_probs(x, y, x_val, l2=l2, n_classes=n_classes, weights=mask)
    right = np.maximum(logs[np.arange(len(y_val)), y_val], _LEAST)
    return float(np.mean(logs.argmax(1) == y_val)), float(right.mean())


def sklearn_optimum(data: Table, mask: np.ndarray) -> tuple[float, float]:
    """Return the same by scikit-learn, of columns that are centred."""
    from sklearn.linear_model import LogisticRegression

    x, y, x_val, y_val = data.arrays()
    mean = x[mask].mean(0)
    model = LogisticRegression(solver="newton-cholesky", tol=1e-8, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rounding, at the optimum
        model.fit(x[mask] - mean, y[mask])
    logs = np.full((len(y_val), int(max(y.max(), y_val.max())) + 1), -np.inf)
    logs[:, model.classes_] = model.predict_log_proba(x_val - mean)
    right = np.maximum(logs[np.arange(len(y_val)), y_val], _LEAST)
    return float(np.mean(logs.argmax(1) == y_val)), float(right.mean())


def gaps(name: str) -> np.ndarray:
    """Return how far log losses of `masks` are from the optimum, by subset."""
    data = table(name)
    subsets = masks(len(data.y))
    # Of ten classes our reference takes minutes, and scikit-learn's is as good.
    reference = sklearn_optimum if name == "digits" else optimum
    losses = np.asarray(data.utility("neg_log_loss")(subsets))
    return np.abs(losses - [reference(data, mask)[1] for mask in subsets])


def leave_one_out(data: Table) -> np.ndarray:
    """Return one subset for each sample, without it, `[n, n]`."""
    return ~np.eye(len(data.y), dtype=bool)


def leaving(data: Table) -> Callable[[], jax.Array]:
    """Return a call for the accuracy without each sample."""
    utility, subsets = data.utility("accuracy"), leave_one_out(data)
    return lambda: utility(subsets)
