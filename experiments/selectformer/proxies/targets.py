"""Targets that are fine-tuned on the samples bought, and the paper's sub-model M_g."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.selectformer.sources import Encoded
from jaxsel.models import Classifier, Target, finetune
from jaxsel.proxy import Training, fit_probe

TUNING = Training(6, 16, 1e-4)
IMAGES = Training(12, 16, 1e-3)
"""How the target is fine-tuned on the bootstrap set: MiniLM, and the small ViT."""

HEAD = 0.1
"""The penalty of the probe that its head begins as."""


def tuned(
    source: Encoded, rows: np.ndarray, key: jax.Array, *, hidden: bool = False
) -> Target:
    """Fine-tune the source's target on some samples.

    Its head begins as a probe of its own features: from one at random, a few dozen
    samples of a skewed set teach no more than which class is frequent.

    Args:
        source: Where the samples are from.
        rows: The samples, with labels.
        key: Of the order of samples, and of hidden units.
        hidden: Whether the head has a layer of ReLUs, as wide as the features, so that
            it is no linear probe.
    """
    model = nnx.merge(source.target.graphdef, source.target.params)
    x = source.features[rows][:, -source.target.config.hidden :]
    return _trained(source, source.target, model, x, rows, key, hidden=hidden)


def sub_model(source: Encoded, rows: np.ndarray, layers: int, key: jax.Array) -> Target:
    """Fine-tune the bottom layers of the source's target by themselves.

    Args:
        source: Where the samples are from.
        rows: The bootstrap set.
        layers: How many layers.
        key: Of the order of samples.

    References:
        SelectFormer, section 4.2: the backbone of all proxies, M_g.
    """
    base = source.target
    config = dataclasses.replace(base.config, layers=layers)
    model = nnx.merge(base.graphdef, base.params)
    model.encoder.layers = nnx.List([*model.encoder.layers][:layers])
    model.encoder.config = config
    graphdef, params = nnx.split(model)
    base = dataclasses.replace(base, config=config, graphdef=graphdef, params=params)
    x = base.features(source.take(rows))
    return _trained(source, base, model, x, rows, key, hidden=False)


def _trained(
    source: Encoded,
    base: Target,
    model: Any,
    x: np.ndarray,
    rows: np.ndarray,
    key: jax.Array,
    *,
    hidden: bool,
) -> Target:
    """Train a model on some samples, its head from a probe of the features `x`."""
    config, y = base.config, source.y[rows]
    probe = fit_probe(
        x,
        y,
        loss="labels",
        n_classes=source.n_classes,
        hidden=config.hidden if hidden else 0,
        l2=HEAD,
        key=jax.random.fold_in(key, 1) if hidden else None,
    )
    if hidden:
        encoder = model.encoder
        model = Classifier(
            config, source.n_classes, read=base.read, between="relu", rngs=nnx.Rngs(0)
        )
        model.encoder = encoder
        model.pooler.kernel.set_value(probe.weights[0])
        model.pooler.bias.set_value(probe.biases[0])
    assert model.head is not None
    model.head.kernel.set_value(probe.weights[-1])
    model.head.bias.set_value(probe.biases[-1])
    graphdef, params = nnx.split(model)
    trained = finetune(
        graphdef,
        params,
        source.take(rows),
        y,
        key=key,
        **dataclasses.asdict(IMAGES if config.kind == "image" else TUNING),
    )
    return dataclasses.replace(base, graphdef=graphdef, params=trained.params)
