"""The cost model's primitives, against what two parties count."""

import numpy as np
import pytest
from counted import count_calls
from parties import both
from proxy.random_proxies import small_manifests

from jaxsel import proxy
from jaxsel.proxy._cost import _primitives as primitives

SAMPLES = 2
LENGTHS = (2, 3, 8, 33, 128)
PRIMITIVES = {
    "share": primitives.Count(0, 0),
    "truncate": primitives.Count(0, 0),
    "open": primitives.OPEN,
    "square": primitives.SQUARE,
    "compare": primitives.COMPARE,
    "relu": primitives.RELU,
    "abs": primitives.ABS,
    "exp": primitives.EXP,
    "reciprocal": primitives.RECIPROCAL,
    "inv_sqrt": primitives.INV_SQRT,
    "log": primitives.LOG,
    "sigmoid": primitives.SIGMOID,
    "gelu": primitives.GELU,
}


def primitive_calls():
    """Return the calls to measure, each with the count that is expected."""
    calls = {}
    for kind, expected in PRIMITIVES.items():
        for shape in ((1,), (3, 7)):
            calls[kind, (shape,), 0] = expected.on(int(np.prod(shape)))
    for length in LENGTHS:
        for kind, function in (
            ("max", primitives.maximum),
            ("softmax", primitives.softmax),
            ("log_softmax", primitives.log_softmax),
        ):
            if length < 33 or kind == "softmax":
                calls[kind, ((2, length),), 0] = function(length).on(2)
    for degree in (2, 3, 4, 5, 8, 9):
        calls["powers", ((3, 7),), degree] = primitives.powers(degree).on(21)
    for m in small_manifests():
        for step in proxy.schedule(m):
            calls[step.kind, step.shapes, step.degree] = step.count(SAMPLES)
    return calls


@pytest.mark.slow
@pytest.mark.mpc
def test_counts_are_those_of_a_two_party_run():
    # One session for all: most of its time goes into starting the parties.
    expected = primitive_calls()
    first, second = both(count_calls, list(expected), SAMPLES)
    assert first == second
    for call, count in expected.items():
        assert first[call] == (count.rounds, count.bytes), call
