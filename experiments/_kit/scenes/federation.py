"""Clients with one class each, and noise among their samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from .trainer import Samples, joined, take

KINDS = ("open", "closed", "both")
"""Samples of other data sets, samples with wrong labels, and both in halves."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterSizes:
    """Sizes of the filtering experiments.

    Attributes:
        side: Pixels along a side.
        net: "mlp" or "cnn".
        hidden: Hidden units of the perceptron.
        channels: Channels of the CNN's blocks.
        clients: Number of clients.
        clean: Clean samples of all clients together.
        test: Test samples.
        benchmark: Benchmark samples, as a share of the clean ones.
        shares: Other such shares.
        ratios: Noise for each clean sample: weak and strong.
        fit: Steps of a benchmark model's training.
        rounds: Rounds of federated training.
        evaluate_every: Rounds between two evaluations.
        rate: Step of the clients' SGD.
        server_rate: First step of the server's Adam, which falls along a cosine; None
            for plain averaging, as in the paper.
        folds: Folds of cross-fitted benchmark losses.
        replicates: Bootstrap replicates of the threshold's band.
    """

    side: int = 14
    net: str = "mlp"
    hidden: int = 64
    channels: Sequence[int] = (8, 16)
    clients: int = 100
    clean: int = 2000
    test: int = 2000
    benchmark: float = 0.1
    shares: Sequence[float] = (0.01, 0.03)
    ratios: Sequence[float] = (0.5, 3.0)
    fit: int = 300
    rounds: int = 60
    evaluate_every: int = 5
    rate: float = 0.2
    server_rate: float | None = 0.01
    folds: int = 5
    replicates: int = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Federation:
    """Data of the clients, with the benchmark and the test set.

    Attributes:
        samples: All clients' samples, as they are labelled.
        clients: Number of each sample's client, `[n]`.
        source: Source of each sample, `[n]`: 0 for clean ones, 1, 2, ... for the other
            data sets, and -1 for wrong labels.
        benchmark: Clean samples of the server, which asks.
        test: Clean samples too.
    """

    samples: Samples
    clients: np.ndarray
    source: np.ndarray
    benchmark: Samples
    test: Samples

    @property
    def clean(self) -> np.ndarray:
        """Return which samples are clean, `[n]` of bool."""
        return self.source == 0


def draw_federation(
    target: Samples,
    others: Sequence[Samples],
    sizes: FilterSizes,
    key: jax.Array,
    *,
    kind: str,
    ratio: float,
) -> Federation:
    """Deal clean and noisy samples out to clients; no target sample is used twice.

    Each client has one class. Samples of a class go to the clients of that class, with
    shares that differ from client to client and from source to source.

    Args:
        target: Images and classes of the task.
        others: Other data sets, for open-set noise, class by class.
        sizes: Sizes of the experiment.
        key: Key of all draws. Clean, benchmark and test samples, and their clients, do
            not depend on `kind` and `ratio`; smaller benchmarks are parts of larger.
        kind: One of `KINDS`.
        ratio: Noisy samples for each clean one.

    Raises:
        ValueError: If there are too few samples.
    """
    keys = [jax.random.fold_in(key, i) for i in range(4)]
    draws = lambda part: np.random.default_rng(
        np.append(np.asarray(jax.random.key_data(keys[3])), part)
    )
    n_classes = int(target[1].max()) + 1
    order = np.asarray(jax.random.permutation(keys[0], len(target[1])))
    n_noise = round(ratio * sizes.clean)
    n_open = {"open": n_noise, "closed": 0, "both": n_noise // 2}[kind]
    n_benchmark = round(sizes.benchmark * sizes.clean)
    n_own = sizes.test, sizes.clean, n_noise - n_open
    if n_benchmark < 2:
        raise ValueError(
            f"benchmark must be two of {sizes.clean} clean samples or more, got "
            f"{sizes.benchmark}"
        )
    needed, offered = sum(n_own) + n_benchmark, sum(len(other[1]) for other in others)
    if needed > len(order) or n_open > offered:
        raise ValueError(
            f"data must hold {needed} samples of the target and {n_open} others, got "
            f"{len(order)} and {offered}"
        )
    test, clean, wrong = np.split(order[: sum(n_own)], np.cumsum(n_own)[:-1])
    # Residues of a permutation: numbers of clients per class differ by one at most.
    of_class = np.asarray(jax.random.permutation(keys[1], sizes.clients)) % n_classes
    x, y = take(target, wrong)
    shift = draws(0).integers(1, n_classes, len(y))
    # A shift of 1 to n_classes - 1 never gives the true label.
    parts = [take(target, clean), (x, (y + shift) % n_classes)]
    sources = [np.zeros(len(clean), int), np.full(len(wrong), -1)]
    drawn = np.asarray(jax.random.permutation(keys[2], offered))[:n_open]
    starts = np.cumsum([0, *(len(other[1]) for other in others)])
    for i, other in enumerate(others):
        rows = drawn[(drawn >= starts[i]) & (drawn < starts[i + 1])] - starts[i]
        parts.append(take(other, rows))
        sources.append(np.full(len(rows), i + 1))
    return Federation(
        samples=joined(*parts),
        clients=np.concatenate(
            [_dealt(y, of_class, draws(1 + i)) for i, (_, y) in enumerate(parts)]
        ),
        source=np.concatenate(sources),
        benchmark=take(target, order[-n_benchmark:]),
        test=take(target, test),
    )


def _dealt(y: np.ndarray, of_class: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return which client of its class gets each sample, in uneven shares."""
    clients = np.empty(len(y), int)
    for c in range(int(of_class.max()) + 1):
        candidates, rows = np.flatnonzero(of_class == c), np.flatnonzero(y == c)
        shares = rng.dirichlet(np.full(len(candidates), _EVENNESS))
        clients[rows] = rng.choice(candidates, len(rows), p=shares)
    return clients


_EVENNESS = 10.0
"""Of the clients' shares: their standard deviation is about a third of their mean."""
