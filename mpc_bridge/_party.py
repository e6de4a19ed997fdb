"""A computing party: its checks, offers, computation and results."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel import __version__
from jaxsel.proxy import Manifest, choice_cost, choice_warnings

from ._appraise import appraise
from ._choose import choose
from ._config import Config
from ._delivery import Delivery
from ._estimate import check_hours
from ._handshake import Refused, SessionError, digest, say
from ._holdings import (
    Public,
    check_choices,
    digest_samples,
    open_own_samples,
    open_samples,
    read_own_weights,
    read_public,
)
from ._journal import FOLDER, Journal
from ._ledger import Ledger
from ._limits import UNLIMITED
from ._pools import Pools
from ._private import make_private_folder, write_private
from ._programs import Forward, wild_expected
from ._record import Record, Start, commitment_of, count_of
from ._result import FILE, Opening, PhaseResult, Result, Reveal, openings_of, steps_of
from ._reveals import Answer, of_data_owner, of_model_owner, of_nobody
from ._scoring import most_fraction_bits, score_pool, share_proxy
from ._toml import ConfigError
from .engines import DATA_OWNER, FEWEST_BITS, MODEL_OWNER, Engine

_SLACK = 0.05  # of a mean score
_WRITTEN = b"written"
_RISK = 1e-9  # of a choice to open more values than are counted on


class Party:
    """One of the parties that compute on shares.

    Attributes:
        where: What it is doing, for messages.
    """

    def __init__(
        self,
        role: str,
        rank: int,
        engine: type[Engine],
        config: Config,
        *,
        force: bool,
        progress: bool,
    ):
        self.role, self.rank, self.config = role, rank, config
        self.engine, self.progress = engine, progress
        self.where, self.start = "before the first phase", time.perf_counter()
        self.answers: list[Answer] = []
        self.warnings: tuple[str, ...] = ()
        self.samples: list[Any] = []
        self.pools: Pools | None = None
        part = config.part(rank)
        if part is None:
            raise ConfigError(f"{role.replace('-', '_')} is missing: its own part")
        self.part, self.path, self.force = part, part.output / FILE, force
        self.limits = UNLIMITED if engine.published else part.limits
        self._check_absent(cut=(part.output / FOLDER).exists())

    def prepare(self) -> None:
        """Read this party's files once, and check them.

        Raises:
            Refused: If something does not fit.
        """
        self.public: Public = read_public(self.config)
        self.weights: list[Any] = [None] * len(self.config.phases)
        self.readers: list[Any] = [None] * len(self.config.phases)
        if self.rank == MODEL_OWNER:
            self.weights = read_own_weights(self.config, self.public)
            self.samples = open_own_samples(self.config, self.public)
        elif self.rank == DATA_OWNER:
            self.readers = open_samples(self.config, self.public)
            if self.engine.published:
                self.weights = read_own_weights(
                    self.config, self.public, published=True
                )
        work = self._work()
        try:
            make_private_folder(self.part.output)
            self.record = Record(self.part.output)
            self.journal = Journal(self.part.output, work, self.record)
        except OSError as error:
            raise Refused("output must be a folder", str(error)) from None
        self._check_absent(cut=self.journal.there > 0)
        self.record.check_rows(self._rows(), self.limits)
        content = work.get("weights") or work.get("samples")
        self.commitment = self.record.commitment(self.config.session.name, content)
        self.delivery = Delivery(self.config, self.rank, self.journal.session)
        check_hours(self.config, self.public)  # last, since it may take a minute
        if self.journal.there:
            say(f"{self.role}: going on with what is in {self.part.output}")
        elif self.journal.anew is not None:
            say(
                f"{self.role}: starting anew, because the run that was cut had another "
                f"{self.journal.anew}"
            )
        for sentence in (*self._choice_warnings(), *self._pool_warnings()):
            self._warn(sentence)

    def _warn(self, sentence: str) -> None:
        self.warnings = (*self.warnings, sentence)
        say(f"{self.role}: WARNING: {sentence}")

    def _check_absent(self, *, cut: bool) -> None:
        """Refuse to replace a result, but one that others may not have yet."""
        if self.path.exists() and not self.force and not cut:
            raise ConfigError(f"{self.path} exists: --force replaces it")

    def _choice_warnings(self) -> list[str]:
        """Return the public facts that follow from the sizes of the phases."""
        if self.engine.published:
            return []
        warnings, remaining = [], len(self.public.pool)
        for i, phase in enumerate(self.config.phases):
            sentences = choice_warnings(
                self.public.manifests[i],
                remaining,
                phase.keep,
                appraisal=self.config.appraisal.mode,
            )
            warnings += [f"Phase {i + 1}: {sentence}." for sentence in sentences]
            remaining = phase.keep
        return warnings

    def _pool_warnings(self) -> tuple[str, ...]:
        """Return which earlier pools are too near to this one, and keep this one's."""
        part = self.config.data_owner
        if self.rank != DATA_OWNER or part is None or part.pools is None:
            return ()
        self.pools, pool = Pools(part.pools), self.public.pool
        self.digests = self.pools.digests(self.readers[0](pool), len(pool))
        return self.pools.warnings(
            self.digests,
            few=part.few_rows,
            session=self.journal.session,
            resumed=self.journal.there > 0,
        )

    def _work(self) -> dict[str, Any]:
        """Return the journal's key: the terms, and digests of this party's files."""
        facts: dict[str, Any] = dict(self.public.terms(self.config))
        facts["engine"] = self.config.session.engine
        facts["versions"] = self.versions()
        if self.rank == MODEL_OWNER:
            facts["weights"] = [
                {
                    name: digest(np.ascontiguousarray(w).tobytes())
                    for name, w in a.items()
                }
                for a in self.weights
            ]
        elif self.rank == DATA_OWNER:
            facts["samples"] = digest_samples(self.readers, self.public.pool)
        return facts

    def terms(self, engine: Engine) -> dict[str, Any]:
        """Return the terms that all parties must share, by name."""
        return {
            **{f"version of {name}": text for name, text in self.versions().items()},
            "session.engine": self.config.session.engine,
            **self.public.terms(self.config),
            **engine.terms(),
        }

    def offers(self, engine: Engine) -> dict[str, Any]:
        """Return this party's proposals by name; of all parties' the least is taken."""
        sizes = [
            phase.batch_size
            or engine.batch_for(Forward(manifest).schedule(), self.part.memory)
            for phase, manifest in zip(
                self.config.phases, self.public.manifests, strict=True
            )
        ]
        return {
            "batches": sizes,
            "fraction bits": self._most_bits(),
            "entries": self.journal.there,
            "opened": self.record.opened,
            "commitment": self.commitment,
            "delivery": self.delivery.offered(),
        }

    def _most_bits(self) -> int:
        """Return how many fraction bits weights and choices leave room for."""
        if self.rank != MODEL_OWNER:
            return self.engine.most_bits
        proxies = zip(self.public.manifests, self.weights, strict=True)
        check = functools.partial(check_choices, self.config, self.public, self.engine)
        try:
            return most_fraction_bits(self.engine, [*proxies], check)
        except ValueError as refused:
            raise Refused("the proxies must fit the ring", str(refused)) from None

    def play(self, engine: Engine, offers: Sequence[Mapping[str, Any]]) -> Result:
        """Run all phases, write the result and return it."""
        batches = [
            min(sizes)
            for sizes in zip(*(_sizes(self.config, o) for o in offers), strict=True)
        ]
        bits = min(_bits(offer, self.engine.most_bits) for offer in offers)
        common = min(count_of(offer, "entries") for offer in offers)
        agreed = {"batches": batches, "bits": bits, **self.delivery.agree(offers)}
        start = Start(
            work=self.journal.session,
            common=self.journal.usable(common, agreed),
            kept=self.journal.there,
            commitments=tuple(map(commitment_of, offers)),
            rows=self._rows(),
        )
        asked = any(count_of(offer, "opened") for offer in offers)
        anew = self.record.start(engine, start, self.limits, asked=asked)
        if anew is not None:
            self.warnings = (*self.warnings, anew)
            say(f"{self.role}: WARNING: {anew}")
        engine.start(bits)
        most = self._most_values()
        self.journal.start(start.common, engine, agreed, most=most)
        if self.pools is not None:  # before anything is opened
            self.pools.remember(
                self.digests,
                name=self.config.session.name,
                session=self.journal.session,
            )
        ledger = Ledger(engine, journal=self.journal, warn=self._warn)
        with engine.running():
            rows, phases, appraisal = self._phases(batches, ledger)
        self.where = "delivering the chosen rows"
        self.delivery.play(rows, ledger)
        terms = {**engine.terms(), **self.delivery.terms()}
        result = Result(
            role=self.role,
            session=self.config.session.name,
            engine=self.config.session.engine,
            rows=tuple(rows.tolist()),
            phases=tuple(phases),
            appraisal=appraisal,
            steps=steps_of(ledger),
            openings=openings_of(ledger.opened),
            fraction_bits=engine.fraction_bits,
            terms={name: str(value) for name, value in terms.items()},
            versions=self.versions(),
            discarded=self._discarded(ledger),
            warnings=self.warnings,
            seconds=time.perf_counter() - self.start,
        )
        self.where = "writing the result"
        self.journal.keep_result(result.to_json())
        # All have one, or nobody; and all have seen the same opened.
        shown = [list(result.rows), [list(o) for o in ledger.opened]]
        if len(set(engine.exchange(digest(json.dumps(shown)).encode()))) > 1:
            raise SessionError("the parties' ledgers differ: nothing is written")
        self.journal.show_result(self.path)
        try:
            engine.exchange(_WRITTEN)
        except RuntimeError:
            say(
                f"{self.role}: {self.path} is written; another party was cut before it "
                "said so too: if it starts again, start this role again as well"
            )
        else:
            self.journal.finish()
        return result

    def _rows(self) -> int:
        """Return how many rows the phases leave, all together."""
        return sum(phase.keep for phase in self.config.phases)

    def _most_values(self) -> int:
        """Return how many values the limits allow to be opened, in all sessions."""
        if self.limits.openings is not None:
            return self.limits.openings
        most, remaining = 1, len(self.public.pool)  # one of the appraisal
        for phase in self.config.phases:
            cost = choice_cost(remaining, phase.keep, risk=_RISK)
            most += cost.comparisons_bound + phase.keep
            remaining = phase.keep
        return most * (self.limits.sessions + self.limits.reopenings)

    def _discarded(self, ledger: Ledger) -> tuple[Opening, ...]:
        """Return the openings of this folder that do not count for the result."""
        return openings_of(self.record.discarded(ledger.opened))

    def measured(self, result: Result) -> Result:
        """Add to a result the leakage that this party can measure alone.

        Takes up to a minute a phase: after the session, when nobody waits.
        """
        if not getattr(self.part, "measure", True):
            return result
        reveals = self._reveals()
        result = dataclasses.replace(result, reveals=reveals)
        write_private(self.path, result.to_json().encode())
        return result

    def _reveals(self) -> tuple[Reveal, ...]:
        manifests, memory = self.public.manifests, self.part.memory
        if self.engine.published:
            return of_nobody(self.answers, "the proxies are published")
        if self.rank == DATA_OWNER:
            return of_data_owner(self.answers, manifests, self.readers, memory=memory)
        if self.rank == MODEL_OWNER:
            return of_model_owner(
                self.answers,
                manifests,
                self.weights,
                self.samples,
                leak=self.config.session.leak,
                memory=memory,
            )
        return of_nobody(self.answers, "this party has neither samples nor weights")

    def close(self) -> None:
        """Keep the journal, so that a later run resumes."""
        if hasattr(self, "journal"):
            self.journal.close()

    def versions(self) -> dict[str, str]:
        """Return those that all parties must have the same."""
        return {"jaxsel": __version__, **self.engine.versions()}

    def _phases(
        self, batches: Sequence[int], ledger: Ledger
    ) -> tuple[np.ndarray, list[PhaseResult], float | bool | None]:
        config, pool, phases = self.config, self.public.pool, []
        scores: Any = None
        chosen: Any = None
        unit = 1.0
        for i, phase in enumerate(config.phases):
            ledger.phase = f"phase {i + 1}"
            self.where = f"phase {i + 1}, scoring {len(pool)} samples"
            proxy = share_proxy(
                self.public.manifests[i],
                ledger=ledger,
                arrays=self.weights[i],
                enlarge=True,
            )
            unit = proxy.unit
            read = None if self.readers[i] is None else self.readers[i](pool)
            scores = score_pool(
                proxy, len(pool), read, batch_size=batches[i], progress=self.progress
            )
            self.where = f"phase {i + 1}, choosing {phase.keep} of {len(pool)}"
            chosen = choose(
                scores,
                phase.keep,
                seed=_seed(config.session.seed, i),
                ledger=ledger,
                leak=config.session.leak,
                progress=self.progress,
            )
            phases.append(
                PhaseResult(
                    samples=len(pool),
                    kept=phase.keep,
                    batch_size=min(batches[i], len(pool)),
                    passes=chosen.passes,
                    comparisons=chosen.comparisons,
                    wild=wild_expected(
                        self.public.manifests[i],
                        len(pool),
                        type(ledger.engine),
                        ledger.engine.fraction_bits,
                    ),
                    outside=ledger.outside.get(ledger.phase),
                )
            )
            self.answers.append(Answer(pool, chosen.rows, chosen.levels, phases[-1]))
            pool = pool[chosen.rows]
        self.where = "appraising what was chosen"
        mode, score = config.appraisal.mode, self.public.manifests[-1].score
        if mode == "none":
            return pool, phases, None
        appraisal = appraise(
            scores,
            chosen.rows,
            threshold=config.appraisal.threshold,
            entropy=score.secure.family == "square" and score.kind != "margin",
            unit=unit,
            ledger=ledger,
        )
        _check_plausible(appraisal, self.public.manifests[-1])
        return pool, phases, appraisal


def _check_plausible(appraisal: float | bool, manifest: Manifest) -> None:
    """Refuse a mean that no scores have: shares that do not fit open as noise."""
    most = np.log(manifest.head.n_classes) + _SLACK
    if manifest.score.kind == "margin":
        least, most = -np.inf, _SLACK
    elif manifest.score.secure.family == "mlp":
        least, most = -most, 2 * most  # an emulator leaves the entropy's range
    else:
        least = -_SLACK
    if not isinstance(appraisal, bool) and not least <= appraisal <= most:
        raise SessionError(
            f"the mean score must lie from {least:.3g} to {most:.3g}, got "
            f"{appraisal:.4g}: weights or shares do not fit, and the choice is not to "
            "be trusted"
        )


def _sizes(config: Config, offer: Mapping[str, Any]) -> list[int]:
    sizes = offer.get("batches")
    if not isinstance(sizes, list) or len(sizes) != len(config.phases):
        raise SessionError(f"batches must be one for each phase, got {sizes!r:.60}")
    for size in sizes:
        if type(size) is not int or size < 1:
            raise SessionError(f"batches must be whole numbers, got {size!r:.60}")
    return sizes


def _bits(offer: Mapping[str, Any], most: int) -> int:
    bits = offer.get("fraction bits")
    if type(bits) is not int or not FEWEST_BITS <= bits <= most:
        raise SessionError(
            f"fraction bits must be from {FEWEST_BITS} to {most}, got {bits!r:.60}"
        )
    return bits


def _seed(seed: int, phase: int) -> int:
    """Return the public seed of a phase's pivots."""
    return int(np.random.SeedSequence([seed, phase]).generate_state(1, np.uint64)[0])
