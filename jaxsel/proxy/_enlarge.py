"""A head scaled by a power of two, so that its scores use the ring's fraction bits.

The margin and the square rank alike whatever the scale of the logits; in fixed point a
head of small weights ties scores that differ. The scale follows from the public bounds,
so that all parties know it and none has to be sent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._fold import fold
from ._manifest import Manifest
from .families import score_of

_ROWS = 2.0**24
"""Scores that a choice or a sum has room for."""

_ROUGH = 16.0
"""Room for the terms of a sum before a norm's factor, beside the sum itself."""

_INEXACT = 2.0**4
"""Products above which CrypTen's truncation fails too often to enlarge them."""


_LARGEST = 2.0**11
"""Scale of a head at most: squares of it are divided by in two steps of 2^14."""


def head_bounds(
    manifest: Manifest, arrays: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Return the limits of the scale of a head, by place; none for other scores.

    Args:
        manifest: The proxy, with bounds on "inputs", and within an encoder on logits
            and variances.
        arrays: Its parameters, of `Proxy.arrays`.

    Returns:
        The largest operand of the first and of the last linear map, and the largest
        product of each, for numbers within the bounds.
    """
    if not _degree(manifest):
        return {}
    bounds = manifest.fixed_point.bounds
    arrays = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    offset = float(np.abs(arrays["offset"]).max())
    if manifest.inputs.kind != "features":
        return _of_encoder(manifest, arrays, bounds, offset)
    reach: np.ndarray | float = bounds["inputs"]
    limits: dict[str, float] = {}
    depth = 2 if manifest.head.width else 1
    for i, name in enumerate(("hidden", "logits")[2 - depth :]):
        weight, bias = arrays[f"head.{i}.weight"], np.abs(arrays[f"head.{i}.bias"])
        largest = max(float(np.abs(weight).max()), float(bias.max()))
        reach = (np.abs(weight) * np.reshape(reach, (-1, 1))).sum(0) + bias
        limits[f"head.{name}_weights"] = largest
        limits[f"head.{name}_products"] = float(np.max(reach))
    limits["head.logits_weights"] = max(limits["head.logits_weights"], offset)
    limits["head.logits_products"] += offset
    return limits


def _of_encoder(
    manifest: Manifest,
    arrays: dict[str, np.ndarray],
    bounds: Mapping[str, float],
    offset: float,
) -> dict[str, float]:
    if manifest.head.width:  # its hidden units have no bound
        return {}
    plain, doubled = (
        fold(manifest, arrays | _head(arrays, scale)) for scale in (1.0, 2.0)
    )
    # Operands are affine in the head: the difference is the part that scales.
    weights = max(float(np.abs(doubled[n] - plain[n]).max()) for n in plain)
    # Columns of the head are products of rows that no norm has scaled yet.
    variances = [v for place, v in bounds.items() if place.endswith("variance")]
    row = math.sqrt(manifest.inputs.width * max(variances, default=1.0))
    columns = row * weights * math.sqrt(manifest.inputs.width)
    products = max(bounds["head.logits"] + offset, columns)
    if manifest.read == "mean":
        products *= manifest.inputs.length
    return {
        "head.logits_weights": weights,
        "head.logits_products": _ROUGH * products,
    }


def head_scales(
    manifest: Manifest,
    *,
    fraction_bits: int,
    ring: int = 64,
    spare_bits: int = 0,
    exact_cut: bool = True,
) -> tuple[float, ...]:
    """Return by which powers of two the head's linear maps are scaled, 1 or more each.

    Args:
        manifest: With the bounds of `with_bounds`; without those of `head_bounds`, no
            map is scaled.
        fraction_bits: Of the engine.
        ring: Bits of the engine's ring.
        spare_bits: As `fold` is given them.
        exact_cut: Whether products below the ring's limit are never cut back wrongly.
    """
    bounds, degree = manifest.fixed_point.bounds, _degree(manifest)
    depth = 2 if manifest.head.width else 1
    if not degree or "head.logits_products" not in bounds:
        return (1.0,) * depth
    # The limits of `check_ring` for an operand and for a product.
    weight = 2.0 ** (ring / 2 - 1 - fraction_bits)
    product = 2.0 ** (ring - 2 - 2 * fraction_bits)
    # Four times a logit is taken off, and a difference of two may be squared.
    lead = min(product / 8, 2.0 ** (ring - 2 - fraction_bits) / _ROWS / 2)
    if degree == 2:
        lead = min(product, 2.0 ** (ring - 2 - fraction_bits) / _ROWS) ** 0.5 / 2
    if manifest.layers:  # attention's last product has the head's columns
        weight, product = weight / 4.0**spare_bits, product / 4.0**spare_bits
    lead = min(lead, product)
    if not exact_cut:
        lead = min(lead, _INEXACT)
    scales: list[float] = []
    total_scale = 1.0
    if depth == 2:
        hidden = bounds["head.hidden_products"]
        first = min(
            weight / bounds["head.hidden_weights"],
            lead**0.5 / hidden,
            lead / bounds["head.logits_products"],
            _LARGEST,
        )
        total_scale = _down(first)
        scales.append(total_scale)
    last = min(
        weight / (bounds["head.logits_weights"] * total_scale),
        lead / (bounds["head.logits_products"] * total_scale),
    )
    return (*scales, _down(min(last, _LARGEST / total_scale)))


def scale_head(
    manifest: Manifest, arrays: Mapping[str, np.ndarray] | None = None, **limits: Any
) -> tuple[Manifest, dict[str, np.ndarray], float]:
    """Return a proxy with its head scaled for a ring, and the scores' factor.

    Args:
        manifest: The proxy, with bounds.
        arrays: Its parameters, of `Proxy.arrays`, where this party has them.
        limits: Of the ring, as `check_ring` takes them.

    Returns:
        Its manifest and parameters, scaled, and how many times as large scores are: a
        power of two.
    """
    scales = head_scales(manifest, **limits)
    total_scale = math.prod(scales)
    factor = total_scale ** max(_degree(manifest), 1)
    if total_scale == 1:
        return manifest, dict(arrays or {}), 1.0
    changed = dict(arrays or {})
    if arrays is not None:
        changed |= _head(changed, *scales)
    grown = {"head.logits": total_scale, "score": factor}
    return _rebounded(manifest, grown), changed, factor


def fix_head(manifest: Manifest) -> Manifest:
    """Return a manifest by which `scale_head` scales nothing.

    Args:
        manifest: The proxy.
    """
    return _rebounded(manifest, {})


def _rebounded(manifest: Manifest, factors: Mapping[str, float]) -> Manifest:
    """Return a manifest with bounds times factors, and without the head's limits."""
    bounds = {
        place: bound * factors.get(place, 1.0)
        for place, bound in manifest.fixed_point.bounds.items()
        if not place.endswith(("_weights", "_products"))
    }
    fixed = dataclasses.replace(manifest.fixed_point, bounds=bounds)
    return dataclasses.replace(manifest, fixed_point=fixed)


def _head(arrays: Mapping[str, np.ndarray], *scales: float) -> dict[str, np.ndarray]:
    """Return the arrays of a head of ReLUs, each of its maps scaled."""
    scaled, total_scale = dict[str, np.ndarray](), 1.0
    for i, scale in enumerate(scales):
        total_scale *= scale
        scaled[f"head.{i}.weight"] = np.asarray(arrays[f"head.{i}.weight"]) * scale
        scaled[f"head.{i}.bias"] = np.asarray(arrays[f"head.{i}.bias"]) * total_scale
    return scaled | {"offset": np.asarray(arrays["offset"]) * total_scale}


def _degree(manifest: Manifest) -> int:
    score = manifest.score
    return score_of(score.secure).degree(score.kind)


def _down(value: float) -> float:
    """Return the largest power of two up to a value, 1 at least."""
    return 2.0 ** max(0, math.floor(math.log2(value))) if value > 1 else 1.0
