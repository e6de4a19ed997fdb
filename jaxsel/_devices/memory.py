"""Estimate the memory that a computation needs, without running it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


def activations(function: Callable[..., Any], *args: Any) -> int:
    """Count the entries of all intermediate results of a function."""
    return _numbers(jax.make_jaxpr(function)(*args))


def _numbers(jaxpr: Any) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        outputs = sum(math.prod(v.aval.shape) for v in eqn.outvars)
        # The outputs of a call are among its inner results: count the larger only.
        total += max(outputs, sum(map(_numbers, _jaxprs(list(eqn.params.values())))))
    return total


def _jaxprs(params: Sequence[Any]) -> list[Any]:
    """Return the jaxprs among an equation's parameters, also those in tuples."""
    jaxprs = []
    for param in params:
        if isinstance(param, (tuple, list)):
            jaxprs += _jaxprs(param)
        elif isinstance(param, (ClosedJaxpr, Jaxpr)):
            jaxprs.append(param)
    return jaxprs
