"""Runs a secure forward pass in fixed point with wrap-around, as SPU's parties do.

Numbers are whole, of 64 bits, `2^bits` for 1. A product wraps around before it is cut
back. What SPU computes by functions (roots, exponentials) is computed here in float64,
and clipped to the ring: only products and sums are emulated to the bit.
"""

import numpy as np
from proxy.numpy_engine import KINDS, shared as clear_inputs

from jaxsel.proxy import (
    SharedInputs,
    check_ring,
    fold,
    public_factors,
    run_steps,
    scale_head,
    secure_steps,
)

_MOST = 2.0**62


class Fixed:
    """Whole numbers of the ring, with the methods that families' steps call."""

    def __init__(self, whole, bits):
        self.whole, self.bits = whole, bits

    @classmethod
    def of(cls, values, bits):
        scaled = np.round(np.asarray(values, np.float64) * 2.0**bits)
        return cls(np.clip(np.nan_to_num(scaled), -_MOST, _MOST).astype(np.int64), bits)

    @property
    def values(self):
        return self.whole / 2.0**self.bits

    @property
    def shape(self):
        return self.whole.shape

    def like(self, whole):
        return Fixed(whole, self.bits)

    def raw(self, other):
        return (other if isinstance(other, Fixed) else Fixed.of(other, self.bits)).whole

    def cut(self, product):
        return self.like(product >> self.bits)

    def __add__(self, other):
        return self.like(self.whole + self.raw(other))

    def __sub__(self, other):
        return self.like(self.whole - self.raw(other))

    __radd__ = __add__

    def __mul__(self, number):
        found = self
        for factor in public_factors(number):
            whole = float(factor).is_integer()
            product = found.whole * (int(factor) if whole else self.raw(factor))
            found = self.like(product) if whole else self.cut(product)
        return found

    __rmul__ = __mul__

    def __truediv__(self, number):
        return self * (1 / number)

    def __neg__(self):
        return self.like(-self.whole)

    def __getitem__(self, index):
        return self.like(self.whole[index])

    def sum(self, axis, keepdim=False):
        return self.like(self.whole.sum(axis, keepdims=keepdim))

    def reshape(self, *shape):
        return self.like(self.whole.reshape(shape))

    def transpose(self, first, second):
        return self.like(self.whole.swapaxes(first, second))

    def unsqueeze(self, axis):
        return self.like(np.expand_dims(self.whole, axis))

    def squeeze(self, axis):
        return self.like(self.whole.squeeze(axis))


def cat(parts):
    return parts[0].like(np.concatenate([part.whole for part in parts], -1))


def execute(call):
    first, *others = call.operands
    whole = [operand.whole for operand in call.operands]
    if call.kind in ("matmul", "mul", "square"):
        product = np.matmul if call.kind == "matmul" else np.multiply
        with np.errstate(over="ignore"):
            return first.cut(product(whole[0], whole[-1]))
    if call.kind == "powers":
        terms = [first]
        for _ in range(call.degree - 1):
            terms.append(first.cut(terms[-1].whole * whole[0]))
        return tuple(terms)
    if call.kind == "relu":
        return first.like(np.maximum(whole[0], 0))
    if call.kind == "abs":
        return first.like(np.abs(whole[0]))
    if call.kind == "nonnegative":
        return first.like(whole[0] >= 0)
    if call.kind == "all":
        return first.like(whole[0].all(-1))
    if call.kind == "select":
        return others[0].like(np.where(whole[0], whole[1], 0))
    with np.errstate(all="ignore"):
        found = KINDS[call.kind](*(operand.values for operand in call.operands))
    if isinstance(found, tuple):
        return tuple(Fixed.of(each, first.bits) for each in found)
    return Fixed.of(found, first.bits)


def scores(
    proxy, x, mask=None, *, bits, ring=64, spare_bits=4, watch=True, enlarge=True
):
    """Return the scores `[n]` as a session computes them, and their unit."""
    manifest, arrays = proxy.manifest, proxy.arrays()
    limits = {"fraction_bits": bits, "ring": ring, "spare_bits": spare_bits}
    check_ring(manifest, arrays, **limits)
    unit = 1.0
    if enlarge:
        manifest, arrays, unit = scale_head(manifest, arrays, **limits)
    folded = fold(manifest, arrays, spare_bits=spare_bits)
    weights = {name: Fixed.of(value, bits) for name, value in folded.items()}
    clear = clear_inputs(manifest, x, mask)
    inputs = SharedInputs(
        *(
            None if part is None else Fixed.of(part.values, bits)
            for part in (clear.x, clear.mask, clear.share, clear.length)
        )
    )
    steps = secure_steps(
        manifest, weights, inputs, cat=cat, spare_bits=spare_bits, watch=watch
    )
    return run_steps(steps, execute).values, unit
