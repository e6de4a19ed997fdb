"""Runs a secure forward pass on clear NumPy arrays: the smallest engine there is."""

import math

import numpy as np

from jaxsel.proxy import SharedInputs, fold, run_steps, secure_steps


class Array:
    """A float64 array with the methods that families' steps call."""

    def __init__(self, values):
        self.values = np.asarray(values, np.float64)

    @property
    def shape(self):
        return self.values.shape

    def __add__(self, other):
        return Array(self.values + plain(other))

    def __sub__(self, other):
        return Array(self.values - plain(other))

    def __mul__(self, other):
        return Array(self.values * plain(other))

    __radd__ = __add__

    def __truediv__(self, number):
        return Array(self.values / number)

    def __neg__(self):
        return Array(-self.values)

    def __getitem__(self, index):
        return Array(self.values[index])

    def sum(self, axis, keepdim=False):
        return Array(self.values.sum(axis, keepdims=keepdim))

    def reshape(self, *shape):
        return Array(self.values.reshape(shape))

    def transpose(self, first, second):
        return Array(self.values.swapaxes(first, second))

    def unsqueeze(self, axis):
        return Array(np.expand_dims(self.values, axis))

    def squeeze(self, axis):
        return Array(self.values.squeeze(axis))


def plain(value):
    return value.values if isinstance(value, Array) else value


def cat(parts):
    return Array(np.concatenate([part.values for part in parts], -1))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def maximum(x):
    value = x.max(-1, keepdims=True)
    return value, (np.arange(x.shape[-1]) == x.argmax(-1)[..., None]).astype(float)


KINDS = {
    "matmul": np.matmul,
    "mul": np.multiply,
    "square": np.square,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / (1 + np.exp(-1.5958 * (x + 0.044715 * x**3))),
    "abs": np.abs,
    "exp": np.exp,
    "reciprocal": np.reciprocal,
    "inv_sqrt": lambda x: x**-0.5,
    "softmax": softmax,
    "log_softmax": lambda x: np.log(softmax(x)),
    "max": maximum,
}


def execute(call):
    operands = [operand.values for operand in call.operands]
    if call.kind == "powers":
        return tuple(Array(operands[0] ** i) for i in range(1, call.degree + 1))
    found = KINDS[call.kind](*operands)
    return tuple(map(Array, found)) if isinstance(found, tuple) else Array(found)


def scores(manifest, arrays, x, mask, *, spare_bits=0):
    """Return the scores `[n]` of the folded parameters, and the calls made."""
    folded = fold(manifest, arrays, spare_bits=spare_bits)
    weights = {name: Array(value) for name, value in folded.items()}
    steps = secure_steps(
        manifest, weights, shared(manifest, x, mask), cat=cat, spare_bits=spare_bits
    )
    calls = []

    def run(call):
        calls.append(call)
        return execute(call)

    return run_steps(steps, run).values, calls


def shared(manifest, x, mask):
    inputs = manifest.inputs
    x = np.eye(inputs.vocab)[x] if inputs.embed == "onehot" else x
    if not inputs.masked:
        return SharedInputs(Array(x))
    tokens = mask.sum(1, keepdims=True)
    share = mask * inputs.length / tokens
    return SharedInputs(*map(Array, (x, mask, share, tokens / inputs.length)))


def close(found, expected, bound):
    """Return whether scores agree, to a share of the largest or of 1."""
    error = np.abs(np.asarray(found) - expected).max()
    return math.isfinite(error) and error <= bound * max(1, np.abs(expected).max())
