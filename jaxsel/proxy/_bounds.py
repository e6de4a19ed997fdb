"""How large a proxy's numbers get, as powers of two, for the secure run's ring."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ._forward import proxy_scores, run
from ._manifest import power_of_two
from ._proxy import Proxy


def with_bounds(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None = None,
    *,
    margin: float = 2.0,
) -> Proxy:
    """Return a proxy whose manifest bounds what it computes, places by name.

    Measured on samples that the model owner has, such as the bootstrap set; what a
    manifest shows of them is a power of two.

    Args:
        proxy: A trained proxy.
        x: Embedded samples `[n, L, H]`, or features `[n, d]`.
        mask: `[n, L]`; all rows if None.
        margin: How many times as large numbers may get on other samples.

    Raises:
        ValueError: If a number is not finite: the place is named.
    """
    manifest, params = proxy.manifest, proxy.params
    x = jnp.asarray(x, jnp.float32)
    shown = None if mask is None or not manifest.layers else jnp.asarray(mask)
    logits, (seen, final) = run(params, x, shown, manifest=manifest)
    places = {"inputs": x}
    for i, activations in enumerate(seen):
        places[f"layers.{i}.scores"] = activations.scores
        for name, variance in zip(
            ("variance", "ffn_variance"), activations.variances, strict=False
        ):
            places[f"layers.{i}.{name}"] = variance
    if final is not None:
        places["final_norm.variance"] = final
    places["head.logits"] = logits
    places["score"] = proxy_scores(params, logits, manifest=manifest)
    bounds = {}
    for place, values in places.items():
        largest = float(np.abs(values).max())
        if not np.isfinite(largest):
            raise ValueError(
                f"proxy must compute finite numbers, got {place} of {largest}"
            )
        bounds[place] = power_of_two(max(margin * largest, 2.0**-16))
    fixed = dataclasses.replace(manifest.fixed_point, bounds=bounds)
    return Proxy(dataclasses.replace(manifest, fixed_point=fixed), params)
