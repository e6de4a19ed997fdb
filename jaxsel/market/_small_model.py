"""Small default models for owners that have none of their own."""

from __future__ import annotations

import jax
import numpy as np

from jaxsel._inputs.checks import check_finite
from jaxsel._inputs.frames import plain_labels
from jaxsel.gradients import Oracle

from ._request import Request
from ._scale import Scale
from ._view import OwnerModel


def network_model(
    request: Request,
    x: np.ndarray,
    y: np.ndarray,
    *,
    key: jax.Array,
    features: bool = True,
    name: str = "x",
) -> OwnerModel:
    """Train a small network on an owner's samples, to answer a request with.

    It has one hidden layer on standardised numbers, and is trained for 100 steps. After
    500 steps gradients are nearly 0 and choose worse. They are scaled to a length of 1,
    in root mean square.

    Args:
        request: The request, with its classes.
        x: The owner's samples, numbers `[n, ...]`. Samples of other classes than the
            request's are left out of training.
        y: Their labels, `[n]`.
        key: Of initial weights and minibatches.
        features: Whether to compare samples by the hidden layer too.
        name: Name of the samples in error messages.

    Returns:
        The model, with the gradients of its last layer and, with `features`, its hidden
        layer.

    Raises:
        ValueError: If the request names no classes, `x` is not finite, or no label is
            one of the classes.
    """
    from ._network import EARLY_STEPS, Network

    if request.schema.classes is None:
        raise ValueError("request must name classes, for a network to tell apart")
    check_finite(name, x)
    classes = np.asarray(request.schema.classes)
    labels = plain_labels(y)
    known = np.isin(labels, classes)
    if not known.any():
        raise ValueError(f"{name} has no sample of a class that the request names")
    scale = Scale.of(x)
    rows = scale(x)
    keys = [jax.random.fold_in(key, i) for i in range(2)]
    training_set = rows[known], np.searchsorted(classes, labels[known])
    network = Network.new(rows.shape[1], len(classes), keys[0])
    network = network.trained(*training_set, keys[1], EARLY_STEPS).measured(
        *training_set
    )

    def oracle(x: np.ndarray, y: np.ndarray) -> Oracle:
        return network.oracle(scale(x), np.searchsorted(classes, y))

    return OwnerModel(
        oracle=oracle,
        features=(lambda x: network.features(scale(x))) if features else None,
    )


def standardized_model(x: np.ndarray) -> OwnerModel:
    """Compare samples by their numbers, each column centred and divided by its spread.

    Args:
        x: The owner's samples, numbers `[n, ...]`: other shapes than tables have one
            centre and spread for all.

    Returns:
        The model, which has features only.
    """
    return OwnerModel(features=Scale.of(x))
