"""EfficientNet-Lite0 trained on ImageNet: its features, and reading its weights.

References:
    Tan and Le, EfficientNet: rethinking model scaling for convolutional neural
    networks, ICML 2019. Lite variants have no squeeze-and-excitation, and ReLU6.
"""

from __future__ import annotations

import json
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

KIND = "efficientnet_lite0"
WIDTH = 1280
_SIDE = 224
_BLOCKS = 16
# Blocks that halve the resolution, as does the stem.
_HALVING = (1, 3, 5, 11)
_EPS = 1e-3  # of every batch norm
# The first two pickles of torch's format before 1.6.
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def convert_efficientnet(weights: str | os.PathLike[str], folder: Path) -> Path:
    """Write the weights in a file of torch as a folder for `image_features`.

    Each batch norm becomes part of the convolution before it. The head of 1,000 classes
    is left out.

    Args:
        weights: A state dictionary, in the format of torch before 1.6.
        folder: Folder to write; must not exist.

    Raises:
        ImportError: If `safetensors` is not installed.
        ValueError: If the file holds something else.
    """
    from safetensors.numpy import save_file

    with Path(weights).open("rb") as file:
        stored = read_state(file)
    try:
        parts = {"stem": _fold(stored, "_conv_stem", "_bn0")}
        for i in range(_BLOCKS):
            prefix = f"_blocks.{i}."
            if i:  # the first block does not widen its input
                parts[f"{i}.expand"] = _fold(
                    stored, f"{prefix}_expand_conv", f"{prefix}_bn0"
                )
            parts[f"{i}.depth"] = _fold(
                stored, f"{prefix}_depthwise_conv", f"{prefix}_bn1"
            )
            parts[f"{i}.project"] = _fold(
                stored, f"{prefix}_project_conv", f"{prefix}_bn2"
            )
        parts["head"] = _fold(stored, "_conv_head", "_bn1")
    except KeyError as error:
        raise ValueError(f"{weights} is no EfficientNet-Lite0: no {error}") from None
    folder.mkdir(parents=True)
    save_file(
        {
            f"{name}.{kind}": a
            for name, tensors_of_part in parts.items()
            for kind, a in tensors_of_part.items()
        },
        folder / "model.safetensors",
    )
    config = {"model_type": KIND, "image_size": _SIDE}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder


def load_weights(file: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read the kernels and biases that `convert_efficientnet` wrote, by part."""
    from safetensors.numpy import load_file

    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, array in load_file(file).items():
        part, kind = name.rsplit(".", 1)
        parts.setdefault(part, {})[kind] = array
    return parts


@jax.jit
def efficientnet_features(
    weights: Mapping[str, Mapping[str, jax.Array]], images: jax.Array
) -> jax.Array:
    """Return the mean over places of the last convolution, `[n, 1280]`.

    Args:
        weights: Of `load_weights`.
        images: `[n, side, side, 3]`, normalised.

    Costs .4 G multiplications an image of 224 × 224 pixels.
    """
    x = _convolve(weights["stem"], images, stride=2)
    for i in range(_BLOCKS):
        y = _pointwise(weights[f"{i}.expand"], x) if i else x
        y = _depthwise(weights[f"{i}.depth"], y, stride=2 if i in _HALVING else 1)
        project = weights[f"{i}.project"]
        y = _matmul(y, project["kernel"][0, 0]) + project["bias"]
        x = x + y if x.shape == y.shape else y
    return _pointwise(weights["head"], x).mean((1, 2))


def _relu6(x: jax.Array) -> jax.Array:
    return jnp.clip(x, 0, 6)


def _matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.einsum("nhwc,cd->nhwd", x, kernel)


def _pointwise(part: Mapping[str, jax.Array], x: jax.Array) -> jax.Array:
    return _relu6(_matmul(x, part["kernel"][0, 0]) + part["bias"])


def _convolve(part: Mapping[str, jax.Array], x: jax.Array, *, stride: int) -> jax.Array:
    y = jax.lax.conv_general_dilated(
        x,
        part["kernel"],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return _relu6(y + part["bias"])


def _depthwise(
    part: Mapping[str, jax.Array], x: jax.Array, *, stride: int
) -> jax.Array:
    """Convolve each channel by itself, as a sum of shifted images.

    XLA's grouped convolution took five times as long on a CPU.
    """
    kernel = part["kernel"]
    k = kernel.shape[0]
    pads, spans = [], []
    for size in x.shape[1:3]:
        out = -(-size // stride)
        total = max((out - 1) * stride + k - size, 0)
        pads.append((total // 2, total - total // 2))
        spans.append((out - 1) * stride + 1)
    x = jnp.pad(x, ((0, 0), *pads, (0, 0)))
    y = part["bias"]
    for a in range(k):
        for b in range(k):
            shifted = x[:, a : a + spans[0] : stride, b : b + spans[1] : stride]
            y = y + shifted * kernel[a, b, 0]
    return _relu6(y)


def _fold(stored: Mapping[str, np.ndarray], conv: str, norm: str) -> dict[str, Any]:
    """Fold a batch norm into the convolution before it, `[h, w, in, out]`."""
    kernel, scale = stored[f"{conv}.weight"], stored[f"{norm}.weight"]
    scale = scale / np.sqrt(stored[f"{norm}.running_var"] + _EPS)
    bias = stored[f"{norm}.bias"] - stored[f"{norm}.running_mean"] * scale
    folded = (kernel * scale[:, None, None, None]).transpose(2, 3, 1, 0)
    return {
        "kernel": np.ascontiguousarray(folded, np.float32),
        "bias": np.asarray(bias, np.float32),
    }


class _Tensors(pickle.Unpickler):
    """Read tensors of torch's old format, and nothing else that a pickle may hold."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: (
                (storage, offset, shape, strides)
            )
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of tensors")

    def persistent_load(self, pid: Any) -> Any:
        _, dtype, key, _, size, _ = pid
        return dtype, key, size


def _view(
    flat: np.ndarray, offset: int, shape: Sequence[int], strides: Sequence[int]
) -> np.ndarray:
    """Return a tensor of a storage, after a check that it lies within."""
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or last >= len(flat):
        raise ValueError(
            f"a tensor of shape {shape} must lie within its storage of {len(flat)}, "
            f"got offset {offset} and strides {strides}"
        )
    steps = [step * flat.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps)


def read_state(file: BinaryIO) -> dict[str, np.ndarray]:
    """Read a state dictionary of float32 and int64 tensors without torch.

    Raises:
        ValueError: If the file is of another format, or holds anything but tensors.
    """
    try:
        header = [_Tensors(file).load() for _ in range(3)]
        if header[:2] != [_MAGIC, _PROTOCOL]:
            raise ValueError("its first numbers are not those of torch's format")
        entries = _Tensors(file).load()
        keys = _Tensors(file).load()
        dtypes = {entry[0][1]: entry[0][0] for entry in entries.values()}
        data = {}
        for key in keys:  # the sizes and numbers follow, one storage after the other
            size = int(np.frombuffer(file.read(8), "<i8")[0])
            dtype = dtypes[key]
            data[key] = np.frombuffer(file.read(size * dtype.itemsize), dtype)
        tensors = {}
        for name, ((_, key, _), offset, shape, strides) in entries.items():
            tensors[name] = _view(data[key], offset, shape, strides).copy()
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
    ) as error:
        raise ValueError(
            f"weights must be a file of tensors of torch: {error}"
        ) from error
    return tensors
