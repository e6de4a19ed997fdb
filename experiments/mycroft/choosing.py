"""Ways for an owner to choose samples to send, by its model's view of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from experiments._kit.scenes.networks import Net
from experiments._kit.scenes.owner import CHECKPOINT, Owner, gradients
from experiments._kit.scenes.trainer import Samples
from jaxsel.gradients import Factored, ghost
from jaxsel.match import class_budgets, facility_location, func_feat, grad_match
from jaxsel.retrieve import retrieve_nearest

SELECTORS = ("func_feat", "grad_match", "retrieve", "random")
"""The ways to choose that are compared; `choose` explains them."""

SPACES = SELECTORS[:-1]
"""The selectors that read the samples through the owner's model."""

PUBLISHED = "published"
"""FuncFeat as in the paper and its public code, which the paper's claims are about.

Samples are picked by orthogonal matching pursuit, so that distances bear on weights
only, and the rest of a budget is filled at random, as that code does. "func_feat"
lets distances bear on the choice, and fills nothing.
"""


VARIANTS = ("equation 2", "two layers", "craig")
"""Further ways of the paper's, or that it compares with; `choose` explains them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """Features and gradients of an owner's n samples and of the m hard ones.

    Attributes:
        labels: `[n]`, the labels that its samples come with.
        hard_labels: `[m]`.
        features: `[n, d]`, in which retrieval searches for neighbours.
        hard_features: `[m, d]`.
        gradients: Of the last layer of its model, or the last two, for n samples.
        hard_gradients: The same for the m hard samples.
    """

    labels: np.ndarray
    hard_labels: np.ndarray
    features: np.ndarray
    hard_features: np.ndarray
    gradients: Factored
    hard_gradients: Factored

    def by(self, features: np.ndarray, hard_features: np.ndarray) -> View:
        """Return the view with other features for retrieval, flattened to rows."""
        flat, hard = (a.reshape(len(a), -1) for a in (features, hard_features))
        return dataclasses.replace(self, features=flat, hard_features=hard)


def shared_view(
    owner: Owner, hard: Samples, *, checkpoint: int = CHECKPOINT, layers: int = 1
) -> View:
    """Look at an owner's samples and the hard ones through a checkpoint of its model.

    Gradients are of the checkpoint's last layer or last two, and features the inputs
    of the last one.
    """
    net = owner.nets[checkpoint]
    features, hard_features = (net.features(x) for x in (owner.samples[0], hard[0]))
    if layers == 2:
        oracles = [two_layers(net, samples) for samples in (owner.samples, hard)]
    else:
        oracles = [
            gradients(net, samples, inputs)
            for samples, inputs in ((owner.samples, features), (hard, hard_features))
        ]
    return View(
        labels=owner.samples[1],
        hard_labels=hard[1],
        features=features,
        hard_features=hard_features,
        gradients=oracles[0],
        hard_gradients=oracles[1],
    )


def two_layers(net: Net, samples: Samples) -> Factored:
    """Return the gradients of a network's last two layers, one for each sample.

    In a CNN the layer before the last is a convolution.
    """
    blocks = len(net.params.get("convolutions", ()))
    early = tuple(f"convolutions/{i}/" for i in range(blocks - 1))
    wrt = lambda path, leaf: not path.startswith(early)
    return ghost(_cross_entropy(net.graphdef), net.params, samples, wrt=wrt)


@functools.cache
def _cross_entropy(graphdef: nnx.GraphDef) -> Callable[[Any, Any], jax.Array]:
    def loss(params: Any, example: tuple[jax.Array, jax.Array]) -> jax.Array:
        scores = nnx.merge(graphdef, params)(example[0][None])[0]
        return optax.softmax_cross_entropy_with_integer_labels(scores, example[1])

    return loss


def choose(how: str, view: View, budget: int, key: jax.Array) -> np.ndarray:
    """Choose the rows to send.

    Args:
        how: "func_feat", `PUBLISHED` and "grad_match" match the mean gradient of the
            hard samples of each class by samples of that class; "retrieve" takes the
            samples nearest to the hard ones of their class, by the cosine of features;
            "random" draws from the classes of the hard samples, in proportion. Of
            `VARIANTS`, "equation 2" is `PUBLISHED` with the distances of all hard
            samples (the paper's text) in place of their median's (its code),
            "two layers" is `PUBLISHED` for a view of two layers, and "craig" takes the
            representatives of the owner's samples of each class, which cover all their
            gradients: it does not look at the hard samples but for their classes.
        view: The samples as the owner's model represents them.
        budget: How many samples to send at most.
        key: Key of the random draw.

    Returns:
        Rows, `[<= budget]`, best first. Matching may send fewer: it stops where no
        sample is left whose gradient points towards the target. `PUBLISHED` and
        `VARIANTS` do not.
    """
    y: Any = {"labels": view.labels}
    if how == "random":
        return _random(view, budget, key)
    if how == "craig":
        return _craig(view, budget)
    if how == "retrieve":
        y["hard_labels"] = view.hard_labels
        chosen = retrieve_nearest(view.features, view.hard_features, budget, **y)
    else:
        y["hard_labels"] = view.hard_labels
        gradients = view.gradients, view.hard_gradients
        if how == "grad_match":
            chosen = grad_match(*gradients, budget, **y)
        else:
            near = view.features, view.hard_features
            y["score"] = "ols" if how == "func_feat" else "omp"
            y["distances"] = "all" if how == "equation 2" else "median"
            chosen = func_feat(*gradients, *near, budget, **y)
    rows = np.asarray(chosen.indices)[: int(chosen.n_valid)]
    if how in (PUBLISHED, *VARIANTS):
        return filled(rows, _random(view, budget, key), view.labels)
    return rows


def filled(rows: np.ndarray, others: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Fill rows up by others, so that each class has as many as it has among these.

    Args:
        rows: At most as many of each class as among `others`.
        others: In the order in which they are taken.
        labels: Of all rows.
    """
    more = []
    for c in np.unique(labels[others]):
        kept, candidates = (group[labels[group] == c] for group in (rows, others))
        missing = max(0, len(candidates) - len(kept))
        more.append(candidates[~np.isin(candidates, kept)][:missing])
    return np.concatenate([rows, *more])


def _shares(view: View, budget: int) -> dict[int, int]:
    """Divide a budget among the classes of the hard samples, in proportion."""
    classes, counts = np.unique(view.hard_labels, return_counts=True)
    sizes = np.array([np.sum(view.labels == c) for c in classes])
    return dict(zip(classes, class_budgets(counts, sizes, budget), strict=True))


def _random(view: View, budget: int, key: jax.Array) -> np.ndarray:
    order = np.asarray(jax.random.permutation(key, len(view.labels)))
    shares = _shares(view, budget)
    return np.concatenate(
        [order[view.labels[order] == c][:n] for c, n in shares.items()]
    )


def _craig(view: View, budget: int) -> np.ndarray:
    parts = []
    for c, n in _shares(view, budget).items():
        rows = np.flatnonzero(view.labels == c)
        if n:
            chosen = facility_location(view.gradients.take(jnp.asarray(rows)), int(n))
            parts.append(rows[np.asarray(chosen.indices)[: len(chosen)]])
    return np.concatenate(parts)
