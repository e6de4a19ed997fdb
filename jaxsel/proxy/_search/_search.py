"""Search for schedules of phases that rank well at a low cost."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from jaxsel._inputs.checks import check_choice, check_count, check_positive
from jaxsel._runs.progress import track
from jaxsel.proxy._cost._choice import LEAKS, Leak, choice_cost
from jaxsel.proxy._cost._cost import Network, cost
from jaxsel.proxy._cost._models import MODELS
from jaxsel.proxy._cost._traffic import EngineName, check_engine
from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._parties._bootstrap import bootstrap_size

from ._front import Front, Judged, Schedule
from ._rehearsal import Rehearsal

_PROBE_BATCH, _LAYER_BATCH = 4096, 64
_SHARES = 12  # that phases may leave, between the budget and the pool

Named = Sequence[tuple[str, float | None]]
"""Phases by name, each with the share of the pool that it leaves; None: the budget."""


def search_schedule(
    rehearsal: Rehearsal,
    n: int,
    budget: int,
    *,
    network: Network,
    engine: EngineName = "spu-cheetah",
    bootstrap: float = 0.05,
    max_phases: int = 3,
    shares: Sequence[float] | None = None,
    leak: Leak = "rank",
    batch_sizes: Mapping[str, int] | None = None,
    computing: Mapping[str, float] | None = None,
    compare: Mapping[str, Named] | None = None,
    progress: bool = False,
) -> Front:
    """Find the schedules that no other one beats in hours and in fidelity.

    All sequences of up to `max_phases` candidates are tried, each dearer than the one
    before, leaving any of `shares` of the pool. Fidelity is the overlap: the share of
    a schedule's choice from the rehearsal's samples that the target itself would
    choose, each phase leaving the same shares of them. Hours are those of the engine's
    messages on the network for the pool of n, choices included, plus `computing`.

    Nothing is trained here. Trying S shares of K candidates in three phases takes about
    K^3 S^2 / 12 counts over the samples of each run.

    Args:
        rehearsal: Scores of the candidates, of `rehearse`.
        n: Samples in the pool.
        budget: Samples to buy, the bootstrap set counted.
        network: The link between the parties.
        engine: As in `cost`.
        bootstrap: Share of the pool that is bought first, at random.
        max_phases: Phases at most, up to three.
        shares: Shares of the pool that a phase may leave, the bootstrap set counted;
            None takes 12 between the budget and the pool.
        leak: The leak of a choice, as in `choice_cost`.
        batch_sizes: Samples that are scored together, by candidate; 4,096 for a probe
            and 64 for a proxy with layers where it does not say.
        computing: Seconds of computing a sample, by candidate, as `python -m mpc_bridge
            estimate --calibrate` measures; 0 where it does not say.
        compare: Schedules to set beside the front, by name, such as `PAPER_SCHEDULES`;
            candidates that a run refused may be in them, and only there.
        progress: Show a bar.

    Returns:
        The front, cheapest first.

    Raises:
        ValueError: If sizes do not fit, a name is unknown, or every candidate was
            refused.

    References:
        Ouyang et al., SelectFormer, section 4.2: schedules by offline grid search.
    """
    n, budget = check_count("n", n), check_count("budget", budget)
    engine = check_engine(engine)
    check_choice("leak", leak, LEAKS)
    if not 1 <= check_count("max_phases", max_phases) <= 3:
        raise ValueError(f"max_phases must be 1 to 3, got {max_phases}")
    bought = bootstrap_size(n, bootstrap)
    if not bought < budget < n:
        raise ValueError(
            f"budget must be above the bootstrap set's {bought} samples and below the "
            f"pool's {n}, got {budget}"
        )
    given_shares = _shares(budget / n) if shares is None else sorted(shares)[::-1]
    keeps = tuple(round(share * n) - bought for share in given_shares)
    if any(not budget - bought < keep < n - bought for keep in keeps):
        raise ValueError(
            f"shares must leave more than the budget {budget} and less than the pool, "
            f"got {list(given_shares)}"
        )
    names = _usable(rehearsal)
    for option, mapping in (("batch_sizes", batch_sizes), ("computing", computing)):
        for name, value in (mapping or {}).items():
            check_choice(option, name, tuple(rehearsal.candidates))
            check_positive(f"{option}[{name!r}]", value, zero=option == "computing")
    price = _Price(
        rehearsal.manifests,
        network,
        engine,
        leak,
        batch_sizes or {},
        computing or {},
    )
    tried = _Tried(rehearsal, n - bought, budget - bought)
    # From cheap to dear, so that combinations are schedules.
    names = tuple(sorted(names, key=lambda k: price.scoring(k, n - bought)[1]))

    def judge(phases: tuple[str, ...], kept: tuple[int, ...]) -> Judged:
        size, seconds = price.schedule(phases, n - bought, kept)
        sizes = tuple(map(price.batch_size, phases, (n - bought, *kept)))
        overlaps = tried.overlaps(phases, kept)
        schedule = Schedule.of(phases, kept, sizes, overlaps, size, seconds / 3600)
        return Judged(schedule, overlaps)

    plans = [*_plans(names, keeps, budget - bought, max_phases)]
    steps = track(plans, progress=progress, label="Search", total=len(plans))
    judged = [judge(*plan) for plan in steps]
    marked = {
        name: judge(*_named(name, phases, rehearsal, n, bought, budget)).schedule
        for name, phases in (compare or {}).items()
    }
    return Front.of(
        judged,
        marked,
        rehearsal=rehearsal,
        n=n,
        bought=bought,
        budget=budget,
        engine=engine,
    )


def _shares(least: float) -> list[float]:
    """Return shares that a phase may leave, the largest first, in equal ratios."""
    return [least ** (i / (_SHARES + 1)) for i in range(1, _SHARES + 1)]


def _usable(rehearsal: Rehearsal) -> tuple[str, ...]:
    """Return the candidates that no run refused."""
    names = [name for name in rehearsal.candidates if name not in rehearsal.failures]
    if not names:
        name, why = next(iter(rehearsal.failures.items()))
        raise ValueError(
            f"rehearsal must hold a candidate that no run refused, got none: {name}: "
            f"{why}"
        )
    return tuple(names)


def _plans(
    names: tuple[str, ...], keeps: tuple[int, ...], last: int, most: int
) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Yield candidates in order of cost, and the falling numbers of rows they leave."""
    for count in range(1, most + 1):
        for phases in itertools.combinations(names, count):
            for kept in itertools.combinations(keeps, count - 1):
                yield phases, (*kept, last)


def _named(
    name: str, phases: Named, rehearsal: Rehearsal, n: int, bought: int, budget: int
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return a schedule of `compare` in rows."""
    for phase, _ in phases:
        check_choice(f"compare[{name!r}]", phase, tuple(rehearsal.candidates))
    kept = tuple(
        (budget if share is None else round(share * n)) - bought for _, share in phases
    )
    if any(b >= a for a, b in itertools.pairwise((n - bought, *kept))) or (
        kept[-1] != budget - bought
    ):
        raise ValueError(
            f"compare[{name!r}] must leave ever less, and the budget at last, got "
            f"{[share for _, share in phases]}"
        )
    return tuple(phase for phase, _ in phases), kept


@dataclasses.dataclass(frozen=True, eq=False)
class _Price:
    """The cost of phases for the pool."""

    manifests: Mapping[str, Manifest]
    network: Network
    engine: EngineName
    leak: Leak
    batch_sizes: Mapping[str, int]
    computing: Mapping[str, float]

    def batch_size(self, name: str, n: int) -> int:
        """Return how many of n samples are scored together."""
        layers = self.manifests[name].layers
        usual = _LAYER_BATCH if layers else _PROBE_BATCH
        return min(n, self.batch_sizes.get(name, usual))

    @functools.cached_property
    def scoring(self) -> Callable[[str, int], tuple[float, float]]:
        """From a candidate and n to bytes and seconds of scoring n samples."""
        return functools.cache(self._scoring)

    @functools.cached_property
    def choosing(self) -> Callable[[int, int], tuple[float, float]]:
        """From n and k to bytes and seconds of choosing k of n."""
        return functools.cache(self._choosing)

    def _scoring(self, name: str, n: int) -> tuple[float, float]:
        manifest = self.manifests[name]
        model = MODELS.get(self.engine)
        counted = cost(
            manifest,
            n,
            self.network,
            engine=self.engine,
            batch_size=self.batch_size(name, n),
            lanes=1 if model is None else model.lanes_for(model.schedule(manifest)),
        )
        assert counted.seconds is not None
        return counted.bytes, counted.seconds + n * self.computing.get(name, 0.0)

    def _choosing(self, n: int, k: int) -> tuple[float, float]:
        counted = choice_cost(n, k, self.network, engine=self.engine, leak=self.leak)
        assert counted.seconds is not None
        return counted.bytes, counted.seconds

    def schedule(
        self, phases: tuple[str, ...], n: int, kept: tuple[int, ...]
    ) -> tuple[float, float]:
        """Return bytes and seconds of all phases."""
        parts: list[tuple[float, float]] = []
        if (model := MODELS.get(self.engine)) is not None:  # keys, once a session
            started = model.started
            parts.append((started.bytes, self.network.wait(started, self.engine)))
        for name, before, after in zip(phases, (n, *kept), kept, strict=False):
            parts += [self.scoring(name, before), self.choosing(before, after)]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)


class _Tried:
    """Schedules on the rehearsal's samples.

    Args:
        rehearsal: Scores.
        n: Samples of the pool to choose from.
        k: How many of them to choose.
    """

    def __init__(self, rehearsal: Rehearsal, n: int, k: int):
        names = [*rehearsal.candidates]
        runs, _, self.m = rehearsal.scores.shape
        self.n = n
        self.k = self._rows(k)
        order = np.argsort(-rehearsal.scores, axis=2, kind="stable")
        self.orders = {name: order[:, i] for i, name in enumerate(names)}
        best = np.argsort(-rehearsal.oracle, axis=1, kind="stable")[:, : self.k]
        self.best = np.zeros((runs, self.m), bool)
        np.put_along_axis(self.best, best, values=True, axis=1)
        # The first two phases of three are those of many other schedules.
        self.left = functools.lru_cache(maxsize=256)(self._left)

    def _rows(self, k: int) -> int:
        """Return how many of the rehearsal's samples stand for k of the pool's."""
        return max(1, round(k / self.n * self.m))

    def _left(self, phases: tuple[str, ...], keeps: tuple[int, ...]) -> np.ndarray:
        """Return which samples these phases leave, `[S, m]`."""
        if not phases:
            return np.ones_like(self.best)
        before = self.left(phases[:-1], keeps[:-1])
        order = self.orders[phases[-1]]
        # By this phase's scores: the first of those that are still there.
        present = np.take_along_axis(before, order, axis=1)
        place = np.cumsum(present, axis=1, dtype=np.int32)
        present &= place <= self._rows(keeps[-1])
        kept = np.empty_like(present)
        np.put_along_axis(kept, order, present, axis=1)
        return kept

    def overlaps(self, phases: tuple[str, ...], keeps: tuple[int, ...]) -> np.ndarray:
        """Return the share of chosen samples that the target would choose, `[S]`."""
        chosen = self._left(phases, keeps)
        return (chosen & self.best).sum(axis=1) / self.k
