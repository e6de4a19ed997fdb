"""Reading encoders from Hugging Face folders: `config.json` and `model.safetensors`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ._encoder import Classifier, Read, make_head
from ._families import Family, read_config
from ._layer import EncoderConfig
from ._target import Target

# Heads of other tasks, and what only they read: no part of an encoder.
_UNUSED = re.compile(
    r"(cls|pooler|lm_head|qa_outputs|classifier|pre_classifier|vocab_\w+)\."
    r"|embeddings\.(position_ids|mask_token)$"
)


def load_target(
    folder: str | os.PathLike[str],
    *,
    n_classes: int | None = None,
    read: Read = "cls",
    rngs: nnx.Rngs | None = None,
) -> Target:
    """Load an encoder from a Hugging Face folder.

    BERT, MiniLM and others of model type "bert", "distilbert", "roberta" and "vit".
    A classifier's own head comes along, with the layer in front of it, if it has as
    many classes as are asked for: `BertForSequenceClassification` and its relatives. A
    fresh head is linear, on the first row or on the mean. Weights become float32.

    Args:
        folder: With `config.json` and `model.safetensors`; texts also need
            `tokenizer.json`.
        n_classes: Add a head for this number of classes: the folder's, if it has one
            for as many and `read` is "cls", or else a fresh one; no head if None.
        read: "cls" reads the first row, "mean" the mean over the mask.
        rngs: The key of a fresh head.

    Raises:
        FileNotFoundError: If a file is missing.
        ImportError: If `safetensors` is not installed.
        ValueError: If the architecture is not one of these, a setting asks for what it
            does not compute (`is_decoder`, relative positions, ...), tensors are
            missing, unknown or of another shape, the folder's head is of another
            `problem_type` than one label a sample, or a fresh head has no `rngs`.
    """
    folder = Path(folder)
    family, config = read_config(folder / "config.json")
    tensors = _tensors(folder / "model.safetensors", family.prefix)
    head: dict[str, Any] = {}
    between = None
    if n_classes is not None:
        stored = _stored_head(family, tensors) if read == "cls" else {}
        classes = len(stored["head.bias"]) if stored else 0
        if classes == n_classes:
            head, between = stored, family.pooler and family.pooler[1]
            _check_problem(folder / "config.json")
        elif rngs is not None:
            fresh = make_head(config, n_classes, rngs)
            head = {f"head.{k}": v[...] for k, v in nnx.state(fresh).items()}
        else:
            has = f": it has one for {classes}" if classes else ""
            raise ValueError(
                f"{folder} has no head for {n_classes} classes that a target can use"
                f"{has}; give rngs= for a fresh one"
            )
    # Without its initial values, which would take longer than all else.
    model = nnx.eval_shape(
        lambda: Classifier(
            config, n_classes, read=read, between=between, rngs=nnx.Rngs(0)
        )
    )
    graphdef, shapes = nnx.split(model, nnx.Param)
    tokenizer = folder / "tokenizer.json"
    return Target(
        config=config,
        graphdef=graphdef,
        params=_fill(shapes, config, family, tensors, head, folder),
        read=read,
        tokenizer=tokenizer if tokenizer.is_file() else None,
    )


def _stored_head(family: Family, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the folder's head, and the layer in front of it; nothing if incomplete."""
    places = {"head": family.head}
    if family.pooler is not None:
        places["pooler"] = family.pooler[0]
    names = {
        f"{ours}.{kind}": f"{theirs}.{'bias' if kind == 'bias' else 'weight'}"
        for ours, theirs in places.items()
        for kind in ("kernel", "bias")
    }
    if not set(names.values()) <= set(tensors):
        return {}
    return {ours: tensors[theirs].T for ours, theirs in names.items()}


def _check_problem(file: Path) -> None:
    """Raise unless the head classifies into one of several classes."""
    kind = json.loads(file.read_text(encoding="utf-8")).get("problem_type")
    if kind not in (None, "single_label_classification"):
        raise ValueError(
            f"problem_type in {file} must be 'single_label_classification' for a head "
            f"of classes, got {kind!r}; another n_classes with rngs= takes a fresh head"
        )


def _tensors(file: Path, prefix: str) -> dict[str, np.ndarray]:
    """Read all tensors, under the names that they have in an encoder by itself."""
    try:
        from safetensors import SafetensorError
        from safetensors.flax import load_file
    except ImportError as error:
        raise ImportError(
            "load_target needs safetensors: pip install 'jaxsel[text]'"
        ) from error

    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}: weights must be one safetensors")
    try:
        stored = load_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged or no safetensors: {error}") from error
    # The first BERT checkpoints call a norm's scale and bias by other names.
    old = {"gamma": "weight", "beta": "bias"}
    tensors = {}
    for name, tensor in stored.items():
        stem, _, kind = name.removeprefix(prefix).rpartition(".")
        kind = old.get(kind, kind)
        tensors[f"{stem}.{kind}" if stem else kind] = np.asarray(tensor)
    return tensors


def _fill(
    shapes: Any,
    config: EncoderConfig,
    family: Family,
    tensors: Mapping[str, np.ndarray],
    head: Mapping[str, Any],
    folder: Path,
) -> Any:
    """Fill the model's parameters with tensors; raise if any don't fit."""
    unknown = {name for name in tensors if not _UNUSED.match(name)}
    wrong, missing = [], []

    def fill(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> jax.Array:
        ours = jax.tree_util.keystr(path, simple=True, separator=".")
        path_name = ours.removesuffix(".value")
        owner, _, ours = path_name.partition(".")
        if owner in ("head", "pooler"):
            if head[path_name].shape != leaf.shape:
                wrong.append(
                    f"{path_name} has shape {head[path_name].shape}, not {leaf.shape}"
                )
                return jnp.zeros(leaf.shape, leaf.dtype)
            return jnp.asarray(head[path_name], leaf.dtype)
        theirs = family.name(ours)
        unknown.discard(theirs)
        tensor = tensors.get(theirs)
        if tensor is None:
            missing.append(theirs)
        elif tensor.shape != (shape := _their_shape(ours, leaf.shape, config)):
            wrong.append(f"{theirs} has shape {tensor.shape}, not {shape}")
        else:
            return jnp.asarray(_as_ours(ours, tensor), leaf.dtype).reshape(leaf.shape)
        return jnp.zeros(leaf.shape, leaf.dtype)

    params = jax.tree_util.tree_map_with_path(fill, shapes)
    if missing or wrong or unknown:
        faults = {"missing": missing, "wrong": wrong, "unknown": sorted(unknown)}
        clauses = [f"{kind}: {', '.join(v)}" for kind, v in faults.items() if v]
        raise ValueError(
            f"the tensors of {folder} don't fit its config.json; " + "; ".join(clauses)
        )
    return params


def _their_shape(
    ours: str, shape: tuple[int, ...], config: EncoderConfig
) -> tuple[int, ...]:
    """Return the shape that a tensor must have in the file."""
    if ours == "patches.kernel":
        return config.hidden, config.channels, config.patch, config.patch
    if ours.endswith("kernel"):
        return shape[::-1]
    if config.kind == "image" and ours in ("cls", "positions"):
        return 1, *shape
    return shape


def _as_ours(ours: str, tensor: np.ndarray) -> np.ndarray:
    """Return a tensor as our layers have it."""
    if ours == "patches.kernel":
        return tensor.transpose(2, 3, 1, 0)
    return tensor.T if ours.endswith("kernel") else tensor
