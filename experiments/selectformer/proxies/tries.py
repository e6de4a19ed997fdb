"""The search for settings: as many tries for every method, on one held-out deal.

A learning rate or a penalty is chosen by how well a candidate then ranks as the target
does, on a deal that no result is from. The library's guard decides what counts: a proxy
counts only if its training did not diverge, and if its emulated entropies rank as exact
ones of the same logits do on the bootstrap set, .9 at least. In a seed in which the
guard refuses the setting, more cautious ones are tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxsel.proxy import entropy, monotonicity

from .maker import Made, Maker
from .points import ATTACKED, Candidate

HELD_OUT = 1_000_003
"""The seed of the deal on which settings are chosen. No result is from it."""

JUDGED = 400
"""Samples at most by which a try is judged."""


class Accepted(NamedTuple):
    """A candidate, with the setting that it was made with in a seed.

    Attributes:
        made: The result; of the most cautious setting if all were refused.
        place: Of the setting among its tries.
    """

    made: Made
    place: int


def judge_tries(maker: Maker, candidates: Mapping[str, Candidate]) -> np.ndarray:
    """Rank correlation with the target after each try, `[K, tries]`.

    NaN where the guard refuses the proxy.

    Args:
        maker: Of the held-out deal.
        candidates: K of them, by name.
    """
    rows = maker.left[:JUDGED]
    logits = maker.target.logits(maker.source.take(rows))
    oracle = np.asarray(entropy(jnp.asarray(logits)))
    ready, judged = maker.untrained(candidates), list[list[float]]()
    for i, (name, candidate) in enumerate(candidates.items()):
        line = list[float]()
        for setting in candidate.tries():
            trained = maker.train(setting, ready.get(name), i)
            accepted = not trained.refused
            ranks = maker.rank(trained, rows) if accepted else oracle
            line.append(monotonicity(ranks, oracle) if accepted else np.nan)
        judged.append(line)
    return np.array(judged)


def best_tries(judged: np.ndarray) -> np.ndarray:
    """Return the place of each candidate's best try, the first if all were refused.

    Args:
        judged: From `judge_tries`.
    """
    known = np.where(np.isnan(judged), -np.inf, judged)
    return known.argmax(axis=1)


def make_accepted(
    maker: Maker, candidates: Mapping[str, Candidate], first: np.ndarray
) -> dict[str, Accepted]:
    """Make each candidate with the first setting that the guard accepts.

    Args:
        maker: Of the seed.
        candidates: K of them, by name.
        first: Place of each one's setting to begin with, `[K]`.
    """
    ready, accepted = maker.untrained(candidates), dict[str, Accepted]()
    for i, (name, candidate) in enumerate(candidates.items()):
        tries = candidate.tries()
        for place in range(int(first[i]), len(tries)):
            trained = maker.train(tries[place], ready.get(name), i)
            if not trained.refused or place == len(tries) - 1:
                judged = maker.made(trained, attack=name in ATTACKED)
                accepted[name] = Accepted(judged, place)
                break
    return accepted
