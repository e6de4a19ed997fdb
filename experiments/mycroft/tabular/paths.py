"""Decision paths in place of gradients, and choices combined (Figures 10 and 11)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments._kit.seeds import stacked
from jaxsel._inputs.checks import check_choice, check_count

from .kinds import TABLES, KindTable
from .market import dealt
from .run import SIZES, tables
from .select import AUTHORS, TREES, Offer, prepare_offer, rank
from .trainer import TREE, Retrainer

WAYS = ("Mycroft", "same path", "other paths", "random")
"""Who is sent: by binning distance, those of the decision path of a hard sample, those
of no such path, or any."""

OTHERS = ("same path", "random")
"""Rankings combined with Mycroft's."""

BUDGET = 5
SPLITS = (0, 3, 5, 7, 10)
"""How many of ten samples Mycroft chooses where choices are combined."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths:
    """F1 with the choices by decision paths, for S seeds, P trainers and O owners.

    A pair of trainer and owner is a case if the owner holds the trainer's kind at all,
    and has five candidates on the path of a hard sample and five on others. Elsewhere
    all is NaN.

    Attributes:
        shares: Share of each kind in each owner's positives, `[S, O, P]`.
        alone: F1 with five samples by each of `WAYS`, `[S, P, O, 4]`.
        hits: Share of the trainer's kind in them, of the same shape.
        combined: F1 with ten samples, of which Mycroft chose as many as `SPLITS` says
            and one of `OTHERS` the rest, `[S, P, O, 2, 5]`. A path with too few is
            filled up at random.
        on_path: Share of the candidates on the path of a hard sample, `[S, P, O]`.
        features: Columns that the path of a hard sample asks for, on average,
            `[S, P, O]`.
    """

    shares: np.ndarray
    alone: np.ndarray
    hits: np.ndarray
    combined: np.ndarray
    on_path: np.ndarray
    features: np.ndarray

    def cases(self) -> np.ndarray:
        """Return which pairs are cases, `[S, P, O]` of bool."""
        return np.isfinite(self.on_path)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Average over the cases of each seed: `[S, P, O, ...]` to `[S, ...]`."""
        return np.stack(
            [
                seed_values[is_case].mean(axis=0)
                for seed_values, is_case in zip(values, self.cases(), strict=True)
            ]
        )


def join_paths(runs: Sequence[Mapping[str, Any]]) -> Paths:
    """Join the results of `paths_seed` for several seeds."""
    return Paths(**stacked(runs))


def paths_seed(
    seed: int, *, table: str = "adult", tree: str = AUTHORS
) -> dict[str, np.ndarray]:
    """Run the experiment once; the fields of `Paths` without their first axis.

    Trainers, owners and random draws are the same as in `tabular_seed`.

    Args:
        seed: Of all draws.
        table: One of `TABLES`.
        tree: One of `TREES`: how far the owners' trees are grown.
    """
    check_choice("table", table, TABLES)
    check_choice("tree", tree, [*TREES])
    seed = check_count("seed", seed, minimum=0)
    return paths_of(seed, tables(table)[0], SIZES[table], tree=tree)


def paths_of(
    seed: int, table: KindTable, sizes: Mapping[str, int], *, tree: str = AUTHORS
) -> dict[str, np.ndarray]:
    """Run `paths_seed` on any table, with any sizes (those that `deal` takes)."""
    market, shares, lots = dealt(seed, table, sizes)
    shape = len(market.hard), len(market.offered)
    fields = {
        "alone": np.full((*shape, len(WAYS)), np.nan),
        "hits": np.full((*shape, len(WAYS)), np.nan),
        "combined": np.full((*shape, len(OTHERS), len(SPLITS)), np.nan),
        "on_path": np.full(shape, np.nan),
        "features": np.full(shape, np.nan),
    }
    sent: list[tuple[str, tuple[int, ...], np.ndarray]] = []
    for o, (rows, beside) in enumerate(zip(market.offered, market.beside, strict=True)):
        offer = prepare_offer(
            table.known(rows), table.x[beside], table.categorical, seed=seed, tree=tree
        )
        for p in map(int, np.flatnonzero(shares[o])):
            hard = table.known(market.hard[p])
            same = on_path(offer, hard.x)
            # Ways that choose on or off the path need a full budget on both sides.
            if min(same.sum(), (~same).sum()) < BUDGET:
                continue
            fields["on_path"][p, o] = same.mean()
            fields["features"][p, o] = features_asked(offer, hard.x)
            nearest = rank("binning distance", offer, hard, max(SPLITS), lots[p, o])
            for name, index, chosen in _choices(nearest, same, lots[p, o]):
                sent.append((name, (p, o, *index), rows[chosen]))
    scores = Retrainer(table, market, seed)(
        (index[0], rows, TREE) for _, index, rows in sent
    )
    for (name, index, rows), score in zip(sent, scores, strict=True):
        fields[name][index] = score
        if name == "alone":
            fields["hits"][index] = np.mean(table.kind[rows] == index[0])
    return {"shares": shares, **fields}


def on_path(offer: Offer, hard: np.ndarray) -> np.ndarray:
    """Return which candidates take the path of a hard sample in the owner's tree.

    Two paths are the same if they end in the same leaf.
    """
    return np.isin(offer.tree.apply(offer.known.x), offer.tree.apply(hard))


def features_asked(offer: Offer, hard: np.ndarray) -> float:
    """Return how many columns the path of a hard sample asks for, on average."""
    column = offer.tree.tree_.feature  # below 0 at a leaf
    visited = offer.tree.decision_path(hard).toarray() > 0
    asked = [np.unique(column[nodes & (column >= 0)]).size for nodes in visited]
    return float(np.mean(asked))


def combine(first: np.ndarray, second: np.ndarray, n: int, total: int) -> np.ndarray:
    """Take n of one ranking, and fill up to `total` from another without repeats."""
    head = first[:n]
    return np.concatenate([head, second[~np.isin(second, head)][: total - n]])


def _choices(
    nearest: np.ndarray, same: np.ndarray, lot: np.ndarray
) -> Iterator[tuple[str, tuple[int, ...], np.ndarray]]:
    """Yield a field of `Paths`, where in it, and which candidates to send."""
    order = np.argsort(lot)
    ranked = {
        "Mycroft": nearest,
        # A stable sort keeps each group in the order of the lot.
        "same path": order[np.argsort(~same[order], kind="stable")],
        "other paths": order[~same[order]],
        "random": order,
    }
    for i, way in enumerate(WAYS):
        yield "alone", (i,), ranked[way][:BUDGET]
    for i, way in enumerate(OTHERS):
        for j, n in enumerate(SPLITS):
            yield (
                "combined",
                (i, j),
                combine(nearest, ranked[way], n, max(SPLITS)),
            )
