"""Candidates by the mutual information of log determinants.

It compares candidates with one another. With the inner product of unit vectors as
kernel, two d × d matrices stand for the n × n one.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsel._devices.mesh import whole
from jaxsel._devices.typed import cholesky, jit, while_loop
from jaxsel.neighbors import normalise

from ._stream import Stream


def by_determinants(stream: Stream, budget: int, eta: float, l2: float) -> np.ndarray:
    """Return the greedy choice by "logdetmi"."""
    features = jnp.asarray(whole(stream.features), stream.queries.dtype)
    x = normalise(features)
    if not bool(jnp.isfinite(x).all()):
        bad = int(jnp.argmin(jnp.isfinite(x).all(axis=1)))
        raise ValueError(
            f"features must be finite and fit float32, but row {bad} does not"
        )
    most = min(budget, len(x))
    chosen, count = _determinants(x, stream.queries, eta, l2, most=most)
    return np.asarray(chosen)[: int(count)]


@jit(static_argnames=("most",))
def _determinants(
    x: jax.Array, queries: jax.Array, eta: float, l2: float, *, most: int
) -> tuple[jax.Array, jax.Array]:
    """Choose greedily by the difference of two log determinants.

    With the kernel x xᵀ + l2 a candidate adds log(1 + xᵀ M x), M the inverse of
    l2 plus the sum of the chosen x xᵀ; given the hard samples, the same with
    another start of M. A choice changes both by a product of rank one.
    """
    d, high = x.shape[1], lax.Precision.HIGHEST
    eye = jnp.eye(d, dtype=x.dtype)
    hard = jnp.matmul(queries.T, queries, precision=high)
    # The kernel given the hard samples Q is x (I − eta² Qᵀ (Q Qᵀ + l2)^-1 Q) xᵀ, and
    # by Woodbury Qᵀ (Q Qᵀ + l2)^-1 Q = I − l2 (Qᵀ Q + l2)^-1: d × d, not m × m.
    factor = cholesky(l2 * eye + hard)
    inverse = jax.scipy.linalg.cho_solve((factor, True), eye)
    conditional = (1 - eta**2) * eye + eta**2 * l2 * inverse
    inverses = jnp.stack([eye, conditional]) / l2
    forms = jnp.einsum("nd,sde,ne->sn", x, inverses, x, precision=high)

    def going(state: Any) -> jax.Array:
        _, _, gains, _, count = state
        return (count < most) & (gains.max() > 0)

    def step(state: Any) -> Any:
        inverses, forms, gains, chosen, count = state
        i = jnp.argmax(gains)
        # Sherman and Morrison: M − M x xᵀ M / (1 + xᵀ M x), and the forms likewise.
        ahead = jnp.einsum("sde,e->sd", inverses, x[i], precision=high)
        scale = 1 / (1 + forms[:, i])
        inverses = inverses - jnp.einsum("s,sd,se->sde", scale, ahead, ahead)
        moved = jnp.einsum("nd,sd->sn", x, ahead, precision=high)
        forms = jnp.maximum(forms - scale[:, None] * moved**2, 0)
        chosen = chosen.at[count].set(i.astype(jnp.int32))
        taken = gains.at[i].set(-jnp.inf) == -jnp.inf  # i, and all taken before
        return inverses, forms, _added(forms, taken), chosen, count + 1

    nothing = jnp.zeros(len(x), bool)
    count, chosen = jnp.asarray(0, jnp.int32), jnp.zeros(most, jnp.int32)
    start = inverses, forms, _added(forms, nothing), chosen, count
    _, _, _, chosen, count = while_loop(going, step, start)
    return chosen, count


def _added(forms: jax.Array, taken: jax.Array) -> jax.Array:
    free, conditional = jnp.log1p(forms)
    return jnp.where(taken, -jnp.inf, free - conditional)
