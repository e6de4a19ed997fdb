"""Ways to choose a purchase: scores of a target, balance, and features alone."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.neighbors import normalise
from jaxsel.proxy import choose, diverse, score

_diverse = jax.jit(diverse, static_argnames="budget")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A selector.

    Attributes:
        says: Description, for a reader.
        kind: The score of the target, fine-tuned on the bootstrap set; None for none.
        balanced: Whether predicted classes share the budget.
        diverse: Whether samples similar to a chosen one count less.
        secret: Whether a manifest and a choice of `jaxsel.proxy` can express it, so
            that it runs in secret as it is.
    """

    says: str
    kind: Literal["entropy", "prior_entropy", "margin"] | None = None
    balanced: bool = False
    diverse: bool = False
    secret: bool = True


WAYS: dict[str, Way] = {
    "entropy": Way(says="Entropy of the target: the paper's Oracle", kind="entropy"),
    "margin": Way(says="Margin of the target", kind="margin"),
    "prior entropy": Way(
        says="Entropy, the bootstrap set's class shares divided out",
        kind="prior_entropy",
    ),
    "balanced": Way(
        says="Prior entropy, predicted classes sharing the budget",
        kind="prior_entropy",
        balanced=True,
        secret=False,
    ),
    "diverse entropy": Way(
        says="Entropy times distance from what is chosen",
        kind="entropy",
        diverse=True,
        secret=False,
    ),
    "diverse prior": Way(
        says="Prior entropy times distance from what is chosen",
        kind="prior_entropy",
        diverse=True,
        secret=False,
    ),
    "coreset": Way(
        says="Far from what is chosen, by public features alone: k-centre greedy",
        diverse=True,
        secret=False,
    ),
}


def chosen(
    way: Way,
    logits: np.ndarray,
    features: np.ndarray,
    prior: np.ndarray,
    budget: int,
) -> np.ndarray:
    """Return the places of the samples that a way chooses, `[budget]`.

    Args:
        way: The selector.
        logits: The target's, `[n, C]`.
        features: Public ones, `[n, d]`.
        prior: Class shares of the bootstrap set, `[C]`.
        budget: How many to choose.
    """
    if way.kind is None:
        # With equal scores the distance alone decides: k-centre greedy.
        alike = jnp.ones(len(features))
        return np.asarray(
            _diverse(alike, normalise(jnp.asarray(features)), 1.0, budget=budget)
        )
    used_prior = prior if way.kind == "prior_entropy" else None
    ranks = np.asarray(score(jnp.asarray(logits), way.kind, prior=used_prior))
    predicted = None
    if way.balanced:
        # The bootstrap set is skewed: without its prior, rare classes are predicted.
        predicted = np.argmax(logits - np.log(prior), axis=1)
    choice = choose(
        ranks,
        budget,
        features=features if way.diverse else None,
        predicted=predicted,
    )
    return np.asarray(choice.indices)
