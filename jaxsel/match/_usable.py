"""Handling of gradients that are NaN or overflow, shared by all choosers.

A NaN in a gradient makes its squared length and all its products NaN: such a candidate
is never chosen. A squared length beyond the type's range is infinite: this is refused,
for what is compared with infinity is chosen, or passed over, by accident.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._devices.typed import finfo, jit, tree_map
from jaxsel._inputs.checks import widen
from jaxsel.gradients import Gradient, Oracle, squared_norm


def usable(products: jax.Array) -> jax.Array:
    """Return which candidates may be chosen, given a product of each, `[n]`."""
    return ~jnp.isnan(products)


def correlations(oracle: Oracle, target: Gradient) -> jax.Array:
    """Return inner products with a target, `[n]`: NaN only where a gradient has one.

    Products that overflow would be NaN too, where they are summed with both signs: so
    the target is scaled to numbers about 1, by a power of two, which rounds nothing.
    """
    peaks = [jnp.max(jnp.abs(leaf), initial=0) for leaf in jax.tree.leaves(target)]
    peak = widen(jnp.max(jnp.stack(peaks)))
    exponent = jnp.where(peak > 0, jnp.frexp(peak)[1], 0)
    scaled = tree_map(lambda leaf: jnp.ldexp(leaf, -exponent), target)
    return jnp.ldexp(widen(oracle.corr(scaled)), exponent)


def check_products(products: jax.Array, allowed: jax.Array | None = None) -> None:
    """Raise if a candidate's product overflows, naming the first such candidate.

    Args:
        products: Squared lengths or inner products, `[..., n]`.
        allowed: Which candidates count, `[n]`; those without NaN if None.

    Raises:
        ValueError: If a product is not finite.
    """
    allowed = usable(products) if allowed is None else allowed
    infinite = np.asarray(allowed) & ~np.isfinite(np.asarray(products))
    if infinite.any():
        dtype = products.dtype
        raise ValueError(
            f"candidates must have squared lengths and products that fit {dtype}, as "
            f"those of lengths up to {np.sqrt(finfo(dtype).max):.1e} do, "
            f"but candidate {np.argwhere(infinite)[0][-1]} is longer: {_remedy(dtype)}"
        )


def check_lengths(target: Gradient, *, several: bool = False) -> None:
    """Raise if a target's squared length overflows, or underflows though it is not 0.

    Args:
        target: A gradient, or several along a leading axis.
        several: Whether they are several.

    Raises:
        ValueError: If a squared length is infinite, or below the normal numbers.
    """
    norms = np.asarray(_squared_norms(target, several=several))
    least, most = finfo(norms.dtype).tiny, finfo(norms.dtype).max
    for t in np.flatnonzero(~((norms >= least) & (norms < np.inf))):
        every = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(target)]
        leaves = [leaf[t] for leaf in every] if several else every
        length = float(np.sqrt(sum(np.sum(leaf**2) for leaf in leaves)))
        if length:
            raise ValueError(
                f"target must have a squared length that fits {norms.dtype}, as those "
                f"of lengths {np.sqrt(least):.1e} to "
                f"{np.sqrt(most):.1e} do, and zero, but it has length "
                f"{length:.3g}: {_remedy(norms.dtype)}"
            )


@jit(static_argnames="several")
def _squared_norms(target: Gradient, *, several: bool) -> jax.Array:
    targets = target if several else tree_map(lambda leaf: leaf[None], target)
    return jax.vmap(squared_norm)(targets)


def _remedy(dtype: Any) -> str:
    wider = "" if dtype == np.float64 else ", or match in float64 (jax.enable_x64)"
    return (
        "multiply candidates and target by one number, and l2 and penalty_l2 by its "
        f"square{wider}"
    )
