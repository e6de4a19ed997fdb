"""One seed of the filtering experiments: thresholds, and what clients learn then."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

from jaxsel.filter import (
    class_thresholds,
    cross_fitted_losses,
    federated_threshold,
    loss_threshold,
    mixture_threshold,
    quantile_threshold,
    sample_losses,
)
from jaxsel.models import FederatedRun, accuracy, fed_avg

from ._filter_scene import Federation, FilterSizes, draw_federation
from ._mycroft_models import Net, new_net
from ._mycroft_trainer import Samples, take

FILTERS = ("threshold", "cross-fitted", "per class", "quantile", "mixture")
"""Ways to filter. The first splits the benchmark set in two, as the paper does; the
next three use the losses of five folds, and the last none."""

TRAINED = ("no selection", "threshold", "cross-fitted", "quantile")
"""What clients are trained on, beside clean samples alone."""

BINS = np.geomspace(1e-4, 30.0, 61)
"""Edges of the histograms of losses; what lies outside is counted in the last ones."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """A benchmark set with what was trained on it.

    Attributes:
        net: Trained on all of it.
        half: Trained on one half.
        held_out: Losses of the other half under `half`.
        folds: Losses of all of it, each under a model that has not seen the sample.
    """

    net: Net
    half: Net
    held_out: np.ndarray
    folds: np.ndarray


def losses_of(net: Net, samples: Samples) -> np.ndarray:
    """Return the cross-entropy of each sample, `[n]`."""
    x, y = samples
    return sample_losses(_cross_entropy(net.graphdef), net.params, (x, y))


@functools.cache
def _cross_entropy(graphdef: nnx.GraphDef) -> Callable[[Any, Any], jax.Array]:
    def loss(params: Any, example: tuple[jax.Array, jax.Array]) -> jax.Array:
        scores = nnx.merge(graphdef, params)(example[0][None])[0]
        return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])

    return loss


def train_bench(
    benchmark: Samples, fresh: Net, sizes: FilterSizes, key: jax.Array
) -> Bench:
    """Train the models that a benchmark set gives."""
    keys = [jax.random.fold_in(key, i) for i in range(4)]
    x, y = benchmark

    def fit(x: np.ndarray, y: np.ndarray, key: jax.Array) -> Callable[..., np.ndarray]:
        net = fresh.trained(x, y, sizes.fit, key)
        return lambda *samples: losses_of(net, samples)

    order = np.asarray(jax.random.permutation(keys[0], len(y)))
    one, other = np.array_split(order, 2)
    half = fresh.trained(x[one], y[one], sizes.fit, keys[1])
    return Bench(
        net=fresh.trained(x, y, sizes.fit, keys[2]),
        half=half,
        held_out=losses_of(half, take(benchmark, other)),
        folds=cross_fitted_losses(fit, x, y, folds=sizes.folds, key=keys[3]),
    )


def filtered(
    scene: Federation, bench: Bench
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return which samples each of `FILTERS` keeps, and facts about the first two."""
    halves, whole = (losses_of(net, scene.samples) for net in (bench.half, bench.net))
    names = np.unique(scene.clients)
    server = federated_threshold(
        bench.held_out, {str(c): halves[scene.clients == c] for c in names}
    )
    crossed = loss_threshold(bench.folds, whole)
    labels = scene.samples[1]
    by_class = class_thresholds(bench.folds, scene.benchmark[1], whole, labels)
    kept = {
        "threshold": server.verdict.keeps(halves),
        "cross-fitted": crossed.keeps(whole),
        "per class": by_class.keeps(whole, labels),
        "quantile": whole <= quantile_threshold(bench.folds),
        "mixture": whole <= mixture_threshold(whole),
    }
    sent = [len(counts) for asked in server.answers.values() for _, counts in asked]
    return kept, {
        "values": np.array([server.threshold.value, crossed.value]),
        "rounds_asked": np.array(server.round),
        "bytes_sent": np.array(4 * max(sent)),
        "crossed": crossed,
        "losses": whole,
    }


def learn(
    scene: Federation, kept: np.ndarray, fresh: Net, sizes: FilterSizes, key: jax.Array
) -> tuple[FederatedRun, Net]:
    """Train the clients on what is kept, and return the run and the last network."""
    run = fed_avg(
        fresh.graphdef,
        fresh.params,
        *scene.samples,
        np.where(kept, scene.clients, -1),
        key=key,
        rounds=sizes.rounds,
        optimizer=_sgd(sizes.rate),
        server=_server(sizes.server_rate, sizes.rounds),
        evaluate=lambda params: accuracy(fresh.graphdef, params, *scene.test),
        evaluate_every=sizes.every,
    )
    return run, Net(fresh.graphdef, run.params)


_sgd = functools.cache(optax.sgd)


@functools.cache
def _server(rate: float | None, rounds: int) -> optax.GradientTransformation | None:
    return (
        None if rate is None else optax.adam(optax.cosine_decay_schedule(rate, rounds))
    )


@dataclasses.dataclass(frozen=True)
class _Start:
    """What all experiments of a seed begin with; `others` is how many there are."""

    fresh: Net
    scene: Callable[..., Federation]
    train: Callable[[Samples], Bench]
    learn: Callable[[Federation, np.ndarray], tuple[FederatedRun, Net]]
    others: int


def _start(
    target: Samples, others: Sequence[Samples], sizes: FilterSizes, seed: int
) -> _Start:
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    fresh = new_net(
        sizes.net,
        target[0].shape[1:],
        int(target[1].max()) + 1,
        keys[0],
        channels=sizes.channels,
        hidden=sizes.hidden,
    )
    return _Start(
        fresh=fresh,
        scene=lambda kind, ratio, share=sizes.benchmark: draw_federation(
            target,
            others,
            dataclasses.replace(sizes, benchmark=share),
            keys[1],
            kind=kind,
            ratio=ratio,
        ),
        train=lambda benchmark: train_bench(benchmark, fresh, sizes, keys[2]),
        learn=lambda scene, kept: learn(scene, kept, fresh, sizes, keys[3]),
        others=len(others),
    )


def noise_seed(
    target: Samples,
    others: Sequence[Samples],
    sizes: FilterSizes,
    seed: int,
    *,
    kind: str,
) -> dict[str, np.ndarray]:
    """Filter one kind of noise, of R ratios, and train the clients.

    Returns:
        By name: `removed` and `kept`, shares of the noise and of the clean samples,
        `[R, 5]`, see `FILTERS`; `accuracy`, `[R, 4, T]`, see `TRAINED`; `histograms` of
        the losses of the benchmark, clean and noisy samples, `[R, 3, bins]`; `values`
        of the first two thresholds, `[R, 2]`, with the second one's `band`, `[R, 2]`;
        `rounds_asked`, and `bytes_sent` of a client in a round at most, `[R]`; and
        `by_source`, what the second keeps of each other data set, `[R, K]`, NaN where
        it has none.
    """
    start = _start(target, others, sizes, seed)
    found = []
    for ratio in sizes.ratios:
        scene = start.scene(kind, ratio)
        found.append(_measured(start, scene, start.train(scene.benchmark), sizes, seed))
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _measured(
    start: _Start, scene: Federation, bench: Bench, sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Return what `noise_seed` does, of one ratio."""
    kept, facts = filtered(scene, bench)
    clean = scene.clean
    band = facts["crossed"].band(jax.random.key(seed), sizes.replicates)
    sets = [np.ones(len(clean), bool), *(kept[name] for name in TRAINED[1:])]
    parts = bench.folds, facts["losses"][clean], facts["losses"][~clean]
    by_source = [
        kept["cross-fitted"][scene.source == i + 1] for i in range(start.others)
    ]
    return {
        "removed": np.array([(~kept[f])[~clean].mean() for f in FILTERS]),
        "kept": np.array([kept[f][clean].mean() for f in FILTERS]),
        "accuracy": np.stack([start.learn(scene, s)[0].scores for s in sets]),
        "histograms": np.stack([_counted(part) for part in parts]),
        "values": facts["values"],
        "band": np.array([band.low, band.high]),
        "rounds_asked": facts["rounds_asked"],
        "bytes_sent": facts["bytes_sent"],
        "by_source": np.array(
            [part.mean() if len(part) else np.nan for part in by_source]
        ),
    }


def _counted(losses: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(losses, BINS[0], BINS[-1]), BINS)[0]


def questions_seed(
    target: Samples, others: Sequence[Samples], sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Ask what the benchmark set must be like, under strong open-set noise.

    Returns:
        By name: `rounds`, `[T]`; `ideal`, accuracy with clean samples alone, `[T]`;
        `benchmark`, that of the benchmark's model; `sweep`, noise removed and clean
        samples kept by each of the first two filters, and accuracy in the end, for each
        benchmark size, `[shares, 2, 3]`; `lacking`, clean samples kept of a class that
        the benchmark lacks and of the others, by one threshold and by class with
        "pooled" and "keep", `[3, 2]`, and `lacking_removed`, noise removed, `[3]`;
        `lacking_accuracy`, in the end, on that class and the others, with the first of
        these, `[2]`, and `ideal_accuracy`, `[2]`; `hard`, accuracy with the clean
        samples that the cross-fitted threshold keeps, in the end; `hard_right`, share
        of the other clean samples that the ideal model gets right, and of those kept,
        `[2]`.
    """
    start = _start(target, others, sizes, seed)
    strong = max(sizes.ratios)
    scene = start.scene("open", strong)
    clean, labels = scene.clean, scene.samples[1]
    bench = start.train(scene.benchmark)
    run, ideal = start.learn(scene, clean)

    sweep = []
    for share in sizes.shares:
        small = start.scene("open", strong, share)
        kept, _ = filtered(small, start.train(small.benchmark))
        sweep.append([])
        for own in (kept[name] for name in FILTERS[:2]):
            last = start.learn(small, own)[0].scores[-1]
            sweep[-1].append([(~own)[~clean].mean(), own[clean].mean(), last])

    lacks = seed % (int(target[1].max()) + 1)
    without = take(scene.benchmark, np.flatnonzero(scene.benchmark[1] != lacks))
    blind = start.train(without)
    losses = losses_of(blind.net, scene.samples)
    by_class = [
        class_thresholds(blind.folds, without[1], losses, labels, missing=how).keeps(
            losses, labels
        )
        for how in ("pooled", "keep")
    ]
    ways = [loss_threshold(blind.folds, losses).keeps(losses), *by_class]
    of_class = labels == lacks
    on_test = [scene.test[1] == lacks, scene.test[1] != lacks]
    right = lambda net: np.array(
        [net.right(*take(scene.test, np.flatnonzero(rows))).mean() for rows in on_test]
    )

    kept = filtered(scene, bench)[0]["cross-fitted"]
    easy, hard = clean & kept, clean & ~kept
    known = [
        ideal.right(*take(scene.samples, np.flatnonzero(rows))).mean()
        if rows.any()
        else np.nan
        for rows in (hard, easy)
    ]
    return {
        "rounds": run.rounds,
        "ideal": run.scores,
        "benchmark": np.array(bench.net.right(*scene.test).mean()),
        "sweep": np.array(sweep),
        "lacking": np.array(
            [
                [way[clean & of_class].mean(), way[clean & ~of_class].mean()]
                for way in ways
            ]
        ),
        "lacking_removed": np.array([(~way)[~clean].mean() for way in ways]),
        "lacking_accuracy": right(start.learn(scene, ways[0])[1]),
        "ideal_accuracy": right(ideal),
        "hard": np.array(start.learn(scene, easy)[0].scores[-1]),
        "hard_right": np.array(known),
    }


def variant_seed(
    target: Samples,
    others: Sequence[Samples],
    sizes: FilterSizes,
    seed: int,
    *,
    kind: str = "open",
) -> dict[str, np.ndarray]:
    """Filter noise of the largest ratio, and train on clean samples alone as well.

    Returns:
        What `noise_seed` does, without the axis of ratios; `rounds`, `[T]`; `ideal`,
        accuracy with clean samples alone, `[T]`; and `benchmark`, that of the
        benchmark's model.
    """
    start = _start(target, others, sizes, seed)
    scene = start.scene(kind, max(sizes.ratios))
    bench = start.train(scene.benchmark)
    ideal = start.learn(scene, scene.clean)[0]
    return _measured(start, scene, bench, sizes, seed) | {
        "rounds": ideal.rounds,
        "ideal": ideal.scores,
        "benchmark": np.array(bench.net.right(*scene.test).mean()),
    }
