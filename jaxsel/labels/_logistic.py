"""Cross-validated logistic regression, with the penalty of the best likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.platform import one_thread_if_small
from jaxsel._devices.typed import fori_loop, jit
from jaxsel._inputs.checks import caller_level
from jaxsel.value import LogisticRegression, fit_softmax

from ._two_classes import fit_two

GRID = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Penalties as shares of the features' total variance."""

LEAST = -30.0  # log probabilities: a class that a fold lacks has none
_TOL = 0.1
_TWO_TOL = 1e-4  # of `fit_two`, whose steps are cheap
_COARSER = 10  # Newton's last step squares the error
_EXPLICIT = 256  # columns up to which Hessians of two classes are formed
_ONCE = 1024  # the same for one penalty, which would pay for a rotation alone,
_TALL = 4  # if there are this many samples a column
_TRIED, _OF_CLASS = 2500, 100  # samples that choose the penalty, where fits cost most
_ENTRIES = 1 << 25  # probabilities in memory
_ROTATED = 2048  # coordinates up to which features are rotated
_BLOCK = 512  # samples that models of all folds take at once


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
    n, d = x.shape
    few = d < max(_EXPLICIT, min(_ONCE, n // _TALL))
    if n_classes == 2 and few and _both_everywhere(codes, fold):
        trains = fold[None] != np.arange(int(fold.max()) + 1)[:, None]
        y, w = codes.astype(np.float32), trains.astype(np.float32)
        with one_thread_if_small(x):
            probs, converged = _two(x, y, w, np.float32(learner.l2), tol=learner.tol)
            warn_unconverged(converged)
        return np.asarray(probs)
    centred = x - x.mean(axis=0, dtype=np.float64)
    with one_thread_if_small(x):
        samples = _Samples.of(centred, codes, n_classes, fold)
        fit = samples.fit(learner.l2, _COARSER * learner.tol)
        warn_unconverged(fit.converged)
    log_probs = np.asarray(fit.log_probs)
    return np.where(log_probs > LEAST, np.exp(log_probs), 0)


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
    fits = None
    if n_classes == 2 and flat.shape[1] < _EXPLICIT and _both_everywhere(codes, fold):
        fits = _fit_two(centred, codes, fold)
    if fits is None:
        fits = _fit_many(centred, codes, n_classes, fold)
    best, losses = fits
    penalties = (scale * np.array(GRID)).tolist()
    l2 = penalties[int(np.argmin(losses))]
    return Tuned(best, l2, dict(zip(penalties, losses, strict=True)))


def _fit_two(
    centred: np.ndarray, codes: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, list[float]] | None:
    """Do the same as `_fit_many` for two classes; None if a fit does not converge."""
    trains = fold[None] != np.arange(int(fold.max()) + 1)[:, None]
    y, weights = codes.astype(np.float32), trains.astype(np.float32)
    x = jnp.asarray(centred, jnp.float32)
    fits = [_two(x, y, weights, np.float32(share), tol=_TWO_TOL) for share in GRID]
    if not all(np.all(converged) for _, converged in fits):
        return None
    least = np.exp(np.float32(LEAST))
    logs = [np.log(np.maximum(probs, least)) for probs, _ in fits]
    losses = [
        -float(log[np.arange(len(codes)), codes].mean(dtype=np.float64)) for log in logs
    ]
    return logs[int(np.argmin(losses))], losses


def _fit_many(
    centred: np.ndarray, codes: np.ndarray, n_classes: int, fold: np.ndarray
) -> tuple[np.ndarray, list[float]]:
    """Return log probabilities `[n, K]` by the best penalty, and losses of all."""
    samples = _Samples.of(centred, codes, n_classes, fold)
    n, most = len(codes), min(_ENTRIES // n_classes, max(_TRIED, _OF_CLASS * n_classes))
    tried = np.arange(n) % -(-n // most) == 0
    fit = best = samples.fit(GRID[0], _TOL, tried)
    losses = [float(fit.loss)]
    for share in GRID[1:]:
        # Ever weaker penalties, each from the coefficients of the last; only the best
        # one's probabilities stay in memory.
        fit = samples.fit(share, _TOL, tried, fit.theta)
        if float(fit.loss) < min(losses):
            best = fit
        losses.append(float(fit.loss))
    if not tried.all():
        best = samples.fit(GRID[int(np.argmin(losses))], _TOL, theta=best.theta)
    return np.asarray(best.log_probs), losses


class _Fit(NamedTuple):
    """Models of all folds.

    Attributes:
        log_probs: Held out, `[n, K]`.
        loss: Mean cross-entropy of the samples that were used, in nats.
        converged: `[folds]`.
        theta: Coefficients, `[folds, K, p]`.
    """

    log_probs: jax.Array
    loss: jax.Array
    converged: jax.Array
    theta: jax.Array


class _Samples(NamedTuple):
    """Samples of any number of classes, for models of all folds."""

    x: jax.Array  # in coordinates that hardly correlate, and one of ones, [n, p]
    onehot: jax.Array  # [K, n]
    fold: jax.Array  # [n]
    folds: int

    @classmethod
    def of(
        cls, centred: np.ndarray, codes: np.ndarray, n_classes: int, fold: np.ndarray
    ) -> _Samples:
        onehot = codes == np.arange(n_classes)[:, None]
        return cls(
            jnp.asarray(_rotated(centred)),
            jnp.asarray(onehot.astype(np.float32)),
            jnp.asarray(fold),
            int(fold.max()) + 1,
        )

    def fit(
        self,
        l2: float,
        tol: float,
        used: np.ndarray | None = None,
        theta: jax.Array | None = None,
    ) -> _Fit:
        """Train on the samples that are used, `[n]`, from coefficients or from zero."""
        n, p = self.x.shape
        if used is None:
            used = np.ones(n, bool)
        if theta is None:
            theta = jnp.zeros((self.folds, len(self.onehot), p), jnp.float32)
        return _held_out(*self[:3], jnp.asarray(used), jnp.float32(l2), theta, tol=tol)


def _rotated(centred: np.ndarray) -> np.ndarray:
    """Return coordinates along principal axes, and one of ones, `[n, p]` float32.

    The penalty does not mind how axes lie, and conjugate gradients need a fraction of
    the steps where a diagonal matrix is near the Hessian. Of more columns than samples
    those directions remain in which samples differ.
    """
    n, d = centred.shape
    if d <= min(n, _ROTATED):
        # Any rotation is exact; a part of the samples tells a good one.
        part = centred[:: -(-n // (4 * _ROTATED))]
        axes = np.linalg.eigh(part.T @ part)[1].astype(np.float32)
        centred = centred.astype(np.float32) @ axes
    elif n <= _ROTATED:
        values, axes = np.linalg.eigh(centred @ centred.T)
        centred = axes * np.sqrt(np.maximum(values, 0))
    rows = np.ones((n, centred.shape[1] + 1), np.float32)
    rows[:, :-1] = centred
    return rows


class _Uncorrelated(NamedTuple):
    """Curvature of columns that do not correlate, alike for all classes."""

    variances: jax.Array  # [p]

    def inverse(
        self, trace: jax.Array, l2: jax.Array
    ) -> Callable[[jax.Array], jax.Array]:
        shares = self.variances / jnp.sum(self.variances)

        def apply(right: jax.Array) -> jax.Array:
            of_class = trace[:, None] / right.shape[1]
            return right / (l2 + of_class * shares[None])[:, None]

        return apply


@jit(static_argnames="tol")
def _held_out(
    x: jax.Array,
    onehot: jax.Array,
    fold: jax.Array,
    used: jax.Array,
    l2: jax.Array,
    theta: jax.Array,
    *,
    tol: float,
) -> _Fit:
    folds, (n, p) = len(theta), x.shape
    trains = used[None] & (fold[None] != jnp.arange(folds)[:, None])
    weights = trains.astype(jnp.float32)
    present = jnp.matmul(weights, onehot.T, precision="highest") > 0
    # With two classes scikit-learn penalises the difference of their weights.
    slopes = l2 * jnp.where(present.sum(1) == 2, 2.0, 1.0)
    slopes = slopes[:, None] * jnp.ones((1, p - 1), jnp.float32)
    count = -(-n // _BLOCK)
    theta, converged = fit_softmax(
        x,
        onehot,
        weights,
        jnp.pad(slopes, ((0, 0), (0, 1))),
        present,
        theta,  # 0 for classes that a fold has never had
        present.sum(1) > 1,
        _Uncorrelated(jnp.mean(x * x, axis=0)),
        tol,
        block=-(-n // count),
    )

    def take(i: jax.Array, log_probs: jax.Array) -> jax.Array:
        z = jnp.matmul(x, theta[i].T, precision="highest")
        z = jax.nn.log_softmax(jnp.where(present[i][None], z, -jnp.inf), axis=-1)
        return jnp.where((fold == i)[:, None], jnp.maximum(z, LEAST), log_probs)

    held_out = fori_loop(0, folds, take, jnp.zeros((n, len(onehot)), jnp.float32))
    right = jnp.sum(held_out * onehot.T, axis=-1)
    loss = -jnp.sum(jnp.where(used, right, 0)) / jnp.sum(used)
    return _Fit(held_out, loss, converged, theta)
