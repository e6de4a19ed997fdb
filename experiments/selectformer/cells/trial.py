"""One seed of a cell: proxies by the paper's recipe, purchases, and training."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments._kit.reading import Cell
from experiments._kit.seeds import free_programs
from experiments._kit.store import remembered
from experiments.selectformer.sources import KEPT
from jaxsel.models import Target, finetune
from jaxsel.proxy import (
    Proxy,
    Training,
    check_monotonicity,
    draw_bootstrap,
    embed,
    emulate,
    entropy,
    fit_probe,
    monotonicity,
    prune,
    target_manifest,
    tune,
)

from .grid import PROBE, TYPICAL, Cut, Way, cuts

BOOTSTRAP = 0.05
POINTS = 5_120_000
"""Points that an emulator is trained on, drawn from a Gaussian: the paper's."""

TUNING = Training(6, 16, 5e-5)
"""How a target is fine-tuned, on the bootstrap set and on each purchase; the paper does
not say."""

EPOCHS, BATCH = 20, 20
RATES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5)
"""Rates that a proxy is trained at, the highest first, until one is accepted."""

ACCEPTED = 0.9
"""Rank correlation of emulated with exact entropies on the bootstrap set that `select`
asks for. A proxy that has less at each rate counts as refused."""

KEPT_CLASS = {"glue/qqp": 1}
"""The class that stays whole, where the paper's size of the pool tells; else one of
those that are at least four fifths as large as the largest, drawn by each seed."""

_BLOCK = 1024
_log = logging.getLogger("experiments")


class Offer(NamedTuple):
    """Samples offered for one seed.

    Attributes:
        rows: Of the pool.
        first: Places in the pool of the bootstrap set.
        left: Places in the pool of all other samples.
        test: Rows that are tested on.
    """

    rows: np.ndarray
    first: np.ndarray
    left: np.ndarray
    test: np.ndarray


def deal(cell: Cell, seed: int) -> Offer:
    """Keep one class of the training samples, cut each other one to a ninth of it.

    The rule is inferred from the sizes of the paper's pools, all seven of which follow.

    Raises:
        ValueError: If the pool is too small for a bootstrap set and a purchase.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(cell.train)
    by_class = [order[cell.y[order] == c] for c in range(cell.n_classes)]
    sizes = np.array([len(rows) for rows in by_class])
    kept = KEPT_CLASS.get(cell.name)
    if kept is None:
        kept = int(draw.choice(np.flatnonzero(sizes >= 0.8 * sizes.max())))
    limits = np.minimum(round(sizes[kept] / KEPT), sizes)
    limits[kept] = sizes[kept]
    rows = draw.permutation(
        np.concatenate([r[:limit] for r, limit in zip(by_class, limits, strict=True)])
    )
    n = len(rows)
    if n < 40:
        raise ValueError(
            f"--data {cell.name!r} must give a pool of 40 samples, got {n}"
        )
    first = draw_bootstrap(jax.random.key(seed), n, BOOTSTRAP)
    candidates = np.setdiff1d(np.arange(n), first)
    return Offer(rows, first, candidates, np.arange(cell.train, len(cell.y)))


def trial(
    cell: Cell, compared: Mapping[str, Way], seed: int, folder: Path
) -> dict[str, np.ndarray]:
    """Choose from one pool in all ways, and fine-tune the target on each purchase.

    The scores, and the accuracy after each purchase, are kept in a file each: a killed
    run goes on with the next purchase.

    Args:
        cell: Data and target.
        compared: The ways, by name.
        seed: Deals the pool, and draws all else.
        folder: Where the files are kept.

    Returns:
        `n`; `accuracy`, `[W]`, NaN for a way of which a proxy was refused; `rho`,
        `[W]`: rank correlation of the last phase with the target's entropies; and by
        proxy, `[K]`, the accepted `rate`, how many were `refused`, and `emulated`.
    """
    offered = deal(cell, seed)
    proxy_cuts = cuts(compared.values())
    settings = {
        "cell": [cell.name, cell.digest, KEPT_CLASS.get(cell.name)],
        "tuning": repr(TUNING),
        "seed": seed,
    }
    recipe = [BOOTSTRAP, POINTS, EPOCHS, BATCH, RATES, ACCEPTED]
    scored = remembered(
        folder / f"scores-{seed}.npz",
        {**settings, "cuts": [list(cut) for cut in proxy_cuts], "recipe": recipe},
        lambda: _scores(cell, offered, proxy_cuts, seed),
    )
    oracle = scored["oracle"]
    scores = dict(zip([*proxy_cuts, PROBE], scored["scores"], strict=True))
    accuracy, rho = list[float](), list[float]()
    for number, (name, way) in enumerate(compared.items(), 1):
        chosen = _chosen(way, scores, oracle, offered, seed)
        rho.append(_rho(way, scores, oracle))
        if chosen is None:
            accuracy.append(np.nan)
            continue
        places = np.sort(np.concatenate([offered.first, offered.left[chosen]]))
        purchase = remembered(
            folder / f"bought-{name.replace(', ', '-')}-{seed}.npz",
            {**settings, "rows": places.tolist()},
            lambda places=places: {"accuracy": _trained(cell, offered, places, seed)},
        )
        accuracy.append(float(purchase["accuracy"]))
        _log.info(
            "seed %d, purchase %d of %d: %s, %d samples, accuracy %.1f %%",
            *(seed, number, len(compared), name, len(places), 100 * accuracy[-1]),
        )
    return {
        "n": np.array(len(offered.rows)),
        "accuracy": np.array(accuracy),
        "rho": np.array(rho),
        **{name: scored[name] for name in ("rate", "refused", "emulated")},
    }


def _scores(
    cell: Cell, offered: Offer, made: Sequence[Cut], seed: int
) -> dict[str, Any]:
    """Score all that is left, by the target and by each proxy `[K + 1, m]`."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    first, candidates = offered.rows[offered.first], offered.rows[offered.left]
    sold, y = cell.take(first), cell.y[first]
    tuned = _finetuned(cell.target, sold, y, seed)
    oracle = np.asarray(
        entropy(jnp.asarray(_in_blocks(cell, candidates, tuned.logits)))
    )
    _log.info("seed %d: the target is fine-tuned, and has scored the pool", seed)
    # The sub-model of section 4.2: the bottom layers alone learn the bootstrap set.
    layers = max((design.layers for design in made), default=1)
    backbone = _finetuned(_bottom(cell.target, layers), sold, y, seed)
    pruned = [
        prune(
            backbone,
            target_manifest(
                design.spec(),
                backbone,
                n_classes=cell.n_classes,
                length=sold.ids.shape[1] if cell.target.config.kind == "text" else None,
            ),
        )
        for design in made
    ]
    read = embed(cell.target, sold)
    fitted = emulate(
        pruned,
        *read,
        key=jax.random.fold_in(key, 0),
        source="gaussian",
        n_points=POINTS,
    )
    lessons = {"labels": y, "logits": tuned.logits(sold)}
    rows: list[np.ndarray] = []
    rates, refused, emulated = list[float](), list[int](), list[float]()
    for design, untrained in zip(made, fitted, strict=True):
        proxy, rate, failures, rank = _accepted(untrained, design, read, lessons, key)
        rates.append(rate)
        refused.append(failures)
        emulated.append(rank)
        rows.append(np.full(len(candidates), np.nan))
        if np.isfinite(rate):
            logits = _in_blocks(
                cell,
                candidates,
                lambda part, proxy=proxy: _logits(proxy, cell.target, part),
            )
            rows[-1] = _last(proxy.scores(logits, finite=False))
        _log.info(
            "seed %d: proxy %s, %s",
            seed,
            tuple(design),
            f"rate {rate:g}" if np.isfinite(rate) else "refused at each rate",
        )
        free_programs()
    rows.append(_by_probe(cell, first, candidates))
    return {
        "oracle": oracle,
        "scores": np.stack(rows),
        "rate": np.array(rates),
        "refused": np.array(refused, int),
        "emulated": np.array(emulated),
    }


def _accepted(
    untrained: Proxy,
    cut: Cut,
    read: tuple[np.ndarray, np.ndarray],
    lessons: Mapping[str, np.ndarray],
    key: jax.Array,
) -> tuple[Proxy, float, int, float]:
    """Train at one rate after the other until the emulated score ranks as the exact.

    Returns:
        The proxy, its rate or NaN if none was accepted, how many were refused, and the
        rank correlation that decided.
    """
    proxy, rank = untrained, np.nan
    for failures, rate in enumerate(RATES):
        proxy, trained = tune(
            untrained,
            *read,
            lessons[cut.goal],
            goal=cut.goal,
            # The same key for each proxy and rate, so that only the setting differs.
            key=jax.random.fold_in(key, 1),
            epochs=EPOCHS,
            batch_size=BATCH,
            learning_rate=rate,
            min_correlation=None,  # asked below, once all is trained
        )
        logits = proxy.logits(*read)
        scores = proxy.scores(logits, finite=False)
        if trained.stopped or not np.isfinite([*scores, *logits.ravel()]).all():
            continue
        exact = np.asarray(entropy(jnp.asarray(logits)))
        rank = monotonicity(scores, exact)
        # The check raises if the correlation is too low: try the next, lower rate.
        with contextlib.suppress(ValueError):
            check_monotonicity(scores, exact, min_correlation=ACCEPTED)
            return proxy, rate, failures, rank
    return proxy, np.nan, len(RATES), rank


def _by_probe(cell: Cell, first: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return a linear probe's entropies: it learns the bootstrap set's labels."""
    depth = cell.target.config.layers
    layers = sorted({max(1, round(depth * part / 3)) for part in (1, 2, 3)})
    features = lambda part: cell.target.features(part, layers=layers)
    probe = fit_probe(
        _in_blocks(cell, first, features),
        cell.y[first],
        loss="labels",
        n_classes=cell.n_classes,
        l2=0.1,
    )
    logits = _in_blocks(cell, left, features) @ np.asarray(probe.weights[0])
    return np.asarray(entropy(jnp.asarray(logits + np.asarray(probe.biases[0]))))


def _chosen(
    way: Way,
    scores: Mapping[Cut, np.ndarray],
    oracle: np.ndarray,
    offered: Offer,
    seed: int,
) -> np.ndarray | None:
    """Return places in `offered.left`, or None where a proxy was refused."""
    n, bought = len(offered.rows), len(offered.first)
    keep = lambda share: min(round(share * n) - bought, len(offered.left))
    if way.by == "random":
        draw = np.random.default_rng([seed, 1]).permutation(len(offered.left))
        return draw[: keep(way.budget)]
    if way.by == "target":
        return _top(oracle, keep(way.budget))
    rows = np.arange(len(offered.left))
    for cut, share in way.phases:
        if np.isnan(scores[cut]).any():
            return None
        # A larger budget leaves proportionally more in the phases before the last.
        part = way.budget if share is None else share * way.budget / TYPICAL
        rows = rows[_top(scores[cut][rows], keep(min(part, 1.0)))]
    return rows


def _rho(way: Way, scores: Mapping[Cut, np.ndarray], oracle: np.ndarray) -> float:
    if way.by != "proxies":
        return np.nan if way.by == "random" else 1.0
    last = scores[way.phases[-1][0]]
    if np.isnan(last).any():
        return np.nan
    return monotonicity(np.maximum(last, np.finfo(np.float32).min), oracle)


def _trained(cell: Cell, offered: Offer, places: np.ndarray, seed: int) -> float:
    """Return the test accuracy of the target, fine-tuned on some of the pool.

    One key for all purchases, so that only the samples differ.
    """
    rows = offered.rows[places]
    tuned = _finetuned(cell.target, cell.take(rows), cell.y[rows], seed)
    logits = _in_blocks(cell, offered.test, tuned.logits)
    free_programs()
    return float((logits.argmax(1) == cell.y[offered.test]).mean())


def _finetuned(target: Target, inputs: Any, y: np.ndarray, seed: int) -> Target:
    """Return a target that is fine-tuned on some samples.

    Raises:
        ValueError: If the training diverges.
    """
    result = finetune(
        target.graphdef,
        target.params,
        inputs,
        y,
        key=jax.random.fold_in(jax.random.key(seed), 2),
        **dataclasses.asdict(TUNING),
    )
    if result.stopped:
        raise ValueError(f"fine-tuning the target failed: {result.stopped}")
    return dataclasses.replace(target, params=result.params)


def _bottom(target: Target, layers: int) -> Target:
    """Return the bottom layers of a target as one of its own, with its head."""
    model: Any = nnx.merge(target.graphdef, target.params)
    model.encoder.layers = nnx.List([*model.encoder.layers][:layers])
    config = dataclasses.replace(target.config, layers=layers)
    graphdef, params = nnx.split(model, nnx.Param)
    return dataclasses.replace(target, config=config, graphdef=graphdef, params=params)


def _logits(proxy: Proxy, base: Target, part: Any) -> np.ndarray:
    return proxy.logits(*embed(base, part))


def _in_blocks(cell: Cell, rows: np.ndarray, of: Any) -> np.ndarray:
    """Apply a function to the inputs of some rows, `_BLOCK` rows at a time."""
    parts = [
        of(cell.take(rows[start : start + _BLOCK]))
        for start in range(0, len(rows), _BLOCK)
    ]
    return np.concatenate(parts)


def _last(scores: np.ndarray) -> np.ndarray:
    """Replace NaN and inf by -inf, so that overflowed scores rank last."""
    return np.nan_to_num(scores, nan=-np.inf, posinf=-np.inf)


def _top(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the highest scores; of equal ones the lower."""
    return np.argsort(-scores, kind="stable")[:count]
