"""Cross-validated logistic regression, with the penalty of the best likelihood."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import fori_loop, jit
from jaxsel._inputs.checks import caller_level
from jaxsel.value import Curvature, LogisticRegression, fit_softmax

from ._two_classes import fit_two

GRID = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Penalties as shares of the features' total variance."""

LEAST = -30.0  # log probabilities: a class that a fold lacks has none
_TOL = 1e-2
_TWO_TOL = 1e-4  # of `fit_two`, whose steps are cheap
_COARSER = 10  # Newton's last step squares the error
_EXPLICIT = 256  # columns up to which Hessians of two classes are formed
_TRIED, _OF_CLASS = 2500, 100  # samples that choose the penalty, where fits cost most
_ENTRIES = 1 << 25  # probabilities of all penalties in memory


def logistic_folds(
    x: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    learner: LogisticRegression,
) -> np.ndarray:
    """Return held-out probabilities `[n, K]` of logistic regression.

    The same as by `fit` of the learner, whose `prepare` pays for thousands of
    coalitions, not for a few folds. Warns of folds that do not converge.
    """
    if n_classes == 2 and x.shape[1] < _EXPLICIT and _both_everywhere(codes, fold):
        trains = fold[None] != np.arange(int(fold.max()) + 1)[:, None]
        y, w = codes.astype(np.float32), trains.astype(np.float32)
        probs, converged = _two(x, y, w, np.float32(learner.l2), tol=learner.tol)
        warn_unconverged(converged)
        return np.asarray(probs)
    rows = np.ones((len(x), x.shape[1] + 1), np.float32)
    np.subtract(x, x.mean(axis=0, dtype=np.float64), out=rows[:, :-1], casting="unsafe")
    tol = _COARSER * learner.tol
    logs, _, converged = _trained(rows, codes, n_classes, fold, (learner.l2,), tol)
    warn_unconverged(converged)
    return np.where(logs[0] > LEAST, np.exp(logs[0]), 0)


def warn_unconverged(converged: Any) -> None:
    """Warn unless all folds converged, `[B]`."""
    if not np.all(converged):
        warnings.warn(
            "logistic regression did not converge on all folds, so that probabilities "
            "may be far from those at the optimum: scale the columns of x, as "
            "sklearn.preprocessing.StandardScaler does, or raise l2",
            UserWarning,
            stacklevel=caller_level(),
        )


def _both_everywhere(codes: np.ndarray, fold: np.ndarray) -> bool:
    """Return whether every fold is predicted from samples of both classes."""
    held = np.bincount(2 * fold + codes).reshape(-1, 2)
    return bool((held.sum(axis=0) > held).all())


@jit(static_argnames="tol")
def _two(
    x: Any, y: Any, trains: Any, l2: Any, *, tol: float
) -> tuple[jax.Array, jax.Array]:
    """Return held-out probabilities of two classes, `[n, 2]`, and if they converged."""
    logits, converged = fit_two(x, y, trains, l2, tol)
    # Each sample is held out of one fold's model only: the sum picks its logit.
    z = jnp.sum(jnp.where(trains > 0, 0, logits), axis=0)
    return jnp.stack([jax.nn.sigmoid(-z), jax.nn.sigmoid(z)], axis=1), converged


class Tuned(NamedTuple):
    """Predictions of the best penalty.

    Attributes:
        log_probs: `[n, K]` float32, held out.
        l2: The penalty, as in `value.LogisticRegression`.
        loss: Mean held-out cross-entropy of each penalty tried, in nats.
    """

    log_probs: np.ndarray
    l2: float
    loss: dict[float, float]


def tuned_logistic(
    x: np.ndarray, codes: np.ndarray, n_classes: int, fold: np.ndarray
) -> Tuned:
    """Train on all folds with each penalty, and keep the likeliest.

    Where fits cost most, the penalty is chosen on evenly spaced samples.
    """
    flat = x.reshape(len(x), -1)
    centred = flat - flat.mean(axis=0, dtype=np.float64)
    scale = float((centred * centred).sum(axis=1).mean())
    # One scale for all columns, to keep their relative variances.
    centred /= np.sqrt(scale) if scale > 0 else 1.0
    rows = np.append(centred, np.ones((len(x), 1)), axis=1).astype(np.float32)
    n, most = len(x), _ENTRIES // (n_classes * len(GRID))
    if n_classes > 2 or rows.shape[1] > _EXPLICIT:
        most = min(most, max(_TRIED, _OF_CLASS * n_classes))
    tried = np.arange(n)[:: -(-n // most)] if n > most else np.arange(n)
    by_penalty, loss = _fit(rows[tried], codes[tried], n_classes, fold[tried], GRID)
    best = int(np.argmin(loss))
    if len(tried) < n:
        by_penalty, _ = _fit(rows, codes, n_classes, fold, GRID[best : best + 1])
        log_probs = by_penalty[0]
    else:
        log_probs = by_penalty[best]
    penalties = [scale * share for share in GRID]
    losses = {l2: float(value) for l2, value in zip(penalties, loss, strict=True)}
    return Tuned(log_probs, penalties[best], losses)


def _fit(
    rows: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    shares: tuple[float, ...],
    tol: float = _TOL,
) -> tuple[np.ndarray, np.ndarray]:
    """Return held-out log probabilities `[G, n, K]`, and their losses `[G]`."""
    if n_classes == 2 and rows.shape[1] <= _EXPLICIT and _both_everywhere(codes, fold):
        fitted = _fit_two(rows[:, :-1], codes, fold, shares)
        if fitted is not None:
            return fitted
    return _trained(rows, codes, n_classes, fold, shares, tol)[:2]


def _fit_two(
    rows: np.ndarray, codes: np.ndarray, fold: np.ndarray, shares: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """Fit two classes as `_fit` does, one penalty after another; None if one fails."""
    trains = fold[None] != np.arange(int(fold.max()) + 1)[:, None]
    y, weights = codes.astype(np.float32), trains.astype(np.float32)
    x = jnp.asarray(rows)
    fits = [_two(x, y, weights, np.float32(share), tol=_TWO_TOL) for share in shares]
    if not all(np.all(converged) for _, converged in fits):
        return None
    probs = np.stack([probs for probs, _ in fits])
    log_probs = np.log(np.maximum(probs, np.exp(np.float32(LEAST))))
    right = log_probs[:, np.arange(len(codes)), codes]
    return log_probs, -right.mean(axis=1, dtype=np.float64)


def _trained(
    rows: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    fold: np.ndarray,
    shares: tuple[float, ...],
    tol: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log probabilities `[G, n, K]`, losses, and convergence `[folds G]`."""
    log_probs, loss, converged = _held_out(
        jnp.asarray(rows),
        jnp.asarray((codes == np.arange(n_classes)[:, None]).astype(np.float32)),
        jnp.asarray(fold),
        jnp.asarray(shares, jnp.float32),
        folds=int(fold.max()) + 1,
        tol=tol,
    )
    return np.asarray(log_probs), np.asarray(loss), np.asarray(converged)


@jit(static_argnames=("folds", "tol"))
def _held_out(
    x: jax.Array,
    onehot: jax.Array,
    fold: jax.Array,
    l2: jax.Array,
    *,
    folds: int,
    tol: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    grid, classes, (n, p) = len(l2), len(onehot), x.shape
    trains = (fold[None] != jnp.arange(folds)[:, None]).astype(jnp.float32)
    weights = jnp.repeat(trains, grid, axis=0)
    present = jnp.matmul(weights, onehot.T, precision="highest") > 0
    # With two classes scikit-learn penalises the difference of their weights.
    slopes = jnp.tile(l2, folds) * jnp.where(present.sum(1) == 2, 2.0, 1.0)
    slopes = slopes[:, None] * jnp.ones((1, p - 1), jnp.float32)
    theta, converged = fit_softmax(
        x,
        onehot,
        weights,
        jnp.pad(slopes, ((0, 0), (0, 1))),
        present,
        jnp.zeros((folds * grid, classes, p), jnp.float32),
        present.sum(1) > 1,
        _alike(x, classes),
        tol,
    )
    models = theta.reshape(folds, grid * classes, p)
    is_present = present.reshape(folds, 1, grid, classes)

    def take(i: jax.Array, log_probs: jax.Array) -> jax.Array:
        z = jnp.matmul(x, models[i].T, precision="highest").reshape(n, grid, classes)
        z = jax.nn.log_softmax(jnp.where(is_present[i], z, -jnp.inf), axis=-1)
        return jnp.where((fold == i)[:, None, None], jnp.maximum(z, LEAST), log_probs)

    held_out = fori_loop(0, folds, take, jnp.zeros((n, grid, classes), jnp.float32))
    right = jnp.sum(held_out * onehot.T[:, None], axis=-1)
    return held_out.transpose(1, 0, 2), -right.mean(0), converged


def _alike(x: jax.Array, classes: int) -> Curvature:
    """Return a curvature that is the same in all directions.

    To know the true one costs more than it saves a few folds.
    """
    p = x.shape[1]
    trace = (1 - 1 / classes) * jnp.mean(jnp.sum(x * x, axis=1))
    zeros = jnp.zeros((1, classes, p), jnp.float32)
    return Curvature(zeros, jnp.zeros(1, jnp.float32), trace / (classes * p), trace)
