"""Readers of prepared TFDS sets for cells, with or without a target."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jaxsel._runs.progress import track
from jaxsel.data import available
from jaxsel.models import Target, load_target, tokenize

LENGTH = 128
"""Tokens of a text at most; the paper does not give its length."""

_CHUNK = 1024
_BLOCK = 256  # images that are encoded at once
_TESTS = ("test", "validation", "validation_matched")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """A data set and a target.

    Attributes:
        name: Name of the data set.
        inputs: `Tokens`, or images of bytes `[n, h, w, c]`.
        y: Classes, `[n]` int32.
        train: Number of rows of the training split, which come first; others test.
        n_classes: C.
        target: With a fresh head of C classes.
        digest: Digest of the target's files and of the data set's version.
        mean: Subtracted from each channel of an image in 0..1.
        scale: Divisor of each channel after that.
    """

    name: str
    inputs: Any
    y: np.ndarray
    train: int
    n_classes: int
    target: Target
    digest: str
    mean: np.ndarray | float = 0.5
    scale: np.ndarray | float = 0.5

    def take(self, rows: np.ndarray) -> Any:
        """Return the inputs of some rows as the target reads them."""
        config = self.target.config
        if config.kind == "text":
            return jax.tree.map(lambda array: array[rows], self.inputs)
        pixels = np.stack([_resized(self.inputs[row], config.side) for row in rows])
        return self.scaled(pixels / np.float32(255))

    def scaled(self, images: np.ndarray) -> np.ndarray:
        """Return images in 0..1, `[n, side, side, c]`, as the target reads them."""
        if images.shape[-1] < self.target.config.channels:
            images = np.repeat(images, self.target.config.channels, axis=-1)
        return ((images - self.mean) / self.scale).astype(np.float32)

    def images(self) -> np.ndarray:
        """Return all images at the target's size, `[n, side, side, c]` of bytes."""
        side = self.target.config.side
        return np.stack(
            channels_alike([_resized(image, side) for image in self.inputs])
        )

    def encoded(self, images: np.ndarray) -> np.ndarray:
        """Return the mean row of the target's last layer, `[n, H]`.

        Args:
            images: `[n, side, side, c]`, in 0..1 or bytes.
        """
        parts = [
            images[start : start + _BLOCK] for start in range(0, len(images), _BLOCK)
        ]
        features = self.target.features
        return np.concatenate([features(self.scaled(unit(part))) for part in parts])


class Split(NamedTuple):
    """Inputs and classes of one split."""

    x: list[Any]
    y: np.ndarray


class Prepared(NamedTuple):
    """Labelled samples of a set.

    Attributes:
        train: Training samples.
        test: Test samples; empty if not asked for.
        n_classes: C; classes are 0 to C - 1.
        digest: Digest of the data read.
    """

    train: Split
    test: Split
    n_classes: int
    digest: str


def read_prepared(
    data: str,
    kind: str,
    *,
    side: int | None = None,
    tested: bool = True,
    most: int | None = None,
    progress: bool = False,
) -> Prepared:
    """Read the labelled samples of a prepared set.

    Test samples are those of "test", or of "validation" where the classes of "test"
    are kept secret, as in GLUE.

    Args:
        data: Name of a prepared set of TFDS, such as "glue/sst2".
        kind: "text" or "image".
        side: Pixels along a side at most: larger images are resized. Any if None.
        tested: Whether to read test samples, too.
        most: Training samples to read at most; TFDS has shuffled them. All if None.
        progress: Show bars.

    Raises:
        FileNotFoundError: If the set is not prepared.
        ValueError: If the set has no classes, only one of them, no splits to train and
            to test on, or does not hold what is read.
    """
    builder = _builder(data)
    names, label = _features(data, builder.info, kind)

    def read(split: str, most: int | None = None) -> Split:
        if split not in builder.info.splits:
            return Split([], np.zeros(0))
        samples = _read(builder, split, names, label, side, most, progress)
        rows = np.flatnonzero(samples.y >= 0)
        return Split([samples.x[row] for row in rows], samples.y[rows])

    train, test = read("train", most), Split([], np.zeros(0, int))
    if tested:
        test = next((samples for samples in map(read, _TESTS) if len(samples.y)), test)
    for use, split in (("train", train), ("test", test)):
        if (use == "train" or tested) and not len(split.y):
            raise ValueError(
                f"--data {data!r} must have labelled samples to {use} on, in "
                f"{'train' if use == 'train' else ' or '.join(_TESTS)}; its splits are "
                f"{', '.join(sorted(builder.info.splits)) or 'none'}"
            )
    y = np.concatenate([train.y, test.y])
    if len(np.unique(y)) < 2:
        raise ValueError(f"--data {data!r} must have two classes at least, got one")
    facts = f"{builder.data_dir} {kind} {side} {most}"
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    return Prepared(train, test, int(y.max()) + 1, digest)


def read_cell(
    data: str,
    target: str,
    *,
    kind: str | None = None,
    progress: bool = False,
    **options: Any,
) -> Cell:
    """Read the training and test samples of a set in a target's input format.

    Texts of two parts are joined by the tokenizer's separator.

    Args:
        data: Name of a prepared set of TFDS, such as "glue/sst2".
        target: Folder with `config.json`, `model.safetensors` and, for texts,
            `tokenizer.json`.
        kind: "text" or "image", where a target must be of that kind.
        progress: Show bars.
        **options: See `read_prepared`.

    Raises:
        FileNotFoundError: If the set is not prepared, or the folder lacks a file.
        ValueError: If the set can't serve, see `read_prepared`, or the target is of
            another kind.
    """
    # The folder first: it is checked in a second, and a set may take minutes.
    config = load_target(target).config
    if kind not in (None, config.kind):
        raise ValueError(
            f"--target {target} must be a target of {kind}s, such as a "
            f"{'ViT' if kind == 'image' else 'BERT'}, got one of {config.kind}s"
        )
    side = config.side if config.kind == "image" else None
    read = read_prepared(data, config.kind, side=side, progress=progress, **options)
    model = load_target(target, n_classes=read.n_classes, read="mean", rngs=nnx.Rngs(0))
    x = [*read.train.x, *read.test.x]
    return Cell(
        name=data,
        inputs=_tokens(x, model, target) if config.kind == "text" else x,
        y=np.concatenate([read.train.y, read.test.y]).astype(np.int32),
        train=len(read.train.y),
        n_classes=read.n_classes,
        target=model,
        digest=_digest(Path(target), read.digest),
        **(_scaling(Path(target)) if config.kind == "image" else {}),
    )


def read_images(data: str, *, side: int, **options: Any) -> tuple[Prepared, np.ndarray]:
    """Read images, and resize them to one size.

    Args:
        data: Name of a prepared set of TFDS.
        side: Pixels along a side: images are resized, without regard to proportions.
        **options: See `read_prepared`.

    Returns:
        The samples, and the images in 0..1, test samples last, `[n, side, side, c]`, of
        one channel if all are grey, else of three.

    Raises:
        FileNotFoundError: If the set is not prepared.
        ValueError: If the set can't serve, see `read_prepared`.
    """
    read = read_prepared(data, "image", side=side, **options)
    x = [_resized(image, side) for image in (*read.train.x, *read.test.x)]
    return read, np.stack(channels_alike(x)) / np.float32(255)


def unit(images: np.ndarray) -> np.ndarray:
    """Return images in 0..1 or of bytes as float32 in 0..1."""
    scale = 255 if images.dtype == np.uint8 else 1
    return images.astype(np.float32) / np.float32(scale)


def channels_alike(x: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Give images `[..., c]` one channel if all have one, else three."""
    if all(image.shape[-1] == 1 for image in x):
        return [*x]
    return [
        np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image[..., :3]
        for image in x
    ]


def _builder(data: str) -> Any:
    """Return the builder of a prepared set, to read it without TensorFlow."""
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    # As `jaxsel.data.load` has it; TFDS looks at the variable when it is imported.
    folder = Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")
    folder = folder.expanduser().absolute()
    try:
        builder: Any = builder_from_files(data, data_dir=str(folder))
    except ValueError as error:  # it is not there, or that is no name
        raise FileNotFoundError(
            f"--data {data!r} is not prepared in {folder}. {_how_to_prepare(data)}"
        ) from error
    kind = builder.info.file_format.value
    if kind not in ("array_record", "parquet"):
        raise FileNotFoundError(
            f"--data {data!r} is prepared as {kind}, which TensorFlow alone reads. "
            f"{_how_to_prepare(data)}"
        )
    return builder


def _how_to_prepare(data: str) -> str:
    if data in {entry.name for entry in available()} - {"digits"}:
        return f"Prepare it: jaxsel data prepare {data}"
    return (
        'Where there is a network: python -c "import tensorflow_datasets as tfds; '
        f"tfds.builder({data!r}, file_format='array_record').download_and_prepare()\""
    )


def _features(data: str, info: Any, kind: str) -> tuple[list[str], str]:
    """Return the names of the inputs, one image or one or two texts, and the label."""
    features: Mapping[str, Any] = info.features
    keys = info.supervised_keys or ()
    label = keys[1] if len(keys) > 1 else "label"
    if label not in features or not hasattr(features[label], "num_classes"):
        raise ValueError(
            f"--data {data!r} must have a class for each sample, its supervised key or "
            f"'label', got the features {', '.join(sorted(features))}"
        )
    wanted = "Image" if kind == "image" else "Text"
    names = [n for n in sorted(features) if type(features[n]).__name__ == wanted]
    if keys and keys[0] in names:
        names = [keys[0]]
    if not 1 <= len(names) <= (1 if kind == "image" else 2):
        many = "image" if kind == "image" else "text, or two"
        raise ValueError(
            f"--data {data!r} must hold one {many} in each sample, got the features "
            f"{', '.join(sorted(features))}"
        )
    return names, label


def _read(
    builder: Any,
    split: str,
    names: list[str],
    label: str,
    side: int | None,
    most: int | None,
    progress: bool,
) -> Split:
    source = builder.as_data_source(split=split)
    size = min(len(source), most or len(source))
    x: list[Any] = []
    y: list[int] = []
    for start in track(
        range(0, size, _CHUNK), progress=progress, label=f"Reading {split}"
    ):
        stop = min(start + _CHUNK, size)
        for row in source.__getitems__(list(range(start, stop))):
            parts = [row[name] for name in names]
            x.append(tuple(parts) if side is None else _within(parts[0], side))
            y.append(int(row[label]))
    return Split(x, np.asarray(y))


def _within(image: np.ndarray, side: int) -> np.ndarray:
    """Shrink an image that is larger than the target's, to save memory."""
    return image if max(image.shape[:2]) <= side else _resized(image, side)


def _resized(image: np.ndarray, side: int) -> np.ndarray:
    from PIL import Image

    if image.shape[:2] == (side, side):
        return image
    grey = image.shape[-1] == 1
    pil_image = Image.fromarray(image[..., 0] if grey else image)
    resized = np.asarray(pil_image.resize((side, side), Image.Resampling.BILINEAR))
    return resized[..., None] if grey else resized


def _tokens(x: list[Any], target: Target, folder: str) -> Any:
    if target.tokenizer is None:
        raise FileNotFoundError(f"--target {folder}: there is no tokenizer.json in it")
    separator = next(_separators(target.tokenizer), "")
    texts = [
        f" {separator} ".join(
            part.decode(errors="replace") if isinstance(part, bytes) else str(part)
            for part in parts
        )
        for parts in x
    ]
    length = min(LENGTH, target.config.length)
    return tokenize(texts, target.tokenizer, length=length)


def _separators(file: Path) -> Iterator[str]:
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"].get("vocab", {})
    yield from (name for name in ("[SEP]", "</s>") if name in vocabulary)


def _scaling(folder: Path) -> dict[str, Any]:
    """Return the mean and scale that an image's target was trained with."""
    file = folder / "preprocessor_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {
        "mean": np.asarray(settings.get("image_mean", 0.5), np.float32),
        "scale": np.asarray(settings.get("image_std", 0.5), np.float32),
    }


def _digest(target: Path, data: str) -> str:
    digest = hashlib.sha256(data.encode())
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        file = target / name
        if file.is_file():
            with file.open("rb") as opened:
                while block := opened.read(1 << 24):
                    digest.update(block)
    return digest.hexdigest()[:16]
