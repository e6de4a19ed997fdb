"""Logistic regression of few coefficients on many weighted subsets, of several classes.

As in `_newton`, subsets lie on the last axis, all Hessians are matrix products, and
their systems are solved side by side. Coefficients are those of C - 1 orthonormal
contrasts of the C classes, since their sum over the classes is zero at the optimum.
"""

from __future__ import annotations

import functools
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jaxsel._devices.typed import optimization_barrier

from ._arrays import dot
from ._newton import minimise
from ._solve import eliminate, pairs


def fit_few_classes(
    x: Float[jax.Array, "n p"],
    products: Float[jax.Array, "p*(p+1)//2 n"],
    onehot: Float[jax.Array, "C n"],
    weights: Float[jax.Array, "n B"],
    penalty: Float[jax.Array, "p B"],
    present: Bool[jax.Array, "C B"],
    theta: Float[jax.Array, "C p B"],
    active: Bool[jax.Array, " B"],
    tol: float,
) -> tuple[Float[jax.Array, "C p B"], Bool[jax.Array, " B"]]:
    """Minimise the weighted cross-entropy + Σ penalty θ² / 2 for each subset.

    A step costs n p² C² / 4 + C³ p³ multiplications a subset.

    Args:
        x: Features with a column of ones, `[n, p]`.
        products: Of the pairs of features in the order of `pairs`, `[p (p+1) / 2, n]`.
        onehot: Classes, `[C, n]`.
        weights: `[n, B]`.
        penalty: Of each coefficient, `[p, B]`.
        present: Which classes a subset has, `[C, B]`: others get no probability.
        theta: Where to start, `[C, p, B]`; zero where that is better.
        active: Which subsets to fit, `[B]`; others are left at `theta`.
        tol: See `_newton.fit_two_classes`.

    Returns:
        Coefficients, `[C, p, B]`, and which subsets converged, `[B]`.
    """
    classes, outputs, p = len(onehot), len(onehot) - 1, x.shape[1]
    basis = contrasts(classes)
    couples = list(combinations(range(classes), 2))
    lower = list(zip(*pairs(outputs), strict=True))
    places, diagonal = _places(outputs, p)
    right = [row[:, None] > 0 for row in onehot]
    has = [row[None] for row in present]
    used = weights > 0
    # A class that a subset lacks has an intercept without curvature: the penalty of its
    # square keeps it at zero.
    absent = (~present).astype(x.dtype)
    keep_zero = [_sum(basis[:, k] * basis[:, j], absent) for k, j in lower]

    def logits_of(phi: jax.Array) -> list[jax.Array]:
        """Return logits by class, `[n, B]`, of coefficients `[C - 1, p, B]`."""
        inner = [dot(x, output) for output in phi]
        return [_sum(row, inner) for row in basis]

    def chances_of(phi: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        """Return probabilities by class, and the loss, `[n, B]`."""
        z = [
            jnp.where(*pair, -jnp.inf) for pair in zip(has, logits_of(phi), strict=True)
        ]
        top = jnp.stack(z).max(0)
        odds = [jnp.exp(logit - top) for logit in z]
        total = sum(odds)
        wanted = sum(jnp.where(*pair, 0) for pair in zip(right, z, strict=True))
        return [part / total for part in odds], top + jnp.log(total) - wanted

    def newton(phi: jax.Array) -> tuple[jax.Array, jax.Array]:
        # Without the barrier XLA would compute them for each product anew.
        chances = list(optimization_barrier(jnp.stack(chances_of(phi)[0])))
        wrong = sum(
            jnp.where(r, 0, chance) for r, chance in zip(right, chances, strict=True)
        )
        slopes = [
            dot(x.T, weights * jnp.where(r, -wrong, chance))
            for r, chance in zip(right, chances, strict=True)
        ]
        gradient = jnp.stack([_sum(column, slopes) for column in basis.T])
        gradient += penalty[None] * phi
        # By couples of classes nothing cancels, as it would in p (1 - p).
        curvature = [
            dot(products, weights * (chances[a] * chances[b])) for a, b in couples
        ]
        apart = np.stack([basis[a] - basis[b] for a, b in couples])
        hessian: list[jax.Array] = []
        for (k, j), stay in zip(lower, keep_zero, strict=True):
            block = _sum(apart[:, k] * apart[:, j], curvature).at[-1].add(stay)
            gradient = gradient.at[k, -1].add(stay * phi[j, -1])
            if k == j:
                block = block.at[diagonal].add(penalty)
            else:
                gradient = gradient.at[j, -1].add(stay * phi[k, -1])
            hessian.append(block)
        side = gradient.reshape(outputs * p, 1, -1)
        matrix = jnp.concatenate(hessian)[places]
        delta = eliminate(jnp.concatenate([matrix, side], axis=1)).reshape(phi.shape)
        moved = logits_of(delta)
        # An absent class has no logit: ±inf keeps it out of both extremes.
        high = jnp.stack(
            [jnp.where(*pair, -jnp.inf) for pair in zip(has, moved, strict=True)]
        )
        low = jnp.stack(
            [jnp.where(*pair, jnp.inf) for pair in zip(has, moved, strict=True)]
        )
        return delta, jnp.where(used, high.max(0) - low.min(0), 0).max(0)

    turn = jnp.asarray(basis, x.dtype)
    # Contrasts are orthonormal, so that |φ| = |θ| where θ sums to 0 over the classes:
    # the penalty keeps its form.
    phi = jnp.einsum("ck,cpb->kpb", turn, theta, precision="highest")
    losses = jnp.where(used, weights * chances_of(phi)[1], 0).sum(0)
    losses += (penalty[None] * phi * phi).sum((0, 1)) / 2
    many = jnp.maximum(present.sum(0), 1).astype(x.dtype)
    # Negated, so that a start with NaN is hopeless too.
    hopeless = active & ~(losses <= weights.sum(0) * jnp.log(many))
    phi = jnp.where(hopeless[None, None], 0, phi)
    phi, converged = minimise(newton, phi, active, tol)
    theta = jnp.einsum("ck,kpb->cpb", turn, phi, precision="highest")
    return jnp.where(present[:, None], theta, 0), converged


def contrasts(classes: int) -> np.ndarray:
    """Return Helmert's orthonormal contrasts of classes, `[C, C - 1]`."""
    basis = np.zeros((classes, classes - 1))
    for k in range(classes - 1):
        basis[: k + 1, k] = 1
        basis[k + 1, k] = -(k + 1)
    return basis / np.sqrt((basis**2).sum(0))


def _places(outputs: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries of a Hessian among its packed lower blocks.

    Returns:
        Places `[outputs p, outputs p]`, and those of a block's diagonal, `[p]`.
    """
    rows, columns = pairs(p)
    packed = np.zeros((p, p), int)
    packed[rows, columns] = packed[columns, rows] = np.arange(len(rows))
    block = np.zeros((outputs, outputs), int)
    k, j = pairs(outputs)
    block[k, j] = block[j, k] = np.arange(len(k)) * len(rows)
    return np.kron(block, np.ones((p, p), int)) + np.tile(packed, block.shape), np.diag(
        packed
    )


def _sum(factors: np.ndarray, arrays: Any) -> jax.Array:
    """Return the sum of arrays times constants, without those times zero."""
    terms = [
        float(factor) * array
        for factor, array in zip(factors, arrays, strict=True)
        if abs(factor) > 1e-12
    ]
    return functools.reduce(jnp.add, terms)
