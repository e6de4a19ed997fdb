"""Clients of single classes or single writers, with two ways of averaging."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from experiments._kit.scenes.federation import Federation, FilterSizes
from experiments._kit.scenes.thresholds import TRAINED, begin, filtered
from experiments._kit.scenes.trainer import Samples, take

from .writers import cluster

DEALS = ("single classes", "writers")
"""Partition of the task's samples among clients: by class, or by writer."""

PLAIN_RATE = 0.4
"""Step of the clients' SGD with plain averaging: of .05, .1, .2, .4 and .8 that of the
best mean accuracy with clean samples alone, on seeds 100 and 101."""

PLAIN = {"server_rate": None, "rate": PLAIN_RATE}
"""Sizes of the paper's way: the server takes the mean of the clients' parameters."""

AVERAGING = ("plain averaging", "Adam at the server")
LINES = (*TRAINED, "clean samples alone")


def by_writer(scene: Federation, target: Samples, n: int, seed: int) -> Federation:
    """Deal the task's samples to clients by writer, a cluster of handwriting.

    Samples with wrong labels go with their writer, as in the paper. Samples of other
    data sets stay with the clients of a class, as in the paper for all sets without
    known writers.

    Args:
        scene: Clients of one class each.
        target: The task's samples, all of which are clustered.
        n: Number of clients.
        seed: Seed of the clustering.
    """
    styles = cluster(target, n, seed)
    of_task = np.flatnonzero(scene.source <= 0)
    clients = scene.clients.copy()
    clients[of_task] = styles.of(take(scene.samples, of_task))
    return dataclasses.replace(scene, clients=clients)


def clients_seed(
    target: Samples,
    others: Sequence[Samples],
    sizes: FilterSizes,
    seed: int,
    *,
    kind: str = "open",
) -> dict[str, np.ndarray]:
    """Train clients of single classes and of single writers, by both `AVERAGING`.

    Noise is of the largest ratio. Thresholds are found over all clients together, so
    the samples kept do not depend on how they are dealt.

    Returns:
        By name: `accuracy` after the last round, for each of `DEALS`, of `AVERAGING`
        and of `LINES`, `[2, 2, 5]`; `classes`, classes of the task's samples that a
        client has on average, for each of `DEALS`, `[2]`; and `benchmark`, accuracy of
        the benchmark's model.
    """
    start = begin(target, others, sizes, seed)
    scene = start.scene(kind, max(sizes.ratios))
    bench = start.train(scene.benchmark)
    kept, _ = filtered(scene, bench)
    clean = scene.clean
    lines = [np.ones(len(clean), bool), *(kept[name] for name in TRAINED[1:]), clean]
    plain = begin(target, others, dataclasses.replace(sizes, **PLAIN), seed)
    deals = scene, by_writer(scene, target, sizes.clients, seed)
    return {
        "accuracy": np.array(
            [
                [
                    [way.learn(deal, rows)[0].scores[-1] for rows in lines]
                    for way in (plain, start)
                ]
                for deal in deals
            ]
        ),
        "classes": np.array([_classes(deal) for deal in deals]),
        "benchmark": np.array(bench.net.right(*scene.test).mean()),
    }


def _classes(scene: Federation) -> float:
    """Return the mean number of classes among a client's clean samples."""
    rows = np.flatnonzero(scene.clean)
    pairs = np.stack([scene.clients[rows], scene.samples[1][rows]], axis=1)
    return len(np.unique(pairs, axis=0)) / len(np.unique(pairs[:, 0]))
