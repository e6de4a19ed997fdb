"""One seed of the filtering experiments: kinds of noise, and the benchmark set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments._kit.scenes.federation import FilterSizes
from experiments._kit.scenes.thresholds import (
    FILTERS,
    begin,
    filtered,
    losses_of,
    measured,
)
from experiments._kit.scenes.trainer import Samples, take
from jaxsel.filter import (
    class_thresholds,
    loss_threshold,
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
        `by_source`, the share of each other data set that the second keeps, `[R, K]`,
        NaN where it has none.
    """
    start = begin(target, others, sizes, seed)
    by_ratio = []
    for ratio in sizes.ratios:
        scene = start.scene(kind, ratio)
        by_ratio.append(
            measured(start, scene, start.train(scene.benchmark), sizes, seed)
        )
    return {
        name: np.stack([measures[name] for measures in by_ratio])
        for name in by_ratio[0]
    }


def questions_seed(
    target: Samples, others: Sequence[Samples], sizes: FilterSizes, seed: int
) -> dict[str, np.ndarray]:
    """Vary the benchmark set's size and classes under strong open-set noise.

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
    start = begin(target, others, sizes, seed)
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
        for mask in (kept[name] for name in FILTERS[:2]):
            last = start.learn(small, mask)[0].scores[-1]
            sweep[-1].append([(~mask)[~clean].mean(), mask[clean].mean(), last])

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
