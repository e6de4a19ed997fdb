"""Digests of data, options and functions."""

import dataclasses
import functools
import os
import subprocess
import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from waits import PATIENCE

from jaxsel import value
from jaxsel._runs.fingerprint import fingerprint

SHIFT = np.arange(3.0)


def named(x):
    return x + SHIFT


def scaled(by):
    return lambda x: x * by


def endless(x):
    return endless(x - 1) if x else 0


def flax(rate):
    return value.FlaxLearner(linen.Dense(2), optax.adam(rate))


THINGS = [
    np.zeros(3),
    np.zeros(3, np.float32),
    np.zeros((3, 1)),
    np.array([0, 0, 1.0]),
    np.array(["a", None], object),
    jax.random.key(0),
    jax.random.key(1),
    "1",
    1,
    1.0,
    True,
    None,
    ("ab", "c"),
    ("a", "bc"),
    [("a",), "bc"],
    {"a": 1},
    {"b": 1},
    frozenset("abc"),
    scaled(1.0),
    scaled(2.0),
    scaled(np.arange(3)),
    scaled(scaled(1)),
    jax.jit(scaled(3.0)),
    functools.partial(named, 2),
    named,
    endless,
    lambda x, y=1: x,
    lambda x, y=2: x,
    flax(0.1),
    flax(0.2),
    value.KNN(3),
    value.KNN(4),
    jnp.exp,
]


def test_different_things_have_different_digests():
    digests = [fingerprint(thing) for thing in THINGS]
    assert len(set(digests)) == len(THINGS)
    assert digests == [fingerprint(thing) for thing in THINGS]


def test_equal_things_have_equal_digests():
    for one, two in [
        (scaled(1.5), scaled(1.5)),
        (flax(0.1), flax(0.1)),
        (jnp.arange(3), np.arange(3, dtype=np.int32)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros((4, 2))[::2], np.zeros((2, 2))),
    ]:
        assert fingerprint(one) == fingerprint(two)


def test_arrays_that_a_function_names(monkeypatch):
    before = fingerprint(named)
    monkeypatch.setitem(globals(), "SHIFT", SHIFT + 1)
    assert fingerprint(named) != before


def test_notes_that_a_function_keeps_do_not_count():
    notes = []

    def function(x):
        notes.append(x)

    before = fingerprint(function)
    function(3)
    assert fingerprint(function) == before


@pytest.mark.slow
def test_objects_that_hold_each_other_and_pretend():
    @dataclasses.dataclass
    class Node:
        other: object = None

        def __repr__(self):
            return "Node"

    one, two = Node(), Node()
    one.other, two.other = two, one
    assert fingerprint(one) == fingerprint(two)
    assert len(fingerprint(mock.Mock())) == 16


def test_options_that_a_repr_leaves_out():
    linear_model = pytest.importorskip("sklearn.linear_model")
    grids = np.ones((2, 2000))
    grids[1, 1000] = 2.0
    one, two = (
        value.SklearnLearner(linear_model.RidgeCV(alphas=alphas)) for alphas in grids
    )
    assert repr(one) == repr(two)
    assert fingerprint(one) != fingerprint(two)


_AGAIN = """
import jax, optax
from flax import linen
from jaxsel import value
from jaxsel._runs.fingerprint import fingerprint
learner = value.FlaxLearner(linen.Dense(2), optax.adam(0.1))
print(fingerprint(learner, frozenset("abcdef"), lambda x: x in {"a", "b", "c"}))
"""


@pytest.mark.slow
def test_equal_in_another_process():
    found = {
        subprocess.run(
            [sys.executable, "-c", _AGAIN],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
