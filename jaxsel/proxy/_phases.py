"""Multi-phase selection: cheap proxies sieve the pool, dearer ones what is left."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._checkpoints import Checkpoints, run_digest
from jaxsel._checks import check_choice, check_count, check_same_length
from jaxsel._types import Selection
from jaxsel.models import Target, Tokens, finetune

from ._build import proxy_inputs, target_manifest
from ._choice_cost import ChoiceCost, choice_cost
from ._choose import choose
from ._cost import Cost, Network, cost
from ._manifest import KINDS, Kind, Manifest
from ._plan import Phase, ProbeSpec, Samples, Training, take_rows_at
from ._proxy import Proxy
from ._proxy_maker import Maker
from ._spec import Spec, probe_manifest

Winners = Callable[[Proxy, np.ndarray, int], npt.ArrayLike]
"""From a proxy, m rows of the pool and a number k to the k of these rows with the
highest scores. In secret, nothing is opened but the outcomes of comparisons."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Phased:
    """The result of a selection in phases.

    Attributes:
        selection: The rows to buy: the bootstrap set, then those of the last phase.
        bootstrap: Rows of the bootstrap set, `[m]`.
        labels: Their classes, `[m]`.
        target: The target, fine-tuned on the bootstrap set; None if no phase needs it.
        proxies: That of each phase.
        survivors: Rows that are left after each phase, without the bootstrap set.
        n: Samples in the pool.
    """

    selection: Selection
    bootstrap: np.ndarray
    labels: np.ndarray
    target: Target | None
    proxies: tuple[Proxy, ...]
    survivors: tuple[np.ndarray, ...]
    n: int

    def costs(
        self, network: Network | None = None, *, batch: int = 64
    ) -> list[tuple[Cost, ChoiceCost]]:
        """Count each phase's secure forward passes, and its choice."""
        left, counted = self.n - len(self.bootstrap), []
        for proxy, rows in zip(self.proxies, self.survivors, strict=True):
            passes = cost(proxy.manifest, left, network, batch=batch)
            counted.append((passes, choice_cost(left, len(rows), network)))
            left = len(rows)
        return counted


def joint_key(ours: int, theirs: int) -> jax.Array:
    """Return a key that both parties chose: neither knows it alone.

    Each draws a number of 128 bits or so, commits to it, and then shows it; the order
    is that of the parties, the model owner first.

    Raises:
        ValueError: If a number is negative.
    """
    for name, value in (("ours", ours), ("theirs", theirs)):
        check_count(name, value, minimum=0)
    digest = hashlib.sha256(f"jaxsel {ours} {theirs}".encode()).digest()
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(digest[:8], np.uint32)))


def draw_bootstrap(n: int, share: float, key: jax.Array) -> np.ndarray:
    """Return the rows of the bootstrap set, ascending: `share` of n, rounded.

    The data owner draws it under the joint key, and the model owner can check it.

    Raises:
        ValueError: If `share` does not lie between 0 and 1, or comes to no row.
    """
    count = round(share * n)
    if not 0 < share < 1 or not count:
        raise ValueError(
            f"bootstrap must be a share of the pool, at least one of {n} samples, got "
            f"{share}"
        )
    return np.sort(np.asarray(jax.random.permutation(key, n))[:count])


def select(
    pool: Samples,
    schedule: Sequence[Phase],
    budget: int,
    *,
    labels: Callable[[np.ndarray], npt.ArrayLike],
    key: jax.Array,
    secret: jax.Array,
    target: Target | None = None,
    classes: int | None = None,
    bootstrap: float = 0.05,
    kind: Kind = "entropy",
    distil: Samples | None = None,
    tuning: Training = Training(6, 16, 1e-4),  # noqa: B008
    heads: Literal["weights", "gradient"] = "weights",
    winners: Winners | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Phased:
    """Choose what to buy of a pool, by one proxy of a target after the other.

    The owner of the pool draws a bootstrap set under a jointly chosen key, and sells it
    with labels. The target is fine-tuned on it; each phase's proxy is cut from that,
    its emulators fitted ex vivo on the bootstrap set, then trained in vivo. Each phase
    ranks what the one before has left.

    Args:
        pool: The samples to choose from. For proxies, texts must be padded to one
            length; that is what a secure run takes for each of them.
        schedule: The phases, the cheapest first.
        budget: Samples to buy, the bootstrap set counted.
        labels: From rows to their classes, integers: called once, for the bootstrap
            set, when that is bought.
        key: Of the bootstrap set, known to both parties; see `joint_key`.
        secret: The model owner's own key, of all else that is random: with a known key
            and a public base model, the data owner could train the same target.
        target: The public base model with a head of C classes; needed by proxies, and
            by probes unless their goal is "labels".
        classes: C, if there is no target.
        bootstrap: Share of the pool that is drawn at random.
        kind: What samples are ranked by, see `score`; the prior is that of the
            bootstrap set, each class counted once more than it is there.
        distil: Unlabelled samples that the model owner has.
        tuning: How the target is fine-tuned.
        heads: Which heads a proxy keeps: those with the largest weights, or those whose
            gates the loss on the bootstrap set feels most.
        winners: Who ranks; by default scores are computed here, in the clear.
        folder: State is saved there by orbax: what was bought, the target's training,
            and after each phase its proxy and the rows that are left. A run that was
            killed goes on from it, with the numbers of one that was not.
        progress: Show bars.

    Returns:
        The selection, and how it came about.

    Raises:
        ValueError: If the schedule does not lead to the budget, something that a phase
            needs is missing, labels lie out of range, a proxy's training did not go
            well enough to rank by it, or `folder` holds another run.

    References:
        Ouyang et al., SelectFormer, section 3 (multi-phase selection); what it leaves
        open is told in the guide to proxies.
    """
    check_choice("kind", kind, KINDS)
    check_choice("heads", heads, ("weights", "gradient"))
    schedule = tuple(schedule)
    _check_needs(pool, distil, schedule, target)
    n = len(pool)
    rows = draw_bootstrap(n, bootstrap, key)
    keeps = _keeps(n, len(rows), schedule, budget)
    if target is not None:
        classes = target.classes
    if classes is None:
        raise ValueError(
            "classes must be given if there is no target, and a target must have a "
            "head: got None"
        )
    asked = any(isinstance(p.proxy, Spec) or p.goal != "labels" for p in schedule)
    if not asked:
        target = None
    settings = {
        "target": None if target is None else [repr(target.config), target.read],
        "budget": budget,
        "bootstrap": len(rows),
        "schedule": repr(schedule),
        "keeps": keeps,
        "kind": kind,
        "tuning": repr(tuning),
        "heads": heads,
        "classes": classes,
    }
    weights = None if target is None else target.params
    held = tuple(None if s is None else (s.inputs, s.features) for s in (pool, distil))
    drawn = [jax.random.key_data(each) for each in (key, secret)]
    run = run_digest(settings, held, weights, drawn)
    store = _Store(None if folder is None else Path(folder), run)

    descriptions = [
        _described(phase.proxy, pool, target, classes, kind) for phase in schedule
    ]

    def buy() -> dict[str, np.ndarray]:
        return {"labels": _classes(labels(rows), len(rows), classes)}

    y = store.once("bootstrap", buy)["labels"]
    bought = pool.take(rows)
    tuned = None
    if target is not None:
        trained = finetune(
            target.graphdef,
            target.params,
            bought.inputs,
            y,
            key=jax.random.fold_in(secret, 0),
            checkpoint=store.place("target"),
            progress=progress,
            **dataclasses.asdict(tuning),
        )
        if trained.stopped:
            raise ValueError(f"fine-tuning the target failed: {trained.stopped}")
        tuned = dataclasses.replace(target, params=trained.params)
    shares = (np.bincount(y, minlength=classes) + 1) / (len(y) + classes)
    prior = shares if kind == "prior_entropy" else None
    maker = Maker(
        base=target,
        tuned=tuned,
        bought=bought,
        y=y,
        distil=distil,
        kind=kind,
        prior=prior,
        classes=classes,
        heads=heads,
        descriptions={
            phase.proxy: description
            for phase, description in zip(schedule, descriptions, strict=True)
        },
        key=secret,
        progress=progress,
    )
    best = winners or _InTheClear(pool, target)
    left = np.setdiff1d(np.arange(n), rows)
    proxies, survivors = [], []
    for i, (phase, keep) in enumerate(zip(schedule, keeps, strict=True)):
        fresh: list[Proxy] = []  # none where the phase is read from the folder

        def sieve(
            i: int = i,
            phase: Phase = phase,
            keep: int = keep,
            left: Any = left,
            fresh: list[Proxy] = fresh,
        ) -> dict[str, np.ndarray]:
            made = maker.make(i, phase, store.place(f"phase-{i}-training"))
            proxy = maker.bounded(made)
            fresh.append(proxy)
            kept = _checked(best(proxy, left, keep), left, keep)
            return {**proxy.arrays(), _LEFT: kept}

        found = store.once(f"phase-{i}", sieve)
        left = found.pop(_LEFT)
        proxies += fresh or [maker.bounded(Proxy.from_arrays(descriptions[i], found))]
        survivors.append(left)
    chosen = np.concatenate([rows, left]).astype(np.int32)
    return Phased(
        selection=Selection(
            indices=jnp.asarray(chosen),
            weights=jnp.ones(len(chosen), jnp.float32),
            n_valid=jnp.asarray(len(chosen), jnp.int32),
            method=f"select(budget={budget}, {len(schedule)} phases)",
        ),
        bootstrap=rows,
        labels=y,
        target=tuned,
        proxies=tuple(proxies),
        survivors=tuple(survivors),
        n=n,
    )


_LEFT = "survivors"  # beside a proxy's arrays, none of which has this name


@dataclasses.dataclass(frozen=True, eq=False)
class _InTheClear:
    """Ranks by scores that anybody could see: what the secure run does in secret."""

    pool: Samples
    base: Target | None

    def __call__(self, proxy: Proxy, rows: np.ndarray, count: int) -> np.ndarray:
        scores = proxy_ranks(proxy, self.pool.take(rows), base=self.base)
        return rows[np.asarray(choose(scores, count).indices)]


def proxy_ranks(
    proxy: Proxy, samples: Samples, *, base: Target | None = None, batch: int = 256
) -> np.ndarray:
    """Return the scores of samples in the clear, `[n]`.

    Args:
        proxy: The proxy.
        samples: The samples; embedded batch by batch.
        base: The public base model that embeds them; not needed by a probe.
        batch: Samples of one forward pass.

    Raises:
        ValueError: If the samples lack what the proxy reads.
    """
    if not proxy.manifest.layers:
        if samples.features is None:
            raise ValueError("samples must have features for a probe, got None")
        return proxy.scores(proxy.logits(samples.features, batch=4096))
    if samples.inputs is None or base is None:
        raise ValueError("samples must have inputs, and base be given, for this proxy")
    parts = []
    for start in range(0, len(samples), batch):
        part = take_rows_at(samples.inputs, slice(start, start + batch))
        read = proxy_inputs(proxy.manifest, base, part)
        parts.append(proxy.logits(*read, batch=batch))
    return proxy.scores(np.concatenate(parts))


class _Store:
    """Results of steps, each kept once it is there; nothing is kept without a folder.

    Args:
        folder: Where.
        run: What tells this run from others.
    """

    def __init__(self, folder: Path | None, run: str):
        self.folder, self.run = folder, run

    def place(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name

    def once(
        self, name: str, make: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        place = self.place(name)
        if place is None:
            return make()
        saved = Checkpoints(place, self.run)
        found = saved.load_arrays()
        if found is None:
            found = make()
            saved.save(1, found)
        return found


def _keeps(n: int, bought: int, schedule: Sequence[Phase], budget: int) -> list[int]:
    """Return how many rows each phase leaves, without the bootstrap set.

    Raises:
        ValueError: If that does not get fewer from phase to phase.
    """
    if not schedule:
        raise ValueError("schedule must hold at least one phase")
    if not bought < check_count("budget", budget) < n:
        raise ValueError(
            f"budget must be above the bootstrap set's {bought} samples and below the "
            f"pool's {n}, got {budget}"
        )
    keeps, before = [], n - bought
    for i, phase in enumerate(schedule):
        last = i == len(schedule) - 1
        if last != (phase.keep is None):
            raise ValueError(
                f"schedule[{i}].keep must be "
                f"{'None: the last phase leaves the budget' if last else 'a share'}, "
                f"got {phase.keep}"
            )
        keep = (budget if phase.keep is None else round(phase.keep * n)) - bought
        if not 0 < keep < before or keep < budget - bought:
            raise ValueError(
                f"schedule[{i}].keep must leave fewer than the {before + bought} "
                f"samples before it, and at least the budget {budget}, got "
                f"{keep + bought}"
            )
        keeps.append(keep)
        before = keep
    return keeps


def _check_needs(
    pool: Samples,
    distil: Samples | None,
    schedule: Sequence[Phase],
    target: Target | None,
) -> None:
    """Refuse what would fail after the bootstrap set is bought."""
    for i, phase in enumerate(schedule):
        probe, learns = isinstance(phase.proxy, ProbeSpec), phase.goal != "labels"
        if (learns or not probe) and target is None:
            raise ValueError(f"target must be given for schedule[{i}], got None")
        for name, samples in (("pool", pool), ("distil", distil if learns else None)):
            if samples is None:
                continue
            if probe and samples.features is None:
                raise ValueError(f"{name} must have features for schedule[{i}]")
            if (not probe or learns) and samples.inputs is None:
                raise ValueError(f"{name} must have inputs for schedule[{i}]")
    for name, samples in (("pool", pool), ("distil", distil)):
        if samples is None:
            continue
        if target is not None and samples.inputs is not None:
            given = target.check(samples.inputs)
            if type(given) is not type(samples.inputs):
                raise TypeError(
                    f"{name}.inputs must be {type(given).__name__}, got "
                    f"{type(samples.inputs).__name__}"
                )
        for part in ("inputs", "features"):
            own, wanted = (
                [np.shape(leaf)[1:] for leaf in jax.tree.leaves(getattr(held, part))]
                for held in (samples, pool)
            )
            if own and wanted and own != wanted:
                raise ValueError(
                    f"{name}.{part} must have rows of shape {wanted[0]} as the pool's, "
                    f"got {own[0]}"
                )


def _described(
    spec: Spec | ProbeSpec,
    pool: Samples,
    target: Target | None,
    classes: int,
    kind: Kind,
) -> Manifest:
    """Return the manifest of a phase's proxy."""
    if isinstance(spec, ProbeSpec):
        assert pool.features is not None  # see `_check_needs`
        width = pool.features.shape[1]
        return probe_manifest(
            width=width, classes=classes, head=spec.hidden, score=kind
        )
    assert target is not None
    tokens = pool.inputs if isinstance(pool.inputs, Tokens) else None
    return target_manifest(
        spec,
        target,
        length=None if tokens is None else tokens.ids.shape[1],
        classes=classes,
        score=kind,
    )


def _classes(labels: npt.ArrayLike, n: int, classes: int) -> np.ndarray:
    y = np.asarray(labels)
    check_same_length("labels", y, "bootstrap", np.empty(n))
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"labels must return integers [m], got {y.dtype} of shape {y.shape}"
        )
    if y.min() < 0 or y.max() >= classes:
        raise ValueError(
            f"labels must lie in [0, {classes}), got values from {y.min()} to {y.max()}"
        )
    return y.astype(np.int32)


def _checked(found: npt.ArrayLike, left: np.ndarray, keep: int) -> np.ndarray:
    rows = np.asarray(found)
    if rows.shape != (keep,) or len(set(rows.tolist())) < keep:
        raise ValueError(
            f"winners must return {keep} distinct rows, got shape {rows.shape} with "
            f"{len(set(rows.ravel().tolist()))} distinct ones"
        )
    if not np.isin(rows, left).all():
        raise ValueError("winners must return rows that it was given")
    return rows.astype(np.int32)
