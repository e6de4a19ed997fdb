"""Multi-phase selection: cheap proxies sieve the pool, dearer ones the rest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.show import brief
from jaxsel._results.types import Selection
from jaxsel._runs.checkpoints import run_digest
from jaxsel.models import Target
from jaxsel.proxy._cost._choice import ChoiceCost, choice_cost
from jaxsel.proxy._cost._cost import Cost, Network, cost
from jaxsel.proxy._manifest import Kind
from jaxsel.proxy._proxy import Proxy

from ._bootstrap import bootstrap_size
from ._data_owner import DataOwner
from ._messages import Plan, Published
from ._model_owner import ModelOwner
from ._plan import Phase, Samples, Training
from ._proxy_maker import Prepared, ProxyMaker
from ._store import Store

Winners = Callable[[Proxy, np.ndarray, int], npt.ArrayLike]
"""From a proxy, m rows of the pool and a number k to the k of these rows with the
highest scores. In secret, nothing is opened but the outcomes of comparisons."""


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Phased:
    """The result of a selection in phases.

    Attributes:
        selection: The rows to buy: the bootstrap set, then those of the last phase.
        bootstrap: Rows of the bootstrap set, `[m]`.
        labels: Their classes, `[m]`.
        target: The target, fine-tuned on the bootstrap set; None if no phase needs it.
        proxies: The proxy of each phase.
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
        self, network: Network | None = None, *, batch_size: int = 64
    ) -> list[tuple[Cost, ChoiceCost]]:
        """Count each phase's secure forward passes, and its choice."""
        counted: list[tuple[Cost, ChoiceCost]] = []
        remaining = self.n - len(self.bootstrap)
        for proxy, rows in zip(self.proxies, self.survivors, strict=True):
            passes = cost(proxy.manifest, remaining, network, batch_size=batch_size)
            counted.append((passes, choice_cost(remaining, len(rows), network)))
            remaining = len(rows)
        return counted

    @property
    def prepared(self) -> Prepared:
        """The model owner's part, for the secure run; see `ProxyMaker.prepare`."""
        published = Published(
            n=self.n,
            bootstrap=tuple(self.bootstrap.tolist()),
            keeps=tuple(len(rows) for rows in self.survivors),
            manifests=tuple(proxy.manifest for proxy in self.proxies),
        )
        return Prepared(published=published, proxies=self.proxies)


def select(
    pool: Samples,
    schedule: Sequence[Phase],
    budget: int,
    *,
    labels: Callable[[np.ndarray], npt.ArrayLike],
    key: jax.Array,
    secret: jax.Array,
    target: Target | None = None,
    n_classes: int | None = None,
    bootstrap: float = 0.05,
    kind: Kind = "entropy",
    distil: Samples | None = None,
    tuning: Training = Training(6, 16, 1e-4),
    heads: Literal["weights", "gradient"] = "weights",
    winners: Winners | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Phased:
    """Choose samples of a pool to buy, by one proxy of a target after the other.

    The owner of the pool draws a bootstrap set under a jointly chosen key, and sells it
    with labels. The target is fine-tuned on it; each phase's proxy is cut from that,
    its emulators fitted ex vivo on the bootstrap set, then trained in vivo. Each phase
    ranks the rows that the one before has left.

    This is both parties' work in one process: a `ModelOwner` plans, learns and makes
    proxies; a `DataOwner` offers, sells and ranks.

    Args:
        pool: The samples to choose from. For proxies, texts must be padded to one
            length, which a secure run computes for each of them.
        schedule: The phases, the cheapest first.
        budget: Samples to buy, the bootstrap set counted.
        labels: From rows to their classes, integers: called once, for the bootstrap
            set, when that is bought.
        key: Of the bootstrap set, known to both parties; see `joint_key`.
        secret: The model owner's own key, of all else that is random: with a known key
            and a public base model, the data owner could train the same target.
        target: The public base model with a head of C classes; needed by proxies, and
            by probes unless their goal is "labels".
        n_classes: C, if there is no target.
        bootstrap: Share of the pool that is drawn at random.
        kind: Score that ranks samples, see `score`; the prior is that of the
            bootstrap set, each class counted once more than it is there.
        distil: Unlabelled samples that the model owner has.
        tuning: How the target is fine-tuned.
        heads: Which heads a proxy keeps: the most important ones, by their weights or
            by the gradient of the loss on the bootstrap set.
        winners: Ranks in place of the data owner, who by default ranks here, in the
            clear.
        folder: State is saved there by orbax: the purchase, the target's training, and
            after each phase its proxy and the rows that are left. A killed run
            resumes from it and produces identical results.
        progress: Show bars.

    Returns:
        The selection, with the proxies and the survivors of all phases.

    Raises:
        ValueError: If the schedule does not lead to the budget, something that a phase
            needs is missing, labels lie out of range, a proxy's training did not go
            well enough to rank by it, or `folder` holds another run.

    References:
        Ouyang et al., SelectFormer, section 3 (multi-phase selection); the guide
        to proxies says what it leaves open.
    """
    owner = ModelOwner(
        schedule=schedule,
        budget=budget,
        secret=secret,
        target=target,
        n_classes=n_classes,
        bootstrap=bootstrap,
        kind=kind,
        distil=distil,
        tuning=tuning,
        heads=heads,
    )
    seller = DataOwner(pool=pool, base=target)
    plan = owner.plan(seller.offer())
    store = Store(folder, _run_digest(owner, plan, pool, key))

    def buy() -> dict[str, np.ndarray]:
        return {"labels": seller.sell(plan, labels, key=key).labels}

    # Labels are bought once: a run that resumes reads them.
    y = store.once("bootstrap", buy)["labels"]
    sold = seller.sell(plan, lambda rows: y, key=key)
    maker = owner.learn(
        plan, sold, key=key, checkpoint=store.place("target"), progress=progress
    )
    best = winners or seller.choose
    remaining = np.setdiff1d(np.arange(plan.n), sold.rows)
    proxies: list[Proxy] = []
    survivors: list[np.ndarray] = []
    for i in range(len(plan.keeps)):
        proxy, remaining = _sieve(maker, i, remaining, best, store, progress=progress)
        proxies.append(proxy)
        survivors.append(remaining)
    chosen = np.concatenate([sold.rows, remaining]).astype(np.int32)
    return Phased(
        selection=Selection(
            indices=jnp.asarray(chosen),
            weights=jnp.ones(len(chosen), jnp.float32),
            n_valid=jnp.asarray(len(chosen), jnp.int32),
            method=f"select(budget={budget}, {len(plan.keeps)} phases)",
        ),
        bootstrap=sold.rows,
        labels=sold.labels,
        target=maker.tuned,
        proxies=tuple(proxies),
        survivors=tuple(survivors),
        n=plan.n,
    )


_LEFT = "survivors"  # beside a proxy's arrays, none of which has this name


def _sieve(
    maker: ProxyMaker,
    i: int,
    rows: np.ndarray,
    best: Winners,
    store: Store,
    *,
    progress: bool,
) -> tuple[Proxy, np.ndarray]:
    """Return the proxy of phase i, and the rows that it leaves."""
    trained: list[Proxy] = []  # none if the phase is read from the folder
    keep = maker.plan.keeps[i]

    def make_and_rank() -> dict[str, np.ndarray]:
        place = store.place(f"phase-{i}-training")
        proxy = maker.make(i, checkpoint=place, progress=progress)
        trained.append(proxy)
        kept = _checked(best(proxy, rows, keep), rows, keep)
        return {**proxy.arrays(), _LEFT: kept}

    arrays = store.once(f"phase-{i}", make_and_rank)
    remaining = arrays.pop(_LEFT)
    return (trained[0] if trained else maker.restore(i, arrays)), remaining


def _run_digest(owner: ModelOwner, plan: Plan, pool: Samples, key: jax.Array) -> str:
    """Return a digest of everything that a run's results depend on."""
    base = owner.base
    settings = {
        "target": None if base is None else [repr(base.config), base.read],
        "budget": owner.budget,
        "bootstrap": bootstrap_size(plan.n, plan.bootstrap),
        "schedule": repr(owner.schedule),
        "keeps": plan.keeps,
        "kind": owner.kind,
        "tuning": repr(owner.tuning),
        "heads": owner.heads,
        "n_classes": plan.n_classes,
    }
    held = tuple(
        None if samples is None else (samples.inputs, samples.features)
        for samples in (pool, owner.distil)
    )
    drawn = [jax.random.key_data(draw_key) for draw_key in (key, owner.secret)]
    return run_digest(settings, held, None if base is None else base.params, drawn)


def _checked(winners: npt.ArrayLike, candidates: np.ndarray, keep: int) -> np.ndarray:
    rows = np.asarray(winners)
    if rows.shape != (keep,) or len(set(rows.tolist())) < keep:
        raise ValueError(
            f"winners must return {keep} distinct rows, got shape {rows.shape} with "
            f"{len(set(rows.ravel().tolist()))} distinct ones"
        )
    if not np.isin(rows, candidates).all():
        raise ValueError("winners must return rows that it was given")
    return rows.astype(np.int32)
