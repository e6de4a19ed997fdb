"""The data owner's steps: offer a pool, sell the bootstrap set, rank the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import numpy.typing as npt

from jaxsel._inputs.chunk import take_rows_at
from jaxsel._inputs.show import brief
from jaxsel.models import Target, Tokens
from jaxsel.proxy._choose import choose
from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._proxy import Proxy
from jaxsel.proxy._training._build import proxy_inputs

from ._bootstrap import draw_bootstrap
from ._messages import Bootstrap, Offer, Plan, check_labels
from ._plan import Samples, check_inputs


@brief
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class DataOwner:
    """The data owner's side of a selection in phases.

    Its steps, in order: `offer` tells the size of the pool, `sell` hands over the
    bootstrap set, and each phase's ranking reads `proxy_inputs`, in secret by
    `mpc_bridge.run_selection`. `choose` ranks in the clear, by a proxy that the model
    owner has shown.

    Attributes:
        pool: The samples to choose from: this party's secret.
        base: The public base model that embeds them; not needed by probes.

    Raises:
        TypeError: If the pool has other inputs than the base model reads.
        ValueError: If they do not fit the base model.
    """

    pool: Samples = dataclasses.field(repr=False)
    base: Target | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_inputs("pool", self.pool, self.base)

    def offer(self) -> Offer:
        """Return the size and the shapes of the pool, for the model owner to plan.

        Raises:
            ValueError: If features are not `[n, d]`.
        """
        inputs, features = self.pool.inputs, self.pool.features
        if features is not None and np.ndim(features) != 2:
            raise ValueError(
                f"pool.features must have shape [n, d], got {np.shape(features)}"
            )
        leaves = jax.tree.leaves(inputs)
        return Offer(
            n=len(self.pool),
            tokens=isinstance(inputs, Tokens),
            inputs=tuple(np.shape(leaf)[1:] for leaf in leaves) if leaves else None,
            features=None if features is None else np.shape(features)[1:],
        )

    def sell(
        self,
        plan: Plan,
        labels: Callable[[np.ndarray], npt.ArrayLike],
        *,
        key: jax.Array,
    ) -> Bootstrap:
        """Draw the bootstrap set, and hand it over with labels.

        Args:
            plan: The model owner's answer to the offer.
            labels: From rows to their classes, integers; called once.
            key: The joint key, see `joint_key`.

        Raises:
            ValueError: If the plan is for another pool, or labels are not in
                `[0, plan.n_classes)`.
        """
        if plan.n != len(self.pool):
            raise ValueError(
                f"plan must be for the pool's {len(self.pool)} samples, got {plan.n}"
            )
        rows = draw_bootstrap(key, plan.n, plan.bootstrap)
        y = check_labels(labels(rows), len(rows), plan.n_classes)
        return Bootstrap(rows=rows, samples=self.pool.take(rows), labels=y)

    def proxy_inputs(self, manifest: Manifest) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the pool as a proxy reads it, and its mask, for the secure run.

        Returns:
            Features `[n, d]` and None for a probe; embedded rows `[n, L, H]`, or token
            ids `[n, L]`, and the mask `[n, L]` for a proxy.

        Raises:
            ValueError: If the pool lacks what the proxy reads, or `base` is missing.
        """
        if not manifest.layers:
            return _features(self.pool), None
        base = _base(self.pool, self.base)
        return proxy_inputs(manifest, base, self.pool.inputs)

    def choose(self, proxy: Proxy, rows: np.ndarray, k: int) -> np.ndarray:
        """Return the k of these rows with the highest scores, best first.

        In the clear: the proxy's parameters are shown to the data owner.
        """
        scores = proxy_ranks(proxy, self.pool.take(rows), base=self.base)
        return rows[np.asarray(choose(scores, k).indices)]


def proxy_ranks(
    proxy: Proxy,
    samples: Samples,
    *,
    base: Target | None = None,
    batch_size: int = 256,
    finite: bool = True,
) -> np.ndarray:
    """Return the scores of samples in the clear, `[n]`.

    Args:
        proxy: The proxy.
        samples: The samples; embedded batch by batch.
        base: The public base model that embeds them; not needed by a probe.
        batch_size: Samples of one forward pass.
        finite: Whether scores that are not finite are refused.

    Raises:
        ValueError: If the samples lack what the proxy reads, or a score is not finite.
    """
    manifest = proxy.manifest
    if not manifest.layers:
        features = _features(samples)
        logits = proxy.logits(features, batch_size=4096)
        return proxy.scores(logits, finite=finite)
    base = _base(samples, base)
    parts: list[np.ndarray] = []
    for start in range(0, len(samples), batch_size):
        part = take_rows_at(samples.inputs, slice(start, start + batch_size))
        read = proxy_inputs(manifest, base, part)
        parts.append(proxy.logits(*read, batch_size=batch_size))
    return proxy.scores(np.concatenate(parts), finite=finite)


def _features(samples: Samples) -> np.ndarray:
    if samples.features is None:
        raise ValueError("samples must have features for a probe, got None")
    return samples.features


def _base(samples: Samples, base: Target | None) -> Target:
    if samples.inputs is None or base is None:
        raise ValueError("samples must have inputs, and base be given, for this proxy")
    return base
