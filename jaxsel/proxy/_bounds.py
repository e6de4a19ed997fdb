"""Bounds on a proxy's numbers, as powers of two, for the secure run's ring."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpy.typing as npt

from ._fold import fold
from ._manifest import power_of_two
from ._observe import largest
from ._proxy import Proxy
from .families import score_of


def with_bounds(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None = None,
    *,
    margin: float = 2.0,
) -> Proxy:
    """Return a proxy whose manifest bounds what it computes, places by name.

    Measured on samples that the model owner has, such as the bootstrap set, in batches;
    what a manifest shows of them is a power of two. The logits of a probe that ranks by
    the margin, or two classes, are bounded by those of the worst row within the bound
    on the inputs: no row that is not refused exceeds them.

    Args:
        proxy: A trained proxy.
        x: Embedded samples `[n, L, H]`, token ids `[n, L]` for one-hot words, or
            features `[n, d]`.
        mask: `[n, L]`; all rows if None.
        margin: How many times as large numbers may get on other samples.

    Raises:
        ValueError: If a number is not finite: the place is named.
    """
    manifest, params = proxy.manifest, proxy.params
    onehot = manifest.inputs.embed == "onehot"
    x = np.asarray(x, np.int32 if onehot else np.float32)
    shown = None if mask is None or not manifest.layers else np.asarray(mask)
    logits, score, seen = largest(params, manifest, x, shown)
    places = {"inputs": 1.0 if onehot else np.abs(x).max()}
    if seen.embedded is not None:
        places["inputs.variance"] = seen.embedded
    for i, activations in enumerate(seen.layers):
        places[f"layers.{i}.scores"] = activations.scores
        if activations.hidden is not None:
            places[f"layers.{i}.hidden"] = activations.hidden
        for name, variance in zip(
            ("variance", "ffn_variance"), activations.variances, strict=False
        ):
            places[f"layers.{i}.{name}"] = variance
    if seen.final is not None:
        places["final_norm.variance"] = seen.final
    places["head.logits"] = logits
    places["score"] = score
    bounds: dict[str, float] = {}
    for place, value in places.items():
        if not np.isfinite(value):
            raise ValueError(
                f"proxy must compute finite numbers, got {place} of {value}"
            )
        bounds[place] = power_of_two(max(margin * float(value), 2.0**-16))
    worst = _worst_logit(proxy, bounds["inputs"])
    if worst is not None:
        bounds["head.logits"] = power_of_two(max(worst, 2.0**-16))
    fixed = dataclasses.replace(manifest.fixed_point, bounds=bounds)
    return Proxy(dataclasses.replace(manifest, fixed_point=fixed), params)


def _worst_logit(proxy: Proxy, largest: float) -> float | None:
    """Return the largest logit of any features up to `largest`; None if not known.

    An entropy takes logits near those that were seen only, which the worst are not.
    """
    manifest = proxy.manifest
    score, family = manifest.score, score_of(manifest.score.secure)
    ranked = family.two_classes or (score.kind == "margin" and not family.emulates)
    if manifest.inputs.kind != "features" or not ranked:
        return None
    found: npt.NDArray[np.float64] | float = largest
    arrays = proxy.arrays()
    weights = fold(manifest, arrays)
    for name in ["head.hidden"] * (manifest.head.width > 0) + ["head.logits"]:
        reach = (np.abs(weights[f"{name}.weight"]) * np.reshape(found, (-1, 1))).sum(0)
        found = reach + np.abs(weights[f"{name}.bias"])
    return float(np.max(found) + np.abs(arrays["offset"]).max())
