"""Whether a proxy's numbers fit fixed point in a ring of 64 bits.

A number x is x 2^f in the ring, f fraction bits. A product has twice as many until it
is cut back, so that each must stay below 2^(63 - 2f); CrypTen's two-party truncation is
wrong by 2^(64 - 2f) with a probability of |product| / 2^(64 - 2f).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ._fold import SUM_BELOW, cubic, far, fold, hinge, largest_weight, quadratic
from ._manifest import Layer, Manifest

_EXP = 512  # CrypTen's exponential of x is sound down to minus this
_USUAL = {"2quad": 25.0, "polynomial": 1.0}  # the weight of a score of 0
_SPREAD = 16 * SUM_BELOW
"""How many times larger another may be. What brings that one into the range of
CrypTen's reciprocal takes digits off the usual one: at most four bits here. Measured, a
proxy's scores are wrong by 1e-4 of the largest with one bit or three, by 2.5e-3 with
seven."""


def check_ring(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse a proxy whose ranges do not fit.

    Args:
        manifest: With bounds.
        arrays: Its parameters, of `jaxsel.proxy.Proxy.arrays`.

    Raises:
        ValueError: If bounds are missing, or a range is too large or too small: the
            place and both numbers are named.
    """
    if "head.logits" not in manifest.fixed_point.bounds:
        raise ValueError(
            "the manifest must have fixed_point.bounds: call jaxsel.proxy.with_bounds "
            "with the bootstrap set"
        )
    _Check(manifest, arrays).run()


class _Check:
    def __init__(self, manifest: Manifest, arrays: Mapping[str, np.ndarray]):
        self.manifest, self.arrays = manifest, arrays
        self.weights = fold(manifest, arrays)
        self.bits = manifest.fixed_point.fraction_bits
        self.most = 2.0 ** (62 - 2 * self.bits)  # a bit for sums
        self.least = 2.0 ** (4 - self.bits)  # four bits left

    def bound(self, place: str) -> float:
        bounds = self.manifest.fixed_point.bounds
        if place not in bounds:
            raise ValueError(
                f"fixed_point.bounds must have {place!r}, got {sorted(bounds)}"
            )
        return bounds[place]

    def fits(self, place: str, what: str, value: float, most: float = 0.0) -> None:
        most = most or self.most
        if not value < most:
            raise ValueError(
                f"{place}: {what} may reach {value:.3g}, and must stay below {most:.3g}"
                f" with {self.bits} fraction bits in a ring of 64"
            )

    def run(self) -> None:
        manifest = self.manifest
        for name, value in self.weights.items():
            largest = float(np.abs(value).max(initial=0))
            if not np.isfinite(largest):
                raise ValueError(f"{name}: weights must be finite")
            self.fits(name, "a weight", largest, 2.0 ** (31 - self.bits))
            if name.endswith("weight") and 0 < largest < self.least:
                raise ValueError(
                    f"{name}: weights of at most {largest:.3g} drown in "
                    f"{self.bits} fraction bits; scale what they are multiplied with"
                )
        self.fits("inputs", "a row", self.bound("inputs"))
        if "inputs.norm.gamma" in self.weights:
            self.variance("inputs", "variance")
        for index, layer in enumerate(manifest.layers):
            self.layer(f"layers.{index}", layer)
        if manifest.final_norm is not None and manifest.final_norm.family != "none":
            self.variance("final_norm", "variance")
        self.score(self.bound("head.logits"))

    def layer(self, at: str, layer: Layer) -> None:
        if layer.attention.family != "uniform":
            self.attention(at, layer)
        if layer.norm.family != "none":
            self.variance(at, "variance")
            if layer.ffn is not None:
                self.variance(at, "ffn_variance")

    def variance(self, at: str, name: str) -> None:
        place = f"{at}.{name}"
        # One entry of a row may hold all of its variance.
        squared = self.bound(place) * self.manifest.inputs.width
        self.fits(place, "a squared entry", squared)

    def attention(self, at: str, layer: Layer) -> None:
        place, family = f"{at}.scores", layer.attention.family
        largest = self.bound(place) * (2 if layer.attention.centre else 1)
        if family == "exact":
            self.fits(place, "a score", largest, (_EXP - 16) / 4)
        elif family == "mlp":
            weight = np.abs(self.weights[f"{at}.emulator_in.weight"])
            bias = np.abs(self.weights[f"{at}.emulator_in.bias"])
            hidden = weight.sum(0) * largest + bias
            out = hidden @ np.abs(self.weights[f"{at}.emulator_out.weight"])
            self.fits(place, "a weight's emulator", float(out.max()))
        elif family in _USUAL:
            if family == "polynomial":
                power = largest ** (layer.attention.degree or 0)
                self.fits(place, "a power", power)
            weight, least = largest_weight(layer.attention, largest), _USUAL[family]
            self.fits(place, "a weight that its sum divides", weight, _SPREAD * least)
        else:
            # Over the tokens a row's weights come to L times their mean.
            weight = self.weight(at, family, largest) * self.manifest.inputs.length
            self.fits(place, "the sum of a row's weights", weight)

    def weight(self, at: str, family: str, largest: float) -> float:
        """Return how large a weight by powers gets, of scores up to `largest`."""
        get = lambda name: np.asarray(self.arrays[f"{at}.attention.{name}"], np.float64)
        c = get("coefficients").T
        if family == "linear":
            return float((np.abs(c[0]) + largest * np.abs(c[1])).max())
        if family == "hinge":
            found, scale, _ = hinge(c[0], c[1], get("slope"), get("knot"))
        else:
            found, scale, _ = (quadratic if family == "quadratic" else cubic)(*c)
        found = {name: np.abs(value) for name, value in found.items()}
        u = largest * np.abs(scale)
        if family == "hinge":
            bent = found["slope"] * (u + found["knot"])
            return float((u + bent + found["offset"]).max())
        weight = (u + found["shift"]) ** 2 + found["offset"]
        if family == "cubic":
            weight = weight * (u + found["root"])
        return float(weight.max())

    def score(self, largest: float) -> None:
        score, classes = self.manifest.score, self.manifest.head.classes
        # What is bounded are the logits before the prior's offset comes off.
        largest += float(np.abs(self.arrays["offset"]).max())
        if score.secure.family == "square":
            self.fits("score", "a squared margin", (2 * largest) ** 2)
        elif score.secure.family == "exact" and score.kind != "margin":
            self.fits("head.logits", "a difference of logits", 2 * largest, _EXP)
        elif score.secure.family == "exact" and classes > 2:
            most = far(self.manifest)
            self.fits("head.logits", "a difference of logits", 2 * largest, most)
