"""Mycroft on a table: do a few samples tell which of many owners is worth having?"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from jaxsel._inputs.checks import check_choice, check_count
from jaxsel._runs.progress import track

from .kinds import TABLES, KindTable, load_table
from .market import deal, dealt
from .select import FIRST, SELECTORS, choose_all
from .trainer import TREE, Model, Retrainer, first_models, in_words
from .tuning import STEP, held_pairs, search

USEFUL = 0.5
"""An owner is useful where the trainer's F1 reaches this, as in the paper."""

SIZES = {
    "adult": {"n_own": 400, "n_test": 250, "n_owner": 300},
    "digits": {"n_own": 200, "n_test": 80, "n_owner": 70},
}
_BY_SEED = (
    "seeds",
    "before",
    "everything",
    "f1",
    "hits",
    "by_classifier",
    "by_group",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tabular:
    """Results for S seeds, P trainers, O owners, K selectors and B budgets.

    All F1 scores are on a trainer's held-out positives and negatives.

    Attributes:
        table: Name of the table.
        seeds: `[S]`.
        kinds: The kind that each trainer lacks, P names.
        shares: Share of each kind in each owner's positives, `[O, P]`.
        n_own: Negatives that each trainer starts from.
        n_hard: Hard samples that each trainer shows, `[P]`.
        n_test: Held-out positives of each trainer; there are twice as many negatives.
        n_owner: Positives that each owner has, and as many negatives.
        selectors: K names.
        budgets: `[B]`, each twice the one before.
        before: F1 of the trainers' first models, `[S, P]`.
        everything: F1 with all of an owner's data, `[S, P, O]`.
        f1: F1 with a selector's choice, `[S, P, O, K, B]`; NaN where not run.
        hits: Share of the trainer's kind in that choice, of the same shape.
        classifiers: C names, from `classifiers_here`; the above is by `TREE`.
        settings: The settings of each, in words, C texts.
        by_classifier: F1 with everything, and with the least budget chosen by the
            first two selectors, `[S, C, P, O, 3]`; NaN where not run.
        groups: Natural groups of the table, G names, or none.
        by_group: F1 of a trainer that lacks one group's positives, with everything of
            an owner that has one group, `[S, G, G]`.
    """

    table: str
    seeds: np.ndarray
    kinds: tuple[str, ...]
    shares: np.ndarray
    n_own: int
    n_hard: np.ndarray
    n_test: int
    n_owner: int
    selectors: tuple[str, ...]
    budgets: np.ndarray
    before: np.ndarray
    everything: np.ndarray
    f1: np.ndarray
    hits: np.ndarray
    classifiers: tuple[str, ...]
    settings: tuple[str, ...]
    by_classifier: np.ndarray
    groups: tuple[str, ...]
    by_group: np.ndarray


def run_tabular(
    seeds: Sequence[int] = tuple(range(5)),
    *,
    table: str = "adult",
    full: bool = False,
    progress: bool = False,
) -> Tabular:
    """Run the tabular experiments of Mycroft on a real table, once for each seed.

    A trainer has negatives only, so that its model misses every positive. It shows a
    few hard positives of its kind (2 %) to each owner, which sends as many of its own
    positives as the budget allows; the trainer trains again, from scratch. "adult"
    cuts high incomes into six kinds, "digits" takes five digits for kinds.

    Args:
        seeds: Each deals the rows anew.
        table: "adult", which must have been prepared (`jaxsel.data`), or "digits".
        full: Whether to run every selector at every budget, and to compare
            classifiers on every owner that holds the kind; else the others than the
            first two selectors at the least budget, and classifiers on every seventh
            owner.
        progress: Whether to show a progress bar.

    Returns:
        F1 scores for every trainer, owner, selector and budget. In a single
        measurement a seed on Adult took about 20 s of processor time, a minute if
        `full`.

    Raises:
        ValueError: If there are no seeds, one is negative, or there is no such table.
        FileNotFoundError: If Adult is not prepared; names the command that does it.

    References:
        Mycroft: Towards Effective and Efficient External Data Augmentation,
        sections 4 and 5, appendices D to F.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    return join_tabular(
        [
            tabular_seed(seed, table=table, full=full)
            for seed in track(seeds, progress=progress, label="Seeds")
        ]
    )


def join_tabular(results: Sequence[Tabular]) -> Tabular:
    """Join results over different seeds into one."""
    if not results:
        raise ValueError("results must hold at least one result")
    first = results[0]
    for other in results[1:]:
        if other.classifiers != first.classifiers:
            raise ValueError(
                f"results must be of the same classifiers, got {first.classifiers} and "
                f"{other.classifiers}"
            )
        if other.table != first.table or other.f1.shape[1:] != first.f1.shape[1:]:
            raise ValueError(
                "results must be of one table and one size, got "
                f"{first.table!r} {first.f1.shape[1:]} and "
                f"{other.table!r} {other.f1.shape[1:]}"
            )
    joined = {
        name: np.concatenate([getattr(result, name) for result in results])
        for name in _BY_SEED
    }
    return dataclasses.replace(first, **joined)


def tabular_seed(seed: int, *, table: str = "adult", full: bool = False) -> Tabular:
    """Run one seed; see `run_tabular`. Results of several go into `join_tabular`."""
    check_choice("table", table, TABLES)
    seed = check_count("seed", seed, minimum=0)
    models = _searched(table)
    return run_seed(seed, table, *tables(table), SIZES[table], full=full, models=models)


@functools.cache
def _searched(table: str) -> list[Model]:
    return search(tables(table)[0], SIZES[table])


def run_seed(
    seed: int,
    name: str,
    table: KindTable,
    groups: KindTable | None,
    sizes: Mapping[str, int],
    *,
    full: bool,
    models: Sequence[Model] | None = None,
) -> Tabular:
    """Run `tabular_seed` on any table, with any sizes (those that `deal` takes).

    Classifiers are compared by `models`, the first settings of each if None.
    """
    market, shares, lot = dealt(seed, table, sizes)
    n_owner = market.offered.shape[1]
    # Never all that an owner has: constraint C.2 of the paper.
    budgets = FIRST * 2 ** np.arange(12)
    budgets = budgets[budgets < n_owner]
    chosen = {}

    def jobs():
        for index, rows in choose_all(table, market, lot, budgets, seed, full=full):
            chosen[index] = rows
            yield index[0], rows, TREE

    retrain = Retrainer(table, market, seed)
    everything = retrain.with_all_pairs()
    f1 = np.full((*everything.shape, len(SELECTORS), len(budgets)), np.nan)
    hits = np.full_like(f1, np.nan)
    scores = retrain(jobs())
    for (index, rows), score in zip(chosen.items(), scores, strict=True):
        f1[index] = score
        hits[index] = np.mean(table.kind[rows] == index[0])

    models = first_models() if models is None else models
    by_classifier = np.full((len(models), *everything.shape, 3), np.nan)
    pairs = held_pairs(shares, 1 if full else STEP)
    for c, model in enumerate(models):
        scores = retrain(
            (p, rows, model)
            for p, o in pairs
            for rows in (market.everything(o), *(chosen[p, o, k, 0] for k in range(2)))
        )
        by_classifier[c, *np.transpose(pairs)] = np.reshape(scores, (len(pairs), 3))

    by_group = np.empty((0, 0))
    if groups is not None:
        alone = np.eye(len(groups.kinds))
        key = jax.random.fold_in(jax.random.key(seed), 2)
        by_group = Retrainer(
            groups, deal(groups, alone, key=key, **sizes), seed
        ).with_all_pairs()
    nothing = np.empty(0, int)
    before = retrain([(p, nothing, TREE) for p in range(len(market.hard))])
    return Tabular(
        table=name,
        seeds=np.array([seed]),
        kinds=table.kinds,
        shares=shares,
        n_own=market.own.shape[1],
        n_hard=np.array([len(hard) for hard in market.hard]),
        n_test=market.test.shape[1] // 3,
        n_owner=n_owner,
        selectors=SELECTORS,
        budgets=budgets,
        before=np.array(before)[None],
        everything=everything[None],
        f1=f1[None],
        hits=hits[None],
        classifiers=tuple(name for name, _ in models),
        settings=tuple(map(in_words, models)),
        by_classifier=by_classifier[None],
        groups=() if groups is None else groups.kinds,
        by_group=by_group[None],
    )


tables = functools.cache(load_table)
