"""Tiny Hugging Face folders with random weights, and a plain forward pass in torch."""

import json

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

LAYERS, HEADS, HIDDEN, WIDE, VOCAB, POSITIONS = 2, 2, 8, 12, 30, 12
CONFIGS = {
    "bert": {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "vocab_size": VOCAB,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    },
    "distilbert": {
        "n_layers": LAYERS,
        "n_heads": HEADS,
        "dim": HIDDEN,
        "hidden_dim": WIDE,
        "vocab_size": VOCAB,
        "max_position_embeddings": POSITIONS,
        "activation": "relu",
    },
    "vit": {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "image_size": 6,
        "patch_size": 2,
        "num_channels": 3,
        "layer_norm_eps": 1e-6,
        "hidden_act": "gelu_new",
    },
}
CONFIGS["roberta"] = CONFIGS["bert"] | {"pad_token_id": 1, "type_vocab_size": 1}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]

# The sub-layers in one order: query, key, value, out, norm, up, down, norm.
PARTS = {
    "bert": "attention.self.query attention.self.key attention.self.value "
    "attention.output.dense attention.output.LayerNorm intermediate.dense "
    "output.dense output.LayerNorm",
    "distilbert": "attention.q_lin attention.k_lin attention.v_lin attention.out_lin "
    "sa_layer_norm ffn.lin1 ffn.lin2 output_layer_norm",
    "vit": "attention.attention.query attention.attention.key "
    "attention.attention.value attention.output.dense layernorm_before "
    "intermediate.dense output.dense layernorm_after",
}
PARTS["roberta"] = PARTS["bert"]


def layer_name(kind, i):
    stem = "transformer.layer" if kind == "distilbert" else "encoder.layer"
    return f"{stem}.{i}"


def random_tensors(kind):
    rng = np.random.default_rng(len(kind))
    shapes = {}
    if kind == "vit":
        shapes["embeddings.cls_token"] = (1, 1, HIDDEN)
        shapes["embeddings.position_embeddings"] = (1, 10, HIDDEN)
        patch = "embeddings.patch_embeddings.projection"
        shapes[f"{patch}.weight"], shapes[f"{patch}.bias"] = (
            (HIDDEN, 3, 2, 2),
            (HIDDEN,),
        )
        norms = ["layernorm"]
    else:
        shapes["embeddings.word_embeddings.weight"] = (VOCAB, HIDDEN)
        shapes["embeddings.position_embeddings.weight"] = (POSITIONS, HIDDEN)
        if kind != "distilbert":
            types = CONFIGS[kind]["type_vocab_size"]
            shapes["embeddings.token_type_embeddings.weight"] = (types, HIDDEN)
        norms = ["embeddings.LayerNorm"]
    for name in norms:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (HIDDEN,)
    for i in range(LAYERS):
        for j, part in enumerate(PARTS[kind].split()):
            out = {5: WIDE}.get(j, HIDDEN)
            name = f"{layer_name(kind, i)}.{part}"
            wide = (out, {6: WIDE}.get(j, HIDDEN))
            shapes[f"{name}.weight"] = (out,) if j in (4, 7) else wide
            shapes[f"{name}.bias"] = (out,)
    return {
        name: rng.normal(0.3, 0.6, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write(folder, kind, tensors, **settings):
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": kind} | CONFIGS[kind] | settings
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_tokenizer(folder):
    """A token for each letter; all else is unknown."""
    tool = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tool.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tool.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=special
    )
    tool.save(str(folder / "tokenizer.json"))
    return tool


def reference(tensors, kind, inputs, mask=None, settings=None, *, attend=False):
    """The last layer's rows, from the papers' definitions, in torch.

    With `attend` the mask numbers positions alone, and padding is attended to.
    """
    config = CONFIGS[kind] | (settings or {})
    eps = config.get("layer_norm_eps", 1e-12)
    heads = config.get("num_attention_heads") or config["n_heads"]
    layers = config.get("num_hidden_layers") or config["n_layers"]
    activate = {
        "gelu": F.gelu,
        "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
        "relu": F.relu,
    }[config.get("hidden_act") or config["activation"]]
    t = {name: torch.from_numpy(np.asarray(a)) for name, a in tensors.items()}

    def linear(x, name):
        return F.linear(x, t[f"{name}.weight"], t[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(
            x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], eps
        )

    if kind == "vit":
        patch = "embeddings.patch_embeddings.projection"
        x = torch.from_numpy(inputs).permute(0, 3, 1, 2)
        x = F.conv2d(
            x, t[f"{patch}.weight"], t[f"{patch}.bias"], stride=config["patch_size"]
        )
        x = x.flatten(2).transpose(1, 2)
        first = t["embeddings.cls_token"].expand(len(x), -1, -1)
        x = torch.cat([first, x], 1) + t["embeddings.position_embeddings"]
        allowed = None
    else:
        ids, kept = torch.from_numpy(np.asarray(inputs)).long(), torch.from_numpy(mask)
        position = torch.arange(ids.shape[1]).expand_as(ids)
        if kind == "roberta":  # as its authors number them
            position = kept.cumsum(1) * kept + config["pad_token_id"]
        x = t["embeddings.word_embeddings.weight"][ids]
        x = x + t["embeddings.position_embeddings.weight"][position]
        if kind != "distilbert":
            x = x + t["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        allowed = None if attend else kept[:, None, None, :]

    for i in range(layers):
        query, key, value, out, norm_1, up, down, norm_2 = (
            f"{layer_name(kind, i)}.{part}" for part in PARTS[kind].split()
        )

        def attention(x, query=query, key=key, value=value, out=out):
            q, k, v = (
                linear(x, name).unflatten(-1, (heads, -1)).transpose(1, 2)
                for name in (query, key, value)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
            return linear(mixed.transpose(1, 2).flatten(2), out)

        def feed(x, up=up, down=down):
            return linear(activate(linear(x, up)), down)

        if kind == "vit":
            x = x + attention(norm(x, norm_1))
            x = x + feed(norm(x, norm_2))
        else:
            x = norm(x + attention(x), norm_1)
            x = norm(x + feed(x), norm_2)
    return (norm(x, "layernorm") if kind == "vit" else x).numpy()
