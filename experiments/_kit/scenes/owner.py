"""An owner of images, with a model of its own."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxsel.gradients import Factored, last_layer

from .networks import Net, checkpoints
from .trainer import Samples, Sizes

CHECKPOINT = 1
"""The owner's checkpoint that gradients are taken from: after its first cycle."""

NAMES = {
    "func_feat": "FuncFeat",
    "grad_match": "GradMatch",
    "retrieve": "retrieval",
    "random": "random",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """An owner of samples, with a model that it trained on them.

    Attributes:
        samples: Its samples, as they are labelled.
        nets: Checkpoints of its model: untrained, then after each cycle.
    """

    samples: Samples
    nets: list[Net]


def gradients(
    net: Net, samples: Samples, features: np.ndarray | None = None
) -> Factored:
    """Return the gradients of a network's last layer, one for each sample.

    Args:
        net: The network.
        samples: Images with labels.
        features: Inputs of its last layer for them, if known already.
    """
    x, y = samples
    features = net.features(x) if features is None else features
    return last_layer(net.logits(x), y, features)


def new_owner(
    samples: Samples,
    n_classes: int,
    sizes: Sizes,
    key: jax.Array,
    *,
    kind: str | None = None,
) -> Owner:
    """Return an owner with a model of its own, of a kind, or else `sizes.net`."""
    keys = [jax.random.fold_in(key, i) for i in range(2)]
    net = sizes.untrained(samples[0].shape[1:], n_classes, keys[0], kind=kind)
    nets = checkpoints(net, *samples, sizes.cycles, keys[1])
    return Owner(samples=samples, nets=nets)
