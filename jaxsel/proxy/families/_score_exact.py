"""The exact scores: the entropy, or the margin."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jaxsel.proxy._mlp import Params

from ._place import Place, Steps
from ._ranges import LARGEST_EXPONENT, Ranges
from ._score import SecureScore, lead


def entropy(logits: Float[jax.Array, "*n C"]) -> Float[jax.Array, "*n"]:
    """Return the entropy of the softmax of logits, in nats.

    Args:
        logits: Array of shape `[..., C]`; an entry of -inf has probability 0.

    Returns:
        Array of shape `[...]`.
    """
    log_p = jax.nn.log_softmax(logits, axis=-1)
    # -inf logits have probability 0, and add nothing.
    return -jnp.sum(jnp.where(log_p > -jnp.inf, jnp.exp(log_p) * log_p, 0), axis=-1)


def margin(logits: Float[jax.Array, "*n C"]) -> Float[jax.Array, "*n"]:
    """Return minus the lead of the largest logit over the next, `[...]`."""
    best = jax.lax.top_k(logits, 2)[0]
    return best[..., 1] - best[..., 0]


@dataclasses.dataclass(frozen=True)
class ExactEntropy(SecureScore):
    """The entropy itself; the margin where the manifest asks for that."""

    def apply(
        self, params: Params, logits: Float[jax.Array, "*n C"]
    ) -> Float[jax.Array, "*n"]:
        """Return the entropy of logits `[..., C]`, `[...]`."""
        del params
        return entropy(logits)

    def rank(
        self, params: Params, logits: Float[jax.Array, "*n C"], kind: str
    ) -> Float[jax.Array, "*n"]:
        return margin(logits) if kind == "margin" else self.apply(params, logits)

    def degree(self, kind: str) -> int:
        return int(kind == "margin")

    def entry(self) -> dict[str, Any]:
        return {"family": "exact"}

    def steps(self, at: Place, logits: Any) -> Steps:
        manifest = at.run.manifest
        if manifest.score.kind != "margin":
            log_p = yield at.call("log_probabilities", "log_softmax", logits)
            p = yield at.call("probabilities", "exp", log_p)
            return -(yield at.call("entropy", "mul", p, log_p)).sum(1)
        if manifest.head.n_classes == 2:
            return -(yield at.call("margin", "abs", lead(logits))).squeeze(1)
        first, place = yield at.call("first", "max", logits)
        # The first one is taken below all others.
        bound = manifest.fixed_point.bounds.get("head.logits", 256.0)
        others = logits - place * mask_offset(bound)
        second, _ = yield at.call("second", "max", others)
        return (second - first).squeeze(1)

    def check(self, ranges: Ranges, largest: float) -> None:
        score, n_classes = ranges.manifest.score, ranges.manifest.head.n_classes
        limit = LARGEST_EXPONENT
        if score.kind == "margin":
            if n_classes == 2:
                return
            limit = mask_offset(ranges.bound("head.logits"))
        ranges.fits("head.logits", "a difference of logits", 2 * largest, limit)


def mask_offset(bound: float) -> int:
    """Return an offset that takes the largest logit below all others, from a bound."""
    return int(4 * bound) + 1
