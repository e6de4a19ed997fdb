"""Ways for the owner of a table to choose rows to send."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from jaxsel.retrieve import coverage, retrieve_binned

from .kinds import KindTable, Known
from .market import TableMarket

FIRST = 5
"""The least budget."""

COVERING = ", covering"
"""Ends the names of rankings that cover the hard samples (Algorithm 3 of the paper)."""

TREES: dict[str, dict[str, Any]] = {
    "depth 4": {"max_depth": 4},
    "leaves of 5": {"min_samples_leaf": 5},
}
"""Owners' trees: the one of the authors' code, and ours, which is grown further."""

AUTHORS, OURS = TREES

DISTANCES = ("Euclidean distance", "cosine distance", "total variation")
"""Distances beside the binning distance."""

RANKINGS = (
    "binning distance",
    "random",
    "binning by feature",
    *DISTANCES,
    *(f"{name}{COVERING}" for name in ("binning distance", *DISTANCES)),
    f"decision path, {OURS}",
    f"confidence, {OURS}",
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
    """An owner's candidates, and its decision tree's view of them.

    Attributes:
        known: Its n candidates: its rows of the class that is asked for.
        categorical: Which columns hold codes.
        tree: A decision tree trained on all of its data.
        paths: Which nodes of the tree each candidate visits, `[n, nodes]`.
        sure: The tree's probability that a candidate is positive, `[n]`.
    """

    known: Known
    categorical: tuple[int, ...]
    tree: Any
    paths: np.ndarray
    sure: np.ndarray


def prepare_offer(
    known: Known,
    beside: np.ndarray,
    categorical: tuple[int, ...],
    *,
    seed: int,
    tree: str = AUTHORS,
) -> Offer:
    """Train the owner's tree, on its candidates and on rows of the other class.

    Trees are not grown to the end: every confidence would be 1, and most candidates
    alone on their path.

    Args:
        known: The candidates.
        beside: Rows of the other class, `[k, d]`.
        categorical: Which columns hold codes.
        seed: Of the tree.
        tree: One of `TREES`.
    """
    from sklearn.tree import DecisionTreeClassifier

    everything = np.concatenate([known.x, beside])
    y = np.arange(len(everything)) < len(known.x)
    fitted: Any = DecisionTreeClassifier(**TREES[tree], random_state=seed)
    fitted.fit(everything, y)
    return Offer(
        known=known,
        categorical=categorical,
        tree=fitted,
        paths=fitted.decision_path(known.x).toarray().astype(np.float32),
        sure=fitted.predict_proba(known.x)[:, 1],
    )


def distances(name: str, known: Known, hard: Known) -> np.ndarray:
    """Compute the distances of hard samples from candidates, `[m, n]`.

    Args:
        name: One of `DISTANCES`. For total variation a row is a distribution over
            columns, see `Known`: the paper does not say how it takes it.
        known: The candidates.
        hard: The hard samples.
    """
    from scipy.spatial.distance import cdist

    if name == "total variation":
        return cdist(hard.shares, known.shares, "cityblock") / 2
    metric = "cosine" if name.startswith("cosine") else "euclidean"
    return cdist(hard.numbers, known.numbers, metric)


def rank(
    name: str, offer: Offer, hard: Known, budget: int, lot: np.ndarray
) -> np.ndarray:
    """Order the candidates to send, best first, `[budget]`.

    A smaller budget is the beginning of it. Distances take the least, as Algorithm 4 of
    the paper and its public code do with the binning distance, unless their name ends
    in `COVERING`: these cover the hard samples, as Algorithm 3 does. "decision path"
    takes those that end in the same leaf as a hard sample, then those that leave its
    path last. "confidence" takes the candidates with the probability nearest to a hard
    sample's: it sets the length of a gradient. "random" takes the lowest of
    `lot`.

    Args:
        name: One of `RANKINGS`, without the name of a tree.
        offer: The owner's side.
        hard: The hard samples.
        budget: How many, at most n.
        lot: Numbers at random, `[n]`: the lowest come first where nothing else tells.
    """
    metric, covers = name.removesuffix(COVERING), name.endswith(COVERING)
    if metric.startswith("binning"):
        mode = "per_feature" if metric.endswith("feature") else "hamming"
        chosen = retrieve_binned(
            offer.known.x,
            hard.x,
            budget,
            coverage=covers,
            mode=mode,
            categorical=offer.categorical,
        )
        return np.asarray(chosen.indices)[: len(chosen)]
    if metric in DISTANCES:
        near = distances(metric, offer.known, hard)
        if not covers:
            return np.argsort(near.min(axis=0), kind="stable")[:budget]
        # The `budget` nearest of one hard sample alone fill the choice: lists of that
        # length settle it.
        order = np.argsort(near, axis=1, kind="stable")[:, :budget].astype(np.int32)
        sorted_ = np.take_along_axis(near, order, axis=1).astype(np.float32)
        picked, _ = _covered(sorted_, order, budget=budget)
        return np.asarray(picked)
    if metric == "decision path":
        path = offer.tree.decision_path(hard.x).toarray().astype(np.float32)
        shared = offer.paths @ path.T
        # Paths are equal if the shared nodes are as many as the longer path has.
        same = shared == np.maximum.outer(offer.paths.sum(1), path.sum(1))
        far = -np.where(same, np.inf, shared).max(axis=1)
    elif metric == "confidence":
        sure = offer.tree.predict_proba(hard.x)[:, 1]
        far = np.abs(offer.sure[:, None] - sure).min(axis=1)
    else:
        far = np.zeros(len(offer.known.x))
    # The last key is the primary one: `lot` breaks ties of `far`.
    return np.lexsort((lot, far))[:budget]


_covered: Callable[..., Any] = jax.jit(coverage, static_argnames=("budget",))


def mix(first: np.ndarray, second: np.ndarray, budget: int) -> np.ndarray:
    """Take half a budget from one ranking, and the rest from another, no one twice."""
    half = first[: -(-budget // 2)]
    others = second[~np.isin(second, half)]
    return np.concatenate([half, others[: budget - len(half)]])


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
    for o, (rows, beside) in enumerate(zip(market.offered, market.beside, strict=True)):
        known = table.known(rows)
        offers = {
            tree: prepare_offer(
                known, table.x[beside], table.categorical, seed=seed, tree=tree
            )
            for tree in TREES
        }
        for p, hard in enumerate(market.hard):
            order = {}
            for k, name in enumerate(RANKINGS):
                most = budgets[-1] if full or k < 2 else budgets[0]
                order[name] = rank(
                    name.removesuffix(f", {OURS}"),
                    offers[OURS if name.endswith(OURS) else AUTHORS],
                    table.known(hard),
                    int(most),
                    lots[p, o],
                )
            for k, name in enumerate(SELECTORS):
                for b, budget in enumerate(budgets):
                    if name in MIXTURES and (full or b == 0):
                        first, second = MIXTURES[name]
                        picked = mix(order[first], order[second], budget)
                    elif name in RANKINGS and len(order[name]) >= budget:
                        picked = order[name][:budget]
                    else:
                        continue
                    yield (p, o, k, b), rows[picked]
