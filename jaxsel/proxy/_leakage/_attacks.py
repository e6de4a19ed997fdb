"""Attacks on a proxy by a data owner, from its samples and the answer of a choice.

Each is a surrogate of the scores, of features that the data owner has, fitted to the
samples' places among the pivots (see `declare`) by ordinal logistic regression: with
score s, and free thresholds t_1, ..., t_P, the loss of a sample at level l is

    (1 / P) sum_p softplus(-y_p (s - t_p)),   y_p = 1 if l >= p, else -1.

A score that falls on both sides of a border leaves that loss with bad minima, so that
surrogates start from the spectrum of second moments weighted with the levels, as
algorithms for phase retrieval do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxsel.proxy._manifest import Manifest
from jaxsel.proxy._probe import Probe, initial_probe
from jaxsel.proxy.families._score_exact import entropy, margin

Readout = Literal["linear", "square", "entropy", "margin"]

_HIDDEN = 32  # units of the network that stands for a transformer
_PENALTIES = (1e-2, 1e-4)  # one after the other: the first fit starts the second
_RANDOM = 2  # starts
_FLAT = 1e-6  # relative decrease of the loss at which a fit ends


@dataclasses.dataclass(frozen=True, eq=False)
class Surrogate:
    """A fitted surrogate of a proxy's scores.

    Attributes:
        name: Of the attack that found it.
        probe: Of standardised features.
        readout: From the probe's outputs to a score.
    """

    name: str
    probe: Probe
    readout: Readout

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the surrogate's scores of standardised features `[n, d]`, `[n]`."""
        x = jnp.asarray(features)
        return np.asarray(_jitted_scores(self.probe, x, readout=self.readout))

    @property
    def directions(self) -> np.ndarray | None:
        """Directions that the score depends on, `[d, C]`; None for a hidden layer."""
        if len(self.probe.weights) != 1:
            return None
        return np.asarray(self.probe.weights[0], np.float64)


def attack(
    features: np.ndarray,
    levels: np.ndarray,
    manifest: Manifest,
    *,
    steps: int,
    seed: int,
) -> Iterator[Surrogate]:
    """Yield surrogates of a proxy's scores, fitted to the declared levels.

    A linear score; from several starts one with the readout of a linear probe; and for
    proxies with a hidden layer, and for transformers, a small network.

    Args:
        features: Standardised, `[n, d]` float32: a probe's own, else those of
            `attacked_features`.
        levels: `[n]`, whole numbers from 0, see `Declared`; bools for a set.
        manifest: The proxy's.
        steps: L-BFGS steps of a fit, at most; each is a few passes over the features.
        seed: Of the random starts.
    """
    levels = levels.astype(np.int32)
    x = jnp.asarray(features)
    moments = _Moments(features, levels)
    n_classes, hidden = manifest.head.n_classes, manifest.head.width
    readout = readout_of(manifest)
    n_outputs = 1 if n_classes == 2 else n_classes
    starts: list[tuple[str, Readout, Probe]] = [
        ("linear", "linear", moments.probe(moments.mean[:, None], 0))
    ]
    for name, u in moments.directions(n_classes - 1):
        probe = moments.probe(u, n_outputs)
        starts.append((f"{readout}, {name} start", readout, probe))
    if manifest.layers:
        hidden = max(hidden, _HIDDEN)
    for i in range(_RANDOM):
        key = jax.random.fold_in(jax.random.key(seed), i)
        size = features.shape[1]
        sizes = (size, hidden, n_outputs) if hidden else (size, n_outputs)
        name = f"{readout} of {hidden} hidden units" if hidden else readout
        probe = initial_probe(sizes, key, random=True)
        starts.append((f"{name}, random start {i + 1}", readout, probe))
    for name, form, probe in starts:
        for l2 in _PENALTIES:
            probe = fit_levels(x, levels, probe, form, l2=l2, steps=steps)
            yield Surrogate(name, probe, form)


def fit_levels(
    x: jax.Array,
    levels: np.ndarray,
    start: Probe,
    readout: Readout,
    *,
    l2: float,
    steps: int,
) -> Probe:
    """Fit a probe to levels by ordinal logistic regression, from a start.

    Args:
        x: Standardised features, `[n, d]`.
        levels: `[n]`, whole numbers from 0.
        start: Where to begin; thresholds begin at the quantiles of its scores.
        readout: From the probe's outputs to a score.
        l2: Weight of half the squared weights.
        steps: L-BFGS steps, at most.
    """
    from scipy import optimize

    n_levels = int(levels.max())
    scores = np.asarray(_jitted_scores(start, x, readout=readout))
    # Padding is NaN here and 0 in the flat vector; `counted` masks it in the loss.
    thresholds = np.full(_padded(n_levels), np.nan, np.float32)
    shares = [(levels <= level).mean() for level in range(n_levels)]
    thresholds[:n_levels] = np.quantile(scores, shares)
    # Entropies are bounded: without a gain no loss could be small.
    gain = -np.log(max(scores.std(), 1e-3)) if readout == "entropy" else 0.0
    parts = [*start.weights, *start.biases, np.nan_to_num(thresholds), gain]
    point = np.concatenate([np.ravel(np.asarray(part)) for part in parts])
    shapes = tuple(np.shape(part) for part in parts)
    y, counted = jnp.asarray(levels), jnp.asarray(np.isfinite(thresholds))

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        theta = point.astype(np.float32)
        value, slope = _value_and_slope(
            theta, x, y, counted, l2, shapes=shapes, readout=readout
        )
        return float(value), np.asarray(slope, np.float64)

    options = {"maxiter": steps, "ftol": _FLAT}
    begin = point.astype(np.float64)
    minimize = cast(Any, optimize.minimize)
    result = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(result.x).all():  # it diverged
        return start
    return _rebuilt(jnp.asarray(result.x, jnp.float32), shapes)[0]


def _padded(n_levels: int) -> int:
    """Return the number of thresholds, padded so that few programs are compiled."""
    return 1 if n_levels == 1 else 32 * -(-n_levels // 32)


def _rebuilt(
    point: jax.Array, shapes: tuple[tuple[int, ...], ...]
) -> tuple[Probe, jax.Array, jax.Array]:
    """Return the probe, thresholds and gain that a flat vector holds."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    parts = [
        part.reshape(shape)
        for part, shape in zip(jnp.split(point, ends), shapes, strict=True)
    ]
    *layers, thresholds, gain = parts
    depth = len(layers) // 2
    return Probe(tuple(layers[:depth]), tuple(layers[depth:])), thresholds, gain


def _loss(
    point: jax.Array,
    x: jax.Array,
    levels: jax.Array,
    counted: jax.Array,
    l2: float,
    *,
    shapes: tuple[tuple[int, ...], ...],
    readout: Readout,
) -> jax.Array:
    probe, thresholds, gain = _rebuilt(point, shapes)
    lead = score_outputs(probe(x), readout)[:, None] - thresholds
    if readout == "entropy":
        lead = jnp.exp(gain) * lead
    # A score at level l lies above the first l thresholds.
    above = levels[:, None] > jnp.arange(len(thresholds))
    losses = jnp.where(counted, jax.nn.softplus(jnp.where(above, -lead, lead)), 0)
    small = sum(jnp.sum(w**2) for w in probe.weights)
    return jnp.sum(jnp.mean(losses, axis=0)) / jnp.sum(counted) + l2 / 2 * small


_value_and_slope: Any = jax.jit(
    jax.value_and_grad(_loss), static_argnames=("shapes", "readout")
)


def readout_of(manifest: Manifest) -> Readout:
    """Return how a proxy's logits become scores; all kinds rank two classes alike."""
    if manifest.head.n_classes == 2:
        return "square"
    return "margin" if manifest.score.kind == "margin" else "entropy"


def score_outputs(outputs: jax.Array, readout: Readout) -> jax.Array:
    """Return the scores of a probe's outputs, `[n]`.

    Args:
        outputs: `[n, C]`; `[n, 1]`, a difference of two logits, for "square".
        readout: The form.
    """
    if readout == "entropy":
        return entropy(outputs)
    if readout == "margin":
        return margin(outputs)
    return -(outputs[:, 0] ** 2) if readout == "square" else outputs[:, 0]


def _scores(probe: Probe, x: jax.Array, *, readout: Readout) -> jax.Array:
    return score_outputs(probe(x), readout)


_jitted_scores: Any = jax.jit(_scores, static_argnames="readout")


class _Moments:
    """First and second moments of features, weighted with levels.

    Attributes:
        mean: The direction of the weighted mean, `[d]`: Fisher's, for two levels.
    """

    def __init__(self, x: np.ndarray, levels: np.ndarray):
        n, d = x.shape
        weights = (levels - levels.mean()) / max(levels.std(), 1e-12)
        self.x, self.top = x, levels == levels.max()
        covariance = x.T @ x / n
        self._moment = (x * weights[:, None].astype(np.float32)).T @ x / n
        # Few samples can't whiten many features.
        share = d / (n + d)
        covariance = (1 - share) * covariance
        covariance += share * np.trace(covariance) / d * np.eye(d)
        values, vectors = np.linalg.eigh(covariance.astype(np.float64))
        self._whiten = (vectors / np.sqrt(np.maximum(values, 1e-6))) @ vectors.T
        # Whitened twice: the inverse covariance times the difference of means.
        self.mean = self._whiten @ self._whiten @ (weights @ x / n)

    def directions(self, rank: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yield names and `[d, rank]`: where high scores vary least, others most."""
        # Scores are highest near 0 of the logits, so that weighted moments are lowest
        # along the logits' directions: `eigh` has these first.
        whitened = self._whiten @ self._moment @ self._whiten
        yield "spectral", self._whiten @ np.linalg.eigh(whitened)[1][:, :rank]
        yield "plain spectral", np.linalg.eigh(self._moment)[1][:, :rank]
        if rank == 1:
            yield "mean", self.mean[:, None]

    def probe(self, directions: np.ndarray, n_outputs: int) -> Probe:
        """Return a linear probe along directions, its zero where high scores lie.

        Args:
            directions: `[d, r]`.
            n_outputs: r + 1 classes, as far from each other; else one output.
        """
        along = self.x @ directions
        scale = 1 / np.maximum(along.std(0), 1e-12)
        weights, bias = directions * scale, -along[self.top].mean(0) * scale
        if n_outputs > 1:
            # A basis of the vectors that sum to 0: classes at the corners of a simplex.
            corners = np.linalg.qr(np.eye(n_outputs) - 1 / n_outputs)[0][:, :-1].T
            corners = corners[: len(bias)]  # there may be fewer features than classes
            weights, bias = weights @ corners, bias @ corners
        weight, offset = (jnp.asarray(part, jnp.float32) for part in (weights, bias))
        return Probe((weight,), (offset,))
