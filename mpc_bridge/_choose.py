"""Choosing the highest of secret scores: only outcomes of comparisons are opened."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._compat import import_crypten
from ._ledger import Ledger


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The result of `choose`, the same at both parties.

    Attributes:
        rows: `[k]` int64, ascending.
        passes: Batches of comparisons, 9 rounds each with the opening.
        comparisons: Scores compared with a pivot in all, 448 bytes each.
    """

    rows: np.ndarray
    passes: int
    comparisons: int


def choose(
    scores: Any, k: int, *, seed: int, ledger: Ledger, progress: bool = False
) -> Chosen:
    """Choose the k highest of n secret scores, by batched QuickSelect.

    A pass compares every score that is left with one of them, drawn by the public seed,
    in one batch, and opens the outcomes: both parties see the order of these scores
    with respect to that pivot, and nothing else. Of equal scores the lower index wins.
    It ends as soon as the set is known, so that the order within it stays partly
    secret. `jaxsel.proxy.choice_cost` bounds the passes and comparisons.

    Args:
        scores: Encrypted, `[n]`, below 2^46 in size: differences must fit the ring.
        k: How many to choose; all n cost nothing.
        seed: Public, zero or more, the same at both parties.
        ledger: Counts the steps and notes the openings.
        progress: Show how many scores are decided, on standard error.

    Raises:
        TypeError: If the scores are not encrypted, or k or the seed no whole number.
        ValueError: If the scores have another shape, k is not between 1 and n, or the
            seed is below zero.

    References:
        Ouyang et al., SelectFormer, section 4.1: QuickSelect on encrypted entropies.
    """
    n = check_scores(scores)
    k = check_whole("k", k, minimum=1)
    if k > n:
        raise ValueError(f"k must be at most the number of scores, {n}, got {k}")
    # Its raw words are the same in all releases of NumPy; other draws may change.
    draws = np.random.PCG64(check_whole("seed", seed, minimum=0))
    left, wanted, passes, comparisons = np.arange(n), k, 0, 0
    chosen: list[np.ndarray] = []
    with _bar(n, progress) as decide, import_crypten().no_grad():
        while 0 < wanted < len(left):
            pivot = left[int(draws.random_raw()) * len(left) >> 64]
            others = left[left != pivot]
            above = _above(scores, others, pivot, ledger)
            passes, comparisons = passes + 1, comparisons + len(others)
            higher = others[above]
            before = len(left)
            if len(higher) >= wanted:
                left = higher
            else:
                chosen += [higher, np.array([pivot])]
                wanted -= len(higher) + 1
                left = others[~above]
            decide(before - len(left))
    chosen.append(left[:wanted])  # all that are left, or none
    return Chosen(np.sort(np.concatenate(chosen)), passes, comparisons)


def _above(
    scores: Any, others: np.ndarray, pivot: np.integer, ledger: Ledger
) -> np.ndarray:
    """Return which of the others rank above the pivot: one batch, opened."""
    import torch

    # Those behind the pivot must lead by one unit in the last place. It is public.
    behind = torch.from_numpy((others > pivot) / scores.encoder.scale)
    with ledger.step("choice", "compare"):
        lead = scores[torch.from_numpy(others)] - scores[int(pivot)]
        above = (lead - behind).ge(0)
    with ledger.step("choice", "open"):
        return ledger.open("pivot", above).numpy().astype(bool)


@contextlib.contextmanager
def _bar(n: int, progress: bool) -> Iterator[Callable[[int], object]]:
    """Give a function to call with how many scores were decided."""
    if not progress:
        yield lambda decided: None
        return
    from tqdm import tqdm

    with tqdm(total=n, desc="Choosing", leave=False) as bar:
        yield bar.update


def check_scores(scores: Any) -> int:
    """Return n of encrypted scores `[n]`."""
    mpc = import_crypten().mpc
    if not isinstance(scores, mpc.MPCTensor) or scores.ptype != mpc.arithmetic:
        raise TypeError(
            f"scores must be an MPCTensor of arithmetic shares, got {type(scores)}"
        )
    shape = tuple(scores.size())
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"scores must have shape [n], n at least 1, got {shape}")
    return shape[0]


def check_whole(name: str, value: Any, *, minimum: int) -> int:
    # As in jaxsel._checks, which would import JAX into the secure phase.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)
