"""Bounds on a proxy's numbers, as powers of two, for the secure run's ring."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping

import jax
import numpy as np
import numpy.typing as npt

from ._enlarge import head_bounds, scale_head
from ._manifest import Manifest, power_of_two
from ._observe import largest
from ._proxy import Proxy
from ._ring import check_ring
from .families import score_of

_SMALLEST = 2.0**-16
_DIGITS = 20
"""Fraction bits that a margin by degree leaves to the ring: ABY3 takes 22 at most."""

_TIED = 0.1
"""Share of distinct scores that may be lost to rounding without a warning."""


def with_bounds(
    proxy: Proxy,
    x: npt.ArrayLike | jax.Array,
    mask: npt.ArrayLike | jax.Array | None = None,
    *,
    margin: float = 2.0,
    strict: bool = False,
) -> Proxy:
    """Return a proxy with bounds on its numbers in the manifest, by place.

    Measured on samples that the model owner has, such as the bootstrap set, in batches;
    the manifest shows them as powers of two. Within an encoder, numbers grow with
    powers of the inputs: a place of degree d is given the d-th power of the inputs'
    growth, measured on inputs that are as large as their bound. Where the ring has no
    room for that, the inputs are enlarged less, and where it has none `margin` holds
    for each place alone.

    Logits and scores of a probe are bounded by those of the worst row within the bound
    on the inputs, unless it ranks by exact entropies: no row that is not refused
    exceeds them. The bounds on the head's weights say by how much the secure run may
    scale them.

    Args:
        proxy: A trained proxy.
        x: Embedded samples `[n, L, H]`, token ids `[n, L]` for one-hot words, or
            features `[n, d]`.
        mask: `[n, L]`; all rows if None.
        margin: How many times as large inputs may get on other samples.
        strict: Whether scores that tie at the fraction bits are refused; else a
            warning says so.

    Raises:
        ValueError: If a number is not finite: the place is named. With `strict`, if
            rounding ties scores that differ.

    Warns:
        UserWarning: If rounding to the manifest's fraction bits ties more than a tenth
            of the scores that differ.
    """
    manifest, arrays = proxy.manifest, proxy.arrays()
    onehot = manifest.inputs.embed == "onehot"
    x = np.asarray(x, np.int32 if onehot else np.float32)
    shown = None if mask is None or not manifest.layers else np.asarray(mask)
    scores, measured = _places(proxy, x, shown)
    for place, value in measured.items():
        if not np.isfinite(value):
            raise ValueError(
                f"proxy must compute finite numbers, got {place} of {value}"
            )
    places = {place: margin * value for place, value in measured.items()}
    if manifest.layers:
        if not onehot:
            places = _by_degree(proxy, x, shown, places, margin)
    else:
        inputs = power_of_two(max(places["inputs"], _SMALLEST))
        places |= _worst(manifest, arrays, inputs)
    bounded = _bounded(manifest, arrays, places)
    _check_ties(bounded, scores, strict=strict)
    return Proxy(bounded, proxy.params)


def _bounded(
    manifest: Manifest, arrays: Mapping[str, np.ndarray], places: Mapping[str, float]
) -> Manifest:
    """Return a manifest with these bounds, rounded up, and bounds on its head."""
    bounded = _rounded(manifest, places)
    return _rounded(manifest, {**places, **head_bounds(bounded, arrays)})


def _rounded(manifest: Manifest, places: Mapping[str, float]) -> Manifest:
    bounds = {p: power_of_two(max(float(v), _SMALLEST)) for p, v in places.items()}
    fixed = dataclasses.replace(manifest.fixed_point, bounds=bounds)
    return dataclasses.replace(manifest, fixed_point=fixed)


def _places(
    proxy: Proxy, x: np.ndarray, mask: np.ndarray | None
) -> tuple[np.ndarray, dict[str, float]]:
    """Return the scores of samples, and the largest absolute value of every place."""
    manifest = proxy.manifest
    scores, logits, inner = largest(proxy.params, manifest, x, mask)
    onehot = manifest.inputs.embed == "onehot"
    places = {"inputs": 1.0 if onehot else np.abs(x).max()}
    if inner.embedded is not None:
        places["inputs.variance"] = inner.embedded
    for i, activations in enumerate(inner.layers):
        places[f"layers.{i}.scores"] = activations.scores
        if activations.hidden is not None:
            places[f"layers.{i}.hidden"] = activations.hidden
        for name, variance in zip(
            ("variance", "ffn_variance"), activations.variances, strict=False
        ):
            places[f"layers.{i}.{name}"] = variance
    if inner.final is not None:
        places["final_norm.variance"] = inner.final
    places["head.logits"] = logits
    places["score"] = np.abs(scores).max()
    return scores, {place: float(value) for place, value in places.items()}


def _by_degree(
    proxy: Proxy,
    x: np.ndarray,
    mask: np.ndarray | None,
    places: dict[str, float],
    margin: float,
) -> dict[str, float]:
    """Return places of inputs up to their bound, or up to `margin` times as large.

    Numbers of a place grow with a power of the inputs: its degree is measured, not
    derived.
    """
    arrays = proxy.arrays()

    def fits(places: Mapping[str, float], bits: int) -> bool:
        if not all(np.isfinite(value) for value in places.values()):
            return False
        try:
            manifest = _bounded(proxy.manifest, arrays, places)
            check_ring(manifest, arrays, fraction_bits=bits, spare_bits=4)
        except ValueError:
            return False
        return True

    # The most fraction bits with `margin` for each place: growth must not cost one.
    digits = next((b for b in range(_DIGITS, 7, -1) if fits(places, b)), None)
    if digits is None:
        return places
    ratio = power_of_two(max(places["inputs"], _SMALLEST)) * margin / places["inputs"]
    for stretch in (ratio, margin, margin**0.5, margin**0.25):
        _, larger = _places(proxy, (x * stretch).astype(np.float32), mask)
        wide = {place: max(value, larger[place]) for place, value in places.items()}
        if fits(wide | _units(places), digits):
            return wide | _units(places)
    return places


def _units(places: Mapping[str, float]) -> dict[str, float]:
    """Return the scale of variances and scores, see `Place.unit`."""
    kinds = ("variance", "scores")
    return {f"{p}_unit": v for p, v in places.items() if p.endswith(kinds)}


def _worst(
    manifest: Manifest, arrays: Mapping[str, np.ndarray], inputs: float
) -> dict[str, float]:
    """Return bounds on a probe's logits and scores of any features up to `inputs`.

    Exact entropies take logits near those that were seen only, which the worst are not.
    """
    score, family = manifest.score, score_of(manifest.score.secure)
    if not (family.degree(score.kind) or family.emulates):
        return {}
    reach: npt.NDArray[np.float64] | float = inputs
    for i in range(2 if manifest.head.width else 1):
        weight, bias = (
            np.abs(np.asarray(arrays[f"head.{i}.{name}"], np.float64))
            for name in ("weight", "bias")
        )
        # Interval arithmetic; a ReLU enlarges no bound.
        reach = (weight * np.reshape(reach, (-1, 1))).sum(0) + bias
    largest = float(np.max(reach))
    lead = largest + float(np.abs(arrays["offset"]).max())
    # Scores are powers of the difference of two logits.
    worst = (2 * lead) ** max(family.degree(score.kind), 1)
    if family.emulates:
        emulator = {
            name.removeprefix("score."): np.abs(np.asarray(value, np.float64))
            for name, value in arrays.items()
            if name.startswith("score.")
        }
        worst = family.largest(emulator, lead)
    return {"head.logits": largest, "score": worst}


def _check_ties(manifest: Manifest, scores: np.ndarray, *, strict: bool) -> None:
    """Warn, or raise if `strict`, where rounding ties scores that differ."""
    bits = manifest.fixed_point.fraction_bits
    factor = scale_head(manifest, fraction_bits=bits)[2]
    clear = np.unique(np.asarray(scores, np.float64))
    rounded = np.unique(np.round(clear * factor * 2.0**bits))
    if len(rounded) >= (1 - _TIED) * len(clear):
        return
    message = (
        f"{len(clear):,} scores that differ, of {len(scores):,} samples, are "
        f"{len(rounded):,} once they are rounded to {bits} fraction bits: the secure "
        "run breaks such ties by the rows' order. Rank by the margin, whose scale is "
        "free, or train the proxy longer, so that its logits differ more"
    )
    if strict:
        raise ValueError(f"scores must differ in fixed point: {message}")
    warnings.warn(message, UserWarning, stacklevel=3)
