"""Filter clients' samples by thresholds of their loss, and let them learn together."""

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

from .federation import Federation, FilterSizes, draw_federation
from .networks import Net, new_net
from .trainer import Samples, take

FILTERS = ("threshold", "cross-fitted", "per class", "quantile", "mixture")
"""Ways to filter. The first splits the benchmark set in two, as the paper does; the
next three use the losses of five folds, and the last none."""

TRAINED = ("no selection", "threshold", "cross-fitted", "quantile")
"""Filters that clients are trained under, beside clean samples alone."""

BINS = np.geomspace(1e-4, 30.0, 61)
"""Edges of the histograms of losses; losses outside are counted in the end bins."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """Models trained on a benchmark set, and its losses under them.

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
    """Train models on a benchmark set, on half of it, and on its folds."""
    keys = [jax.random.fold_in(key, i) for i in range(4)]
    x, y = benchmark

    def fit(x: np.ndarray, y: np.ndarray, key: jax.Array) -> Callable[..., np.ndarray]:
        net = fresh.trained(x, y, sizes.fit, key)
        return lambda *samples: losses_of(net, samples)

    order = np.asarray(jax.random.permutation(keys[0], len(y)))
    first, second = np.array_split(order, 2)
    half = fresh.trained(x[first], y[first], sizes.fit, keys[1])
    return Bench(
        net=fresh.trained(x, y, sizes.fit, keys[2]),
        half=half,
        held_out=losses_of(half, take(benchmark, second)),
        folds=cross_fitted_losses(fit, x, y, folds=sizes.folds, key=keys[3]),
    )


def filtered(
    scene: Federation, bench: Bench
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return which samples each of `FILTERS` keeps, and facts about the first two."""
    halves, full = (losses_of(net, scene.samples) for net in (bench.half, bench.net))
    names = np.unique(scene.clients)
    server = federated_threshold(
        bench.held_out, {str(c): halves[scene.clients == c] for c in names}
    )
    crossed = loss_threshold(bench.folds, full)
    labels = scene.samples[1]
    by_class = class_thresholds(bench.folds, scene.benchmark[1], full, labels)
    kept = {
        "threshold": server.verdict.keeps(halves),
        "cross-fitted": crossed.keeps(full),
        "per class": by_class.keeps(full, labels),
        "quantile": full <= quantile_threshold(bench.folds),
        "mixture": full <= mixture_threshold(full),
    }
    sent = [len(counts) for asked in server.answers.values() for _, counts in asked]
    return kept, {
        "values": np.array([server.threshold.value, crossed.value]),
        "rounds_asked": np.array(server.round),
        "bytes_sent": np.array(4 * max(sent)),
        "crossed": crossed,
        "losses": full,
    }


def learn(
    scene: Federation, kept: np.ndarray, fresh: Net, sizes: FilterSizes, key: jax.Array
) -> tuple[FederatedRun, Net]:
    """Train the clients on the kept samples; return the run and the last network."""
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
        evaluate_every=sizes.evaluate_every,
    )
    return run, Net(fresh.graphdef, run.params)


_sgd = functools.cache(optax.sgd)


@functools.cache
def _server(rate: float | None, rounds: int) -> optax.GradientTransformation | None:
    return (
        None if rate is None else optax.adam(optax.cosine_decay_schedule(rate, rounds))
    )


@dataclasses.dataclass(frozen=True)
class Start:
    """Common start of all experiments of a seed; `others` counts the other samples."""

    fresh: Net
    scene: Callable[..., Federation]
    train: Callable[[Samples], Bench]
    learn: Callable[[Federation, np.ndarray], tuple[FederatedRun, Net]]
    others: int


def begin(
    target: Samples, others: Sequence[Samples], sizes: FilterSizes, seed: int
) -> Start:
    keys = [jax.random.fold_in(jax.random.key(seed), i) for i in range(4)]
    fresh = new_net(
        sizes.net,
        target[0].shape[1:],
        int(target[1].max()) + 1,
        keys[0],
        channels=sizes.channels,
        hidden=sizes.hidden,
    )
    return Start(
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


def measured(
    start: Start, scene: Federation, bench: Bench, sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Filter and train at one noise ratio; return figures by name."""
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
        The entries of `noise_seed` without the axis of ratios; `rounds`, `[T]`;
        `ideal`, accuracy with clean samples alone, `[T]`; and `benchmark`, accuracy of
        the benchmark's model.
    """
    start = begin(target, others, sizes, seed)
    scene = start.scene(kind, max(sizes.ratios))
    bench = start.train(scene.benchmark)
    ideal = start.learn(scene, scene.clean)[0]
    return measured(start, scene, bench, sizes, seed) | {
        "rounds": ideal.rounds,
        "ideal": ideal.scores,
        "benchmark": np.array(bench.net.right(*scene.test).mean()),
    }
