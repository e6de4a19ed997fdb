"""A proxy's parameters as its secure run multiplies them: one name for each operand.

The model owner works them out in the clear. In both plans the coefficients of attention
by powers go into the query's weights, so that a polynomial costs its products alone; in
the folded plan weights that meet are multiplied (docs/secure-cost.md).

Two conventions keep fixed-point numbers of a useful size. A mask's share 1/len is
shared as L/len, and what was multiplied by it is divided by L, which is public and
exact. A variance comes divided by the power of two that bounds it in the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ._manifest import Emulator, Layer, Manifest

Arrays = dict[str, np.ndarray]

SHIFT = 5.0  # of 2quad
SUM_BELOW = 512  # means of weights, for CrypTen's reciprocal


def variance_unit(manifest: Manifest, place: str) -> float:
    """Return what a place's variances are divided by: a public power of two."""
    return manifest.fixed_point.bounds.get(place, 1.0)


def fold(manifest: Manifest, arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Return the secret operands by place and name, float64.

    Args:
        manifest: The proxy.
        arrays: Its parameters, of `jaxsel.proxy.Proxy.arrays`.
    """
    given = {name: np.asarray(value, np.float64) for name, value in arrays.items()}
    return _Folder(manifest, given).build()


class _Folder:
    def __init__(self, manifest: Manifest, arrays: Arrays):
        self.manifest, self.arrays, self.out = manifest, arrays, {}
        self.folded = manifest.plan == "folded"
        self.hidden = manifest.inputs.width

    def build(self) -> Arrays:
        manifest = self.manifest
        if manifest.inputs.embed == "onehot":
            for name in ("embed.weight", "embed.bias"):
                self.out[f"inputs.{name}"] = self.arrays[f"inputs.{name}"]
            norm = manifest.inputs.norm
            if norm is not None and norm.family != "none":
                self.norm("inputs", "", "inputs.norm", norm)
        for index, layer in enumerate(manifest.layers):
            self.layer(index, layer)
        self.head()
        if manifest.score.secure.family == "mlp":
            self.mlp("score.emulator", "score")
        return self.out

    def linear(self, place: str) -> tuple[np.ndarray, np.ndarray]:
        return self.arrays[f"{place}.weight"], self.arrays[f"{place}.bias"]

    def put(self, place: str, weight: np.ndarray, bias: np.ndarray) -> None:
        self.out[f"{place}.weight"], self.out[f"{place}.bias"] = weight, bias

    def mlp(self, to: str, place: str, unit: float = 1.0) -> None:
        w1, b1, w2, b2 = (self.arrays[f"{place}.{n}"] for n in ("w1", "b1", "w2", "b2"))
        self.put(f"{to}_in", w1 * unit, b1)
        self.put(f"{to}_out", w2, b2)

    def beside(self, place: str) -> np.ndarray:
        """Return the head's first weights behind a norm's centring and gain."""
        weight, _ = self.linear("head.0")
        scaled = self.arrays[f"{place}.gamma"][:, None] * weight
        return scaled - scaled.mean(0)

    def layer(self, index: int, layer: Layer) -> None:
        at, last = f"layers.{index}", index == len(self.manifest.layers) - 1
        merged = self.folded and last and not layer.pre_norm
        merged = merged and layer.norm.family != "none"
        no_ffn = layer.ffn is None
        beside = np.zeros((self.hidden, 0))
        if merged:
            beside = self.beside(f"{at}.norm" if no_ffn else f"{at}.ffn.norm")
        gained = self.folded and layer.pre_norm and layer.norm.family != "none"
        in_attention = beside if no_ffn else beside[:, :0]
        self.attention(at, layer, in_attention, f"{at}.norm" if gained else None)
        if layer.norm.family != "none":
            self.norm(at, "", f"{at}.norm", layer.norm)
        if layer.ffn is None:
            return
        norm = f"{at}.ffn.norm" if gained else None
        up, up_bias = self.gained(self.linear(f"{at}.ffn.up"), norm)
        down, down_bias = self.linear(f"{at}.ffn.down")
        zeros = np.zeros(beside.shape[1])
        self.put(f"{at}.up", np.hstack([up, beside]), np.append(up_bias, zeros))
        down, down_bias = self.widen(down, down_bias, beside)
        self.put(f"{at}.down", down, down_bias)
        if layer.norm.family != "none":
            self.norm(at, "ffn_", f"{at}.ffn.norm", layer.norm)

    def gained(
        self, linear: tuple[np.ndarray, np.ndarray], norm: str | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a linear map with the gain and offset of a norm before it, if any."""
        weight, bias = linear
        if norm is None:
            return weight, bias
        gamma, beta = (self.arrays[f"{norm}.{name}"] for name in ("gamma", "beta"))
        return gamma[:, None] * weight, beta @ weight + bias

    def widen(
        self, weight: np.ndarray, bias: np.ndarray, beside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        columns = np.hstack([weight, weight @ beside])
        return columns, np.append(bias, bias @ beside)

    def attention(
        self, at: str, layer: Layer, beside: np.ndarray, norm: str | None
    ) -> None:
        value, value_bias = self.gained(self.linear(f"{at}.value"), norm)
        out, out_bias = self.linear(f"{at}.out")
        none = np.zeros(beside.shape[1])
        if layer.attention.family == "uniform":
            if not self.folded:
                self.put(f"{at}.value", value, value_bias)
                self.put(f"{at}.output", out, out_bias)
                return
            if beside.shape[1]:
                self.put(f"{at}.projections", beside, none)
            both, bias = value @ out, value_bias @ out + out_bias
            self.put(f"{at}.output", *self.widen(both, bias, beside))
            return
        query, query_bias = self.gained(self.linear(f"{at}.query"), norm)
        key, key_bias = self.gained(self.linear(f"{at}.key"), norm)
        scale, sign = self.powers(at, layer.attention, layer.heads)
        wide = lambda by_head: np.repeat(by_head, layer.head_width)
        query_scale = wide(scale) * layer.head_width**-0.5
        query, query_bias = query * query_scale, query_bias * query_scale
        value, value_bias = value * wide(sign), value_bias * wide(sign)
        if self.folded:
            weights = np.hstack([query, key, value, beside])
            biases = np.concatenate([query_bias, key_bias, value_bias, none])
            self.put(f"{at}.projections", weights, biases)
        else:
            self.put(f"{at}.query", query, query_bias)
            self.put(f"{at}.key", key, key_bias)
            self.put(f"{at}.value", value, value_bias)
        self.put(f"{at}.output", *self.widen(out, out_bias, beside))

    def powers(
        self, at: str, attention: Emulator, heads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Put what an emulator adds to scores; return the scores' factor and a sign.

        Both are by head. The sign goes into the values.
        """
        family, one = attention.family, np.ones(heads)
        if family == "mlp":
            self.mlp(f"{at}.emulator", f"{at}.attention")
        if family not in ("linear", "quadratic", "cubic", "hinge"):
            return one, one
        c = self.arrays[f"{at}.attention.coefficients"].T
        if family == "linear":
            found, scale, sign = {"offset": c[0]}, c[1], one
        elif family == "quadratic":
            found, scale, sign = quadratic(*c)
        elif family == "cubic":
            found, scale, sign = cubic(*c)
        else:
            slope, knot = (
                self.arrays[f"{at}.attention.{name}"] for name in ("slope", "knot")
            )
            found, scale, sign = hinge(c[0], c[1], slope, knot)
        for name, value in found.items():
            self.out[f"{at}.attention.{name}"] = value[:, None, None]
        if attention.bias:
            table = self.arrays[f"{at}.attention.bias"] * sign[:, None, None]
            self.out[f"{at}.table"] = table * self.manifest.inputs.length
        return scale, sign

    def norm(self, at: str, prefix: str, place: str, norm: Emulator) -> None:
        """Put a norm's emulator, of variances in their unit, and gain and offset."""
        to = f"{at}.{prefix}norm"
        unit = variance_unit(self.manifest, f"{at}.{prefix}variance")
        for name in ("gamma", "beta"):
            self.out[f"{to}.{name}"] = self.arrays[f"{place}.{name}"]
        emulator = f"{place}.emulator"
        if norm.family == "mlp":
            self.mlp(to, emulator, unit)
        elif norm.family in ("linear", "polynomial"):
            shift, scale = (self.arrays[f"{emulator}.{n}"] for n in ("shift", "scale"))
            inner = np.polynomial.Polynomial([-shift * scale, scale * unit])
            given = self.arrays[f"{emulator}.coefficients"]
            terms = np.zeros(len(given))
            found = np.polynomial.Polynomial(given)(inner).coef
            terms[: len(found)] = found
            flat = norm.family == "linear"
            self.put(to, terms[1:] if flat else terms[1:, None], terms[:1])
        elif norm.family == "hinge":
            affine, slopes, knots = (
                self.arrays[f"{emulator}.{n}"] for n in ("affine", "slopes", "knots")
            )
            self.out[f"{to}.knots"] = knots / unit
            slopes = np.append(slopes, affine[1])[:, None] * unit
            self.put(to, slopes, affine[:1])

    def head(self) -> None:
        manifest = self.manifest
        weight, bias = self.linear("head.0")
        final = manifest.final_norm
        norm = final
        if final is not None:
            if final.family != "none":
                self.norm("final_norm", "", "final_norm", final)
            place = "final_norm"
        elif manifest.layers:
            last, index = manifest.layers[-1], len(manifest.layers) - 1
            norm = last.norm
            place = f"layers.{index}{'' if last.ffn is None else '.ffn'}.norm"
        else:
            place = ""
        merged = self.folded and norm is not None and norm.family != "none"
        hidden = manifest.head.width > 0
        name = "head.hidden" if hidden else "head.logits"
        if merged:
            if final is not None:
                self.out["head.logits_of_rows.weight"] = self.beside(place)
            bias = self.arrays[f"{place}.beta"] @ weight + bias
        else:
            self.out[f"{name}.weight"] = weight
        self.out[f"{name}.bias"] = bias
        if hidden:
            self.put("head.logits", *self.linear("head.1"))
        self.out["head.logits.bias"] = (
            self.out["head.logits.bias"] - (self.arrays["offset"])
        )


Powers = tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]


def quadratic(c0: np.ndarray, c1: np.ndarray, c2: np.ndarray) -> Powers:
    """Return `(u + shift)² + offset`, u the scores times a factor, up to a sign.

    A curvature below (c1 / 128)² is raised to it, and any to 2^-20: else the shift
    would drown in fixed point what it is there for. That changes the weight of a score
    t by less than c1² t² / 16384, or t² / 2^20.
    """
    sign = np.where(c2 < 0, -1.0, 1.0)
    scale = np.sqrt(np.maximum(np.abs(c2), np.maximum(np.abs(c1) / 128, 2.0**-10) ** 2))
    shift = sign * c1 / (2 * scale)
    return {"shift": shift, "offset": sign * c0 - shift**2}, scale, sign


def cubic(c0: np.ndarray, c1: np.ndarray, c2: np.ndarray, c3: np.ndarray) -> Powers:
    """Return `(u + root) ((u + shift)² + offset)`, u the scores times a factor.

    A leading coefficient too small for fixed point is raised, as in `quadratic`: below
    (c2 / 256)^1.5, (c1 / 256)³ or 2^-30.
    """
    least = np.maximum((np.abs(c2) / 256) ** 1.5, (np.abs(c1) / 256) ** 3)
    c3 = np.where(c3 < 0, -1.0, 1.0) * np.maximum(
        np.abs(c3), np.maximum(least, 2.0**-30)
    )
    scale = np.cbrt(c3)
    p2, p1 = c2 / scale**2, c1 / scale
    found = {"root": [], "shift": [], "offset": []}
    for terms in zip(c0, p1, p2, np.ones_like(c3), strict=True):
        roots = np.polynomial.polynomial.polyroots(terms)
        real = roots[np.abs(roots.imag) <= 1e-6 * (1 + np.abs(roots))].real
        root = -real[np.argmin(np.abs(real))]
        shift = (terms[2] - root) / 2
        found["root"].append(root)
        found["shift"].append(shift)
        found["offset"].append(terms[1] - 2 * root * shift - shift**2)
    return {k: np.array(v) for k, v in found.items()}, scale, np.ones_like(c3)


def hinge(
    c0: np.ndarray, c1: np.ndarray, slope: np.ndarray, knot: np.ndarray
) -> Powers:
    """Return `u + offset + slope · relu(u - knot)`, up to a sign; u as above.

    On one side of the knot the slope is c1, on the other c1 + slope; the steeper one
    goes into the factor, and the ReLU bends the other. A factor below 2^-10 is raised
    to it: that changes the weight of a score t by less than |t| / 1024.
    """
    other = c1 + slope
    turned = np.abs(other) > np.abs(c1)  # relu(t - k) = t - k + relu(k - t)
    base = np.where(turned, other, c1)
    base = np.where(np.abs(base) < 2.0**-10, np.copysign(2.0**-10, base), base)
    constant = np.where(turned, c0 - slope * knot, c0)
    # u rises with t, or where the ReLU is turned falls with it.
    sign = np.where(turned, -1.0, 1.0) * np.sign(base)
    scale = np.where(turned, -1.0, 1.0) * np.abs(base)
    found = {
        "offset": sign * constant,
        "knot": scale * knot,
        "slope": sign * slope / np.abs(base),
    }
    return found, scale, sign


def scaled_root(manifest: Manifest, place: str) -> int:
    """Return j: variances of an exact norm are divided by 4^j, factors by 2^j.

    CrypTen's reciprocal root converges between .01 and 200 or so; what bounds the
    variances is brought to 32.
    """
    return math.ceil((math.log2(variance_unit(manifest, place)) - 5) / 2)


def sum_unit(manifest: Manifest, at: str, emulator: Emulator) -> int:
    """Return what weights are divided by, for a mean that suits CrypTen's reciprocal.

    It converges up to 666, and loses the fewest digits near 1, where most weights are:
    (t + 5)² over 32, or exp(t). A power of two, from the bound on the scores.
    """
    bound = manifest.fixed_point.bounds.get(f"{at}.scores", 16.0)
    least = 32 if emulator.family == "2quad" else 1
    most = largest_weight(emulator, bound)
    return max(least, 2 ** math.ceil(math.log2(most / SUM_BELOW)))


def largest_weight(emulator: Emulator, bound: float) -> float:
    """Return the largest weight, before its sum divides it, of scores up to a bound."""
    if emulator.family == "2quad":
        return (bound + SHIFT) ** 2
    powers = range((emulator.degree or 0) + 1)
    return sum(bound**i / math.factorial(i) for i in powers)


def far(manifest: Manifest) -> int:
    """Return what takes the largest logit below all others."""
    return int(4 * manifest.fixed_point.bounds.get("head.logits", 256.0)) + 1
