"""Names of settings and tensors in the architectures of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ._encoder import Between
from ._layer import EncoderConfig

_BERT_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}
_DISTILBERT_LAYER = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "out": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "up": "ffn.lin1",
    "down": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
_VIT_LAYER = {
    "query": "attention.attention.query",
    "key": "attention.attention.key",
    "value": "attention.attention.value",
    "out": "attention.output.dense",
    "attention_norm": "layernorm_before",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "layernorm_after",
}
_TEXT = {
    "words.embedding": "embeddings.word_embeddings.weight",
    "positions": "embeddings.position_embeddings.weight",
    "types": "embeddings.token_type_embeddings.weight",
    "embed_norm.scale": "embeddings.LayerNorm.weight",
    "embed_norm.bias": "embeddings.LayerNorm.bias",
}
_IMAGE = {
    "patches.kernel": "embeddings.patch_embeddings.projection.weight",
    "patches.bias": "embeddings.patch_embeddings.projection.bias",
    "cls": "embeddings.cls_token",
    "positions": "embeddings.position_embeddings",
    "final_norm.scale": "layernorm.weight",
    "final_norm.bias": "layernorm.bias",
}


class Family(NamedTuple):
    """Names of the settings and tensors of a `model_type`."""

    config: Callable[[Mapping[str, Any]], dict[str, Any]]
    prefix: str
    names: Mapping[str, str]
    layer: Mapping[str, str]
    layers: str = "encoder.layer"
    head: str = "classifier"
    pooler: tuple[str, Between] | None = None  # in front of the head

    def name(self, ours: str) -> str:
        """Return the name that a parameter of ours has in the file."""
        if ours in self.names:
            return self.names[ours]
        _, i, part, kind = ours.split(".")
        kind = "bias" if kind == "bias" else "weight"
        return f"{self.layers}.{i}.{self.layer[part]}.{kind}"


def _bert(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "text",
        "layers": settings["num_hidden_layers"],
        "heads": settings["num_attention_heads"],
        "hidden": settings["hidden_size"],
        "intermediate": settings["intermediate_size"],
        "eps": settings.get("layer_norm_eps", 1e-12),
        "activation": _activation(settings.get("hidden_act", "gelu")),
        "vocab": settings["vocab_size"],
        "positions": settings["max_position_embeddings"],
        "types": settings.get("type_vocab_size", 2),
    }


def _roberta(settings: Mapping[str, Any]) -> dict[str, Any]:
    # Positions are counted from behind that of the padding token.
    return _bert(settings) | {"position_offset": settings.get("pad_token_id", 1) + 1}


def _distilbert(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "text",
        "layers": settings["n_layers"],
        "heads": settings["n_heads"],
        "hidden": settings["dim"],
        "intermediate": settings["hidden_dim"],
        "activation": _activation(settings.get("activation", "gelu")),
        "vocab": settings["vocab_size"],
        "positions": settings["max_position_embeddings"],
    }


def _vit(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "image",
        "pre_norm": True,
        "layers": settings["num_hidden_layers"],
        "heads": settings["num_attention_heads"],
        "hidden": settings["hidden_size"],
        "intermediate": settings["intermediate_size"],
        "eps": settings.get("layer_norm_eps", 1e-12),
        "activation": _activation(settings.get("hidden_act", "gelu")),
        "side": settings["image_size"],
        "patch": settings["patch_size"],
        "channels": settings.get("num_channels", 3),
    }


def _activation(name: str) -> str:
    known = {
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "relu": "relu",
    }
    if name not in known:
        raise ValueError(f"activation must be one of {', '.join(known)}, got {name!r}")
    return known[name]


_FAMILIES = {
    "bert": Family(_bert, "bert.", _TEXT, _BERT_LAYER, pooler=("pooler.dense", "tanh")),
    "roberta": Family(
        _roberta,
        "roberta.",
        _TEXT,
        _BERT_LAYER,
        head="classifier.out_proj",
        pooler=("classifier.dense", "tanh"),
    ),
    "distilbert": Family(
        _distilbert,
        "distilbert.",
        _TEXT,
        _DISTILBERT_LAYER,
        "transformer.layer",
        pooler=("pre_classifier", "relu"),
    ),
    "vit": Family(_vit, "vit.", _IMAGE, _VIT_LAYER),
}


# Settings that change what an encoder computes, and for which none of ours is built:
# the values that are, and what others mean. Settings of training, of caches and of
# heads that are left out have no part in features, and may be anything.
_SUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "is_decoder": ((False,), "a decoder's tokens attend to earlier ones alone"),
    "is_encoder_decoder": ((False,), "only encoders are supported"),
    "add_cross_attention": ((False,), "there is no other sequence to attend to"),
    "position_embedding_type": (
        ("absolute",),
        "others add relative positions to the scores",
    ),
    "qkv_bias": ((True,), "queries, keys and values have biases here"),
    "pruned_heads": (({}, []), "layers have all heads here"),
    "quantization_config": (({},), "weights must be floating-point numbers"),
    "auto_map": (({},), "code of its own computes this model"),
}


def read_config(file: Path) -> tuple[Family, EncoderConfig]:
    """Read a `config.json` as the model's family and its encoder's config."""
    settings = json.loads(file.read_text(encoding="utf-8"))
    kind = settings.get("model_type")
    if kind not in _FAMILIES:
        raise ValueError(
            f"model_type in {file} must be one of {', '.join(_FAMILIES)}, got {kind!r}"
        )
    for name, (supported, meaning) in _SUPPORTED.items():
        value = settings.get(name)
        # JSON has lists and dictionaries, which no set holds.
        if value is not None and value not in supported:
            raise ValueError(
                f"{name} in {file} must be {supported[0]!r}, or left out, got "
                f"{value!r}: {meaning}"
            )
    family = _FAMILIES[kind]
    try:
        return family, EncoderConfig(**family.config(settings))
    except KeyError as error:
        raise ValueError(f"{file} lacks {error}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{file} is of no use: {error}") from error
