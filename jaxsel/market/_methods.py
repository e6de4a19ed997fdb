"""Methods by which owners choose samples: one table for requests, answers and the CLI.

To add a method, write a function from a `Choice` to a `Selection`, and add an entry to
`METHODS`. Both sides of a market need that version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel._inputs.show import brief
from jaxsel._results.types import Selection
from jaxsel.gradients import Oracle
from jaxsel.match import func_feat, grad_match
from jaxsel.neighbors import Metric
from jaxsel.retrieve import retrieve_binned, retrieve_nearest

from ._schema import Schema
from ._view import OwnerModel, Side


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Input of a method; arrays that the method needs are present.

    Attributes:
        schema: The form of the request's samples.
        candidates: The owner's samples to choose from.
        hard: The hard samples.
        budget: Maximum number of samples to choose, at least 1.
        model: The owner's model.
        metric: Distance between features.
        key: Key of random choices.
    """

    schema: Schema
    candidates: Side
    hard: Side
    budget: int
    model: OwnerModel
    metric: Metric
    key: jax.Array | None

    @property
    def features(self) -> tuple[np.ndarray, np.ndarray]:
        """Features of the candidates and of the hard samples, `[n, d]` and `[m, d]`."""
        return cast(Any, (self.candidates.vectors, self.hard.vectors))

    @property
    def gradients(self) -> tuple[Oracle, Oracle]:
        """Oracles of the candidates' gradients and of the hard samples'."""
        oracle = cast(Callable[[Any, Any], Oracle], self.model.oracle)
        sides = self.candidates, self.hard
        # Of one kind on both sides: samples, or features where the request shows none.
        rows = self.features if self.hard.x is None else [side.x for side in sides]
        candidates, hard = (
            oracle(x, side.y) for x, side in zip(rows, sides, strict=True)
        )
        return candidates, hard


@brief
@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """A way to choose samples, and its needs.

    Attributes:
        choose: Chooses among an owner's samples.
        features: Whether it compares features.
        gradients: Whether it needs the owner's oracle, and labels in the request.
        table: Whether the request must show a table, which may then have gaps.
        draws: Whether it needs a key.
        keeps_classes: Whether it passes over samples of other classes by itself.
    """

    choose: Callable[[Choice], Selection]
    features: bool = False
    gradients: bool = False
    table: bool = False
    draws: bool = False
    keeps_classes: bool = False

    def check(
        self,
        name: str,
        x: np.ndarray | None,
        y: np.ndarray | None,
        model: OwnerModel,
        key: jax.Array | None,
    ) -> None:
        """Raise a ValueError unless the method's needs are met.

        Args:
            name: The method's name, for errors.
            x: Hard samples of the request, or None.
            y: Their labels, or None.
            model: The owner's model.
            key: Key of random choices.
        """
        if self.draws and key is None:
            raise ValueError(f"key must be given where method is {name!r}, got None")
        if self.table and (x is None or x.ndim != 2):
            raise ValueError(f"method must not be {name!r}: the request shows no table")
        if self.gradients and y is None:
            raise ValueError(f"method must not be {name!r}: the request has no labels")
        if self.gradients and model.oracle is None:
            raise ValueError(
                f"model must have an oracle where method is {name!r}: give one, choose "
                "another method, or refuse"
            )


def _retrieve(choice: Choice) -> Selection:
    return retrieve_nearest(
        *choice.features,
        choice.budget,
        labels=choice.candidates.codes,
        hard_labels=choice.hard.codes,
        metric=choice.metric,
    )


def _func_feat(choice: Choice) -> Selection:
    return func_feat(
        *choice.gradients,
        *choice.features,
        choice.budget,
        labels=choice.candidates.codes,
        hard_labels=choice.hard.codes,
    )


def _grad_match(choice: Choice) -> Selection:
    return grad_match(
        *choice.gradients,
        choice.budget,
        labels=choice.candidates.codes,
        hard_labels=choice.hard.codes,
    )


def _binned(choice: Choice) -> Selection:
    tables = cast(tuple[Any, Any], (choice.candidates.x, choice.hard.x))
    categories = choice.schema.categories
    return retrieve_binned(*tables, choice.budget, categorical=categories)


def _random(choice: Choice) -> Selection:
    key = cast(jax.Array, choice.key)
    return Selection(
        indices=jax.random.permutation(key, len(choice.candidates))[: choice.budget],
        weights=jnp.ones(choice.budget),
        n_valid=jnp.asarray(choice.budget),
    )


METHODS = {
    # Retrieval passes over other classes by itself: no copy, and fewer programs.
    "retrieve": Method(choose=_retrieve, features=True, keeps_classes=True),
    "func_feat": Method(choose=_func_feat, features=True, gradients=True),
    "grad_match": Method(choose=_grad_match, gradients=True),
    "binned": Method(choose=_binned, table=True),
    "random": Method(choose=_random, draws=True),
}
"""The ways to choose samples, by name in requests; `answer` explains them."""
