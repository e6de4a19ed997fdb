"""Operands of JAX with the methods that programs call, and the operations on them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsel.proxy import Call, public_factors


class Operand:
    """An array of a program that is being traced; see `jaxsel.proxy.Shaped`.

    Args:
        array: A traced array.
        factor: A public number that it is multiplied by where it is used.
    """

    def __init__(self, array: jax.Array, factor: float = 1.0):
        self._array, self._factor = array, factor

    @functools.cached_property
    def array(self) -> jax.Array:
        """The traced array."""
        return scaled(self._array, self._factor)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def __add__(self, other: Any) -> Operand:
        return Operand(self.array + _array(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Operand:
        return Operand(self.array - _array(other))

    def __rsub__(self, other: Any) -> Operand:
        return Operand(_array(other) - self.array)

    def __mul__(self, number: float) -> Operand:
        return Operand(self._array, self._factor * number)

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Operand:
        return self * (1 / number)

    def __neg__(self) -> Operand:
        return Operand(-self.array)

    def __getitem__(self, index: Any) -> Operand:
        if isinstance(index, Operand):
            return Operand(jnp.take(self.array, index.array, axis=0, mode="clip"))
        return Operand(self.array[index])

    def sum(self, axis: int, keepdim: bool = False) -> Operand:
        return Operand(self.array.sum(axis, keepdims=keepdim))

    def reshape(self, *shape: int) -> Operand:
        return Operand(self.array.reshape(shape))

    def transpose(self, first: int, second: int) -> Operand:
        return Operand(jnp.swapaxes(self.array, first, second))

    def unsqueeze(self, axis: int) -> Operand:
        return Operand(jnp.expand_dims(self.array, axis))

    def squeeze(self, axis: int) -> Operand:
        return Operand(jnp.squeeze(self.array, axis))


def scaled(array: jax.Array, number: float) -> jax.Array:
    """Return an array times a public number, without losing its digits."""
    *first, last = public_factors(number) or (1.0,)
    for factor in first:
        # Two products in a row SPU's compiler joins to one, of the small number.
        half = array * (factor / 2)
        array = half + half
    return array * last if last != 1 else array


def cat(parts: Sequence[Operand]) -> Operand:
    """Join operands along the last axis."""
    return Operand(jnp.concatenate([part.array for part in parts], axis=-1))


def execute(call: Call) -> Any:
    """Return the result of an operation; of "powers" and "max" it is a tuple."""
    arrays = [operand.array for operand in call.operands]
    if call.kind == "powers":
        return tuple(map(Operand, _powers(arrays[0], call.degree)))
    if call.kind == "max":
        return tuple(map(Operand, _max(arrays[0])))
    if call.kind == "highest":
        return Operand(jax.lax.top_k(arrays[0], call.degree)[0])
    return Operand(KINDS[call.kind](*arrays))


def _powers(x: jax.Array, degree: int) -> list[jax.Array]:
    terms = [x]
    while len(terms) < degree:
        terms += [term * terms[-1] for term in terms[: degree - len(terms)]]
    return terms


def _max(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the largest along the last axis, and where it stands, ones and zeros."""
    value = x[..., :1]
    for i in range(1, x.shape[-1]):
        value = jnp.maximum(value, x[..., i : i + 1])
    return value, (x >= value).astype(x.dtype)


def _softmax(x: jax.Array) -> jax.Array:
    power = jnp.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def _log_softmax(x: jax.Array) -> jax.Array:
    lower = x - x.max(-1, keepdims=True)
    return lower - jnp.log(jnp.exp(lower).sum(-1, keepdims=True))


def _gelu(x: jax.Array) -> jax.Array:
    return x * jax.nn.sigmoid(1.5958 * (x + 0.044715 * (x * x * x)))


KINDS: dict[str, Callable[..., jax.Array]] = {
    "matmul": jnp.matmul,
    "mul": jnp.multiply,
    "square": lambda x: x * x,
    "relu": functools.partial(jnp.maximum, 0),
    "gelu": _gelu,
    "abs": jnp.abs,
    "exp": jnp.exp,
    "reciprocal": lambda x: 1 / x,
    "inv_sqrt": jax.lax.rsqrt,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "nonnegative": lambda x: x >= 0,
    "all": lambda bits: bits.all(-1),
    "select": lambda bits, x: jnp.where(bits, x, 0),
}


def _array(value: Any) -> Any:
    return value.array if isinstance(value, Operand) else value
