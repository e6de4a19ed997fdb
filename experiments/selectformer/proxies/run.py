"""The evaluation of proxies: pools of real samples, seeds, one file for each."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kit.seeds import Job, Work, Workers, each_seed, stacked
from experiments._kit.texts import LAYERS, LENGTH
from experiments.selectformer import sources
from experiments.selectformer.scores.trial import BUDGETS, DRAWS, LARGER, MODEL
from jaxsel.proxy import Manifest, Phase, Rehearsal

from . import targets, trial as trials
from .points import STARTS, candidates, points
from .tries import HELD_OUT, JUDGED

MOST = 1000
"""Samples of the kept class that a pool has at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProxyPool:
    """Results of one pool, for each of S seeds, P points and K candidates.

    m samples are left to choose from after the bootstrap set. Of test accuracies, all
    but `inference` are of linear models that are trained on the purchases.

    Attributes:
        n: Samples offered, `[S]`.
        scores: Of each candidate, `[S, K, m]`.
        oracle: Exact entropies of the target, `[S, m]`.
        manifests: Of each candidate, in JSON, `[S, K]`.
        stopped: Whether a candidate's training stopped early, `[S, K]`.
        refused: Whether the guard refused it with every setting, `[S, K]`; figures of
            points that it belongs to are NaN.
        place: Of its setting among its tries, `[S, K]`.
        judged: Rank correlation with the target after each try on the held-out deal,
            the same for all seeds, `[S, K, tries]`; NaN where it was refused.
        emulated: Rank correlation of its scores with exact ones of its logits, `[S,
            K]`; NaN where these are not finite.
        outside: Share of the samples left with inputs beyond the bootstrap set's
            bounds, `[S, K]`.
        inference: Accuracy of the target itself and of each candidate, `[S, 1 + K]`;
            NaN for one that learns ranks.
        recovered: Cosine and rank correlation that an attacker recovers, `[S, attacked,
            2]`.
        spearman: Rank correlation of the last phase's scores with `oracle`, `[S, P]`.
        overlap: Share of a choice that the target itself would make too, `[S, 2 +
            P]`: first for a random choice and the target's own.
        rare: Share of a choice that is not of the kept class, of the same shape.
        rare_offered: That share of all that is left, `[S]`.
        random: Accuracy after a random purchase, `[S, budgets, draws]`.
        ideal: After the target's own choice by each of its scores, `[S, BUDGETS, 3]`.
        bought: After each point's choice, `[S, BUDGETS, P]`.
        bootstrap: Of the bootstrap set alone, `[S]`.
        pool: Of all samples, `[S]`.
    """

    n: np.ndarray
    scores: np.ndarray
    oracle: np.ndarray
    manifests: np.ndarray
    stopped: np.ndarray
    refused: np.ndarray
    place: np.ndarray
    judged: np.ndarray
    emulated: np.ndarray
    outside: np.ndarray
    inference: np.ndarray
    recovered: np.ndarray
    spearman: np.ndarray
    overlap: np.ndarray
    rare: np.ndarray
    rare_offered: np.ndarray
    random: np.ndarray
    ideal: np.ndarray
    bought: np.ndarray
    bootstrap: np.ndarray
    pool: np.ndarray

    def beyond(self, accuracies: np.ndarray) -> np.ndarray:
        """Return points beyond the mean random purchase of as many, `[S, BUDGETS, …]`.

        Args:
            accuracies: `[S, BUDGETS, …]`.
        """
        usual = self.random[:, : len(BUDGETS)].mean(axis=2, keepdims=True)
        return 100 * (accuracies - usual)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proxies:
    """Results of all pools.

    Attributes:
        seeds: `[S]`.
        variants: Whether the points are variants of the paper's phases.
        points: Names of the points, see `ProxyPool`.
        candidates: Names of the proxies that they are made of.
        pools: By data set.
    """

    seeds: np.ndarray
    variants: bool
    points: tuple[str, ...]
    candidates: tuple[str, ...]
    pools: Mapping[str, ProxyPool]

    def only(self, pool: str, seeds: np.ndarray) -> Proxies:
        """Return the results of one pool in some seeds.

        Args:
            pool: Its name.
            seeds: Places in `seeds`.
        """
        results = self.pools[pool]
        fields = [field.name for field in dataclasses.fields(results)]
        subset = ProxyPool(**{name: getattr(results, name)[seeds] for name in fields})
        return dataclasses.replace(self, seeds=self.seeds[seeds], pools={pool: subset})

    def rehearsal(self, pool: str, *, searched: Sequence[str]) -> Rehearsal:
        """Return the scores of a pool's candidates as a rehearsal of schedules.

        Args:
            pool: Its name.
            searched: Candidates to search among; the others can only be compared.
        """
        results = self.pools[pool]
        by_name = candidates(sources.kind(pool), variants=self.variants)
        return Rehearsal(
            candidates={
                name: Phase(
                    candidate.spec, goal=candidate.goal, training=candidate.training
                )
                for name, candidate in by_name.items()
            },
            manifests={
                name: Manifest.from_json(str(text))
                for name, text in zip(
                    self.candidates, results.manifests[0], strict=True
                )
            },
            scores=results.scores,
            oracle=results.oracle,
            failures={
                name: f"refused in {count} of {len(self.seeds)} seeds"
                if name in searched
                else "not searched"
                for name, count in zip(
                    self.candidates, results.refused.sum(axis=0).tolist(), strict=True
                )
                if count or name not in searched
            },
        )

    def stopped_early(self, pool: str) -> dict[str, int]:
        """Return in how many seeds a candidate's training stopped early, if in any.

        Args:
            pool: Name of the pool.
        """
        counts = self.pools[pool].stopped.sum(axis=0).tolist()
        return {
            name: count
            for name, count in zip(self.candidates, counts, strict=True)
            if count
        }

    def refusals(self, pool: str) -> dict[str, int]:
        """Return in how many seeds the guard refused a point, if in any.

        Args:
            pool: Name of the pool.
        """
        counts = np.isnan(self.pools[pool].spearman).sum(axis=0).tolist()
        return {
            name: count
            for name, count in zip(self.points, counts, strict=True)
            if count
        }


def run_proxies(
    folder: str | os.PathLike[str],
    *,
    seeds: Sequence[int] = tuple(range(10)),
    pools: Sequence[str] | None = None,
    variants: bool = False,
    progress: bool = False,
    workers: Workers | None = None,
) -> Proxies:
    """Choose from imbalanced pools, by the paper's proxies and by cheaper ones.

    MiniLM is the target for texts, a small ViT for images. Results of each pool and
    seed go to a file as soon as they are there, and what is there is read: a killed run
    goes on where it was.

    Args:
        folder: Where those files are, or will be.
        seeds: Each deals the samples, and draws all else, anew.
        pools: Names of the sources; `sources.QUICK` if None.
        variants: Whether to choose by variants of the paper's phases, see
            `points.points`.
        progress: Show a progress bar.
        workers: Where they run; on threads of this process if None.

    Returns:
        How well each point ranks and chooses, and what it costs.

    Raises:
        ValueError: If there are no seeds, or that of the held-out deal is among them.
        FileNotFoundError: If a data set is not prepared; names the command that does
            it.

    References:
        Ouyang et al., SelectFormer, section 5; its proxies as the guide to proxies
        settles them.
    """
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    if HELD_OUT in seeds:
        raise ValueError(
            f"seeds must not hold {HELD_OUT}, on which settings are chosen"
        )
    pools = sources.QUICK if pools is None else pools
    compared = points(variants=variants)
    stem = "variants" if variants else "proxies"

    def file(name: str, seed: int, stem: str = stem) -> tuple[Path, dict[str, Any]]:
        path = Path(folder) / f"{stem}-{name}-{seed}.npz"
        by_name = candidates(sources.kind(name), variants=variants)
        return path, {
            "candidates": {key: repr(candidate) for key, candidate in by_name.items()},
            "tries": {
                k: [repr(setting) for setting in c.tries()] for k, c in by_name.items()
            },
            "held out": [HELD_OUT, JUDGED, STARTS],
            "points": {key: repr(point) for key, point in compared.items()},
            "tuning": [repr(targets.TUNING), repr(targets.IMAGES), targets.HEAD],
            "text": [LENGTH, LAYERS],
            "learner": repr(MODEL),
            "budgets": [*BUDGETS, *LARGER],
            "shares": [trials.BOOTSTRAP, trials.OWN, DRAWS, trials.TESTED],
            "sizes": [sources.KEPT, MOST, sources.TEST],
            "fields": [field.name for field in dataclasses.fields(ProxyPool)],
            "seed": seed,
        }

    options: dict[str, Any] = {"progress": progress, "workers": workers}
    searched = each_seed(
        Work(_searches, (pools, variants, progress)),
        [HELD_OUT],
        lambda name, seed: file(name, seed, f"settings-{stem}"),
        label="Settings",
        **options,
    )
    judged = {name: runs[0]["judged"] for name, runs in searched.items()}
    results = each_seed(
        Work(_jobs, (pools, variants, progress, judged)),
        seeds,
        file,
        label=stem.title(),
        **options,
    )
    for name, runs in results.items():
        results[name] = [{**run, "judged": judged[name]} for run in runs]
    return Proxies(
        seeds=np.asarray(seeds),
        variants=variants,
        points=tuple(compared),
        candidates=tuple(candidates("text", variants=variants)),
        pools={name: ProxyPool(**stacked(runs)) for name, runs in results.items()},
    )


def _jobs(
    pools: Sequence[str],
    variants: bool,
    progress: bool,
    judged: Mapping[str, np.ndarray],
) -> dict[str, Job]:
    """Return the functions that run each pool for a seed, by name."""
    read = sources.read_all(progress, pools)

    def job(name: str) -> Job:
        by_name = candidates(sources.kind(name), variants=variants)
        other = _other(name, progress)
        return lambda seed: trials.trial(
            read[name],
            other,
            by_name,
            points(variants=variants),
            judged[name],
            seed,
            MOST,
        )

    return {name: job(name) for name in read}


def _searches(pools: Sequence[str], variants: bool, progress: bool) -> dict[str, Job]:
    """Map each pool to the judge of its settings."""
    read = sources.read_all(progress, pools)

    def job(name: str) -> Job:
        by_name = candidates(sources.kind(name), variants=variants)
        other = _other(name, progress)
        return lambda seed: trials.settings(read[name], other, by_name, MOST)

    return {name: job(name) for name in read}


def _other(name: str, progress: bool) -> sources.Encoded:
    """Return the next source of the same kind: the model owner distils on that."""
    if sources.kind(name) == "image":
        return sources.digits()
    texts = [text for text in sources.SOURCES if sources.kind(text) == "text"]
    return sources.SOURCES[texts[(texts.index(name) + 1) % len(texts)]](progress)
