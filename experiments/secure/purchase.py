"""Purchases from real pools, chosen in secret and in the clear: do both train alike?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments.selectformer.scores.trial import (
    BOOTSTRAP,
    BUDGETS,
    LEARNER,
    accuracies,
)
from experiments.selectformer.sources import SOURCES, Source, deal, kind
from jaxsel.data import info
from jaxsel.models import available_models
from jaxsel.proxy import (
    Proxy,
    draw_bootstrap,
    emulate,
    fit_probe,
    out_of_bounds,
    probe_manifest,
    with_bounds,
)
from jaxsel.value import ModelUtility

from .choice import in_secret, in_the_clear

MOST = 1000
"""Samples of the kept class at most."""


def purchase(engine: str, source: Source, seed: int) -> dict[str, Any]:
    """Buy a fifth of an imbalanced pool in secret, and as much in the clear.

    A linear probe of the labels of a bootstrap set ranks by its margin, as the guide to
    accuracy advises: of two classes as entropy does.

    Args:
        engine: As for `in_secret`.
        source: Where the pool is from.
        seed: Deals the pool, and draws all else.

    Returns:
        Figures by name: the fields of `Purchases`.

    Raises:
        RuntimeError: If the run fails.
    """
    key = jax.random.key(seed)
    pool = deal(source, jax.random.fold_in(key, 0), MOST)
    x, y = source.x[pool.rows], source.y[pool.rows]
    first = draw_bootstrap(jax.random.fold_in(key, 1), len(y), BOOTSTRAP)
    candidates = np.setdiff1d(np.arange(len(y)), first)
    keep = round(BUDGETS[0] * len(y)) - len(first)
    probe = _probe(x[first], y[first], source.n_classes, jax.random.fold_in(key, 2))
    # A secure run refuses what lies beyond the bootstrap set's bounds.
    offered = np.delete(candidates, out_of_bounds(probe.manifest, x[candidates]).rows)
    model, _ = in_secret(probe, x[offered], keep, engine, seed=seed)
    secret = np.asarray(model.rows)
    clear = in_the_clear(probe, x[offered], keep)
    draws = jax.random.permutation(jax.random.fold_in(key, 3), len(candidates))[:keep]
    masks = np.zeros((3, len(y)), bool)
    masks[:, first] = True
    masks[0, offered[secret]] = masks[1, offered[clear]] = True
    masks[2, candidates[np.asarray(draws)]] = True
    utility = ModelUtility(LEARNER, x, y, source.x[pool.test], source.y[pool.test])
    return {
        "n": len(offered),
        "refused": len(candidates) - len(offered),
        "same": np.isin(secret, clear).mean(),
        "accuracy": accuracies(utility, [*masks]),
        "tested": len(pool.test),
    }


def prepared() -> dict[str, Callable[[], Source]]:
    """Return readers of the data sets that are prepared, by name."""
    ready = {model.name for model in available_models() if model.path is not None}
    return {
        name: functools.partial(read, False)
        for name, read in SOURCES.items()
        if info(name).path is not None
        and ("minilm" in ready if kind(name) == "text" else info("mnist").path)
    }


def _probe(x: np.ndarray, y: np.ndarray, n_classes: int, key: jax.Array) -> Proxy:
    head = fit_probe(x, y, loss="labels", n_classes=n_classes, l2=0.1)
    described = probe_manifest(width=x.shape[1], n_classes=n_classes, score="margin")
    (proxy,) = emulate([Proxy.of_probe(described, head)], x, None, key=key)
    return with_bounds(proxy, x)
