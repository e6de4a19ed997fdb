"""Checks that a proxy's numbers fit fixed point in a ring."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._enlarge import scale_head
from ._fold import fold
from ._manifest import Emulator, Manifest
from .families import ACTIVATIONS, attention_of, norm_of, score_of
from .families._ranges import Ranges


def check_ring(
    manifest: Manifest,
    arrays: Mapping[str, np.ndarray],
    *,
    fraction_bits: int | None = None,
    ring: int = 64,
    spare_bits: int = 0,
    exact_cut: bool = True,
) -> None:
    """Raise if a proxy's ranges do not fit the ring of its secure run.

    Its head is scaled as in that run, see `scale_head`.

    Args:
        manifest: With bounds, see `with_bounds`.
        arrays: Its parameters, of `Proxy.arrays`.
        fraction_bits: Of the engine; the manifest's if None.
        ring: Bits of the engine's ring.
        spare_bits: As `fold` is given them.
        exact_cut: Whether products below the ring's limit are never cut back wrongly.

    Raises:
        ValueError: If bounds are missing, or a range is too large or too small: the
            place and both numbers are named.
    """
    if "head.logits" not in manifest.fixed_point.bounds:
        raise ValueError(
            "the manifest must have fixed_point.bounds: call jaxsel.proxy.with_bounds "
            "with the bootstrap set"
        )
    fixed = manifest.fixed_point
    bits = fixed.fraction_bits if fraction_bits is None else fraction_bits
    manifest, arrays, _ = scale_head(
        manifest,
        arrays,
        fraction_bits=bits,
        ring=ring,
        spare_bits=spare_bits,
        exact_cut=exact_cut,
    )
    ranges = Ranges(manifest, bits, ring)
    for name, value in fold(manifest, arrays, spare_bits=spare_bits).items():
        _check_weight(ranges, name, value)
    ranges.fits("inputs", "a row", ranges.bound("inputs"))
    if manifest.inputs.norm is not None:
        _check_norm(ranges.under("inputs"), manifest.inputs.norm, "variance")
    for index, layer in enumerate(manifest.layers):
        place = f"layers.{index}"
        attention = attention_of(layer.attention)
        start = f"{place}.attention."
        params = {
            name.removeprefix(start): np.asarray(value, np.float64)
            for name, value in arrays.items()
            if name.startswith(start)
        }
        attention.check(ranges.under(place), params)
        if spare_bits and attention.reads_scores:
            # The maps of query and key are 2^spare_bits as large each.
            scores = ranges.under(place).bound("scores")
            larger = "a score times what its weights are larger by"
            ranges.under(place).fits("scores", larger, scores * 4.0**spare_bits)
        _check_norm(ranges.under(place), layer.norm, "variance")
        if layer.ffn is not None:
            ACTIVATIONS[layer.ffn.activation].check(ranges.under(place))
            _check_norm(ranges.under(place), layer.norm, "ffn_variance")
    if manifest.final_norm is not None:
        _check_norm(ranges.under("final_norm"), manifest.final_norm, "variance")
    # The bounded logits are those before the prior's offset comes off.
    largest = ranges.bound("head.logits") + float(np.abs(arrays["offset"]).max())
    ranges.fits("head.logits", "a logit", largest)
    score_of(manifest.score.secure).check(ranges, largest)


def _check_norm(ranges: Ranges, norm: Emulator, name: str) -> None:
    norm_of(norm).check(ranges, name)


def _check_weight(ranges: Ranges, name: str, value: np.ndarray) -> None:
    bits = ranges.bits
    largest = float(np.abs(value).max(initial=0))
    if not np.isfinite(largest):
        raise ValueError(f"{name}: weights must be finite")
    ranges.fits(name, "a weight", largest, 2.0 ** (ranges.ring / 2 - 1 - bits))
    smallest = 2.0 ** (4 - bits)  # four bits left
    if name.endswith("weight") and 0 < largest < smallest:
        raise ValueError(
            f"{name}: weights of at most {largest:.3g} drown in "
            f"{bits} fraction bits; scale what they are multiplied with"
        )
