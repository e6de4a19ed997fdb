"""A market in tables: each trainer lacks one kind of positives, owners mix them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from .kinds import KindTable

_FEWEST_HARD = 5
_HARD_SHARE = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableMarket:
    """Rows of a table, dealt to P trainers and O owners.

    No row is with a trainer and with an owner, nor in two parts of a trainer's data.
    Owners may have rows in common.

    Attributes:
        own: Each trainer's negatives, all that its first model knows, `[P, n_own]`.
        hard: The positives of its kind that it shows to the owners, P arrays.
        test: Its held-out positives, then twice as many negatives, `[P, 3 n_test]`.
        offered: Each owner's positives, `[O, n_owner]`.
        beside: Each owner's negatives, `[O, n_owner]`.
    """

    own: np.ndarray
    hard: tuple[np.ndarray, ...]
    test: np.ndarray
    offered: np.ndarray
    beside: np.ndarray

    def everything(self, owner: int) -> np.ndarray:
        """Return all rows of an owner."""
        return np.concatenate([self.offered[owner], self.beside[owner]])


def mixtures(n_kinds: int) -> np.ndarray:
    """Return the share of each kind in each owner's positives, `[O, P]`.

    First owners of one kind, then of two in halves, then of two as 19 to 1.
    """
    pure = np.eye(n_kinds)
    pairs = list(itertools.combinations(range(n_kinds), 2))
    ordered = list(itertools.permutations(range(n_kinds), 2))
    return np.stack(
        [
            *pure,
            *(0.5 * pure[a] + 0.5 * pure[b] for a, b in pairs),
            *(0.95 * pure[a] + 0.05 * pure[b] for a, b in ordered),
        ]
    )


def deal(
    table: KindTable,
    shares: np.ndarray,
    *,
    key: jax.Array,
    n_own: int,
    n_test: int,
    n_owner: int,
) -> TableMarket:
    """Deal rows out to one trainer for each kind, and to one owner for each mixture.

    Args:
        table: Where the rows come from.
        shares: Share of each kind in each owner's positives, `[O, P]`.
        key: Key of every draw.
        n_own: Negatives that a trainer has.
        n_test: Held-out positives of each kind.
        n_owner: Positives that an owner has, and as many negatives.

    Raises:
        ValueError: If a kind has too few rows.
    """
    order = np.asarray(
        jax.random.permutation(jax.random.fold_in(key, 0), len(table.kind))
    )
    tests, hards, owns, positives, negatives = [], [], [], [], []
    for i, kind in enumerate(table.kinds):
        rows = order[(table.positive & (table.kind == i))[order]]
        n_hard = max(_FEWEST_HARD, round(_HARD_SHARE * len(rows)))
        test, hard, pool = np.split(rows, [n_test, n_test + n_hard])
        # Negatives of the same kind where negatives have kinds, else any of no kind.
        same = ~table.positive & (table.kind == i)
        rows = order[
            (same if same.any() else ~table.positive & (table.kind < 0))[order]
        ]
        test_negatives, own_rows, remaining = np.split(
            rows, [2 * n_test, 2 * n_test + n_own]
        )
        if min(len(pool), len(remaining)) < n_owner:
            raise ValueError(
                f"table must hold {n_owner} more positives and negatives of kind "
                f"{kind!r} than trainers keep, got {len(pool)} and {len(remaining)}"
            )
        tests.append(np.concatenate([test, test_negatives]))
        hards.append(hard)
        owns.append(own_rows)
        positives.append(pool)
        negatives.append(remaining)

    def draw(owner: int, pools: Sequence[np.ndarray], counts: Sequence[int]):
        owner_key = jax.random.fold_in(jax.random.fold_in(key, 1), owner)
        lot = np.asarray(jax.random.uniform(owner_key, (len(table.kind),)))
        rows = np.concatenate(
            [
                pool[np.argsort(lot[pool])[:count]]
                for pool, count in zip(pools, counts, strict=True)
            ]
        )
        # In no order: where distances tie, the lower index is taken.
        return rows[np.argsort(lot[rows])]

    offered, beside = [], []
    for o, share in enumerate(shares):
        counts = np.rint(share * n_owner).astype(int)
        # The rounding error goes to the largest count, so that the sum is exact.
        counts[np.argmax(counts)] += n_owner - counts.sum()
        offered.append(draw(o, positives, list(counts)))
        held = [negatives[i] for i in np.flatnonzero(counts)]
        beside.append(draw(o, [np.unique(np.concatenate(held))], [n_owner]))
    return TableMarket(
        own=np.stack(owns),
        hard=tuple(hards),
        test=np.stack(tests),
        offered=np.stack(offered),
        beside=np.stack(beside),
    )


def dealt(
    seed: int, table: KindTable, sizes: Mapping[str, int]
) -> tuple[TableMarket, np.ndarray, np.ndarray]:
    """Deal a seed's rows out.

    Returns:
        The market; the share of each kind in each owner's positives, `[O, P]`; and
        numbers at random, `[P, O, n_owner]`, of each trainer and owner's candidate.
    """
    key, shares = jax.random.key(seed), mixtures(len(table.kinds))
    market = deal(table, shares, key=jax.random.fold_in(key, 0), **sizes)
    shape = len(market.hard), len(shares), market.offered.shape[1]
    lot = jax.random.uniform(jax.random.fold_in(key, 1), shape)
    return market, shares, np.asarray(lot)
