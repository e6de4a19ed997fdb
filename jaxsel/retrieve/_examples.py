"""Gradients of samples that are to be chosen among, some rows at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_features, check_same_length, to_float
from jaxsel._inputs.chunk import take_rows_at
from jaxsel._inputs.parameters import check_examples
from jaxsel.gradients import Dense, Oracle, Projected, ghost, last_layer

if TYPE_CHECKING:
    from jaxsel.models import Target

Network = Any
"""A `models.Target`, a pair of loss and parameters, or a function to an oracle."""

Part = Callable[[np.ndarray], Oracle]
"""From row numbers `[b]` to an oracle of these rows' gradients."""


def open_gradients(name: str, samples: Any, network: Network) -> tuple[int, Part]:
    """Return the number of samples, and the gradients of any of them.

    Args:
        name: The argument's name in errors.
        samples: Gradients, or the examples of a network.
        network: None for gradients.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an array is empty, has a wrong shape, or is not finite.
    """
    if network is None:
        oracle: Any = samples
        if not isinstance(oracle, Oracle):
            oracle = Dense(to_float(check_features(name, samples)))
        return len(oracle), lambda rows: oracle.take(jnp.asarray(rows))
    if hasattr(network, "graphdef"):
        return _of_target(name, samples, network)
    gradients: Any = network
    if isinstance(gradients, tuple):
        gradients = functools.partial(
            ghost, *_pair("network", gradients, "(loss, params)")
        )
    elif not callable(network):
        raise TypeError(
            "network must be a models.Target, a pair (loss, params), or a function "
            f"from examples to an oracle of jaxsel.gradients, got {network!r}"
        )
    examples = check_examples(samples)

    def of_rows(rows: np.ndarray) -> Oracle:
        oracle: Any = gradients(take_rows_at(examples, rows))
        if not isinstance(oracle, Oracle) or len(oracle) != len(rows):
            raise TypeError(
                "network must return an oracle of jaxsel.gradients with one gradient "
                f"for each of {len(rows)} examples, got {oracle!r}"
            )
        return oracle

    return len(jax.tree.leaves(examples)[0]), of_rows


def check_alike(candidates: Oracle, target: Oracle) -> None:
    """Refuse oracles of different kinds, forms or projections.

    Raises:
        TypeError: If they are of different kinds.
        ValueError: If they have different forms, or different projections.
    """
    if type(candidates) is not type(target):
        raise TypeError(
            "target must be an oracle of the candidates' kind, "
            f"{type(candidates).__name__}, got {type(target).__name__}"
        )
    if isinstance(candidates, Projected) and isinstance(target, Projected):
        candidates.check_alike(target)
    forms = [_shapes(oracle) for oracle in (candidates, target)]
    if forms[0] != forms[1]:
        raise ValueError(
            "target must have gradients of the candidates' form, arrays of shape "
            f"{forms[0]}, got {forms[1]}"
        )


def _shapes(oracle: Oracle) -> list[tuple[int, ...]]:
    """Return the shapes of a gradient's arrays."""
    return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(_mean, oracle))]


def _mean(oracle: Oracle) -> Any:
    return oracle.mean()


def _pair(name: str, value: Any, parts: str) -> tuple[Any, Any]:
    """Return the two parts of a pair.

    Raises:
        TypeError: If it has another length.
    """
    if len(value) != 2:
        raise TypeError(f"{name} must be a pair {parts}, got {len(value)} parts")
    return value[0], value[1]


def _of_target(name: str, samples: Any, model: Target) -> tuple[int, Part]:
    """Return the gradients of a classifier's head, in closed form."""
    pair: Any = samples
    if not isinstance(pair, tuple):
        raise TypeError(
            f"{name} must be a pair (inputs, labels) for a models.Target, got "
            f"{type(samples).__name__}"
        )
    first, second = _pair(name, pair, "(inputs, labels)")
    inputs, labels = model.check(first), np.asarray(second)
    check_same_length(f"inputs of {name}", _rows(inputs), f"labels of {name}", labels)

    def of_rows(rows: np.ndarray) -> Oracle:
        hidden, logits = model.head_input_and_logits(take_rows_at(inputs, rows))
        return last_layer(logits, labels[rows], hidden)

    return len(labels), of_rows


def _rows(inputs: Any) -> npt.ArrayLike:
    return jax.tree.leaves(inputs)[0]
