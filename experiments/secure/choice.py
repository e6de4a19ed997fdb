"""A choice by a linear probe that is made in secret, all roles on this machine."""

from __future__ import annotations

import dataclasses
import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments._kit.texts import LAYERS, read_texts
from jaxsel.data import info
from jaxsel.models import available_models
from jaxsel.proxy import (
    Prepared,
    Proxy,
    Published,
    Samples,
    fit_probe,
    probe_manifest,
    with_bounds,
)

if TYPE_CHECKING:
    from mpc_bridge import Result

RUNS = ("spu-cheetah", "spu-aby3")
WIDTH = 384
SOURCES = {"movie_polarity": 10_568, "tweets": 38_158}
"""Data sets of texts to encode, and how many texts at most."""

_ENCODED = 2000  # of a quick run: the others are drawn with their moments
_LEARNT = 2000  # rows that the probe is fitted to
_PATIENCE = 600.0  # seconds: all roles share the cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Features to choose from, and where they come from.

    Attributes:
        x: `[n, WIDTH]` float32.
        source: In words.
    """

    x: np.ndarray
    source: str


def installed(engine: str) -> bool:
    """Return whether an engine can run here."""
    wanted = ("spu", "cryptography") if engine.startswith("spu") else ("crypten",)
    return all(importlib.util.find_spec(name) is not None for name in wanted)


def pool_of(n: int, *, full: bool, seed: int, progress: bool = False) -> Pool:
    """Return features of n samples.

    From MiniLM's last layer where it and the texts are prepared: all n real ones if
    `full`, as far as the texts reach; the others are normal draws with the mean and the
    covariance of the real ones. Standard normal draws where nothing is prepared.

    Args:
        n: Samples.
        full: Encode all texts, which takes long the first time.
        seed: Of the draws.
        progress: Show a bar.
    """
    rng = np.random.default_rng(seed)
    real = _encoded(n if full else min(n, _ENCODED), progress=progress)
    if not len(real):
        x = rng.normal(size=(n, WIDTH)).astype(np.float32)
        return Pool(x=x, source=f"{n:,} standard normal draws, no texts are prepared")
    more = n - len(real)
    if not more:
        return Pool(x=real, source=f"MiniLM's of {n:,} texts")
    draws = rng.multivariate_normal(
        real.mean(0), np.cov(real.T), size=more, method="cholesky", check_valid="ignore"
    )
    x = np.concatenate([real, draws.astype(np.float32)])
    return Pool(
        x=x[rng.permutation(n)],
        source=f"MiniLM's of {len(real):,} texts, and {more:,} normal draws with the "
        "same mean and covariance",
    )


def _encoded(n: int, *, progress: bool) -> np.ndarray:
    """Return at most n rows of features of texts; none if nothing is prepared."""
    ready = {model.name for model in available_models() if model.path is not None}
    parts = [np.zeros((0, WIDTH), np.float32)]
    for name, most in SOURCES.items():
        missing = n - sum(map(len, parts))
        if missing and "minilm" in ready and info(name).path is not None:
            texts = read_texts(name, min(missing, most), progress=progress)
            parts.append(texts.features[:, (len(LAYERS) - 1) * WIDTH :])
    return np.concatenate(parts)


def probe_of(pool: Pool, *, seed: int) -> Proxy:
    """Return a linear probe of a secret direction, fitted to a few labelled rows."""
    rng = np.random.default_rng([seed, 1])
    x = pool.x[rng.permutation(len(pool.x))[:_LEARNT]]
    z = (x - x.mean(0)) @ rng.normal(size=x.shape[1])
    labels = (z + 0.3 * z.std() * rng.normal(size=len(z)) > 0).astype(np.int32)
    head = fit_probe(x, labels, loss="labels", n_classes=2)
    manifest = probe_manifest(width=x.shape[1], n_classes=2)
    return with_bounds(Proxy.of_probe(manifest, head), pool.x)


def in_the_clear(proxy: Proxy, x: np.ndarray, keep: int) -> np.ndarray:
    """Return the rows with the highest scores; of equal ones the lower."""
    scores = np.asarray(proxy.scores(proxy.logits(x)))
    return np.sort(np.argsort(-scores, kind="stable")[:keep])


def in_secret(
    proxy: Proxy,
    x: np.ndarray,
    keep: int,
    engine: str,
    *,
    seed: int,
    progress: bool = False,
) -> tuple[Result, Result]:
    """Choose rows in secret, all roles on this machine.

    Args:
        proxy: A probe.
        x: Features that it reads, `[n, d]`.
        keep: How many to choose.
        engine: One of `RUNS`, or "crypten".
        seed: Of the pivots.
        progress: Show bars.

    Returns:
        The results of the model owner and of the data owner.

    Raises:
        RuntimeError: If the run fails.
    """
    from mpc_bridge import Result, run_selection

    published = Published(
        n=len(x), bootstrap=(), keeps=(keep,), manifests=(proxy.manifest,)
    )
    with tempfile.TemporaryDirectory() as folder:
        run_selection(
            Prepared(published=published, proxies=(proxy,)),
            Samples(features=x),
            engine=engine,
            name=f"experiment {seed}",
            seed=seed,
            output=folder,
            timeout=_PATIENCE,
            measure=False,
            notice=False,
            progress=progress,
        )
        model, data = (
            Result.read(Path(folder) / role) for role in ("model-owner", "data-owner")
        )
    return model, data


def choose(
    engine: str, n: int, keep: int, *, full: bool, seed: int, progress: bool = False
) -> dict[str, Any]:
    """Choose in secret, all roles on this machine, and compare with the clear choice.

    Args:
        engine: One of `RUNS`, or "crypten".
        n: Rows.
        keep: How many to choose.
        full: As for `pool_of`.
        seed: Of the features, the probe and the pivots.
        progress: Show bars.

    Returns:
        Figures by name: the fields of `Choices`, and the features' source.

    Raises:
        RuntimeError: If the run fails.
    """
    pool = pool_of(n, full=full, seed=seed, progress=progress)
    probe = probe_of(pool, seed=seed)
    start = time.perf_counter()
    model, data = in_secret(probe, pool.x, keep, engine, seed=seed, progress=progress)
    wall = time.perf_counter() - start
    total, choice = model.total(), model.total(place="choice")
    clear = in_the_clear(probe, pool.x, keep)
    return {
        "source": pool.source,
        "megabytes": np.array([total.sent / 1e6, data.total().sent / 1e6]),
        "choice_megabytes": choice.bytes / 1e6,
        "rounds": total.rounds,
        "passes": model.phases[0].passes,
        "wall": wall,
        "working": max(total.seconds, data.total().seconds),
        "choosing": choice.seconds,
        "same": np.isin(model.rows, clear).mean(),
    }
