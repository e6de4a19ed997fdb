"""Rehearsal of a selection on known samples, to measure how well each proxy ranks."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Mapping
from typing import Literal

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.checks import check_count, check_same_length
from jaxsel._runs.checkpoints import run_digest
from jaxsel._runs.progress import track
from jaxsel.models import Target
from jaxsel.proxy._manifest import Kind, Manifest
from jaxsel.proxy._monotonicity import monotonicity
from jaxsel.proxy._parties._bootstrap import bootstrap_size
from jaxsel.proxy._parties._data_owner import DataOwner, proxy_ranks
from jaxsel.proxy._parties._messages import Plan, check_labels
from jaxsel.proxy._parties._model_owner import ModelOwner
from jaxsel.proxy._parties._plan import Phase, Samples, Training, required
from jaxsel.proxy._parties._proxy_maker import ProxyMaker
from jaxsel.proxy._parties._store import Store


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rehearsal:
    """Scores by several proxies, and by the target that they stand in for.

    Attributes:
        candidates: The phases by name, K of them, without `keep`.
        manifests: Their proxies' manifests, with bounds, of the last run.
        scores: `[S, K, m]` for S runs and the m samples outside of each run's bootstrap
            set; minus infinity where a proxy overflowed. Where training diverged they
            are those of the best parameters until then.
        oracle: The scores of the target, fine-tuned on the bootstrap set, `[S, m]`.
        failures: Why a selection would refuse a candidate, by name: training diverged,
            or the emulated scores do not rank as the exact ones. One run is enough.
    """

    candidates: Mapping[str, Phase]
    manifests: Mapping[str, Manifest]
    scores: np.ndarray
    oracle: np.ndarray
    failures: Mapping[str, str]

    def __repr__(self) -> str:
        runs, k, m = self.scores.shape
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Rehearsal({k} candidates{failed}, {runs} runs on {m} samples)"

    @property
    def spearman(self) -> np.ndarray:
        """Rank correlation of each candidate with the target, `[S, K]`."""
        correlations = np.empty(self.scores.shape[:2])
        for s, k in np.ndindex(correlations.shape):
            correlations[s, k] = monotonicity(self.scores[s, k], self.oracle[s])
        return correlations


def rehearse(
    samples: Samples,
    labels: npt.ArrayLike,
    candidates: Mapping[str, Phase],
    *,
    target: Target,
    secret: jax.Array,
    seeds: int = 3,
    bootstrap: float = 0.05,
    kind: Kind = "entropy",
    distil: Samples | None = None,
    tuning: Training = Training(6, 16, 1e-4),
    heads: Literal["weights", "gradient"] = "weights",
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Rehearsal:
    """Make every candidate on a share of known samples, and score the rest with it.

    Each run draws a bootstrap set, fine-tunes the target on it, makes a proxy of each
    candidate as a selection would, and scores all other samples. `search_schedule`
    judges schedules by these scores. Take samples that are like the pool: public ones,
    or those of an earlier purchase. How well a proxy ranks depends on how many
    samples it learned from, so choose `bootstrap` such that there are as many as will
    be bought.

    Args:
        samples: Samples with the inputs and features that candidates read.
        labels: Their classes, integers, `[n]`.
        candidates: Phases by name, such as `default_candidates`; `keep` is not read.
        target: The public base model with a head of C classes.
        secret: Key of all that is random.
        seeds: Number of runs.
        bootstrap: Share of the samples that each run learns from.
        kind: Score that ranks samples, as in `select`.
        distil: Unlabelled samples, as in `select`: not among `samples`.
        tuning: How the target is fine-tuned.
        heads: Which heads a proxy keeps, as in `select`.
        folder: Each run's result is saved there; a killed rehearsal resumes from it.
        progress: Show a bar.

    Returns:
        The scores of all candidates and of the target.

    Raises:
        ValueError: If there is no candidate, samples lack inputs of one, labels do not
            fit, fine-tuning diverges, or `folder` holds another rehearsal.
    """
    seeds = check_count("seeds", seeds)
    if not candidates:
        raise ValueError("candidates must hold at least one phase, got none")
    phases = {k: dataclasses.replace(p, keep=None) for k, p in candidates.items()}
    check_same_length("labels", np.asarray(labels), "samples", samples)
    y = check_labels(labels, len(samples), required("n_classes", target.n_classes))
    bought = bootstrap_size(len(samples), bootstrap)
    owner = ModelOwner(
        schedule=(),
        budget=bought + 1,
        secret=secret,
        target=target,
        bootstrap=bootstrap,
        kind=kind,
        distil=distil,
        tuning=tuning,
        heads=heads,
    )
    seller = DataOwner(pool=samples, base=target)
    owner, plan = _plan_all(owner, phases, seller)
    store = Store(folder, _run_digest(owner, phases, samples, y, secret))
    runs: list[dict[str, np.ndarray]] = []
    for i in track(range(seeds), progress=progress, label="Rehearse", total=seeds):
        # Even numbers are keys of bootstrap sets, odd ones the owner's secrets.
        key, owner_key = (jax.random.fold_in(secret, 2 * i + j) for j in range(2))
        acting = dataclasses.replace(owner, secret=owner_key)
        runs.append(
            store.once(
                f"run-{i}", functools.partial(_run, acting, plan, seller, y, key)
            )
        )
    notes = [json.loads(bytes(run["notes"])) for run in runs]
    names = [*phases]
    return Rehearsal(
        candidates=phases,
        manifests={
            names[int(k)]: Manifest.from_json(text)
            for note in notes
            for k, text in note["manifests"].items()
        },
        scores=np.stack([run["scores"] for run in runs]),
        oracle=np.stack([run["oracle"] for run in runs]),
        failures={
            names[int(k)]: why for note in notes for k, why in note["failures"].items()
        },
    )


def _plan_all(
    owner: ModelOwner, phases: Mapping[str, Phase], seller: DataOwner
) -> tuple[ModelOwner, Plan]:
    """Return the owner of all candidates, and a plan that has their manifests.

    Raises:
        ValueError: If a candidate can't be made of these samples; it is named.
    """
    plans: list[Plan] = []
    for name, phase in phases.items():
        try:
            planner = dataclasses.replace(owner, schedule=(phase,))
            plans.append(planner.plan(seller.offer()))
        except ValueError as error:
            raise ValueError(f"candidates[{name!r}] can't be made: {error}") from error
    manifests = tuple(plan.manifests[0] for plan in plans)
    everything = dataclasses.replace(owner, schedule=tuple(phases.values()))
    return everything, dataclasses.replace(plans[0], keeps=(), manifests=manifests)


def _run(
    owner: ModelOwner, plan: Plan, seller: DataOwner, y: np.ndarray, key: jax.Array
) -> dict[str, np.ndarray]:
    """Return the scores of all candidates in one run, and notes in JSON."""
    sold = seller.sell(plan, lambda rows: y[rows], key=key)
    tuned = owner.tune(sold)
    maker = ProxyMaker(owner=owner, plan=plan, sold=sold, tuned=tuned)
    others = np.setdiff1d(np.arange(plan.n), sold.rows)
    unseen = seller.pool.take(others)
    scores = np.empty((len(plan.manifests), len(others)), np.float32)
    manifests, failures = dict[int, str](), dict[int, str]()
    for k in range(len(plan.manifests)):
        proxy, why = maker.attempt(k)
        if why is not None:
            failures[k] = why
        values = proxy_ranks(proxy, unseen, base=owner.target, finite=False)
        # Samples on which a proxy overflows rank last.
        scores[k] = np.nan_to_num(values, nan=-np.inf, posinf=-np.inf)
        manifests[k] = proxy.manifest.to_json()
    notes = json.dumps({"manifests": manifests, "failures": failures})
    return {
        "scores": scores,
        "oracle": maker.target_scores(unseen.inputs),
        "notes": np.frombuffer(notes.encode(), np.uint8),
    }


def _run_digest(
    owner: ModelOwner,
    phases: Mapping[str, Phase],
    samples: Samples,
    y: np.ndarray,
    secret: jax.Array,
) -> str:
    """Return a digest of all that a run depends on; the number of runs may differ."""
    target = required("target", owner.target)
    settings = {
        "target": [repr(target.config), target.read],
        "candidates": repr([*phases.items()]),
        "bootstrap": bootstrap_size(len(samples), owner.bootstrap),
        "kind": owner.kind,
        "tuning": repr(owner.tuning),
        "heads": owner.heads,
    }
    parts = [samples] if owner.distil is None else [samples, owner.distil]
    held = [(part.inputs, part.features) for part in parts]
    return run_digest(settings, held, y, target.params, jax.random.key_data(secret))
