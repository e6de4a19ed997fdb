"""How an owner looks at samples on the command line, for lack of a model of its own."""

from __future__ import annotations

import argparse

import jax
import numpy as np

from jaxsel._checks import check_finite
from jaxsel.data import Dataset
from jaxsel.market import OwnerModel, Request

from ._market_data import plain_labels, warn
from ._market_model import EARLY_STEPS, Network, Scale


def owner_model(
    args: argparse.Namespace, method: str, request: Request, data: Dataset
) -> OwnerModel | None:
    """How samples are looked at: by an early network where gradients are matched."""
    if method not in ("grad_match", "func_feat") or request.schema.classes is None:
        return _as_they_are(args, method, request, data)
    if args.standardize:
        raise ValueError(f"--standardize must not be given: {method} scales by itself")
    if args.unlabelled:
        raise ValueError(f"--unlabelled leaves {method} without labels to train on")
    if data.x.dtype.kind not in "biuf":
        raise ValueError(f"{method} needs DATA of numbers, got {data.x.dtype}")
    if request.x is None and request.schema.sample_shape is not None:
        raise ValueError(
            f"{method} needs a request that shows samples, got one of features: choose "
            "another --method"
        )
    check_finite("DATA", data.x)
    classes = np.asarray(request.schema.classes)
    labels = plain_labels(data.y)
    known = np.isin(labels, classes)
    if not known.any():
        raise ValueError("DATA has no sample of a class that the request names")
    scale = Scale.of(data.x)
    rows = scale(data.x)
    keys = [jax.random.fold_in(jax.random.key(args.seed), i) for i in range(2)]
    mine = rows[known], np.searchsorted(classes, labels[known])
    network = Network.new(rows.shape[1], len(classes), keys[0])
    network = network.trained(*mine, keys[1], EARLY_STEPS).measured(*mine)
    return OwnerModel(
        oracle=lambda x, y: network.oracle(scale(x), np.searchsorted(classes, y)),
        features=None if args.features else lambda x: network.features(scale(x)),
    )


def _as_they_are(
    args: argparse.Namespace, method: str, request: Request, data: Dataset
) -> OwnerModel | None:
    """No model, or columns on one scale; says what samples are compared by."""
    compared = method == "retrieve" or args.unlabelled
    raw = request.x is not None and args.features is None
    if not args.standardize:
        if compared and raw and request.features is not None:
            warn(
                "the request has features, but --features is not given: samples are "
                "compared as they are"
            )
        return None
    if not (compared and raw) or data.x.dtype.kind not in "biuf":
        raise ValueError(
            "--standardize must not be given here: it is for retrieve and for "
            "--unlabelled, without --features, where the request shows samples"
        )
    return OwnerModel(features=Scale.of(data.x))
