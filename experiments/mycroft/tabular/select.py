"""How an owner of a table can choose what to send."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxsel.retrieve import retrieve_binned, retrieve_nearest

from .kinds import KindTable
from .market import TableMarket

RANKINGS = (
    "binning distance",
    "random",
    "binning by feature",
    "Euclidean distance",
    "cosine distance",
    "decision path",
    "confidence",
)
MIXTURES = {
    "binning and path": ("binning distance", "decision path"),
    "binning and random": ("binning distance", "random"),
}
SELECTORS = (*RANKINGS, *MIXTURES)
"""All of them; the first is Mycroft's, the second its baseline."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
    """What an owner knows of its own data.

    Attributes:
        x: Its candidates, `[n, d]`: those of the class that is asked for.
        numbers: The same for other distances, `[n, e]`.
        categorical: Which columns of `x` hold codes.
        tree: A decision tree trained on all of its data.
        paths: Which nodes of the tree each candidate visits, `[n, nodes]`.
        sure: The tree's probability that a candidate is positive, `[n]`.
    """

    x: np.ndarray
    numbers: np.ndarray
    categorical: tuple[int, ...]
    tree: Any
    paths: np.ndarray
    sure: np.ndarray


def prepare_offer(
    x: np.ndarray,
    numbers: np.ndarray,
    beside: np.ndarray,
    categorical: tuple[int, ...],
    *,
    seed: int,
) -> Offer:
    """Train the owner's tree, on candidates `x` and on rows of the other class.

    Its leaves hold at least 5 samples: in a tree grown to the end, every confidence
    is 1 and most candidates are alone on their path.
    """
    from sklearn.tree import DecisionTreeClassifier

    everything = np.concatenate([x, beside])
    y = np.arange(len(everything)) < len(x)
    tree: Any = DecisionTreeClassifier(min_samples_leaf=5, random_state=seed)
    tree.fit(everything, y)
    return Offer(
        x=x,
        numbers=numbers,
        categorical=categorical,
        tree=tree,
        paths=tree.decision_path(x).toarray().astype(np.float32),
        sure=tree.predict_proba(x)[:, 1],
    )


def rank(
    name: str,
    offer: Offer,
    hard: np.ndarray,
    hard_numbers: np.ndarray,
    budget: int,
    lot: np.ndarray,
) -> np.ndarray:
    """Return the candidates to send, best first, `[budget]`.

    A smaller budget is the beginning of it. The binning distances take the least, as
    Algorithm 4 of the paper does. Euclidean and cosine distance cover the hard samples,
    as Algorithm 3 does. "decision path" takes those that end in the same leaf as a hard
    sample, then those that leave its path last. "confidence" takes those whose
    probability is nearest to a hard sample's: it is what sets the length of a gradient.
    "random" takes the lowest of `lot`.

    Args:
        name: One of `RANKINGS`.
        offer: The owner's side.
        hard: The hard samples, `[m, d]`.
        hard_numbers: The same for other distances, `[m, e]`.
        budget: How many, at most n.
        lot: Numbers at random, `[n]`: the lowest come first where nothing else tells.
    """
    if name.startswith("binning"):
        mode = "per_feature" if name.endswith("feature") else "hamming"
        chosen = retrieve_binned(
            offer.x, hard, budget, mode=mode, categorical=offer.categorical
        )
        return np.asarray(chosen.indices)[: len(chosen)]
    if name in ("Euclidean distance", "cosine distance"):
        metric = "cosine" if name.startswith("cosine") else "l2"
        chosen = retrieve_nearest(offer.numbers, hard_numbers, budget, metric=metric)
        return np.asarray(chosen.indices)[: len(chosen)]
    if name == "decision path":
        path = offer.tree.decision_path(hard).toarray().astype(np.float32)
        shared = offer.paths @ path.T
        same = shared == np.maximum.outer(offer.paths.sum(1), path.sum(1))
        far = -np.where(same, np.inf, shared).max(axis=1)
    elif name == "confidence":
        sure = offer.tree.predict_proba(hard)[:, 1]
        far = np.abs(offer.sure[:, None] - sure).min(axis=1)
    else:
        far = np.zeros(len(offer.x))
    return np.lexsort((lot, far))[:budget]


def mix(first: np.ndarray, second: np.ndarray, budget: int) -> np.ndarray:
    """Take half a budget from one ranking, and the rest from another, no one twice."""
    half = first[: -(-budget // 2)]
    rest = second[~np.isin(second, half)]
    return np.concatenate([half, rest[: budget - len(half)]])


def choose_all(
    table: KindTable,
    market: TableMarket,
    lots: np.ndarray,
    budgets: np.ndarray,
    seed: int,
    *,
    full: bool,
) -> Iterator[tuple[tuple[int, int, int, int], np.ndarray]]:
    """Let every owner choose for every trainer.

    Args:
        table: Where the rows come from.
        market: Who has which.
        lots: Numbers at random, `[P, O, n_owner]`.
        budgets: Ascending.
        seed: Of the owners' trees.
        full: Whether to use every selector at every budget, or those after the first
            two at the least budget only.

    Yields:
        Indices of trainer, owner, selector and budget, and the rows that are sent.
    """
    numbers = table.numbers()
    for o, (rows, beside) in enumerate(zip(market.offered, market.beside, strict=True)):
        offer = prepare_offer(
            table.x[rows],
            numbers[rows],
            table.x[beside],
            table.categorical,
            seed=seed,
        )
        for p, hard in enumerate(market.hard):
            order = {}
            for k, name in enumerate(RANKINGS):
                most = budgets[-1] if full or k < 2 else budgets[0]
                order[name] = rank(
                    name,
                    offer,
                    table.x[hard],
                    numbers[hard],
                    int(most),
                    lots[p, o],
                )
            for k, name in enumerate(SELECTORS):
                for b, budget in enumerate(budgets):
                    if name in MIXTURES and (full or b == 0):
                        one, two = MIXTURES[name]
                        picked = mix(order[one], order[two], budget)
                    elif name in RANKINGS and len(order[name]) >= budget:
                        picked = order[name][:budget]
                    else:
                        continue
                    yield (p, o, k, b), rows[picked]
