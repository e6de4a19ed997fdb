"""Turning a DINOv2 encoder inside an ONNX file into a plain ViT folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path

import numpy as np

_LAYER = {
    "norm1": "layernorm_before",
    "attention.attention.query": "attention.attention.query",
    "attention.attention.key": "attention.attention.key",
    "attention.attention.value": "attention.attention.value",
    "attention.output.dense": "attention.output.dense",
    "norm2": "layernorm_after",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_SCALED = {"attention.output.dense": "layer_scale1", "mlp.fc2": "layer_scale2"}
_HEAD_WIDTH = 64  # of every DINOv2


def need_onnx() -> None:
    """Raise if `onnx` is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise ImportError("converting a ViT needs onnx: pip install onnx")


def convert_vit(onnx_path: str | os.PathLike[str], folder: Path) -> Path:
    """Write the encoder of an ONNX file as a ViT folder for `load_target`.

    DINOv2 scales the outputs of a layer's two parts, and stretches its table of
    positions to the image. Both are constants: here the scales go into the weights
    before them, and the table is stretched once, to the file's size of images.

    Args:
        onnx_path: A file with a DINOv2 encoder under `backbone`, for square images.
        folder: Folder to write; must not exist.

    Raises:
        ImportError: If `onnx` or `safetensors` is not installed.
        ValueError: If the file holds something else.
    """
    need_onnx()
    import onnx
    from safetensors.numpy import save_file

    model = onnx.load(onnx_path)
    side = model.graph.input[0].type.tensor_type.shape.dim[-1].dim_value
    source = _tensors(model)
    try:
        kernel = source["embeddings.patch_embeddings.projection.weight"]
        hidden, channels, patch, _ = kernel.shape
        tensors = {
            "embeddings.cls_token": source["embeddings.cls_token"],
            "embeddings.position_embeddings": stretch_positions(
                source["positions.cls"], source["positions"], side // patch
            ),
            "embeddings.patch_embeddings.projection.weight": kernel,
            "embeddings.patch_embeddings.projection.bias": source[
                "embeddings.patch_embeddings.projection.bias"
            ],
            "layernorm.weight": source["layernorm.weight"],
            "layernorm.bias": source["layernorm.bias"],
        }
        layers = 0
        while f"encoder.layer.{layers}.norm1.weight" in source:
            prefix = f"encoder.layer.{layers}."
            for theirs, ours in _LAYER.items():
                for kind in ("weight", "bias"):
                    tensor = source[f"{prefix}{theirs}.{kind}"]
                    if theirs in _SCALED:
                        scale = source[f"{prefix}{_SCALED[theirs]}.lambda1"]
                        tensor = tensor * (scale[:, None] if tensor.ndim > 1 else scale)
                    tensors[f"{prefix}{ours}.{kind}"] = tensor
            layers += 1
        wide = source["encoder.layer.0.mlp.fc1.bias"].size
    except KeyError as error:
        raise ValueError(f"{onnx_path} is no DINOv2 encoder: no {error}") from None
    config = {
        "model_type": "vit",
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // _HEAD_WIDTH,
        "hidden_size": hidden,
        "intermediate_size": wide,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-6,
        "image_size": side,
        "patch_size": patch,
        "num_channels": channels,
    }
    folder.mkdir(parents=True)
    contiguous = {k: np.ascontiguousarray(v, np.float32) for k, v in tensors.items()}
    save_file(contiguous, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder


def _tensors(model) -> dict[str, np.ndarray]:
    """Return the encoder's tensors under their names, kernels as `[out, in]`.

    The exporter keeps the names of biases and scales. Kernels lose theirs: the path of
    the product that reads them tells. So do the two parts of the table of positions.
    """
    from onnx import numpy_helper

    stored = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    named = {
        name.removeprefix("backbone."): tensor
        for name, tensor in stored.items()
        if name.startswith("backbone.")
    }
    for node in model.graph.node:
        path = re.fullmatch(r"/backbone/(.+)/MatMul_output_0", node.output[0])
        if path and node.input[1] in stored:
            named[path[1].replace("/", ".") + ".weight"] = stored[node.input[1]].T
        elif node.output[0] == "/backbone/embeddings/Reshape_1_output_0":
            named["positions"] = stored[node.input[0]]
        elif node.output[0] == "/backbone/embeddings/Concat_6_output_0":
            named["positions.cls"] = stored[node.input[0]]
    return named


def stretch_positions(cls: np.ndarray, table: np.ndarray, side: int) -> np.ndarray:
    """Resize a square table of positions by cubic interpolation.

    Args:
        cls: Of the first row, `[1, 1, H]`.
        table: Of the patches, `[1, s², H]`.
        side: Patches along a side afterwards.

    Returns:
        Both, `[1, 1 + side², H]`.
    """
    old = round(table.shape[1] ** 0.5)
    weights = _cubic(old, side)
    square = table.reshape(old, old, -1)
    square = np.einsum("ia,jb,abh->ijh", weights, weights, square)
    return np.concatenate([cls, square.reshape(1, side**2, -1)], axis=1)


def _cubic(old: int, new: int) -> np.ndarray:
    """Return the weights `[new, old]` of a cubic convolution at pixel centres.

    References:
        Keys, Cubic convolution interpolation for digital image processing, IEEE
        TASSP 29, 1981, doi:10.1109/TASSP.1981.1163711; with a = −0.75.
    """
    a = -0.75
    centre = (np.arange(new) + 0.5) * old / new - 0.5
    weights = np.zeros((new, old))
    for tap in range(-1, 3):
        pixel = np.floor(centre) + tap
        d = np.abs(centre - pixel)
        near = ((a + 2) * d - (a + 3)) * d**2 + 1
        far = a * (((d - 5) * d + 8) * d - 4)
        index = np.clip(pixel, 0, old - 1).astype(int)  # the edge goes on outside
        np.add.at(weights, (np.arange(new), index), np.where(d <= 1, near, far))
    return weights
