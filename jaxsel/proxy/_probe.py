"""Probes: small heads on features that the data owner computes with a public encoder.

A linear probe costs one secure product, whatever the encoder; the encoder runs in the
clear, at the data owner's. Distillation makes up for its lack of depth: from
the target's logits on as many unlabelled samples as the model owner holds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
from jax import lax

from jaxsel._devices.typed import jit, tree_map
from jaxsel._inputs.checks import (
    check_choice,
    check_count,
    check_features,
    check_finite,
    check_numeric,
    check_positive,
    check_same_length,
    to_float,
)
from jaxsel._inputs.show import brief

from ._mlp import along
from .families._score_exact import entropy

Loss = Literal["labels", "logits", "ranks"]

_LOSSES = ("labels", "logits", "ranks")
# Pairs that the loss on ranks compares each sample in.
_PAIRS = 16


@brief
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Probe:
    """A linear classifier of features, or one with a hidden layer of ReLUs.

    Attributes:
        weights: One matrix `[d, C]`, or two, `[d, h]` and `[h, C]`.
        biases: One vector for each.
    """

    weights: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]

    def __call__(self, features: jax.Array) -> jax.Array:
        """Return the logits of features `[..., d]`, `[..., C]`."""
        x = features
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = jnp.matmul(jax.nn.relu(x) if i else x, w, precision="highest")
            x = x + along(b, x)
        return x


def fit_probe(
    features: npt.ArrayLike | jax.Array,
    targets: npt.ArrayLike | jax.Array,
    *,
    loss: Loss = "logits",
    n_classes: int = 2,
    hidden: int = 0,
    l2: float = 1e-3,
    steps: int = 200,
    key: jax.Array | None = None,
) -> Probe:
    """Fit a probe to labels, or to a target's outputs on unlabelled samples.

    Features are standardised, and that is folded into the first layer. Full-batch
    L-BFGS: each step costs a few passes over the features, m·d·(h + C).

    Args:
        features: Array of shape `[m, d]`, of a public encoder.
        targets: By `loss`.
        loss: "labels": cross-entropy with classes `[m]`. "logits": squared distance
            from the target's logits `[m, C]`, less their mean over classes; distils
            its outputs on every sample. "ranks": logistic loss over pairs of samples,
            so that the probe's entropies rank as the scores `[m]` do; nothing else of
            the target is learned.
        n_classes: Number of classes C; taken from the logits, if they are given.
        hidden: Hidden units; 0 for a linear probe.
        l2: Weight of half the squared weights of standardised features.
        steps: L-BFGS steps.
        key: Of the initial weights and pairs; not needed by a linear probe of labels or
            logits.

    Returns:
        The probe, with the weights that had the lowest loss.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If shapes don't fit, values are not finite, labels lie out of range,
            or `key` is missing.
    """
    x = check_features("features", features)
    check_finite("features", x)
    x = np.asarray(to_float(x))
    y = np.asarray(targets)
    check_choice("loss", loss, _LOSSES)
    check_numeric("targets", y)
    check_finite("targets", y)
    check_same_length("features", x, "targets", y)
    hidden = check_count("hidden", hidden, minimum=0)
    l2 = check_positive("l2", l2, zero=True)
    steps = check_count("steps", steps)
    n_classes = check_count("n_classes", n_classes, minimum=2)
    if loss == "logits":
        if y.ndim != 2 or y.shape[1] < 2:
            raise ValueError(f"targets must be logits [m, C], got shape {y.shape}")
        n_classes = y.shape[1]
    elif y.ndim != 1:
        raise ValueError(f"targets must have shape [m] for {loss!r}, got {y.shape}")
    if loss == "labels" and (
        y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= n_classes
    ):
        raise ValueError(
            f"targets must be whole numbers in [0, {n_classes}), got {y.dtype} from "
            f"{y.min()} to {y.max()}"
        )
    if key is None:
        if hidden or loss == "ranks":
            raise ValueError(
                f"key must be given for hidden={hidden} and loss={loss!r}, got None"
            )
        key = jax.random.key(0)  # not used: the start is 0, and there are no pairs
    mean, scale = x.mean(0), x.std(0)
    # Constant features are 0 once they are centred, whatever their scale.
    scale = np.where(scale > 1e-6 * scale.max(initial=0), scale, 1)
    sizes = (x.shape[1], hidden, n_classes) if hidden else (x.shape[1], n_classes)
    start = initial_probe(sizes, jax.random.fold_in(key, 0), random=loss == "ranks")
    goal = jnp.asarray(y if loss == "labels" else y.astype(np.float32))
    pairs = jax.random.randint(jax.random.fold_in(key, 1), (_PAIRS, len(x)), 0, len(x))
    scaled = jnp.asarray((x - mean) / scale)
    fitted = _fit(scaled, goal, pairs, start, l2, loss=loss, steps=steps)
    first = fitted.weights[0] / scale[:, None]
    return Probe(
        (first, *fitted.weights[1:]),
        (fitted.biases[0] - mean @ first, *fitted.biases[1:]),
    )


def initial_probe(sizes: tuple[int, ...], key: jax.Array, *, random: bool) -> Probe:
    """Return zeros for a convex problem, else small random weights."""
    weights: list[jax.Array] = []
    for i, shape in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        normal = jax.random.normal(jax.random.fold_in(key, i), shape) / shape[0] ** 0.5
        weights.append(normal if random or len(sizes) > 2 else jnp.zeros(shape))
    return Probe(tuple(weights), tuple(jnp.zeros(size) for size in sizes[1:]))


@jit(static_argnames=("loss", "steps"))
def _fit(
    x: jax.Array,
    targets: jax.Array,
    pairs: jax.Array,
    start: Probe,
    l2: jax.Array | float,
    *,
    loss: Loss,
    steps: int,
) -> Probe:
    """Minimise a loss by L-BFGS; return the weights of the lowest loss on the way."""

    def objective(probe: Probe) -> jax.Array:
        small = sum(jnp.sum(w**2) for w in probe.weights)
        return _loss(probe(x), targets, pairs, loss) + l2 / 2 * small

    solver = optax.lbfgs()
    both = optax.value_and_grad_from_state(objective)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        probe, state, best, lowest = carry
        value, gradient = both(probe, state=state)
        lower = value < lowest
        best = tree_map(lambda new, old: jnp.where(lower, new, old), probe, best)
        updates, state = solver.update(
            gradient,
            state,
            probe,
            value=value,
            grad=gradient,
            value_fn=objective,
        )
        probe = optax.apply_updates(probe, updates)
        return (probe, state, best, jnp.where(lower, value, lowest)), None

    begin: Any = start
    carry = begin, solver.init(begin), begin, jnp.inf
    # A step evaluates the weights before its update: one more judges the last ones.
    return lax.scan(step, carry, None, length=steps + 1)[0][2]


def _loss(
    logits: jax.Array, targets: jax.Array, pairs: jax.Array, loss: Loss
) -> jax.Array:
    if loss == "labels":
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return jnp.mean(losses)
    if loss == "logits":
        apart = logits - targets
        apart = apart - apart.mean(axis=1, keepdims=True)
        return jnp.mean(jnp.sum(apart**2, axis=1)) / 2
    entropies = entropy(logits)
    difference = entropies - entropies[pairs]
    sign = jnp.sign(targets - targets[pairs])
    return jnp.mean(jnp.where(sign == 0, 0, jax.nn.softplus(-sign * difference)))
