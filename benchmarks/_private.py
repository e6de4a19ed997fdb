"""Owners with data for the benchmark of values across owners, and references."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

import jaxsel
from jaxsel.market import (
    CountSums,
    Valuation,
    ValueOwner,
    ask_values,
    private_values,
    sum_counts,
)
from jaxsel.market._private._privacy import privacy_epsilon

EPSILONS = (0.1, 1.0, 10.0)
_CLASSES = 10

Result = tuple[dict[str, jaxsel.Values], CountSums]


@dataclasses.dataclass(frozen=True, eq=False)
class Owners:
    """Points of several owners, a tenth of them with wrong labels.

    Attributes:
        x: `[owners, n, d]`, float32.
        y: `[owners, n]`, int32.
        flipped: `[owners, n]`: True where the label is wrong.
        x_val: `[m, d]`.
        y_val: `[m]`.
        radius: Reaches about 5 % of the points.
    """

    x: np.ndarray
    y: np.ndarray
    flipped: np.ndarray
    x_val: np.ndarray
    y_val: np.ndarray
    radius: float

    def data(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return the points and labels of each owner, by name."""
        return {str(i): pair for i, pair in enumerate(zip(self.x, self.y, strict=True))}

    def ask(self, epsilon: float | None) -> Valuation:
        """Ask all of them."""
        return ask_values(
            self.x_val,
            self.y_val,
            radius=self.radius,
            owners=[*self.data()],
            epsilon=epsilon,
            classes=range(_CLASSES),
        )


def draw(owners: int, n: int, m: int, *, d: int = 32, seed: int = 0) -> Owners:
    """Draw Gaussian classes that overlap a little, of n points an owner."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((_CLASSES, d), np.float32)
    centres *= np.float32(5 / (2 * d) ** 0.5)
    labels = rng.integers(_CLASSES, size=owners * n + m, dtype=np.int32)
    x = rng.standard_normal((len(labels), d), np.float32) + centres[labels]
    flipped = rng.random(owners * n) < 0.1
    y, y_val = labels[: owners * n].copy(), labels[owners * n :]
    y[flipped] += rng.integers(1, _CLASSES, size=int(flipped.sum()), dtype=np.int32)
    y %= _CLASSES
    owned, x_val = x[: owners * n], x[owners * n :]
    sample = owned[: min(len(owned), 20_000)].astype(np.float64)
    gaps = ((x_val[:20, None] - sample[None]) ** 2).sum(-1)
    return Owners(
        owned.reshape(owners, n, d),
        y.reshape(owners, n),
        flipped.reshape(owners, n),
        x_val,
        y_val,
        float(np.sqrt(np.quantile(gaps, 0.05))),
    )


def values(data: Owners, epsilon: float | None) -> Callable[[], Result]:
    """Return a valuation by all owners, in one process."""
    if epsilon is not None:  # absent without the package
        privacy_epsilon(1, 1, delta=0.1, honest=1)
    parts = data.data()
    return lambda: private_values(data.ask(epsilon), parts)


def against_pooled(data: Owners, found: Result) -> dict[str, float]:
    """Compare with values of the pooled points; return a client's bytes, too."""
    d = data.x.shape[-1]
    pooled = jaxsel.threshold_knn_shapley(
        data.x.reshape(-1, d),
        data.y.ravel(),
        data.x_val,
        data.y_val,
        radius=data.radius,
        n_classes=_CLASSES,
    ).values
    split = np.concatenate([np.asarray(found[0][name].values) for name in data.data()])
    largest = float(np.abs(pooled).max())
    return {
        "error": float(np.abs(split - pooled).max()) / largest,
        "bytes": float(_sent(data)),
        "auc": auc(data, found),
    }


def auc(data: Owners, found: Result) -> float:
    """Return how well low values point to wrong labels: area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    split = np.stack([np.asarray(found[0][name].values) for name in data.data()])
    return float(roc_auc_score(data.flipped.ravel(), -split.ravel()))


def _sent(data: Owners) -> int:
    """Count the bytes of all files that one client sends."""
    valuation = data.ask(None)
    owners = {
        name: ValueOwner(valuation, *pair, owner=name, max_epsilon=None)
        for name, pair in data.data().items()
    }
    keys = [owner.keys() for owner in owners.values()]
    shares = [owner.share(keys) for owner in owners.values()]
    masked = [owner.masked(shares) for owner in owners.values()]
    survivors = valuation.survivors(masked)
    revealed = [owner.reveal(survivors) for owner in owners.values()]
    sum_counts(valuation, keys, shares, masked, revealed)
    messages = zip(keys, shares, masked, revealed, strict=True)
    return max(sum(len(message.to_bytes()) for message in sent) for sent in messages)
