"""Images with features of encoders that were pretrained on other images."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from jaxsel.data import load
from jaxsel.models import (
    available_models,
    cache_folder,
    image_features,
    prepare_model,
)


class PretrainedEncoder(NamedTuple):
    """An encoder of images that the catalogue has.

    Attributes:
        name: In tables.
        side: Pixels along a side that it sees; its own if None.
    """

    name: str
    side: int | None


ENCODERS = {
    "efficientnet_lite0": PretrainedEncoder("EfficientNet-Lite0", None),
    "vit_s": PretrainedEncoder("ViT-S", 112),
}
"""By name in the catalogue, the one that applications take first."""
FIRST = next(iter(ENCODERS))


class Rows(NamedTuple):
    """Rows of a training set that are encoded.

    Attributes:
        other: Number of first rows, which choose metrics and components.
        start: The first row that may be valued.
        stop: The row after the last one.
    """

    other: int
    start: int
    stop: int


ROWS = {
    "fashion_mnist": Rows(other=500, start=4000, stop=6500),
    "mnist": Rows(other=300, start=4000, stop=5200),
}


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Images, their classes, and features by encoder; the first rows are `other`.

    Attributes:
        x: `[n, h, w]`, in 0..1.
        y: `[n]`.
        features: `[n, H]` by encoder.
        other: Number of first rows, which are never valued.
    """

    x: np.ndarray
    y: np.ndarray
    features: dict[str, np.ndarray]
    other: int


def encoders_there() -> tuple[str, ...]:
    """Return the encoders that are prepared on this machine."""
    prepared = {model.name for model in available_models() if model.path is not None}
    return tuple(name for name in ENCODERS if name in prepared)


def encoded(
    name: str,
    encoders: tuple[str, ...],
    *,
    classes: int | None = None,
    progress: bool = False,
) -> Encoded:
    """Return the rows of `ROWS`, encoded once and kept on disk.

    Args:
        name: Name of the data set.
        encoders: Names in `ENCODERS`, of prepared encoders.
        classes: Only classes below this number; all if None.
        progress: Whether to show a bar.
    """
    rows = ROWS[name]
    parts = [
        load(name, split=f"train[{start}:{stop}]")
        for start, stop in ((0, rows.other), (rows.start, rows.stop))
    ]
    x = np.concatenate([np.asarray(part.x) for part in parts])
    y = np.concatenate([np.asarray(part.y) for part in parts])
    wanted = np.ones(len(y), bool) if classes is None else y < classes

    def encode(encoder: str) -> np.ndarray:
        # Applications need the first encoder's features of all rows: kept once for all.
        selected = np.ones(len(y), bool) if encoder == FIRST else wanted
        features = image_features(
            x[selected],
            prepare_model(encoder),
            side=ENCODERS[encoder].side,
            cache=cache_folder("features"),
            progress=progress,
        )
        return features[wanted[selected]]

    return Encoded(
        x=x[wanted].reshape(wanted.sum(), *x.shape[1:3]).astype(np.float32) / 255,
        y=y[wanted],
        features={encoder: encode(encoder) for encoder in encoders},
        other=int(wanted[: rows.other].sum()),
    )
