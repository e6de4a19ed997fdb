"""Checks that a proxy's numbers fit fixed point in a ring of 64 bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from ._fold import fold
from ._manifest import Emulator, Manifest
from .families import ACTIVATIONS, attention_of, norm_of, score_of
from .families._ranges import Ranges


def check_ring(
    manifest: Manifest,
    arrays: Mapping[str, np.ndarray],
    *,
    fraction_bits: int | None = None,
) -> None:
    """Refuse a proxy whose ranges do not fit the ring of its secure run.

    Args:
        manifest: With bounds, see `with_bounds`.
        arrays: Its parameters, of `Proxy.arrays`.
        fraction_bits: Of the engine; the manifest's if None.

    Raises:
        ValueError: If bounds are missing, or a range is too large or too small: the
            place and both numbers are named.
    """
    if "head.logits" not in manifest.fixed_point.bounds:
        raise ValueError(
            "the manifest must have fixed_point.bounds: call jaxsel.proxy.with_bounds "
            "with the bootstrap set"
        )
    if fraction_bits is not None:
        fixed = dataclasses.replace(manifest.fixed_point, fraction_bits=fraction_bits)
        manifest = dataclasses.replace(manifest, fixed_point=fixed)
    ranges = Ranges(manifest)
    for name, value in fold(manifest, arrays).items():
        _check_weight(ranges, name, value)
    ranges.fits("inputs", "a row", ranges.bound("inputs"))
    if manifest.inputs.norm is not None:
        _check_norm(manifest, manifest.inputs.norm, "inputs", "variance")
    for index, layer in enumerate(manifest.layers):
        at = f"layers.{index}"
        attention = attention_of(layer.attention)
        start = f"{at}.attention."
        params = {
            name.removeprefix(start): np.asarray(value, np.float64)
            for name, value in arrays.items()
            if name.startswith(start)
        }
        attention.check(Ranges(manifest, at), params)
        _check_norm(manifest, layer.norm, at, "variance")
        if layer.ffn is not None:
            ACTIVATIONS[layer.ffn.activation].check(Ranges(manifest, at))
            _check_norm(manifest, layer.norm, at, "ffn_variance")
    if manifest.final_norm is not None:
        _check_norm(manifest, manifest.final_norm, "final_norm", "variance")
    # The bounded logits are those before the prior's offset comes off.
    largest = ranges.bound("head.logits") + float(np.abs(arrays["offset"]).max())
    score_of(manifest.score.secure).check(ranges, largest)


def _check_norm(manifest: Manifest, norm: Emulator, at: str, name: str) -> None:
    norm_of(norm).check(Ranges(manifest, at), name)


def _check_weight(ranges: Ranges, name: str, value: np.ndarray) -> None:
    bits = ranges.bits
    largest = float(np.abs(value).max(initial=0))
    if not np.isfinite(largest):
        raise ValueError(f"{name}: weights must be finite")
    ranges.fits(name, "a weight", largest, 2.0 ** (31 - bits))
    smallest = 2.0 ** (4 - bits)  # four bits left
    if name.endswith("weight") and 0 < largest < smallest:
        raise ValueError(
            f"{name}: weights of at most {largest:.3g} drown in "
            f"{bits} fraction bits; scale what they are multiplied with"
        )
