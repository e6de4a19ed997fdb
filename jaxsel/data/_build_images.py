"""MNIST and Fashion-MNIST: the official builders, fed from files in a package."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from tensorflow_datasets.image_classification import mnist

from ._build import Example, LocalBuilder


class _IdxBuilder(LocalBuilder, skip_registration=True):
    """Reads images and labels in the IDX format of the MNIST database."""

    def splits(self) -> dict[str, Iterator[Example]]:
        return {"train": self._examples("train"), "test": self._examples("t10k")}

    def _examples(self, prefix: str) -> Iterator[Example]:
        suffix = ".gz" if f"{prefix}-images-idx3-ubyte.gz" in self.files else ""
        images = read_idx(self.files[f"{prefix}-images-idx3-ubyte{suffix}"])
        labels = read_idx(self.files[f"{prefix}-labels-idx1-ubyte{suffix}"])
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield i, {"image": _png(image), "label": int(label)}


# The names make TFDS take what is written here for its own.
class Mnist(_IdxBuilder, mnist.MNIST, skip_registration=True):
    name = "mnist"


class FashionMnist(_IdxBuilder, mnist.FashionMNIST, skip_registration=True):
    name = "fashion_mnist"


BUILDERS = {builder.name: builder for builder in (Mnist, FashionMnist)}


def read_idx(path: Path) -> np.ndarray:
    """Read a file of bytes in the IDX format, gzipped or not.

    The header is two zero bytes, the type (8: unsigned byte), the number of axes, and
    the length of each axis as a big-endian 32-bit integer.

    Raises:
        ValueError: If the file isn't one, or its length is wrong.
    """
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if data[:3] != b"\x00\x00\x08" or len(data) < 4:
        raise ValueError(f"{path.name} is not an IDX file of bytes")
    start = 4 + 4 * data[3]
    shape = tuple(np.frombuffer(data[4:start], ">i4").tolist())
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _png(image: np.ndarray) -> bytes:
    # Given an array, TFDS would encode it with TensorFlow.
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()
