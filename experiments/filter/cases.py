"""Cases of noise and training to judge claims on, with their descriptions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from experiments._kit.scenes.federation import KINDS

from .run import Filtering

NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "digits": "scikit-learn's digits",
}
WORDS = {"open": "open-set", "closed": "closed-set", "both": "mixed"}
WAYS = {"plain": "plain averaging", "cnn": "a CNN"}
PLAIN_FIRST = ", plain averaging"
"""Ends the names of families of tests whose clients learn as in the paper."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """Final accuracies for one kind of noise and training.

    Attributes:
        where: Data and noise.
        scale: Clients, samples and model.
        trained: Accuracy by `TRAINED`, `[S, 4]`.
        ideal: With clean samples alone, `[S]`.
        bench: Accuracy of the benchmark's model, `[S]`.
        family: `PLAIN_FIRST` with plain averaging, as in the paper; empty with Adam at
            the server. Claims of both are corrected apart.
    """

    where: str
    scale: str
    trained: np.ndarray
    ideal: np.ndarray
    bench: np.ndarray
    family: str = ""

    @property
    def none(self) -> np.ndarray:
        """Accuracy without a filter, `[S]`."""
        return self.trained[:, 0]

    @property
    def paper(self) -> np.ndarray:
        """Accuracy with the paper's rule, `[S]`."""
        return self.trained[:, 1]

    @property
    def crossed(self) -> np.ndarray:
        """Accuracy with the threshold of cross-fitted losses, `[S]`."""
        return self.trained[:, 2]

    @property
    def quantile(self) -> np.ndarray:
        """Accuracy with a quantile of these losses, `[S]`."""
        return self.trained[:, 3]


def cases(result: Filtering) -> Iterator[Case]:
    """Yield a case for each kind and ratio of noise and averaging, and for CNNs."""
    for target, kinds in result.noise.items():
        plain = result.variants[target]["plain"]
        ways = (
            (PLAIN_FIRST, result.plain[target], plain),
            ("", kinds, result.questions[target]),
        )
        for kind in KINDS:
            for r, ratio in enumerate(result.sizes.ratios):
                for family, by_kind, asked in ways:
                    last = by_kind[kind]["accuracy"][:, r, :, -1]
                    where = f"{NAMES[target]}, {WORDS[kind]} noise, {ratio:g} : 1"
                    ideal, bench = asked["ideal"][:, -1], asked["benchmark"]
                    size = scale(result)
                    yield Case(where + family, size, last, ideal, bench, family)
        for name, variant in result.variants[target].items():
            if name == "plain":
                continue
            last = variant["accuracy"][..., -1]
            where = f"{strong(result, target, 'open')}, {WAYS[name]}"
            yield Case(
                where,
                scale(result, name),
                last,
                variant["ideal"][:, -1],
                variant["benchmark"],
            )


def strong(result: Filtering, target: str, kind: str) -> str:
    """Describe a target under the strongest noise of a kind."""
    ratio = max(result.sizes.ratios)
    return f"{NAMES[target]}, {WORDS[kind]} noise, {ratio:g} : 1"


def scale(result: Filtering, way: str = "") -> str:
    """Describe the clients, samples and model."""
    sizes = result.sizes
    model = "a CNN" if way == "cnn" else "a perceptron"
    return (
        f"{sizes.clients} clients, {sizes.clean:,} clean samples of "
        f"{sizes.side}×{sizes.side} pixels, {model}"
    )
