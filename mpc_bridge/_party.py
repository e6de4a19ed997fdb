"""The model owner or the data owner: what it checks, offers and computes."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxsel import __version__
from jaxsel._staged import staged

from ._appraise import appraise
from ._choose import choose
from ._compat import import_crypten
from ._config import Config, ConfigError
from ._handshake import Refused, SessionError
from ._holdings import Public, check_weights, open_samples, read_public
from ._ledger import Ledger
from ._result import FILE, PhaseResult, Result, openings_of, steps_of


class Party:
    """One of the two parties.

    Attributes:
        where: What it is doing, for messages.
    """

    def __init__(self, role: str, config: Config, *, force: bool, progress: bool):
        self.role, self.config, self.progress = role, config, progress
        self.where = "before the first phase"
        self.owns_model = role == "model-owner"
        part = config.model_owner if self.owns_model else config.data_owner
        if part is None:
            raise ConfigError(f"{role.replace('-', '_')} is missing: its own part")
        self.part, self.path = part, part.output / FILE
        if self.path.exists() and not force:
            raise ConfigError(f"{self.path} exists: --force replaces it")

    def prepare(self) -> None:
        """Check what this party has.

        Raises:
            Refused: If something does not fit.
        """
        self.public: Public = read_public(self.config)
        if self.owns_model:
            check_weights(self.config, self.public)
        else:
            self.readers = open_samples(self.config, self.public)
        try:
            self.part.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused("output must be a folder", str(error)) from None

    def terms(self) -> dict[str, Any]:
        """Return what must be the same for both parties, by name."""
        from crypten.config import cfg

        return {
            **{f"version of {name}": each for name, each in versions().items()},
            **self.public.terms(self.config),
            "provider": cfg.mpc.provider,
            "fraction bits of CrypTen": cfg.encoder.precision_bits,
        }

    def offers(self) -> dict[str, Any]:
        """Return this party's proposed batch sizes; the minimum is used."""
        from ._scoring import batch_for

        sizes = [
            phase.batch or batch_for(manifest, self.part.memory)
            for phase, manifest in zip(
                self.config.phases, self.public.manifests, strict=True
            )
        ]
        return {"batches": sizes}

    def play(self, offers: Sequence[Mapping[str, Any]]) -> Result:
        """Run all phases, write the result and return it."""
        crypten = import_crypten()
        batches = [
            min(sizes)
            for sizes in zip(*(_sizes(self.config, o) for o in offers), strict=True)
        ]
        ledger = Ledger()
        with crypten.no_grad():
            rows, phases, appraisal = self._phases(batches, ledger)
        result = Result(
            role=self.role,
            session=self.config.session.name,
            rows=tuple(rows.tolist()),
            phases=tuple(phases),
            appraisal=appraisal,
            steps=steps_of(ledger),
            openings=openings_of(ledger),
            provider=crypten.config.cfg.mpc.provider,
            versions=versions(),
        )
        self.where = "writing the result"
        with staged([self.path]) as (part,):
            part.write_text(result.to_json(), encoding="utf-8")
            crypten.communicator.get().barrier()  # both have one, or neither
        return result

    def _phases(
        self, batches: Sequence[int], ledger: Ledger
    ) -> tuple[np.ndarray, list[PhaseResult], float | bool | None]:
        from ._layers import to_crypten
        from ._scoring import score_pool

        config, left, found = self.config, self.public.pool, []
        scores: Any = None
        chosen: Any = None
        for i, phase in enumerate(config.phases):
            ledger.phase = f"phase {i + 1}"
            self.where = f"phase {i + 1}, scoring {len(left)} samples"
            if self.owns_model:
                assert config.model_owner is not None
                module = to_crypten(config.model_owner.weights[i], ledger=ledger)
                read = None
            else:
                module = to_crypten(self.public.manifests[i], ledger=ledger)
                read = self.readers[i](left)
            scores = score_pool(
                module,
                len(left),
                read,
                batch=batches[i],
                progress=self.progress,
            )
            self.where = f"phase {i + 1}, choosing {phase.keep} of {len(left)}"
            chosen = choose(
                scores,
                phase.keep,
                seed=_seed(config.session.seed, i),
                ledger=ledger,
                progress=self.progress,
            )
            found.append(
                PhaseResult(
                    samples=len(left),
                    kept=phase.keep,
                    batch=min(batches[i], len(left)),
                    passes=chosen.passes,
                    comparisons=chosen.comparisons,
                )
            )
            left = left[chosen.rows]
        self.where = "appraising what was chosen"
        mode, score = config.appraisal.mode, self.public.manifests[-1].score
        if mode == "none":
            return left, found, None
        appraisal = appraise(
            scores,
            chosen.rows,
            threshold=config.appraisal.threshold,
            entropy=score.secure.family == "square" and score.kind != "margin",
            ledger=ledger,
        )
        return left, found, appraisal


def versions() -> dict[str, str]:
    """Return those that both parties must have the same."""
    found = {name: importlib.metadata.version(name) for name in ("crypten", "torch")}
    return {"jaxsel": __version__, **found}


def _sizes(config: Config, offer: Mapping[str, Any]) -> list[int]:
    sizes = offer.get("batches")
    if not isinstance(sizes, list) or len(sizes) != len(config.phases):
        raise SessionError(f"batches must be one for each phase, got {sizes!r:.60}")
    for size in sizes:
        if type(size) is not int or size < 1:
            raise SessionError(f"batches must be whole numbers, got {size!r:.60}")
    return sizes


def _seed(seed: int, phase: int) -> int:
    """Return the public seed of a phase's pivots."""
    return int(np.random.SeedSequence([seed, phase]).generate_state(1, np.uint64)[0])
