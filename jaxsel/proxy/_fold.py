"""A proxy's parameters as its secure run multiplies them: one name for each operand.

The model owner works them out in the clear. In both plans the coefficients of attention
by powers go into the query's weights, so that a polynomial costs its products alone; in
the folded plan weights that meet are multiplied (docs/secure-cost.md).

Two conventions keep fixed-point numbers of a useful size. A mask's share 1/len is
shared as L/len, and products with it are divided by L, which is public and exact. A
variance comes divided by the power of two that bounds it in the manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ._manifest import Emulator, Layer, Manifest
from .families import Norm, attention_of, norm_of, score_of
from .families._attention import AttentionWeights, Linear
from .families._place import Arrays


def fold(
    manifest: Manifest, arrays: Mapping[str, np.ndarray], *, spare_bits: int = 0
) -> Arrays:
    """Return the secret operands of `secure_steps` by place and name, float64.

    Args:
        manifest: The proxy.
        arrays: Its parameters, of `Proxy.arrays`.
        spare_bits: By how many bits attention's weights are to be larger than they
            are, so that more of their digits are kept; `secure_steps` must know.
    """
    params = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    return _Folder(manifest, params, spare_bits).build()


class _PlacedNorm(NamedTuple):
    """A norm, its parameters, and where its operands go."""

    family: Norm
    gamma: np.ndarray
    beta: np.ndarray
    params: Arrays
    to: str
    unit: float

    @property
    def gain(self) -> np.ndarray:
        return self.gamma * self.family.gain(self.params, self.unit)

    def before(self, linear: Linear) -> Linear:
        """Return a linear map with this norm's gain and offset before it."""
        weight, bias = linear
        # (x γ + β) W + b = x (γ W) + (β W + b), x the centred row times its factor.
        return self.gain[:, None] * weight, self.beta @ weight + bias

    def operands(self) -> Arrays:
        operands = {"norm.gamma": self.gain, "norm.beta": self.beta}
        operands |= self.family.fold(self.params, self.unit)
        return {f"{self.to}{name}": value for name, value in operands.items()}


class _Folder:
    """Collects the operands of one manifest, part by part."""

    def __init__(self, manifest: Manifest, arrays: Arrays, spare_bits: int):
        self.manifest, self.arrays = manifest, arrays
        self.spare_bits = spare_bits
        self.out: Arrays = {}
        self.folded = manifest.plan == "folded"
        self.hidden = manifest.inputs.width

    def build(self) -> Arrays:
        manifest = self.manifest
        if manifest.inputs.embed == "onehot":
            for name in ("embed.weight", "embed.bias"):
                self.out[f"inputs.{name}"] = self.arrays[f"inputs.{name}"]
            if manifest.inputs.norm is not None:
                norm = self.norm(manifest.inputs.norm, "inputs.norm", "inputs")
                self.put_norm(norm)
        for index, layer in enumerate(manifest.layers):
            self.layer(index, layer)
        self.head()
        score = score_of(manifest.score.secure)
        self.put("score", score.fold(self.under("score")))
        return self.out

    def under(self, place: str) -> Arrays:
        """Return the arrays of a place, by their names there."""
        start = f"{place}."
        return {
            name.removeprefix(start): value
            for name, value in self.arrays.items()
            if name.startswith(start)
        }

    def linear(self, place: str) -> Linear:
        return self.arrays[f"{place}.weight"], self.arrays[f"{place}.bias"]

    def put(self, place: str, operands: Arrays) -> None:
        self.out |= {f"{place}.{name}": value for name, value in operands.items()}

    def put_linear(self, place: str, linear: Linear) -> None:
        self.put(place, {"weight": linear[0], "bias": linear[1]})

    def put_norm(self, norm: _PlacedNorm) -> None:
        if norm.family.normalises:
            self.out |= norm.operands()

    def norm(
        self, entry: Emulator, source: str, at: str, prefix: str = ""
    ) -> _PlacedNorm:
        """Return the norm with the arrays of a place; its operands go to `at`."""
        gamma, beta = (self.arrays[f"{source}.{name}"] for name in ("gamma", "beta"))
        params = self.under(f"{source}.emulator")
        to = f"{at}.{prefix}"
        bounds = self.manifest.fixed_point.bounds
        unit = bounds.get(f"{to}variance_unit", bounds.get(f"{to}variance", 1.0))
        return _PlacedNorm(norm_of(entry), gamma, beta, params, to, unit)

    def norms(self, index: int) -> list[_PlacedNorm]:
        """Return the norms of a layer: one, or two with a feed-forward part."""
        layer, place = self.manifest.layers[index], f"layers.{index}"
        norms = [self.norm(layer.norm, f"{place}.norm", place)]
        if layer.ffn is not None:
            norms.append(self.norm(layer.norm, f"{place}.ffn.norm", place, "ffn_"))
        return norms

    def beside(self, norm: _PlacedNorm) -> np.ndarray:
        """Return the head's first weights behind a norm's centring and gain."""
        weight, _ = self.linear("head.0")
        scaled = norm.gain[:, None] * weight
        # Rows are not centred before: (x - mean x) W = x (W - mean of W's rows).
        return scaled - scaled.mean(0)

    def layer(self, index: int, layer: Layer) -> None:
        place, last = f"layers.{index}", index == len(self.manifest.layers) - 1
        norms = self.norms(index)
        normalises = norms[0].family.normalises
        beside = np.zeros((self.hidden, 0))
        if self.folded and last and not layer.pre_norm and normalises:
            beside = self.beside(norms[-1])
        gained = self.folded and layer.pre_norm and normalises

        def before(norm: _PlacedNorm, linear: Linear) -> Linear:
            return norm.before(linear) if gained else linear

        linears = {"out": self.linear(f"{place}.out")}
        for name in ("query", "key", "value"):
            linears[name] = before(norms[0], self.linear(f"{place}.{name}"))
        weights = AttentionWeights(
            linears=linears,
            params=self.under(f"{place}.attention"),
            heads=layer.heads,
            width=layer.head_width,
            length=self.manifest.inputs.length,
            rows=self.manifest.rows_of(index),
            folded=self.folded,
            # The head's columns go with the layer's last maps: a feed-forward part's.
            beside=beside if layer.ffn is None else beside[:, :0],
            spare_bits=self.spare_bits,
        )
        attention = attention_of(layer.attention)
        self.put(place, attention.fold_layer(weights))
        self.put_norm(norms[0])
        if layer.ffn is None:
            return
        up, up_bias = before(norms[1], self.linear(f"{place}.ffn.up"))
        # The head's columns of the rows come from `up`, of the added rows from `down`.
        zeros = np.zeros(beside.shape[1])
        up = np.hstack([up, beside]), np.append(up_bias, zeros)
        self.put_linear(f"{place}.up", up)
        down, bias = self.linear(f"{place}.ffn.down")
        down = np.hstack([down, down @ beside]), np.append(bias, bias @ beside)
        self.put_linear(f"{place}.down", down)
        self.put_norm(norms[1])

    def head(self) -> None:
        manifest, norm = self.manifest, None
        weight, bias = self.linear("head.0")
        if manifest.final_norm is not None:
            norm = self.norm(manifest.final_norm, "final_norm", "final_norm")
            self.put_norm(norm)
        elif manifest.layers:
            norm = self.norms(len(manifest.layers) - 1)[-1]
        hidden = manifest.head.width > 0
        name = "head.hidden" if hidden else "head.logits"
        if self.folded and norm is not None and norm.family.normalises:
            if manifest.final_norm is not None:
                self.out["head.logits_of_rows.weight"] = self.beside(norm)
            # The norm's offset goes through the head's weights into its bias.
            bias = norm.beta @ weight + bias
        else:
            self.out[f"{name}.weight"] = weight
        self.out[f"{name}.bias"] = bias
        if hidden:
            self.put_linear("head.logits", self.linear("head.1"))
        self.out["head.logits.bias"] = (
            self.out["head.logits.bias"] - self.arrays["offset"]
        )
