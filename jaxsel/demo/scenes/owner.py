"""An owner of images: how it chooses what to send."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxsel.gradients import Factored, last_layer
from jaxsel.match import class_budgets, func_feat, grad_match
from jaxsel.retrieve import retrieve

from .networks import Net, checkpoints
from .trainer import Samples, Sizes

CHECKPOINT = 1
"""The owner's checkpoint that gradients are taken from: after its first cycle."""

SELECTORS = ("func_feat", "grad_match", "retrieve", "random")
"""The ways to choose that are compared; `choose` explains them."""

SPACES = SELECTORS[:-1]
"""Those of them that look at the samples through the owner's model."""

NAMES = {
    "func_feat": "FuncFeat",
    "grad_match": "GradMatch",
    "retrieve": "retrieval",
    "random": "random",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """What an owner sees of its n samples and of the m hard ones.

    Attributes:
        labels: `[n]`, the labels that its samples come with.
        hard_labels: `[m]`.
        features: `[n, d]`: where retrieval looks for what is near.
        hard_features: `[m, d]`.
        gradients: Those of its model's last layer, of n candidates.
        hard_gradients: Those of the m hard samples.
    """

    labels: np.ndarray
    hard_labels: np.ndarray
    features: np.ndarray
    hard_features: np.ndarray
    gradients: Factored
    hard_gradients: Factored

    def by(self, features: np.ndarray, hard_features: np.ndarray) -> View:
        """Return it with another space to look for what is near, flattened."""
        flat, hard = (a.reshape(len(a), -1) for a in (features, hard_features))
        return dataclasses.replace(self, features=flat, hard_features=hard)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """An owner of samples, with a model that it trained on them.

    Attributes:
        samples: What it has, as it is labelled.
        nets: Checkpoints of its model: untrained, then after each cycle.
    """

    samples: Samples
    nets: list[Net]

    def view(self, hard: Samples, *, checkpoint: int = CHECKPOINT) -> View:
        """Look at its samples and the hard ones through a checkpoint.

        Gradients are those of the checkpoint's last layer, and features what that layer
        sees.
        """
        net = self.nets[checkpoint]
        features, hard_features = (net.features(x) for x in (self.samples[0], hard[0]))
        return View(
            labels=self.samples[1],
            hard_labels=hard[1],
            features=features,
            hard_features=hard_features,
            gradients=gradients(net, self.samples, features),
            hard_gradients=gradients(net, hard, hard_features),
        )


def gradients(
    net: Net, samples: Samples, features: np.ndarray | None = None
) -> Factored:
    """Return the gradients of a network's last layer, one for each sample.

    Args:
        net: The network.
        samples: Images with labels.
        features: What its last layer sees of them, if that is known already.
    """
    x, y = samples
    features = net.features(x) if features is None else features
    return last_layer(net.logits(x), y, features)


def new_owner(
    samples: Samples,
    classes: int,
    sizes: Sizes,
    key: jax.Array,
    *,
    kind: str | None = None,
) -> Owner:
    """Return an owner with a model of its own, of a kind, or else `sizes.net`."""
    keys = [jax.random.fold_in(key, i) for i in range(2)]
    net = sizes.untrained(samples[0].shape[1:], classes, keys[0], kind=kind)
    nets = checkpoints(net, *samples, sizes.cycles, keys[1])
    return Owner(samples=samples, nets=nets)


def choose(how: str, view: View, budget: int, key: jax.Array) -> np.ndarray:
    """Choose what to send.

    Args:
        how: "func_feat" and "grad_match" match the mean gradient of the hard samples of
            each class by samples of that class; "retrieve" takes the samples nearest
            to the hard ones of their class, by the cosine of features; "random" draws
            from the classes of the hard samples, in proportion.
        view: What the owner sees.
        budget: How many samples to send at most.
        key: Key of the random draw.

    Returns:
        Rows, `[<= budget]`, best first. Matching may send fewer: it stops where no
        sample is left whose gradient points towards the target.
    """
    y: Any = {"labels": view.labels}
    if how == "random":
        return _random(view, budget, key)
    if how == "retrieve":
        y["hard_labels"] = view.hard_labels
        chosen = retrieve(view.features, view.hard_features, budget, **y)
    else:
        y["target_labels"] = view.hard_labels
        gradients = view.gradients, view.hard_gradients
        if how == "grad_match":
            chosen = grad_match(*gradients, budget, **y)
        else:
            near = view.features, view.hard_features
            chosen = func_feat(*gradients, *near, budget, **y)
    return np.asarray(chosen.indices)[: int(chosen.n_valid)]


def _random(view: View, budget: int, key: jax.Array) -> np.ndarray:
    order = np.asarray(jax.random.permutation(key, len(view.labels)))
    classes, counts = np.unique(view.hard_labels, return_counts=True)
    sizes = np.array([np.sum(view.labels == c) for c in classes])
    given = zip(classes, class_budgets(counts, sizes, budget), strict=True)
    return np.concatenate([order[view.labels[order] == c][:n] for c, n in given])
