"""Choosing the highest of secret scores: outcomes of comparisons open, or rows."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxsel.proxy import places, quickselect

from ._config import LEAKS, Leak
from ._ledger import Ledger
from ._network import draw, network, route
from ._programs import Above, Highest, Keys, Rows, Switched, behind
from .engines import Unseen


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The result of `choose`, the same at all parties.

    Attributes:
        rows: `[k]` int64, ascending.
        passes: Batches of comparisons whose outcomes were opened.
        comparisons: Scores compared with a pivot in all, 448 bytes each on CrypTen.
        levels: How many pivots each score lies above, `[n]`, which follows from what
            was opened; None by "set".
    """

    rows: np.ndarray
    passes: int
    comparisons: int
    levels: np.ndarray | None = None


def choose(
    scores: Any,
    k: int,
    *,
    seed: int,
    ledger: Ledger,
    leak: Leak = "rank",
    progress: bool = False,
) -> Chosen:
    """Choose the k highest of n secret scores; of equal ones the lower index wins.

    By "rank", batched QuickSelect: a pass compares every score that is left with one of
    them, drawn by the public seed, in one batch, and opens the outcomes: all parties
    see the order of these scores with respect to that pivot, and nothing else. It ends
    as soon as the set is known, so that the order within it stays partly secret.
    `jaxsel.proxy.choice_cost` bounds the passes and comparisons.

    By "set", the engine shuffles the scores in secret, so that what it compares says
    nothing about rows. The chosen rows are shuffled again before they are opened, so
    that their order says nothing about scores.

    Args:
        scores: Secret, `[n]`, below 2^62 / 2^f in size, f fraction bits, in a ring of
            64: differences must fit it. By "set" below 2^62 / (n 2^f).
        k: How many to choose; all n cost nothing.
        seed: Public, zero or more, the same at all parties.
        ledger: Counts the steps and notes the openings.
        leak: What is opened.
        progress: Show how many scores are decided, on standard error.

    Raises:
        TypeError: If the scores are not secret, or k or the seed no whole number.
        ValueError: If the scores have another shape, k is not between 1 and n, the seed
            is below zero, or there is no such leak.

    References:
        Ouyang et al., SelectFormer, section 4.1: QuickSelect on encrypted entropies.
    """
    n = check_scores(scores, ledger)
    k = check_whole("k", k, minimum=1)
    if k > n:
        raise ValueError(f"k must be at most the number of scores, {n}, got {k}")
    if leak not in LEAKS:
        raise ValueError(f"leak must be one of {', '.join(LEAKS)}, got {leak!r}")
    seed = check_whole("seed", seed, minimum=0)
    if k == n:
        return Chosen(np.arange(n), 0, 0)
    if leak == "set":
        return _by_set(scores, n, k, ledger)
    return _by_rank(scores, n, k, seed, ledger, progress)


def _by_rank(
    scores: Any, n: int, k: int, seed: int, ledger: Ledger, progress: bool
) -> Chosen:
    asking = quickselect(n, k, seed=seed)
    passes = comparisons = 0
    outcomes: list[tuple[int, np.ndarray, np.ndarray]] = []
    with _bar(n, progress) as show, ledger.engine.running():
        try:
            pivot, others = next(asking)
            while True:
                show(len(others) + 1)
                above = _above(scores, others, pivot, ledger)
                passes, comparisons = passes + 1, comparisons + len(others)
                outcomes.append((pivot, others, above))
                pivot, others = asking.send(above)
        except StopIteration as end:
            return Chosen(end.value, passes, comparisons, places(n, outcomes))


def _above(scores: Any, others: np.ndarray, pivot: int, ledger: Ledger) -> np.ndarray:
    """Return which of the others rank above the pivot: one batch, opened."""
    lead = behind(others, pivot, ledger.engine.fraction_bits)

    def compare() -> np.ndarray:
        above = ledger.run(Above(), scores, others, np.array([pivot]), lead)
        with ledger.step("choice", "open"):
            return ledger.open("pivot", above, first=len(others)).astype(bool)

    return ledger.journal.opened(compare)


def _by_set(scores: Any, n: int, k: int, ledger: Ledger) -> Chosen:
    engine = ledger.engine
    bits = (n - 1).bit_length()
    row = np.arange(n) / 2.0**engine.fraction_bits

    def select() -> np.ndarray:
        keys = ledger.run(Keys(bits), scores, row)
        if engine.switches:
            for party in range(engine.parties):
                keys = _switched(keys, n, party, ledger)
            highest = _highest(keys, n, k, ledger)
            program = Rows(bits, engine.ring)
            rows = ledger.run(program, keys, highest)
            # The outcomes tell how places rank: other places are opened.
            for party in range(engine.parties):
                rows = _switched(rows, k, party, ledger)
        else:
            program = Highest(bits, engine.ring, k)
            rows = ledger.run(program, keys)
        with ledger.step("choice", "open"):
            opened = ledger.open("rows", rows)
        return program.rows_of(opened, engine.fraction_bits)

    # As one: after a kill the scores are shuffled anew.
    with engine.running():
        chosen = ledger.journal.opened(select)
    if len(np.unique(chosen)) != k or chosen[0] < 0 or chosen[-1] >= n:
        raise RuntimeError("the engine chose rows that are none: shares do not fit")
    return Chosen(chosen, 0, 0)


def _switched(keys: Any, n: int, party: int, ledger: Ledger) -> Any:
    """Return keys, or rows, in an order that this party alone knows."""
    engine, net = ledger.engine, network(n)
    if not net.switches:
        return keys
    sets = engine.rank == party
    switches = route(draw(n)) if sets else Unseen((net.switches,), bits=True)
    with ledger.step("choice", "switch"):
        (stand,) = engine.share(party, switches)
    return ledger.run(Switched(net), keys, stand)


def _highest(keys: Any, n: int, k: int, ledger: Ledger) -> np.ndarray:
    """Return where the k highest of shuffled keys stand: no two are equal."""
    asking = quickselect(n, k, seed=0)
    try:
        pivot, others = next(asking)
        while True:
            level = np.zeros(len(others))
            above = ledger.run(Above(), keys, others, np.array([pivot]), level)
            with ledger.step("choice", "open"):
                outcomes = ledger.open("shuffled", above, first=len(others))
            pivot, others = asking.send(outcomes.astype(bool))
    except StopIteration as end:
        return end.value


@contextlib.contextmanager
def _bar(n: int, progress: bool) -> Iterator[Callable[[int], object]]:
    """Give a function to call with how many scores are still undecided."""
    if not progress:
        yield lambda left: None
        return
    from tqdm import tqdm

    with tqdm(total=n, desc="Choosing", leave=False) as bar:
        yield lambda left: bar.update(n - left - bar.n)


def check_scores(scores: Any, ledger: Ledger) -> int:
    """Return n of secret scores `[n]`."""
    shape = ledger.engine.shape(scores)
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"scores must have shape [n], n at least 1, got {shape}")
    return shape[0]


def check_whole(name: str, value: Any, *, minimum: int) -> int:
    # As in jaxsel._inputs.checks, which would import JAX into the secure phase.
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)
