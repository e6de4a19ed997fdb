"""The paper's threshold, compared with the one that trains the best model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments._kit.scenes.federation import Federation, FilterSizes
from experiments._kit.scenes.networks import Net
from experiments._kit.scenes.thresholds import begin, losses_of
from experiments._kit.scenes.trainer import Samples, take
from jaxsel.filter import loss_threshold

from .links import exchanged, model_bytes

SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)
"""Thresholds are tried that keep these shares of all samples, beside the paper's."""

BY = ("loss", "accuracy")
"""Figures on test samples by which a threshold is the best; the paper's aim is the
sum of losses, its equation 6."""


def best_seed(
    target: Samples,
    others: Sequence[Samples],
    sizes: FilterSizes,
    seed: int,
    *,
    kind: str,
) -> dict[str, np.ndarray]:
    """Train the clients by thresholds of the paper's losses, under strong noise.

    The losses are those of a model trained on one half of the benchmark set, and the
    threshold in question is found with the other half, as in the paper. One half of the
    test samples chooses the best threshold, the other half judges it.

    Returns:
        By name: `values`, thresholds, `[1 + len(SHARES)]`, the paper's first; `share`,
        how much each keeps of all samples; `removed` and `kept`, shares of the noise
        and of the clean samples; `chosen`, mean loss and accuracy on the test samples
        that choose, and `judged`, on the others, `[1 + len(SHARES), 2]`; `messages`,
        bytes of the filter's messages, see `exchanged`; `model`, bytes of the model.
    """
    start = begin(target, others, sizes, seed)
    scene = start.scene(kind, max(sizes.ratios))
    bench = start.train(scene.benchmark)
    losses = losses_of(bench.half, scene.samples)
    threshold = loss_threshold(bench.held_out, losses)
    values = np.array([threshold.value, *np.quantile(losses, SHARES, method="higher")])
    rows = [losses <= value for value in values]
    rng = np.random.default_rng([seed, 1])
    halves = np.array_split(rng.permutation(len(scene.test[1])), 2)
    figures = [_figures(start.learn(scene, kept)[1], scene, halves) for kept in rows]
    names = np.unique(scene.clients)
    by_client = {str(c): losses[scene.clients == c] for c in names}
    messages = exchanged(bench.held_out, by_client)
    # Pad to one shape for all seeds; questions that were not asked have no bytes.
    padded = np.zeros((_ROUNDS, 2))
    padded[-len(messages) :] = messages
    clean = scene.clean
    return {
        "values": values,
        "share": np.array([kept.mean() for kept in rows]),
        "removed": np.array([(~kept)[~clean].mean() for kept in rows]),
        "kept": np.array([kept[clean].mean() for kept in rows]),
        "chosen": np.array([by_half[0] for by_half in figures]),
        "judged": np.array([by_half[1] for by_half in figures]),
        "messages": padded,
        "model": np.array(model_bytes(bench.half)),
    }


def best(found: Mapping[str, np.ndarray], by: int) -> np.ndarray:
    """Return the index of each seed's best threshold, `[S]`: 0 is the paper's.

    Args:
        found: Results of `best_seed`, stacked on a first axis of seeds.
        by: Index in `BY`.
    """
    figures = found["chosen"][..., by]
    return figures.argmin(1) if BY[by] == "loss" else figures.argmax(1)


_ROUNDS = 16
"""Rows of `messages`: more than there ever are questions about 32 bits."""


def _figures(
    net: Net, scene: Federation, halves: Sequence[np.ndarray]
) -> list[tuple[float, float]]:
    parts = [take(scene.test, rows) for rows in halves]
    return [
        (float(losses_of(net, part).mean()), float(net.right(*part).mean()))
        for part in parts
    ]
